# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Queries, and the procs of a node and the nodes of a job."""

from __future__ import annotations

from pypmix.answers import UNANSWERED, Answers
from pypmix.arguments import MISSING, flag
from pypmix.operations.base import Asks
from pypmix.psets import ProcSet
from pypmix.standard import codes, statuses
from pypmix.standard.attr import Attr
from pypmix.standard.errors import PartialSuccess, PMIxError, Unreachable
from pypmix.standard.keys import HOSTNAME, NSPACE, PROCID, QUERY_REFRESH_CACHE
from pypmix.standard.ops import QueryInfo, ResolvePeers
from pypmix.standard.types import Info, Query, Value
from pypmix.standard.values import infos, to_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any, overload

    from pypmix.arguments import Infos, Key, Target
    from pypmix.standard.types import Proc


class Queries(Asks):
    """Queries, and the procs of a node and the nodes of a job."""

    if TYPE_CHECKING:

        @overload
        def query(
            self,
            key: Key,
            *,
            default: Any = MISSING,
            nspace: str | None = None,
            proc: Target = None,
            node: str | None = None,
            refresh: bool = False,
            info: Infos = None,
        ) -> Any: ...

        @overload
        def query(
            self,
            key: Iterable[Key],
            *,
            nspace: str | None = None,
            proc: Target = None,
            node: str | None = None,
            refresh: bool = False,
            info: Infos = None,
        ) -> Answers: ...

    def query(
        self,
        key: Key | Iterable[Key],
        *,
        default: Any = MISSING,
        nspace: str | None = None,
        proc: Target = None,
        node: str | None = None,
        refresh: bool = False,
        info: Infos = None,
    ) -> Any:
        """`PMIx_Query_info`: return the value of a key, or of several keys, from the server or this process.

        Args:
            key: A key such as `attrs.QUERY_NAMESPACES`, `attrs.QUERY_PROC_TABLE` or `attrs.JOB_SIZE`; or a collection
                of keys, which are queried with the same qualifiers.
            default: Returned instead of raising `NotFound` or `NotSupported`, for a single key.
            nspace: The job that is asked about; the caller's own by default.
            proc: The proc that is asked about, or its rank in the caller's job.
            node: The node that is asked about.
            refresh: Ask the server even for values that this process knows (`PMIX_QUERY_REFRESH_CACHE`).
            info: Further qualifiers as infos or a mapping.

        Returns:
            For a single key the value as a plain Python object, with arrays as lists, a table of procs as a list of
            `ProcInfo`. For several a dict of keys and such values; its `missing` holds the keys without an answer.

        Raises:
            NotFound: There is no answer to the single key, and no default was given.
            NotSupported: The server's host does not answer such a question, and no default was given.
            Unreachable: The caller is a singleton and does not know it itself.

        Example:
            >>> jobs = me.query(attrs.QUERY_NAMESPACES)
            >>> found = me.query([attrs.JOB_SIZE, attrs.UNIV_SIZE])

        PMIx Standard: "Query".
        """
        qualifiers = _qualifiers(nspace, self._target(proc), node, refresh, info)
        if not isinstance(key, str | bytes | Attr) and hasattr(key, "__iter__"):
            if default is not MISSING:
                raise TypeError("a default is for a single key: the result for several has `missing`")
            return self._query_each(tuple(dict.fromkeys([_name(each) for each in key])), qualifiers)
        try:
            return to_answer((self._run(QueryInfo((Query((_name(key),), qualifiers),))))[0].value)
        except UNANSWERED:
            if default is MISSING:
                raise
            return default

    def _query_each(self, names: tuple[str, ...], qualifiers: tuple[Info, ...]) -> Answers:
        found: list[Info] = []
        failure = None
        try:
            found += self._run(QueryInfo((Query(names, qualifiers),)))
        except PMIxError as error:
            failure = error
        alone = self._session.singleton
        missing = {*names} - {info.key for info in found}
        if len(missing) > 1 and (failure is None or _is_partial(failure, alone)):
            # Some servers stop at the first key that they do not know; some libraries return no partial answer.
            for name in [name for name in names if name in missing]:
                try:
                    found += self._run(QueryInfo((Query((name,), qualifiers),)))
                except PMIxError as error:
                    if not _is_partial(error, alone):
                        raise
        if failure is not None and not found and not isinstance(failure, UNANSWERED):
            raise failure
        return Answers(found, names)

    def _resolve_peers(self, node: str | None = None, nspace: str | None = None) -> ProcSet:
        # Servers name them in any order.
        return ProcSet(sorted(self._run(ResolvePeers(node, nspace))))


def _name(key: Any) -> str:
    return key.key if isinstance(key, Attr) else key


def _qualifiers(
    nspace: str | None, proc: Proc | None, node: str | None, refresh: bool, info: Infos
) -> tuple[Info, ...]:
    found = infos(info)
    if nspace is not None:
        found += (Info(NSPACE, Value(codes.STRING, nspace)),)
    if proc is not None:
        found += (Info(PROCID, Value(codes.PROC, proc)),)
    if node is not None:
        found += (Info(HOSTNAME, Value(codes.STRING, node)),)
    return (*found, flag(QUERY_REFRESH_CACHE)) if refresh else found


def _is_partial(error: PMIxError, alone: bool) -> bool:
    """Return True if there may be answers in spite of an error, or if it reports that there are none.

    Args:
        error: The error of a query.
        alone: Whether there is no server that could be lost.
    """
    expected = (*UNANSWERED, PartialSuccess, *((Unreachable,) if alone else ()))
    return isinstance(error, expected) or error.code == statuses.ERROR
