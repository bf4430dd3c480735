"""Manager: the jobs on the nodes of a host; `pypmix.host.serving` adds the answers to requests of their procs.

Order. A job is registered with the servers before its ranks start. A rank's end reaches the servers first (their
collectives stop waiting for it), then the functions in `at_rank_end`. A job is finished when only its output may be
left; the servers know it for some seconds longer, since the last messages of its ranks may not have arrived.
"""

from __future__ import annotations

import os
import signal
from functools import partial
from itertools import count

from pypmix.engine.faults import fault
from pypmix.host import launch
from pypmix.host.folders import remove, working_directory
from pypmix.host.guard import Guard
from pypmix.host.job import Job, Node, check_local_size
from pypmix.host.loop import Turns
from pypmix.host.mapping import Mapping
from pypmix.host.nodes import in_blocks, usable_cpus
from pypmix.host.output import Sink
from pypmix.host.placing import ANYWHERE, placed
from pypmix.host.running import Launch, RunningJob, patience
from pypmix.standard import statuses
from pypmix.standard._typing import TypeVar
from pypmix.standard.errors import NotFound, NotInitialized, PMIxError
from pypmix.standard.logtext import get_logger, printable
from pypmix.standard.naming import common_job, name_proc
from pypmix.standard.ops.events import RANGE_LOCAL, RANGE_PROC_LOCAL
from pypmix.standard.types import RANK_WILDCARD, Proc, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence
    from collections.abc import Mapping as Variables
    from typing import Any, Protocol

    from pypmix.arguments import Procs
    from pypmix.engine.base import Upcall
    from pypmix.engine.common import Pending
    from pypmix.host.forking.servers import ForkServer, ForkServers
    from pypmix.host.job import Application
    from pypmix.host.loop import Cancellable, HostLoop
    from pypmix.host.nodes import HostNode, LocalNode
    from pypmix.host.outcome import Outcome
    from pypmix.host.placing import Target, Wanted
    from pypmix.host.rank import Rank
    from pypmix.host.terms import Terms
    from pypmix.server import Server
    from pypmix.standard.limits import Limits
    from pypmix.standard.ops import Notification, Output

    class Growing(Protocol):
        """Makes nodes join and leave; see `pypmix.host.elastic.Elastic`."""

        def grow(self, wanted: Wanted, done: Callable[[str, PMIxError | None], None], request: str = "", /) -> None: ...

        def shrink(
            self,
            names: Sequence[str],
            end_ranks: bool,
            done: Callable[[], None],
            request: str = "",
            asker: str = "",
            /,
        ) -> None: ...

        def nodes_of(self, granted: str, /) -> tuple[str, ...]: ...

        def when_begun(self, call: Callable[[], None], /) -> None: ...

        def idle(self, number: int, /) -> list[str]: ...

    class Joint(Protocol):
        """The operations that servers of several nodes carry out together.

        `prompt`: whether its methods may be called on any thread, and are called at once.
        """

        prompt: bool

        def answer(self, node: HostNode, upcall: Upcall, /) -> bool: ...

        def register(self, job: RunningJob, /) -> None: ...

        def deregister(self, nspace: str, /) -> None: ...

        def connected(self, node: HostNode, proc: Proc, /) -> None: ...

        def finalized(self, node: HostNode, proc: Proc, /) -> None: ...

        def departed(self, node: HostNode, proc: Proc, /) -> None: ...

        def pending(self) -> list[Pending]: ...

        def close(self) -> None: ...


P = TypeVar("P")

LINGER = 2.0
"""Seconds for which the server knows a job that has ended: the last messages of its ranks may not have arrived."""

FIRST_CONTEXT_ID = 1 << 32
"""The first context id that a host assigns; a server that completes a group alone begins at 1."""


class Manager:
    """Runs jobs on nodes.

    Args:
        loop: The loop on whose thread everything happens.
        env: The environment that ranks inherit.
        tmpdir: Its folder, made by `open_folder`.
        space: The beginning of the nspaces of its jobs, before `@` and their number.
        grace: Seconds that ranks have between the request to end and SIGKILL.
        limits: The resources that one peer may use.
        cluster: The name of the cluster that its jobs are given; empty for none.

    Attributes:
        turns: The work done on behalf of procs, on the loop's thread.
        jobs: The jobs that are not finished, by nspace.
        nodes: The nodes.
        here: The nodes whose servers are in this process.
        listeners: The other nodes on which a client may read the output of ranks.
        native: Whether its server uses libpmix.
        forks: The fork servers for ranks that run Python programs; None if every rank is started separately.
        due: The time at which the limit of all jobs ends, by `time.monotonic`; None without a limit.
        wdir: The folder for jobs that name no other folder.
        next_context_id: Returns a context id that no other group of the session has; from any thread.
        at_rank_end: Called with the job and the rank when a rank has ended.
        at_job_end: Called with a job when nothing of it is left.
        at_departure: Called with a proc, a rank or a tool, that has finalized or lost its connection.
    """

    def __init__(
        self,
        loop: HostLoop,
        *,
        env: Variables[str, str],
        tmpdir: str,
        space: str,
        grace: float,
        limits: Limits,
        cluster: str = "",
    ) -> None:
        self.loop = loop
        self.turns = Turns(loop.post)
        self.env = env
        self.tmpdir = tmpdir
        self.grace = grace
        self.limits = limits
        self.wdir = working_directory()
        self.jobs: dict[str, RunningJob] = {}
        self.nodes: tuple[HostNode, ...] = ()
        self.here: tuple[LocalNode, ...] = ()
        self.listeners: dict[HostNode, None] = {}
        self.native = False
        self._is_ended = False
        """Whether a resource manager has sent SIGTERM to all processes of a node."""
        self.due: float | None = None
        self.next_context_id: Callable[[], int] = partial(next, count(FIRST_CONTEXT_ID))
        self.at_rank_end: list[Callable[[RunningJob, Rank], None]] = []
        self.at_job_end: list[Callable[[RunningJob], None]] = []
        self.at_departure: list[Callable[[Proc], None]] = []
        self._space = space
        self._cluster = cluster
        self._last = 0
        self._crossings: Joint | None = None
        self._parts: dict[type, Any] = {}
        self._sinks: dict[int, Sink] = {}
        self._guard: Guard | None = None
        self.forks: ForkServers | None = None
        self._file_limits: tuple[int, int] | None = None
        self._lingering: dict[str, Cancellable] = {}
        self._psets: dict[str, tuple[str, Procs]] = {}
        """The process sets: the nspace of the job that each belongs to, and its members."""

    # Used by answers and jobs, on the loop's thread.

    @property
    def ending(self) -> bool:
        """Whether all jobs are being ended, and no other may begin."""
        return False

    @property
    def elastic(self) -> Growing | None:
        """The object that adds and removes nodes while jobs run; None if the nodes are fixed."""
        return None

    @property
    def space(self) -> str:
        """The beginning of the nspaces of its jobs."""
        return self._space

    @property
    def running(self) -> int:
        """The number of ranks that run, of all jobs."""
        return sum([job.running for job in self.jobs.values()])

    @property
    def server(self) -> Server:
        """The server of the first node."""
        return self.nodes[0].server

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

    def refresh(self, done: Callable[[], None]) -> None:
        """Collect the pending operations of nodes that other processes serve, and call a function then."""
        done()

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

    @property
    def room(self) -> int:
        """The number of CPUs, or slots, that no rank has yet."""
        return max(0, usable_cpus() - self.running)

    def part(self, kind: Callable[[Manager], P]) -> P:
        """Return this manager's one object of a class; it is made with the manager as its argument on first use."""
        found: P | None = self._parts.get(kind)  # type: ignore[call-overload]
        if found is None:
            # Another thread may have been first.
            found = self._parts.setdefault(kind, kind(self))  # type: ignore[call-overload]
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

    def who(self, proc: Proc) -> str:
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
    ) -> RunningJob:
        """Start a further job and return it.

        Args:
            apps: The applications to run.
            terms: The terms that it runs with.
            parent: The proc that requested it.
            target: The nodes to run on; any by default.
            session_wdir: Whether it runs in its session folder, on the first node.

        Raises:
            OSError: A program or a directory does not exist, or the system lacks a resource that the job needs. If its
                ranks could not be started, the job reports that itself.
            OverflowError: There are too many ranks for the nodes.
            PMIxError: A process set that an application names already exists (`ERR_EXISTS`).
        """
        folders = [node.folder(self._last + 1) for node in self.here]
        if session_wdir:
            os.mkdir(folders[0], 0o700)
        try:
            self._check_psets(apps)
            programs = [self.program(app) for app in apps]
            job = self.make(apps, terms, parent, target)
            self.make_room(job.job.size)
            for folder in folders[session_wdir:]:
                os.mkdir(folder, 0o700)
        except BaseException:
            for folder in folders:
                remove(folder)
            raise
        self.begin(job, programs)
        return job

    def make(
        self,
        apps: tuple[Application, ...],
        terms: Terms,
        parent: Proc | None,
        target: Target = ANYWHERE,
    ) -> RunningJob:
        """Return a job that is placed on nodes, to `begin`."""
        size = sum([app.np for app in apps])
        check_local_size(size)
        placed = self.place([app.np for app in apps], target)
        jobs = [job.job for job in self.jobs.values()]
        # Ranks of a node are numbered through all jobs that run there.
        taken: dict[int | None, int] = {}
        for there in [node for other in jobs for node in other.nodes]:
            taken[there.number] = max(taken.get(there.number, 0), (there.first or 0) + len(there.ranks))
        # Nodes without slots share the CPUs of this machine.
        crowded = size + self.running > usable_cpus()
        number = self._last + 1
        folder = placed[0][0].folder(number)
        if any(app.preload for app in apps) and placed[0][0].here:
            from pypmix.host.preload import told

            apps = told(apps, folder)
        job = Job(
            nspace=f"{self._space}@{number}",
            apps=apps,
            nodes=tuple([self._described(node, ranks, taken.get(node.number, 0), crowded) for node, ranks in placed]),
            session=os.getpid(),
            tmpdir=folder,
            wdir=self.wdir,
            parent=parent,
            first=max([job.first + job.size for job in jobs], default=0),
            others=self.running,
            cluster=self._cluster,
        )
        self._last = number
        homes = {rank: node for node, ranks in placed for rank in ranks}
        return RunningJob(self, job, number, terms, homes, "" if number == 1 else str(number))

    def launch_of(self, job: RunningJob, ranks: list[Rank], terms: Terms, held: bool) -> Launch:
        """Make a launch of ranks of a job."""
        return Launch(job, ranks, terms, held)

    @property
    def mapping(self) -> Mapping:
        """The rules by which ranks are placed for a job that gives none."""
        return Mapping(crowded=True)

    def place(self, sizes: Sequence[int], target: Target) -> list[tuple[HostNode, tuple[int, ...]]]:
        """Place the ranks of a job on nodes, and return the nodes that hold ranks, each with its ranks.

        The nodes share the CPUs of this machine: each has as many slots as make the blocks even.

        Args:
            sizes: The number of ranks of each of its applications.
            target: The placement that the job requests.

        Raises:
            OverflowError: There is no room for them.
        """
        size = sum(sizes)
        blocks = in_blocks(size, target.nodes or self.nodes)
        mapping = target.mapping or self.mapping
        if mapping == Mapping(crowded=True) and not target.slots:
            return blocks
        if not mapping.crowded and size > self.room:
            raise OverflowError(f"{size} procs, and {self.room} CPUs without one")
        if not target.slots:
            mapping = mapping.replace(crowded=True)
        slots = [(node, node.running + target.slots.get(node.hostname, len(ranks))) for node, ranks in blocks]
        return placed(sizes, slots, target.slots, mapping)

    def _described(self, node: HostNode, ranks: tuple[int, ...], first: int, crowded: bool) -> Node:
        if node.slots is not None:
            # Slots beyond the number of CPUs do not keep ranks from waiting for each other.
            most = min(node.slots, node.cpus or node.slots)
            crowded = node.running + len(ranks) > most
        return Node(node.hostname, ranks, node.number, first, node.running, crowded)

    def make_room(self, ranks: int) -> None:
        """Make room for the descriptors of this many further ranks."""
        open_files = 0 if not self.jobs else 2 * self.running
        limits = launch.raise_descriptor_limit(self.running + ranks, open_files)
        self._file_limits = self._file_limits or limits

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
                node.register(job.job, job.number, job.terms, here[node])
        except BaseException:
            if self._crossings is not None:
                self._crossings.deregister(nspace)
            raise
        self.jobs[nspace] = job
        try:
            for name, members in job.job.psets().items():
                self.define_process_set(name, members, job=nspace)
        except BaseException:
            self.drop_psets(nspace)
            self.forget(job)
            self.jobs.pop(nspace, None)
            raise

    def add_node(self, node: HostNode) -> None:
        """Add a node that has joined, and register the existing jobs and process sets with it."""
        for job in self.jobs.values():
            node.register(job.job, job.number, job.terms, ())
        for name, (_, members) in self._psets.items():
            node.define_process_set(name, members)
        self.nodes = (self.nodes[0], *sorted((*self.nodes[1:], node), key=lambda each: each.number))

    def started(self, job: RunningJob) -> None:
        """Register a job whose ranks are about to be started."""
        self.register(job)

    def begin(self, job: RunningJob, programs: Sequence[str]) -> None:
        """Register a job and start its ranks."""
        if job.nodes[0].here and any(app.preload for app in job.job.apps):
            from pypmix.host.preload import link

            link(job.job.apps, job.job.tmpdir)
        self.started(job)
        job.launch(range(job.job.size)).start(job.job.apps, programs, self._file_limits)

    def program(self, app: Application) -> str:
        """Return the path of the program of an application."""
        if app.wdir and not os.path.isdir(app.wdir):
            raise FileNotFoundError(2, launch.NO_FOLDER, app.wdir)
        return launch.find_program(app.program or app.argv[0], app.environment(self.env), app.wdir)

    def define_process_set(self, name: str, members: Procs, *, job: str = "") -> None:
        """Define a process set on all nodes; see `pypmix.Server.define_process_set`.

        Args:
            name: Its name.
            members: Its procs.
            job: The nspace of the job with which it is deleted; empty for none.
        """
        # All servers have the same sets, so the first one refuses a set that another would refuse.
        for node in self.nodes:
            node.define_process_set(name, members)
        self._psets[name] = job, members

    def delete_process_set(self, name: str) -> None:
        """Delete a process set on all nodes; see `pypmix.Server.delete_process_set`."""
        self._psets.pop(name, None)
        for node in self.nodes:
            node.delete_process_set(name)

    def _check_psets(self, apps: Iterable[Application]) -> None:
        for app in apps:
            if app.pset in self._psets or app.pset.rpartition("@")[0] == self._space:
                detail = f"the name {app.pset!r} of a process set is taken"
                raise PMIxError(detail, status=statuses.ERR_EXISTS, operation="spawn")

    def notify(self, event: Notification) -> None:
        """Raise an event on all nodes, or only on the node of its source if its range is local."""
        narrow = len(self.nodes) > 1 and event.range in (RANGE_LOCAL, RANGE_PROC_LOCAL)
        for node in (self.node_of(event.source),) if narrow else self.nodes:
            try:
                node.notify(event)
            except NotInitialized:
                return

    def delivery(self, proc: Proc, channel: int, also: int = 0) -> Callable[[bytes], None]:
        """Return a function that gives the servers a piece of a rank's output, and empty data at its end.

        Args:
            proc: The rank.
            channel: The channel of the output.
            also: A channel without output, which ends with this one.
        """
        from pypmix.standard.ops import Output

        def deliver(data: bytes) -> None:
            pass_on(Output(proc, channel, data))
            if also and not data:
                pass_on(Output(proc, also, data))

        def pass_on(output: Output) -> None:
            for node in (*self.here, *self.listeners):
                try:
                    node.deliver_output(output)
                except NotInitialized:
                    return

        return deliver

    def catch_up(self) -> None:
        """Make a server of libpmix, which answers pulls of output itself, pass on the requests of its clients."""
        try:
            self.server.session.catch_up()
        except NotInitialized:
            return

    def sink(self, number: int) -> Sink:
        """Return the sink for output to the host's stdout (1) or stderr (2)."""
        if number not in self._sinks:
            other = self._sinks.get(3 - number)
            # Two sinks on one pipe would write into each other's lines.
            same = other is not None and os.path.sameopenfile(1, 2)
            self._sinks[number] = other if other is not None and same else Sink(self.loop, number, self.unwritable)
        return self._sinks[number]

    def unwritable(self, error: OSError) -> None:
        """Report that output can no longer be written."""
        get_logger("pypmix.host").error("the output of processes cannot be written any more: %s", error.strerror)

    def guard_group(self, group: int) -> None:
        """Make sure that a process group is ended even if this process is killed."""
        assert self._guard is not None
        self._guard.add(group)

    def forget_groups(self, groups: Iterable[int]) -> None:
        """Stop guarding process groups, which are empty."""
        assert self._guard is not None
        for group in groups:
            self._guard.remove(group)

    def patience(self) -> Callable[[], bool]:
        """Return a predicate that is true while the grace lasts, which starts now."""
        return patience(self.grace, lambda: False)

    def is_sent_to_all(self, signum: int) -> bool:
        """Return True if a signal was sent to all processes around this one, its ranks too; note it for the nodes."""
        if self._guard is None or not self._guard.was_sent(signum):
            return False
        for node in self.here:
            self.record_reached(node, signum)
        return True

    def record_reached(self, node: HostNode, signum: int) -> None:
        """Record that a resource manager has sent a signal to all processes of a node."""
        node.reached.add(signum)
        self._is_ended = self._is_ended or signum == signal.SIGTERM

    def forget_reached(self) -> None:
        """End ranks without waiting for a resource manager."""
        self._is_ended = False
        for node in self.nodes:
            node.reached.clear()

    def is_being_ended(self) -> bool:
        """Return True if a resource manager has sent SIGTERM to all processes of a node: it kills them at its pace."""
        return self.is_sent_to_all(signal.SIGTERM) or self._is_ended

    def pass_on(self, signum: int, *, handled: bool = False) -> None:
        """Send a signal to all ranks; see `HostNode.signal`."""
        for job in list(self.jobs.values()):
            job.send(signum, handled=handled)

    def broke(self, error: Exception) -> None:
        """Report an internal fault that keeps a job from ending."""
        fault("a step of a job", error)

    def outcome_corrected(self, former: Outcome, outcome: Outcome) -> None:
        """Replace an outcome: the request that ended a job arrived after the end of the rank that sent it."""

    def job_failed(self, job: RunningJob) -> None:
        """End the jobs that a failed job has spawned."""
        assert job.outcome is not None
        for child in list(self.jobs.values()):
            if child.job.parent is not None and child.job.parent.nspace == job.nspace and not child.terms.separate:
                child.end(job.outcome.code, f"{child} was ended because {job} failed, which had spawned it")

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """Deregister a rank that has ended, and call `at_rank_end`."""
        rank.node.deregister_client(rank.proc)
        if self._crossings is not None:
            self._crossings.departed(rank.node, rank.proc)
        for function in self.at_rank_end:
            function(job, rank)

    def job_over(self, job: RunningJob) -> None:
        """Close a job of which only output may be left."""
        # Processes that have left the job's process groups may still write; do not wait for that.
        job.finish_output()
        job.close()
        # Handlers of the end of a job find none of its sets.
        self.drop_psets(job.nspace)
        self._lingering[job.nspace] = self.loop.later(LINGER, lambda: self.forget(job))
        self.tell_end(job)

    def tell_end(self, job: RunningJob) -> None:
        """Call `at_job_end` after all ranks of a job have ended."""
        for function in self.at_job_end:
            function(job)

    def forget(self, job: RunningJob) -> None:
        """Deregister a job from the servers."""
        nspace = job.nspace
        timer = self._lingering.pop(nspace, None)
        if timer is not None:
            timer.cancel()
        for node in self.nodes:
            node.deregister(nspace)
        if self._crossings is not None:
            self._crossings.deregister(nspace)

    def drop_psets(self, nspace: str) -> None:
        """Delete the process sets of a job."""
        for name in [name for name, (owner, _) in list(self._psets.items()) if owner == nspace]:
            try:
                self.delete_process_set(name)
            except NotFound:
                # Another caller has deleted it.
                continue

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

    # Processes

    def start_process(
        self,
        app: Application,
        program: str,
        argv: tuple[str, ...],
        env: Variables[str, str],
        files: tuple[int, int, int],
    ) -> tuple[ForkServer | None, int]:
        """Start a process: fork it if it can be forked and this host has fork servers.

        Args:
            app: The application of the process.
            program: The path of its program.
            argv: Its command line.
            env: Its whole environment.
            files: The descriptors to give it as its standard input, output and error.

        Returns:
            The fork server that is its parent, or None if this process is; and its pid.

        Raises:
            OSError: It cannot be started.
        """
        forks = self.forks
        found = None if forks is None else forks.prepare(app, program, self.env, self.wdir or os.sep, self.tmpdir)
        if found is None:
            return None, launch.spawn(program, argv, env, files, app.wdir)
        server = found[1]
        return server, server.start(found[0].start(argv, env, app.wdir, server.session), files)

    def fork_server(self, app: Application) -> ForkServer | None:
        """Return the fork server of an application, started if necessary; None if the application has none.

        Raises:
            OSError: Its program does not exist, or the fork server cannot be started.
        """
        if self.forks is None:
            return None
        found = self.forks.prepare(app, self.program(app), self.env, self.wdir or os.sep, self.tmpdir)
        return None if found is None else found[1]

    def fork_server_ended(self, server: ForkServer) -> None:
        """End the jobs with running ranks of a fork server that has ended early."""
        for job in list(self.jobs.values()):
            if any(rank.alive and rank.forked is server for rank in job.ranks):
                job.end(1, f"{server.end()}{job.others(None)}")

    def servants(self) -> set[int]:
        """Return the pids of the children of this process that belong to no job."""
        found = set() if self._guard is None else {self._guard.pid}
        return found if self.forks is None else found | self.forks.pids

    # The folder, and its guard

    def open_folder(self) -> None:
        """Make the host's folder, and start the guard that removes it and ends all jobs if this process is killed."""
        try:
            os.mkdir(self.tmpdir, 0o700)
        except OSError as error:
            text = f"{error.strerror}: the folder of this run cannot be made; TMPDIR may name another place"
            raise OSError(error.errno, text, self.tmpdir) from None
        self._guard = Guard(self.tmpdir, self.grace)

    def close_folder(self) -> None:
        """Release the resources that jobs needed, once the servers are closed."""
        for sink in self._sinks.values():
            sink.abandon()
        self._sinks.clear()
        remove(self.tmpdir)
        if self._guard is not None:
            self._guard.dismiss()
