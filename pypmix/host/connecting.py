"""Connect and disconnect on one node: all live participants have arrived already, and the host knows them.

Fences with procs of other nodes and direct modexes fail: the host has one node.
"""

from __future__ import annotations

from itertools import count

from pypmix.host.rank import FINALIZED
from pypmix.host.tools import Admitted
from pypmix.standard import statuses
from pypmix.standard.errors import NotFound, PartialSuccess
from pypmix.standard.ops import Connect, Connected, DirectModex, Disconnect, FenceUpcall
from pypmix.standard.ops.connecting import CONNECT_ASSIGN, CONNECT_XCHG_ONLY
from pypmix.standard.ops.events import is_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.standard.types import Proc


class Connections:
    """The nspaces of a host's connections."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._numbers = count(1)

    def take(self) -> str:
        """Return an nspace that no job and no other connection has."""
        return f"{self._host.server.proc.nspace.rpartition('@')[0]}@connection-{next(self._numbers)}"


def _agree(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, Connect | Disconnect)
    tools = host.part(Admitted)
    unknown = [proc for proc in op.procs if not host.has_run(proc.nspace) and not tools.is_tool(proc.nspace)]
    if unknown:
        raise NotFound("these names belong to no job and no tool of this host", operation=op.name, procs=unknown)
    infos = op.directives
    if isinstance(op, Connect) and host.native and (gone := _departed(host, op.procs)):
        # The server counts the participants that have arrived, and does not report that others ended before.
        detail = "a participant has ended without coming"
        raise PartialSuccess(
            detail, status=statuses.ERR_PARTIAL_SUCCESS, operation=op.name, procs=op.procs, missing=gone
        )
    if isinstance(op, Disconnect) or not is_set(infos, CONNECT_ASSIGN) or is_set(infos, CONNECT_XCHG_ONLY):
        upcall.reply()
        return
    # All of them belong to this server, which knows the procs that have arrived.
    upcall.reply(Connected(host.part(Connections).take()))


def _departed(host: Manager, procs: tuple[Proc, ...]) -> list[Proc]:
    """Return the procs that have finalized or ended; procs of finished jobs are returned unexpanded."""
    over = [proc for proc in procs if proc.nspace not in host.jobs and host.has_run(proc.nspace)]
    return over + [rank.proc for rank in host.expand(procs) if rank.over or rank.lost or rank.stage == FINALIZED]


def _not_here(_host: Manager, upcall: Upcall) -> NoReturn:
    op = upcall.op
    assert isinstance(op, (DirectModex, FenceUpcall))
    procs = (op.proc,) if isinstance(op, DirectModex) else op.procs
    raise NotFound("there is no other node that could have it", operation=op.name, procs=procs)


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {
    Connect: _agree,
    Disconnect: _agree,
    DirectModex: _not_here,
    FenceUpcall: _not_here,
}
