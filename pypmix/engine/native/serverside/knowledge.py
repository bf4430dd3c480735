"""Answers about a server's jobs, from the host's registrations, if neither the host nor the library gives them."""

from __future__ import annotations

from pypmix.engine.native.serverside.node import STATE_UNDEF
from pypmix.standard import codes, keys
from pypmix.standard.types import DataArray, Info, Proc, ProcInfo, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.native.serverside.node import Node, Registered
    from pypmix.standard.types import Query


def completed(node: Node, asker: Proc | None, queries: Iterable[Query], theirs: Iterable[Info]) -> list[Info]:
    """Return the answers to queries, in their order: the host's, or the server's own if the host has none.

    If several queries ask for the same key, the host marks a missing answer by an info without a value.
    """
    told: dict[str, list[Value]] = {}
    for info in theirs:
        told.setdefault(info.key, []).append(info.value)
    found = []
    for query in queries:
        for key in query.keys:
            values = told.get(key, [])
            value: Value | None = values.pop(0) if values else None
            if value is None or value.type == codes.UNDEF:
                known = _ANSWERS.get(key)
                value = None if known is None else known(node, _job(node, asker, query), query)
            if value is not None:
                found.append(Info.unchecked(key, value, 0))
    # Infos with other keys may still be useful to the caller.
    found += [Info.unchecked(key, value, 0) for key, values in told.items() for value in values if value.type]
    return found


def _job(node: Node, asker: Proc | None, query: Query) -> Registered | None:
    """Return the job of a query: the job that the query names, or the caller's job."""
    named: Any = None
    for info in query.qualifiers:
        if info.key == keys.NSPACE or (info.key == keys.PROCID and named is None):
            named = info.value.data
    nspace = named.nspace if isinstance(named, Proc) else named
    return node.jobs.get(nspace or (asker.nspace if asker is not None else ""))


def _nspaces(node: Node, _job: object, _query: object) -> Value:
    return Value.unchecked(codes.STRING, ",".join(node.jobs))


def _nspace_info(node: Node, job: Registered | None, query: Query) -> Value | None:
    named = any(info.key == keys.NSPACE for info in query.qualifiers)
    if named and job is None:
        return None
    found = []
    for each in [job] if named and job is not None else node.jobs.values():
        name = Info(keys.NSPACE, Value.unchecked(codes.STRING, each.info.nspace))
        found.append(
            Info(keys.JOB_INFO_ARRAY, _array(codes.INFO, [name, *[i for i in each.info.job if i.key != keys.NSPACE]]))
        )
    return _array(codes.INFO, found)


def _table(node: Node, job: Registered | None, _query: object) -> Value | None:
    return None if job is None else _rows(node, job, range(job.size))


def _local_table(node: Node, job: Registered | None, _query: object) -> Value | None:
    return None if job is None else _rows(node, job, sorted(job.local))


def _rows(node: Node, job: Registered, ranks: Iterable[int]) -> Value:
    hosts = {rank: info.value.data for rank, infos in job.info.procs for info in infos if info.key == keys.HOSTNAME}
    procs = Proc.unchecked_ranks(job.info.nspace, ranks)
    rows = [ProcInfo(proc, hosts.get(proc.rank), None, 0, node.states.get(proc, STATE_UNDEF)) for proc in procs]
    return _array(codes.PROC_INFO, rows)


def _pset_count(node: Node, _job: object, _query: object) -> Value:
    return Value.unchecked(codes.SIZE, len(node.psets))


def _pset_names(node: Node, _job: object, _query: object) -> Value:
    return Value.unchecked(codes.STRING, ",".join(list(node.psets)))


def _pset_members(node: Node, _job: object, query: Query) -> Value | None:
    name = next((info.value.data for info in query.qualifiers if info.key == keys.PSET_NAME), None)
    members = node.psets.get(name) if isinstance(name, str) else None
    return None if members is None else _array(codes.PROC, members)


def _array(type: int, items: Iterable[object]) -> Value:
    return Value.unchecked(codes.DATA_ARRAY, DataArray(type, tuple(items)))


_ANSWERS: dict[str, Callable[[Node, Registered | None, Query], Value | None]] = {
    keys.QUERY_NAMESPACES: _nspaces,
    keys.QUERY_NAMESPACE_INFO: _nspace_info,
    keys.QUERY_PROC_TABLE: _table,
    keys.QUERY_LOCAL_PROC_TABLE: _local_table,
    keys.QUERY_NUM_PSETS: _pset_count,
    keys.QUERY_PSET_NAMES: _pset_names,
    keys.QUERY_PSET_MEMBERSHIP: _pset_members,
}
"""The keys that the server answers; the library answers others from the job info."""
