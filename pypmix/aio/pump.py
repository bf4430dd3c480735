"""Waiting for operations without a thread: the task that waits reads the session for all tasks.

Every session has a descriptor that is readable when there is something to take in, so that completions run in the
event loop's thread, and no other thread ever waits for it. Work beside the program's tasks is a task of `background`,
which belongs to the client and not to a task of the program.
"""

from __future__ import annotations

import sys

import anyio

from pypmix.engine.common import CONTINUED, ignore
from pypmix.standard.errors import NotInitialized
from pypmix.standard.ops import FENCE_PARTICIPANTS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any, TypeVar

    from pypmix.engine.base import ClientSession
    from pypmix.standard.ops import Op

    R = TypeVar("R")
    from collections.abc import Awaitable


MAX_KEPT = 256
"""The most results that are kept for the next calls of collectives."""


class Waiter:
    """One operation in progress, and the task that waits for it."""

    __slots__ = ("done", "error", "late", "result", "wakeup")

    def __init__(self) -> None:
        self.done = False
        self.result: object = None
        self.error: BaseException | None = None
        self.wakeup: anyio.Event | None = None
        self.late: Callable[[Any], None] | None = None

    def settle(self, result: object, error: BaseException | None) -> None:
        if self.late is not None and error is None:
            self.late(result)
        self.result = result
        self.error = error
        self.done = True
        self.wake()

    def wake(self) -> None:
        if self.wakeup is not None:
            self.wakeup.set()


def _collective(op: Any) -> Hashable:
    """Return the kind of a collective and the procs that it names, by which the next call of it is known."""
    return type(op), frozenset(op.procs), any(info.key == FENCE_PARTICIPANTS for info in op.directives)


class Pump:
    """Runs a session's operations for the tasks of one event loop."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session
        self._fd = session.fileno()
        session.attach()
        self._waiters: set[Waiter] = set()
        self._withdrawn: set[Waiter] = set()
        self._kept: list[tuple[Hashable, Any]] = []
        """The results of collectives whose callers did not get them, for the next calls; see `CONTINUED`."""
        self._reading = False
        self._polling = False
        self._closed = False
        self._server: Waiter | None = None

    async def run(self, op: Op[R], undo: Callable[[R], Op[None]] | None = None) -> R:
        """Start an operation and wait for its end; a cancelled wait withdraws the caller from a collective.

        Args:
            op: The operation.
            undo: Returns the operation that takes it back, which is run if the caller gives up waiting.
        """
        if self._kept and not self._closed and type(op).__name__ in CONTINUED:
            for number, (key, result) in enumerate(self._kept):
                if key == _collective(op):
                    del self._kept[number]
                    return result  # type: ignore[no-any-return]
        waiter = Waiter()
        self._session.submit(op, waiter.settle)
        try:
            await self.wait(waiter)
        except BaseException:
            if waiter.done:
                if waiter.error is None:
                    self._keep(op, waiter.result, undo)
            else:
                if undo is not None:
                    waiter.late = lambda result: self._take_back(undo(result))
                if not self._closed and self._session.withdraw(waiter.settle):
                    # Its name and its procs are free again when the answer is here.
                    self._withdrawn.add(waiter)
                    background(self._settle_withdrawn, waiter)
            raise
        if waiter.error is not None:
            raise waiter.error
        return waiter.result  # type: ignore[return-value]

    def _keep(self, op: Op[R], result: Any, undo: Callable[[R], Op[None]] | None) -> None:
        """Keep or undo the result of an operation that ended just before its caller was cancelled."""
        if undo is not None:
            self._take_back(undo(result))
        elif type(op).__name__ in CONTINUED:
            self._kept.append((_collective(op), result))
            del self._kept[:-MAX_KEPT]

    async def _settle_withdrawn(self, waiter: Waiter) -> None:
        try:
            await self.wait(waiter)
        except NotInitialized:
            pass  # it was closed meanwhile
        finally:
            self._withdrawn.discard(waiter)

    def _take_back(self, op: Op[None]) -> None:
        try:
            self._session.submit(op, ignore)
        except NotInitialized:
            # The caller was cancelled in the block of its session, and has closed that since: nothing is left to undo.
            pass

    def waiter(self) -> Waiter:
        """Return something to wait for, which somebody settles later in the loop's thread."""
        return Waiter()

    def settle(self, waiter: Waiter) -> None:
        """Settle a waiter; also from a task, while the waiting task may be asleep at the session."""
        waiter.settle(None, None)
        if self._reading and not self._polling:
            # It is woken as if the descriptor went away, and looks again.
            anyio.notify_closing(self._fd)

    async def wait(self, waiter: Waiter) -> None:
        """Wait until it is settled, and process messages meanwhile."""
        if not waiter.done:
            self._waiters.add(waiter)
            try:
                await self._wait(waiter)
            finally:
                self._waiters.discard(waiter)

    def serve(self) -> None:
        """From now on process arriving messages even while no task waits."""
        # A client without a server has no descriptor: nothing arrives.
        if self._server is None and self._fd >= 0:
            self._server = Waiter()
            background(self.wait, self._server)

    async def _wait(self, waiter: Waiter) -> None:
        while not waiter.done:
            if self._closed:
                raise NotInitialized("the client was closed while this was in progress")
            if self._reading:
                waiter.wakeup = anyio.Event()
                await waiter.wakeup.wait()
                waiter.wakeup = None
                continue
            self._reading = True
            try:
                await anyio.wait_readable(self._fd)
                self._polling = True
                self._session.poll()
            except anyio.ClosedResourceError:
                continue
            finally:
                self._reading = self._polling = False
                self._hand_over(waiter)

    def _hand_over(self, reader: Waiter) -> None:
        """Wake another task to read on, since the reader may be going away."""
        for other in self._waiters:
            if other is not reader and not other.done and other.wakeup is not None:
                other.wake()
                return

    def close(self) -> None:
        """Stop watching the session, and close it."""
        self._closed = True
        if self._server is not None:
            self._server.settle(None, None)
        anyio.notify_closing(self._fd)
        for withdrawn in list(self._withdrawn):
            withdrawn.settle(None, NotInitialized("the client was closed"))
        for waiter in self._waiters:
            waiter.wake()
        self._session.detach()
        self._session.close()


_tasks: set[object] = set()
"""Those of asyncio, which itself holds no reference to its tasks."""


def background(function: Callable[..., Awaitable[None]], *arguments: Any) -> None:
    """Run a coroutine function in the running event loop, beside the program's tasks."""

    async def run() -> None:
        try:
            await function(*arguments)
        except Exception:
            sys.excepthook(*sys.exc_info())

    if _runs_on_trio():
        import trio

        trio.lowlevel.spawn_system_task(run)
        return
    import asyncio

    task = asyncio.get_running_loop().create_task(run())
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)


def _runs_on_trio() -> bool:
    trio = sys.modules.get("trio")
    return trio is not None and trio.lowlevel.in_trio_run()
