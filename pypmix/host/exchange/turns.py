"""Calls that come from several threads, carried out one after the other without a thread of their own."""

from __future__ import annotations

import threading
from collections import deque

from pypmix.standard.logtext import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

log = get_logger("pypmix.host.exchange")


class Turns:
    """Carries out calls in the order in which they come, on the thread that brings one while none is under way.

    Nobody waits: whoever brings a call while another is under way leaves it to that one's thread. No lock is held
    during a call, and a call made during a call comes after it, so what is only touched in turns needs no lock.
    """

    __slots__ = ("_busy", "_calls", "_lock")

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._lock = threading.Lock()
        self._busy = False

    def __call__(self, function: Callable[..., object], *args: Any) -> None:
        """Carry out a call, now or after those that came before; what it raises is logged."""
        with self._lock:
            self._calls.append((function, args))
            if self._busy:
                return
            self._busy = True
        while True:
            with self._lock:
                if not self._calls:
                    self._busy = False
                    return
                function, args = self._calls.popleft()
            try:
                function(*args)
            except Exception:
                log.exception("%s failed", getattr(function, "__qualname__", function))
            # Kept, it would hold what it was about until the next call.
            del function, args
