"""Groups that are constructed and destructed on one node: their members and their context ids."""

from __future__ import annotations

from pypmix.engine.collective import rules
from pypmix.standard import attrs, statuses
from pypmix.standard.codes import SIZE
from pypmix.standard.enums import EventCode
from pypmix.standard.errors import NotSupported
from pypmix.standard.ops import GroupUpcall, NotifyEvent, QueryInfo
from pypmix.standard.ops.events import is_set, procs_in
from pypmix.standard.ops.hosting import GROUP_ABSENT, GROUP_CONSTRUCT, GROUP_GUEST, GROUP_ORDER
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.standard.ops import Op

CONTEXT_ID = attrs.GROUP_CONTEXT_ID.key
ASSIGN_CONTEXT_ID = attrs.GROUP_ASSIGN_CONTEXT_ID.key
ADDED = attrs.GROUP_ADD_MEMBERS.key
TOLD = frozenset({attrs.GROUP_INFO.key, attrs.GROUP_INFO_ARRAY.key, attrs.GROUP_ENDPT_DATA.key})
"""The keys of the data that members exchange."""

LOCAL_STATUS = attrs.LOCAL_COLLECTIVE_STATUS.key
QUERIES = frozenset((attrs.QUERY_NUM_GROUPS.key, attrs.QUERY_GROUP_NAMES.key, attrs.QUERY_GROUP_MEMBERSHIP.key))
EVENTS = frozenset(
    (EventCode.GROUP_LEFT, EventCode.GROUP_CONSTRUCT_COMPLETE, EventCode.GROUP_MEMBERSHIP_UPDATE, statuses.TALK)
)
"""The queries about groups, and the events that change the members."""


class Memberships:
    """The members of groups, with a cache of the last ones, which may construct further groups. For any thread."""

    def __init__(self, _host: Manager) -> None:
        self._last: tuple[tuple[Proc, ...], tuple[Info, ...], tuple[Info, ...], bool] = (), (), (), False

    def of(self, host: Manager, op: GroupUpcall) -> tuple[tuple[Info, ...], bool]:
        """Return the members in the order of their group ranks, their data, and whether they request a context id."""
        asked, directives = op.procs, op.directives
        procs, before, told, numbered = self._last
        if asked is not procs or directives is not before:
            if any(info.key == GROUP_GUEST for info in directives):
                # All possible guests are clients of this server, which admits them itself.
                raise NotSupported("a host of one node has no guests from other nodes", operation=op.name)
            absent = procs_in(directives, GROUP_ABSENT) or ()
            named = (*asked, *(procs_in(directives, ADDED) or ()))
            present = [proc for proc in members_of(host, named) if proc not in absent]
            members = rules.placed(procs_in(directives, GROUP_ORDER) or (), present)
            told = attrs.GROUP_MEMBERSHIP(members), *[info for info in directives if info.key in TOLD]
            numbered = is_set(directives, ASSIGN_CONTEXT_ID)
            if all(proc.rank != RANK_WILDCARD for proc in named):
                # The procs of a wildcard may change.
                self._last = asked, directives, told, numbered
        return told, numbered


def is_about_groups(op: Op[Any]) -> bool:
    """Return True if an upcall is about groups."""
    if isinstance(op, NotifyEvent):
        return op.code in EVENTS
    if isinstance(op, QueryInfo):
        return all(key in QUERIES for query in op.queries for key in query.keys)
    return isinstance(op, GroupUpcall)


def was_broken(op: Op[Any]) -> bool:
    """Return True if a server reports that some of its members ended before all had arrived; it does not name them."""
    lost = statuses.ERR_LOST_CONNECTION, statuses.ERR_PARTIAL_SUCCESS
    directives = op.directives if isinstance(op, GroupUpcall) else ()
    return bool([info for info in directives if info[0] == LOCAL_STATUS and info[1][1] in lost])


def members_of(host: Manager, procs: Iterable[Proc]) -> list[Proc]:
    """Return procs in the order of their group ranks, each once, with the procs of a job for its wildcard."""
    found: set[Proc] = set()
    for proc in procs:
        job = host.jobs.get(proc.nspace) if proc.rank == RANK_WILDCARD else None
        found.update([proc] if job is None else [rank.proc for rank in job.ranks])
    return sorted(found)


def _group(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, GroupUpcall)
    if op.operation != GROUP_CONSTRUCT:
        upcall.reply(())
        return
    told, numbered = host.part(Memberships).of(host, op)
    if numbered:
        # It is valid, and a second check takes a good part of the time of a construct.
        number = Info.unchecked(CONTEXT_ID, Value.unchecked(SIZE, host.next_context_id()), 0)
        told = told[0], number, *told[1:]
    upcall.reply(told)


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {GroupUpcall: _group}
