"""Publish, lookup and unpublish: who asks, and how long what was published stays."""

from __future__ import annotations

from pypmix.host.directory import Directory, Who
from pypmix.standard.ops import PERSIST_APP, Lookup, Publish, Unpublish

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Upcall
    from pypmix.host.local import LocalHost
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.standard.errors import PMIxError
    from pypmix.standard.types import Pdata, Proc


class Publications:
    """What procs have published on a host."""

    def __init__(self, host: LocalHost) -> None:
        self.directory = Directory(host.loop.later, host.limits)
        host.at_rank_end.append(self.retire)

    def leave(self, tool: Proc) -> None:
        """Remove what was published for as long as a tool lives."""
        self.directory.leave(tool)
        self.directory.forget({tool}, PERSIST_APP)

    def retire(self, job: RunningJob, rank: Rank) -> None:
        """Remove what was published for as long as a rank, or the application that it was the last of, has lived."""
        self.directory.leave(rank.proc)
        if not self.directory:
            return
        apps = [slot.app for slot in job.job.slots()]
        same = [other for other in job.ranks if apps[other.proc.rank] == apps[rank.proc.rank]]
        if not any(other.alive for other in same):
            self.directory.forget({other.proc for other in same}, PERSIST_APP)


def _who(host: LocalHost, upcall: Upcall) -> Who:
    assert upcall.requestor is not None and upcall.uid is not None and upcall.gid is not None
    return Who(upcall.requestor, upcall.uid, upcall.gid, host.node_of(upcall.requestor).number)


def _publish(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, Publish)
    who = _who(host, upcall)
    publications = host.part(Publications)
    publications.directory.publish(who, op)
    found = host.find(who.proc)
    if found is not None and not found[1].alive:
        # It did not wait for the answer, and what lasts as long as itself is over.
        publications.retire(*found)
    upcall.reply()


def _lookup(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, Lookup)

    def found(data: tuple[Pdata, ...], error: PMIxError | None) -> None:
        if error is None:
            upcall.reply(data)
        else:
            upcall.fail(error)

    host.part(Publications).directory.lookup(_who(host, upcall), op, found)


def _unpublish(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, Unpublish)
    host.part(Publications).directory.unpublish(_who(host, upcall), op)
    upcall.reply()


ANSWERS: dict[type, Callable[[LocalHost, Upcall], None]] = {
    Publish: _publish,
    Lookup: _lookup,
    Unpublish: _unpublish,
}
