"""Calls in turn, without a lock that a caller waits for."""

from __future__ import annotations

import threading
from collections import deque
from threading import get_ident

from pypmix.host.exchange.errors import log

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


class Strand:
    """Runs calls in the order in which they arrive, on the thread that brings one while none is running.

    No caller waits: a call that arrives while another is running is left to that thread. A call made during a call
    runs after it, so state that is only touched here needs no lock.
    """

    __slots__ = ("_busy", "_calls", "_next", "_thread")

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._next: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._busy = threading.Lock()
        self._thread = 0

    def __call__(self, function: Callable[..., object], *args: Any) -> None:
        """Run a call, now or after the calls that arrived before; an exception is logged."""
        calls = self._calls
        calls.append((function, args))
        # The holder of the lock looks once more after it has released it, so that no call stays behind.
        while calls and self._busy.acquire(False):
            self._thread = get_ident()
            try:
                while calls or self._next:
                    function, args = (self._next or calls).popleft()
                    try:
                        function(*args)
                    except Exception:
                        log_failure(function)
                    # Kept, it would hold its objects until the next call.
                    del function, args
            finally:
                self._thread = 0
                self._busy.release()

    def next(self, function: Callable[..., object], *args: Any) -> None:
        """Run a call after the present one, before calls that have arrived in the meantime; in a call."""
        self._next.append((function, args))

    def now(self, function: Callable[..., object], *args: Any) -> None:
        """Run a call as part of the call in progress on this thread, otherwise as any other call."""
        if self._thread == get_ident():
            function(*args)
        else:
            self(function, *args)


def log_failure(function: Callable[..., object]) -> None:
    """Log the exception that a callback has raised."""
    log.exception("%s failed", getattr(function, "__qualname__", function))
