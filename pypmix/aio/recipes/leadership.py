"""Leadership of a group."""

from __future__ import annotations

from pypmix.aio.mailbox import EndOfStream, Mailbox
from pypmix.aio.recipes.terms import Follower
from pypmix.aio.recipes.terms import Term as Term
from pypmix.aio.recipes.terms import TermEnd as TermEnd
from pypmix.aio.recipes.terms import TermScope as TermScope  # async only
from pypmix.aio.waits import shielded
from pypmix.arguments import limit
from pypmix.recipes.candidacy import LEADER_FAILED, Candidacy, check
from pypmix.standard.errors import LostConnection, NotFound, NotInitialized, OperationTimeout, PMIxError
from pypmix.standard.ops import DeregisterEventHandler, GroupUnwatch, GroupWatch, RegisterEventHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable
    from types import TracebackType
    from typing import Self

    from pypmix.aio.operations.groups import Group
    from pypmix.aio.waits import Port
    from pypmix.standard.types import Proc

MAX_TERMS = 1024
"""Terms that are kept for a reader that does not come back; all but the last are over anyway."""


class Leadership:
    """See `pypmix.recipes.Leadership`."""

    def __init__(self, group: Group, elect: Callable[[Iterable[Proc]], Proc | None], patience: float) -> None:
        check(group, elect, patience)
        self._group = group
        self._port: Port = group.membership.port
        self._terms: Mailbox[Term] = Mailbox(self._port, MAX_TERMS)
        self._term: Term | None = None
        self._candidacy = Candidacy(self._port.session.proc, group.name, elect, self)
        self._follower = Follower(self._candidacy, self, patience)
        self._ids: list[GroupUnwatch | DeregisterEventHandler] = []

    @property
    def term(self) -> Term | None:
        """The term that runs; None while there is no leader."""
        term = self._term
        return None if term is None or term.over() else term

    async def terms(self) -> AsyncIterator[Term]:
        """Iterate over the terms, beginning with the present one, until the group is destructed or the caller leaves.

        Raises:
            PMIxError: The leader has failed and no member has claimed the lead (`EventCode.GROUP_LEADER_FAILED`).
            LostConnection: The server is gone.
        """
        while True:
            try:
                term = await self._terms.get()
            except EndOfStream:
                return
            yield term

    async def get(self, timeout: float | None = None) -> Term:
        """Return the next term; `OperationTimeout` if none has begun within `timeout` seconds."""
        timeout = limit(timeout)
        try:
            return await self._terms.get(timeout)
        except TimeoutError:
            raise OperationTimeout(f"no term has begun within {timeout:g} s", operation="leadership") from None
        except EndOfStream:
            raise NotInitialized("the group is gone", operation="leadership") from None

    async def __aenter__(self) -> Self:
        follower, name = self._follower, self._group.name
        self._port.attend()
        watch = GroupWatch(name, follower.changed, follower.end, elects=True)
        self._ids.append(GroupUnwatch(await self._port.run(watch, GroupUnwatch)))
        try:
            # Changes since the watch began are reported again, and have no effect then.
            self._candidacy.begin(self._group.membership.state())
            follower.begin(name)
            handler = RegisterEventHandler(follower.failed, (LEADER_FAILED,))
            self._ids.append(DeregisterEventHandler(await self._port.run(handler, DeregisterEventHandler)))
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
        with shielded(None):
            for op in ids:
                try:
                    await self._port.run(op)
                except (NotInitialized, LostConnection, NotFound):
                    pass  # the group is gone, or the session
        self._follower.stop()

    # The candidacy calls these.

    def begin_term(self, epoch: int, leader: Proc) -> None:
        self._term = Term(epoch, leader)
        self._terms.put(self._term)

    def end_term(self) -> None:
        if self._term is not None:
            self._term.over.end()

    def end_terms(self, error: BaseException | None) -> None:
        self._terms.end(error if isinstance(error, PMIxError) else None)
