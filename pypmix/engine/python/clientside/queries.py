"""The client's side of queries, and of the procs of a node and the nodes of a job."""

from __future__ import annotations

from pypmix.engine.answers import OPEN, completed
from pypmix.engine.python.clientside.exchanges import UNOFFERED, reply, request
from pypmix.engine.python.datastore import Wanted, is_true
from pypmix.standard import codes, keys, statuses, types
from pypmix.standard.errors import SUCCESSES, NotFound, RemoteProtocolError
from pypmix.standard.ops import RESERVED_PREFIX, QueryInfo, ResolveNodes, ResolvePeers
from pypmix.standard.types import DataArray, Info, Proc, Query, Value
from pypmix.wire.messages import Command, encode_get, read_get_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

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
"""Qualifiers that say whose value is wanted; with others the answer is the server's."""


RESOLVING: tuple[int, int, int] = (5, 0, 7)
"""The first release of a server that resolves peers and nodes."""

TELLING: tuple[int, int, int] = (5, 0, 0)
"""The first release of a server that tells what it supports; earlier ones crash when they are asked."""

_TRUE = Value.unchecked(codes.BOOL, True)
_NODE_INFO = Info.unchecked(keys.NODE_INFO, _TRUE, 0)
_IMMEDIATE = Info.unchecked(keys.IMMEDIATE, _TRUE, 0)

# Queries.


def _query(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, QueryInfo)
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
                value = _known(client, key, query.qualifiers)
                if value is None:
                    asked.append(key)
            answers.append(Info.unchecked(key, value or OPEN, 0))
        if asked:
            rest.append(Query(tuple(asked), query.qualifiers))
    call.infos = tuple(answers)
    if rest and client.server is not None and not client.slurm:
        request(client, call, Command.QUERY, queries=tuple(rest))
        return
    found = completed(call.infos, ())
    if found:
        client._end(call, found)
    elif client.server is None:
        client._end(call, error=client._alone(call))
    elif client.slurm:
        from pypmix.engine.slurm import error

        client._end(call, error=client._named(error(), op))
    else:
        client._end(
            call, error=client._error(call, statuses.ERR_NOT_SUPPORTED, "this server does not tell what it supports")
        )


def _known(client: Client, key: str, qualifiers: tuple[Info, ...]) -> Value | None:
    """Return what is in this process already."""
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
    wanted = Wanted(tuple(directives))
    value = client.store.find(Proc.unchecked(nspace or client.proc[0], rank), key, wanted)
    return value if value is not None or qualifiers else client.store.find(client.proc, key, wanted)


def _support(qualifiers: tuple[Info, ...]) -> tuple[Value | None, list[tuple[Info, ...]]]:
    """Return what this process tells of its own support, and the qualifiers of what the server is to be asked."""
    from pypmix.engine.python.support import CLIENT, elsewhere, supported

    qualifiers = tuple([info for info in qualifiers if info.key != keys.QUERY_REFRESH_CACHE])
    own = supported(CLIENT, qualifiers)
    value = Value.unchecked(codes.DATA_ARRAY, DataArray(codes.INFO, tuple(own))) if own else None
    return value, elsewhere(qualifiers)


def _answered(client: Client, call: Call, payload: bytes) -> None:
    op = call.op
    assert isinstance(op, QueryInfo)
    fields = reply(client, Command.QUERY, payload)
    # Servers tell of a partial success in many ways: with that status, with one for what they lack, or with -1.
    found = completed(call.infos, fields["infos"])
    status = fields["status"]
    if found:
        client._end(call, found)
        return
    names = ", ".join([repr(key) for query in op.queries for key in query.keys])
    if status in SUCCESSES or status == statuses.ERR_NOT_FOUND:
        error = NotFound(f"nobody has an answer to {names}" + call.because)
        client._end(call, error=client._named(error, op))
    elif status == statuses.ERR_NOT_SUPPORTED:
        client._end(call, error=client._error(call, status, f"the server's host does not answer {names}"))
    else:
        client._end(
            call, error=client._error(call, status, "it took too long" if status == statuses.ERR_TIMEOUT else "")
        )


# Peers and nodes.


def _resolves(client: Client) -> bool:
    """Tell whether the server resolves; that of Slurm's later releases knows of no nspace, not even its own."""
    return client.server is not None and client.release >= RESOLVING and not client.slurm


def _resolve_peers(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, ResolvePeers)
    if _resolves(client):
        request(client, call, Command.RESOLVE_PEERS, node=op.node, nspace=op.nspace)
    else:
        _resolve_here(client, call, op.nspace)


def _resolve_nodes(client: Client, call: Call) -> None:
    op = call.op
    assert isinstance(op, ResolveNodes)
    if _resolves(client):
        request(client, call, Command.RESOLVE_NODE, nspace=op.nspace)
    else:
        _resolve_here(client, call, op.nspace)


def _resolve_here(client: Client, call: Call, nspace: str | None) -> None:
    """Answer from the job info, which has to be fetched first where it is another job's."""
    known = client.store.nspaces()
    if nspace is None or nspace in known:
        _end_with(client, call, [nspace] if nspace else known)
    elif client.server is None:
        client._end(call, error=_unknown(client, call))
    else:
        call.phase = "job info"
        kind, release = client.buffer_type, client.release
        client._request(call, encode_get(kind, nspace, types.RANK_WILDCARD, (_IMMEDIATE,), keys.LOCAL_PEERS, release))


def _end_with(client: Client, call: Call, nspaces: list[str]) -> None:
    op = call.op
    if isinstance(op, ResolvePeers):
        client._end(call, tuple([proc for name in nspaces for proc in _peers(client, name, op.node)]))
    else:
        client._end(call, tuple(dict.fromkeys([node for name in nspaces for node in client.store.nodes(name)])))


def _peers(client: Client, nspace: str, node: str | None) -> list[Proc]:
    name = client.store.hostname if node is None else node
    wanted = Wanted((_NODE_INFO, Info.unchecked(keys.HOSTNAME, Value.unchecked(codes.STRING, name), 0)))
    job = Proc.unchecked(nspace, types.RANK_WILDCARD)
    value = client.store.find(job, keys.LOCAL_PEERS, wanted)
    if value is None and name == client.store.hostname:
        value = client.store.find(job, keys.LOCAL_PEERS, Wanted())
    ranks = str(value.data).split(",") if value is not None and value.data else []
    return [Proc(nspace, rank) for rank in sorted([int(rank) for rank in ranks])]


def _unknown(client: Client, call: Call) -> NotFound:
    op = call.op
    assert isinstance(op, ResolvePeers | ResolveNodes)
    error = NotFound(f"no nspace {op.nspace!r} is known here", status=statuses.ERR_INVALID_NAMESPACE)
    client._named(error, op)
    return error


def _told(client: Client, call: Call, command: int, payload: bytes) -> dict[str, object] | None:
    """Return the fields of a reply that brings an answer; see to the others."""
    if call.phase:
        _job_info(client, call, payload)
        return None
    fields = reply(client, command, payload)
    status = fields["status"]
    if status in SUCCESSES:
        return fields
    if status in (statuses.ERR_INVALID_NAMESPACE, statuses.ERR_NOT_FOUND):
        client._end(call, error=_unknown(client, call))
    else:
        client._end(call, error=client._error(call, status, UNOFFERED if status == statuses.ERR_NOT_SUPPORTED else ""))
    return None


def _job_info(client: Client, call: Call, payload: bytes) -> None:
    op = call.op
    assert isinstance(op, ResolvePeers | ResolveNodes) and op.nspace is not None
    fields = reply(client, Command.GETNB, payload)
    if fields["status"] in SUCCESSES:
        for item in fields["objects"]:
            client.store.add(*read_get_object(item, client.buffer_type, client.release)[:2])
    if op.nspace in client.store.nspaces():
        _end_with(client, call, [op.nspace])
    else:
        client._end(call, error=_unknown(client, call))


def _peers_resolved(client: Client, call: Call, payload: bytes) -> None:
    fields = _told(client, call, Command.RESOLVE_PEERS, payload)
    if fields is not None:
        client._end(call, fields["procs"])


def _nodes_resolved(client: Client, call: Call, payload: bytes) -> None:
    fields = _told(client, call, Command.RESOLVE_NODE, payload)
    if fields is not None:
        nodes = fields["nodes"] or ""
        if not isinstance(nodes, str):
            raise RemoteProtocolError("the names of the nodes are no string")
        client._end(call, tuple([name for name in nodes.split(",") if name]))


STARTS: dict[type, Callable[[Client, Call], None]] = {
    QueryInfo: _query,
    ResolvePeers: _resolve_peers,
    ResolveNodes: _resolve_nodes,
}

REPLIES: dict[type, Callable[[Client, Call, bytes], None]] = {
    QueryInfo: _answered,
    ResolvePeers: _peers_resolved,
    ResolveNodes: _nodes_resolved,
}
