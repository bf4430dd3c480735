"""Groups that are constructed and destructed on one node, whose server decides the members: their context ids."""

from __future__ import annotations

from pypmix.standard import attrs, keys, statuses
from pypmix.standard.codes import SIZE
from pypmix.standard.enums import EventCode
from pypmix.standard.errors import NotSupported
from pypmix.standard.ops import GroupUpcall, NotifyEvent, QueryInfo
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT, GROUP_GUEST
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.standard.ops import Op

CONTEXT_ID = attrs.GROUP_CONTEXT_ID.key
ASSIGN_CONTEXT_ID = attrs.GROUP_ASSIGN_CONTEXT_ID.key
ADDED = attrs.GROUP_ADD_MEMBERS.key
TOLD = frozenset({attrs.GROUP_INFO.key, attrs.GROUP_INFO_ARRAY.key, attrs.GROUP_ENDPT_DATA.key})
"""The keys of the data that members exchange."""

QUERIES = frozenset((attrs.QUERY_NUM_GROUPS.key, attrs.QUERY_GROUP_NAMES.key, attrs.QUERY_GROUP_MEMBERSHIP.key))
EVENTS = frozenset(
    (EventCode.GROUP_LEFT, EventCode.GROUP_CONSTRUCT_COMPLETE, EventCode.GROUP_MEMBERSHIP_UPDATE, statuses.TALK)
)
"""The queries about groups, and the events that change the members."""


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
    return bool([info for info in directives if info[0] == keys.LOCAL_COLLECTIVE_STATUS and info[1][1] in lost])


def _group(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, GroupUpcall)
    is_numbered = False
    for info in op.directives if op.operation == GROUP_CONSTRUCT else ():
        if info[0] == GROUP_GUEST:
            # All possible guests are clients of this server, which admits them itself.
            raise NotSupported("a host of one node has no guests from other nodes", operation=op.name)
        is_numbered = is_numbered or (info[0] == ASSIGN_CONTEXT_ID and is_set((info,), ASSIGN_CONTEXT_ID))
    if is_numbered:
        # It is valid, and a second check takes a good part of the time of a construct.
        upcall.reply((Info.unchecked(CONTEXT_ID, Value.unchecked(SIZE, host.next_context_id()), 0),))
    else:
        upcall.reply(())


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {GroupUpcall: _group}
