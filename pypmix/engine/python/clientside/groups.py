"""The client's side of groups: which operations they are, and those that the server itself carries out."""

from __future__ import annotations

from pypmix.engine.groups.rules import FAILURES, TELLING, results_of, signed
from pypmix.engine.python.clientside.exchanges import reply, request
from pypmix.engine.python.clientside.groupport import GroupPort
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import SUCCESSES
from pypmix.standard.ops import (
    GroupConstruct,
    GroupDestruct,
    GroupInvite,
    GroupInviteControl,
    GroupJoin,
    GroupLeave,
    GroupRequest,
    GroupUnwatch,
    GroupWatch,
)
from pypmix.standard.types import DataArray, Info, Value
from pypmix.wire.additions import decode_late
from pypmix.wire.codec import Unpacker, kvals
from pypmix.wire.messages import Command, decode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.python.client import Call, Client

PARTIAL: tuple[int, int, int] = (6, 0, 0)
"""The first release as which a server of this engine brings a group with a partial success.

To clients of earlier ones that is how a construct fails.
"""


def _start(client: Client, call: Call) -> None:
    if client.server is None:
        client._end(call, error=client._alone(call))
        return
    groups_of(client).begin(call)


def groups_of(client: Client) -> GroupPort:
    """Return the groups of a client that has a server."""
    if client.groups is None:
        client.groups = GroupPort(client, {GroupConstruct: _construct, GroupDestruct: _destruct})
    return client.groups


def _construct(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, GroupConstruct)
    infos = op.directives
    if client.release >= TELLING and not _adapts(client):
        infos = tuple([signed(info, client.proc) for info in infos])
    request(client, call, Command.GROUP_CONSTRUCT, unbound=True, group=op.group, procs=op.procs, infos=infos)


def _constructed(client: Client, call: Call, payload: bytes) -> None:
    status = decode_status(payload, client.buffer_type)
    partial = status == statuses.ERR_PARTIAL_SUCCESS and _adapts(client) and client.release >= PARTIAL
    if status not in SUCCESSES and not partial:
        _failed(client, call, status, payload)
        return
    fields = reply(client, Command.GROUP_CONSTRUCT, payload)
    infos = list(fields.get("group_info", ()))
    members, context_id = fields.get("members"), fields["context_id"]
    if members:
        infos.append(
            Info(keys.GROUP_MEMBERSHIP, Value.unchecked(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(members))))
        )
    if context_id is not None:
        infos.append(Info(keys.GROUP_CONTEXT_ID, Value.unchecked(codes.SIZE, context_id)))
    for item in fields.get("objects", ()):
        unpacker = Unpacker(item, client.buffer_type, client.release)
        nspace = unpacker.one(codes.STRING)
        if nspace and nspace != client.proc.nspace:
            pairs = kvals(item, unpacker.position, client.buffer_type, client.release)
            client.store.add_job_values(nspace, pairs, client.buffer_type, client.release)
    client._end(call, results_of(infos, partial))


def _destruct(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, GroupDestruct) and client.groups is not None
    # In the order that servers have them in, whatever that of the group is.
    members = tuple(sorted(client.groups.agent.standing.members(op.group)))
    infos = op.directives
    request(client, call, Command.GROUP_DESTRUCT, unbound=True, group=op.group, members=members, infos=infos)


def _destructed(client: Client, call: Call, payload: bytes) -> None:
    status = decode_status(payload, client.buffer_type)
    if status in SUCCESSES:
        client._end(call)
    else:
        _failed(client, call, status, payload)


def _failed(client: Client, call: Call, status: int, payload: bytes) -> None:
    op: Any = call.op
    error = client._error(call, status, FAILURES.get(status, "").format(repr(op.group)))
    if status == statuses.ERR_TIMEOUT or _adapts(client):
        missing = decode_late(payload, client.buffer_type)
        error.missing = None if missing is None else frozenset(missing)
    client._end(call, error=error)


def _adapts(client: Client) -> bool:
    return client.server is not None and client.server.adapts


STARTS: dict[type, Callable[[Client, Call], None]] = dict.fromkeys(
    (
        GroupConstruct,
        GroupDestruct,
        GroupInvite,
        GroupInviteControl,
        GroupJoin,
        GroupLeave,
        GroupRequest,
        GroupUnwatch,
        GroupWatch,
    ),
    _start,
)

REPLIES: dict[type, Callable[[Client, Call, bytes], None]] = {
    GroupConstruct: _constructed,
    GroupDestruct: _destructed,
}
