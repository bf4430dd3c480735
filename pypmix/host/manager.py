"""Manager: the jobs on the nodes of a host; `pypmix.host.serving` adds the answers to requests of their procs.

Order. A job is registered with the servers before its ranks start. A rank's end reaches the servers first (their
collectives stop waiting for it), then the functions in `at_rank_end`. A job is finished when only its output may be
left; the servers know it for some seconds longer, since the last messages of its ranks may not have arrived.
"""

from __future__ import annotations

import os
from functools import partial
from itertools import count

from pypmix.host.folders import remove
from pypmix.host.job import JobLayout, check_local_size
from pypmix.host.loop import Turns
from pypmix.host.nodes import usable_cpus
from pypmix.host.placing import ANYWHERE, Target, describe_places
from pypmix.host.processsets import ProcessSets
from pypmix.host.running import JobHost, RunningJob
from pypmix.host.sites import Site, first_free
from pypmix.standard._typing import TypeVar
from pypmix.standard.errors import NotInitialized, PMIxError
from pypmix.standard.logtext import get_logger, printable, printable_lines
from pypmix.standard.naming import common_job, name_proc
from pypmix.standard.types import RANK_WILDCARD, Proc, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable
    from typing import Any

    from pypmix.engine.base import Cancellable, Upcall
    from pypmix.engine.common import Pending
    from pypmix.host.job import Application
    from pypmix.host.loop import HostLoop
    from pypmix.host.machine import Machine
    from pypmix.host.nodes import HostNode
    from pypmix.host.rank import Rank
    from pypmix.host.running import Joint
    from pypmix.host.terms import Terms
    from pypmix.standard.limits import Limits
    from pypmix.standard.ops import Notification


P = TypeVar("P")

LINGER = 2.0
"""Seconds for which the server knows a job that has ended: the last messages of its ranks may not have arrived."""

FIRST_CONTEXT_ID = 1 << 32
"""The first context id that a host assigns; a server that completes a group alone begins at 1."""


class Manager(JobHost):
    """Runs jobs on nodes.

    Args:
        loop: The loop on whose thread everything happens.
        machine: Its processes on this machine.
        space: The beginning of the nspaces of its jobs, before `@` and their number.
        grace: Seconds that ranks have between the request to end and SIGKILL.
        limits: The resources that one peer may use.
        cluster: The name of the cluster that its jobs are given; empty for none.

    Attributes:
        psets: The process sets of its nodes.
        turns: The work done on behalf of procs, on the loop's thread.
        due: The time at which the limit of all jobs ends, by `time.monotonic`; None without a limit.
        next_context_id: Returns a context id that no other group of the session has; from any thread.
        at_connection: Called on an engine's thread with the job of a rank that has called `PMIx_Init`.
        at_departure: Called with a proc, a rank or a tool, that has finalized or lost its connection.
    """

    def __init__(
        self,
        loop: HostLoop,
        *,
        machine: Machine,
        space: str,
        grace: float,
        limits: Limits,
        cluster: str = "",
    ) -> None:
        super().__init__(loop, grace)
        self.turns = Turns(loop.post)
        self.machine = machine
        self.site = Site(self, machine)
        self.limits = limits
        self.due: float | None = None
        self.next_context_id: Callable[[], int] = partial(next, count(FIRST_CONTEXT_ID))
        self.at_departure: list[Callable[[Proc], None]] = []
        self.at_connection: list[Callable[[RunningJob], None]] = []
        self._space = space
        self._cluster = cluster
        self._last = 0
        self._crossings: Joint | None = None
        self._parts: dict[type, Any] = {}
        self._lingering: dict[str, Cancellable] = {}
        self.psets = ProcessSets(self)

    # Used by answers and jobs, on the loop's thread.

    @property
    def ending(self) -> bool:
        """Whether all jobs are being ended, and no other may begin."""
        return False

    @property
    def space(self) -> str:
        """The beginning of the nspaces of its jobs."""
        return self._space

    @property
    def next_folder(self) -> str:
        """The folder that the next job will have on the first node."""
        return self.nodes[0].folder(self._last + 1)

    def node_of(self, proc: Proc | None) -> HostNode:
        """Return the node that a proc is on: the first node for a tool, and for an ended rank perhaps another node."""
        found = None if proc is None else self.find(proc)
        return self.nodes[0] if found is None else found[1].node

    def node_number(self, proc: Proc) -> int:
        """Return the number of the node that a proc is on; for a tool, the number of the first node."""
        return self.node_of(proc).number

    def pending(self) -> list[Pending]:
        """Return the pending operations, oldest first, as of the last `refresh`; empty once the servers are closed."""
        try:
            return self.server.pending() if self._crossings is None else self._crossings.pending()
        except NotInitialized:
            return []

    def soon(self, function: Callable[[], None]) -> None:
        """Schedule a call on the loop's thread; callable on any thread, and ignored if the host has closed."""
        try:
            self.loop.post(function)
        except RuntimeError:
            return

    def answer_with(self, function: Callable[[Manager, Upcall], None], upcall: Upcall) -> None:
        """Answer a request with a function; an exception that it raises is also an answer."""
        try:
            function(self, upcall)
        except PMIxError as error:
            upcall.fail(error)
        except Exception as error:
            get_logger("pypmix.host").exception("%s could not be answered", upcall.op.name)
            upcall.fail(error)

    def part(self, kind: Callable[[Manager], P]) -> P:
        """Return this manager's one object of a class; it is made with the manager as its argument on first use."""
        found: P | None = self._parts.get(kind)  # type: ignore[call-overload]
        if found is None:
            # Another thread may have been first.
            found = self._parts.setdefault(kind, kind(self))  # type: ignore[call-overload]
        return found

    def find_part(self, kind: Callable[..., P]) -> P | None:
        """Return this manager's one object of a class, if it exists."""
        found: P | None = self._parts.get(kind)  # type: ignore[call-overload]
        return found

    def has_run(self, nspace: str) -> bool:
        """Return True if an nspace belongs to a job of this host, even a finished job."""
        name, _, number = nspace.rpartition("@")
        return name == self._space and (decimal(number, self._last) or 0) >= 1

    def find(self, proc: Proc) -> tuple[RunningJob, Rank] | None:
        """Return the job and the rank of a proc; None for tools, and for finished jobs."""
        job = self.jobs.get(proc.nspace)
        rank = None if job is None else job.rank(proc.rank)
        return None if job is None or rank is None else (job, rank)

    def expand(self, procs: Iterable[Proc]) -> list[Rank]:
        """Return the ranks that procs name, by rank or by wildcard, of the jobs that are not finished."""
        found: dict[Proc, Rank] = {}
        for proc in procs:
            job = self.jobs.get(proc.nspace)
            if job is not None:
                chosen = job.ranks if proc.rank == RANK_WILDCARD else [job.rank(proc.rank)]
                found.update({rank.proc: rank for rank in chosen if rank is not None})
        return list(found.values())

    @property
    def only_job(self) -> str:
        """The nspace of the only job, which texts may omit; empty if there are several."""
        return common_job(job.job.proc(0) for job in self.jobs.values())

    def name_for_person(self, proc: Proc) -> str:
        """Return the text that names a proc for a person: the rank with its pid."""
        found = self.find(proc)
        return printable(found[1] if found is not None else name_proc(proc, self.only_job))

    def send(self, signum: int, ranks: Iterable[Rank]) -> None:
        """Send a signal to ranks, and to the processes they have started."""
        for rank in ranks:
            self.jobs[rank.proc.nspace].send(signum, (rank,))

    def add(
        self,
        apps: tuple[Application, ...],
        terms: Terms,
        parent: Proc | None,
        *,
        target: Target = ANYWHERE,
        session_wdir: bool = False,
        wdir: str = "",
    ) -> RunningJob:
        """Start a further job and return it.

        Args:
            apps: The applications to run.
            terms: The terms that it runs with.
            parent: The proc that requested it.
            target: The nodes to run on; any by default.
            session_wdir: Whether it runs in its session folder, on the first node.
            wdir: The folder for applications that name none; this process's by default.

        Raises:
            OSError: A program or a directory does not exist, or the system lacks a resource that the job needs. If its
                ranks could not be started, the job reports that itself.
            OverflowError: There are too many ranks for the nodes.
            PMIxError: A process set that an application names already exists (`ERR_EXISTS`).
        """
        job = self.prepare_job(apps, terms, parent, target, session_wdir=session_wdir, wdir=wdir)
        self.begin(job)
        return job

    def prepare_job(
        self,
        apps: tuple[Application, ...],
        terms: Terms,
        parent: Proc | None,
        target: Target = ANYWHERE,
        *,
        session_wdir: bool = False,
        wdir: str = "",
    ) -> RunningJob:
        """Return a further job with its folders and programs, to `begin`; see `add` for arguments and errors."""
        apps = self.site.settle(apps, wdir)
        folders = [node.folder(self._last + 1) for node in self.here]
        if session_wdir:
            os.mkdir(folders[0], 0o700)
        try:
            self.psets.check_apps(apps)
            programs = [self.site.program(app) for app in apps]
            job = self.make(apps, terms, parent, target, wdir)
            job.programs = programs
            self.make_room(job.job.size)
            for folder in folders[session_wdir:]:
                os.mkdir(folder, 0o700)
        except BaseException:
            for folder in folders:
                remove(folder)
            raise
        return job

    def make(
        self,
        apps: tuple[Application, ...],
        terms: Terms,
        parent: Proc | None,
        target: Target = ANYWHERE,
        wdir: str = "",
    ) -> RunningJob:
        """Return a job that is placed on nodes, to `begin`; `wdir` is the folder of applications that name none.

        Raises:
            OverflowError: There is no room for it, or not all nodes have joined yet.
        """
        if not self.site.complete:
            raise OverflowError("not all nodes of this session have joined yet")
        size = sum([app.np for app in apps])
        check_local_size(size)
        target = self.site.spared(target, terms.spares)
        placed = target.places or self.site.place([app.np for app in apps], target)
        bound = any(each.units for _, places in placed for each in places)
        jobs = [job.job for job in self.jobs.values()]
        # Nodes without slots share the CPUs of this machine.
        crowded = size + self.running > usable_cpus()
        number = self._last + 1
        folder = placed[0][0].folder(number)
        if any(app.preload for app in apps) and placed[0][0].here:
            from pypmix.host.preload import with_folder

            apps = with_folder(apps, folder)
        job = JobLayout(
            nspace=f"{self._space}@{number}",
            apps=apps,
            nodes=self.site.describe(placed, crowded),
            session=os.getpid(),
            tmpdir=folder,
            wdir=wdir or self.machine.wdir,
            parent=parent,
            first=first_free([(each.first, each.first + each.size) for each in jobs], size),
            others=self.running,
            cluster=self._cluster,
            policies=(target.mapping or self.site.mapping).policies(bound),
            stops=terms.stops,
            target=terms.target,
            restarts=terms.restarts,
            debugger=terms.debugger,
        )
        self._last = number
        homes = {each.rank: node for node, places in placed for each in places}
        running = RunningJob(self, job, number, terms, homes, self.mark_of(number, parent))
        running.take_places([each for _, places in placed for each in places], target.mapping or self.site.mapping)
        return running

    def mark_of(self, number: int, parent: Proc | None) -> str:
        """Return the mark that distinguishes a job from the host's others in texts; empty for the first."""
        return "" if number == 1 else str(number)

    def may_begin(self, parent: Proc | None) -> bool:
        """Return True if a proc may start a job."""
        return not self.ending

    def make_room(self, ranks: int, files: int = 0) -> None:
        """Make room for the descriptors of this many further ranks, and of other files."""
        files += 2 * self.running if self.jobs else 0
        self.machine.make_room(self.running + ranks + 2 * self.site.connections, files)

    def register(self, job: RunningJob) -> None:
        """Make a job known to the servers.

        Raises:
            PMIxError: The servers already know its nspace, or one of its process sets (`ERR_EXISTS`).
        """
        nspace = job.nspace
        if self._crossings is not None:
            self._crossings.register(job)
        here: dict[HostNode, list[int]] = {node: [] for node in self.nodes}
        for rank in job.ranks:
            here.setdefault(rank.node, []).append(rank.proc.rank)
        try:
            for node in self.nodes:
                node.register(job, here[node])
        except BaseException:
            if self._crossings is not None:
                self._crossings.deregister(nspace)
            raise
        self.jobs[nspace] = job
        try:
            for name, members in job.job.psets().items():
                self.psets.define(name, members, job=nspace)
        except BaseException:
            self.psets.delete_of_job(nspace)
            self.forget(job)
            raise

    def add_node(self, node: HostNode) -> None:
        """Add a node that has joined, and register the existing jobs and process sets with it."""
        for job in self.jobs.values():
            node.register(job, ())
        self.psets.define_on(node)
        self.nodes = (self.nodes[0], *sorted((*self.nodes[1:], node), key=lambda each: each.number))

    def node_lost(self) -> None:
        """Act on the loss of a node, whose ranks were lost with it."""

    def started(self, job: RunningJob) -> None:
        """Register a job whose ranks are about to be started."""
        self.register(job)

    def begin(self, job: RunningJob) -> None:
        """Register a job and start its ranks."""
        if job.nodes[0].here and any(app.preload for app in job.job.apps):
            from pypmix.host.preload import link

            link(job.job.apps, job.job.tmpdir)
        self.started(job)
        if job.terms.maps or job.terms.bindings:
            lines = describe_places(job)
            text = "".join([f"pypmix run: {printable_lines(line)}\n" for line in lines])
            self.sink_of(job, 2).write(None, text.encode())
        job.launch(range(job.job.size)).start(job.job.apps, job.programs)

    def notify(self, event: Notification) -> None:
        """Raise an event on all nodes, or only on the node of its source if its range is local."""
        from pypmix.standard.ops.events import RANGE_LOCAL, RANGE_PROC_LOCAL

        try:
            if len(self.nodes) > 1 and event.range in (RANGE_LOCAL, RANGE_PROC_LOCAL):
                self.node_of(event.source).notify(event)
                return
            for node in self.here:
                node.notify(event)
            self.site.notify_daemons(event)
        except NotInitialized:
            return

    def pass_on(self, signum: int, *, handled: bool = False) -> None:
        """Send a signal to all ranks; see `HostNode.signal`."""
        for job in list(self.jobs.values()):
            job.send(signum, handled=handled)

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """Deregister a rank that has ended, and call `at_rank_end`."""
        rank.node.deregister_client(rank.proc)
        if self._crossings is not None:
            self._crossings.departed(rank.node, rank.proc)
        super().rank_ended(job, rank)

    def job_over(self, job: RunningJob) -> None:
        """Close a job of which only output may be left."""
        # Processes that have left the job's process groups may still write; do not wait for that.
        job.finish_output()
        job.close()
        # Handlers of the end of a job find none of its sets.
        self.psets.delete_of_job(job.nspace)
        self._lingering[job.nspace] = self.loop.later(LINGER, lambda: self.forget(job))
        self.tell_end(job)

    def forget(self, job: RunningJob) -> None:
        """Forget a job, and deregister it from the servers: the last records of it go here.

        Before that, `rank_ended` and `job_over` have called the functions in `at_rank_end` and `at_job_end`, by which
        the parts of a host (`Manager.part`) drop what they keep of ranks and jobs. Here the nodes follow: a server
        forgets an nspace in `engine/python/server.py`, `Server.deregister_nspace` (its topics in `deregistered`),
        to which `serversession` passes it, a native server in `engine/native/serversession.py`, a daemon by the order
        `FORGET_JOB` that `remote.RemoteNode.deregister` sends, and the crossings in `host/exchange/crossing.py`,
        `Crossing.deregister`. A standing session keeps its runs in `standing`. A table by nspace that none of these
        reaches grows with each job.
        """
        nspace = job.nspace
        self.jobs.pop(nspace, None)
        timer = self._lingering.pop(nspace, None)
        if timer is not None:
            timer.cancel()
        for node in self.nodes:
            node.deregister(nspace)
        if self._crossings is not None:
            self._crossings.deregister(nspace)

    def end_ranks(self, named: Collection[Rank], code: int, reason: str, caller: Rank | None = None) -> None:
        """End ranks: a whole job with this outcome, or some ranks of a job that continues.

        Args:
            named: The ranks to end.
            code: The exit code.
            reason: The reason, for a person.
            caller: The rank that requested it.
        """
        for job in list(self.jobs.values()):
            chosen = [rank for rank in named if rank.proc.nspace == job.nspace]
            if chosen:
                job.abort(chosen, code, reason, caller)

    def open_folder(self) -> None:
        """Make the host's folder, and start the guard that removes it and ends all jobs if this process is killed."""
        self.machine.open(self.grace)

    def close_folder(self) -> None:
        """Release the resources that jobs needed, once the servers are closed."""
        for sink in self._sinks.values():
            sink.abandon()
        self._sinks.clear()
        self.machine.close()
