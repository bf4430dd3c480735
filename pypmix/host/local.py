"""LocalHost: the embedded resource manager that runs a job, and those that it spawns, on this machine."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections import deque
from functools import partial

from pypmix.clusters import check_cluster
from pypmix.host import answers, launch, orphans
from pypmix.host.folders import remove, temporary_folder, working_directory
from pypmix.host.guard import Guard
from pypmix.host.job import Application, Job, Node, check_local_size, secret
from pypmix.host.loop import Loop, Turns
from pypmix.host.nodes import LocalNode, check_nodes, in_blocks, usable_cpus
from pypmix.host.outcome import TIMED_OUT, Outcome, exit_code, listed, signal_text
from pypmix.host.output import Sink
from pypmix.host.rank import CONNECTED, FINALIZED
from pypmix.host.running import POLL, RunningJob, patience, readable_here
from pypmix.host.signals import Signals
from pypmix.host.terms import Terms
from pypmix.host.tools import gone, rendezvous_file
from pypmix.standard import statuses
from pypmix.standard._typing import TypeVar
from pypmix.standard.enums import Range
from pypmix.standard.errors import NotInitialized, NotSupported, PMIxError
from pypmix.standard.limits import Limits
from pypmix.standard.logtext import printable, printable_lines
from pypmix.standard.ops import ClientAborted, ClientConnected, ClientFinalized, ClientLost
from pypmix.standard.types import MAX_NSLEN, RANK_WILDCARD, Proc, check_name, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from pypmix.engine.base import Pending, Upcall
    from pypmix.host.crossings import Crossings
    from pypmix.host.feeding import Feed
    from pypmix.host.joining import Joining
    from pypmix.host.loop import Timer
    from pypmix.host.nodes import Wrap
    from pypmix.host.rank import Rank
    from pypmix.requests import Procs
    from pypmix.server import Server
    from pypmix.standard.ops import Notification, Op, Output

P = TypeVar("P")

GRACE = 5.0
"""Seconds that ranks have between the request to end and SIGKILL."""

ENDING = 0.1
"""Seconds within which the end of a rank is known whose connection has ended."""

PULL = "iof_pull"
GROUP = "group"
QUERY = "query_info"
NOTIFY = "notify_event"
"""The names of operations whose types are loaded only where there is one."""

INLINE = frozenset((GROUP, NOTIFY))
"""Those that one server, on the Python engine, has answered on its own thread."""

SWITCH = 0.0005
"""Seconds after which a thread of this process that waits for the interpreter gets it."""

LINGER = 2.0
"""Seconds for which the server knows a job that has ended: what its ranks sent last may still be on its way."""


class LocalHost:
    """Run jobs on this machine: a server, the jobs' processes, their output and input, and the clean-up.

    The first job is given; its ranks, their children and tools spawn others. A rank that is killed by a signal, exits
    with another code than 0, or exits with 0 after it has initialized and not finalized, ends its job; so does
    `PMIx_Abort`. A job that fails ends those that it has spawned, unless they were to be separate; it never ends the
    one that has spawned it. Ending means SIGTERM, and SIGKILL after a grace. Each rank runs in a process group of
    its own, and what it started ends with its job. All is over when all jobs are.

    With several nodes it simulates them, for development and tests: each has a name, `node0` and so on, a temporary
    folder and a server of its own, and the servers know of each other's procs only what they exchange. Ranks are placed
    in blocks of consecutive ones, as even as can be; a job of fewer ranks than there are nodes takes those that run the
    fewest. Tools find the server of the first node.

    Args:
        apps: What to run; ranks are numbered through it.
        terms: How the first job runs.
        engine: The engine of the servers, `python` or `native`.
        library: The libpmix that a native server runs on; by default that of `PYPMIX_LIBPMIX`, or what is found.
        nodes: How many nodes there are; more than one on the Python engine only.
        env: The environment that ranks inherit; this process's by default. Variables of an outer job are left
            out.
        timeout: Seconds after which all is ended; the outcome's reason says what was pending then.
        grace: Seconds that ranks have between SIGTERM and SIGKILL.
        own_process: This process exists for the jobs only, and this is its main thread: take its signals, and
            become the parent of all processes that the jobs leave behind, so that none survives it.
        cluster: The name of the cluster that this host is, which its jobs are told (PMIX_CLUSTER_ID).
        join: A folder by which this host is joined with others that name the same, each a cluster of its own: their
            jobs connect, and look up what the others have published to `Range.GLOBAL`. It takes a `cluster`, and
            servers on the Python engine.
        address: The address that its servers listen on for those of the others.
        nspace: What the nspaces of its jobs begin with, before `@` and their number; made up by default.
        wrap: Is given the function that a server calls with upcalls, and the name of its node, and returns the one
            that it is to call instead, such as `pypmix.host.recording.Recorder.wrap`.
        limits: What one peer may take; what `PYPMIX_LIMITS` says by default.

    Attributes:
        job: The first job.
        jobs: The jobs that are not over, by nspace.
        nodes: The nodes.
        native: Whether its server is libpmix's.
        env: The environment that ranks inherit.
        limits: What one peer may take.
        loop: Where everything happens: other threads post to it.
        deadline: When the time of all jobs is over; None where there is no limit.
        at_rank_end: Called with the job and the rank when a rank has ended.
        at_job_end: Called with a job when nothing of it is left.
        at_departure: Called with a proc, a rank or a tool, that has finalized or lost its connection.
    """

    def __init__(
        self,
        apps: Sequence[Application],
        *,
        terms: Terms | None = None,
        engine: str = "python",
        library: str | None = None,
        nodes: int = 1,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        grace: float = GRACE,
        own_process: bool = False,
        cluster: str = "",
        join: str = "",
        address: str = "127.0.0.1",
        nspace: str = "",
        wrap: Wrap | None = None,
        limits: Limits | None = None,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"a timeout must be more than 0 seconds, not {timeout}")
        check_nodes(nodes, engine)
        self._joining = _joining(cluster, join, address, engine)
        self._cluster = cluster
        self.env = launch.inherited_environment(os.environ if env is None else env)
        self.grace = grace
        self.limits = Limits.of(os.environ) if limits is None else limits
        self._timeout = timeout
        self._own_process = own_process
        self.hostname = socket.gethostname() or "localhost"
        # A name of files, and of what the guard looks for by a pattern.
        label = "".join([c if c.isascii() and c.isalnum() else "-" for c in self.hostname.partition(".")[0]])
        self._name = f"pypmix-{label}-{os.getpid()}-{os.urandom(3).hex()}"
        self.tmpdir = os.path.join(temporary_folder(self.env), self._name)
        self._wdir = working_directory()
        self._space = _check_nspace(nspace) or f"pypmix-{label}-{os.getpid()}-{secret()}"
        self._last = 0
        self.jobs: dict[str, RunningJob] = {}
        self.loop = Loop()
        self._turns = Turns(self.loop.post)
        file = rendezvous_file(os.environ if env is None else env)
        names = [self.hostname] if nodes == 1 else [f"node{number}" for number in range(nodes)]
        self.nodes = tuple(
            [
                LocalNode(
                    number,
                    name,
                    self.tmpdir if nodes == 1 else os.path.join(self.tmpdir, name),
                    self._upcall,
                    engine=engine,
                    library=library,
                    nspace=f"{self._space}@0",
                    tool_support=number == 0,
                    rendezvous_file=file if number == 0 else None,
                    limits=self.limits,
                    wrap=wrap,
                )
                for number, name in enumerate(names)
            ]
        )
        self._crossings: Crossings | None = None
        self.native = engine == "native"
        self.deadline: Timer | None = None
        self.at_rank_end: list[Callable[[RunningJob, Rank], None]] = []
        self.at_job_end: list[Callable[[RunningJob], None]] = []
        self.at_departure: list[Callable[[Proc], None]] = []
        self._parts: dict[type, Any] = {}
        self._first = self._make(tuple(apps), terms or Terms(), None)
        self.job = self._first.job
        self._over: list[RunningJob] = []
        self._sinks: dict[int, Sink] = {}
        self._feed: Feed | None = None
        self._guard: Guard | None = None
        self._limits: tuple[int, int] | None = None
        self.broken: Exception | None = None
        self._outcome: Outcome | None = None
        self._partial: Outcome | None = None
        self._ended_all = False
        self._impatient = False
        self._asked: set[int] = set()
        self._pulls: deque[tuple[LocalNode, Upcall]] = deque()
        self._psets: dict[str, str] = {}
        """The process sets that there are, and the nspaces of the jobs that they have come with."""

    # What answers and jobs use, on the loop's thread.

    @property
    def ending(self) -> bool:
        """Whether all jobs are being ended, and no other may begin."""
        return self._ended_all

    @property
    def running(self) -> int:
        """How many ranks run, of all jobs."""
        return sum([job.running for job in self.jobs.values()])

    @property
    def server(self) -> Server:
        """The server of the first node."""
        return self.nodes[0].server

    @property
    def next_folder(self) -> str:
        """The folder that the next job will have on the first node."""
        return self.nodes[0].folder(self._last + 1)

    def node_of(self, proc: Proc | None) -> LocalNode:
        """Return the node that a proc is on: for a tool the first, and for what has ended perhaps another."""
        found = None if proc is None else self.find(proc)
        return self.nodes[0] if found is None else found[1].node

    def pending(self) -> list[Pending]:
        """Return what is under way, oldest first; nothing once the servers are closed."""
        try:
            return self.server.pending() if self._crossings is None else self._crossings.pending()
        except NotInitialized:
            return []

    def part(self, kind: Callable[[LocalHost], P]) -> P:
        """Return this host's one object of a class, which is made with the host when it is first asked for."""
        found: P | None = self._parts.get(kind)  # type: ignore[call-overload]
        if found is None:
            # Another thread may have been first.
            found = self._parts.setdefault(kind, kind(self))  # type: ignore[call-overload]
        return found

    def has_run(self, nspace: str) -> bool:
        """Tell whether an nspace is that of a job of this host, even one that is over."""
        name, _, number = nspace.rpartition("@")
        return name == self._space and (decimal(number, self._last) or 0) >= 1

    def find(self, proc: Proc) -> tuple[RunningJob, Rank] | None:
        """Return the job and the rank that a proc is; None for tools, and for jobs that are over."""
        job = self.jobs.get(proc.nspace)
        if job is None or proc.rank >= len(job.ranks):
            return None
        return job, job.ranks[proc.rank]

    def expand(self, procs: Iterable[Proc]) -> list[Rank]:
        """Return the ranks that procs name, by rank or by wildcard, of the jobs that are not over."""
        found: dict[Proc, Rank] = {}
        for proc in procs:
            job = self.jobs.get(proc.nspace)
            if job is not None:
                chosen = job.ranks if proc.rank == RANK_WILDCARD else job.ranks[proc.rank : proc.rank + 1]
                found.update({rank.proc: rank for rank in chosen})
        return list(found.values())

    def send(self, signum: int, ranks: Iterable[Rank]) -> None:
        """Send a signal to ranks, and to what they have started."""
        for rank in ranks:
            self.jobs[rank.proc.nspace].send(signum, (rank,))

    def add(
        self,
        apps: tuple[Application, ...],
        terms: Terms,
        parent: Proc | None,
        *,
        nodes: Sequence[LocalNode] = (),
        session_wdir: bool = False,
    ) -> RunningJob:
        """Start a further job and return it.

        Args:
            apps: What to run.
            terms: How.
            parent: Who has asked for it.
            nodes: Where; anywhere by default.
            session_wdir: Whether it runs in its own folder, on the first node.

        Raises:
            OSError: A program or a directory does not exist, or the system lacks what the job needs. Where its ranks
                could not be started, the job says so itself.
            OverflowError: There are too many ranks for a node.
            PMIxError: There is a process set already that an application names (`ERR_EXISTS`).
        """
        folders = [node.folder(self._last + 1) for node in self.nodes]
        if session_wdir:
            os.mkdir(folders[0], 0o700)
        try:
            self._check_psets(apps)
            programs = [self._program(app) for app in apps]
            job = self._make(apps, terms, parent, nodes)
            self._make_room(job.job.size)
            for folder in folders[session_wdir:]:
                os.mkdir(folder, 0o700)
        except BaseException:
            for folder in folders:
                remove(folder)
            raise
        self._begin(job, programs)
        return job

    def define_process_set(self, name: str, members: Procs, *, job: str = "") -> None:
        """Define a process set on all nodes; see `pypmix.Server.define_process_set`.

        Args:
            name: Its name.
            members: Its procs.
            job: The nspace of the job that it ends with; empty for none.
        """
        # All servers know the same, so that the first one refuses what another would.
        for node in self.nodes:
            node.server.define_process_set(name, members)
        self._psets[name] = job

    def delete_process_set(self, name: str) -> None:
        """Delete a process set on all nodes; see `pypmix.Server.delete_process_set`."""
        for node in self.nodes:
            node.server.delete_process_set(name)
        self._psets.pop(name, None)

    def _check_psets(self, apps: Iterable[Application]) -> None:
        for app in apps:
            if app.pset in self._psets or app.pset.rpartition("@")[0] == self._space:
                detail = f"the name {app.pset!r} of a process set is taken"
                raise PMIxError(detail, status=statuses.ERR_EXISTS, operation="spawn")

    def notify(self, event: Notification) -> None:
        """Raise an event: on all nodes, or on that of its source where it is for that one only."""
        narrow = len(self.nodes) > 1 and event.range in (Range.LOCAL, Range.PROC_LOCAL)
        for node in (self.node_of(event.source),) if narrow else self.nodes:
            try:
                node.server.notify(event)
            except NotInitialized:
                return

    def delivery(self, proc: Proc, channel: int, also: int = 0) -> Callable[[bytes], None]:
        """Return what gives the servers a piece of a rank's output, and no data at its end.

        Args:
            proc: The rank.
            channel: The channel that it is of.
            also: A channel that has no output of its own, and ends with this one.
        """
        from pypmix.standard.ops import Output

        def deliver(data: bytes) -> None:
            pass_on(Output(proc, channel, data))
            if also and not data:
                pass_on(Output(proc, also, data))

        def pass_on(output: Output) -> None:
            for node in self.nodes:
                try:
                    node.server.deliver_output(output)
                except NotInitialized:
                    return

        return deliver

    def sink(self, number: int) -> Sink:
        """Return where output for the host's own stdout (1) or stderr (2) goes."""
        if number not in self._sinks:
            other = self._sinks.get(3 - number)
            # Two sinks on one pipe would write into each other's lines.
            same = other is not None and os.path.sameopenfile(1, 2)
            self._sinks[number] = other if other is not None and same else Sink(self.loop, number, self.unwritable)
        return self._sinks[number]

    def guard_group(self, group: int) -> None:
        """Have a process group ended even if this process is killed."""
        assert self._guard is not None
        self._guard.add(group)

    def forget_groups(self, groups: Iterable[int]) -> None:
        """These process groups are no more."""
        assert self._guard is not None
        for group in groups:
            self._guard.remove(group)

    def patience(self) -> Callable[[], bool]:
        """Return what tells whether the grace that starts now still lasts; a second SIGINT ends it."""
        return patience(self.grace, lambda: self._impatient)

    def unwritable(self, error: OSError) -> None:
        """Output cannot be written any more: end all."""
        if isinstance(error, BrokenPipeError):
            # Nobody reads our output any more (`pypmix run ... | head`): what SIGPIPE does to a single program.
            self.end(128 + signal.SIGPIPE, "")
        else:
            self.end(1, f"the ranks' output cannot be written: {error.strerror}")

    def end(self, code: int, reason: str, signum: int = signal.SIGTERM) -> None:
        """End all jobs, unless that is under way already."""
        if self._ended_all:
            return
        self._ended_all = True
        if self._outcome is None:
            self._outcome = Outcome(code, reason)
        for job in list(self.jobs.values()):
            job.end(code, reason, signum)

    def job_failed(self, job: RunningJob) -> None:
        """A job is being ended: take note, and end those that it has spawned."""
        assert job.outcome is not None
        if self._outcome is None and job.terms.counted and not (job.number > 1 and job.unlaunched):
            self._outcome = job.outcome
        for child in list(self.jobs.values()):
            if child.job.parent is not None and child.job.parent.nspace == job.nspace and not child.terms.separate:
                child.end(job.outcome.code, f"{child} was ended because {job} failed, which had spawned it")

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """A rank has ended."""
        if rank.blame or rank.excused:
            self._notices()
        rank.node.server.deregister_client(rank.proc)
        if self._crossings is not None:
            self._crossings.departed(rank.node, rank.proc)
        for function in self.at_rank_end:
            function(job, rank)

    def _notices(self) -> None:
        from pypmix.host.notices import LocalNotices

        self.part(LocalNotices)

    def job_over(self, job: RunningJob) -> None:
        """Nothing of a job is left but its output, perhaps."""
        del self.jobs[job.nspace]
        if self._partial is None and job.terms.counted:
            self._partial = job.partial
        if self.jobs:
            # What has left the job's process groups and lives on may still write; nobody waits for that.
            job.finish_output()
            job.close()
            self.loop.later(LINGER, lambda: self._forget(job.nspace))
        else:
            self._over.append(job)
        for function in self.at_job_end:
            function(job)

    def _forget(self, nspace: str) -> None:
        for name in [name for name, job in self._psets.items() if job == nspace]:
            self.delete_process_set(name)
        for node in self.nodes:
            node.server.deregister_nspace(nspace)
        if self._crossings is not None:
            self._crossings.deregister(nspace)

    # Running

    @property
    def wake_fd(self) -> int:
        """A descriptor that ends the wait of the thread in `run` when a byte is written to it."""
        return self.loop.wake_fd

    def interrupt(self, signum: int) -> None:
        """Take in a signal that this process was sent; from any thread or signal handler.

        SIGUSR1 has all that is pending and the state of each rank written to standard error. SIGUSR2 and SIGCONT
        are passed on to the ranks, SIGTSTP stops them and this process. Others are passed on and end the jobs; a
        SIGINT while they end kills what is left at once.
        """
        self.loop.post(lambda: self._interrupted(signum))

    def run(self) -> Outcome:
        """Run the job and return when nothing of it and of those that it has spawned is left; to be called once.

        Returns:
            The first failure; code 0 if there was none.

        Raises:
            FileNotFoundError: A program or a working directory does not exist.
            PermissionError: A program cannot be executed.
            OSError: The system lacks what the job needs.
        """
        signals = Signals(self) if self._own_process else None
        interval = sys.getswitchinterval()
        if self._own_process:
            # The servers' threads give the interpreter away with each system call, and get it back this much later
            # while the host is busy for somebody.
            sys.setswitchinterval(SWITCH)
        try:
            programs = [self._program(app) for app in self.job.apps]
            self._make_room(self.job.size)
            if signals is not None:
                signals.take()
            try:
                self._run(programs)
            finally:
                self._close()
        finally:
            if signals is not None:
                signals.restore()
            if self._limits is not None:
                launch.restore_descriptor_limit(0, self._limits)
            self.loop.close()
            sys.setswitchinterval(interval)
        return self._outcome or self._partial or Outcome(0)

    def _run(self, programs: list[str]) -> None:
        os.mkdir(self.tmpdir, 0o700)
        self._guard = Guard(self.tmpdir)
        for node in self.nodes if len(self.nodes) > 1 else ():
            os.mkdir(node.tmpdir, 0o700)
        if len(self.nodes) > 1 and self._joining is None:
            from pypmix.host.crossings import Crossings

            self._crossings = Crossings(self)
        for node in self.nodes:
            node.server.open()
        if self._joining is not None:
            from pypmix.host.crossings import Crossings

            # Others see it at once, and may ask.
            self._crossings = Crossings(self, joining=self._joining)
        if self._timeout is not None:
            self.deadline = self.loop.later(self._timeout, self._timed_out)
        if self._own_process:
            orphans.adopt()
        self._begin(self._first, programs)
        self._feed_input()
        self.loop.run(lambda: not self.jobs or self.broken is not None)
        if self.broken is not None:
            raise self.broken
        self._sweep()
        self._hand_over()

    def _make(
        self,
        apps: tuple[Application, ...],
        terms: Terms,
        parent: Proc | None,
        nodes: Sequence[LocalNode] = (),
    ) -> RunningJob:
        size = sum([app.np for app in apps])
        check_local_size(size)
        placed = in_blocks(size, nodes or self.nodes)
        jobs = [job.job for job in self.jobs.values()]
        # Simulated nodes share the CPUs of this machine.
        crowded = size + self.running > usable_cpus()
        job = Job(
            nspace=f"{self._space}@{self._last + 1}",
            apps=apps,
            nodes=tuple([self._described(node, ranks, jobs, crowded) for node, ranks in placed]),
            session=os.getpid(),
            tmpdir=placed[0][0].folder(self._last + 1),
            wdir=self._wdir,
            parent=parent,
            first=max([job.first + job.size for job in jobs], default=0),
            others=self.running,
            cluster=self._cluster,
        )
        self._last += 1
        return RunningJob(self, job, self._last, terms, placed)

    def _described(self, node: LocalNode, ranks: tuple[int, ...], jobs: Iterable[Job], crowded: bool) -> Node:
        # Ranks of a node are numbered through all that runs there.
        there = [each for job in jobs for each in job.nodes if each.number == node.number]
        first = max([(each.first or 0) + len(each.ranks) for each in there], default=0)
        return Node(node.hostname, ranks, node.number, first, node.running, crowded)

    def _make_room(self, ranks: int) -> None:
        open_files = 0 if not self.jobs else 2 * self.running
        limits = launch.raise_descriptor_limit(self.running + ranks, open_files)
        self._limits = self._limits or limits

    def _begin(self, job: RunningJob, programs: Sequence[str]) -> None:
        self.jobs[job.nspace] = job
        if len(self.nodes) == 1:
            if self._crossings is not None:
                self._crossings.register(job)
            self.server.register_nspace(job.job.info())
        else:
            assert self._crossings is not None
            self._crossings.register(job)
            ranks = {node.number: node.ranks for node in job.job.nodes}
            for node in self.nodes:
                here = job.job.replace(tmpdir=node.folder(job.number))
                node.server.register_nspace(here.info(), ranks.get(node.number, ()))
        for name, members in job.job.psets().items():
            self.define_process_set(name, members, job=job.nspace)
        job.start(programs, self._limits)

    def _program(self, app: Application) -> str:
        if app.wdir and not os.path.isdir(app.wdir):
            raise FileNotFoundError(2, "no such working directory", app.wdir)
        return launch.find_program(app.program or app.argv[0], app.environment(self.env), app.wdir)

    def _feed_input(self) -> None:
        """Pass this process's own input on, where ranks were not given it as it is."""
        terms = self._first.terms
        inputs = [rank.input for rank in self._first.ranks if rank.input is not None]
        if terms.pushed or not inputs:
            return
        if readable_here(0):
            from pypmix.host.feeding import Feed

            self._feed = Feed(self.loop, 0, inputs)
        else:
            for each in inputs:
                each.close()

    # What clients ask

    def _upcall(self, node: LocalNode, upcall: Upcall) -> None:
        # On the engine's thread. What a rank did is noted before it is answered, hence before it can exit.
        op = upcall.op
        if op.name in INLINE and self._crossings is None and not self.native:
            # Nothing but a number is asked for, if anything, which two threads more would make late.
            self._answer(node, upcall)
            return
        match op:
            case ClientConnected():
                self._note(op.proc, CONNECTED)
                if self._crossings is not None:
                    self._turns.add(op.proc, partial(self._crossings.connected, node, op.proc))
            case ClientFinalized():
                self._note(op.proc, FINALIZED)
                # Behind what it has asked for.
                self._turns.add(op.proc, lambda: self._finalized(node, op.proc))
            case ClientLost():
                found = self.find(op.proc)
                if found is not None:
                    found[1].lost = True
                self._turns.add(op.proc, lambda: self._lost(node, op.proc))
            case ClientAborted():
                self.loop.post(lambda: self._aborted(op))
            case _ if op.name == PULL:
                self._pulls.append((node, upcall))
                self.loop.post(self._answer_pulls)
                return
            case _ if op.name == GROUP and self.native:
                self.loop.post(partial(self._group, node, upcall))
                return
            case _:
                self._turns.add(upcall.requestor, lambda: self._answer(node, upcall))
                return
        upcall.reply()

    def _answer_pulls(self) -> None:
        while self._pulls:
            self._answer(*self._pulls.popleft())

    def catch_up(self) -> None:
        """Have all pulls answered whose clients count on what was written since: their server did not wait for that."""
        for node in self.nodes:
            try:
                node.server.session.catch_up()
            except NotInitialized:
                return
        self._answer_pulls()

    def _finalized(self, node: LocalNode, proc: Proc) -> None:
        if self._crossings is not None:
            self._crossings.finalized(node, proc)
        gone(self, proc)

    def _lost(self, node: LocalNode, proc: Proc) -> None:
        if self._crossings is not None:
            self._crossings.departed(node, proc)
        gone(self, proc)

    def _answer(self, node: LocalNode, upcall: Upcall) -> None:
        """Have a request answered; one thread for all of them, so that nothing in them can meet."""
        op = upcall.op
        try:
            if self.native and self._crossings is None and op.name in (GROUP, QUERY, NOTIFY):
                self._cross(op)
            if self._crossings is not None and self._crossings.answer(node, upcall):
                return
            function = answers.found.get(type(op)) or answers.find(type(op))
            if function is None:
                raise NotSupported("LocalHost does not offer it", operation=op.name)
            function(self, upcall)
        except PMIxError as error:
            upcall.fail(error)
        except Exception as error:
            from pypmix.standard.logtext import get_logger

            get_logger("pypmix.host").exception("%s could not be answered", op.name)
            upcall.fail(error)

    def _group(self, node: LocalNode, upcall: Upcall) -> None:
        from pypmix.host.groups import was_broken

        # Who it is that has ended is heard only after the server has said that somebody has.
        self.loop.later(ENDING if was_broken(upcall.op) else 0, partial(self._answer, node, upcall))

    def _cross(self, op: Op[Any]) -> None:
        """Deal with groups as servers of several nodes do: a native server gathers and remembers nothing of them."""
        from pypmix.host.groups import is_about_groups

        if is_about_groups(op):
            from pypmix.host.crossings import Crossings

            self._crossings = Crossings(self, is_about_groups)

    def _note(self, proc: Proc, stage: str) -> None:
        found = self.find(proc)
        if found is not None:
            found[1].stage = stage

    def _aborted(self, op: ClientAborted) -> None:
        found = self.find(op.proc)
        caller = found[1] if found is not None else None
        named = self.expand(op.targets or (Proc.unchecked(op.proc.nspace, RANK_WILDCARD),))
        reason = f"{self.who(op.proc)} called abort with status {op.code}"
        if op.message:
            reason += f": {printable(op.message)}"
        code = exit_code(op.code)
        for job in list(self.jobs.values()):
            chosen = [rank for rank in named if rank.proc.nspace == job.nspace]
            if not chosen:
                continue
            if all(rank in chosen for rank in job.ranks if rank.alive):
                job.end(code, reason + job.others(caller))
            else:
                job.end_ranks(chosen, code, f"{reason}; it ended {listed([str(rank) for rank in chosen])}")

    def _timed_out(self) -> None:
        if self._ended_all:
            return
        from pypmix.host.report import unfinished

        lines = [f"the job did not end within {self._timeout:g} s and was ended", *unfinished(self, self.who)]
        self.end(TIMED_OUT, "\n  ".join(lines))

    def who(self, proc: Proc) -> str:
        """Return what a person is told of a proc: the rank with its pid."""
        found = self.find(proc)
        return printable(found[1] if found is not None else proc)

    # Ending

    def _interrupted(self, signum: int) -> None:
        if signum == signal.SIGUSR1:
            from pypmix.host.report import report

            self.sink(2).write(None, f"pypmix run: {printable_lines(report(self, self.who))}\n".encode())
        elif signum in (signal.SIGUSR2, signal.SIGCONT):
            self._signal_all(signum)
        elif signum == signal.SIGTSTP:
            self._signal_all(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._signal_all(signal.SIGCONT)
        elif any(job.outcome is None for job in self.jobs.values()):
            self.end(128 + signum, f"ended by {signal_text(signum)}", signum)
        elif signum == signal.SIGINT:
            self._impatient = True
            self._signal_all(signal.SIGKILL)

    def _signal_all(self, signum: int) -> None:
        for job in list(self.jobs.values()):
            job.send(signum)

    def _sweep(self) -> None:
        """End what has left the jobs' process groups."""
        if self._own_process and self._strays(signal.SIGTERM):
            patience = self.patience()
            # Nobody tells of the end of a process that is not ours, so it is asked for.
            self.loop.run(lambda: not self._strays(0 if patience() else signal.SIGKILL), every=POLL)

    def _strays(self, signum: int) -> bool:
        """Send a signal to what is left behind, 0 for none; tell whether there is anything."""
        assert self._guard is not None
        strays = orphans.collect({self._guard.pid})
        for pid in strays:
            # The end of one makes orphans of its children, so there are new ones to ask all the time.
            os.kill(pid, signum if pid in self._asked else signal.SIGTERM)
        self._asked |= strays
        return bool(strays)

    def _hand_over(self) -> None:
        """Pass on the last of the output; for jobs that were ended, only as long as the grace."""
        for job in self._over:
            job.finish_output()
        patience = self.patience()
        ended = self._outcome is not None
        self.loop.run(
            lambda: (
                all(sink.empty for sink in self._sinks.values()) or not (patience() if ended else not self._impatient)
            ),
            every=POLL if ended else None,
        )

    def _close(self) -> None:
        if self._feed is not None:
            self._feed.close()
        for job in (*self.jobs.values(), *self._over):
            job.close()
        for sink in self._sinks.values():
            sink.abandon()
        if self._crossings is not None:
            self._crossings.close()
        for node in self.nodes:
            node.server.close()
        remove(self.tmpdir)
        if self._guard is not None:
            self._guard.dismiss()


def _joining(cluster: str, folder: str, address: str, engine: str) -> Joining | None:
    """Return with whom a host is joined; raise `ValueError` where it cannot be."""
    if cluster:
        check_cluster(cluster)
    if not folder:
        return None
    if not cluster:
        raise ValueError("hosts that are joined are clusters, and each has a name of its own: name this one's")
    if engine != "python":
        raise ValueError("clusters are joined with servers on the python engine only")
    from pypmix.host.joining import Joining

    return Joining(cluster, folder, address)


def _check_nspace(nspace: str) -> str:
    """Return what nspaces begin with, if they can."""
    if any(c in nspace for c in ":/@") or len(nspace) > MAX_NSLEN // 2:
        raise ValueError(f"the nspaces of jobs cannot begin with {nspace!r:.80}")
    return check_name(nspace, MAX_NSLEN // 2, "an nspace")
