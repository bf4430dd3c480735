"""Waiting in an event loop; `pypmix.waits` is the same where calls block.

This module is written by hand: tasks need a `Pump` that reads for them; in the blocking form the session itself blocks.
"""

from __future__ import annotations

from functools import partial
from typing import Generic, ParamSpec, TypeVar

import anyio
import anyio.to_thread

from pypmix.aio.pump import Pump, background
from pypmix.arguments import explain_rounding
from pypmix.clientbase import PortBase
from pypmix.standard.errors import OperationTimeout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator
    from typing import Any, Self

    from pypmix.standard.ops import Op

P = ParamSpec("P")
R = TypeVar("R")

LIMIT = 10.0
"""Seconds for clean-up in a task that is being cancelled."""


def shielded(limit: float | None = LIMIT) -> anyio.CancelScope:
    """Return a context manager whose block continues for `limit` seconds in a task that is being cancelled."""
    return anyio.move_on_after(limit, shield=True)


async def pause(seconds: float) -> None:
    """Wait some time."""
    await anyio.sleep(seconds)


async def settled(value: Any) -> Any:
    """Return a value, which may be one to be awaited."""
    return await value if hasattr(value, "__await__") else value


class Port(PortBase):
    """The way of the tasks of one event loop to the session of their client."""

    runner: Pump

    def attach(self) -> None:
        """Have a pump run the operations of the session; called in the loop's thread."""
        self.runner = Pump(self.session)

    async def run(self, op: Op[R], undo: Callable[[R], Op[None]] | None = None) -> R:
        """Carry out an operation; `undo` returns what takes it back if the caller gives up waiting for it."""
        try:
            return await self.runner.run(op, undo)
        except OperationTimeout as error:
            explain_rounding(error, op)
            raise

    def attend(self) -> None:
        """From now on process arriving messages even while no operation waits."""
        self.runner.serve()


async def call(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call a function that blocks, on a thread. The wait can be cancelled, the call cannot."""
    return await anyio.to_thread.run_sync(partial(function, *args, **kwargs), abandon_on_cancel=True)


async def apart(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Do the same on a thread that counts for no limit: any number may wait for what others on threads bring."""
    waiting = partial(function, *args, **kwargs)
    return await anyio.to_thread.run_sync(waiting, abandon_on_cancel=True, limiter=anyio.CapacityLimiter(1))


class BackgroundCall:
    """A function that runs beside the program, in a separate task."""

    def __init__(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._over = anyio.Event()
        background(self._run, function)

    async def _run(self, function: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await function()
        finally:
            self._over.set()

    async def wait(self) -> None:
        """Wait for its end."""
        await self._over.wait()


class Later(Generic[R]):
    """The value of an attribute that has to be waited for: `await me.psets`; `await me.psets()` is the same."""

    def __init__(self, function: Callable[[], Coroutine[Any, Any, R]]) -> None:
        self._function = function

    def __call__(self) -> Self:
        return self

    def __await__(self) -> Generator[Any, Any, R]:
        return self._function().__await__()


def later(function: Callable[[], Coroutine[Any, Any, R]]) -> Later[R]:
    """Return the value of an attribute, to be awaited."""
    return Later(function)
