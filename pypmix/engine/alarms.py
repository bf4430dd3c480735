"""Timers: the heap of every loop, and a thread for code without a loop."""

from __future__ import annotations

import heapq
import threading
import time

from pypmix.engine.common import sleep_for
from pypmix.engine.faults import fault

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

MANY = 64
"""The number of alarms from which cancelled alarms are removed before they are due."""


class Alarm:
    """A call that is due at a time of a clock; `cancel` may be called at any time, from any thread."""

    __slots__ = ("call", "due")

    def __init__(self, due: float, call: Callable[[], None]) -> None:
        self.due = due
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        """Cancel the call."""
        self.call = None


class Heap:
    """Calls in the order of their times; for one thread at a time.

    Attributes:
        due: The heap, by the time and the number of each call; a loop checks here whether there is any call.
    """

    def __init__(self) -> None:
        self.due: list[tuple[float, int, Alarm]] = []
        self._many = MANY
        self._number = 0

    def add(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Add a call that is due after some seconds of `time.monotonic`."""
        return self.at(time.monotonic() + seconds, call)

    def at(self, due: float, call: Callable[[], None]) -> Alarm:
        """Add a call that is due at a time."""
        return self.put(Alarm(due, call))

    def put(self, alarm: Alarm) -> Alarm:
        """Add a call that another thread has made, and may have cancelled."""
        if len(self.due) >= self._many:
            # Otherwise cancelled calls that are due in years would stay for years.
            self.due = [each for each in self.due if each[2].call is not None]
            heapq.heapify(self.due)
            self._many = max(MANY, 2 * len(self.due))
        self._number += 1
        heapq.heappush(self.due, (alarm.due, self._number, alarm))
        return alarm

    def first(self) -> Alarm | None:
        """Return the next call; None if there is none."""
        while self.due and self.due[0][2].call is None:
            heapq.heappop(self.due)
        return self.due[0][2] if self.due else None

    def take(self, now: float) -> Callable[[], None] | None:
        """Remove and return a call that is due; None if none is."""
        alarm = self.first()
        if alarm is None or alarm.due > now:
            return None
        heapq.heappop(self.due)
        call, alarm.call = alarm.call, None
        return call

    def clear(self) -> None:
        """Remove all calls."""
        self.due.clear()


class Alarms:
    """Makes calls when they are due; from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._alarms = Heap()
        self._thread: threading.Thread | None = None
        self._closed = False

    def later(self, seconds: float, call: Callable[[], None]) -> Alarm:
        """Schedule a call after some seconds, in the thread of the alarms; it must not block."""
        with self._changed:
            alarm = self._alarms.add(seconds, call)
            if self._thread is None and not self._closed:
                self._thread = threading.Thread(target=self._run, name="pypmix-alarms", daemon=True)
                self._thread.start()
            elif self._alarms.first() is alarm:
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
                call = self._alarms.take(time.monotonic())
                if call is None:
                    alarm = self._alarms.first()
                    self._changed.wait(None if alarm is None else sleep_for(alarm.due - time.monotonic()))
                    continue
            try:
                call()
            except BaseException as error:
                # The thread must continue for other alarms.
                fault("a timer", error)
