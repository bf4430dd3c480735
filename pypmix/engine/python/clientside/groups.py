"""The client's side of groups that all of their members construct and destruct together."""

from __future__ import annotations

from pypmix.engine.groups.rules import CONTEXT_ID, MEMBERSHIP, Groups, directives_for
from pypmix.engine.python.clientside.exchanges import UNOFFERED, reply, request
from pypmix.standard import codes
from pypmix.standard.errors import (
    ERR_EXISTS,
    ERR_NOT_FOUND,
    ERR_NOT_SUPPORTED,
    ERR_PARTIAL_SUCCESS,
    ERR_TIMEOUT,
    SUCCESSES,
    PMIxError,
)
from pypmix.standard.ops import GroupConstruct, GroupDestruct
from pypmix.standard.types import DataArray, Info, Value
from pypmix.wire.additions import decode_late
from pypmix.wire.codec import Unpacker, kvals
from pypmix.wire.messages import Command, decode_status

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.python.client import Call, Client

_FAILURES = {
    ERR_NOT_SUPPORTED: UNOFFERED,
    ERR_TIMEOUT: "not all members of {!r} had come when the time ran out",
    ERR_PARTIAL_SUCCESS: "a member of {!r} ended without coming",
    ERR_EXISTS: "there is a group or an nspace {!r} already",
    ERR_NOT_FOUND: "the server does not know all of the procs, or not the group {!r}",
    -27: "the server does not take these procs for {!r}",
    -66: "the caller is not a member of {!r}",
    -165: "a member ended without coming, so that there is no group {!r}",
}


def _groups(client: Client) -> Groups:
    if client.groups is None:
        client.groups = Groups(client.proc)
    return client.groups


def _construct(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, GroupConstruct)
    groups = _groups(client)
    if client.server is None:
        client._end(call, error=client._alone(call))
        return
    try:
        procs = groups.constructed_of(op, client.store.lookup)
        groups.begin(op.group)
    except PMIxError as error:
        client._end(call, error=client._named(error, op))
        return
    infos = directives_for(op, client.release)
    request(client, call, Command.GROUP_CONSTRUCT, group=op.group, procs=procs, infos=infos)


def _constructed(client: Client, call: Call, payload: bytes) -> None:
    op = call.op
    assert isinstance(op, GroupConstruct)
    _groups(client).end(op.group)
    status = decode_status(payload, client.buffer_type)
    if status not in SUCCESSES:
        _failed(client, call, status, payload)
        return
    fields = reply(client, Command.GROUP_CONSTRUCT, payload)
    infos = list(fields.get("group_info", ()))
    members, context_id = fields.get("members"), fields["context_id"]
    if members:
        infos.append(Info(MEMBERSHIP, Value.unchecked(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(members)))))
    if context_id is not None:
        infos.append(Info(CONTEXT_ID, Value.unchecked(codes.SIZE, context_id)))
    for item in fields.get("objects", ()):
        unpacker = Unpacker(item, client.buffer_type, client.release)
        nspace = unpacker.one(codes.STRING)
        if nspace and nspace != client.proc.nspace:
            pairs = kvals(item, unpacker.position, client.buffer_type, client.release)
            client.store.add_job_values(nspace, pairs, client.buffer_type, client.release)
    client._end(call, _groups(client).formed(op, infos, client.store.lookup))


def _destruct(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, GroupDestruct)
    try:
        members = _groups(client).check_destruct(op.group)
        _groups(client).begin(op.group)
    except PMIxError as error:
        client._end(call, error=client._named(error, op))
        return
    fields: dict[str, Any] = {"group": op.group, "members": members, "infos": directives_for(op, client.release)}
    request(client, call, Command.GROUP_DESTRUCT, **fields)


def _destructed(client: Client, call: Call, payload: bytes) -> None:
    op = call.op
    assert isinstance(op, GroupDestruct)
    _groups(client).end(op.group)
    status = decode_status(payload, client.buffer_type)
    if status not in SUCCESSES:
        _failed(client, call, status, payload)
        return
    _groups(client).gone(op.group)
    client._end(call)


def _failed(client: Client, call: Call, status: int, payload: bytes) -> None:
    op: Any = call.op
    error = client._error(call, status, _FAILURES.get(status, "").format(op.group))
    if status == ERR_TIMEOUT:
        missing = decode_late(payload, client.buffer_type)
        error.missing = None if missing is None else frozenset(missing)
    client._end(call, error=error)


STARTS: dict[type, Callable[[Client, Call], None]] = {GroupConstruct: _construct, GroupDestruct: _destruct}

REPLIES: dict[type, Callable[[Client, Call, bytes], None]] = {
    GroupConstruct: _constructed,
    GroupDestruct: _destructed,
}
