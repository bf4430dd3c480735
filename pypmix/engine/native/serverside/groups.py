"""Group upcalls: the various forms of releases, converted to one form."""

from __future__ import annotations

from pypmix.engine.native.serverside.node import merged
from pypmix.engine.native.structs import string
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import GroupUpcall
from pypmix.standard.ops.core import returned
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT
from pypmix.standard.types import DataArray, Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.engine.native.serverside.node import Node


def read_group(node: Node, raw: Any) -> GroupUpcall:
    """Return the operation on a group.

    The members' group info and endpoint data stay among the directives, since the other servers need them.
    """
    return GroupUpcall(raw.number, string(raw.text) or "", node.items(raw), merged(node.infos(raw)))


def write_group(node: Node, upcall: Upcall, result: Any, outputs: Any) -> int:
    """Put the host's result for a group into an answer, with the membership of a new group."""
    # Releases 5.0 need the membership of a new group, so all releases get it.
    op: Any = upcall.op
    infos = returned(result, Info)
    if op.operation == GROUP_CONSTRUCT and keys.GROUP_MEMBERSHIP not in [info[0] for info in infos]:
        members = DataArray(codes.PROC, tuple(node.expand(op.procs)))
        infos = (Info.unchecked(keys.GROUP_MEMBERSHIP, Value.unchecked(codes.DATA_ARRAY, members), 0), *infos)
    outputs.infos, outputs.ninfos = node.marshal.infos(infos)
    return statuses.SUCCESS


def alone(node: Node, upcall: Upcall, status: int) -> tuple[Info, ...]:
    """Return the result of an operation whose procs are all of this server, which does not need a host.

    Raises:
        LookupError: The operation needs the host, or the host has refused it.
    """
    op: Any = upcall.op
    if status != statuses.ERR_NOT_SUPPORTED or not node.all_local(op.procs):
        raise LookupError
    wanted = any(info.key == keys.GROUP_ASSIGN_CONTEXT_ID and info.value.data is not False for info in op.directives)
    if op.operation != GROUP_CONSTRUCT or not wanted:
        return ()
    node.last_context_id += 1
    return (Info(keys.GROUP_CONTEXT_ID, Value(codes.SIZE, node.last_context_id)),)
