"""MPI communicators of the members of groups, with mpi4py."""

from __future__ import annotations

from pypmix.aio.waits import call
from pypmix.connection import ConnectionView
from pypmix.group import GroupView
from pypmix.recipes.communicators import Maker, Offer, agreed
from pypmix.standard.errors import NotSupported

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from mpi4py import MPI

    from pypmix.aio.operations.connecting import Connection
    from pypmix.aio.operations.groups import Group

__all__ = ["Communicator"]


class Communicator:
    """The members of a group, or the participants of a connection, as an MPI communicator, for the length of a block.

    All members have to enter it, and leave it, together; their ranks in it are those of the group. Where all of them
    have initialized MPI (`from mpi4py import MPI` does), it is made of `MPI.COMM_WORLD`, otherwise of an MPI session.
    Members first exchange offers by PMIx, so that a member that cannot take part is an error for all, and no member
    waits for it in MPI.

    An exception that leaves the block leaves the communicator as it is, since the others need not be on their way to
    their ends.

    Args:
        group: The group or the connection. Its procs may be of several jobs where all have initialized MPI.
        session: A session of the program's own to make it of. By default pypmix opens one where it needs it, and closes
            it when the process ends. Open MPI 5.0 waits for the whole job when the first session is opened.
        timeout: Seconds to wait for all members to come, before MPI is called, which knows no limits; None for ever.

    Raises:
        PMIxError: On entering: members cannot take part, such as those without mpi4py; the text names them and says
            why.
        OperationTimeout: Not all arrived in time.
        NotSupported: The members are of several jobs, and some have not initialized MPI.
    """

    def __init__(
        self, group: Group | Connection, *, session: MPI.Session | None = None, timeout: float | None = 60.0
    ) -> None:
        if not isinstance(group, GroupView | ConnectionView):
            raise TypeError(f"a communicator is that of a group or a connection, not of {group!r:.80}")
        self._group = group
        self._session = session
        self._timeout = timeout
        self._maker: Maker | None = None

    async def __aenter__(self) -> MPI.Intracomm:
        group, rank = self._group, self._group.rank
        name = str(group.name if isinstance(group, GroupView) else group.nspace)
        if rank is None:
            raise NotSupported("the server assigned no ranks to the connection", operation="communicator")
        maker = self._maker = Maker(group[rank], name, self._session)
        offers = await self._tell(maker, False)
        world = agreed(name, offers)
        if not world:
            offers = await self._tell(maker, True)
            agreed(name, offers)
        jobs = await call(maker.begin, offers, world)
        for turn in range(1, jobs):
            port = await group.bcast(maker.port() if rank == 0 else None, timeout=self._timeout)
            await call(maker.join, turn, port)
        return await call(maker.end, offers)

    async def _tell(self, maker: Maker, session: bool) -> list[Offer]:
        own = await call(maker.offer, session)
        return [Offer.decode(text) for text in await self._group.allgather(own.encode(), timeout=self._timeout)]

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None and self._maker is not None:
            await call(self._maker.free)
