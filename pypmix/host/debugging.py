"""Debuggers: ranks that stop for them, the events about that, and the daemons that run beside ranks.

A rank stops at its first instruction (`STOP_ON_EXEC`), in `PMIx_Init` (`STOP_IN_INIT`), or at a place in its program
(`STOP_IN_APP`). At the first its starter stops it. At the others its job info tells the client to wait; the client
reports that it waits (`READY_FOR_DEBUG`), and `DEBUGGER_RELEASE` releases it. The host raises `READY_FOR_DEBUG` for the
job when all ranks that are to stop at a place have arrived there, and releases the others at once. A release also
continues ranks that were stopped at their first instruction.

All of this is on the thread of the host's loop.
"""

from __future__ import annotations

from functools import partial

from pypmix.host.mapping import Place
from pypmix.host.placing import Target
from pypmix.standard import attrs, codes, keys, statuses
from pypmix.standard.errors import NotSupported
from pypmix.standard.logtext import get_logger
from pypmix.standard.ops import Notification, NotifyEvent, Spawn
from pypmix.standard.ops.events import is_set, matches_any, procs_in
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import RANK_LOCAL_PEERS, RANK_WILDCARD, DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypmix.engine.base import Upcall
    from pypmix.host.directives import SpawnRequest
    from pypmix.host.job import Application
    from pypmix.host.manager import Manager
    from pypmix.host.nodes import HostNode
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob

_log = get_logger("pypmix.host")

IN_INIT = "pmix-init"
"""The breakpoint in `PMIx_Init`, as libpmix names it."""

ON_EXEC = "pmix-exec"
"""The breakpoint at the first instruction of a program."""

STOPS = (keys.DEBUG_STOP_ON_EXEC, keys.DEBUG_STOP_IN_INIT, keys.DEBUG_STOP_IN_APP)

SUPPORTED = (*STOPS, attrs.DEBUG_TARGET.key, attrs.DEBUG_DAEMONS_PER_PROC.key, attrs.DEBUG_DAEMONS_PER_NODE.key)
"""The directives that a query for debugger support is answered with."""


class Debugging:
    """The stopped ranks of a host's jobs."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._waiting: dict[tuple[str, str], set[int]] = {}
        """The ranks that have arrived, by job and breakpoint, until all have."""
        self._stopped: set[Proc] = set()
        """The ranks that are stopped at their first instruction."""
        self._passed: set[str] = set()
        """The jobs whose rank under a debugger has arrived in `PMIx_Init`."""
        host.at_rank_end.append(self._rank_ended)
        host.at_job_end.append(self._job_ended)

    def watch(self, job: RunningJob) -> None:
        """Report the ranks of a job that are stopped at their first instruction, once they are started."""

        def started() -> None:
            ranks = [job.rank(number) for number in job.job.stopped_ranks(keys.DEBUG_STOP_ON_EXEC)]
            for rank in [rank for rank in ranks if rank is not None and rank.alive]:
                self._stopped.add(rank.proc)
                self.arrive(rank.proc, ON_EXEC)

        if job.job.stopped_ranks(keys.DEBUG_STOP_ON_EXEC):
            job.when_started(started)

    def arrive(self, proc: Proc, point: str) -> None:
        """Record that a rank has stopped at a breakpoint."""
        job = self._host.jobs.get(proc.nspace)
        if job is None:
            return
        if job.job.debugger and point == IN_INIT:
            self._follow(job, proc)
            return
        expected = self._expected(job, point)
        # Servers of libpmix before release 5 report all ranks of a node at once.
        arrived = {rank.proc.rank for rank in job.ranks} if proc.rank == RANK_LOCAL_PEERS else {proc.rank}
        if others := arrived - expected:
            self.release([Proc.unchecked(proc.nspace, rank) for rank in sorted(others)])
        if found := arrived & expected:
            self._waiting.setdefault((proc.nspace, point), set()).update(found)
            self._check(job, point)

    def _follow(self, job: RunningJob, proc: Proc) -> None:
        """Hold ranks in `PMIx_Init` until the rank under a debugger has arrived there, or has ended."""
        leader = job.rank(int(job.job.debugger[0]))
        if proc.rank == RANK_LOCAL_PEERS or leader is None or proc == leader.proc:
            self._passed.add(job.nspace)
            self.release([Proc.unchecked(job.nspace, RANK_WILDCARD)])
        elif leader.over or job.nspace in self._passed:
            self.release([proc])

    def release(self, procs: Sequence[Proc]) -> None:
        """Release procs, ranks or whole jobs, wherever they have stopped."""
        procs_ = Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(procs)))
        infos = (Info(keys.EVENT_CUSTOM_RANGE, procs_), attrs.EVENT_NON_DEFAULT(True), attrs.EVENT_DO_NOT_CACHE(True))
        source = self._host.server.proc
        self._host.notify(Notification(statuses.DEBUGGER_RELEASE, source, RANGE_CUSTOM, infos))
        self.released(procs)

    def released(self, procs: Sequence[Proc] | None) -> None:
        """Continue the ranks that are stopped at their first instruction, as far as procs name them; None for all."""
        import signal

        chosen = [proc for proc in self._stopped if procs is None or matches_any(proc, procs)]
        self._stopped.difference_update(chosen)
        self._host.send(signal.SIGCONT, [rank for rank in self._host.expand(chosen) if rank.alive])

    def _expected(self, job: RunningJob, point: str) -> set[int]:
        """Return the ranks that are to stop at a breakpoint."""
        key = {ON_EXEC: keys.DEBUG_STOP_ON_EXEC, IN_INIT: keys.DEBUG_STOP_IN_INIT}.get(point, keys.DEBUG_STOP_IN_APP)
        return set(job.job.stopped_ranks(key))

    def _check(self, job: RunningJob, point: str) -> None:
        """Raise the event of a job if all of its ranks have arrived that are to stop at a breakpoint and still run."""
        arrived = self._waiting.get((job.nspace, point), set())
        ranks = [rank for rank in job.ranks if rank.proc.rank in self._expected(job, point) and not rank.over]
        if not arrived or any(rank.proc.rank not in arrived for rank in ranks):
            return
        del self._waiting[job.nspace, point]
        if not ranks:
            return
        if len(ranks) == job.job.size:
            affected = attrs.EVENT_AFFECTED_PROC(Proc.unchecked(job.nspace, RANK_WILDCARD))
        else:
            affected = attrs.EVENT_AFFECTED_PROCS([rank.proc for rank in ranks])
        infos = (affected, attrs.NSPACE(job.nspace), attrs.BREAKPOINT(point), attrs.EVENT_NON_DEFAULT(True))
        self._host.notify(Notification(statuses.READY_FOR_DEBUG, self._host.server.proc, RANGE_SESSION, infos))

    def _rank_ended(self, job: RunningJob, rank: Rank) -> None:
        self._stopped.discard(rank.proc)
        if job.job.debugger and int(job.job.debugger[0]) == rank.proc.rank:
            self.release([Proc.unchecked(job.nspace, RANK_WILDCARD)])
        for nspace, where in list(self._waiting):
            if nspace == job.nspace:
                self._check(job, where)

    def _job_ended(self, job: RunningJob) -> None:
        """Forget a job, and end the daemons that were started for it."""
        self._passed.discard(job.nspace)
        for key in [key for key in self._waiting if key[0] == job.nspace]:
            del self._waiting[key]
        for other in list(self._host.jobs.values()):
            target = other.job.target
            if target is not None and target.nspace == job.nspace:
                reason = f"{other}, of debugger daemons, was ended because {job} has ended"
                self._host.loop.later(self._host.grace, partial(other.end, 0, reason))


def take(host: Manager, upcall: Upcall) -> None:
    """Act on a `READY_FOR_DEBUG` or a `DEBUGGER_RELEASE` that a client has raised."""
    op, debugging = upcall.op, host.part(Debugging)
    assert isinstance(op, NotifyEvent)
    if op.code == statuses.DEBUGGER_RELEASE:
        debugging.released(procs_in(op.infos, keys.EVENT_CUSTOM_RANGE))
    elif upcall.requestor is not None:
        where = next((info.value.data for info in op.infos if info.key == attrs.BREAKPOINT.key), "")
        debugging.arrive(upcall.requestor, where if isinstance(where, str) else "")


# Spawns


def plain_spawn(op: Spawn) -> Spawn:
    """Return a spawn without its infos and directives, other than those about ranks that stop for a debugger.

    Raises:
        NotSupported: It is for debugger daemons.
    """
    apps = op.apps
    if any(is_set((*op.directives, *app.info), attrs.DEBUGGER_DAEMONS.key) for app in apps):
        # The caller of the spawn gets the status only.
        detail = "launch does not place debugger daemons (PMIX_DEBUGGER_DAEMONS)"
        error = NotSupported(detail, operation="spawn", hint="return `self.default(request)` for this spawn")
        _log.warning("%s", error)
        raise error
    kept = (*STOPS, attrs.BREAKPOINT.key)

    def stops(infos: Sequence[Info]) -> tuple[Info, ...]:
        return tuple([info for info in infos if info.key in kept])

    return op.replace(apps=tuple([app.replace(info=stops(app.info)) for app in apps]), directives=stops(op.directives))


def divide(op: Spawn) -> tuple[Spawn, Spawn | None]:
    """Divide a spawn into the spawn of a job and the spawn of its debugger daemons; None if all is one of these."""
    daemons = [app for app in op.apps if is_set((*op.directives, *app.info), attrs.DEBUGGER_DAEMONS.key)]
    others = [app for app in op.apps if app not in daemons]
    if not daemons or not others:
        return op, None
    return op.replace(apps=tuple(others)), op.replace(apps=tuple(daemons))


def place_daemons(
    host: Manager, request: SpawnRequest, apps: tuple[Application, ...]
) -> tuple[tuple[Application, ...], Target]:
    """Return the applications of debugger daemons with their number of ranks, and the places of these.

    Raises:
        PMIxError: The procs to debug are not named, or do not run.
    """
    from pypmix.host.directives import refused

    if len(apps) > 1:
        raise refused(statuses.ERR_BAD_PARAM, "the debugger daemons of a job are one application")
    target = request.debugged
    if target is None:
        raise refused(statuses.ERR_BAD_PARAM, "debugger daemons need PMIX_DEBUG_TARGET, the procs that they are for")
    if request.per_proc and request.per_node:
        raise refused(statuses.ERR_BAD_PARAM, "daemons are for each proc or for each node, not for both")
    ranks = [rank for rank in host.expand((target,)) if not rank.over]
    if not ranks:
        raise refused(statuses.ERR_NOT_FOUND, f"no rank of {target} runs")
    by_node: dict[HostNode, list[int]] = {}
    each, count = request.per_node or request.per_proc or 1, 0
    for rank in ranks:
        known = by_node.setdefault(rank.node, [])
        if not request.per_node or not known:
            known += range(count, count + each)
            count += each
    places = tuple([(node, tuple([Place(number) for number in those])) for node, those in by_node.items()])
    return (apps[0].replace(np=count),), Target(places=places)
