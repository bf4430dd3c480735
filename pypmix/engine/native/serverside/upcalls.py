"""Upcalls: what the library asks as an operation, and what the host returns as the library wants it. One table.

What each member of a `pypmix_upcall` means for which upcall is said in the shim's `upcalls.c`.
"""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.serverside import groups, tools
from pypmix.engine.native.serverside.knowledge import STATE_CONNECTED, STATE_TERMINATED, completed
from pypmix.engine.native.serverside.reading import directives_of, infos_of, items_of, merged
from pypmix.engine.native.structs import get_proc, string
from pypmix.standard import codes, keys, ops, statuses
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.ops.core import instances
from pypmix.standard.ops.events import RANGE_LOCAL, RANGE_PROC_LOCAL
from pypmix.standard.ops.publishing import PERSIST_APP, RANGE_SESSION
from pypmix.standard.record import Record
from pypmix.standard.types import Info, Pdata, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.native.serversession import NativeServer, Upcall
    from pypmix.standard.ops import Op

DEFAULT = -(2**31)
"""The code that stands for all codes: clients name it where a default handler goes."""

FABRIC_UPDATE = 1

PROC_SIZE = int(lib.pypmix_size_of(codes.PROC))

MOST_FENCES = 64
MOST_PROCS = 64
"""How many fences are kept, and of how many procs each."""

PARTIAL_LOOKUP = (7, 0, 0)
PARTIAL_QUERY = (5, 0, 7)
"""The first releases that take in the data of a partial success.

Earlier ones drop it; told of a success, they hand the caller what is there, and it sees which keys are not.
"""


class Row(Record):
    """One upcall.

    Attributes:
        read: Returns the operation; None where the host need not be asked, and the answer is success.
        write: Puts what the host returned into a `pypmix_given`, and returns the status to answer with. A
            `TypeError` or a `ValueError` says that it makes no sense.
        refused: Told of the status of a host that fails, whether the server can do without it: returns the result
            then, else raises `LookupError`.
        asks: Whether the source of the upcall is who asks.
        data: Whether the answer is bytes.
    """

    read: Callable[[NativeServer, Any], Op[Any] | None]
    write: Callable[[NativeServer, Upcall, Any, Any], int] | None = None
    refused: Callable[[NativeServer, Upcall, int], object] | None = None
    asks: bool = True
    data: bool = False


# What the host returns. Nothing is wanted where a row has no `write`.


def checked(result: Any, kind: type) -> tuple[Any, ...]:
    """Return what should be an iterable of a kind as a tuple; None is an empty one."""
    items = () if result is None else tuple(result)
    instances("the answer", items, kind)
    return items


def _infos(server: NativeServer, _upcall: object, result: object, given: Any) -> int:
    given.infos, given.ninfos = server.marshal.infos(checked(result, Info))
    return statuses.SUCCESS


def _found(server: NativeServer, upcall: Upcall, result: object, given: Any) -> int:
    data = checked(result, Pdata)
    if not data:
        return statuses.ERR_NOT_FOUND
    server.marshal.fill(given.items, codes.PDATA, data)
    op: Any = upcall.op
    partial = len(data) < len(op.keys) and server.release >= PARTIAL_LOOKUP
    return statuses.ERR_PARTIAL_SUCCESS if partial else statuses.SUCCESS


def _answers(server: NativeServer, upcall: Upcall, result: object, given: Any) -> int:
    queries = upcall.op.queries  # type: ignore[attr-defined]
    found = completed(server, upcall.requestor, queries, checked(result, Info))
    if not found:
        return statuses.ERR_NOT_FOUND
    given.infos, given.ninfos = server.marshal.infos(found)
    partial = len(found) < sum([len(query.keys) for query in queries]) and server.release >= PARTIAL_QUERY
    return statuses.ERR_PARTIAL_SUCCESS if partial else statuses.SUCCESS


def _own_answers(server: NativeServer, upcall: Upcall, _status: int) -> object:
    """A host that has no answers leaves the server its own."""
    queries = upcall.op.queries  # type: ignore[attr-defined]
    found = completed(server, upcall.requestor, queries, ())
    if not found:
        raise LookupError
    return found


def _nspace(server: NativeServer, _upcall: object, result: object, given: Any) -> int:
    if not isinstance(result, str) or not result:
        raise TypeError(f"the nspace of the new job is wanted, not {result!r:.80}")
    server.marshal.fill(given.items, codes.STRING, (result,))
    return statuses.SUCCESS


def _credential(server: NativeServer, upcall: object, result: object, given: Any) -> int:
    if not isinstance(result, ops.Credential) or not isinstance(result.data, bytes):
        raise TypeError(f"a Credential is wanted, not {type(result).__name__}")
    server.marshal.fill(given.items, codes.BYTE_OBJECT, (result.data,))
    return _infos(server, upcall, result.infos, given)


def _feed(server: NativeServer, upcall: Upcall, result: object, _given: Any) -> int:
    op = upcall.op
    if isinstance(op, ops.IOFPull):
        number = result if isinstance(result, int) and not isinstance(result, bool) else None
        server.feeds.setdefault((frozenset(op.procs), op.channels), []).append(number)
        server.pulling.remove(op)
    return statuses.SUCCESS


def _unfed(server: NativeServer, upcall: Upcall, _status: int) -> None:
    if isinstance(upcall.op, ops.IOFPull):
        server.pulling.remove(upcall.op)
    raise LookupError


def _local(_server: NativeServer, _upcall: object, status: int) -> None:
    """A host need have no opinion about codes, nor anybody else to tell of an event."""
    if status != statuses.ERR_NOT_SUPPORTED:
        raise LookupError


# What is asked.


def _source(raw: Any) -> Proc:
    if not raw.sourced:
        raise RemoteProtocolError("the upcall does not say who asks")
    return get_proc(raw.source)


def _bytes(raw: Any) -> bytes:
    return bytes(ffi.buffer(raw.bytes, raw.size)) if raw.size else b""


def _connected(server: NativeServer, raw: Any) -> Op[Any]:
    infos = infos_of(server, raw)
    pid, release, rest = None, "", []
    for info in infos:
        if info.key == keys.PROC_PID:
            pid = info.value.data
        elif info.key == keys.VERSION_INFO:
            release = info.value.data
        else:
            rest.append(info)
    proc = _source(raw)
    server.states[proc] = STATE_CONNECTED
    return ops.ClientConnected(proc, pid, release, tuple(rest))


def _finalized(server: NativeServer, raw: Any) -> Op[Any]:
    proc = _source(raw)
    server.states[proc] = STATE_TERMINATED
    return ops.ClientFinalized(proc)


def _fence(server: NativeServer, raw: Any) -> Op[Any]:
    array = raw.items
    size = array.size * PROC_SIZE
    if raw.infos.size or raw.size or size > MOST_PROCS * PROC_SIZE:
        return ops.FenceUpcall(items_of(server, array), merged(infos_of(server, raw)), _bytes(raw))
    # A job does the same fence again and again.
    key = bytes(ffi.buffer(array.array, size))
    op = server.fences.get(key)
    if op is None:
        op = ops.FenceUpcall(items_of(server, array))
        if len(server.fences) >= MOST_FENCES:
            server.fences.clear()
        server.fences[key] = op
    return op


def _publish(server: NativeServer, raw: Any) -> Op[Any]:
    terms = {keys.RANGE: RANGE_SESSION, keys.PERSISTENCE: PERSIST_APP}
    data: list[Info] = []
    directives: list[Info] = []
    for info in infos_of(server, raw):
        if info.key in terms:
            terms[info.key] = info.value.data
        else:
            (directives if info.key.startswith(ops.RESERVED_PREFIX) else data).append(info)
    return ops.Publish(tuple(data), terms[keys.RANGE], terms[keys.PERSISTENCE], tuple(directives))


def _keys(server: NativeServer, raw: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(items_of(server, raw.items)))


def _events(server: NativeServer, raw: Any) -> Op[Any]:
    return ops.RegisterEvents(_codes(server, raw), infos_of(server, raw))


def _codes(server: NativeServer, raw: Any) -> tuple[int, ...]:
    found = tuple(dict.fromkeys(items_of(server, raw.items)))
    return () if DEFAULT in found else found


def _event(server: NativeServer, raw: Any) -> Op[Any] | None:
    code, range = raw.number & 0xFFFFFFFF, raw.number >> 32
    if range in (RANGE_LOCAL, RANGE_PROC_LOCAL) or (raw.sourced and get_proc(raw.source) == server.proc):
        # Nobody else is to hear of it, or the host has raised it itself.
        return None
    return ops.NotifyEvent(code - ((code & 1 << 31) << 1), range or RANGE_SESSION, infos_of(server, raw))


def _log(server: NativeServer, raw: Any) -> Op[Any]:
    timestamp, rest = 0, []
    source = get_proc(raw.source) if raw.sourced else None
    for info in directives_of(server, raw.more):
        if info.key == keys.LOG_TIMESTAMP and isinstance(info.value.data, int):
            timestamp = max(0, info.value.data)
        elif info.key != keys.LOG_SOURCE or info.value.data != source:
            rest.append(info)
    return ops.Log(infos_of(server, raw), tuple(rest), timestamp)


def _pull(server: NativeServer, raw: Any) -> Op[Any] | None:
    infos = infos_of(server, raw)
    procs = items_of(server, raw.items)
    if all(info.key != keys.IOF_STOP for info in infos):
        op = ops.IOFPull(procs, raw.number, infos)
        server.pulling.append(op)
        return op
    name = frozenset(procs), int(raw.number)
    if not procs and len(server.feeds) == 1 and not server.pulling:
        # Releases do not say which, and there is only one that it can be.
        (name,) = server.feeds
    numbers = server.feeds.get(name)
    if not numbers:
        return None
    number = numbers.pop()
    if not numbers:
        del server.feeds[name]
    return None if number is None else ops.IOFDeregister(number, tuple([i for i in infos if i.key != keys.IOF_STOP]))


def _fabric(server: NativeServer, raw: Any) -> Op[Any]:
    infos = infos_of(server, raw)
    if raw.number != FABRIC_UPDATE:
        return ops.FabricRegister(infos)
    return ops.FabricUpdate(next((info.value.data for info in infos if info.key == keys.FABRIC_INDEX), 0))


ROWS: dict[int, Row] = {
    lib.PYPMIX_UP_CLIENT_CONNECTED2: Row(_connected),
    lib.PYPMIX_UP_CLIENT_FINALIZED: Row(_finalized),
    lib.PYPMIX_UP_ABORT: Row(
        lambda server, raw: ops.ClientAborted(
            _source(raw), raw.number, string(raw.text) or "", items_of(server, raw.items)
        )
    ),
    lib.PYPMIX_UP_FENCE: Row(_fence, asks=False, data=True),
    lib.PYPMIX_UP_DIRECT_MODEX: Row(
        lambda server, raw: ops.DirectModex(_source(raw), infos_of(server, raw)), asks=False, data=True
    ),
    lib.PYPMIX_UP_PUBLISH: Row(_publish),
    lib.PYPMIX_UP_LOOKUP: Row(lambda server, raw: ops.Lookup(_keys(server, raw), infos_of(server, raw)), _found),
    lib.PYPMIX_UP_UNPUBLISH: Row(lambda server, raw: ops.Unpublish(_keys(server, raw), infos_of(server, raw))),
    lib.PYPMIX_UP_SPAWN: Row(
        lambda server, raw: ops.Spawn(items_of(server, raw.items), infos_of(server, raw)), _nspace
    ),
    lib.PYPMIX_UP_CONNECT: Row(
        lambda server, raw: ops.Connect(items_of(server, raw.items), merged(infos_of(server, raw)))
    ),
    lib.PYPMIX_UP_DISCONNECT: Row(
        lambda server, raw: ops.Disconnect(items_of(server, raw.items), merged(infos_of(server, raw)))
    ),
    lib.PYPMIX_UP_REGISTER_EVENTS: Row(_events, refused=_local),
    lib.PYPMIX_UP_DEREGISTER_EVENTS: Row(lambda server, raw: ops.DeregisterEvents(_codes(server, raw)), refused=_local),
    lib.PYPMIX_UP_NOTIFY_EVENT: Row(_event, refused=_local),
    lib.PYPMIX_UP_QUERY: Row(lambda server, raw: ops.QueryInfo(items_of(server, raw.items)), _answers, _own_answers),
    lib.PYPMIX_UP_TOOL_CONNECTED: Row(tools.connected, tools.admitted),
    lib.PYPMIX_UP_TOOL_CONNECTED2: Row(tools.connected, tools.admitted),
    lib.PYPMIX_UP_LOG: Row(_log),
    lib.PYPMIX_UP_LOG2: Row(_log),
    lib.PYPMIX_UP_ALLOCATE: Row(lambda server, raw: ops.AllocationRequest(raw.number, infos_of(server, raw)), _infos),
    lib.PYPMIX_UP_JOB_CONTROL: Row(
        lambda server, raw: ops.JobControl(items_of(server, raw.items), infos_of(server, raw)), _infos
    ),
    lib.PYPMIX_UP_MONITOR: Row(
        lambda server, raw: ops.ProcessMonitor(directives_of(server, raw.more)[0], raw.number, infos_of(server, raw)),
        _infos,
    ),
    lib.PYPMIX_UP_GET_CREDENTIAL: Row(lambda server, raw: ops.GetCredential(infos_of(server, raw)), _credential),
    lib.PYPMIX_UP_VALIDATE_CREDENTIAL: Row(
        lambda server, raw: ops.ValidateCredential(_bytes(raw), infos_of(server, raw)),
        _infos,
    ),
    lib.PYPMIX_UP_IOF_PULL: Row(_pull, _feed, _unfed),
    lib.PYPMIX_UP_PUSH_STDIN: Row(
        lambda server, raw: ops.IOFPush(
            items_of(server, raw.items),
            _bytes(raw),
            infos_of(server, raw),
        )
    ),
    lib.PYPMIX_UP_GROUP: Row(groups.asked, groups.answered, groups.alone),
    lib.PYPMIX_UP_FABRIC: Row(_fabric, _infos),
    lib.PYPMIX_UP_SESSION_CONTROL: Row(
        lambda server, raw: ops.SessionControl(raw.number, infos_of(server, raw)), _infos
    ),
    lib.PYPMIX_UP_RESOURCE_BLOCK: Row(
        lambda server, raw: ops.ResourceBlock(
            raw.number, string(raw.text) or "", items_of(server, raw.items), infos_of(server, raw)
        )
    ),
}
"""Each upcall that a host of ours is asked."""
