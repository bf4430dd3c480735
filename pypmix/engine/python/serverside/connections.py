"""The connections that stand, as a server sees them: a kind of group whose members keep their ranks."""

from __future__ import annotations

from pypmix.engine.groups.talk import text
from pypmix.engine.python.serverside.grouprecords import Group
from pypmix.standard import statuses
from pypmix.standard.errors import NotFound
from pypmix.standard.ops.connecting import CONNECT_ID, CONNECT_NAME
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.types import Info


class Connection(Group):
    """One connection.

    Attributes:
        id: What its callers have called the connect; empty where they have not.
        each: Whether members want to hear of each one that disconnects.
        parting: Whether all members of this server have called the disconnect.
        gone: Who has ended; its rank is vacant.
    """

    __slots__ = ("each", "gone", "id", "nspace", "parting")

    def __init__(self, nspace: str, id: str, ft: bool, each: bool) -> None:
        super().__init__(ft=ft)
        self.nspace = nspace
        self.id = id
        self.each = each
        self.parting = False
        self.gone: set[Proc] = set()

    def member(self, rank: int) -> Proc:
        """Return who has a rank.

        Raises:
            NotFound: Nobody has it, or who had it has ended.
        """
        if rank < len(self.formed) and self.formed[rank] not in self.gone:
            return self.formed[rank]
        named = Proc.unchecked(self.nspace, rank)
        raise NotFound(f"nobody has rank {rank} of the connection {self.nspace!r}", procs=(named,))

    def titles(self, name: str) -> tuple[Info, ...]:
        id = (text(CONNECT_ID, self.id),) if self.id else ()
        return (text(CONNECT_NAME, self.nspace), *id)

    def loses(self, gone: Proc) -> int | None:
        self.gone.add(gone)
        return None if self.ft or self.parting else statuses.ERR_PROC_TERM_WO_SYNC
