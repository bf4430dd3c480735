"""Leadership of a group in programs of an event loop."""

from __future__ import annotations

import anyio

from pypmix.aio.background import background
from pypmix.aio.mailbox import Ended, Mailbox
from pypmix.requests import limit
from pypmix.requests.candidacy import LEADER_FAILED, Candidacy, check
from pypmix.standard.errors import LostConnection, NotFound, NotInitialized, OperationTimeout, PMIxError
from pypmix.standard.ops import DeregisterEventHandler, GroupUnwatch, GroupWatch, RegisterEventHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType
    from typing import Any, Self

    from pypmix.aio.operations.groups import Group
    from pypmix.engine.base import Delivery
    from pypmix.standard.types import Proc

MAX_TERMS = 1024
"""Terms that are kept for a reader that does not come back; all but the last are over anyway."""


class Over:
    """Whether a term has ended; call it, or wait for it."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = anyio.Event()

    def __call__(self) -> bool:
        """Tell whether the term has ended."""
        return self._event.is_set()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until the term has ended, or the time has run out; tell whether it has ended."""
        with anyio.move_on_after(limit(timeout)):
            await self._event.wait()
        return self()

    def __repr__(self) -> str:
        return f"<over: {self()}>"


class Scope:
    """A block that is cancelled when the term ends; the program goes on behind it. `Term.scope` makes one."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._scope = anyio.CancelScope()

    @property
    def cancelled(self) -> bool:
        """Whether the block was cut short by the end of the term."""
        return self._scope.cancelled_caught

    async def __aenter__(self) -> Self:
        self._scope.__enter__()
        self._term._scopes.append(self._scope)
        if self._term.over():
            self._scope.cancel()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        self._term._scopes.remove(self._scope)
        return bool(self._scope.__exit__(kind, error, traceback))


class Term:
    """A time in which one member leads.

    Attributes:
        epoch: Its number, the same at all members, which grows: a fencing token.
        leader: Who leads.
        over: Whether it has ended: `term.over()` tells, `await term.over.wait(timeout)` waits for it.
    """

    def __init__(self, epoch: int, leader: Proc) -> None:
        self.epoch = epoch
        self.leader = leader
        self.over = Over()
        self._scopes: list[anyio.CancelScope] = []

    def scope(self) -> Scope:
        """Return an async context manager whose block is cancelled as soon as the term ends."""
        return Scope(self)

    def _end(self) -> None:
        self.over._event.set()
        for scope in self._scopes:
            scope.cancel()

    def __repr__(self) -> str:
        return f"<Term {self.epoch} of {self.leader}{', over' if self.over() else ''}>"


class Leadership:
    """See `pypmix.recipes.Leadership`. All of it runs in the event loop's thread, on asyncio or trio."""

    def __init__(self, group: Group, elect: Callable[[Iterable[Proc]], Proc | None], patience: float) -> None:
        check(group, elect, patience)
        self._group = group
        self._patience = patience
        self._client: Any = group._client
        self._terms: Mailbox[Term] = Mailbox(self._client, MAX_TERMS)
        self._term: Term | None = None
        self._candidacy = Candidacy(self._client.proc, group.name, elect, self)
        self._ids: list[Any] = []

    @property
    def term(self) -> Term | None:
        """The term that runs; None while there is no leader."""
        term = self._term
        return None if term is None or term.over() else term

    async def terms(self) -> AsyncIterator[Term]:
        """Iterate over the terms, from the one that runs on; it ends when the group is gone, or the caller left it.

        Raises:
            PMIxError: The leader has failed and nobody has claimed the lead (`EventCode.GROUP_LEADER_FAILED`).
            LostConnection: The server is gone.
        """
        while True:
            try:
                term = await self._terms.get()
            except Ended:
                return
            yield term

    async def get(self, timeout: float | None = None) -> Term:
        """Return the next term; `OperationTimeout` if none has begun within `timeout` seconds."""
        try:
            return await self._terms.get(limit(timeout))
        except TimeoutError:
            raise OperationTimeout(f"no term has begun within {timeout:g} s", operation="leadership") from None
        except Ended:
            raise NotInitialized("the group is gone", operation="leadership") from None

    async def __aenter__(self) -> Self:
        self._client._attend()
        watch = GroupWatch(self._group.name, self._candidacy.changed, self._candidacy.ended, elects=True)
        self._ids.append(GroupUnwatch(await self._client._run(watch, GroupUnwatch)))
        try:
            # What has changed since the watch began is told again, and changes nothing then.
            self._candidacy.begin(self._group._state())
            handler = RegisterEventHandler(self._failed, (LEADER_FAILED,))
            self._ids.append(DeregisterEventHandler(await self._client._run(handler, DeregisterEventHandler)))
        except BaseException:
            await self._leave()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._leave()

    async def _leave(self) -> None:
        ids, self._ids = self._ids, []
        with anyio.CancelScope(shield=True):
            for op in ids:
                try:
                    await self._client._run(op)
                except (NotInitialized, LostConnection, NotFound):
                    pass  # the group is gone, or the session
        self._candidacy.ended(None)

    def _failed(self, delivery: Delivery) -> None:
        if self._candidacy.failed(delivery):
            background(self._wait, delivery)

    async def _wait(self, delivery: Delivery) -> None:
        await anyio.sleep(self._patience)
        self._candidacy.give_up(delivery)

    # What the candidacy tells

    def begins(self, epoch: int, leader: Proc) -> None:
        self._term = Term(epoch, leader)
        self._terms.put(self._term)

    def ends(self) -> None:
        if self._term is not None:
            self._term._end()

    def over(self, error: BaseException | None) -> None:
        self._terms.end(error if isinstance(error, PMIxError) else None)
