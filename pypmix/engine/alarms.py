"""Timers in real time for whoever has no event loop: one thread, which starts with the first timer."""

from __future__ import annotations

import heapq
import threading
import time

from pypmix.engine.base import sleep_for
from pypmix.engine.faults import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 64
"""With fewer alarms than this, those that were cancelled may stay until they are due."""


class Alarm:
    """A call that is due at a time of `time.monotonic`; `cancel` may be called at any time, from any thread."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Have the call not happen."""
        self.call = None

    def __lt__(self, other: Alarm) -> bool:
        return self.due < other.due


class Alarms:
    """Makes calls when they are due; from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alarms: list[Alarm] = []
        self._many = MANY
        self._thread: threading.Thread | None = None
        self._closed = False

    def later(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Have a function called after some seconds, on the thread of the alarms; it must not block."""
        alarm = Alarm(time.monotonic() + seconds, call)
        with self._changed:
            if len(self._alarms) >= self._many:
                # What was cancelled and is due in years would stay for as long.
                self._alarms = [each for each in self._alarms if each.call is not None]
                heapq.heapify(self._alarms)
                self._many = max(MANY, 2 * len(self._alarms))
            heapq.heappush(self._alarms, alarm)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="pypmix-alarms", daemon=True)
                self._thread.start()
            elif self._alarms[0] is alarm:
                self._changed.notify()
        return alarm

    def close(self) -> None:
        """Make no further calls; may be called twice."""
        with self._changed:
            self._closed = True
            self._alarms.clear()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                wait = self._alarms[0].due - time.monotonic() if self._alarms else None
                if wait is None or wait > 0:
                    self._changed.wait(None if wait is None else sleep_for(wait))
                    continue
                call = heapq.heappop(self._alarms).call
            if call is not None:
                try:
                    call()
                except BaseException as error:
                    # Other alarms need the thread.
                    fault("a timer", error)
