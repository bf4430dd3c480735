"""Queries, and the procs of a node and the nodes of a job, as calls of the library."""

from __future__ import annotations

from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row, read_results, text_of
from pypmix.engine.native.connection import arguments
from pypmix.engine.native.quirks import ATTRIBUTES, RESOLVING, SINGLE_KEYS, check_types, deadline
from pypmix.engine.queryanswers import OPEN, completed
from pypmix.standard import codes, statuses
from pypmix.standard.errors import NotFound, NotSupported, PMIxError
from pypmix.standard.keys import (
    HOSTNAME,
    IMMEDIATE,
    JOB_SIZE,
    LOCAL_PEERS,
    NODE_INFO,
    NODE_LIST,
    NSPACE,
    OPTIONAL,
    PROCID,
    QUERY_ATTRIBUTE_SUPPORT,
    QUERY_PREFIX,
    QUERY_REFRESH_CACHE,
    RANK,
    TIMEOUT,
)
from pypmix.standard.ops import RESERVED_PREFIX, Get, QueryInfo, ResolveNodes, ResolvePeers
from pypmix.standard.releases import release_text
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Query, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.native.asking import Steps

_UNKNOWN = (statuses.ERR_INVALID_NAMESPACE, statuses.ERR_NOT_FOUND)

_TRUE = Value.unchecked(codes.BOOL, True)
_NODE_INFO = Info.unchecked(NODE_INFO, _TRUE, 0)
_OPTIONAL = Info.unchecked(OPTIONAL, _TRUE, 0)
_IMMEDIATE = Info.unchecked(IMMEDIATE, _TRUE, 0)


def _place(topic: Asking, op: ResolvePeers | ResolveNodes, parameters: Any) -> None:
    topic.marshal.fill(parameters.items, codes.PROC, (Proc(op.nspace or "", 0),))
    assert isinstance(topic, QueriesTopic)
    node = op.node if isinstance(op, ResolvePeers) else None
    if node is None and topic.session.release < RESOLVING:
        node = topic.hostname()
    if node is not None:
        topic.marshal.fill(parameters.more, codes.STRING, (node,))


def _nodes(topic: Asking, call: Any) -> tuple[str, ...]:
    return _split(text_of(topic, call))


def _split(names: str | None) -> tuple[str, ...]:
    return tuple([name for name in (names or "").split(",") if name])


def _keys(op: QueryInfo) -> str:
    return ", ".join([repr(key) for query in op.queries for key in query.keys])


class QueriesTopic(Asking):
    """The queries and resolves of one session."""

    rows: Mapping[type, Row] = {
        QueryInfo: Row(
            lib.PYPMIX_QUERY_INFO,
            failures={
                statuses.ERR_NOT_FOUND: "there is no answer to {}",
                statuses.ERR_NOT_SUPPORTED: "the server's host does not answer {}",
                statuses.ERR_TIMEOUT: "it took too long",
            },
            about=_keys,
            alone=True,
        ),
        ResolvePeers: Row(lib.PYPMIX_RESOLVE_PEERS, _place, read_results),
        ResolveNodes: Row(lib.PYPMIX_RESOLVE_NODES, _place, _nodes),
    }

    def run(self, op: Any) -> Any:
        return self._resolve(op) if self._here(op) else super().run(op)

    def submit(self, op: Any, done: Done[Any]) -> None:
        if self._here(op):
            self.session.background.call(op, done)
        else:
            super().submit(op, done)

    def _here(self, op: Any) -> bool:
        """Return True if gets answer an operation instead of the library."""
        if type(op) is QueryInfo:
            return False
        # Without a server, and with releases that wait for ever for the job info of unknown nspaces.
        return self.session.singleton or (self.session.release < RESOLVING and op.nspace is not None)

    def steps(self, op: Any) -> Steps:
        return self._query(op) if type(op) is QueryInfo else super().steps(op)

    # Queries

    def _query(self, op: QueryInfo) -> Steps:
        local_answers = [
            Info.unchecked(key, self._local_value(key, query.qualifiers) or OPEN, 0)
            for query in op.queries
            for key in query.keys
        ]
        if self.session.slurm or all(info.value is not OPEN for info in local_answers):
            answers = completed(local_answers, ())
            if not answers:
                from pypmix.engine.slurm import error

                raise error()
            return answers

        def fill(parameters: Any) -> None:
            self.marshal.fill(parameters.items, codes.QUERY, self._questions(op, local_answers))

        call = yield self.row(op).what, arguments(fill), self.limit(op)
        try:
            # Servers report a partial success by several statuses: its own, the status of a missing answer, or -1.
            came = call.results.size
            answers = completed(local_answers, read_results(self, call)) if came else ()
            if not answers:
                raise self.error(op, statuses.ERR_NOT_FOUND if came else call.status or statuses.ERR_NOT_FOUND)
            return answers
        finally:
            lib.pypmix_call_free(call)

    def _questions(self, op: QueryInfo, local_answers: list[Info]) -> list[Query]:
        """Return the queries for the library to answer, in a form that is safe for its release."""
        release = self.session.release
        made = []
        answers = iter(local_answers)
        for query in op.queries:
            keys = tuple([key for key in query.keys if next(answers).value is OPEN])
            if not keys:
                continue
            if QUERY_ATTRIBUTE_SUPPORT in keys and release < ATTRIBUTES:
                raise NotSupported(f"libpmix {release_text(release)} crashes when it is asked which attributes it has")
            qualifiers = self._qualifiers(query.qualifiers)
            made += [Query((key,), qualifiers) for key in keys] if release < SINGLE_KEYS else [Query(keys, qualifiers)]
        return made

    def limit(self, op: Any) -> float:
        qualifiers = [info for query in getattr(op, "queries", ()) for info in query.qualifiers if info.key == TIMEOUT]
        return max([deadline((info,)) for info in qualifiers], default=-1.0)

    def _qualifiers(self, qualifiers: tuple[Info, ...]) -> tuple[Info, ...]:
        check_types(qualifiers)
        kept = []
        for info in qualifiers:
            if info.key == NSPACE and not info.value.data:
                continue
            if info.key == PROCID and not info.value.data[0]:
                info = Info.unchecked(
                    PROCID, Value(codes.PROC, Proc(self.session.proc[0], info.value.data[1])), info[2]
                )
            kept.append(info)
        keys = {info.key for info in kept}
        if RANK in keys and not keys & {NSPACE, PROCID}:
            # A rank without an nspace is of this process's nspace. Releases before 7 write through a NULL pointer here.
            kept.insert(0, Info.unchecked(NSPACE, Value.unchecked(codes.STRING, self.session.proc[0]), 0))
        return tuple(kept)

    def _local_value(self, key: str, qualifiers: tuple[Info, ...]) -> Value | None:
        """Return the value of a key that this process holds already; None if it does not hold it."""
        # A server answers a query without an nspace for the server's own nspace.
        if not key.startswith(RESERVED_PREFIX) or key.startswith(QUERY_PREFIX):
            return None
        nspace, rank = "", RANK_WILDCARD
        for info in self._qualifiers(qualifiers):
            if info.key == PROCID:
                nspace, rank = info.value.data
            elif info.key == NSPACE:
                nspace = info.value.data
            elif info.key == RANK:
                rank = info.value.data
            elif info.key != QUERY_REFRESH_CACHE or info.value.data is not False:
                return None
        session = self.session
        value = session.fetch_local(Proc(nspace or session.proc[0], rank), key)
        return value if value is not None or qualifiers else session.fetch_local(session.proc, key)

    def fault(self, op: Any, call: Any) -> int:
        status = super().fault(op, call)
        return 0 if status in _UNKNOWN and op.nspace is None else status

    # Peers and nodes

    def error(self, op: Any, status: int) -> PMIxError:
        if type(op) is not QueryInfo and status in _UNKNOWN:
            return self._unknown(op)
        return super().error(op, status)

    def _unknown(self, op: ResolvePeers | ResolveNodes) -> NotFound:
        session = self.session
        return NotFound(
            f"no nspace {op.nspace!r} is known here",
            status=statuses.ERR_INVALID_NAMESPACE,
            operation=op.name,
            procs=(session.proc,),
            engine=str(session.info),
            job=session.job,
        )

    def _resolve(self, op: ResolvePeers | ResolveNodes) -> tuple[Any, ...]:
        session = self.session
        own = session.proc[0]
        nspace = own if op.nspace is None else op.nspace
        here = self.hostname()
        if session.singleton:
            if nspace != own:
                raise self._unknown(op)
            if isinstance(op, ResolveNodes):
                return (here,)
            return (session.proc,) if op.node in (None, here) else ()
        job = Proc(nspace, RANK_WILDCARD)
        if nspace != own and session.fetch_local(job, JOB_SIZE) is None:
            try:
                session.run(Get(job, JOB_SIZE, (_IMMEDIATE,)))
            except NotFound:
                raise self._unknown(op) from None
        if isinstance(op, ResolveNodes):
            return _split(self._local_text(job, NODE_LIST, ()))
        node = Info.unchecked(HOSTNAME, Value.unchecked(codes.STRING, op.node or here), 0)
        ranks = self._local_text(job, LOCAL_PEERS, (_NODE_INFO, node))
        return tuple([Proc(nspace, rank) for rank in sorted([int(rank) for rank in _split(ranks)])])

    def _local_text(self, job: Proc, key: str, directives: tuple[Info, ...]) -> str | None:
        try:
            value = self.session.run(Get(job, key, (*directives, _OPTIONAL)))
        except NotFound:
            return None
        return value.data if isinstance(value.data, str) else None

    def hostname(self) -> str:
        """Return the name of this process's node, as in its job info."""
        value = self.session.fetch_local(self.session.proc, HOSTNAME)
        if value is not None and isinstance(value.data, str):
            return value.data
        import socket

        return socket.gethostname()
