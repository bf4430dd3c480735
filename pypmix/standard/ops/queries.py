"""Queries about the system, its jobs and their procs."""

from __future__ import annotations

from pypmix.standard.ops.core import Op, check_key, instances
from pypmix.standard.types import MAX_NSLEN, Info, Proc, Query, check_name


class QueryInfo(Op[tuple[Info, ...]]):
    """`PMIx_Query_info`: values for keys such as `attrs.QUERY_NAMESPACES`. Also an upcall.

    The result has one info for each key that was found, in the order of the queries; some keys may be missing. If no
    key was found, that is an error.
    """

    queries: tuple[Query, ...]

    def __validate__(self) -> None:
        super().__validate__()
        if not self.queries:
            raise ValueError("there is nothing to query")
        for query in self.queries:
            if not isinstance(query.keys, tuple) or not query.keys:
                raise ValueError("a query needs a tuple of at least one key")
            for key in query.keys:
                check_key(key)
            instances("qualifiers", query.qualifiers, Info)


def _names(node: str | None, nspace: str | None) -> None:
    if node is not None:
        check_name(node, 1024, "a node's name")
    if nspace is not None:
        check_name(nspace, MAX_NSLEN, "an nspace")


class ResolvePeers(Op[tuple[Proc, ...]]):
    """`PMIx_Resolve_peers`: the procs of an nspace (None: of all) that run on a node (None: the caller's)."""

    node: str | None = None
    nspace: str | None = None

    def __validate__(self) -> None:
        super().__validate__()
        _names(self.node, self.nspace)


class ResolveNodes(Op[tuple[str, ...]]):
    """`PMIx_Resolve_nodes`: the nodes on which procs of an nspace run; None means all nspaces."""

    nspace: str | None = None

    def __validate__(self) -> None:
        super().__validate__()
        _names(None, self.nspace)
