"""What every carrier promises, on each of them; a further carrier is one more function in `CARRIERS`."""

from __future__ import annotations

import socket
import threading
from queue import SimpleQueue

import pytest

from pypmix.engine.python.reactor import Guest, Reactor
from pypmix.host.exchange import Hub, TCPCarrier, tcp

pytestmark = pytest.mark.timeout(60)

PATIENCE = 10


class HubSession:
    """A hub whose carriers are called on a thread each, as hosts' loops do."""

    def __init__(self, _tmp_path):
        self._hub = Hub()
        self._queues = []

    def carrier(self, name):
        calls = SimpleQueue()
        self._queues.append(calls)
        threading.Thread(target=self._run, args=(calls,), daemon=True).start()
        return self._hub.carrier(name, calls.put)

    def _run(self, calls):
        while (call := calls.get()) is not None:
            call()

    def close(self):
        for calls in self._queues:
            calls.put(None)


class FolderSession:
    """Carriers over TCP that find each other by a folder."""

    def __init__(self, tmp_path):
        self._folder = tmp_path / "meeting"

    def carrier(self, name):
        return TCPCarrier.in_folder(name, self._folder)

    def close(self):
        pass


class GuestSession(FolderSession):
    """The same, each on the thread of a server."""

    def __init__(self, tmp_path):
        super().__init__(tmp_path)
        self._reactors = []

    def carrier(self, name):
        reactor = Reactor(f"server of {name}", print)
        reactor.start()
        self._reactors.append(reactor)
        carrier = super().carrier(name)
        carrier.live_on(Guest(reactor))
        return carrier

    def close(self):
        for reactor in self._reactors:
            reactor.stop()


CARRIERS = {"hub": HubSession, "tcp": FolderSession, "tcp on a server": GuestSession}


class Listener:
    """A carrier that listens, and what it was called with."""

    def __init__(self, carrier):
        self.carrier = carrier
        self.name = carrier.name
        self.calls = SimpleQueue()
        self.during = threading.Lock()
        self.react = lambda sender, message: None
        carrier.listen(self._on_message, self._on_change)

    def _on_message(self, sender, message):
        assert self.during.acquire(blocking=False), "two calls at a time"
        self.calls.put((sender, message))
        self.react(sender, message)
        self.during.release()

    def _on_change(self, name, here):
        assert self.during.acquire(blocking=False), "two calls at a time"
        if here:
            assert name in self.carrier.members
        else:
            assert name not in self.carrier.members
        self.calls.put((name, here))
        self.during.release()

    def next(self):
        return self.calls.get(timeout=PATIENCE)


@pytest.fixture(params=list(CARRIERS))
def join(request, tmp_path):
    """Return a function that makes a server of a name listen."""
    session = CARRIERS[request.param](tmp_path)
    made = []

    def join(name):
        made.append(Listener(session.carrier(name)))
        return made[-1]

    yield join
    for listener in made:
        listener.carrier.close()
    session.close()


def test_all_hear_of_all_before_they_hear_from_them(join):
    first = join("b")
    assert first.carrier.members == ("b",)
    second, third = join("a"), join("c")
    for listener, others in ((first, "ac"), (second, "bc"), (third, "ab")):
        assert sorted([listener.next(), listener.next()]) == [(name, True) for name in others]
        assert listener.carrier.members == ("a", "b", "c")
    for sender in (first, second, third):
        for name in "abc":
            if name != sender.name:
                sender.carrier.send(name, sender.name.encode())
    for listener, others in ((first, "ac"), (second, "bc"), (third, "ab")):
        assert sorted([listener.next(), listener.next()]) == [(name, name.encode()) for name in others]


def test_messages_of_a_pair_stay_in_order_and_whole(join):
    left, right = join("left"), join("right")
    assert left.next() and right.next()
    messages = [bytes((number % 251,)) * (1 + number * 997 % 70_000) for number in range(300)]
    for message in messages:
        left.carrier.send("right", message)
        right.carrier.send("left", message)
    assert [right.next() for _ in messages] == [("left", message) for message in messages]
    assert [left.next() for _ in messages] == [("right", message) for message in messages]


def test_callbacks_may_send_and_close(join):
    left, right = join("left"), join("right")
    assert left.next() and right.next()

    def play(sender, message):
        count = int(message)
        if count:
            right.carrier.send(sender, b"%d" % (count - 1))
        else:
            right.carrier.close()

    right.react = play
    left.react = lambda sender, message: left.carrier.send(sender, message)
    left.carrier.send("right", b"50")
    counts = []
    while (call := left.next()) != ("right", False):
        counts.append(int(call[1]))
    assert counts == list(range(49, -1, -1))


def test_who_closes_is_gone_after_its_last_message_and_hears_nothing_more(join):
    left, right = join("left"), join("right")
    assert left.next() and right.next()
    right.carrier.send("left", b"last")
    right.carrier.close()
    right.carrier.close()
    assert left.next() == ("right", b"last")
    assert left.next() == ("right", False)
    left.carrier.send("right", b"too late")
    assert right.calls.empty()


def test_who_comes_back_is_new(join):
    left, right = join("left"), join("right")
    assert left.next() and right.next()
    right.carrier.close()
    assert left.next() == ("right", False)
    again = join("right")
    assert left.next() == ("right", True)
    assert again.next() == ("left", True)
    left.carrier.send("right", b"hello")
    assert again.next() == ("left", b"hello")


def test_what_cannot_be_sent(join):
    alone = join("alone")
    alone.carrier.send("nobody", b"lost")
    with pytest.raises(OverflowError):
        alone.carrier.send("nobody", bytes(300 << 20))
    assert alone.calls.empty()


def test_one_on_the_thread_of_a_server_is_called_there_and_leaves_nothing_with_it(tmp_path):
    reactor = Reactor("server", print)
    reactor.start()
    watched = reactor.call(lambda: dict(reactor._guests))
    first = TCPCarrier.in_folder("a", tmp_path / "meeting")
    first.live_on(Guest(reactor))
    threads = set()
    came = threading.Event()

    def note(*_):
        threads.add(threading.get_ident())
        came.set()

    first.listen(note, note)
    second = TCPCarrier.in_folder("b", tmp_path / "meeting")
    second.listen(lambda *_: None, lambda *_: None)
    assert came.wait(PATIENCE)
    assert threads == {reactor.ident}
    first.close()
    assert reactor.call(lambda: dict(reactor._guests)) == watched
    second.close()
    reactor.stop()


def test_one_whose_server_has_ended_closes_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(tcp, "LINK_LINGER_SECONDS", 0.1)
    reactor = Reactor("server", print)
    reactor.start()
    carrier = TCPCarrier.in_folder("a", tmp_path / "meeting")
    carrier.live_on(Guest(reactor))
    carrier.listen(lambda *_: None, lambda *_: None)
    reactor.call(lambda: None)
    reactor.stop()
    carrier.send("b", b"to nobody")
    carrier.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(carrier.address)
