"""Waiting for operations without a thread: whoever waits also takes in what arrives, for all.

Every session has a descriptor that is readable when there is something to take in, so that completions run in the
event loop's thread, and no other thread ever waits for it.
"""

from __future__ import annotations

import anyio

TYPE_CHECKING = False
if TYPE_CHECKING:
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


class Pump:
    """Runs a session's operations for the tasks of one event loop."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._fd = session.fileno()
        session.attach()
        self._waiters: set[_Waiter] = set()
        self._reading = False

    async def run(self, op: Op[R]) -> R:
        """Start an operation and wait for its end; a cancelled wait leaves the operation to itself."""
        waiter = _Waiter()
        self._session.submit(op, waiter.settle)
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
                self._session.poll()
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
        self._session.detach()
