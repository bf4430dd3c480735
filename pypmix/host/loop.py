"""The event loop of a host: descriptors, timers, and calls from other threads."""

from __future__ import annotations

import os
import select
import time
from collections import deque

from pypmix.engine.alarms import Heap
from pypmix.engine.common import sleep_for
from pypmix.engine.faults import fault, struck

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, Protocol

    from pypmix.engine.alarms import Alarm
    from pypmix.engine.base import Cancellable

    Callback = Callable[[], None]

    class HostLoop(Protocol):
        """A loop that a host runs on; only `post` may be called on other threads."""

        def watch(self, fd: int, events: int, callback: Callback, /) -> None:
            """Call `callback` whenever `fd` is ready."""

        def unwatch(self, fd: int, /) -> None:
            """Forget `fd`; to be called before it is closed."""

        def later(self, delay: float, callback: Callback, /) -> Cancellable:
            """Call `callback` after `delay` seconds."""

        def post(self, callback: Callback, /) -> None:
            """Call `callback` soon; from any thread. Raises `RuntimeError` if the loop has ended."""

        def soon(self, callback: Callback, /) -> None:
            """Call `callback` soon, from the loop's thread."""

        def run_posted(self) -> None:
            """Carry out the calls that have been posted so far."""


READ = select.EPOLLIN
WRITE = select.EPOLLOUT

ROUND = 64
"""The number of posted calls that are carried out before descriptors and timers get a turn."""

PAUSE = 0.1
"""Seconds without watching a descriptor whose callback has failed: it may be ready again at once, and fail again."""


def vital(step: Callable[..., None]) -> Callable[..., None]:
    """Make a fault in a step end its object's host: without the step a job would never finish, and all would wait."""

    def guarded(self: Any, *arguments: object) -> None:
        try:
            step(self, *arguments)
        except Exception as error:
            self.host.broke(error)

    return guarded


class Turns:
    """Calls on behalf of several callers that must not wait for one of them: each has a turn after the others.

    The calls of one caller are made in their order.

    Args:
        soon: Schedules a function on the thread of all calls; from any thread.
    """

    def __init__(self, soon: Callable[[Callback], object]) -> None:
        self._soon = soon
        self._new: deque[tuple[object, Callback]] = deque()
        self._waiting: dict[object, deque[Callback]] = {}

    def add(self, whose: object, callback: Callback, soon: Callable[[Callback], object] | None = None) -> None:
        """Schedule a call; by `soon`, if it is given, from its threads, and otherwise from any thread."""
        self._new.append((whose, callback))
        # There are as many turns as calls: each serves the next caller at that time.
        (soon or self._soon)(self.next)

    def next(self) -> None:
        """Make the call of the next caller."""
        new, waiting = self._new, self._waiting
        while new:
            whose, callback = new.popleft()
            waiting.setdefault(whose, deque()).append(callback)
        whose = next(iter(waiting))
        calls = waiting.pop(whose)
        callback = calls.popleft()
        if calls:
            waiting[whose] = calls
        callback()


class Loop:
    """Runs callbacks on the thread that calls `run`; only `post` may be used from others.

    A fault in a callback is logged, and the loop continues: a callback must itself report faults that affect others.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._watched: dict[int, tuple[int, Callback]] = {}
        self._timers = Heap()
        self._posted: deque[Callback] = deque()
        self._paused: dict[int, tuple[int, Callback]] = {}
        self._awake = False
        """Whether the loop has been woken for posted calls, and has not looked yet."""
        self._wake_read, self.wake_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self.watch(self._wake_read, READ, self._woken)

    def watch(self, fd: int, events: int, callback: Callback) -> None:
        """Call `callback` whenever `fd` is ready."""
        self._epoll.register(fd, events)
        self._watched[fd] = events, callback

    def unwatch(self, fd: int) -> None:
        """Forget `fd`; to be called before it is closed."""
        if self._paused.pop(fd, None) is None:
            del self._watched[fd]
            try:
                self._epoll.unregister(fd)
            except OSError:
                # It was closed nevertheless, and is not watched.
                return

    def later(self, delay: float, callback: Callback) -> Alarm:
        """Call `callback` after `delay` seconds."""
        return self._timers.add(delay, callback)

    def post(self, callback: Callback) -> None:
        """Call `callback` on the loop's thread, soon; from any thread."""
        self._posted.append(callback)
        if not self._awake:
            self._awake = True
            self.wake()

    def soon(self, callback: Callback) -> None:
        """Call `callback` soon, from the loop's thread, which needs no wake-up; not from a signal handler."""
        self._posted.append(callback)

    def wake(self) -> None:
        """End the current wait; from any thread or signal handler."""
        try:
            os.write(self.wake_fd, b"\0")
        except BlockingIOError:
            # Thousands of wake-ups wait already.
            return

    def run_posted(self, most: int = 1 << 31) -> None:
        """Carry out the calls that have been posted so far; not calls that these post."""
        for _ in range(min(len(self._posted), most)):
            if not self._posted:
                # One of them has called this method, which has carried out the others.
                return
            self._call(self._posted.popleft())

    def _call(self, callback: Callback) -> bool:
        try:
            callback()
        except Exception as error:
            if struck(error):
                raise
            fault("a callback of the host", error)
            return False
        return True

    def _pause(self, fd: int) -> None:
        watched = self._watched[fd]
        self.unwatch(fd)
        self._paused[fd] = watched
        self.later(PAUSE, lambda: self._resume(fd, watched))

    def _resume(self, fd: int, watched: tuple[int, Callback]) -> None:
        if self._paused.get(fd) is watched:
            del self._paused[fd]
            self.watch(fd, *watched)

    def run(self, until: Callable[[], bool], every: float | None = None) -> None:
        """Run until the condition holds; it is checked after each round, and at least each `every` seconds."""
        ready = self._watched.get
        while not until():
            found = [(fd, ready(fd)) for fd, _ in self._epoll.poll(self._wait(every))]
            for fd, watched in found:
                # A callback of this round may have forgotten a descriptor that is ready too, or watch another one as
                # the same number.
                if watched is None or ready(fd) is not watched or self._call(watched[1]):
                    continue
                if ready(fd) is watched:
                    self._pause(fd)
            self.run_posted(ROUND)
            now = time.monotonic()
            while callback := self._timers.take(now):
                self._call(callback)

    def _wait(self, longest: float | None) -> float | None:
        if self._posted:
            return 0
        first = self._timers.first()
        if first is None:
            return longest
        wait = sleep_for(first.due - time.monotonic())
        return wait if longest is None else min(wait, longest)

    def _woken(self) -> None:
        # In this order: calls posted until now are carried out next, and later ones wake the loop again. The other way
        # round a wake-up in between would be read, and the flag would stay set without one.
        os.read(self._wake_read, 4096)
        self._awake = False

    def close(self) -> None:
        """Close the loop's own descriptors."""
        self._epoll.close()
        os.close(self._wake_read)
        os.close(self.wake_fd)
