"""Proves that a running server withstands what sockets bring: stalls, garbage, crowds, slow readers, its end."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pypmix.engine import peeruid
from pypmix.engine.peeruid import UNKNOWN_USER, Owners, has_closed
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.python.serverside import handshakes
from pypmix.engine.python.session import local_socket
from pypmix.engine.serving import ServerOptions
from pypmix.standard import attrs, codes, ops, statuses
from pypmix.standard.errors import NotInitialized, PermissionDenied, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.limits import Limits
from pypmix.standard.types import RANK_WILDCARD, Proc, Value
from pypmix.wire.frames import FrameReader, frame
from pypmix.wire.handshake import Hello, ReplyReader, encode_hello, native_credential
from pypmix.wire.messages import (
    Command,
    decode_status,
    encode_commit,
    encode_fence,
    encode_get,
    encode_kval,
    request_layout,
)

WAIT = 10


class Host:
    """A server with jobs, and what it asked and said."""

    def __init__(self, size=4):
        self.upcalls = []
        self.log = []
        self.sockets = []
        self.answer = lambda upcall: upcall.reply()
        self.session = ServerSession(self.on_upcall, on_log=self.log.append)
        self.add("job", size)

    def on_upcall(self, upcall):
        self.upcalls.append(upcall.op)
        self.answer(upcall)

    def add(self, nspace, size):
        self.session.register_nspace(JobInfo(nspace, (attrs.JOB_SIZE(size),)))
        for rank in range(size):
            self.session.register_client(Proc(nspace, rank), os.getuid(), os.getgid())

    def raw(self):
        self.sockets.append(socket.create_connection(("127.0.0.1", self.session.port), timeout=WAIT))
        return self.sockets[-1]

    def close(self):
        self.session.close()
        for connection in self.sockets:
            connection.close()

    def client(self, rank=0, nspace="job", **changes):
        return Client(self, rank, nspace, **changes)

    def until(self, condition):
        deadline = time.monotonic() + WAIT
        while not condition():
            assert time.monotonic() < deadline, "it did not happen in time"
            time.sleep(0.005)


def hello(rank, nspace, **changes):
    """Return the first message of a client of this user."""
    fields = {"version": "5.0.11", "bfrops": "v41", "buffer_type": 1, "gds": "hash", "psec": "native"}
    credential = native_credential(os.getuid(), os.getgid())
    named = {"credential": credential, "flag": 0, "uid": None, "gid": None, "nspace": nspace, "rank": rank}
    return encode_hello(Hello(**{**fields, **named, **changes}))


class Client:
    """A client that blocks."""

    def __init__(self, host, rank, nspace, **changes):
        self.nspace = nspace
        self.socket = host.raw()
        self.socket.sendall(hello(rank, nspace, **changes))
        reader = ReplyReader()
        self.welcome = None
        while self.welcome is None:
            data = self.socket.recv(8)
            assert data, "refused without a word"
            self.welcome = reader.feed(data)
        self.reader = FrameReader()
        self.waiting = []
        self.tag = 100

    def send(self, payload):
        self.tag += 1
        self.socket.sendall(frame(0, self.tag, payload))
        return self.tag

    def reply(self):
        while not self.waiting:
            data = self.socket.recv(1 << 16)
            if not data:
                return None
            self.waiting += self.reader.feed(data)
        return self.waiting.pop(0)

    def status(self, payload):
        tag = self.send(payload)
        answered, data = self.reply()
        assert answered == tag
        return decode_status(data, 1)

    def fence(self, *ranks):
        procs = [Proc(self.nspace, rank) for rank in ranks or (RANK_WILDCARD,)]
        return encode_fence(1, procs)

    def ended(self):
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()


@pytest.fixture
def host():
    host = Host()
    yield host
    host.close()


def resident():
    """Return the memory of this process in kilobytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4


def fine(host, rank=3):
    """Tell whether the server still serves a new client."""
    client = host.client(rank)
    try:
        return client.welcome[0] == statuses.SUCCESS and client.status(client.fence(rank)) == statuses.SUCCESS
    finally:
        client.status(request_layout(Command.FINALIZE, (5, 0, 0)).encode(1, (5, 0, 0)))
        client.close()


def half_sent(host):
    """Return connections over which nothing came, or half of a handshake."""
    found = [host.raw() for _ in range(20)]
    for connection in found[10:]:
        connection.sendall(struct.pack("=iIII", -1, 0xFFFFFFFF, 100, 0) + b"native")
    return found


def test_a_half_sent_handshake_stalls_nobody(host, monkeypatch):
    monkeypatch.setattr(handshakes, "HANDSHAKE_SECONDS", 3600.0)
    stalled = half_sent(host)
    assert fine(host)
    for connection in stalled:
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)


def test_a_half_sent_handshake_is_waited_for_so_long(host, monkeypatch):
    monkeypatch.setattr(handshakes, "HANDSHAKE_SECONDS", 1.0)
    started = time.monotonic()
    for connection in half_sent(host):
        # On a busy machine the server may close it before it has read what came.
        with contextlib.suppress(ConnectionResetError):
            assert connection.recv(1) == b""
        connection.close()
    assert time.monotonic() - started > 0.9


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(4096),
        struct.pack("=iIII", -1, 0xFFFFFFFF, 0x7FFFFFFF, 0),
        struct.pack("=iIII", -1, 0xFFFFFFFF, 40, 0) + b"\xff" * 40,
        struct.pack("=iIII", -1, 0xFFFFFFFF, 0, 0),
    ],
    ids=["http", "random", "2 GiB", "nonsense", "empty"],
)
def test_garbage_is_dropped(host, data):
    connection = host.raw()
    connection.sendall(data)
    try:
        assert connection.recv(1) == b""
    except ConnectionResetError:
        pass
    connection.close()
    assert fine(host)


@pytest.mark.parametrize("length", [0x80000000, 0xFFFFFFFF, (1 << 30) + 1])
def test_an_enormous_length_ends_the_connection_at_once(host, length):
    bad, good = host.client(0), host.client(1)
    good.send(good.fence(0, 1))
    bad.socket.sendall(struct.pack("!iIII", 0, 101, length, 0))
    assert bad.ended()
    _, data = good.reply()
    assert decode_status(data, 1) == statuses.ERR_PARTIAL_SUCCESS
    host.until(lambda: any("job:0" in line for line in host.log))
    assert fine(host)


def test_garbage_after_the_handshake_is_answered(host):
    client = host.client(0)
    assert client.status(b"\2\3\2\x05garbage") == statuses.ERR_UNPACK_FAILURE
    assert client.status(client.fence(0)) == statuses.SUCCESS


def test_a_key_of_600_characters(host):
    client, other = host.client(0), host.client(1)
    kval = encode_kval(1, "x" * 500, Value(codes.STRING, "v"))
    start = kval.index(b"x" * 500)
    long = kval[: start - 2] + bytes((1202 & 127 | 128, 1202 >> 7)) + b"x" * 100 + kval[start:]
    assert client.status(encode_commit(1, [(1, long)])) in (statuses.ERR_BAD_PARAM, statuses.ERR_UNPACK_FAILURE)
    assert client.status(client.fence(0)) == statuses.SUCCESS
    assert other.status(encode_get(1, "job", 0, (attrs.IMMEDIATE(True),), "x" * 500)) == statuses.ERR_NOT_FOUND


def test_a_wrong_nspace_is_told_so(host):
    client = host.client(0, nspace="jab")
    assert client.welcome[0] == statuses.ERR_NOT_FOUND
    assert client.ended()
    assert "jab" in host.log[0]
    assert fine(host)


def test_another_user_cannot_pose_as_this_one(host):
    if os.getuid() != 0:
        pytest.skip("this needs root, to run a process as another user")
    program = (
        "import os, socket, sys; 'localhost'.encode('idna'); os.setuid(int(sys.argv[3])); "
        "connection = socket.create_connection(('127.0.0.1', int(sys.argv[1])), 10); "
        "connection.sendall(bytes.fromhex(sys.argv[2])); print(connection.recv(4).hex())"
    )
    # Another user is not even read, so the kernel resets the connection.
    program = f"try:\n    {program}\nexcept ConnectionError:\n    print()"
    for user, status in ((65534, b""), (0, b"\0\0\0\0")):
        said = subprocess.run(
            [sys.executable, "-c", program, str(host.session.port), hello(0, "job").hex(), str(user)],
            capture_output=True,
            text=True,
            timeout=WAIT,
            check=True,
        )
        assert bytes.fromhex(said.stdout.strip()) == status
    assert "65534" in host.log[0]


def test_the_owner_of_a_connection_is_known(host):
    owners = Owners()
    owners.probe()
    assert owners.trouble == ""
    listener = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(listener.getsockname(), timeout=WAIT)
    there, _ = listener.accept()
    try:
        assert owners.uid(there) == os.getuid()
        assert not has_closed(there)
        here.close()
        host.until(lambda: owners.uid(there) == UNKNOWN_USER)
        assert has_closed(there)
    finally:
        owners.close()
        for each in (here, there, listener):
            each.close()
    assert owners.uid(host.raw()) == UNKNOWN_USER


def test_a_message_in_small_pieces(host):
    client = host.client(0)
    message = frame(0, 101, client.fence(0))
    for position in range(len(message)):
        client.socket.sendall(message[position : position + 1])
        time.sleep(0.001)
    assert client.reply()[0] == 101


def test_a_slow_reader_is_not_read_from_and_harms_nobody(host):
    lazy, other = host.client(0), host.client(1)
    blob = Value(codes.BYTE_OBJECT, bytes(1 << 20))
    assert other.status(encode_commit(1, [(1, encode_kval(1, "blob", blob))])) == statuses.SUCCESS
    request = encode_get(1, "job", 1, (), "blob")
    for _ in range(100):
        lazy.send(request)
        assert other.status(other.fence(1)) == statuses.SUCCESS
    (link,) = [link for link in host.session._reactor._links.values() if link.owner.process.proc.rank == 0]
    # More was asked for than waits: the rest of the requests waits with the kernel.
    assert not link.watched & select.EPOLLIN
    assert link._queued < 8 << 20
    for _ in range(100):
        assert len(lazy.reply()[1]) > 1 << 20
    host.until(lambda: link.watched & select.EPOLLIN)
    assert lazy.status(lazy.fence(0)) == statuses.SUCCESS
    assert not host.log


def test_what_was_sent_in_one_piece_before_the_end_counts(host):
    client, other = host.client(0), host.client(1)
    commits = [encode_commit(1, [(1, encode_kval(1, f"k{number}", Value(codes.INT, number)))]) for number in range(500)]
    client.socket.sendall(b"".join([frame(0, 200 + number, commit) for number, commit in enumerate(commits)]))
    client.socket.shutdown(socket.SHUT_WR)
    host.until(lambda: ops.ClientLost(Proc("job", 0)) in host.upcalls)
    assert other.status(encode_get(1, "job", 0, (), "k499")) == statuses.SUCCESS


def test_who_is_told_much_and_does_not_read_is_dropped(host):
    host.session._reactor.limits = Limits(unread=4 << 20)
    _, other = host.client(0), host.client(1)
    (link,) = [link for link in host.session._reactor._links.values() if link.owner.process.proc.rank == 0]
    for _ in range(200):
        host.session._reactor.call(lambda: link.send(bytes(1 << 20)))
        assert other.status(other.fence(1)) == statuses.SUCCESS
        if host.log:
            break
    assert "does not read" in host.log[0]
    assert "'unread' is 4194304" in host.log[0]
    host.until(lambda: ops.ClientLost(Proc("job", 0)) in host.upcalls)
    assert other.status(other.fence(1)) == statuses.SUCCESS


def test_a_reader_that_is_slow_for_a_while_gets_everything(host):
    lazy, other = host.client(0), host.client(1)
    blob = Value(codes.BYTE_OBJECT, bytes(1 << 20))
    other.status(encode_commit(1, [(1, encode_kval(1, "blob", blob))]))
    tags = [lazy.send(encode_get(1, "job", 1, (), "blob")) for _ in range(20)]
    time.sleep(0.2)
    for tag in tags:
        answered, data = lazy.reply()
        assert answered == tag
        assert len(data) > 1 << 20


def test_a_crowd_of_clients():
    size = 400
    host = Host(size)
    try:
        rss = resident()
        clients = [host.client(rank) for rank in range(size)]
        for _ in range(3):
            for client in clients:
                client.send(client.fence())
            assert {decode_status(client.reply()[1], 1) for client in clients} == {statuses.SUCCESS}
        grown = resident() - rss
        assert grown / size < 16, "kilobytes for both ends of a connection"
        threads = [thread for thread in threading.enumerate() if thread.name.startswith("pypmix-server")]
        assert len(threads) == 1
        for client in clients:
            client.close()
        host.until(lambda: sum(isinstance(op, ops.ClientLost) for op in host.upcalls) == size)
    finally:
        host.close()


def test_upcalls_may_be_answered_from_any_thread(host):
    host.answer = lambda upcall: threading.Timer(0.05, upcall.reply).start()
    client = host.client(0)
    assert client.welcome[0] == statuses.SUCCESS
    host.answer = lambda upcall: threading.Thread(target=upcall.fail, args=(PMIxError("x", status=-7),)).start()
    abort = request_layout(Command.ABORT, (5, 0, 0)).encode(1, (5, 0, 0), code=3, message="m", procs=())
    assert client.status(abort) == -7
    assert host.upcalls[-1] == ops.ClientAborted(Proc("job", 0), 3, "m", ())


def test_only_the_first_answer_of_a_host_counts(host):
    def twice(upcall):
        upcall.fail(PermissionDenied("no"))
        upcall.reply()

    host.answer = twice
    assert host.client(0).welcome[0] == statuses.ERR_NO_PERMISSIONS


def test_a_host_that_fails_refuses(host):
    host.answer = lambda upcall: 1 // 0
    client = host.client(0)
    assert client.welcome[0] not in (None, statuses.SUCCESS)
    assert any("ZeroDivisionError" in line for line in host.log)
    host.answer = lambda upcall: upcall.reply()
    assert fine(host)


def test_what_is_under_way_can_be_asked(host):
    client = host.client(0)
    before = time.monotonic()
    client.send(client.fence(0, 2))
    host.until(host.session.pending)
    after = time.monotonic()
    (entry,) = host.session.pending()
    assert (entry.operation, entry.arrived, entry.missing) == ("fence", (Proc("job", 0),), (Proc("job", 2),))
    assert before <= entry.since <= after


def test_registrations_from_many_threads(host):
    threads = [threading.Thread(target=host.add, args=(f"job-{number}", 3)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT)
    assert all(host.client(2, nspace=f"job-{number}").welcome[0] == statuses.SUCCESS for number in range(8))


def test_a_deregistered_job_is_cut_off(host):
    host.add("other", 1)
    client = host.client(0, nspace="other")
    host.session.deregister_nspace("other")
    assert client.ended()
    assert host.client(0, nspace="other").welcome[0] == statuses.ERR_NOT_FOUND


def test_job_info_that_cannot_be_sent_is_refused_at_once(host):
    with pytest.raises(ValueError, match="job size"):
        host.session.register_nspace(JobInfo("bad", (attrs.JOB_SIZE(4_000_000_000),)))
    host.add("bad", 1)


def test_the_environment_of_a_client(host):
    env = host.session.client_env(Proc("job", 2))
    assert env["PMIX_NAMESPACE"] == "job"
    assert env["PMIX_RANK"] == "2"
    nspace, _, rest = env["PMIX_SERVER_URI41"].partition(";")
    assert nspace == f"{host.session.proc.nspace}.0"
    assert rest == f"tcp4://127.0.0.1:{host.session.port}"
    assert env["PMIX_SECURITY_MODE"] == "native"
    assert env["PMIX_GDS_MODULE"] == "hash"
    # Clients take the first one, and Flux looks for the other.
    assert [name for name in env if name.startswith("PMIX_SERVER_URI")] == ["PMIX_SERVER_URI41", "PMIX_SERVER_URI2"]
    assert env["PMIX_SERVER_URI2"] == env["PMIX_SERVER_URI41"]
    assert env["PYPMIX_SERVER"]


def test_only_the_loopback_interface_is_served(host):
    own = [line.split()[1] for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ports = [address for address in own if int(address.split(":")[1], 16) == host.session.port]
    assert ports
    assert all(address.startswith("0100007F:") for address in ports)


def test_the_end():
    host = Host()
    client = host.client(0)
    client.send(client.fence())
    host.until(host.session.pending)
    host.session.close()
    host.session.close()
    assert client.ended()
    with pytest.raises(NotInitialized):
        host.session.register_client(Proc("job", 0), 0, 0)
    with pytest.raises(ConnectionRefusedError):
        host.raw()
    assert not any(isinstance(op, ops.ClientLost) for op in host.upcalls)
    host.close()


def test_an_upcall_answered_after_the_end():
    host = Host()
    kept = []
    host.answer = kept.append
    host.raw().sendall(hello(0, "job"))
    host.until(lambda: kept)
    host.close()
    kept[0].reply()
    kept[0].fail(PMIxError("late"))


# Whose a connection is.


class Kernel:
    """Answers questions for the owners of sockets as it is told to."""

    def __init__(self, owners):
        self.real, owners._netlink = owners._netlink, self
        self.change = lambda answers: answers
        self.waiting = []

    def send(self, query):
        self.real.send(query)
        self.waiting += self.change([self.real.recvfrom(4096)])

    def recvfrom(self, size):
        if not self.waiting:
            raise BlockingIOError
        return self.waiting.pop(0)

    def close(self):
        self.real.close()


KERNEL = (0, 0)


def changed(data, offset, form, value):
    fresh = bytearray(data)
    struct.pack_into(form, fresh, offset, value)
    return bytes(fresh)


ANSWERS = {
    "its own": (lambda answer: [(answer, KERNEL)], True),
    "behind a stale one": (lambda answer: [(changed(answer, 8, "=I", 77), KERNEL), (answer, KERNEL)], True),
    "behind a stranger's": (lambda answer: [(changed(answer, 80, "=I", 1), (4711, 0)), (answer, KERNEL)], True),
    "none": (lambda answer: [], False),
    "too many stale ones": (lambda answer: [(changed(answer, 8, "=I", 77), KERNEL)] * 1000 + [(answer, KERNEL)], False),
    "of another question": (lambda answer: [(changed(answer, 8, "=I", 77), KERNEL)], False),
    "of a stranger": (lambda answer: [(answer, (4711, 0))], False),
    "no such socket": (lambda answer: [(struct.pack("=IHHIIi", 36, 2, 0, *seq(answer), 0, -2), KERNEL)], False),
    "of another type": (lambda answer: [(changed(answer, 4, "=H", 3), KERNEL)], False),
    "empty": (lambda answer: [(b"", KERNEL)], False),
    "short": (lambda answer: [(answer[:80], KERNEL)], False),
    "shorter than it says": (lambda answer: [(changed(answer, 0, "=I", 4000), KERNEL)], False),
    "longer than it says": (lambda answer: [(changed(answer, 0, "=I", 60), KERNEL)], False),
    "in time-wait": (lambda answer: [(changed(answer, 17, "=B", 6), KERNEL)], False),
    "closing": (lambda answer: [(changed(answer, 17, "=B", 5), KERNEL)], False),
    "of other ports": (lambda answer: [(changed(answer, 20, "=H", 1), KERNEL)], False),
    "of another address": (lambda answer: [(changed(answer, 24, "=B", 10), KERNEL)], False),
    "bound to a device": (lambda answer: [(changed(answer, 56, "=I", 1), KERNEL)], False),
    "without an owner": (lambda answer: [(changed(answer, 84, "=I", 0), KERNEL)], False),
}


def seq(answer):
    return (struct.unpack_from("=I", answer, 8)[0],)


@pytest.mark.parametrize("name", ANSWERS)
def test_only_the_kernels_answer_to_this_question_counts(name):
    change, known = ANSWERS[name]
    owners = Owners()
    listener = socket.create_server(("127.0.0.1", 0))
    here = socket.create_connection(listener.getsockname(), timeout=WAIT)
    there, _ = listener.accept()
    kernel = Kernel(owners)
    try:
        kernel.change = lambda answers: [each for data, _sender in answers for each in change(data)]
        assert owners.uid(there) == (os.getuid() if known else UNKNOWN_USER)
        kernel.change = lambda answers: answers
        kernel.waiting = kernel.waiting[:3]
        assert owners.uid(there) == os.getuid(), "an answer to an earlier question is left"
    finally:
        owners.close()
        for each in (here, there, listener):
            each.close()


@pytest.mark.parametrize(
    ("known", "overflow", "uid"),
    [
        ("0 0 4294967295\n", "65534\n", UNKNOWN_USER),
        ("0 1000 1\n", "65534\n", 65534),
        ("0 1000 1\n1 100000 65536\n", "4711\n", 4711),
        ("", "65534\n", 65534),
        (None, "65534\n", UNKNOWN_USER),
        ("nonsense\n", "", 65534),
    ],
)
def test_the_user_that_stands_for_many(monkeypatch, known, overflow, uid):
    def fake(path):
        text = {"/proc/self/uid_map": known, "/proc/sys/kernel/overflowuid": overflow}[path]
        if text is None:
            raise FileNotFoundError(path)
        return text.encode()

    monkeypatch.setattr(peeruid, "contents", fake)
    assert peeruid.unclear() == uid


def test_both_ends_over_ipv6_are_known():
    owners = Owners()
    listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    here = socket.create_connection(listener.getsockname()[:2], timeout=WAIT)
    there, _ = listener.accept()
    try:
        assert owners.uid(there) == owners.server(here) == os.getuid()
        listener.close()
        # Somebody has accepted the connection, and nobody can say any more who.
        assert owners.server(here) == UNKNOWN_USER
    finally:
        owners.close()
        for each in (here, there, listener):
            each.close()


def test_a_folder_that_others_can_read_gets_no_socket(tmp_path):
    for mode, offered in ((0o700, True), (0o750, False), (0o755, False)):
        tmp_path.chmod(mode)
        session = ServerSession(lambda upcall: upcall.reply(), ServerOptions(tmpdir=str(tmp_path)), print)
        try:
            assert ("PYPMIX_SERVER_SOCKET" in session.client_env(Proc("job", 0))) == offered
            assert len(list(tmp_path.iterdir())) == offered
        finally:
            session.close()
        assert not list(tmp_path.iterdir())


def test_a_path_that_is_too_long_gets_no_socket(tmp_path):
    folder = tmp_path / ("x" * 100)
    folder.mkdir(0o700)
    session = ServerSession(lambda upcall: upcall.reply(), ServerOptions(tmpdir=str(folder)), print)
    try:
        assert "PYPMIX_SERVER_SOCKET" not in session.client_env(Proc("job", 0))
        assert not list(folder.iterdir())
    finally:
        session.close()


def test_the_path_is_for_the_server_whose_address_stands_before_it(tmp_path):
    """A process hands its environment on to those that it starts, who may have another server."""
    assert local_socket({"PYPMIX_SERVER_SOCKET": "a.0;tcp4://127.0.0.1:5 /a b"}, "a.0;tcp4://127.0.0.1:5") == "/a b"
    assert local_socket({"PYPMIX_SERVER_SOCKET": "a.0;tcp4://127.0.0.1:5 /a b"}, "a.0;tcp4://127.0.0.1:6") == ""
    assert local_socket({}, "a.0;tcp4://127.0.0.1:5") == ""
