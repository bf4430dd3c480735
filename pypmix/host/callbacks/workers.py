"""Threads for handlers that block: a limited number while handlers end, and one for each handler if all wait."""

from __future__ import annotations

import contextlib
import threading
from collections import deque

from pypmix.engine.faults import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

USUAL = 32
"""The number of threads that are started on demand; further threads start only if no handler ends for some time."""

STALL = 0.25
"""Seconds without the end of any handler after which each handler in the queue gets a separate thread.

All threads may wait for a result of a handler in the queue, so no handler may stay in the queue for ever. The number of
threads is never higher than the number of requests in flight, which is limited.
"""

IDLE = 10.0
"""Seconds after which a thread without work ends."""


class Workers:
    """Runs functions on worker threads.

    Args:
        loop: The loop whose timers detect a stall; `submit` is called on its thread.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wakeup = threading.Condition()
        self._queue: deque[Callable[[], None]] = deque()
        self._threads = 0
        self._idle = 0
        self._ended = 0
        self._seen = 0
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def submit(self, work: Callable[[], None]) -> None:
        """Call a function on a thread; the function must handle its exceptions."""
        with self._wakeup:
            self._queue.append(work)
            if self._idle >= len(self._queue):
                self._wakeup.notify()
                return
            if self._threads < USUAL:
                try:
                    self._start()
                except BaseException:
                    # The caller gets the error, and must not see the call later.
                    self._queue.remove(work)
                    raise
                return
            self._seen = self._ended
        if self._timer is None:
            self._timer = self._loop.call_later(STALL, self._check)

    def _check(self) -> None:
        self._timer = None
        with self._wakeup:
            if not self._queue or self._closed:
                return
            if self._ended == self._seen:
                with contextlib.suppress(RuntimeError):
                    # The system may not be able to start further threads now.
                    for _ in range(len(self._queue) - self._idle):
                        self._start()
            self._seen = self._ended
        self._timer = self._loop.call_later(STALL, self._check)

    def _start(self) -> None:
        threading.Thread(target=self._work, name=f"pypmix-host-{self._threads + 1}", daemon=True).start()
        self._threads += 1

    def _work(self) -> None:
        while True:
            with self._wakeup:
                while not self._queue:
                    self._idle += 1
                    woken = not self._closed and self._wakeup.wait(IDLE)
                    self._idle -= 1
                    if not self._queue and (self._closed or not woken):
                        self._threads -= 1
                        return
                work = self._queue.popleft()
            try:
                work()
            except BaseException as error:
                # The rest of the queue needs the thread.
                fault("a handler's thread", error)
            del work
            with self._wakeup:
                self._ended += 1

    def close(self) -> None:
        """End the idle threads at once, and the others when their functions return."""
        with self._wakeup:
            self._closed = True
            self._queue.clear()
            self._wakeup.notify_all()
        if self._timer is not None:
            self._timer.cancel()
