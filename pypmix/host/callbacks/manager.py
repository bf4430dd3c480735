"""The manager of a `Host`: one node, whose jobs the host's author describes; other nodes may be in an exchange."""

from __future__ import annotations

import os
import signal

from pypmix.host.control import check_user
from pypmix.host.nodes import HostNode, LocalNode
from pypmix.host.notices import Notices
from pypmix.host.processsets import ProcessSets
from pypmix.host.serving import LIVES, ServingManager
from pypmix.standard.attrs import MONITOR_FILE
from pypmix.standard.errors import NotFound, NotInitialized, NotSupported, PMIxError
from pypmix.standard.ops import (
    ClientAborted,
    DeregisterEvents,
    DirectModex,
    FenceUpcall,
    IOFPull,
    IOFPush,
    ProcessMonitor,
    RegisterEvents,
    Spawn,
)
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any

    from pypmix.arguments import Procs
    from pypmix.engine.base import Upcall
    from pypmix.host.callbacks.watching import Watching
    from pypmix.host.exchange import Crossing, Exchange
    from pypmix.host.machine import Machine
    from pypmix.host.running import RunningJob
    from pypmix.server import Server
    from pypmix.standard.ops import Op

MAX_RAN = 4096
"""The limit of remembered jobs that have run here; the oldest is forgotten."""


class HostManager(ServingManager):
    """Runs the jobs of a `Host`, and answers the upcalls that the host has no method for.

    It exists from the opening of the host to its end. A job is registered before any of its ranks is started, by the
    host or others. It is forgotten some time after its last launch has ended, or by `Host.forget`.
    """

    def __init__(
        self,
        loop: Watching,
        server: Server,
        *,
        hostname: str,
        machine: Machine,
        space: str,
        grace: float,
        offered: Collection[str] | None,
    ) -> None:
        super().__init__(loop, machine=machine, space=space, grace=grace, limits=server.limits)
        self.offered = offered
        self.loop: Watching
        node = LocalNode(0, hostname, machine.tmpdir, machine)
        node.attach(server)
        self.nodes = self.here = (node,)
        # The first job's folder would be the folder of the host.
        self._last = 1
        self.crossing: Crossing | None = None
        self.psets: HostProcessSets = HostProcessSets(self)
        self._closed = False
        self._ran: dict[str, None] = {}
        """The last jobs of which this host has started ranks."""
        self._over: set[str] = set()
        """The jobs that have ended on all hosts, while they are registered here."""

    @property
    def node(self) -> HostNode:
        """The node of this host."""
        return self.nodes[0]

    def open(self, exchange: Exchange | None, native: bool) -> None:
        """Start the exchange and the events of jobs, once the server is open."""
        self.native = native
        if exchange is not None:
            self._join(exchange)
        # The notices need the end of every job, so create them now.
        _ = self.notices

    def _join(self, exchange: Exchange) -> None:
        from pypmix.host.callbacks.ends import SharedNotices
        from pypmix.host.crossings import Exchanging
        from pypmix.host.exchange import Crossing
        from pypmix.host.exchange.coordinator import ContextIds
        from pypmix.host.publishing import Publications

        published = self.part(Publications)

        def end_job(procs: tuple[Proc, ...]) -> None:
            published.job_over(procs)
            self._over_everywhere(procs[0].nspace)

        self.crossing = Crossing(
            self.server, exchange, directory=published.post, gone=published.remove_proc, over=end_job
        )
        self._crossings = Exchanging(self, self.crossing)
        # The exchange itself uses the plain name for the numbers of groups.
        self.next_context_id = ContextIds(f"{exchange.name} host").take
        self._parts[Notices] = SharedNotices(self, exchange, self.crossing)
        exchange.start()

    # Jobs

    def take_number(self) -> int:
        """Return the number of the next job."""
        self._last += 1
        return self._last

    def has_run(self, nspace: str) -> bool:
        """Return True if an nspace is the nspace of a job of this host, even if the job has ended."""
        return nspace in self.jobs or nspace in self._ran

    def has_started(self, nspace: str) -> bool:
        """Return True if this host has started ranks of a job, even if the job has ended."""
        return nspace in self._ran

    def node_number(self, proc: Proc) -> int:
        """Return the number of a proc's node in its job; -1 if the proc is not on a node of a known job."""
        job = self.jobs.get(proc.nspace)
        found = [] if job is None else [n for n, node in enumerate(job.job.nodes) if proc.rank in node.ranks]
        return found[0] if found else -1

    def make_room(self, ranks: int, files: int = 0) -> None:
        """Do nothing: the limits of this process are left to the host's author."""

    def register(self, job: RunningJob) -> None:
        """Register a job with the server."""
        nspace = job.nspace
        former = self.jobs.get(nspace)
        if nspace in self._lingering and former is not None:
            self.forget(former)
        super().register(job)
        self._ran.pop(nspace, None)
        self._over.discard(nspace)

    def started(self, job: RunningJob) -> None:
        """Note that ranks of a job are about to be started."""
        self._ran[job.nspace] = None
        if len(self._ran) > MAX_RAN:
            del self._ran[next(iter(self._ran))]
        timer = self._lingering.pop(job.nspace, None)
        if timer is not None:
            timer.cancel()
        if job.nspace not in self.jobs:
            self.register(job)
            self._ran[job.nspace] = None

    def forget(self, job: RunningJob) -> None:
        """Deregister a job from the server, unless it was deregistered and another job has its name."""
        if self.jobs.get(job.nspace) is not job:
            return
        super().forget(job)
        self._over.discard(job.nspace)

    def has_ended_everywhere(self, nspace: str) -> bool:
        """Return True if a job that is registered here has ended on all hosts of the exchange."""
        return nspace in self._over

    def _over_everywhere(self, nspace: str) -> None:
        """Handle the end of a job on all hosts of the exchange; from any thread."""
        self._over.add(nspace)
        if nspace not in self.jobs:
            try:
                self.psets.delete_of_job(nspace)
            except NotInitialized:
                # This host has closed.
                pass
            self._over.discard(nspace)

    def whole(self, procs: Iterable[Proc]) -> list[Proc]:
        """Return procs with each wildcard replaced by the procs of its job, also on other hosts."""
        found: dict[Proc, None] = {}
        for proc in procs:
            job = self.jobs.get(proc.nspace)
            if proc.rank == RANK_WILDCARD and job is not None:
                found.update(dict.fromkeys([job.job.proc(rank) for rank in range(job.job.size)]))
            else:
                found[proc] = None
        return list(found)

    @property
    def ending(self) -> bool:
        """Whether the host is being closed."""
        return self._closed

    def close(self) -> None:
        """End all jobs, and do not start others."""
        self._closed = True
        for job in list(self.jobs.values()):
            if job.launches:
                job.end(128 + signal.SIGTERM, "the host was closed")
        for timer in self._lingering.values():
            timer.cancel()
        if self._crossings is not None:
            self._crossings.close()

    # Requests of clients

    def note(self, node: HostNode, op: Op[Any]) -> None:
        """Note an upcall about a client's state or its event codes, even if the host has a method for it."""
        if isinstance(op, LIVES):
            super().note(node, op)
        elif isinstance(op, RegisterEvents):
            self.notices.add(op.codes)
        elif isinstance(op, DeregisterEvents):
            self.notices.remove(op.codes)

    def offers(self, op: Op[Any]) -> bool:
        """Return True if an upcall of this operation is answered here."""
        if self.crossing is not None and self.crossing.answers(op):
            return True
        # Only an exchange knows other nodes.
        return not isinstance(op, (FenceUpcall, DirectModex)) and super().offers(op)

    def upcall(self, node: HostNode, upcall: Upcall) -> None:
        """Answer an upcall, on the engine's thread."""
        op = upcall.op
        try:
            if isinstance(op, LIVES):
                # `Host` has called `note` for it.
                upcall.reply()
                return
            if isinstance(op, IOFPull):
                for proc in op.procs:
                    self._check_output(proc)
            else:
                self._check_user(upcall)
        except PMIxError as error:
            upcall.fail(error)
        else:
            # `Host` has noted it before.
            self.answer_upcall(node, upcall)

    def _check_user(self, upcall: Upcall) -> None:
        """Raise `PermissionDenied` if only this user and root may request an upcall, and its client is of another user.

        Raises:
            NotSupported: An abort names procs that this host has not started.
        """
        op = upcall.op
        named: tuple[Proc, ...] = ()
        own: str | None = None
        match op:
            case ClientAborted():
                named, own = op.targets, op.proc.nspace
                for proc in named or (op.proc,):
                    if not self.has_started(proc.nspace):
                        detail = "this host has not started these procs, and cannot end them"
                        raise NotSupported(detail, operation="abort", procs=(proc,))
            case IOFPush():
                named, own = op.procs, None if upcall.requestor is None else upcall.requestor.nspace
            case Spawn() | ProcessMonitor():
                # The process would run as this user, and the file would be read with its rights.
                if isinstance(op, ProcessMonitor) and op.monitor.key != MONITOR_FILE.key:
                    return
            case _:
                return
        if own is None or any(proc.nspace != own for proc in named):
            check_user(upcall, f"do this in the name of user {os.geteuid()}")

    def _check_output(self, proc: Proc) -> None:
        """Raise an error if the output of procs is not delivered to this server."""
        nspace, rank = proc
        if not nspace:
            return
        job = self.jobs.get(nspace)
        if job is not None:
            wanted = range(job.job.size) if rank == RANK_WILDCARD else (rank,)
            there = [
                each.hostname for each in job.job.nodes if any(n in wanted and job.rank(n) is None for n in each.ranks)
            ]
            if there:
                raise NotSupported(
                    f"output is told on the node of its procs alone, and some are on {', '.join(there)}",
                    operation="iof_pull",
                    procs=(proc,),
                    hint="name the procs of one node, to a client or a tool there",
                )
        if not self.has_started(nspace):
            detail = "this host has not started these procs" if job is not None else "this host has no such job"
            raise (NotSupported if job is not None else NotFound)(detail, operation="iof_pull", procs=(proc,))


class HostProcessSets(ProcessSets):
    """The process sets of a `Host`; those of an exchange are the same on all of its hosts."""

    _host: HostManager

    def define(self, name: str, members: Procs, *, job: str = "") -> None:
        """Define a process set, on all hosts of the exchange."""
        crossing = self._host.crossing
        if crossing is None:
            super().define(name, members, job=job)
            return
        from pypmix.arguments import proc_tuple
        from pypmix.standard.ops.core import instances

        given = proc_tuple(members)
        instances("members", given, Proc)
        crossing.psets.define(name, tuple(dict.fromkeys(self._host.whole(given))))
        self._sets[name] = job, given

    def delete(self, name: str) -> None:
        """Delete a process set, on all hosts of the exchange."""
        crossing = self._host.crossing
        if crossing is None:
            super().delete(name)
        else:
            self._sets.pop(name, None)
            crossing.psets.delete(name)

    def delete_of_job(self, nspace: str) -> None:
        """Delete the process sets of a job, unless other hosts still run procs of it."""
        if self._host.crossing is None or self._host.has_ended_everywhere(nspace):
            super().delete_of_job(nspace)
