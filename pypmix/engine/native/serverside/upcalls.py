"""Upcalls: a table of conversions from the library's upcalls to operations, and from the host's results to answers.

The shim's `upcalls.c` describes the members of a `pypmix_upcall` for each upcall.
"""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.serverside import groups, tools
from pypmix.engine.native.serverside.knowledge import completed
from pypmix.engine.native.serverside.node import STATE_CONNECTED, STATE_TERMINATED, merged
from pypmix.engine.native.structs import get_proc, string
from pypmix.standard import codes, keys, ops, statuses
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.ops.core import returned
from pypmix.standard.ops.events import RANGE_LOCAL, RANGE_PROC_LOCAL
from pypmix.standard.ops.publishing import RANGE_SESSION, read_publish
from pypmix.standard.record import Record
from pypmix.standard.releases import PARTIAL_LOOKUP, PARTIAL_QUERY
from pypmix.standard.types import MAX_NSLEN, Info, Pdata, Proc, check_name
from pypmix.wire.readers import bit_of, fit_infos, unfit_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Upcall
    from pypmix.engine.native.serverside.node import Node
    from pypmix.standard.ops import Op

DEFAULT = -(2**31)
"""The code that means all codes: clients send it for a default handler."""

FABRIC_UPDATE = 1

PROC_SIZE = int(lib.pypmix_size_of(codes.PROC))

MOST_FENCES = 64
MOST_PROCS = 64
"""The maximum number of fences that are kept, and of the procs of each fence."""

CLOSING_TWICE = (5, 0, 0), (7, 0, 0)
"""The first release that closes the connection of a refused client twice, and the first later release that does not.

The second close is at the deregistration of the client or its nspace: another client's connection may have the number
of the descriptor by then. So they are not deregistered. Earlier releases admit a client before they ask the host.
"""


class Row(Record):
    """One upcall.

    Attributes:
        read: Returns the operation; None if the answer is success without a call of the host.
        write: Puts the host's result into a `pypmix_given`, and returns the status of the answer. Raises `TypeError`
            or `ValueError` if the result is not valid.
        refused: Called with the status if the host fails. Returns a result if the server can answer without the host;
            raises `LookupError` if not.
        asks: True if the source of the upcall is the caller.
        data: True if the answer is bytes.
    """

    read: Callable[[Node, Any], Op[Any] | None]
    write: Callable[[Node, Upcall, Any, Any], int] | None = None
    refused: Callable[[Node, Upcall, int], object] | None = None
    asks: bool = True
    data: bool = False


# Results of the host. A row without `write` ignores the result.


def _infos(node: Node, _upcall: object, result: object, outputs: Any) -> int:
    outputs.infos, outputs.ninfos = node.marshal.infos(fit_infos(returned(result, Info), node.marshal.rule))
    return statuses.SUCCESS


def _published(node: Node, upcall: Upcall, result: object, outputs: Any) -> int:
    values = returned(result, Pdata)
    unfit = bit_of(node.marshal.rule)
    data = tuple([item for item in values if not unfit_for(item.value) & unfit])
    if not data:
        return statuses.ERR_UNKNOWN_DATA_TYPE if values else statuses.ERR_NOT_FOUND
    node.marshal.fill(outputs.items, codes.PDATA, data)
    op: Any = upcall.op
    partial = len(data) < len(op.keys) and node.release >= PARTIAL_LOOKUP
    return statuses.ERR_PARTIAL_SUCCESS if partial else statuses.SUCCESS


def _answers(node: Node, upcall: Upcall, result: object, outputs: Any) -> int:
    queries = upcall.op.queries  # type: ignore[attr-defined]
    answers = completed(node, upcall.requestor, queries, returned(result, Info))
    if not answers:
        return statuses.ERR_NOT_FOUND
    fit = fit_infos(answers, node.marshal.rule)
    if not fit:
        return statuses.ERR_UNKNOWN_DATA_TYPE
    outputs.infos, outputs.ninfos = node.marshal.infos(fit)
    partial = len(fit) < sum([len(query.keys) for query in queries]) and node.release >= PARTIAL_QUERY
    return statuses.ERR_PARTIAL_SUCCESS if partial else statuses.SUCCESS


def _own_answers(node: Node, upcall: Upcall, _status: int) -> object:
    """Return the server's own answers if the host has none."""
    queries = upcall.op.queries  # type: ignore[attr-defined]
    found = completed(node, upcall.requestor, queries, ())
    if not found:
        raise LookupError
    return found


def _nspace(node: Node, _upcall: object, result: object, outputs: Any) -> int:
    nspace = check_name(result, MAX_NSLEN, "the nspace of the new job")  # type: ignore[arg-type]
    if not nspace:
        raise ValueError("the nspace of the new job is not empty")
    node.marshal.fill(outputs.items, codes.STRING, (nspace,))
    return statuses.SUCCESS


def _credential(node: Node, upcall: object, result: object, outputs: Any) -> int:
    if not isinstance(result, ops.Credential) or not isinstance(result.data, bytes):
        raise TypeError(f"a Credential is wanted, not {type(result).__name__}")
    node.marshal.fill(outputs.items, codes.BYTE_OBJECT, (result.data,))
    return _infos(node, upcall, result.infos, outputs)


def _feed(node: Node, upcall: Upcall, result: object, _outputs: Any) -> int:
    op = upcall.op
    if isinstance(op, ops.IOFPull):
        number = result if isinstance(result, int) and not isinstance(result, bool) else None
        node.feeds.setdefault((frozenset(op.procs), op.channels), []).append(number)
        node.pulling.remove(op)
    return statuses.SUCCESS


def _unfed(node: Node, upcall: Upcall, _status: int) -> None:
    if isinstance(upcall.op, ops.IOFPull):
        node.pulling.remove(upcall.op)
    raise LookupError


def _local(_node: Node, _upcall: object, status: int) -> None:
    """Answer success if the host does not support the upcall: it need not care for codes, nor forward events."""
    if status != statuses.ERR_NOT_SUPPORTED:
        raise LookupError


# Operations of upcalls


def _source(raw: Any) -> Proc:
    if not raw.sourced:
        raise RemoteProtocolError("the upcall does not name the caller")
    return get_proc(raw.source)


def _bytes(raw: Any) -> bytes:
    return bytes(ffi.buffer(raw.bytes, raw.size)) if raw.size else b""


def _connected(node: Node, raw: Any) -> Op[Any]:
    infos = node.infos(raw)
    pid, release, rest = None, "", []
    for info in infos:
        if info.key == keys.PROC_PID:
            pid = info.value.data
        elif info.key == keys.VERSION_INFO:
            release = info.value.data
        else:
            rest.append(info)
    proc = _source(raw)
    node.states[proc] = STATE_CONNECTED
    return ops.ClientConnected(proc, pid, release, tuple(rest))


def _refused(node: Node, upcall: Upcall, _status: int) -> None:
    """Note the refused client before the client gets the answer and can end."""
    op: Any = upcall.op
    first, fixed = CLOSING_TWICE
    if first <= node.release < fixed:
        node.refused.add(op.proc)
        node.states[op.proc] = STATE_TERMINATED
    raise LookupError


def _finalized(node: Node, raw: Any) -> Op[Any]:
    proc = _source(raw)
    node.states[proc] = STATE_TERMINATED
    return ops.ClientFinalized(proc)


def _fence(node: Node, raw: Any) -> Op[Any]:
    array = raw.items
    size = array.size * PROC_SIZE
    if raw.infos.size or raw.size or size > MOST_PROCS * PROC_SIZE:
        return ops.FenceUpcall(node.items(raw), merged(node.infos(raw)), _bytes(raw))
    # A job repeats the same fence many times.
    key = bytes(ffi.buffer(array.array, size))
    op = node.fences.get(key)
    if op is None:
        op = ops.FenceUpcall(node.items(raw))
        if len(node.fences) >= MOST_FENCES:
            node.fences.clear()
        node.fences[key] = op
    return op


def _publish(node: Node, raw: Any) -> Op[Any]:
    return read_publish(node.infos(raw))


def _keys(node: Node, raw: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node.items(raw)))


def _events(node: Node, raw: Any) -> Op[Any]:
    return ops.RegisterEvents(_codes(node, raw), node.infos(raw))


def _codes(node: Node, raw: Any) -> tuple[int, ...]:
    found = tuple(dict.fromkeys(node.items(raw)))
    return () if DEFAULT in found else found


def _event(node: Node, raw: Any) -> Op[Any] | None:
    code, range = raw.number & 0xFFFFFFFF, raw.number >> 32
    if range in (RANGE_LOCAL, RANGE_PROC_LOCAL) or (raw.sourced and get_proc(raw.source) == node.proc):
        # The event is only for this process, or the host has raised it itself.
        return None
    return ops.NotifyEvent(code - ((code & 1 << 31) << 1), range or RANGE_SESSION, node.infos(raw))


def _log(node: Node, raw: Any) -> Op[Any]:
    timestamp, rest = 0, []
    source = get_proc(raw.source) if raw.sourced else None
    for info in node.marshal.results(raw.more):
        if info.key == keys.LOG_TIMESTAMP and isinstance(info.value.data, int):
            timestamp = max(0, info.value.data)
        elif info.key != keys.LOG_SOURCE or info.value.data != source:
            rest.append(info)
    return ops.Log(node.infos(raw), tuple(rest), timestamp)


def _pull(node: Node, raw: Any) -> Op[Any] | None:
    infos = node.infos(raw)
    procs = node.items(raw)
    if all(info.key != keys.IOF_STOP for info in infos):
        op = ops.IOFPull(procs, raw.number, infos)
        node.pulling.append(op)
        return op
    name = frozenset(procs), int(raw.number)
    if not procs and len(node.feeds) == 1 and not node.pulling:
        # These releases do not name the pull, and there is only one.
        (name,) = node.feeds
    numbers = node.feeds.get(name)
    if not numbers:
        return None
    number = numbers.pop()
    if not numbers:
        del node.feeds[name]
    return None if number is None else ops.IOFDeregister(number, tuple([i for i in infos if i.key != keys.IOF_STOP]))


def _fabric(node: Node, raw: Any) -> Op[Any]:
    infos = node.infos(raw)
    if raw.number != FABRIC_UPDATE:
        return ops.FabricRegister(infos)
    return ops.FabricUpdate(next((info.value.data for info in infos if info.key == keys.FABRIC_INDEX), 0))


ROWS: dict[int, Row] = {
    lib.PYPMIX_UP_CLIENT_CONNECTED2: Row(_connected, refused=_refused),
    lib.PYPMIX_UP_CLIENT_FINALIZED: Row(_finalized),
    lib.PYPMIX_UP_ABORT: Row(
        lambda node, raw: ops.ClientAborted(_source(raw), raw.number, string(raw.text) or "", node.items(raw))
    ),
    lib.PYPMIX_UP_FENCE: Row(_fence, asks=False, data=True),
    lib.PYPMIX_UP_DIRECT_MODEX: Row(
        lambda node, raw: ops.DirectModex(_source(raw), node.infos(raw)), asks=False, data=True
    ),
    lib.PYPMIX_UP_PUBLISH: Row(_publish),
    lib.PYPMIX_UP_LOOKUP: Row(lambda node, raw: ops.Lookup(_keys(node, raw), node.infos(raw)), _published),
    lib.PYPMIX_UP_UNPUBLISH: Row(lambda node, raw: ops.Unpublish(_keys(node, raw), node.infos(raw))),
    lib.PYPMIX_UP_SPAWN: Row(lambda node, raw: ops.Spawn(node.items(raw), node.infos(raw)), _nspace),
    lib.PYPMIX_UP_CONNECT: Row(lambda node, raw: ops.Connect(node.items(raw), merged(node.infos(raw)))),
    lib.PYPMIX_UP_DISCONNECT: Row(lambda node, raw: ops.Disconnect(node.items(raw), merged(node.infos(raw)))),
    lib.PYPMIX_UP_REGISTER_EVENTS: Row(_events, refused=_local),
    lib.PYPMIX_UP_DEREGISTER_EVENTS: Row(lambda node, raw: ops.DeregisterEvents(_codes(node, raw)), refused=_local),
    lib.PYPMIX_UP_NOTIFY_EVENT: Row(_event, refused=_local),
    lib.PYPMIX_UP_QUERY: Row(lambda node, raw: ops.QueryInfo(node.items(raw)), _answers, _own_answers),
    lib.PYPMIX_UP_TOOL_CONNECTED: Row(tools.connected, tools.write_tool_name),
    lib.PYPMIX_UP_TOOL_CONNECTED2: Row(tools.connected, tools.write_tool_name),
    lib.PYPMIX_UP_LOG: Row(_log),
    lib.PYPMIX_UP_LOG2: Row(_log),
    lib.PYPMIX_UP_ALLOCATE: Row(lambda node, raw: ops.AllocationRequest(raw.number, node.infos(raw)), _infos),
    lib.PYPMIX_UP_JOB_CONTROL: Row(lambda node, raw: ops.JobControl(node.items(raw), node.infos(raw)), _infos),
    lib.PYPMIX_UP_MONITOR: Row(
        lambda node, raw: ops.ProcessMonitor(node.marshal.results(raw.more)[0], raw.number, node.infos(raw)),
        _infos,
    ),
    lib.PYPMIX_UP_GET_CREDENTIAL: Row(lambda node, raw: ops.GetCredential(node.infos(raw)), _credential),
    lib.PYPMIX_UP_VALIDATE_CREDENTIAL: Row(
        lambda node, raw: ops.ValidateCredential(_bytes(raw), node.infos(raw)),
        _infos,
    ),
    lib.PYPMIX_UP_IOF_PULL: Row(_pull, _feed, _unfed),
    lib.PYPMIX_UP_PUSH_STDIN: Row(
        lambda node, raw: ops.IOFPush(
            node.items(raw),
            _bytes(raw),
            node.infos(raw),
        )
    ),
    lib.PYPMIX_UP_GROUP: Row(groups.read_group, groups.write_group, groups.alone),
    lib.PYPMIX_UP_FABRIC: Row(_fabric, _infos),
    lib.PYPMIX_UP_SESSION_CONTROL: Row(lambda node, raw: ops.SessionControl(raw.number, node.infos(raw)), _infos),
    lib.PYPMIX_UP_RESOURCE_BLOCK: Row(
        lambda node, raw: ops.ResourceBlock(raw.number, string(raw.text) or "", node.items(raw), node.infos(raw))
    ),
}
"""The row of each upcall that hosts of pypmix get."""
