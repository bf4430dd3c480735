"""Waiting for operations without a thread: whoever waits also takes in what arrives, for all.

An engine that reads a socket lets it be watched; one that completes operations on a thread of its own has its
completions carried over by an eventfd, so that everything runs in the event loop's thread and that thread is never
waited for.
"""

from __future__ import annotations

import os
from collections import deque

import anyio

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from pypmix.engine.base import ClientSession
    from pypmix.standard.ops import Op

    R = TypeVar("R")


class _Waiter:
    """One operation under way, and the task that waits for it."""

    __slots__ = ("done", "error", "result", "wakeup")

    def __init__(self) -> None:
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None
        self.wakeup: anyio.Event | None = None

    def settle(self, result: object, error: BaseException | None) -> None:
        self.result = result
        self.error = error
        self.done = True
        self.wake()

    def wake(self) -> None:
        if self.wakeup is not None:
            self.wakeup.set()


class Courier:
    """Carries completions from an engine's thread into the event loop's."""

    def __init__(self) -> None:
        self._queue: deque[Callable[[], None]] = deque()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    def fileno(self) -> int:
        return self._fd

    def send(self, completion: Callable[[], None]) -> None:
        self._queue.append(completion)
        os.eventfd_write(self._fd, 1)

    def poll(self) -> None:
        try:
            os.eventfd_read(self._fd)
        except BlockingIOError:
            pass
        while self._queue:
            self._queue.popleft()()

    def close(self) -> None:
        os.close(self._fd)


class Pump:
    """Runs a session's operations for the tasks of one event loop."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._fd = session.fileno()
        self._courier = Courier() if self._fd < 0 else None
        self._poll = session.poll
        if self._courier is not None:
            self._fd = self._courier.fileno()
            self._poll = self._courier.poll
        else:
            session.attach()
        self._waiters: set[_Waiter] = set()
        self._reading = False

    async def run(self, op: Op[R]) -> R:
        """Start an operation and wait for its end; a cancelled wait leaves the operation to itself."""
        waiter = _Waiter()
        courier = self._courier
        if courier is None:
            self._session.submit(op, waiter.settle)
        else:
            self._session.submit(op, lambda result, error: courier.send(lambda: waiter.settle(result, error)))
        if not waiter.done:
            self._waiters.add(waiter)
            try:
                await self._wait(waiter)
            finally:
                self._waiters.discard(waiter)
        if waiter.error is not None:
            raise waiter.error
        return waiter.result  # type: ignore[return-value]

    async def _wait(self, waiter: _Waiter) -> None:
        while not waiter.done:
            if self._reading:
                waiter.wakeup = anyio.Event()
                await waiter.wakeup.wait()
                waiter.wakeup = None
                continue
            self._reading = True
            try:
                await anyio.wait_readable(self._fd)
                self._poll()
            finally:
                self._reading = False
                self._hand_over(waiter)

    def _hand_over(self, reader: _Waiter) -> None:
        """Wake another task to read on, since the reader may be going away."""
        for other in self._waiters:
            if other is not reader and not other.done and other.wakeup is not None:
                other.wake()
                return

    def close(self) -> None:
        """Stop watching the session."""
        if self._courier is not None:
            self._courier.close()
        else:
            self._session.detach()
