"""Proves that a thread that waits for an answer is not woken by anything else, and who looks after what comes later."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

from lib.fake_server import NSPACE, RELEASE, job
from pypmix.engine.python.client import Client, ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.engine.python.transport import Connection
from pypmix.standard.types import Proc
from pypmix.wire.frames import TAG_NOTIFY, FrameReader, frame, tags
from pypmix.wire.jobinfo import encode_jobinfo


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
