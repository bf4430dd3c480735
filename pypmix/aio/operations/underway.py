"""Operations in progress while the caller does other things."""

from __future__ import annotations

from typing import Any, Generic, TypeVar

from pypmix.aio.mailbox import Mailbox
from pypmix.engine.common import ignore

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.aio.waits import Port
    from pypmix.standard.ops import Op

R = TypeVar("R")


class Underway(Generic[R]):
    """An operation that has been started; any number of callers may wait for its end.

    Args:
        port: The client's way to its session.
        op: The operation.
        on_end: Called at its end, with its error or None, on the thread on which the engine completes operations.

    Attributes:
        over: Whether it has ended.
    """

    def __init__(self, port: Port, op: Op[R], on_end: Callable[[BaseException | None], None] | None = None) -> None:
        self.over = False
        self._port = port
        self._on_end = on_end
        self._undo: Op[Any] | None = None
        self._outcome: Mailbox[R] = Mailbox(port, 1)
        port.attend()
        port.session.submit(op, self._done)

    async def wait(self, timeout: float | None = None) -> R:
        """Return its result, or raise its error.

        Raises:
            TimeoutError: It has not ended within `timeout` seconds.
        """
        result = await self._outcome.get(timeout)
        self._outcome.put(result)
        return result

    def give_up(self, undo: Op[Any]) -> None:
        """Have what it has led to, or still leads to, taken back by an operation."""
        self._undo = undo
        if self.over and len(self._outcome):
            self._take_back()

    def _take_back(self) -> None:
        undo, self._undo = self._undo, None
        if undo is not None:
            self._port.session.submit(undo, ignore)

    def _done(self, result: R | None, error: BaseException | None) -> None:
        if error is None:
            self._outcome.put(result)  # type: ignore[arg-type]
        else:
            self._outcome.end(error)
        self.over = True
        if self._on_end is not None:
            self._on_end(error)
        if error is None:
            self._take_back()
