"""Queries, and the procs of a node and the nodes of a job."""

from __future__ import annotations

from pypmix.aio.operations.base import Asks
from pypmix.psets import ProcSet
from pypmix.requests import MISSING
from pypmix.requests.queries import UNANSWERED, answers, passable, queries_op, query_op, retries
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import ResolveNodes, ResolvePeers
from pypmix.standard.values import to_answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from pypmix.answers import Answers
    from pypmix.requests import Infos, Key, Target
    from pypmix.standard.types import Info, Query


class Queries(Asks):
    """Queries, and the procs of a node and the nodes of a job."""

    async def query(
        self,
        key: Key,
        *,
        default: Any = MISSING,
        nspace: str | None = None,
        proc: Target = None,
        node: str | None = None,
        refresh: bool = False,
        info: Infos = None,
    ) -> Any:
        """`PMIx_Query_info` of one key: what the server, or this process itself, knows under it.

        Args:
            key: What to ask, such as `attrs.QUERY_NAMESPACES`, `attrs.QUERY_PROC_TABLE` or `attrs.JOB_SIZE`.
            default: Returned instead of raising `NotFound` or `NotSupported`.
            nspace: The job that is asked about; the caller's own by default.
            proc: The proc that is asked about, or its rank in the caller's job.
            node: The node that is asked about.
            refresh: Ask the server even for what this process knows (`PMIX_QUERY_REFRESH_CACHE`).
            info: Further qualifiers as infos or a mapping.

        Returns:
            The value as a plain Python object, with arrays as lists, a table of procs as a list of `ProcInfo`.

        Raises:
            NotFound: There is no answer, and no default was given.
            NotSupported: The server's host does not answer such a question, and no default was given.
            Unreachable: The caller is a singleton and does not know it itself.

        PMIx Standard: "Query".
        """
        op = query_op((key,), nspace, self._target(proc), node, refresh, info)
        try:
            return to_answer((await self._run(op))[0].value)
        except UNANSWERED:
            if default is MISSING:
                raise
            return default

    async def query_all(
        self,
        keys: Iterable[Key],
        *,
        nspace: str | None = None,
        proc: Target = None,
        node: str | None = None,
        refresh: bool = False,
        info: Infos = None,
    ) -> Answers:
        """`PMIx_Query_info` of several keys under the same qualifiers: as many answers as there are.

        Args:
            keys: What to ask.
            nspace: The job that is asked about; the caller's own by default.
            proc: The proc that is asked about, or its rank in the caller's job.
            node: The node that is asked about.
            refresh: Ask the server even for what this process knows (`PMIX_QUERY_REFRESH_CACHE`).
            info: Further qualifiers as infos or a mapping.

        Returns:
            A dict of keys and plain values; its `missing` holds the keys without an answer.

        Raises:
            Unreachable: The caller is a singleton and knows none of it itself.

        PMIx Standard: "Query".
        """
        op = query_op(keys, nspace, self._target(proc), node, refresh, info)
        found: list[Info] = []
        failure = None
        try:
            found += await self._run(op)
        except PMIxError as error:
            failure = error
        alone = self._session.singleton
        for single in retries(op, found, failure, alone):
            try:
                found += await self._run(single)
            except PMIxError as error:
                if not passable(error, alone):
                    raise
        if failure is not None and not found and not isinstance(failure, UNANSWERED):
            raise failure
        return answers(op, found)

    async def query_info(self, queries: Query | Iterable[Query]) -> tuple[Info, ...]:
        """`PMIx_Query_info`, with queries that have qualifiers of their own, and values with their PMIx types.

        Args:
            queries: One `Query` or several: keys, and qualifiers that hold for all of them.

        Returns:
            The answers in the order of the questions, one info for each key; those without an answer are left out.

        Raises:
            NotFound: There is no answer to any of them.
            NotSupported: The server's host does not answer such questions.
            Unreachable: The caller is a singleton and knows none of it itself.

        PMIx Standard: "Query".
        """
        return await self._run(queries_op(queries))

    async def resolve_peers(self, node: str | None = None, nspace: str | None = None) -> ProcSet:
        """`PMIx_Resolve_peers`: the procs that run on a node.

        Args:
            node: The node's name; the caller's own node by default.
            nspace: Only the procs of this job; those of all jobs that are known by default.

        Returns:
            The procs by nspace and rank, none where the node has none of them.

        Raises:
            NotFound: There is no such nspace.

        PMIx Standard: Process-Related Reserved Keys, "Resolve".
        """
        # Servers name them in any order.
        return ProcSet(sorted(await self._run(ResolvePeers(node, nspace))))

    async def resolve_nodes(self, nspace: str | None = None) -> tuple[str, ...]:
        """`PMIx_Resolve_nodes`: the nodes on which the procs of a job run.

        Args:
            nspace: The job; all jobs that are known by default.

        Returns:
            The names of the nodes.

        Raises:
            NotFound: There is no such nspace.

        PMIx Standard: Process-Related Reserved Keys, "Resolve".
        """
        return await self._run(ResolveNodes(nspace))
