"""Tools at a host: their admission, and the removal of their published data and of inputs when they leave."""

from __future__ import annotations

from pypmix.host.rank import CONNECTED
from pypmix.standard.ops import ToolConnected

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.standard.types import Proc


class Admitted:
    """The tools that are connected under names of their choice."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._procs: set[Proc] = set()

    def add(self, proc: Proc) -> None:
        """Record a tool that is admitted."""
        self._procs.add(proc)

    def remove(self, proc: Proc) -> None:
        """Forget a proc that has left."""
        self._procs.discard(proc)

    def is_tool(self, nspace: str) -> bool:
        """Return True if a tool has this nspace, or if it looks like an nspace that the server makes up for tools."""
        made_up = nspace.startswith(f"{self._host.server.proc.nspace[:230]}-tool")
        return made_up or any(proc.nspace == nspace for proc in self._procs)


class Orphanage:
    """Ends the input of jobs whose parent has ended, and with it the proc that pushed."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        host.at_rank_end.append(lambda _job, rank: self.bereave(rank.proc))

    def bereave(self, parent: Proc) -> None:
        """End the inputs of the jobs that a proc has spawned."""
        jobs = [job for job in self._host.jobs.values() if job.job.parent == parent]
        for rank in [rank for job in jobs for rank in job.ranks if rank.input is not None]:
            assert rank.input is not None
            rank.input.write(b"")


def remove_tool(host: Manager, proc: Proc) -> None:
    """Clean up after a proc without a rank here that has finalized or lost its connection."""
    host.part(Admitted).remove(proc)
    if not host.has_run(proc.nspace):
        from pypmix.host.publishing import Publications

        host.part(Publications).leave(proc)
        if any(job.job.parent == proc for job in host.jobs.values()):
            host.part(Orphanage).bereave(proc)


def _admit(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, ToolConnected)
    found = None if op.proc is None else host.find(op.proc)
    if found is not None:
        # libpmix does not report that a tool has finalized, and a tool that is a rank would seem to have failed.
        if host.server.engine.name == "python":
            found[1].stage = CONNECTED
    elif op.proc is not None:
        host.part(Admitted).add(op.proc)
    upcall.reply()


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {ToolConnected: _admit}
