"""Refuses calls that cannot run on virtual time: threads, processes, sockets, sleeping."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from contextvars import ContextVar

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pypmix.testing.virtual.simulation import VirtualRank

OWNER: ContextVar[VirtualRank] = ContextVar("pypmix.testing.virtual")
"""The rank of the current context."""

HINTS = {
    "a thread is started": "write it with tasks, or test it on real processes (time='real')",
    "a process is started": "test it on real processes (time='real')",
    "a socket is used": "test it on real processes (time='real')",
    "a descriptor is watched": "test it on real processes (time='real')",
    "time.sleep is called": "use `await asyncio.sleep(...)`",
    "a call blocks": "use `pypmix.aio`, whose calls are awaited",
}


class NotOnVirtualTime(RuntimeError):
    """A rank has made a call that cannot run on virtual time: it would wait outside of the simulation."""


def refused(what: str, detail: str = "") -> NotOnVirtualTime:
    """Return the error for a call of a rank; `what` is a key of `HINTS`."""
    return NotOnVirtualTime(f"{what} on virtual time{detail}: {HINTS[what]}")


def _calls() -> tuple[tuple[Any, str, str], ...]:
    return (
        (time, "sleep", "time.sleep is called"),
        (threading.Thread, "start", "a thread is started"),
        (subprocess.Popen, "__init__", "a process is started"),
        (os, "fork", "a process is started"),
        (os, "system", "a process is started"),
        (os, "posix_spawn", "a process is started"),
        (socket.socket, "__init__", "a socket is used"),
    )


def _instead(original: Callable[..., Any], what: str) -> Callable[..., Any]:
    def call(*args: object, **named: object) -> Any:
        __tracebackhide__ = True
        if OWNER.get(None) is not None:
            raise refused(what)
        return original(*args, **named)

    return call


@contextlib.contextmanager
def refusing() -> Iterator[None]:
    """Make these calls fail in ranks, but nowhere else in this process."""
    with contextlib.ExitStack() as stack:
        for place, name, what in _calls():
            own = vars(place).get(name)
            original = getattr(place, name)
            setattr(place, name, _instead(original, what))
            if own is None:
                stack.callback(delattr, place, name)
            else:
                stack.callback(setattr, place, name, own)
        yield
