"""Terms of a group's leaders, and who follows them, in programs of an event loop.

It is written by hand: all of it runs in the loop's thread, on asyncio or trio, where blocking programs need a thread.
"""

from __future__ import annotations

import anyio

from pypmix.aio.pump import background
from pypmix.arguments import limit
from pypmix.recipes.candidacy import TermBase

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from pypmix.engine.base import Delivery
    from pypmix.recipes.candidacy import Candidacy, TermListener
    from pypmix.standard.types import Proc


class TermEnd:
    """Whether a term has ended; call it, or wait for it."""

    __slots__ = ("_ended", "_scopes")

    def __init__(self) -> None:
        self._ended = anyio.Event()
        self._scopes: list[anyio.CancelScope] = []

    def __call__(self) -> bool:
        """Return True if the term has ended."""
        return self._ended.is_set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the term has ended; return False if it has not ended in time."""
        with anyio.move_on_after(limit(timeout)):
            await self._ended.wait()
        return self()

    def end(self) -> None:
        """End the term, and cancel the blocks that last as long as it does."""
        self._ended.set()
        for scope in self._scopes:
            scope.cancel()

    def cancels(self, scope: anyio.CancelScope) -> None:
        """Cancel a block when the term ends, or now if it has ended."""
        self._scopes.append(scope)
        if self():
            scope.cancel()

    def spares(self, scope: anyio.CancelScope) -> None:
        """Leave a block alone, which has ended."""
        self._scopes.remove(scope)

    def __repr__(self) -> str:
        return f"<over: {self()}>"


class TermScope:
    """A block that is cancelled when the term ends; the program continues after it. `Term.scope` makes one."""

    def __init__(self, end: TermEnd) -> None:
        self._end = end
        self._scope = anyio.CancelScope()

    @property
    def cancelled(self) -> bool:
        """Whether the block was cut short by the end of the term."""
        return self._scope.cancelled_caught

    async def __aenter__(self) -> Self:
        self._scope.__enter__()
        self._end.cancels(self._scope)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._end.spares(self._scope)
        return bool(self._scope.__exit__(kind, error, traceback))


class Term(TermBase):
    """A time in which one member leads.

    Attributes:
        epoch: Its number, the same at all members, which grows: a fencing token.
        leader: Who leads.
        over: Whether it has ended: `term.over()` tells, `await term.over.wait(timeout)` waits for it.
    """

    over: TermEnd

    def __init__(self, epoch: int, leader: Proc) -> None:
        super().__init__(epoch, leader, TermEnd())

    def scope(self) -> TermScope:
        """Return an async context manager whose block is cancelled as soon as the term ends."""
        return TermScope(self.over)


class Follower:
    """Reports the events of a group to a candidacy, in their order.

    Args:
        candidacy: The candidacy.
        observer: Unused; in blocking programs it receives an error of the thread.
        patience: Seconds until an answer that is kept back is given up.
    """

    def __init__(self, candidacy: Candidacy, observer: TermListener, patience: float) -> None:
        self._candidacy = candidacy
        self._patience = patience
        self.changed = candidacy.changed
        self.end = candidacy.end

    def begin(self, name: str) -> None:
        """Do nothing: the engine calls in the loop's thread."""

    def stop(self) -> None:
        """Stop following."""
        self._candidacy.end(None)

    def failed(self, delivery: Delivery) -> None:
        """Tell that a leader has failed, and wait with the answer where it is kept back."""
        if self._candidacy.failed(delivery):
            background(self._wait, delivery)

    async def _wait(self, delivery: Delivery) -> None:
        await anyio.sleep(self._patience)
        self._candidacy.give_up(delivery)
