"""The client's side of queries, and of the procs of a node and the nodes of a job."""

from __future__ import annotations

from pypmix.engine.python.client import UNOFFERED, Operation
from pypmix.engine.python.datastore import GetDirectives, is_true
from pypmix.engine.queryanswers import OPEN, completed
from pypmix.standard import codes, keys, statuses, types
from pypmix.standard.errors import (
    SUCCESSES,
    NotFound,
    RemoteProtocolError,
)
from pypmix.standard.ops import RESERVED_PREFIX, QueryInfo, ResolveNodes, ResolvePeers
from pypmix.standard.types import DataArray, Info, Proc, Query, Value, decimal
from pypmix.wire.messages import Command, encode_get

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.engine.python.client import Call, Client


SELECTORS = frozenset(
    {
        keys.NSPACE,
        keys.PROCID,
        keys.RANK,
        keys.HOSTNAME,
        keys.NODE_INFO,
        keys.NODEID,
        keys.APP_INFO,
        keys.APPNUM,
        keys.SESSION_INFO,
        keys.SESSION_ID,
        keys.JOB_INFO,
    }
)
"""Qualifiers that select the proc or node of a value; with other qualifiers the server answers."""


RESOLVING: tuple[int, int, int] = (5, 0, 7)
"""The first release of a server that resolves peers and nodes."""

TELLING: tuple[int, int, int] = (5, 0, 0)
"""The first release whose servers report their support; earlier servers crash at this query."""

_TRUE = Value.unchecked(codes.BOOL, True)
_NODE_INFO = Info.unchecked(keys.NODE_INFO, _TRUE, 0)
_IMMEDIATE = Info.unchecked(keys.IMMEDIATE, _TRUE, 0)

# Queries.


def _query(client: Client, call: Call, op: QueryInfo) -> None:
    answers: list[Info] = []
    rest: list[Query] = []
    for query in op.queries:
        asked = []
        for key in query.keys:
            if key == keys.QUERY_ATTRIBUTE_SUPPORT:
                value, others = _support(query.qualifiers)
                if client.release >= TELLING:
                    rest += [Query((key,), qualifiers) for qualifiers in others]
            else:
                value = _local_value(client, key, query.qualifiers)
                if value is None:
                    asked.append(key)
            answers.append(Info.unchecked(key, value or OPEN, 0))
        if asked:
            rest.append(Query(tuple(asked), query.qualifiers))
    call.infos = tuple(answers)
    if rest and client.server is not None and not client.slurm:
        client.ask(call, Command.QUERY, queries=tuple(rest))
        return
    found = completed(call.infos, ())
    if found:
        client.end(call, found)
    elif client.server is None:
        client.alone(call)
    elif client.slurm:
        from pypmix.engine.slurm import error

        client.fail(call, error())
    else:
        client.refuse(call, statuses.ERR_NOT_SUPPORTED, "this server does not tell what it supports")


def _local_value(client: Client, key: str, qualifiers: tuple[Info, ...]) -> Value | None:
    """Return the value that this process has already, None if it has none."""
    nspace, rank = client.proc[0], types.RANK_WILDCARD
    directives = []
    for info in qualifiers:
        if info.key == keys.QUERY_REFRESH_CACHE and not is_true(info.value):
            continue
        if info.key not in SELECTORS:
            return None
        data = info.value.data
        if info.key == keys.PROCID:
            nspace, rank = data
        elif info.key == keys.NSPACE:
            nspace = data
        elif info.key == keys.RANK:
            rank = data
        else:
            directives.append(Info.unchecked(info.key, info.value, 0))
    if not key.startswith(RESERVED_PREFIX):
        return None
    get_directives = GetDirectives(tuple(directives))
    value = client.store.find(Proc.unchecked(nspace or client.proc[0], rank), key, get_directives)
    return value if value is not None or qualifiers else client.store.find(client.proc, key, get_directives)


def _support(qualifiers: tuple[Info, ...]) -> tuple[Value | None, list[tuple[Info, ...]]]:
    """Return this process's own support, and the qualifiers of the queries for the server."""
    from pypmix.engine.python.attributes import CLIENT, elsewhere, supported

    qualifiers = tuple([info for info in qualifiers if info.key != keys.QUERY_REFRESH_CACHE])
    own = supported(CLIENT, qualifiers)
    value = Value.unchecked(codes.DATA_ARRAY, DataArray(codes.INFO, tuple(own))) if own else None
    return value, elsewhere(qualifiers)


def _read_query(client: Client, call: Call, payload: bytes) -> tuple[int, tuple[Info, ...]]:
    fields = client.decode(Command.QUERY, payload)
    # Servers report a partial success in many ways: with that status, with a status for a missing value, or with -1.
    return fields["status"], completed(call.infos, fields["infos"])


def _finish_query(client: Client, call: Call, op: QueryInfo, reply: tuple[int, tuple[Info, ...]]) -> None:
    status, answers = reply
    names = ", ".join([repr(key) for query in op.queries for key in query.keys])
    if answers:
        client.end(call, answers)
    elif status in SUCCESSES or status == statuses.ERR_NOT_FOUND:
        client.fail(call, NotFound(f"there is no answer to {names}" + call.because))
    elif status == statuses.ERR_NOT_SUPPORTED:
        client.refuse(call, status, f"the server's host does not answer {names}")
    else:
        client.refuse(call, status, "it took too long" if status == statuses.ERR_TIMEOUT else "")


# Peers and nodes.


def _resolves(client: Client) -> bool:
    """Return True if the server resolves; the server of Slurm's later releases knows no nspace, not even its own."""
    return client.server is not None and client.release >= RESOLVING and not client.slurm


def _resolve(client: Client, call: Call, op: ResolvePeers | ResolveNodes) -> None:
    if not _resolves(client):
        _resolve_here(client, call, op)
    elif isinstance(op, ResolvePeers):
        client.ask(call, Command.RESOLVE_PEERS, node=op.node, nspace=op.nspace)
    else:
        client.ask(call, Command.RESOLVE_NODE, nspace=op.nspace)


def _resolve_here(client: Client, call: Call, op: ResolvePeers | ResolveNodes) -> None:
    """Answer from the job info, which has to be fetched first if it belongs to another job."""
    known = client.store.nspaces()
    if op.nspace is None or op.nspace in known:
        _end_with(client, call, op, [op.nspace] if op.nspace else known)
    elif client.server is None:
        _unknown(client, call, op)
    else:
        call.phase = "job info"
        kind, release = client.buffer_type, client.release
        client.request(call, encode_get(kind, op.nspace, types.RANK_WILDCARD, (_IMMEDIATE,), keys.LOCAL_PEERS, release))


def _end_with(client: Client, call: Call, op: ResolvePeers | ResolveNodes, nspaces: list[str]) -> None:
    if isinstance(op, ResolvePeers):
        client.end(call, tuple([proc for name in nspaces for proc in _peers(client, name, op.node)]))
    else:
        client.end(call, tuple(dict.fromkeys([node for name in nspaces for node in client.store.nodes(name)])))


def _peers(client: Client, nspace: str, node: str | None) -> list[Proc]:
    name = client.store.hostname if node is None else node
    wanted = GetDirectives((_NODE_INFO, Info.unchecked(keys.HOSTNAME, Value.unchecked(codes.STRING, name), 0)))
    job = Proc.unchecked(nspace, types.RANK_WILDCARD)
    value = client.store.find(job, keys.LOCAL_PEERS, wanted)
    if value is None and name == client.store.hostname:
        value = client.store.find(job, keys.LOCAL_PEERS, GetDirectives())
    ranks = str(value.data).split(",") if value is not None and value.data else []
    return Proc.unchecked_ranks(nspace, sorted([each for each in map(decimal, ranks) if each is not None]))


def _unknown(client: Client, call: Call, op: ResolvePeers | ResolveNodes) -> None:
    client.fail(call, NotFound(f"no nspace {op.nspace!r} is known here", status=statuses.ERR_INVALID_NAMESPACE))


def _read_resolved(client: Client, call: Call, payload: bytes) -> tuple[int, Any]:
    """Return the status and the procs or nodes; for a job whose info was fetched, they are not known yet."""
    if call.phase:
        return client.read_get(call, payload)
    peers = isinstance(call.op, ResolvePeers)
    fields = client.decode(Command.RESOLVE_PEERS if peers else Command.RESOLVE_NODE, payload)
    if peers or fields["status"] not in SUCCESSES:
        return fields["status"], fields.get("procs")
    nodes = fields["nodes"] or ""
    if not isinstance(nodes, str):
        raise RemoteProtocolError("the names of the nodes are not a string")
    return fields["status"], tuple([name for name in nodes.split(",") if name])


def _resolved(client: Client, call: Call, op: ResolvePeers | ResolveNodes, reply: tuple[int, Any]) -> None:
    status, found = reply
    if call.phase:
        assert op.nspace is not None
        for proc, values, _ in found:
            client.store.add(proc, values)
        if op.nspace in client.store.nspaces():
            _end_with(client, call, op, [op.nspace])
        else:
            _unknown(client, call, op)
    elif status in SUCCESSES:
        client.end(call, found)
    elif status in (statuses.ERR_INVALID_NAMESPACE, statuses.ERR_NOT_FOUND):
        _unknown(client, call, op)
    else:
        client.refuse(call, status, UNOFFERED if status == statuses.ERR_NOT_SUPPORTED else "")


OPERATIONS = {
    QueryInfo: Operation(_query, _read_query, _finish_query),
    ResolvePeers: Operation(_resolve, _read_resolved, _resolved),
    ResolveNodes: Operation(_resolve, _read_resolved, _resolved),
}
