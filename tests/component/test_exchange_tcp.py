"""The TCP carrier: who knows the secret gets in, a death is told of at once, no bytes and no silence harm others."""

from __future__ import annotations

import errno
import os
import selectors
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.exchange_tcp import PATIENCE, SECRET, Server
from lib.processes import stop
from pypmix import PermissionDenied
from pypmix.host import addresses, tls
from pypmix.host.exchange import Exchange, TCPCarrier, codec, rendezvous, tcp
from pypmix.host.exchange.handshake import (
    HELLO,
    MAGIC,
    MAX_FRAME,
    NEW,
    PROGRESS,
    PROOF,
    Handshake,
    HandshakeError,
    Progress,
    check_name,
)
from pypmix.host.exchange.stream import Broken, Connection
from pypmix.standard import statuses

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def servers():
    """Return a function that makes a server, by the arguments of its carrier."""
    made = []

    def make(name, secret=SECRET, *, start=True, **options):
        server = Server(TCPCarrier(name, secret, **options))
        made.append(server)
        return server.start() if start else server

    yield make
    for server in made:
        server.carrier.close()
        assert not server.started or not server.carrier._thread.is_alive()


@pytest.fixture
def pair(servers):
    """Two servers that know each other."""
    a = servers("a")
    b = servers("b", peers={"a": a.carrier.address})
    assert b.next() == ("a", True)
    assert a.next() == ("b", True)
    return a, b


def until(condition, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.01)


def test_messages_arrive_in_order(pair):
    a, b = pair
    messages = [bytes((number % 256,)) * (1 + number * 37 % 5000) for number in range(500)]
    for message in messages:
        a.send("b", message)
        b.send("a", message[::-1])
    a.send("nobody", b"lost")
    assert [b.next() for _ in messages] == [("a", message) for message in messages]
    assert [a.next() for _ in messages] == [("b", message[::-1]) for message in messages]
    assert a.carrier.members == b.carrier.members == ("a", "b")


def test_long_messages_pass_whole_and_longer_ones_are_refused(servers):
    a = servers("a", max_message=30_000_000)
    b = servers("b", peers={"a": a.carrier.address}, max_message=20_000_000)
    a.next(), b.next()
    long = os.urandom(20_000_000)
    a.send("b", long)
    b.send("a", long)
    assert b.next() == ("a", long)
    assert a.next() == ("b", long)
    with pytest.raises(OverflowError):
        b.send("a", long + b"x")
    with pytest.raises(ValueError, match="empty"):
        b.send("a", b"")
    a.send("b", long + b"x")
    assert b.next() == ("a", False)
    assert a.next() == ("b", False)


def test_threads_send_at_a_time(pair):
    a, b = pair
    counts = 300

    def send(who):
        for number in range(counts):
            a.send("b", f"{who} {number}".encode() + b"." * 3000)

    threads = [threading.Thread(target=send, args=(who,)) for who in range(4)]
    for thread in threads:
        thread.start()
    seen = {}
    for _ in range(4 * counts):
        who, number = b.next()[1].rstrip(b".").split()
        seen.setdefault(who, []).append(int(number))
    for thread in threads:
        thread.join(PATIENCE)
    assert list(seen.values()) == [list(range(counts))] * 4


def test_in_a_folder_all_find_all(tmp_path):
    folder = tmp_path / "meeting"
    names = [f"n{number}" for number in range(6)]
    found = [Server(TCPCarrier.in_folder(name, folder)) for name in names]
    threads = [threading.Thread(target=server.start) for server in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    for server in found:
        told = sorted(server.next() for _ in names[1:])
        assert told == [(name, True) for name in names if name != server.carrier.name]
        assert server.carrier.members == tuple(names)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o600
    for server in found:
        server.carrier.close()
    assert [path.name for path in folder.iterdir()] == ["secret"]
    # One connection to each pair, none to spare and none that was closed.
    assert all(server.told.empty() or {what[1] for what in drained(server)} == {False} for server in found)


def drained(server):
    found = []
    while True:
        try:
            found.append(server.told.get_nowait())
        except Empty:
            return found


def test_two_that_dial_each_other_have_one_connection(servers):
    for _ in range(20):
        pair = [servers(name, start=False) for name in "ab"]
        pair[0].carrier._known = {"b": pair[1].carrier.address}
        pair[1].carrier._known = {"a": pair[0].carrier.address}
        for server in pair:
            server.start()
        assert [server.next() for server in pair] == [("b", True), ("a", True)]
        for server, other in zip(pair, "ba", strict=True):
            server.send(other, b"hello")
        assert [server.next() for server in pair] == [("b", b"hello"), ("a", b"hello")]
        assert all(server.told.empty() for server in pair)
        for server in pair:
            server.carrier.close()


def test_who_leaves_is_told_of_after_its_last_message(pair):
    a, b = pair
    last = os.urandom(5_000_000)
    a.send("b", last)
    a.carrier.close()
    a.carrier.close()
    assert b.next() == ("a", last)
    assert b.next() == ("a", False)
    assert b.carrier.members == ("b",)
    a.send("b", b"too late")
    assert a.told.empty()


def test_who_comes_back_is_a_new_member(pair, servers):
    a, b = pair
    b.carrier.close()
    assert a.next() == ("b", False)
    again = servers("b", peers={"a": a.carrier.address})
    assert a.next() == ("b", True)
    assert again.next() == ("a", True)
    again.send("a", b"again")
    assert a.next() == ("b", b"again")


CHILD = """
import sys, time
from pypmix.host.exchange import TCPCarrier
carrier = TCPCarrier.in_folder(sys.argv[1], sys.argv[2], keep_alive=3600)
carrier.listen(lambda *what: None, lambda *what: print(*what, flush=True))
carrier.send("here", b"x")
time.sleep(60)
"""


def test_a_process_that_is_killed_is_gone_at_once(tmp_path):
    here = Server(TCPCarrier.in_folder("here", tmp_path / "m", keep_alive=3600)).start()
    command = [sys.executable, "-c", CHILD, "there", str(tmp_path / "m")]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        try:
            assert here.next(30) == ("there", True)
            assert child.stdout.readline() == "here True\n"
            child.send_signal(signal.SIGKILL)
            assert here.next(30) == ("there", False)
        finally:
            child.kill()
    # What it has left behind in the folder misleads nobody.
    third = Server(TCPCarrier.in_folder("third", tmp_path / "m")).start()
    assert third.next() == ("here", True)
    assert here.next() == ("third", True)
    third.carrier.close()
    here.carrier.close()


def test_who_does_not_know_the_secret_stays_outside(servers, caplog):
    a = servers("a")
    servers("thief", b"another secret of a session", peers={"a": a.carrier.address})
    until(lambda: "does not know the secret" in caplog.text)
    friend = servers("b", peers={"a": a.carrier.address})
    assert a.next() == ("b", True)
    assert friend.next() == ("a", True)
    assert a.carrier.members == ("a", "b")


def test_a_name_that_is_taken_is_refused(pair, servers, caplog, monkeypatch):
    monkeypatch.setattr(tcp, "UNREACHED_LOG_SECONDS", 0.5)
    a, _b = pair
    servers("b", peers={"a": a.carrier.address})
    servers("a", peers={"b": _b.carrier.address})
    until(lambda: caplog.text.count("a refuses: there is a b already") == 1)
    until(lambda: "there is a a already" in caplog.text)
    assert a.told.empty()


def handshake_with(address):
    sock = socket.create_connection(address, timeout=PATIENCE)
    sock.settimeout(PATIENCE)
    return sock


def frame(message):
    return struct.pack("!I", len(message)) + message


def receive(sock):
    head = sock.recv(4, socket.MSG_WAITALL)
    return sock.recv(struct.unpack("!I", head)[0], socket.MSG_WAITALL) if head else b""


def enter(address, name, to):
    """Connect by hand and return the socket."""
    sock = handshake_with(address)
    mine = Handshake(name, SECRET, to=to, progress=Progress(life=b"l" * 16))
    sock.sendall(frame(mine.begin()))
    while not mine.done:
        answer = mine.take(receive(sock))
        if answer:
            sock.sendall(frame(answer))
    return sock


def test_the_secret_itself_is_never_sent_and_no_proof_serves_twice():
    dialed, dials = Handshake("a", SECRET), Handshake("b", SECRET, to="a")
    sent = [dials.begin()]
    sent.append(dialed.take(sent[-1]))
    sent.append(dials.take(sent[-1]))
    sent.append(dialed.take(sent[-1]))
    assert sent.pop() == b"" and dialed.done
    sent.append(dialed.welcome())
    assert dials.take(sent[-1]) == b""
    assert dials.done and dialed.done
    assert (dials.peer, dialed.peer) == ("a", "b")
    assert not any(SECRET in message for message in sent)
    again = Handshake("a", SECRET)
    again.take(sent[0])
    with pytest.raises(HandshakeError, match="secret"):
        again.take(sent[2])
    # Nor is what one side has proved a proof of the other side.
    mirror = Handshake("a", SECRET)
    proof = codec.unpack(mirror.take(sent[0]))[1][1]
    with pytest.raises(HandshakeError, match="secret"):
        mirror.take(codec.pack(PROOF, proof, PROGRESS.write(NEW)))
    # Nor does it serve for another claim.
    other = Handshake("a", SECRET)
    mine = Handshake("b", SECRET, to="a")
    proof, said = codec.unpack(mine.take(other.take(mine.begin())))[1]
    with pytest.raises(HandshakeError, match="secret"):
        other.take(codec.pack(PROOF, proof, PROGRESS.write(Progress(b"x" * 16, 1, 0))))
    assert PROGRESS.read(said) == NEW


def test_one_that_means_another_server_is_refused():
    dials = Handshake("b", SECRET, to="c")
    with pytest.raises(HandshakeError, match="means 'c'"):
        Handshake("a", SECRET).take(dials.begin())


@given(st.lists(st.binary(max_size=100), max_size=4), st.integers(0, 6))
@settings(max_examples=300)
def test_any_messages_make_a_stranger_or_nothing(messages, kind):
    for side in (Handshake("a", SECRET), Handshake("a", SECRET, to="b")):
        for message in messages:
            try:
                side.take(bytes((kind,)) + message)
            except HandshakeError:
                break
        assert not side.done


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        struct.pack("!I", MAX_FRAME + 1),
        frame(b""),
        frame(b"\1" + b"\0" * 20),
        frame(codec.pack(HELLO, MAGIC, b"../evil", b"a", b"n" * 32)),
        frame(codec.pack(HELLO, b"other", b"b", b"a", b"n" * 32)),
        frame(codec.pack(PROOF, b"p" * 32)),
    ],
)
def test_strangers_are_closed_and_named_in_the_log(pair, data, caplog):
    a, b = pair
    with handshake_with(a.carrier.address) as sock:
        sock.sendall(data)
        while sock.recv(4096):
            pass
    until(lambda: "the connection with" in caplog.text)
    b.send("a", b"still here")
    assert a.next() == ("b", b"still here")


def test_silent_strangers_are_closed_and_cannot_crowd_others_out(servers, monkeypatch):
    monkeypatch.setattr(tcp, "LINK_HANDSHAKE_SECONDS", 0.5)
    monkeypatch.setattr(tcp, "MAX_UNPROVED", 5)
    a = servers("a")
    socks = [handshake_with(a.carrier.address) for _ in range(10)]
    for sock in socks:
        assert sock.recv(1) == b""
        sock.close()
    b = servers("b", peers={"a": a.carrier.address})
    assert b.next() == ("a", True)


class Flood:
    """Strangers that hold so many connections to a server, all the time, and say nothing."""

    def __init__(self, address, connections):
        self._address = address
        self._connections = connections
        self._over = False
        self.begun = 0
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        until(lambda: self.begun >= self._connections)
        return self

    def __exit__(self, *_):
        self._over = True
        self._thread.join(PATIENCE)

    def _run(self):
        with selectors.DefaultSelector() as selector:
            for _ in range(self._connections):
                self._begin(selector)
            while not self._over:
                for key, _ in selector.select(0.1):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    self._begin(selector)
            for key in list(selector.get_map().values()):
                key.fileobj.close()

    def _begin(self, selector):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(self._address)
        selector.register(sock, selectors.EVENT_READ)
        self.begun += 1


def test_servers_join_and_members_talk_while_strangers_hold_all_connections(pair, servers, monkeypatch, caplog):
    monkeypatch.setattr(tcp, "MAX_UNPROVED", 16)
    a, b = pair
    with Flood(a.carrier.address, 80) as flood:
        until(lambda: flood.begun > 160)
        for number in range(5):
            name = f"c{number}"
            joins = servers(name, peers={"a": a.carrier.address})
            assert joins.next(30) == ("a", True)
            assert a.next() == (name, True)
            b.send("a", b"still here")
            assert a.next() == ("b", b"still here")
    assert "connections are in their handshake" in caplog.text
    assert len(caplog.records) < 100


def test_who_proves_itself_in_time_is_not_closed_for_those_that_come_after_it(servers, monkeypatch):
    monkeypatch.setattr(tcp, "MAX_UNPROVED", 8)
    monkeypatch.setattr(tcp, "PROOF_SECONDS", 1.0)
    a = servers("a")
    with Flood(a.carrier.address, 20):
        for number in range(3):
            sock = handshake_with(a.carrier.address)
            mine = Handshake(f"c{number}", SECRET, to="a", progress=Progress(life=os.urandom(16)))
            sock.sendall(frame(mine.begin()))
            proof = mine.take(receive(sock))
            time.sleep(0.4)
            sock.sendall(frame(proof))
            mine.take(receive(sock))
            assert a.next() == (f"c{number}", True)
            sock.close()
            assert a.next() == (f"c{number}", False)


def test_without_descriptors_for_more_the_oldest_stranger_makes_room(servers, monkeypatch, caplog):
    a = servers("a")
    monkeypatch.setattr(tcp, "PROOF_SECONDS", 0.1)
    with handshake_with(a.carrier.address) as silent:
        entrance = a.carrier._peers.entrance
        until(lambda: entrance.unproved)
        real, oldest = entrance.listener, next(iter(entrance.unproved))

        class Full:
            def accept(self):
                if not oldest.closed:
                    raise OSError(errno.EMFILE, "too many open files")
                return real.accept()

            def __getattr__(self, name):
                return getattr(real, name)

        monkeypatch.setattr(entrance, "listener", Full())
        b = servers("b", peers={"a": a.carrier.address})
        assert b.next() == ("a", True)
        assert silent.recv(1) == b""
    assert "no connection can be taken" in caplog.text


def free_address():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()


@pytest.fixture
def soon(monkeypatch):
    """Have servers dialed again quickly."""
    monkeypatch.setattr(tcp, "DIAL_SECONDS", 0.1)
    monkeypatch.setattr(tcp, "LINK_HANDSHAKE_SECONDS", 0.4)
    monkeypatch.setattr(tcp, "MAX_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(tcp, "LOOK_SECONDS", 0.2)
    monkeypatch.setattr(tcp, "UNREACHED_LOG_SECONDS", 0.5)


def test_who_does_not_listen_yet_is_dialed_until_it_does(servers, soon, caplog):
    address = free_address()
    b = servers("b", peers={"a": address})
    until(lambda: f"a is not reached at {address}, and is dialed again: Connection refused" in caplog.text)
    a = servers("a", listen=address)
    assert a.next() == ("b", True)
    assert b.next() == ("a", True)
    # It was said once, and not for each time.
    assert caplog.text.count("is dialed again") == 1


@pytest.mark.parametrize("answer", [b"", b"\0\0\0\1x", None], ids=["closed", "nonsense", "silence"])
def test_who_hangs_up_or_says_nothing_is_dialed_again(servers, soon, answer):
    with socket.create_server(("127.0.0.1", 0), reuse_port=False) as listener:
        address = listener.getsockname()
        b = servers("b", peers={"a": address})
        held = []
        for _ in range(3):
            sock = listener.accept()[0]
            if answer is None:
                held.append(sock)
                continue
            sock.sendall(answer)
            sock.close()
        for sock in held:
            sock.close()
    a = servers("a", listen=address)
    assert a.next() == ("b", True)
    assert b.next() == ("a", True)


def test_a_name_that_is_not_found_is_looked_for_again_and_nobody_waits_meanwhile(pair, servers, soon, monkeypatch):
    a, _ = pair
    late = servers("late")
    asked, found = [], threading.Event()
    real = addresses._socket.getaddrinfo

    def look(host, port, *args, flags=0, **options):
        if host != b"late.example":
            return real(host, port, *args, flags=flags, **options)
        if flags & socket.AI_NUMERICHOST:
            raise socket.gaierror(socket.EAI_NONAME, "no address")
        asked.append(host)
        if len(asked) == 1:
            found.wait(PATIENCE)
        if len(asked) < 3:
            raise socket.gaierror(socket.EAI_AGAIN, "not known yet")
        return real("127.0.0.1", port, *args, **options)

    monkeypatch.setattr(addresses._socket, "getaddrinfo", look)
    c = servers("c", peers={"a": a.carrier.address, "late": ("late.example", late.carrier.address[1])})
    assert c.next() == ("a", True)
    until(lambda: asked)
    assert a.next() == ("c", True)
    a.send("c", b"meanwhile")
    assert c.next() == ("a", b"meanwhile")
    found.set()
    assert c.next() == ("late", True)
    assert late.next() == ("c", True)


def test_a_server_that_is_stopped_when_it_is_dialed_joins_when_it_goes_on(tmp_path, soon):
    command = [sys.executable, "-c", CHILD, "there", str(tmp_path / "m")]
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as child:
        try:
            until(lambda: rendezvous.find(str(tmp_path / "m")), 30)
            stop(child.pid)
            here = Server(TCPCarrier.in_folder("here", tmp_path / "m")).start()
            with pytest.raises(Empty):
                here.next(1.5)
            child.send_signal(signal.SIGCONT)
            assert here.next(30) == ("there", True)
        finally:
            child.kill()
            here.carrier.close()


def test_the_folder_is_read_again(tmp_path, servers, soon):
    # As if neither had seen the other: file systems of several nodes show late what was written.
    a = Server(TCPCarrier.in_folder("a", tmp_path / "m")).start()
    late = servers("late", rendezvous.enter(str(tmp_path / "m")))
    time.sleep(0.5)
    rendezvous.announce(str(tmp_path / "m"), "late", late.carrier.address)
    assert a.next() == ("late", True)
    assert late.next() == ("a", True)
    a.carrier.close()


def test_who_was_there_and_is_lost_is_not_dialed_again_before_it_listens_elsewhere(
    tmp_path, servers, soon, monkeypatch
):
    folder = str(tmp_path / "m")
    # The time that this test has to answer.
    monkeypatch.setattr(tcp, "DIAL_SECONDS", PATIENCE)
    monkeypatch.setattr(tcp, "LINK_HANDSHAKE_SECONDS", PATIENCE)
    a = Server(TCPCarrier.in_folder("a", folder)).start()
    secret = rendezvous.enter(folder)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        rendezvous.announce(folder, "b", listener.getsockname())
        sock = listener.accept()[0]
        theirs = Handshake("b", secret)
        sock.sendall(frame(theirs.take(receive(sock))))
        theirs.take(receive(sock))
        sock.sendall(frame(theirs.welcome(Progress(life=b"l" * 16))))
        assert a.next() == ("b", True)
        sock.close()
        assert a.next() == ("b", False)
        listener.settimeout(2.0)
        with pytest.raises(TimeoutError):
            listener.accept()
    again = servers("b", secret)
    rendezvous.announce(folder, "b", again.carrier.address)
    assert a.next() == ("b", True)
    a.carrier.close()


def test_a_close_in_order_warns_nobody_however_much_is_on_its_way(servers, caplog):
    for _ in range(5):
        a = servers("a")
        others = [servers(f"b{number}", peers={"a": a.carrier.address}) for number in range(4)]
        for _ in others:
            a.next()
        over = threading.Event()

        def send(a=a, over=over):
            while not over.is_set():
                for number in range(4):
                    a.send(f"b{number}", b"x" * 200_000)

        sender = threading.Thread(target=send)
        sender.start()
        for other in others:
            assert other.next() == ("a", True)
            other.next()
            other.carrier.close()
        for _ in others:
            assert a.next()[1] is False
        over.set()
        sender.join(PATIENCE)
        a.carrier.close()
    assert [record.getMessage() for record in caplog.records] == []


def test_bytes_of_a_member_that_are_no_frame_drop_it(servers, caplog):
    a = servers("a")
    with enter(a.carrier.address, "b", "a") as sock:
        assert a.next() == ("b", True)
        sock.sendall(frame(b"fine"))
        assert a.next() == ("b", b"fine")
        sock.sendall(b"\xff" * 100)
        assert a.next() == ("b", False)
        assert "announces a message" in caplog.text


def test_one_that_does_not_read_is_dropped_and_the_rest_goes_on(servers, caplog):
    a = servers("a", max_backlog=8_000_000)
    c = servers("c", peers={"a": a.carrier.address})
    assert a.next() == ("c", True)
    assert c.next() == ("a", True)
    with enter(a.carrier.address, "b", "a"):
        assert a.next() == ("b", True)
        for number in range(100):
            a.send("b", b"x" * 1_000_000)
            if number % 10 == 0:
                a.send("c", b"to read")
                assert c.next() == ("a", b"to read")
        assert a.next() == ("b", False)
        assert "does not read" in caplog.text
    assert a.carrier.members == ("a", "c")


def test_one_that_stalls_is_dropped_in_time(servers, monkeypatch, caplog):
    monkeypatch.setattr(tcp, "STALL_SECONDS", 0.3)
    a = servers("a")
    with enter(a.carrier.address, "b", "a"):
        assert a.next() == ("b", True)
        a.send("b", b"x" * 30_000_000)
        assert a.next() == ("b", False)
        assert "has read nothing" in caplog.text


def test_little_of_a_stranger_is_kept_however_much_it_sends():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sends = handshake_with(listener.getsockname())
        link = Connection(listener.accept()[0], Handshake("a", SECRET))
        sends.setblocking(False)
        while True:
            try:
                sends.send(struct.pack("!I", MAX_FRAME) + b"x" * 100_000)
            except BlockingIOError:
                break
        assert link.receive()
        assert len(link._in) <= MAX_FRAME + 4
        ((control, kept),) = link.frames(1 << 30)
        assert len(kept) == MAX_FRAME and not control
        assert link.receive()
        with pytest.raises(Broken, match=f"the limit is {MAX_FRAME}"):
            list(link.frames(1 << 30))
        link.close()
        sends.close()


def test_a_callback_that_breaks_is_logged_and_harms_nobody(pair, caplog):
    a, b = pair
    a.carrier._peers.on_message = lambda *_: 1 / 0
    b.send("a", b"1")
    until(lambda: "ZeroDivisionError" in caplog.text)
    a.carrier._peers.on_message = lambda *what: a.told.put(what)
    b.send("a", b"2")
    assert a.next() == ("b", b"2")


def test_why_a_server_was_lost_is_known_as_soon_as_it_is_absent(pair):
    a, _b = pair
    peers = a.carrier._peers
    seen = []

    class Present(dict):
        def pop(self, name):
            seen.append(a.carrier.reason(name))
            return super().pop(name)

    peers.census.present = Present(peers.census.present)
    peers.post(lambda: peers.vanish("b", "a test loses it"))
    assert a.next() == ("b", False)
    assert seen == ["a test loses it"]


def test_a_callback_may_close(pair):
    a, b = pair
    a.carrier._peers.on_message = lambda *_: a.carrier.close()
    b.send("a", b"go")
    assert b.next() == ("a", False)


def test_what_is_no_name_secret_or_place_is_refused_at_the_call(tmp_path):
    for name in ("", "a/b", "a\0b", "x" * 256):
        with pytest.raises(ValueError):
            check_name(name)
    with pytest.raises(TypeError):
        check_name(7)
    with pytest.raises(ValueError, match="guessed"):
        TCPCarrier("a", b"short")
    for bad in ({"listen": 5}, {"listen": ("127.0.0.1", "a")}, {"peers": {"b": 5}}, {"peers": 5}):
        with pytest.raises(TypeError):
            TCPCarrier("a", b"x" * 16, **bad)
    with pytest.raises(TypeError, match="a secret is bytes, not str"):
        TCPCarrier("a", "x" * 16)
    for bad in ({"peers": {"": ("127.0.0.1", 1)}}, {"max_message": 0}, {"max_message": "a"}, {"max_backlog": -1}):
        with pytest.raises(ValueError):
            TCPCarrier("a", b"x" * 16, **bad)
    for bad in (None, 5, "a", object()):
        with pytest.raises(TypeError, match="needs a carrier"):
            Exchange(bad)
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(PermissionDenied, match="written to by others"):
        rendezvous.enter(str(shared))
    shared.chmod(0o700)
    (shared / "secret").write_bytes(b"x" * 32)
    (shared / "secret").chmod(0o644)
    with pytest.raises(PermissionDenied, match="read by others"):
        rendezvous.enter(str(shared))
    (shared / "secret").chmod(0o600)
    assert rendezvous.enter(str(shared)) == b"x" * 32
    (shared / "secret").write_bytes(b"")
    with pytest.raises(PermissionDenied, match="no secret"):
        rendezvous.enter(str(shared))
    (shared / "server.broken").write_text("not an address")
    (shared / "server.").write_text("127.0.0.1 1")
    assert rendezvous.find(str(shared)) == {}
    assert rendezvous.find(str(tmp_path / "none")) == {}


def test_many_may_make_the_secret_at_a_time(tmp_path):
    found = SimpleQueue()
    threads = [threading.Thread(target=lambda: found.put(rendezvous.enter(str(tmp_path / "m")))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert len({found.get_nowait() for _ in threads}) == 1
    assert os.listdir(tmp_path / "m") == ["secret"]


def test_an_exchange_over_it_gathers_and_hears_of_a_loss(tmp_path):
    exchanges = [Exchange(TCPCarrier.in_folder(name, tmp_path / "m")) for name in "abc"]
    for exchange in exchanges:
        exchange.start()
    ends = SimpleQueue()
    for exchange in exchanges:
        exchange.when_present("abc", lambda *end: ends.put(end), timeout=PATIENCE)
    assert [ends.get(timeout=PATIENCE) for _ in "abc"] == [(None, None)] * 3
    for _ in range(50):
        for exchange in exchanges:
            exchange.allgather(b"s", "abc", exchange.name.encode(), lambda *end: ends.put(end), timeout=PATIENCE)
        for _ in "abc":
            gathered, error = ends.get(timeout=PATIENCE)
            assert error is None
            assert gathered.blobs == {"a": b"a", "b": b"b", "c": b"c"}
    for exchange in exchanges[1:]:
        exchange.allgather(b"s", "abc", b"", lambda *end: ends.put(end))
    exchanges[0].close()
    for _ in "bc":
        _, error = ends.get(timeout=PATIENCE)
        assert error.code == statuses.ERR_UNREACH
        assert error.servers == ("a",)
    exchanges[1].allgather(b"t", "bc", b"", lambda *end: ends.put(end), timeout=0.2)
    _, error = ends.get(timeout=PATIENCE)
    assert error.servers == ("c",)
    for exchange in exchanges:
        exchange.close()


ENCRYPTED = {
    "dialer": (None, True),
    "both": (True, True),
    "neither": (False, False),
    "listener, loopback": (None, None),
}


def secured(server, name):
    return server.carrier._peers.streams[name].connection.tunnel is not None


@pytest.mark.parametrize(("listens", "dials"), ENCRYPTED.values(), ids=ENCRYPTED)
def test_connections_are_encrypted_where_the_dialer_decides_so(servers, listens, dials):
    a = servers("a", encrypt=listens)
    b = servers("b", peers={"a": a.carrier.address}, encrypt=dials)
    assert b.next() == ("a", True)
    assert a.next() == ("b", True)
    assert secured(a, "b") == secured(b, "a") == bool(dials)
    messages = [os.urandom(1 + number * 37 % 5000) for number in range(300)] + [os.urandom(5_000_000), b"end"]
    for message in messages:
        a.send("b", message)
        b.send("a", message[::-1])
    assert [b.next() for _ in messages] == [("a", message) for message in messages]
    assert [a.next() for _ in messages] == [("b", message[::-1]) for message in messages]
    b.carrier.close()
    assert a.next() == ("b", False)


def test_the_end_of_a_long_encrypted_message_does_not_wait_for_the_next_one(servers):
    # No ping, either.
    a = servers("a", keep_alive=1000)
    b = servers("b", peers={"a": a.carrier.address}, encrypt=True, keep_alive=1000)
    assert b.next() == ("a", True)
    assert a.next() == ("b", True)
    # As the system does where the reader is slow.
    link = a.carrier._peers.streams["b"].connection
    link.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    for size in (100_000, 200_000, 262_144, 1_000_000, 1_000_001):
        a.send("b", b"x" * size)
        assert b.next() == ("a", b"x" * size)
        until(lambda: not link.tunnel.waiting)


def test_who_insists_on_encryption_takes_nobody_without(servers, soon, caplog):
    caplog.set_level("INFO")
    a = servers("a", encrypt=True)
    b = servers("b", peers={"a": a.carrier.address}, encrypt=False)
    until(lambda: "it does not encrypt" in caplog.text)
    assert a.carrier.members == ("a",)
    assert b.carrier.members == ("b",)


class Between:
    """A process that sits between two servers, and passes on what each says; kept is what it has seen."""

    def __init__(self, address, turn=lambda sock, _side: sock):
        self.seen = bytearray()
        self._address, self._turn = address, turn
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = self._listener.getsockname()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            ends = []
            try:
                ends.append(self._turn(self._listener.accept()[0], "dialed"))
                ends.append(self._turn(socket.create_connection(self._address), "dials"))
            except OSError:
                for end in ends:
                    end.close()
                if self._listener.fileno() < 0:
                    return
                continue
            over = []
            for source, target in (ends, ends[::-1]):
                threading.Thread(target=self._pass_on, args=(source, target, over), daemon=True).start()

    def _pass_on(self, source, target, over):
        try:
            while data := source.recv(65536):
                self.seen += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            over.append(target)
        over.append(source)
        if len(over) > 1:
            source.close()
            target.close()

    def close(self):
        self._listener.close()


def test_who_listens_on_the_way_learns_nothing(servers):
    a = servers("a")
    between = Between(a.carrier.address)
    b = servers("b", peers={"a": between.address}, encrypt=True)
    assert b.next() == ("a", True)
    assert a.next() == ("b", True)
    a.send("b", b"what nobody else is to know")
    assert b.next() == ("a", b"what nobody else is to know")
    assert len(between.seen) > 500
    assert b"nobody else" not in between.seen
    assert MAGIC not in between.seen
    between.close()


@pytest.mark.parametrize("onward", [True, False], ids=["encrypts", "does not encrypt"])
def test_who_sits_in_between_does_not_get_in(servers, soon, caplog, onward):
    """It ends the encryption of one side, and passes on what that says, encrypted again or not."""
    caplog.set_level("INFO")

    def turn(sock, side):
        if side == "dials" and not onward:
            return sock
        return tls.context(dials=side == "dials").wrap_socket(sock, server_side=side == "dialed")

    a = servers("a")
    between = Between(a.carrier.address, turn)
    b = servers("b", peers={"a": between.address}, encrypt=True)
    until(lambda: "does not know the secret" in caplog.text, 20)
    assert a.carrier.members == ("a",)
    assert b.carrier.members == ("b",)
    between.close()


@pytest.mark.parametrize("data", [b"\x16", b"\x16\x03\x01" + b"x" * 500, b"\x16" * 5000])
def test_strangers_that_begin_to_encrypt_harm_nobody(pair, data):
    a, b = pair
    with socket.create_connection(a.carrier.address) as sock:
        sock.sendall(data)
        b.send("a", b"meanwhile")
        assert a.next() == ("b", b"meanwhile")


def test_those_in_their_handshake_leave_the_others_their_turn(servers):
    """Anybody can connect, and what is sent then costs time: a few of them are dealt with in one turn of the loop."""
    server = servers("a", start=False)
    carrier = server.carrier
    peers = carrier._peers
    turns, dealt, loop = [0], {}, peers.loop
    posted, serve = loop.run_posted, peers.serve

    def turn(*most):
        turns[0] += 1
        posted(*most)

    def counted(link):
        dealt[turns[0]] = dealt.get(turns[0], 0) + 1
        serve(link)

    loop.run_posted, peers.serve = turn, counted
    server.start()
    held = threading.Event()
    loop.post(lambda: held.wait(PATIENCE))
    strangers = [socket.create_connection(carrier.address, timeout=PATIENCE) for _ in range(100)]
    try:
        for stranger in strangers:
            stranger.sendall(b"\0" * 8)
        held.set()
        deadline = time.monotonic() + PATIENCE
        while sum(dealt.values()) < len(strangers) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert sum(dealt.values()) >= len(strangers)
        assert max(dealt.values()) <= tcp.HANDSHAKES, dealt
        # One that belongs here gets in meanwhile.
        other = servers("b", peers={"a": carrier.address})
        assert other.next() == ("a", True) and server.next() == ("b", True)
    finally:
        for stranger in strangers:
            stranger.close()
