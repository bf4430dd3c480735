"""A connection that is reset is made again: nothing is lost, nothing comes twice, and a death is told of at once."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest

from lib.processes import stop
from pypmix.host.exchange import Exchange, TCPCarrier, tcp
from pypmix.host.exchange.handshake import PROGRESS, Handshake, Progress
from pypmix.host.exchange.stream import MANY, MUCH, Connection, Stream
from pypmix.standard.errors import RemoteProtocolError

pytestmark = pytest.mark.timeout(120)

SECRET = b"a secret of the session"
PATIENCE = 60


class Server:
    """A carrier, and what it is told."""

    def __init__(self, name, **options):
        self.told = SimpleQueue()
        self.carrier = TCPCarrier(name, SECRET, **options)
        self.carrier.listen(lambda *what: self.told.put(what), lambda *what: self.told.put(what))

    def next(self, seconds=PATIENCE):
        return self.told.get(timeout=seconds)


@pytest.fixture
def servers():
    made = []

    def make(name, **options):
        made.append(Server(name, **options))
        return made[-1]

    yield make
    for server in made:
        server.carrier.close()


class Firewall:
    """A process between two servers that forgets their connections.

    Attributes:
        address: Where it takes connections for the server behind it.
        passed: How many bytes it has passed on.
    """

    def __init__(self, target):
        self.passed = 0
        self._target = target
        self._lock = threading.Lock()
        self._ends = []
        self._made = []
        self._forgotten = set()
        self._closed = False
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            try:
                one = self._listener.accept()[0]
            except OSError:
                return
            try:
                other = socket.create_connection(self._target)
            except OSError:
                _reset(one)
                continue
            with self._lock:
                self._ends += (one, other)
                self._made += (one, other)
                closed = self._closed
            if closed:
                _reset(one)
                _reset(other)
                return
            for source, target in ((one, other), (other, one)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source, target):
        try:
            while data := source.recv(65536):
                self.passed += len(data)
                target.sendall(data)
            if source not in self._forgotten:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            # Of a connection that is forgotten: whoever sends something on it is told so.
            _reset(source)

    def forget(self, sides=(0, 1)):
        """Reset each connection, towards the side that has dialed (0), the other one (1), or both.

        A side that is not told so is when it sends something.
        """
        with self._lock:
            ends, self._ends = self._ends, []
            self._forgotten.update(ends)
        for place, end in enumerate(ends):
            if place % 2 in sides:
                _reset(end)

    def close(self):
        """Take no connection any more, and end those that are there."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            self._closed = True
            for end in self._made:
                _reset(end)


def _reset(sock):
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # A thread that reads from it would keep it open.
        sock.shutdown(socket.SHUT_RD)
    sock.close()


@pytest.fixture
def pair(servers):
    """Return a function that makes two servers with a firewall between them."""
    walls = []

    def make(listens="a", dials="b", **options):
        first = servers(listens, **options)
        wall = Firewall(first.carrier.address)
        walls.append(wall)
        second = servers(dials, peers={listens: wall.address}, **options)
        assert second.next() == (listens, True)
        assert first.next() == (dials, True)
        return first, second, wall

    yield make
    for wall in walls:
        wall.close()


def until(condition):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.005)


# What is kept


class Other:
    """The handshake of a connection whose other side has some progress."""

    peer, dials = "b", False

    def __init__(self, progress):
        self.theirs = progress

    def number(self):
        return b"x" * 16


@pytest.fixture
def connected():
    """Return a function that attaches a stream to a new connection, and returns that and its other end."""
    ends = []

    def attach(stream, received=0, dialed=0):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            other = socket.create_connection(listener.getsockname(), timeout=PATIENCE)
            ours = listener.accept()[0]
        ends.extend((ours, other))
        connection = Connection(ours, Other(Progress(stream.number, dialed, received)))
        stream.attach(connection)
        return connection, other

    yield attach
    for end in ends:
        end.close()


def read_messages(connection, sock, count):
    """Return the next messages that a connection sends."""
    while connection.flush():
        pass
    return [_receive(sock) for _ in range(count)]


def test_a_stream_keeps_what_is_not_acknowledged(connected):
    stream = Stream("b", b"l" * 16, 1 << 20)
    for number in range(2):
        assert stream.send(b"%d" % number), "somebody has to make the first connection"
    connection, other = connected(stream)
    for number in range(2, 5):
        stream.send(b"%d" % number)
    assert read_messages(connection, other, 5) == [b"0", b"1", b"2", b"3", b"4"]
    assert stream.size == 5 and stream.owes
    stream.take_acknowledgement(struct.pack("!cQ", b"\0", 2))
    assert stream.size == 3
    stream.detach()
    assert not stream.send(b"5") and not stream.connected
    connection, other = connected(stream, received=3, dialed=1)
    assert read_messages(connection, other, 3) == [b"3", b"4", b"5"]
    assert stream.is_old(Progress(stream.number, 1, 0)) and not stream.is_old(Progress(stream.number, 2, 0))


@pytest.mark.parametrize("count", [-1, 1, 6, 1 << 62])
def test_what_cannot_have_come_is_refused(connected, count):
    stream = Stream("b", b"l" * 16, 1 << 20)
    connected(stream)
    for _ in range(5):
        stream.send(b"x")
    stream.take_acknowledgement(struct.pack("!cQ", b"\0", 2))
    stream.detach()
    with pytest.raises(RemoteProtocolError, match="are acknowledged"):
        connected(stream, received=count)
    assert stream.size == 3 and not stream.connected


def test_much_is_acknowledged_at_once():
    for count, size in ((MANY, 0), (1, MUCH)):
        stream = Stream("b", b"l" * 16, 1 << 20)
        for _ in range(count - 1):
            stream.count(size)
            assert not stream.due
        stream.count(size)
        assert stream.due
        assert stream.acknowledgement() == struct.pack("!cQ", b"\0", count)
        assert not stream.due and not stream.acknowledgement()


def test_little_is_kept_of_what_was_sent(pair):
    a, b, _ = pair(keep_alive=8.0)
    stream = a.carrier._peers.streams["b"]
    for number in range(2000):
        a.carrier.send("b", b"%d" % number + b"." * 2000)
    assert [b.next()[1].rstrip(b".") for _ in range(2000)] == [b"%d" % number for number in range(2000)]
    # What is below the threshold is acknowledged in the next turn of the keep-alive.
    until(lambda: stream.size == 0)


# Resets


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
@pytest.mark.parametrize("names", ["ab", "ba"])
@pytest.mark.parametrize("sides", [(0, 1), (0,), (1,)], ids=["both", "dialer", "dialed"])
def test_a_connection_that_is_reset_is_made_again(pair, sides, names, encrypt):
    first, second, wall = pair(*names, encrypt=encrypt)
    for number in range(3):
        text = str(number).encode()
        wall.forget(sides)
        first.carrier.send(names[1], text)
        second.carrier.send(names[0], text)
        assert first.next() == (names[1], text)
        assert second.next() == (names[0], text)
    assert first.told.empty()
    assert second.told.empty()
    assert first.carrier.members == second.carrier.members == ("a", "b")
    assert first.carrier._peers.streams[names[1]].encrypted == encrypt


def test_one_whose_address_is_translated_dials_alone(pair, monkeypatch):
    monkeypatch.setattr(tcp, "_listening_address", lambda address, _sock: ("192.0.2.1", address[1]))
    a, b, wall = pair(keep_alive=60)
    assert a.carrier._peers.streams["b"].address == ("127.0.0.1", 0)
    for sides in ((0, 1), (0,), (1,)):
        wall.forget(sides)
        a.carrier.send("b", b"one")
        b.carrier.send("a", b"other")
        assert b.next() == ("a", b"one")
        assert a.next() == ("b", b"other")


@pytest.mark.parametrize("encrypt", [False, True], ids=["plain", "encrypted"])
def test_nothing_is_lost_and_nothing_comes_twice_however_often_it_is_reset(pair, encrypt):
    """Two threads send to each side, while the connection is reset in the middle of messages and of handshakes."""
    chance = random.Random(7)
    a, b, wall = pair(encrypt=encrypt, keep_alive=60)
    counts = 400
    over = threading.Event()

    def send(carrier, to, who):
        for number in range(counts):
            carrier.send(to, b"%d %d " % (who, number) + b"x" * (number * 7919 % 30_000))

    def break_it():
        while not over.is_set():
            if chance.random() < 0.6:
                # Else a machine that is slow may never get further than a handshake.
                until(lambda: over.is_set() or not any(server.carrier._peers.dialer.attempts for server in (a, b)))
            passed = wall.passed + chance.choice((10, 300, 5_000, 200_000, 3_000_000))
            end = time.monotonic() + 0.2
            while wall.passed < passed and time.monotonic() < end:
                time.sleep(0.001)
            wall.forget(chance.choice(((0, 1), (0, 1), (0,), (1,))))

    threads = [
        threading.Thread(target=send, args=(server.carrier, to, who))
        for server, to in ((a, "b"), (b, "a"))
        for who in (0, 1)
    ]
    breaks = threading.Thread(target=break_it)
    for thread in (*threads, breaks):
        thread.start()
    for server in (a, b):
        seen = {0: [], 1: []}
        for _ in range(2 * counts):
            _sender, message = server.next()
            assert not isinstance(message, bool), "a reset was told as a loss"
            who, number, rest = message.split(b" ")
            assert len(rest) == int(number) * 7919 % 30_000
            seen[int(who)].append(int(number))
        assert seen == {0: list(range(counts)), 1: list(range(counts))}
    over.set()
    for thread in (*threads, breaks):
        thread.join(PATIENCE)
    assert a.told.empty()
    assert b.told.empty()


def test_collectives_go_on_over_resets(tmp_path):
    """Three servers gather all the time, and the connections of one with the others are reset."""
    carriers = {"a": TCPCarrier("a", SECRET)}
    walls = [Firewall(carriers["a"].address)]
    carriers["b"] = TCPCarrier("b", SECRET, peers={"a": walls[0].address})
    walls.append(Firewall(carriers["b"].address))
    carriers["c"] = TCPCarrier("c", SECRET, peers={"a": carriers["a"].address, "b": walls[1].address})
    exchanges = [Exchange(carrier) for carrier in carriers.values()]
    ends = SimpleQueue()
    for exchange in exchanges:
        exchange.start()
        exchange.when_present("abc", lambda *end: ends.put(end), timeout=PATIENCE)
    assert [ends.get(timeout=PATIENCE) for _ in "abc"] == [(None, None)] * 3
    for number in range(120):
        for exchange in exchanges:
            exchange.allgather(b"s", "abc", exchange.name.encode(), lambda *end: ends.put(end), timeout=PATIENCE)
        if number % 3 == 0:
            walls[number % 2].forget()
        for _ in "abc":
            gathered, error = ends.get(timeout=PATIENCE)
            assert error is None
            assert gathered.blobs == {"a": b"a", "b": b"b", "c": b"c"}
    assert all(exchange.members == ("a", "b", "c") and not exchange.gone for exchange in exchanges)
    for exchange in exchanges:
        exchange.close()
    for wall in walls:
        wall.close()


def test_who_leaves_while_its_connection_is_broken_is_told_of_after_its_last_message(pair, monkeypatch):
    monkeypatch.setattr(tcp, "LINK_LINGER_SECONDS", 30.0)
    a, b, wall = pair()
    wall.forget()
    b.carrier.send("a", b"last")
    closer = threading.Thread(target=b.carrier.close)
    closer.start()
    assert a.next() == ("b", b"last")
    assert a.next() == ("b", False)
    assert a.carrier.reason("b") == ""
    closer.join(PATIENCE)


# Ends

CHILD = """
import sys, time
from pypmix.host.exchange import TCPCarrier
carrier = TCPCarrier("z", b"a secret of the session", keep_alive=60)
print(carrier.address[1], flush=True)
carrier.listen(lambda *what: None, lambda *what: print(*what, flush=True))
time.sleep(120)
"""


def test_a_process_that_dies_with_a_reset_is_lost_at_once(servers):
    """The system resets the connections of one that had not read all."""
    command = [sys.executable, "-c", CHILD]
    env = {**os.environ, "PYTHONPATH": os.fspath(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        try:
            here = servers("a", peers={"z": ("127.0.0.1", int(child.stdout.readline()))}, keep_alive=3600)
            assert here.next() == ("z", True)
            assert child.stdout.readline() == "a True\n"
            stop(child.pid)
            here.carrier.send("z", b"x" * 1000)
            until(lambda: not here.carrier._peers.streams["z"].connection.unsent)
            child.send_signal(signal.SIGKILL)
            assert here.next() == ("z", False)
            assert "refused" in here.carrier.reason("z")
        finally:
            child.kill()


@pytest.mark.parametrize("names", ["ab", "ba"])
def test_who_is_not_reached_again_in_time_is_lost_to_both(servers, names):
    """Connections are taken, and nothing is answered."""
    first = servers(names[0], keep_alive=2.0)
    wall = Firewall(first.carrier.address)
    second = servers(names[1], peers={names[0]: wall.address}, keep_alive=2.0)
    assert second.next() == (names[0], True)
    assert first.next() == (names[1], True)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for server, other in ((first, names[1]), (second, names[0])):
            server.carrier._peers.streams[other].address = silent.getsockname()
        begin = time.monotonic()
        wall.forget()
        assert first.next() == (names[1], False)
        assert second.next() == (names[0], False)
        assert time.monotonic() - begin > 0.2
    wall.close()


def test_one_that_has_given_up_tells_the_other_one(pair):
    a, b, _ = pair(keep_alive=3600)
    peers = a.carrier._peers
    peers.post(lambda: peers.vanish("b", "as if its time was over"))
    assert a.next() == ("b", False)
    # It closes the connection, too; the one that does not see that is told when it dials.
    assert b.next() == ("a", False)


def test_one_that_does_not_know_the_connection_refuses_it(servers, pair, caplog):
    a, b, wall = pair(keep_alive=3600)
    b.carrier._peers.streams["a"].number = b"y" * 16
    a.carrier._peers.streams["b"].address = ("127.0.0.1", 1)
    wall.forget((0,))
    assert b.next() == ("a", False)
    assert "is over" in b.carrier.reason("a")
    # One line of each: that of the loss.
    until(lambda: "with a ends" in caplog.text)
    assert "an unknown peer" not in caplog.text


def test_a_stopped_process_that_has_said_so_is_waited_for(pair):
    a, b, wall = pair(keep_alive=2.0)
    b.carrier.away(True)
    until(lambda: a.carrier._peers.streams["b"].away)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        for server, other in ((a, "b"), (b, "a")):
            server.carrier._peers.streams[other].address = silent.getsockname()
        a.carrier._peers.streams["b"].away = b.carrier._peers.streams["a"].away = True
        wall.forget()
        with pytest.raises(Empty):
            a.next(5.0)


# Strangers


def _frame(message):
    return struct.pack("!I", len(message)) + message


def _receive(sock):
    head = sock.recv(4, socket.MSG_WAITALL)
    return sock.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL) if head else b""


def claims(address, secret, progress):
    """Dial as `b` and claim its connection with `a`; return what ends the attempt."""
    with socket.create_connection(address, timeout=PATIENCE) as sock:
        mine = Handshake("b", secret, to="a", progress=progress)
        sock.sendall(_frame(mine.begin()))
        try:
            while not mine.done:
                sock.sendall(_frame(mine.take(_receive(sock))))
        except Exception as error:
            return str(error)
    return ""


def test_a_stranger_cannot_take_a_connection_over(pair):
    a, b, _ = pair()
    link = a.carrier._peers.streams["b"].number
    assert link == b.carrier._peers.streams["a"].number
    assert "secret" in claims(a.carrier.address, b"another secret of a session", Progress(link, 1, 0))
    for wrong in (b"x" * 16, b"x", link[:-1]):
        assert "its connection with b is over" in claims(a.carrier.address, SECRET, Progress(wrong, 1, 0))
    assert "is being dialed itself, or was" in claims(a.carrier.address, SECRET, Progress(link, 0, 0))
    b.carrier.send("a", b"still here")
    assert a.next() == ("b", b"still here")
    a.carrier.send("b", b"and there")
    assert b.next() == ("a", b"and there")


def test_a_member_that_claims_what_was_not_sent_is_lost(pair):
    a, _b, _ = pair()
    link = a.carrier._peers.streams["b"].number
    claims(a.carrier.address, SECRET, Progress(link, 1, 1000))
    assert a.next() == ("b", False)
    assert "1000 messages are acknowledged" in a.carrier.reason("b")


def test_progress_of_any_bytes_is_refused():
    for said in (b"", b"\0", PROGRESS.write(Progress(b"x", 1, 1))[:-1]):
        with pytest.raises(RemoteProtocolError):
            PROGRESS.read(said)


def test_who_acknowledges_nothing_is_dropped(servers, monkeypatch):
    monkeypatch.setattr("pypmix.host.exchange.stream.MAX_MESSAGE", 100_000)
    a = servers("a", max_backlog=1_000_000)
    with socket.create_connection(a.carrier.address, timeout=PATIENCE) as sock:
        mine = Handshake("b", SECRET, to="a", progress=Progress(life=b"l" * 16))
        sock.sendall(_frame(mine.begin()))
        while not mine.done:
            answer = mine.take(_receive(sock))
            if answer:
                sock.sendall(_frame(answer))
        assert a.next() == ("b", True)
        for _ in range(15):
            a.carrier.send("b", b"x" * 100_000)
            _receive(sock)
        assert a.next() == ("b", False)
        assert "does not acknowledge" in a.carrier.reason("b")
