"""The crossings of a host: one for the server of each node, in this process, all on the host's loop."""

from __future__ import annotations

import os
import time

from pypmix.engine.common import Pending
from pypmix.host.exchange import Crossing, Exchange, Hub
from pypmix.host.rank import FINALIZED, STARTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.engine.base import Upcall
    from pypmix.host.exchange.border import Border
    from pypmix.host.joining import Joining
    from pypmix.host.manager import Manager
    from pypmix.host.nodes import HostNode
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Proc

WITH_HOST = ", with the host"
"""The end of the label of an operation that all procs of a server have called."""

REQUESTS = ("get", "dmodex_request")
"""The operations of one proc, which other procs do not join."""


class Exchanging:
    """The crossing of a host that has one node, and an exchange with the hosts of other nodes.

    Args:
        host: The host.
        crossing: Answers the upcalls of its server.
    """

    prompt = True

    def __init__(self, host: Manager, crossing: Crossing | Border) -> None:
        self._host = host
        self._crossing = crossing

    def _of(self, _node: HostNode) -> Crossing | Border:
        """Return the crossing of a node's server."""
        return self._crossing

    def answer(self, node: HostNode, upcall: Upcall) -> bool:
        """Answer an upcall of a node's server; return True if it is answered here."""
        return self._of(node).answer(upcall)

    def register(self, job: RunningJob) -> None:
        """Register a job before the server knows it."""
        places = {rank: node.hostname for node in job.job.nodes for rank in node.ranks}
        self._crossing.register(job.job, places)

    def deregister(self, nspace: str) -> None:
        """Forget a job."""
        self._crossing.deregister(nspace)

    def connected(self, node: HostNode, proc: Proc) -> None:
        """Record that a proc has connected, for the first time or again."""
        self._of(node).connected(proc)

    def finalized(self, node: HostNode, proc: Proc) -> None:
        """Record that a proc has finalized: it may reconnect; collectives it has not joined stop waiting."""
        self._of(node).finalized(proc)

    def departed(self, node: HostNode, proc: Proc) -> None:
        """Record that a proc has ended or was lost: collectives do not wait for it."""
        self._of(node).departed(proc)

    def pending(self) -> list[Pending]:
        """Return the pending operations, oldest first."""
        return merged(self._host.server.pending(), self._crossing.pending())

    def close(self) -> None:
        """Do nothing: the exchange does not belong to the manager."""


class Crossings(Exchanging):
    """The crossings of a host with several nodes, or of constructs whose callers do not name all members.

    Args:
        host: The host.
        joining: The other clusters that it is joined with; None for none.
        hub: The simulation that connects the exchanges of its nodes, whose clock they use; by default a hub on the
            host's loop.
    """

    prompt = False
    """All of it happens on the host's loop."""

    def __init__(
        self,
        host: Manager,
        joining: Joining | None = None,
        hub: Hub | None = None,
    ) -> None:
        self._host = host
        self._exchanges: list[Exchange] = []
        self._claim = -1
        self._crossings: Sequence[Crossing | Border] = ()
        servers = [node.server for node in host.nodes]
        if joining is None:
            now = time.monotonic if hub is None else hub.clock.time
            hub = hub or Hub(host.loop.soon)
            for node in host.nodes:
                self._exchanges.append(Exchange(hub.carrier(node.hostname), later=host.loop.later, now=now))
            self._crossings = [
                Crossing(*both, hop=host.loop.post) for both in zip(servers, self._exchanges, strict=True)
            ]
        else:
            from pypmix.host.exchange.border import Border
            from pypmix.host.joining import Shared

            self._claim = joining.claim()
            try:
                for node in host.nodes:
                    self._exchanges.append(Exchange(joining.carrier(node.hostname, host.loop), later=host.loop.later))
            except BaseException:
                self.close()
                raise
            both = zip(servers, self._exchanges, strict=True)
            borders = [Border(server, exchange, joining.cluster, host.loop.post) for server, exchange in both]
            self._crossings = borders
            Shared(host, self._exchanges[0], borders[0].names)
        for exchange in self._exchanges:
            exchange.start()
        # Catch up with the jobs that were started before.
        for job in host.jobs.values():
            self._catch_up(job)

    def _catch_up(self, job: RunningJob) -> None:
        self.register(job)
        for rank in job.ranks:
            if rank.stage != STARTED:
                self.connected(rank.node, rank.proc)
            if rank.stage == FINALIZED:
                self.finalized(rank.node, rank.proc)
            if rank.lost or rank.over:
                self.departed(rank.node, rank.proc)

    def _of(self, node: HostNode) -> Crossing | Border:
        return self._crossings[node.number]

    def register(self, job: RunningJob) -> None:
        places = {rank.proc.rank: self._exchanges[rank.node.number].name for rank in job.ranks}
        for crossing in self._crossings:
            crossing.register(job.job, places)

    def deregister(self, nspace: str) -> None:
        for crossing in self._crossings:
            crossing.deregister(nspace)

    def pending(self) -> list[Pending]:
        """Return the pending operations of all nodes, oldest first, each once."""
        return merged(
            [item for node in self._host.nodes for item in node.server.pending()],
            [item for crossing in self._crossings for item in crossing.pending()],
        )

    def close(self) -> None:
        for exchange in self._exchanges:
            exchange.close()
        if self._claim >= 0:
            os.close(self._claim)
            self._claim = -1


def merged(pending: Iterable[Pending], crossing: Iterable[Pending] = ()) -> list[Pending]:
    """Merge the pending operations of several servers, with one item for each operation that they share.

    Args:
        pending: The pending operations of the servers.
        crossing: The pending operations of the crossings: with the procs missing on other servers, too.
    """
    one: dict[tuple[str, str], Pending] = {}
    for item in pending:
        label = item.label.removesuffix(WITH_HOST)
        other = one.get((item.operation, label))
        if item.operation in REQUESTS:
            one[item.operation, f"{label} {item.arrived} {item.missing}"] = item
        elif other is None:
            one[item.operation, label] = item.replace(label=label)
        else:
            arrived = {*item.arrived, *other.arrived}
            missing = {*item.missing, *other.missing} - arrived
            since = min(item.since, other.since)
            named = tuple(sorted(arrived)), tuple(sorted(missing))
            one[item.operation, label] = Pending(item.operation, label, *named, since)
    for item in crossing:
        for key, known in one.items():
            # A server that has not begun it reports nothing.
            if key[0] == item.operation and {*known.arrived} <= {*item.arrived, *item.missing}:
                absent = {*known.missing, *item.missing} - {*known.arrived}
                one[key] = known.replace(missing=tuple(sorted(absent)))
                break
        else:
            if item.missing:
                # Its server coordinates an operation that none of its procs has called yet.
                one[item.operation, item.label] = item
    return sorted(one.values(), key=lambda item: item.since)
