"""Proves that the Python client finds its server, blocks without losing anything, and says what went wrong."""

from __future__ import annotations

import dis
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from types import FrameType
from typing import Any

import pytest

from lib.fake_server import NSPACE, RELEASE, FakeServer, get_reply, job, serving
from lib.leftovers import nothing_left
from pypmix.engine.common import SOCKET_VARIABLE
from pypmix.engine.python import client as client_module
from pypmix.engine.python import session as engine_session
from pypmix.engine.python import transport
from pypmix.engine.python.serversession import ServerSession
from pypmix.engine.python.session import Session, open_client
from pypmix.engine.serving import ServerOptions
from pypmix.standard import attrs
from pypmix.standard.errors import (
    LostConnection,
    NotFound,
    NotInitialized,
    NotSupported,
    OperationTimeout,
    PMIxError,
    RemoteProtocolError,
    Unreachable,
    WouldDeadlock,
)
from pypmix.standard.ops import Commit, Fence, Finalize, Get, Put
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.standard.values import from_python, uint32
from pypmix.wire.codec import encode_kval
from pypmix.wire.frames import FrameReader
from pypmix.wire.handshake import HelloReader, encode_reply
from pypmix.wire.messages import Command, decode_get, encode_status, peek_command

ME = Proc(NSPACE, 0)
PEER = Proc(NSPACE, 1)
ALL = Proc(NSPACE, RANK_WILDCARD)

WAIT = 60
"""Seconds that a test waits for what it proves."""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as made:
        yield made


@pytest.fixture
def session(server: FakeServer) -> Iterator[Session]:
    made = open_client(server.env)
    assert isinstance(made, Session)
    yield made
    made.close()


def fails(env: dict[str, str], kind: type[PMIxError], text: str, *directives: Any) -> PMIxError:
    with pytest.raises(kind, match=text) as caught:
        open_client(env, directives)
    assert type(caught.value) is kind
    assert caught.value.operation == "open"
    assert caught.value.hint
    return caught.value


# Opening


def test_an_open_session_knows_its_job(session: Session) -> None:
    assert session.proc == ME
    assert not session.singleton
    assert str(session.info) == "python 5.0.11"
    assert session.server == "server.0 5.0.11"
    assert session.run(Get(ALL, "pmix.job.size")) == uint32(4)
    assert session.fetch_local(ME, "pmix.srvr.uri").data.startswith("server.0;tcp4://127.0.0.1:")  # type: ignore[union-attr]
    assert session.fetch_local(ME, "pmix.srv.nspace") == from_python("server")
    assert session.supports("fence.timeout")
    assert not session.supports("nonsense")


def test_a_client_process_opens_in_one_exchange_with_a_server_of_ours() -> None:
    """A relay between the two gives the server nothing, and so the client no answer, before the client asked for all.

    What the client sends is recorded to its end: after the job info it has nothing to ask before it finalizes.
    """
    program = "import pypmix\nwith pypmix.Client(engine='python') as me: print(me.job.size)"
    real = ServerSession(lambda upcall: upcall.reply(None), ServerOptions(hostname="here"))
    with closing(real), socket.create_server(("127.0.0.1", 0)) as listener:
        real.register_nspace(job())
        real.register_client(ME, os.getuid(), os.getgid())
        env = real.client_env(ME)
        env.pop(SOCKET_VARIABLE, None)
        port = str(listener.getsockname()[1])
        env["PMIX_SERVER_URI41"] = env["PMIX_SERVER_URI41"].replace(str(real.port), port)
        listener.settimeout(60)
        process = subprocess.Popen([sys.executable, "-c", program], env={**os.environ, **env}, stdout=subprocess.PIPE)
        try:
            commands = _relayed(listener.accept()[0], real.port)
            assert process.communicate(timeout=20) == (b"4\n", None)
        finally:
            process.kill()
            process.wait()
    assert process.returncode == 0
    assert commands == [Command.REQ, Command.FINALIZE]


def _relayed(client: socket.socket, port: int) -> list[int]:
    """Pass on what a client and the server at a port say, as soon as the client has made a request; return all."""
    hellos, frames, held, said = HelloReader(), FrameReader(), b"", None
    commands: list[int] = []
    with client:
        client.settimeout(20)
        while not commands:
            data = client.recv(65536)
            assert data, "the client has gone"
            held += data
            if said is None:
                said = hellos.feed(data)
                data = hellos.rest if said else b""
            commands += [peek_command(payload, 1) for _, payload in frames.feed(data)]
        # not before: a server gives a connection a few seconds to say who it is
        with socket.create_connection(("127.0.0.1", port)) as server:
            server.sendall(held)
            while True:
                ready = select.select([client, server], [], [], 20)[0]
                assert ready, f"silence after {commands}"
                data = ready[0].recv(65536)
                if not data:
                    return commands
                if ready[0] is client:
                    commands += [peek_command(payload, 1) for _, payload in frames.feed(data)]
                (server if ready[0] is client else client).sendall(data)


def test_the_client_says_what_the_environment_asks_for(server: FakeServer) -> None:
    from pypmix.wire.handshake import HelloReader, parse_native_credential

    seen = []

    def refuse(peer: socket.socket) -> bool:
        return False

    server.hello = refuse
    feed = HelloReader.feed

    def spy(self: HelloReader, data: bytes) -> Any:
        hello = feed(self, data)
        seen.append(hello)
        return hello

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HelloReader, "feed", spy)
        fails(
            server.env | {"PMIX_BFROP_BUFFER_TYPE": "PMIX_BFROP_BUFFER_FULLY_DESC"},
            Unreachable,
            "closed the connection",
        )
    (hello,) = seen
    assert (hello.psec, hello.nspace, hello.rank, hello.version) == ("native", NSPACE, 0, "5.0.11rc1")
    assert (hello.bfrops, hello.gds, hello.buffer_type) == ("v41", "hash", 2)
    assert parse_native_credential(hello.credential) == (os.geteuid(), os.getegid())


@pytest.mark.parametrize(
    ("change", "kind", "text"),
    [
        ({"PMIX_RANK": ""}, Unreachable, "PMIX_RANK"),
        ({"PMIX_RANK": "-1"}, Unreachable, "PMIX_RANK"),
        ({"PMIX_RANK": "4294967295"}, Unreachable, "PMIX_RANK"),
        ({"PMIX_NAMESPACE": ""}, Unreachable, "PMIX_NAMESPACE"),
        ({"PMIX_NAMESPACE": "x" * 256}, Unreachable, "PMIX_NAMESPACE"),
        ({"PMIX_SERVER_URI41": ""}, Unreachable, "PMIX_SERVER_URI"),
        ({"PMIX_SERVER_URI41": "nonsense"}, Unreachable, "nonsense"),
        ({"PMIX_SERVER_URI41": "s.0;tcp4://127.0.0.1"}, Unreachable, "not the address"),
        ({"PMIX_SERVER_URI41": "s.0;usock:///tmp/x"}, Unreachable, "not the address"),
        ({"PMIX_SERVER_URI41": "s.0;tcp4://127.0.0.1:99999"}, Unreachable, "not the address"),
        ({"PMIX_VERSION": ""}, NotSupported, "unsupported release"),
        ({"PMIX_VERSION": "soon"}, NotSupported, "unsupported release"),
        ({"PMIX_VERSION": "3.1.5"}, NotSupported, "unsupported release"),
        ({"PMIX_SECURITY_MODE": "munge,kerberos"}, NotSupported, "munge,kerberos"),
    ],
)
def test_an_environment_that_cannot_work_is_told_before_anything_is_sent(
    change: dict[str, str], kind: type[PMIxError], text: str
) -> None:
    env = {
        "PMIX_NAMESPACE": NSPACE,
        "PMIX_RANK": "0",
        "PMIX_SERVER_URI41": "s.0;tcp4://127.0.0.1:1",
        "PMIX_VERSION": "5.0.11",
    }
    fails(env | change, kind, text)


def test_a_dead_server_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(transport, "sleep", pauses.append)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    env = {
        "PMIX_NAMESPACE": "j",
        "PMIX_RANK": "0",
        "PMIX_SERVER_URI4": f"s.0;tcp4://127.0.0.1:{port}",
        "PMIX_VERSION": "4.2.2",
    }
    fails(env, Unreachable, "refused")
    assert sum(pauses) < 1


def test_a_refused_handshake_is_told(server: FakeServer) -> None:
    server.hello = lambda peer: False
    error = fails(server.env | {"PMIX_NAMESPACE": "wrong"}, Unreachable, "wrong:0 is not registered there")
    assert error.engine.startswith("python")


def test_a_half_sent_handshake_is_waited_for_no_longer_than_asked(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_session, "OPEN_WAIT", 3600.0)

    def half(peer: socket.socket) -> bool:
        peer.sendall(encode_reply(0, 1)[:6])
        server.ended.wait(WAIT)
        return False

    server.hello = half
    start = time.monotonic()
    fails(server.env, Unreachable, "did not finish the handshake", attrs.TIMEOUT(1))
    assert time.monotonic() - start > 0.9
    server.ended.set()


def test_garbage_instead_of_a_handshake(server: FakeServer) -> None:
    def garbage(peer: socket.socket) -> bool:
        peer.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        return False

    server.hello = garbage
    fails(server.env, Unreachable, "refused the handshake with status")


def test_a_singleton_needs_no_server() -> None:
    session = open_client({})
    assert session.singleton
    assert session.fileno() == -1
    assert session.server == ""
    session.run(Put("a", uint32(1)))
    session.run(Commit())
    session.run(Fence(collect=True))
    assert session.run(Get(session.proc, "a")) == uint32(1)
    for key in ("pmix.job.size", "pmix.local.size", "pmix.app.size", "pmix.univ.size"):
        assert session.run(Get(Proc(session.proc.nspace, RANK_WILDCARD), key)) == uint32(1)
    with pytest.raises(NotFound):
        session.run(Get(Proc("other", 0), "a"))
    seen: list[object] = []
    session.submit(Fence(), lambda result, error: seen.append(error))
    assert seen == [None]
    session.attach()
    session.poll()
    session.detach()
    session.run(Finalize())
    for op in (Get(session.proc, "a"), Fence(), Finalize()):
        with pytest.raises(NotInitialized):
            session.run(op)
    session.close()


# Blocking calls


def test_a_blocking_call_starts_no_thread(server: FakeServer, session: Session) -> None:
    before = set(threading.enumerate())
    session.run(Put("a", uint32(1)))
    session.run(Commit())
    session.run(Fence())
    assert set(threading.enumerate()) <= before
    assert session._connection is not None and session._connection._helper is None
    assert [command for command, _ in server.requests] == [Command.REQ, Command.COMMIT, Command.FENCENB]


def test_finalize_closes_and_is_final(server: FakeServer, session: Session) -> None:
    session.run(Finalize())
    assert server.ended.wait(5)
    assert server.requests[-1][0] == Command.FINALIZE
    for op in (Finalize(), Fence(), Put("a", uint32(1)), Get(ALL, "pmix.job.size")):
        with pytest.raises(NotInitialized) as caught:
            session.run(op)
        assert caught.value.operation == op.name
    with pytest.raises(NotInitialized):
        session.submit(Fence(), lambda result, error: None)
    session.poll()


def test_a_lost_server_is_told_at_once_and_for_ever(server: FakeServer, session: Session) -> None:
    server.answer = lambda command, payload: server.drop()  # type: ignore[func-returns-value]
    for op in (Fence(), Fence(), Put("a", uint32(1))):
        with pytest.raises(LostConnection) as caught:
            session.run(op)
        assert caught.value.operation == op.name


def test_a_reply_that_does_not_parse_closes_the_connection(server: FakeServer, session: Session) -> None:
    server.answer = lambda command, payload: b"\xff\xff"
    with pytest.raises(RemoteProtocolError):
        session.run(Get(PEER, "a"))
    assert server.ended.wait(5)
    with pytest.raises(LostConnection):
        session.run(Fence())


def test_a_server_that_ignores_the_timeout(server: FakeServer, session: Session) -> None:
    server.answer = lambda command, payload: None
    start = time.monotonic()
    with pytest.raises(OperationTimeout) as caught:
        session.run(Fence(directives=(attrs.TIMEOUT(1),)))
    assert time.monotonic() - start > 1
    assert caught.value.procs == (ALL,)
    server.answer = lambda command, payload: encode_status(1, 0)
    # One of the same procs would wait for the answer to the first.
    session.run(Fence((ME,)))


class Interrupt(Exception):
    """What a signal handler raises here."""


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise Interrupt


def strike() -> None:
    """Have the main thread's handler of SIGUSR1 called."""
    signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)


def test_an_interrupted_call_is_given_up_and_nothing_else(server: FakeServer, session: Session) -> None:
    held: list[int] = []

    def hold(_command: int, _payload: bytes) -> None:
        held.append(server.tags[-1])
        if len(held) == 2:
            strike()

    server.answer = hold
    signal.signal(signal.SIGUSR1, interrupt)
    other: list[object] = []
    session.submit(Fence((ME,)), lambda result, error: other.append(error))
    with pytest.raises(Interrupt):
        session.run(Fence())
    assert len(held) == 2
    server.answer = lambda command, payload: encode_status(1, 0)
    for tag in reversed(held):
        server.reply(tag, encode_status(1, -1))
    session.run(Fence((PEER, ME)))
    wait_for(lambda: bool(other))
    assert isinstance(other[0], PMIxError)
    session.run(Commit())


def wait_for(condition: Callable[[], bool], limit: float = 25) -> None:
    end = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_call_may_be_interrupted_at_any_step(server: FakeServer, session: Session) -> None:
    """Raise wherever the interpreter runs signal handlers in a blocking call, one place after the other.

    These are the ends of calls, the starts of functions and the jumps backward.
    """
    files = (transport.__file__, client_module.__file__)
    number = 0
    while True:
        number += 1
        left = number
        reached = False

        def trace(frame: FrameType, event: str, _: object, last: dict[FrameType, str] = {}) -> Any:  # noqa: B006
            nonlocal left, reached
            if frame.f_code.co_filename not in files:
                return None
            frame.f_trace_opcodes = True
            if event == "opcode" and not reached:
                name = dis.opname[frame.f_code.co_code[frame.f_lasti]]
                before = last.get(frame, "RESUME")
                last[frame] = name
                left -= before.startswith(("CALL", "RESUME")) or name == "JUMP_BACKWARD"
                if left == 0:
                    reached = True
                    raise Interrupt
            return trace

        ended: list[object] = []
        session.submit(Commit(), lambda result, error, ended=ended: ended.append(error))  # type: ignore[misc]
        # Python 3.12 looks at this when tracing begins.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(trace)
        try:
            session.run(Fence())
        except Interrupt:
            pass
        finally:
            sys.settrace(None)
        session.run(Fence())
        wait_for(lambda ended=ended: bool(ended))  # type: ignore[misc]
        assert ended == [None]
        connection = session._connection
        assert connection is not None
        assert not connection._waiters and connection._reader is None
        if not reached:
            break
    assert number > 40


def test_a_blocking_call_inside_a_blocking_call_is_refused(server: FakeServer, session: Session) -> None:
    raised: list[BaseException] = []
    done: list[object] = []

    def handler(number: int, frame: FrameType | None) -> None:
        try:
            session.run(Commit())
        except WouldDeadlock as error:
            raised.append(error)
        session.submit(Commit(), lambda result, error: done.append(error))

    tags: list[int] = []

    def answer(command: int, _payload: bytes) -> None:
        tags.append(server.tags[-1])
        if command == Command.FENCENB:
            # When the main thread waits: where it still sends, it may not submit either.
            threading.Timer(0.2, strike).start()
            return
        for tag in reversed(tags):
            server.reply(tag, encode_status(1, 0))

    server.answer = answer
    signal.signal(signal.SIGUSR1, handler)
    session.run(Fence())
    assert len(raised) == 1
    assert done == [None]


# Several threads


def test_many_threads_share_one_connection(server: FakeServer, session: Session) -> None:
    chance = random.Random(5)
    held: list[tuple[int, bytes]] = []

    def answer(command: int, payload: bytes) -> bytes | None:
        """Answer out of order: keep some back, and send some that were kept."""
        if command == Command.GETNB:
            nspace, rank, _, key = decode_get(payload, 1)
            reply = get_reply(Proc(nspace, rank), encode_kval(1, key or "", uint32(rank)))
        else:
            reply = encode_status(1, 0)
        held.append((server.tags[-1], reply))
        while held and (len(held) > 3 or chance.random() < 0.6):
            server.reply(*held.pop(chance.randrange(len(held))))
        return None

    server.answer = answer
    stop = threading.Event()

    def push() -> None:
        while not stop.wait(0.002):
            try:
                server.reply(*held.pop(0))
            except (IndexError, OSError):
                pass

    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for turn in range(60):
                session.run(Put(f"{number}-{turn}", uint32(turn)))
                session.run(Commit())
                value = session.run(Get(Proc(NSPACE, 10 + number), f"k{turn}"))
                assert value == uint32(10 + number)
                session.run(Fence(directives=(attrs.TIMEOUT(20),)))
                if turn % 10 == 0:
                    ended = threading.Event()
                    session.submit(Fence(), lambda result, error, ended=ended: ended.set())  # type: ignore[misc]
                    assert ended.wait(20)
        except BaseException as error:
            failures.append(error)

    pusher = threading.Thread(target=push)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in (pusher, *workers):
        thread.start()
    for thread in workers:
        thread.join(60)
        assert not thread.is_alive()
    stop.set()
    pusher.join()
    assert failures == []
    assert session._connection is not None and not session._connection._waiters


def test_closing_ends_calls_of_other_threads(server: FakeServer, session: Session) -> None:
    server.answer = lambda command, payload: None
    errors: list[BaseException] = []

    def block() -> None:
        try:
            session.run(Fence())
        except PMIxError as error:
            errors.append(error)

    threads = [threading.Thread(target=block) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(server.requests) == 4)
    session.submit(Commit(), lambda result, error: errors.append(error))  # type: ignore[arg-type]
    session.close()
    session.close()
    for thread in threads:
        thread.join(5)
        assert not thread.is_alive()
    assert [type(error) for error in errors] == [LostConnection] * 4
    assert server.ended.wait(5)


def test_an_interrupted_reader_hands_its_role_on(server: FakeServer, session: Session) -> None:
    tags: list[int] = []
    # The other thread has called by then, and most likely waits.
    timer = threading.Timer(0.2, strike)

    def note(_command: int, _payload: bytes) -> None:
        tags.append(server.tags[-1])
        if len(tags) == 2:
            timer.start()

    server.answer = note
    ended = threading.Event()

    def follow() -> None:
        wait_for(lambda: len(tags) == 1)
        session.run(Commit())
        ended.set()

    thread = threading.Thread(target=follow)
    thread.start()
    signal.signal(signal.SIGUSR1, interrupt)
    with pytest.raises(Interrupt):
        session.run(Fence())
    timer.join()
    server.reply(tags[1], encode_status(1, 0))
    assert ended.wait(5)
    thread.join()


# Operations that nobody waits for


def test_submit_completes_without_anybody_watching(server: FakeServer, session: Session) -> None:
    ended = threading.Event()
    seen: list[tuple[object, object, int]] = []

    def done(result: object, error: BaseException | None) -> None:
        seen.append((result, error, threading.get_ident()))
        ended.set()

    session.submit(Fence(), done)
    assert ended.wait(5)
    assert seen[0][:2] == (None, None)
    session.run(Fence())
    session.submit(Put("a", uint32(1)), done)
    assert len(seen) == 2
    assert seen[1][2] == threading.get_ident()


def test_submitted_operations_time_out(server: FakeServer, session: Session) -> None:
    server.answer = lambda command, payload: None
    errors: list[BaseException | None] = []
    ended = threading.Event()

    def done(result: object, error: BaseException | None) -> None:
        errors.append(error)
        ended.set()

    session.submit(Fence(directives=(attrs.TIMEOUT(1),)), done)
    assert ended.wait(5)
    assert isinstance(errors[0], OperationTimeout)


def test_the_helper_ends_with_its_session(server: FakeServer) -> None:
    """The helper watches the time of a finalize and is told to end by the answer to it, many times over."""
    with nothing_left():
        for turn in range(60):
            session = open_client(server.env)
            if turn % 2:
                session.attach()
            seen: list[object] = []
            session.submit(Finalize(), lambda result, error, seen=seen: seen.append(error))  # type: ignore[misc]
            while not seen:
                if turn % 2:
                    select.select([session.fileno()], [], [], 5)
                    session.poll()
                else:
                    time.sleep(0.001)
            assert seen == [None]
            session.close()


def test_whoever_watches_is_called_in_its_own_thread(server: FakeServer, session: Session) -> None:
    """A timeout, and a reply that a blocking call of another thread took in, come by way of `poll`."""
    seen: list[tuple[type, int]] = []

    def done(result: object, error: BaseException | None) -> None:
        seen.append((type(error), threading.get_ident()))

    def poll_until(count: int) -> None:
        while len(seen) < count:
            assert select.select([session.fileno()], [], [], 5)[0]
            session.poll()

    server.answer = lambda command, payload: None
    session.attach()
    session.submit(Fence(directives=(attrs.TIMEOUT(1),)), done)
    poll_until(1)
    server.answer = lambda command, payload: encode_status(1, 0)
    other = threading.Thread(target=lambda: (session.submit(Fence((ME,)), done), session.run(Commit())))
    other.start()
    other.join()
    poll_until(2)
    server.drop()
    session.submit(Fence(), done)
    poll_until(3)
    me = threading.get_ident()
    assert seen == [(OperationTimeout, me), (type(None), me), (LostConnection, me)]
    assert not select.select([session.fileno()], [], [], 0)[0], "nothing is left to do"
    session.close()
    assert session.fileno() == -1


def test_a_loop_that_watches_needs_no_thread(server: FakeServer, session: Session) -> None:
    before = set(threading.enumerate())
    session.attach()
    seen: list[object] = []
    for _ in range(3):
        session.submit(Fence(), lambda result, error: seen.append(error))
    while len(seen) < 3:
        readable, _, _ = select.select([session.fileno()], [], [], 5)
        assert readable
        session.poll()
    assert seen == [None] * 3
    assert set(threading.enumerate()) <= before
    assert session._connection is not None and session._connection._helper is None
    server.drop()
    session.submit(Fence(), lambda result, error: seen.append(error))
    while len(seen) < 4:
        select.select([session.fileno()], [], [], 5)
        session.poll()
    assert isinstance(seen[3], LostConnection)


def test_taking_the_promise_back_brings_the_thread(server: FakeServer, session: Session) -> None:
    ended = threading.Event()
    session.attach()
    session.submit(Fence(), lambda result, error: ended.set())
    assert not ended.wait(0.1)
    session.detach()
    assert ended.wait(5)


def test_a_failing_callback_harms_nobody(server: FakeServer, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[type] = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(kind))

    def fail(result: object, error: BaseException | None) -> None:
        raise ZeroDivisionError

    session.submit(Fence(), fail)
    session.run(Fence())
    wait_for(lambda: seen == [ZeroDivisionError])
    session.run(Fence())


def test_a_callback_may_start_the_next_operation(server: FakeServer, session: Session) -> None:
    ended = threading.Event()

    def again(result: object, error: BaseException | None) -> None:
        session.submit(Fence(), lambda result, error: ended.set())

    session.submit(Fence(), again)
    assert ended.wait(5)


# Floods


def test_two_peers_that_write_at_each_other_do_not_block(server: FakeServer, session: Session) -> None:
    """The server sends 8 MB before it reads on; the client's commit of 8 MB must not wait for that."""
    big = from_python(b"x" * (1 << 23))

    def answer(command: int, payload: bytes) -> bytes:
        if command == Command.GETNB:
            return get_reply(PEER, encode_kval(1, "a", big))
        return encode_status(1, 0)

    server.answer = answer
    seen: list[object] = []
    session.attach()
    session.submit(Get(PEER, "a"), lambda result, error: seen.append(result))
    session.run(Put("b", big))
    session.run(Commit())
    wait_for(lambda: (session.poll(), bool(seen))[1])
    assert seen == [big]


@pytest.mark.parametrize("attached", [True, False])
def test_a_submitted_flood_is_sent_to_its_end(server: FakeServer, session: Session, attached: bool) -> None:
    if attached:
        session.attach()
    session.run(Put("b", from_python(b"x" * (1 << 23))))
    ended = threading.Event()
    session.submit(Commit(), lambda result, error: ended.set())
    end = time.monotonic() + 10
    while not ended.is_set() and time.monotonic() < end:
        select.select([session.fileno()], [], [], 0.1)
        session.poll()
    assert ended.is_set()
    session.run(Fence())


# Forks


def test_a_forked_child_leaves_the_connection_alone(server: FakeServer) -> None:
    program = f"""
import os, sys
sys.path[:0] = {sys.path!r}
from pypmix.engine.python.session import open_client
from pypmix.standard.errors import NotInitialized
from pypmix.standard.ops import Fence, Finalize, Get
session = open_client()
pid = os.fork()
if not pid:
    try:
        session.run(Fence())
    except NotInitialized as error:
        assert "forked" in str(error)
        session.poll()
        try:
            session._connection.enter(lambda: os._exit(2))
        except NotInitialized:
            session.close()
            os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
session.run(Fence())
session.run(Finalize())
"""
    env = {**os.environ, **server.env}
    subprocess.run([sys.executable, "-c", program], env=env, check=True, timeout=30)
    assert [command for command, _ in server.requests] == [Command.REQ, Command.FENCENB, Command.FINALIZE]


def test_ipv6() -> None:
    try:
        listener = socket.create_server(("::1", 0), family=socket.AF_INET6)
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with listener:
        sock = transport.connect(f"tcp6://[::1]:{listener.getsockname()[1]}")
        sock.close()
    assert transport.parse_address("tcp6://::1:5") == (socket.AF_INET6, "::1", 5)


assert RELEASE
