"""Proves that a thread that waits for an answer is not woken by anything else, and who looks after what comes later."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from lib.fake_server import NSPACE, RELEASE, job
from pypmix.engine.python.client import Client, ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.engine.python.transport import Connection
from pypmix.standard.ops import Fence
from pypmix.standard.types import Proc
from pypmix.wire.frames import TAG_NOTIFY, FrameReader, frame, tags
from pypmix.wire.jobinfo import encode_jobinfo
from pypmix.wire.messages import PLAIN_SUCCESS


def asleep(thread: int) -> int | None:
    """Return how often a thread has gone to sleep, if it sleeps."""
    words = Path(f"/proc/self/task/{thread}/stat").read_text().rpartition(")")[2].split()
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0]) if words[0] == "S" else None


def test_a_thread_that_waits_sleeps_until_the_answer_comes_over_a_unix_socket() -> None:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    me = Proc(NSPACE, 0)
    machine = Client(me, DataStore(me, "n0", RELEASE), ServerInfo("server.0", RELEASE, 1, False))
    connection = Connection(ours, machine)
    call = machine.begin(b"", None)
    thread = threading.Thread(target=connection.open, args=(call,), daemon=True)
    try:
        thread.start()
        assert thread.native_id is not None
        deadline = time.monotonic() + 10
        before = None
        while machine.out[0] or before is None or asleep(thread.native_id) != before:
            # It may have slept for the interpreter's lock: that is free from now on.
            assert time.monotonic() < deadline
            before = asleep(thread.native_id)
            time.sleep(0.05)
        # The kernel tells whoever sleeps in a read of the other end that there is room again.
        ((tag, _),) = FrameReader().feed(theirs.recv(1 << 16))
        time.sleep(0.05)
        assert asleep(thread.native_id) == before
        theirs.sendall(frame(0, tag, encode_jobinfo(job(), 1, RELEASE)))
        thread.join(10)
        assert call.outcome == (None, None)
    finally:
        theirs.close()
        connection.close()


def test_what_comes_after_a_blocking_call_is_taken_where_something_listens() -> None:
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    me = Proc(NSPACE, 0)
    machine = Client(me, DataStore(me, "n0", RELEASE), ServerInfo("server.0", RELEASE, 1, False))
    connection = Connection(ours, machine)
    try:
        theirs.sendall(frame(0, next(tags()), encode_jobinfo(job(), 1, RELEASE)))
        came = threading.Event()
        machine.listeners[TAG_NOTIFY] = lambda payload: came.set()
        connection.open(machine.begin(b"", None))
        theirs.sendall(frame(0, TAG_NOTIFY, b"something"))
        assert came.wait(10)
    finally:
        theirs.close()
        connection.close()


@pytest.fixture
def listening():
    """A connection with a thread that listens between calls: the connection, its machine, and the server's end."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(10)
    me = Proc(NSPACE, 0)
    machine = Client(me, DataStore(me, "n0", RELEASE), ServerInfo("server.0", RELEASE, 1, False))
    connection = Connection(ours, machine)
    try:
        theirs.sendall(frame(0, next(tags()), encode_jobinfo(job(), 1, RELEASE)))
        connection.open(machine.begin(b"", None))
        assert theirs.recv(1 << 16)
        came = threading.Semaphore(0)
        machine.listeners[TAG_NOTIFY] = lambda payload: came.release()
        connection.enter(lambda: None)
        theirs.sendall(frame(0, TAG_NOTIFY, b"something"))
        assert came.acquire(timeout=10)
        yield connection, came, theirs
    finally:
        theirs.close()
        connection.close()


def answer(theirs: socket.socket) -> bytes:
    ((tag, _),) = FrameReader().feed(theirs.recv(1 << 16))
    return frame(0, tag, PLAIN_SUCCESS)


def test_bytes_before_a_reader_sleeps_change_no_set(listening) -> None:
    connection, _, theirs = listening
    helper = connection._helper
    left, registered = threading.Event(), []
    leave, register, sleep = connection.leave_to_reader, helper._register, connection._readable

    def leave_to_reader() -> bool:
        found = leave()
        left.set()
        return found

    def answer_first() -> object:
        theirs.sendall(answer(theirs))
        assert left.wait(10)
        return sleep()

    connection.leave_to_reader = leave_to_reader
    connection._readable = answer_first
    helper._register = lambda events: (registered.append(events), register(events))
    connection.run(Fence())
    assert left.is_set()
    assert not registered


def test_what_comes_after_the_last_read_of_a_reader_is_not_forgotten(listening) -> None:
    connection, came, theirs = listening
    leave, receive = connection.leave_to_reader, connection._recv
    left, sent = threading.Event(), []

    def leave_to_reader() -> bool:
        found = leave()
        left.set()
        return found

    def receive_before(*arguments: int) -> bytes:
        found = receive(*arguments)
        # Not of bytes that came before this thread slept: they are read under the lock, which the helper needs.
        if not sent and len(arguments) == 1:
            left.clear()
            sent.append(theirs.sendall(frame(0, TAG_NOTIFY, b"something")))
            assert left.wait(10)
        return found

    connection.leave_to_reader = leave_to_reader
    connection._recv = receive_before
    for _ in range(1000):
        threading.Thread(target=lambda: theirs.sendall(answer(theirs)), daemon=True).start()
        connection.run(Fence())
        if sent:
            break
    assert came.acquire(timeout=10)


def wait_for_end(machine: Client) -> None:
    deadline = time.monotonic() + 10
    while machine.closed is None:
        assert time.monotonic() < deadline, "the end of the connection was not noticed"
        time.sleep(0.001)


def test_the_end_that_comes_with_bytes_is_noticed(listening) -> None:
    """An edge-triggered set reports both at once."""
    connection, came, theirs = listening
    machine = connection._machine

    def send_and_close(payload: object) -> None:
        if payload == b"first":
            # The helper's thread is between two looks at its set.
            theirs.sendall(frame(0, TAG_NOTIFY, b"second"))
            theirs.close()
        came.release()

    machine.listeners[TAG_NOTIFY] = send_and_close
    theirs.sendall(frame(0, TAG_NOTIFY, b"first"))
    assert came.acquire(timeout=10) and came.acquire(timeout=10)
    wait_for_end(machine)


def test_the_end_behind_the_answer_to_a_reader_is_noticed(listening) -> None:
    connection, _, theirs = listening
    left = threading.Event()
    leave, help_out, sleep = connection.leave_to_reader, connection.helped, connection._readable

    def leave_to_reader() -> bool:
        found = leave()
        left.set()
        return found

    def helped(readable: bool) -> None:
        help_out(readable)
        left.set()

    def answer_and_close() -> object:
        theirs.sendall(answer(theirs))
        theirs.close()
        # The helper sees bytes and end, at a time or one after the other, and leaves both to the reader.
        assert left.wait(10)
        return sleep()

    connection.leave_to_reader = leave_to_reader
    connection.helped = helped
    connection._readable = answer_and_close
    connection.run(Fence())
    wait_for_end(connection._machine)
