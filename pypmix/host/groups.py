"""Groups that are constructed and destructed on one node: who is in them, and their context ids."""

from __future__ import annotations

from pypmix.standard import attrs
from pypmix.standard.errors import NotSupported
from pypmix.standard.ops import GroupUpcall
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import GROUP_ABSENT, GROUP_CONSTRUCT, GROUP_GUEST, GROUP_ORDER
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.base import Upcall
    from pypmix.host.local import LocalHost
    from pypmix.standard.types import Info

ASSIGN_CONTEXT_ID = attrs.GROUP_ASSIGN_CONTEXT_ID.key
ADDED = attrs.GROUP_ADD_MEMBERS.key
TOLD = frozenset({attrs.GROUP_INFO.key, attrs.GROUP_INFO_ARRAY.key, attrs.GROUP_ENDPT_DATA.key})
"""What members tell each other."""

FIRST_CONTEXT_ID = 1 << 32
"""Where the context ids begin that this host gives; a server that completes a group by itself begins at 1."""


class ContextIds:
    """The numbers of groups."""

    def __init__(self, _host: LocalHost) -> None:
        self._next = FIRST_CONTEXT_ID

    def take(self) -> int:
        """Return a number that no other group has."""
        self._next += 1
        return self._next - 1


def procs_under(infos: Iterable[Info], key: str) -> list[Proc]:
    """Return the procs in the arrays under a key."""
    return [proc for info in infos if info.key == key for proc in info.value.data.items]


def members_of(host: LocalHost, procs: Iterable[Proc]) -> list[Proc]:
    """Return procs in the order of their group ranks, each once, with those of a job for its wildcard."""
    found: set[Proc] = set()
    for proc in procs:
        job = host.jobs.get(proc.nspace) if proc.rank == RANK_WILDCARD else None
        found.update([proc] if job is None else [rank.proc for rank in job.ranks])
    return sorted(found)


def _group(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, GroupUpcall)
    if op.operation != GROUP_CONSTRUCT:
        upcall.reply(())
        return
    if any(info.key == GROUP_GUEST for info in op.directives):
        # All who may come are this server's: it brings them together itself.
        raise NotSupported("nobody comes from elsewhere", operation=op.name)
    absent = procs_under(op.directives, GROUP_ABSENT)
    everyone = members_of(host, (*op.procs, *procs_under(op.directives, ADDED)))
    members = [proc for proc in everyone if proc not in absent]
    place = {proc: number for number, proc in enumerate(procs_under(op.directives, GROUP_ORDER))}
    members.sort(key=lambda proc: (place.get(proc, len(place)), proc))
    found: list[Info] = [attrs.GROUP_MEMBERSHIP(members)]
    if is_set(op.directives, ASSIGN_CONTEXT_ID):
        found.append(attrs.GROUP_CONTEXT_ID(host.part(ContextIds).take()))
    upcall.reply((*found, *[info for info in op.directives if info.key in TOLD]))


ANSWERS: dict[type, Callable[[LocalHost, Upcall], None]] = {GroupUpcall: _group}
