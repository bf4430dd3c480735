"""The switch and its carriers, as far as other carriers do not do the same: slow, silent and broken streams."""

from __future__ import annotations

import socket
import threading
import time
from queue import SimpleQueue

import pytest

from pypmix.host.addresses import hang_up
from pypmix.host.exchange import Exchange
from pypmix.host.exchange import switch as module
from pypmix.host.exchange.switch import ANSWER, HELLO, HERE, MESSAGE, PIECE, PING, Frames, Switch, frame

pytestmark = pytest.mark.timeout(60)

PATIENCE = 20


def until(condition):
    """Wait until a condition is true; fail if it does not become true in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Stream:
    """A stream whose other end is the test: what the switch writes is taken when the test says so."""

    def __init__(self):
        self.come = SimpleQueue()
        self.written = SimpleQueue()
        self.reads = threading.Semaphore(1 << 20)
        self.offered = 0
        self.released = threading.Event()
        self.broken = False

    def read(self):
        found = self.come.get()
        if isinstance(found, Exception):
            raise found
        return found

    def write(self, data):
        self.offered += 1
        self.reads.acquire()
        assert len(data) <= PIECE
        if self.broken:
            raise OSError("it is lost")
        self.written.put(data)

    def close(self):
        self.come.put(b"")
        self.reads.release()

    def release(self):
        self.released.set()


class Server:
    """A server at a switch, by frames."""

    def __init__(self, switch, name):
        self.stream = Stream()
        self.name = name
        self._frames = Frames(1 << 30)
        self._taken = []
        self.say(HELLO, name)
        switch.attach(self.stream)

    def say(self, kind, name="", data=b""):
        self.stream.come.put(frame(kind, name, data))

    def next(self, kind=None):
        """Return the next frame but for pings, which are answered."""
        while True:
            while not self._taken:
                self._taken += self._frames.take(self.stream.written.get(timeout=PATIENCE))
            found = self._taken.pop(0)
            if found[0] == PING and kind != PING:
                self.say(ANSWER)
                continue
            return found


@pytest.fixture
def switch():
    # Nobody answers its pings while a test waits.
    made = Switch(keep_alive=10 * PATIENCE)
    yield made
    made.close()


def test_frames_are_whole_however_they_come():
    data = frame(HELLO, "a") + frame(MESSAGE, "\udce4", b"x" * 300)
    frames = Frames(300)
    found = [each for place in range(len(data)) for each in frames.take(data[place : place + 1])]
    assert found == [(HELLO, "a", b""), (MESSAGE, "\udce4", b"x" * 300)]
    for wrong in (frame(MESSAGE, "a", b"x" * 301), frame(99, "a")):
        with pytest.raises(module.RemoteProtocolError):
            list(Frames(300).take(wrong))


def test_what_waits_is_written_in_pieces(switch):
    slow, sender = Server(switch, "slow"), Server(switch, "sender")
    assert slow.next() == (HERE, "sender", b"") and sender.next() == (HERE, "slow", b"")
    slow.stream.reads = threading.Semaphore(0)
    offered = slow.stream.offered
    data = bytes(range(256)) * (3 * PIECE // 256) + b"end"
    sender.say(MESSAGE, "slow", b"first")
    # It is being written: what comes now waits behind it.
    until(lambda: slow.stream.offered > offered)
    sender.say(MESSAGE, "slow", data)
    (line,) = [line for line in switch._lines if line.name == "slow"]
    until(lambda: len(line.backlog) > 3 * PIECE)
    slow.stream.reads.release(1 << 20)
    assert slow.next() == (MESSAGE, "sender", b"first")
    assert slow.next() == (MESSAGE, "sender", data)


def test_those_who_send_to_a_slow_server_are_held_and_no_one_else(switch, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 1000)
    slow, sender, other = (Server(switch, name) for name in ("slow", "sender", "other"))
    assert {sender.next()[1], sender.next()[1]} == {"slow", "other"}
    assert {slow.next()[1], slow.next()[1]} == {"sender", "other"}
    slow.stream.reads = threading.Semaphore(0)
    for number in range(20):
        sender.say(MESSAGE, "slow", b"%4d" % number * 100)
    until(lambda: any(line.held for line in switch._lines))
    time.sleep(0.2)
    # Some are being written, three wait, and one is held.
    assert sender.stream.come.qsize() >= 10
    other.say(MESSAGE, "sender", b"hello")
    assert sender.next() == (MESSAGE, "other", b"hello")
    slow.stream.reads.release(100)
    for number in range(20):
        assert slow.next() == (MESSAGE, "sender", b"%4d" % number * 100)


def test_a_silent_server_is_lost_and_one_that_answers_is_not():
    switch = Switch(keep_alive=0.8)
    silent, fine = Server(switch, "silent"), Server(switch, "fine")
    assert fine.next() == (HERE, "silent", b"")
    kind, name, reason = fine.next()
    assert (kind, name) == (module.GONE, "silent") and reason.startswith(b"it has not answered for 0.")
    assert silent.stream.released.wait(PATIENCE)
    assert not fine.stream.released.is_set()
    switch.close()
    assert fine.stream.released.wait(PATIENCE)


def test_who_is_held_goes_on_when_the_slow_server_is_lost(switch, monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 10)
    slow, sender, other = (Server(switch, name) for name in ("slow", "sender", "other"))
    assert {sender.next()[1], sender.next()[1]} == {"slow", "other"}
    slow.stream.reads = threading.Semaphore(0)
    for _ in range(4):
        sender.say(MESSAGE, "slow", bytes(100))
    sender.say(MESSAGE, "other", b"hello")
    until(lambda: any(line.held for line in switch._lines))
    slow.stream.come.put(OSError("it is lost"))
    kinds = [other.next() for _ in range(4)]
    assert kinds[2:] == [
        (module.GONE, "slow", b"OSError: it is lost"),
        (MESSAGE, "sender", b"hello"),
    ]
    assert slow.stream.released.wait(PATIENCE) and len(switch._lines) == 2


@pytest.mark.parametrize("killed", [True, False])
def test_two_that_hold_each_other_are_lost_when_both_are_killed_or_stopped(switch, monkeypatch, killed):
    """Though neither is read, and so the end of neither is seen."""
    monkeypatch.setattr(module, "MAX_WAITING", 10)
    pair = one, other = Server(switch, "one"), Server(switch, "other")
    third = Server(switch, "third")
    assert {third.next()[1], third.next()[1]} == {"one", "other"}
    for each, name in ((one, "other"), (other, "one")):
        each.stream.reads = threading.Semaphore(0)
        for _ in range(4):
            each.say(MESSAGE, name, bytes(100))
    until(lambda: [line.held for line in switch._lines] == [True, True, False])
    if killed:
        for each in pair:
            each.stream.broken = True
            each.stream.close()
    else:
        (line,) = [line for line in switch._lines if line.name == "third"]
        # The first turn notes what each has sent so far.
        for _ in range(1 + module.LOST):
            signs = line.signs
            switch._turn(0.01, False)
            third.say(ANSWER)
            until(lambda signs=signs: line.signs != signs)
    found = [third.next() for _ in pair]
    assert {(kind, name) for kind, name, _ in found} == {(module.GONE, "one"), (module.GONE, "other")}
    assert [line.name for line in switch._lines] == ["third"]


def test_one_that_is_held_is_not_silent(monkeypatch):
    monkeypatch.setattr(module, "MAX_WAITING", 10)
    switch = Switch(keep_alive=0.8)
    slow, sender = Server(switch, "slow"), Server(switch, "sender")
    assert sender.next()[1] == "slow"
    slow.stream.reads = threading.Semaphore(0)
    for _ in range(4):
        sender.say(MESSAGE, "slow", bytes(100))
    for _ in range(40):
        slow.say(ANSWER)
        time.sleep(0.05)
    assert not sender.stream.released.is_set() and not slow.stream.released.is_set()
    slow.stream.reads.release(1000)
    switch.close()


def test_nobody_is_lost_by_turns_in_which_the_switch_itself_stood_still(switch):
    silent = Server(switch, "silent")
    (line,) = switch._lines
    for _ in range(20):
        switch._turn(0.01, True)
    assert switch._lines == [line]
    # Nor is one that says something now and then.
    for _ in range(4):
        signs = line.signs
        silent.say(ANSWER)
        until(lambda signs=signs: line.signs != signs)
        for _ in range(5):
            switch._turn(0.01, False)
    assert switch._lines == [line]
    for _ in range(20):
        switch._turn(0.01, False)
    assert silent.stream.released.wait(PATIENCE)


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (OSError("the wire is cut\nfor good"), b"OSError: the wire is cut"),
        (b"", b"its stream has ended"),
        (frame(99), b"RemoteProtocolError: PMIx: a frame of kind 99"),
        (frame(HELLO, "one"), b"RemoteProtocolError: PMIx: a frame of kind 1"),
        (frame(MESSAGE, "other"), b"RemoteProtocolError: PMIx: a frame of kind 4 and 0 bytes"),
        (frame(PING), b"RemoteProtocolError: PMIx: a frame of kind 5"),
        (OSError("\udce4"), b"OSError: ?"),
        (frame(module.GOODBYE), b""),
    ],
)
def test_a_stream_that_ends_is_a_server_that_has_gone(switch, broken, reason):
    one, other = Server(switch, "one"), Server(switch, "other")
    assert other.next() == (HERE, "one", b"")
    one.stream.come.put(broken)
    one.stream.come.put(b"")
    kind, name, told = other.next()
    assert (kind, name) == (module.GONE, "one") and told.startswith(reason) and bool(told) == bool(reason)
    assert one.stream.released.wait(PATIENCE)


def test_nothing_of_a_server_that_has_left_comes_from_one_that_has_its_name(switch):
    first, other = Server(switch, "a"), Server(switch, "b")
    assert other.next() == (HERE, "a", b"")
    first.say(module.GOODBYE)
    assert other.next() == (module.GONE, "a", b"")
    again = Server(switch, "a")
    assert other.next() == (HERE, "a", b"")
    first.say(MESSAGE, "b", b"late")
    first.stream.come.put(b"")
    assert first.stream.released.wait(PATIENCE)
    again.say(MESSAGE, "b", b"new")
    assert other.next() == (MESSAGE, "a", b"new")


def test_one_without_a_name_says_nothing(switch):
    stream = Stream()
    stream.come.put(frame(MESSAGE, "a", b"hello"))
    switch.attach(stream)
    assert stream.released.wait(PATIENCE)


def test_a_stream_that_comes_to_a_closed_switch_is_ended(switch):
    switch.close()
    stream = Stream()
    switch.attach(stream)
    assert stream.released.is_set()


def test_a_second_server_of_a_name_is_refused(switch):
    first, other = Server(switch, "a"), Server(switch, "b")
    assert other.next() == (HERE, "a", b"")
    second = Server(switch, "a")
    assert second.stream.released.wait(PATIENCE)
    first.say(MESSAGE, "b", b"still here")
    assert other.next() == (MESSAGE, "a", b"still here")


def test_a_name_may_be_used_again_at_once():
    """A server is still busy when a process has exited and the next one of its name has joined.

    It is not the root: what the root has not declared lost is not lost.
    """
    switch = Switch()
    exchanges = []

    def join(name):
        exchange = Exchange(switch.carrier(name))
        exchange.handle("knock", lambda _who, _data, reply: reply(b"", None))
        exchange.start()
        exchanges.append(exchange)
        return exchange

    def present(exchange, *names):
        there = SimpleQueue()
        exchange.when_present(names, lambda *end: there.put(end))
        assert there.get(timeout=PATIENCE) == (None, None)

    def asked(exchange, to):
        answers = SimpleQueue()
        exchange.request(to, "knock", b"", lambda *answer: answers.put(answer))
        assert answers.get(timeout=PATIENCE) == (b"", None)

    a, b, c = map(join, "abc")
    for exchange in (a, b, c):
        present(exchange, "a", "b", "c")
    went, noticed = threading.Event(), threading.Event()
    a.watch(lambda name, here: here or went.set())
    c.watch(lambda name, here: here or noticed.set())
    begun, over = threading.Event(), threading.Event()
    busy = threading.Thread(target=c.soon, args=(lambda: begun.set() or over.wait(PATIENCE),))
    busy.start()
    assert begun.wait(PATIENCE)
    hang_up(b._carrier._connection)
    assert went.wait(PATIENCE)
    again = join("b")
    present(again, "a", "b", "c")
    present(a, "b")
    over.set()
    assert noticed.wait(PATIENCE)
    present(c, "b")
    # What each has told the next one has been heard by then.
    asked(a, "c")
    asked(c, "b")
    asked(again, "a")
    assert a.members == again.members == c.members == ("a", "b", "c")
    for exchange in exchanges:
        exchange.close()
    switch.close()
    busy.join(PATIENCE)


@pytest.mark.parametrize("gone", [False, True])
def test_a_carrier_whose_switch_is_silent_or_gone_has_lost_all(gone):
    ours, theirs = socket.socketpair()
    carrier = module.SwitchCarrier("a", theirs, keep_alive=PATIENCE if gone else 0.4)
    changes = SimpleQueue()
    carrier.listen(lambda *_: None, lambda *change: changes.put(change))
    ours.sendall(frame(HERE, "b"))
    assert changes.get(timeout=PATIENCE) == ("b", True)
    assert carrier.members == ("a", "b")
    if gone:
        ours.close()
    assert changes.get(timeout=PATIENCE) == ("b", False)
    assert carrier.members == ("a",) and carrier.reason("b")
    carrier.send("b", b"lost")
    carrier.close()
    ours.close()


@pytest.mark.parametrize("wrong", [frame(HELLO, "b"), frame(HERE, "b"), frame(module.GOODBYE)])
def test_a_carrier_gives_up_a_switch_that_says_what_none_says(wrong):
    ours, theirs = socket.socketpair()
    carrier = module.SwitchCarrier("a", theirs)
    changes = SimpleQueue()
    carrier.listen(lambda *_: None, lambda *change: changes.put(change))
    ours.sendall(frame(HERE, "b"))
    assert changes.get(timeout=PATIENCE) == ("b", True)
    ours.sendall(wrong)
    assert changes.get(timeout=PATIENCE) == ("b", False)
    assert "which no switch sends" in carrier.reason("b")
    carrier.close()
    ours.close()


def test_a_carrier_waits_for_room_only_while_it_has_something_to_send():
    """And those that this process starts do not inherit the stream."""
    ours, theirs = socket.socketpair()
    theirs.set_inheritable(True)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 12)
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 12)
    carrier = module.SwitchCarrier("a", theirs)
    assert not theirs.get_inheritable()
    changes = SimpleQueue()
    rounds = []
    over = carrier._is_finished
    carrier._is_finished = lambda: rounds.append(1) or over()
    carrier.listen(lambda *_: None, lambda *change: changes.put(change))
    ours.sendall(frame(HERE, "b"))
    assert changes.get(timeout=PATIENCE) == ("b", True)
    carrier.send("b", bytes(1 << 20))
    left = len(frame(HELLO, "a")) + len(frame(MESSAGE, "b", bytes(1 << 20)))
    while left:
        left -= len(ours.recv(1 << 16))
    time.sleep(0.2)
    before = len(rounds)
    time.sleep(0.3)
    assert len(rounds) - before < 10
    carrier.close()
    ours.close()


def test_a_server_that_is_back_has_no_reason_to_have_gone():
    ours, theirs = socket.socketpair()
    carrier = module.SwitchCarrier("a", theirs)
    changes = SimpleQueue()
    carrier.listen(lambda *_: None, lambda *change: changes.put(change))
    for told, here, reason in ((b"", True, ""), (b"it is broken", False, "it is broken"), (b"", True, "")):
        ours.sendall(frame(HERE if here else module.GONE, "b", told))
        assert changes.get(timeout=PATIENCE) == ("b", here)
        assert carrier.reason("b") == reason
    carrier.close()
    ours.close()


def test_a_goodbye_is_the_last_word_and_always_said(monkeypatch):
    """Though the carrier's thread looks at that moment whether it is over, and others still send."""
    ours, theirs = socket.socketpair()
    carrier = module.SwitchCarrier("a", theirs)
    changes = SimpleQueue()
    carrier.listen(lambda *_: None, lambda *change: changes.put(change))
    ours.sendall(frame(HERE, "b"))
    assert changes.get(timeout=PATIENCE) == ("b", True)

    def slow(kind, name="", data=b""):
        if kind == module.GOODBYE:
            # Its thread runs once meanwhile.
            carrier._loop.post(lambda: None)
            threading.Thread(target=carrier.send, args=("b", b"late")).start()
            time.sleep(0.2)
        return frame(kind, name, data)

    monkeypatch.setattr(module, "frame", slow)
    carrier.close()
    carrier.send("b", b"later")
    told = b""
    while piece := ours.recv(1000):
        told += piece
    found = list(Frames(1000).take(told))
    assert found[0] == (HELLO, "a", b"") and found[-1] == (module.GOODBYE, "", b""), found
    ours.close()


def test_what_waits_at_a_carrier_is_bounded():
    """Though its own thread is busy, which is to give up the switch."""
    ours, theirs = socket.socketpair()
    carrier = module.SwitchCarrier("a", theirs, max_backlog=1 << 20)
    changes = SimpleQueue()
    busy = threading.Event()

    def changed(*change):
        changes.put(change)
        busy.wait(PATIENCE)

    carrier.listen(lambda *_: None, changed)
    ours.sendall(frame(HERE, "b"))
    assert changes.get(timeout=PATIENCE) == ("b", True)
    for _ in range(200):
        carrier.send("b", bytes(1 << 16))
    assert len(carrier._backlog) < 2 << 20
    busy.set()
    assert changes.get(timeout=PATIENCE) == ("b", False)
    carrier.close()
    ours.close()


def test_close_does_not_wait_for_a_switch_that_takes_nothing():
    ours, theirs = socket.socketpair()
    carrier = module.SwitchCarrier("a", theirs, keep_alive=1000)
    changes = SimpleQueue()
    carrier.listen(lambda *call: changes.put(call), lambda *change: changes.put(change))
    # One that is not there says nothing.
    ours.sendall(frame(MESSAGE, "c", b"hello") + frame(HERE, "b"))
    assert changes.get(timeout=PATIENCE) == ("b", True)
    carrier.send("b", bytes(8 << 20))
    carrier.close()
    ours.close()


def test_a_carrier_gives_up_a_switch_that_takes_nothing():
    ours, theirs = socket.socketpair()
    carrier = module.SwitchCarrier("a", theirs, max_backlog=1 << 20)
    changes = SimpleQueue()
    carrier.listen(lambda *_: None, lambda *change: changes.put(change))
    ours.sendall(frame(HERE, "b"))
    assert changes.get(timeout=PATIENCE) == ("b", True)
    for _ in range(40):
        carrier.send("b", bytes(1 << 16))
    assert changes.get(timeout=PATIENCE) == ("b", False)
    assert "does not take" in carrier.reason("b")
    carrier.close()
    ours.close()
