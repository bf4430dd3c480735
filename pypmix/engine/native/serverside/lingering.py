"""Clients that have ended and that the library is to know a little longer."""

from __future__ import annotations

import threading
import time
from collections import deque

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.standard.releases import Release
    from pypmix.standard.types import Proc

HASTY: Release = (5, 0, 2)
"""The first release that may be told at once that a client has ended.

Earlier ones close its socket then, and go on to watch its number. If they have not read of its end yet, whoever
connects next under that number is never heard: his request for the job info stays unread, and he waits for ever.
"""

SECONDS = 1.0
"""How long the library has to read that a connection has ended."""


class Lingering:
    """Tells the library of clients that have ended, a while later; used from any thread.

    Args:
        forget: Tells it of one.
        log: Told of what goes wrong.
    """

    def __init__(self, forget: Callable[[Proc], None], log: Callable[[str], None]) -> None:
        self._forget = forget
        self._log = log
        self._changed = threading.Condition()
        self._due: deque[tuple[float, Proc]] = deque()
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, proc: Proc) -> None:
        """A client has ended."""
        with self._changed:
            if self._closed:
                return
            self._due.append((time.monotonic() + SECONDS, proc))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pypmix-lingering", daemon=True)
                self._thread.start()
            else:
                self._changed.notify()

    def take(self, proc: Proc) -> bool:
        """Take a client out; return whether it was there."""
        with self._changed:
            left = [entry for entry in self._due if entry[1] != proc]
            there = len(left) < len(self._due)
            self._due = deque(left)
        return there

    def drop(self, nspace: str) -> None:
        """An nspace is forgotten as a whole."""
        with self._changed:
            self._due = deque([entry for entry in self._due if entry[1].nspace != nspace])

    def close(self) -> None:
        """Tell nothing any more. May be called twice."""
        with self._changed:
            self._closed = True
            self._due.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is None or wait > 0:
                    self._changed.wait(wait)
                    continue
                _, proc = self._due.popleft()
            try:
                self._forget(proc)
            except Exception as error:
                self._log(f"{proc} cannot be deregistered: {error}")
