"""The arguments and results of queries, and of the procs of a node and the nodes of a job."""

from __future__ import annotations

from pypmix.answers import Answers
from pypmix.standard import codes, statuses
from pypmix.standard.attr import Attr
from pypmix.standard.errors import NotFound, NotSupported, PartialSuccess, PMIxError, Unreachable
from pypmix.standard.keys import HOSTNAME, NSPACE, PROCID, QUERY_REFRESH_CACHE
from pypmix.standard.ops import QueryInfo
from pypmix.standard.types import Info, Proc, Query, Value
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.requests import Infos, Key

UNANSWERED = (NotFound, NotSupported)
"""The statuses by which a server says that no key has an answer."""


def query_op(
    keys: Iterable[Key], nspace: str | None, proc: Proc | None, node: str | None, refresh: bool, info: Infos
) -> QueryInfo:
    if isinstance(keys, str | Attr):
        raise TypeError(f"keys are a collection of keys, not the single key {str(keys)!r}: query() takes that")
    names = tuple(dict.fromkeys([_key(key) for key in keys]))
    qualifiers = infos(info)
    if nspace is not None:
        qualifiers += (Info(NSPACE, Value(codes.STRING, nspace)),)
    if proc is not None:
        qualifiers += (Info(PROCID, Value(codes.PROC, proc)),)
    if node is not None:
        qualifiers += (Info(HOSTNAME, Value(codes.STRING, node)),)
    if refresh:
        qualifiers += (Info(QUERY_REFRESH_CACHE, Value(codes.BOOL, True)),)
    return QueryInfo((Query(names, qualifiers),))


def queries_op(queries: Query | Iterable[Query]) -> QueryInfo:
    return QueryInfo((queries,) if isinstance(queries, Query) else tuple(queries))


def retries(op: QueryInfo, found: Iterable[Info], error: PMIxError | None, alone: bool) -> list[QueryInfo]:
    """Return the queries that tell whether keys without an answer have one after all.

    Some servers stop at the first key that they do not know, and some libraries keep a partial answer to themselves.
    """
    (query,) = op.queries
    if error is not None and not passable(error, alone):
        return []
    known = {info.key for info in found}
    missing = [key for key in query.keys if key not in known]
    return [QueryInfo((Query((key,), query.qualifiers),)) for key in missing] if len(missing) > 1 else []


def passable(error: PMIxError, alone: bool) -> bool:
    """Tell whether an error may hide that there are answers, or says that there are none.

    Args:
        error: The error of a query.
        alone: Whether there is no server that could be lost.
    """
    expected = (*UNANSWERED, PartialSuccess, *((Unreachable,) if alone else ()))
    return isinstance(error, expected) or error.code == statuses.ERROR


def answers(op: QueryInfo, found: Iterable[Info]) -> Answers:
    return Answers(found, [key for query in op.queries for key in query.keys])


def _key(key: Key) -> str:
    return key.key if isinstance(key, Attr) else key
