"""Servers that reach only the root, by streams that others pass on: slow, silent and broken streams."""

from __future__ import annotations

import socket
import threading
import time
from queue import SimpleQueue

import pytest

from pypmix.host.addresses import hang_up
from pypmix.host.daemon import _connection
from pypmix.host.exchange import Exchange, TCPCarrier, bridge
from pypmix.host.firstlines import Orders

pytestmark = pytest.mark.timeout(240)

PATIENCE = 100
SECRET = b"a secret of the session"
ROOT = "root"


def until(condition):
    """Wait until a condition is true; fail if it does not become true in time."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


class Stream:
    """A stream of bytes to a server, which the test may hold or break.

    Attributes:
        connection: The end of a pair of sockets; the server has the other one.
        goes: Whether bytes are passed on.
        error: Raised by `read` at the end, if it is set.
    """

    def __init__(self, connection):
        self.connection = connection
        self.goes = threading.Event()
        self.goes.set()
        self.error = None
        self.sizes = []
        self.closed = threading.Event()

    def read(self):
        data = self.connection.recv(1 << 16)
        self.goes.wait(PATIENCE)
        if not data and self.error is not None:
            raise self.error
        return data

    def write(self, data):
        self.sizes.append(len(data))
        self.goes.wait(PATIENCE)
        self.connection.sendall(data)

    def close(self):
        hang_up(self.connection)
        self.closed.set()


class Server:
    """A server of a session, and what it receives."""

    def __init__(self, name, root=None, keep_alive=10 * PATIENCE):
        self.name = name
        self.got = SimpleQueue()
        self.changes = SimpleQueue()
        self.carrier = TCPCarrier(name, SECRET, listen=None, introducer=ROOT, keep_alive=keep_alive)
        self.exchange = Exchange(self.carrier)
        self.exchange.follow(ROOT)
        if root is None:
            self.exchange.detours.introduce_all()
        self.exchange.hear("all", lambda sender, data: self.got.put((sender, data)))
        self.exchange.handle("knock", lambda _sender, _data, answer: answer(b"", None))
        self.exchange.watch(lambda *change: self.changes.put(change))
        self.exchange.start()
        self.stream = None
        if root is not None:
            ours, theirs = socket.socketpair()
            self.stream = Stream(ours)
            bridge.connect(root.carrier, self.stream)
            self.carrier.attach(theirs, ROOT)

    def close(self):
        self.exchange.close()
        if self.stream is not None:
            self.stream.connection.close()

    def kill(self):
        """End its connection, as the death of its process does."""
        hang_up(self.stream.connection)

    def tell(self, to, data):
        self.exchange.tell(to, "all", data)

    def next(self):
        return self.got.get(timeout=PATIENCE)

    def next_loss(self):
        """Return the name of the server that is lost next."""
        while True:
            name, here = self.changes.get(timeout=PATIENCE)
            if not here:
                return name


@pytest.fixture
def session():
    """Make servers; the first one is the root."""
    made = []

    def make(*names, **options):
        servers = [Server(name, made[0] if made else None, **options) for name in names if made or name == ROOT]
        if not made:
            made.extend(servers)
            servers += [Server(name, made[0], **options) for name in names if name != ROOT]
            made.extend(servers[1:])
        else:
            made.extend(servers)
        return servers

    yield make
    for server in reversed(made):
        if server.stream is not None:
            server.stream.goes.set()
        server.close()


def together(*servers, busy=()):
    """Wait until servers are present for each other, and those that are busy for all others."""
    names = tuple(sorted([*[server.name for server in servers], *busy]))
    until(lambda: all(server.exchange.members == names for server in servers))


def test_those_who_reach_only_the_root_know_each_other_without_asking(session, monkeypatch):
    monkeypatch.setattr("pypmix.host.exchange.detours.DETOUR_SECONDS", 10 * PATIENCE)
    root, one, other = session(ROOT, "one", "other")
    together(root, one, other)
    assert one.carrier.connected == other.carrier.connected == (ROOT,)
    answers = SimpleQueue()
    one.exchange.request("other", "knock", b"", lambda *answer: answers.put(answer))
    assert answers.get(timeout=PATIENCE) == (b"", None)
    for number in range(100):
        one.tell("other", b"%d" % number)
    assert [other.next() for _ in range(100)] == [("one", b"%d" % number) for number in range(100)]


def test_long_messages_are_passed_on_in_pieces(session):
    root, one, other = session(ROOT, "one", "other")
    together(root, one, other)
    data = bytes(range(256)) * (3 * bridge.PIECE // 256) + b"end"
    one.tell("other", data)
    assert other.next() == ("one", data)
    assert max(other.stream.sizes) <= bridge.PIECE


def test_a_slow_server_delays_only_what_is_sent_to_it(session):
    root, slow, sender, third = session(ROOT, "slow", "sender", "third")
    together(root, slow, sender, third)
    slow.stream.goes.clear()
    for number in range(20):
        sender.tell("slow", b"%4d" % number * 100_000)
    sender.tell("third", b"hello")
    assert third.next() == ("sender", b"hello")
    third.tell("sender", b"well")
    assert sender.next() == ("third", b"well")
    slow.stream.goes.set()
    assert [slow.next()[1][:4] for _ in range(20)] == [b"%4d" % number for number in range(20)]


def test_a_silent_server_is_lost_and_one_that_answers_is_not(session):
    root, silent, fine = session(ROOT, "silent", "fine", keep_alive=12)
    together(root, silent, fine)
    silent.stream.goes.clear()
    assert fine.next_loss() == root.next_loss() == "silent"
    # After seven turns of eight.
    assert root.exchange.reason("silent").startswith("it has not answered for 10.")
    assert root.exchange.members == ("fine", ROOT)
    silent.stream.goes.set()
    # It is alone from then on.
    until(lambda: silent.exchange.members == ("silent",))
    assert silent.stream.closed.wait(PATIENCE)


@pytest.mark.parametrize("error", [None, OSError("the wire is cut\nfor good"), ValueError("\udce4")])
def test_a_stream_that_ends_is_a_server_that_has_gone(session, error):
    root, one, other = session(ROOT, "one", "other")
    together(root, one, other)
    one.tell("other", b"last")
    assert other.next() == ("one", b"last")
    one.stream.error = error
    one.kill()
    assert other.next_loss() == root.next_loss() == "one"
    until(lambda: one.exchange.members == ("one",))


def test_what_a_server_has_sent_last_arrives_though_its_stream_takes_nothing(session):
    root, one, other = session(ROOT, "one", "other")
    together(root, one, other)
    refused = threading.Event()

    def write(data):
        refused.set()
        raise OSError("it takes nothing")

    one.stream.write = write
    other.tell("one", b"lost")
    assert refused.wait(PATIENCE)
    one.tell("other", b"last")
    assert other.next() == ("one", b"last")


@pytest.mark.parametrize("data", [b"not a handshake of any carrier", bytes(8), b"\x16" * 64])
def test_bytes_that_no_server_sends_end_a_stream(session, data):
    (root,) = session(ROOT)
    ours, theirs = socket.socketpair()
    stream = Stream(ours)
    bridge.connect(root.carrier, stream)
    theirs.sendall(data)
    hang_up(theirs)
    assert stream.closed.wait(PATIENCE)
    assert root.exchange.members == (ROOT,)
    ours.close()
    theirs.close()


def test_a_second_server_of_a_name_is_refused(session):
    root, first, other = session(ROOT, "a", "b")
    together(root, first, other)
    (second,) = session("a")
    assert second.stream.closed.wait(PATIENCE)
    first.tell("b", b"still here")
    assert other.next() == ("a", b"still here")
    assert second.exchange.members == ("a",)


def test_a_stream_that_comes_to_a_closed_carrier_is_ended(session):
    (root,) = session(ROOT)
    root.close()
    ours, theirs = socket.socketpair()
    stream = Stream(ours)
    bridge.connect(root.carrier, stream)
    assert stream.closed.wait(PATIENCE)
    assert theirs.recv(1) == b""
    ours.close()
    theirs.close()


def test_a_name_may_be_used_again_at_once(session):
    """A server is still busy when a process has exited and the next one of its name has joined."""
    root, a, b, c = session(ROOT, "a", "b", "c")
    together(root, a, b, c)
    begun, over = threading.Event(), threading.Event()
    busy = threading.Thread(target=c.exchange.soon, args=(lambda: begun.set() or over.wait(PATIENCE),))
    busy.start()
    try:
        assert begun.wait(PATIENCE)
        b.kill()
        assert root.next_loss() == a.next_loss() == "b"
        (again,) = session("b")
        together(root, a, again, busy=("c",))
    except BaseException:
        over.set()
        raise
    assert b.exchange.members != again.exchange.members
    over.set()
    assert c.next_loss() == "b"
    together(root, a, again, c)
    again.tell("c", b"new")
    assert c.next() == ("b", b"new")
    busy.join(PATIENCE)


@pytest.mark.parametrize("silent", [False, True], ids=["gone", "silent"])
def test_a_server_whose_root_is_silent_or_gone_has_lost_all(session, silent):
    root, one, other = session(ROOT, "one", "other", keep_alive=12 if silent else 10 * PATIENCE)
    together(root, one, other)
    if silent:
        one.stream.goes.clear()
    else:
        one.kill()
    until(lambda: one.exchange.members == ("one",))
    assert one.exchange.reason(ROOT)


def test_a_server_that_leaves_waits_for_no_time_to_pass(session, monkeypatch):
    monkeypatch.setattr("pypmix.host.exchange.tcp.LINK_LINGER_SECONDS", 10 * PATIENCE)
    root, one, other = session(ROOT, "one", "other")
    together(root, one, other)
    one.tell("other", b"last")
    one.exchange.close()
    assert other.next() == ("one", b"last")
    assert other.next_loss() == root.next_loss() == "one"
    assert root.exchange.reason("one") == ""


def test_the_processes_that_a_daemon_starts_do_not_inherit_its_connection():
    ours, theirs = socket.socketpair()
    ours.set_inheritable(True)
    orders = Orders("n1", "job", SECRET, (ROOT, ()), connection=ours.detach())
    with theirs, _connection(orders) as connection:
        assert not connection.get_inheritable()
        assert _connection(orders.replace(connection=-1)) is None
