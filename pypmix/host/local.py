"""LocalHost: the embedded resource manager that runs a job, and the jobs that it spawns, until all have ended.

Theory of operation. `pypmix run`, the sessions of `pypmix session` and the plugin of pytest are a `LocalHost`. It adds
a beginning, an end, and this process's signals to a `ServingManager`.

- **Nodes.** Without `remote`, the nodes are `LocalNode` objects of this process, each with a server: this machine, or
  several simulated nodes. With `remote`, a `Fleet` starts a daemon on each node, the ranks run there, and the server
  of this process serves only tools. The rest of the class does not know the difference: it asks `self.site`.
- **Order of `run`.** The programs are looked up before anything is started. Then the folder, the servers and the
  crossings between them are opened, and the daemons join (`site.open`). Only then is the number of ranks known if the
  job fills its nodes, and the first job is made and begun. One loop (`loop.run`) does all else, in this thread, until
  no job is left; output that is still in pipes is passed on at the end.
- **Threads.** Servers have a thread each, and post what concerns the host to the loop; `interrupt` may be called from
  anywhere and does the same. So no attribute here needs a lock.
- **Outcome.** The first failure decides (`JobsOutcome`). `end` ends all jobs once; a second SIGINT cuts the grace
  short; `broken` is a fault of our own, which ends everything and is raised by `run`.
"""

from __future__ import annotations

import _socket
import os
import sys
import time
from collections.abc import Sequence
from functools import partial

from pypmix.clusters import check_cluster
from pypmix.host import launch
from pypmix.host.extensions import load_extension
from pypmix.host.folders import rendezvous_file, temporary_folder
from pypmix.host.job import Application, is_sole_proof, new_nspace
from pypmix.host.loop import Loop
from pypmix.host.machine import POLL, Machine
from pypmix.host.mapping import fill
from pypmix.host.nodes import LocalNode, check_nodes
from pypmix.host.outcome import TIMED_OUT, JobsOutcome, pending_text, signal_text
from pypmix.host.placing import ANYWHERE
from pypmix.host.processes import readable_here
from pypmix.host.serving import ServingManager
from pypmix.host.signals import ENDING, LOOK, Signals, signal
from pypmix.host.terms import GRACE, Terms, check_restarts
from pypmix.host.unconnected import UnconnectedRanks, is_unconnected
from pypmix.server import Server
from pypmix.serverbase import check_nspace
from pypmix.standard.limits import Limits
from pypmix.standard.logtext import printable_lines
from pypmix.standard.types import MAX_NSLEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Mapping as Variables

    from pypmix.engine.base import OnUpcall
    from pypmix.host.crossings import Crossings
    from pypmix.host.extensions import ForkServers
    from pypmix.host.feeding import Feed
    from pypmix.host.joining import Joining
    from pypmix.host.mapping import Mapping
    from pypmix.host.nodes import HostNode, Wrap
    from pypmix.host.outcome import Outcome
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.host.session import NodeSession
    from pypmix.host.tracing import Trace
    from pypmix.host.trying import Fault

HANG = 2.0
"""Seconds after which Ctrl-C names the procs that are missing in a collective."""

IMPATIENT_SECONDS = 2.0
"""Seconds that processes and nodes have to end after a second Ctrl-C."""

SWITCH = 0.0005
"""Seconds after which a thread of this process that waits for the interpreter gets it."""


class LocalHost(ServingManager):
    """Run jobs on this machine: a server, the jobs' processes, their output and input, and the clean-up.

    The first job is given; its ranks, their children and tools spawn others. A rank that is killed by a signal, exits
    with another code than 0, or exits with 0 after it has initialized and not finalized, ends its job; so does
    `PMIx_Abort`. A job that fails ends the jobs that it has spawned, except separate ones; it never ends its parent.
    Ending means SIGTERM, and SIGKILL after a grace. Each rank runs in a separate process group, and the processes that
    it started end with its job. The host is finished when all jobs are.

    With several nodes it simulates them, for development and tests: each has a name, `node0` and so on, a separate
    temporary folder and a separate server, and the servers know of each other's procs only by their messages. Ranks are
    placed in blocks of consecutive ranks, as even as possible; a job of fewer ranks than nodes gets the nodes with the
    fewest running ranks. Tools find the server of the first node.

    Args:
        apps: The applications to run; ranks are numbered through all of them.
        terms: The terms of the first job.
        engine: The engine of the servers, `python` or `native`.
        library: The libpmix that a native server runs on; by default `PYPMIX_LIBPMIX`, or a library that is found.
        nodes: The number of nodes; more than one on the Python engine only.
        env: The environment that ranks inherit; by default the environment of this process. Variables of an outer job
            are removed.
        timeout: Seconds after which all jobs are ended; the outcome's reason lists the operations pending then.
        grace: Seconds that ranks have between SIGTERM and SIGKILL.
        own_process: This process exists for the jobs only, and this is its main thread: take its signals, and
            become the parent of all processes that the jobs leave behind, so that none survives it.
        cluster: The name of the cluster that this host is, which its jobs are given (PMIX_CLUSTER_ID).
        join: A folder by which this host is joined with others that name the same folder, each a separate cluster:
            their jobs connect, and look up data that the others have published to `Range.GLOBAL`. It requires a
            `cluster`, and servers on the Python engine.
        address: The address that its servers listen on for the servers of the others.
        nspace: The beginning of the nspaces of its jobs, before `@` and their number; made up by default.
        wrap: Called with the function that a server calls with upcalls, and the name of its node; returns the function
            to call instead, such as `Recorder.wrap` of a recorder.
        limits: The resources that one peer may use; read from `PYPMIX_LIMITS` by default.
        remote: The nodes that the jobs run on, by daemons there; this machine by default. Its server is for tools then,
            and ranks are placed by the nodes' slots.
        mapping: How ranks are placed and bound; by default all slots are filled, and then nodes take even shares, and
            ranks are not bound. This machine takes any number.
        fill: Whether the only application has a rank for each slot of remote nodes, or the number of ranks on each
            node that the mapping gives.
        warm: Whether ranks that run Python are forked from a process that has imported pypmix once, which is faster
            than starting each; or names of further modules that this process imports. The ranks share the objects of
            these modules and the seed of `hash()`; see the how-to on warm ranks. Other programs are started as usual.
        faults: Faults to inject into the first job, to test its program.
        trace: The file for a trace of all requests.

    Attributes:
        job: The first job; with daemons, it is made once they have joined.
        trace: The file of the trace; None for none.
        broken: An internal fault that ends all jobs; None unless one occurs.

    Example:
        >>> outcome = LocalHost([Application(("true",), np=2)], timeout=60).run()
        >>> outcome.code
        0
    """

    machine_class = Machine

    def __init__(
        self,
        apps: Sequence[Application],
        *,
        terms: Terms | None = None,
        engine: str = "python",
        library: str | None = None,
        nodes: int = 1,
        env: Variables[str, str] | None = None,
        timeout: float | None = None,
        grace: float = GRACE,
        own_process: bool = False,
        cluster: str = "",
        join: str = "",
        address: str = "127.0.0.1",
        nspace: str = "",
        wrap: Wrap | None = None,
        limits: Limits | None = None,
        remote: NodeSession | None = None,
        mapping: Mapping | None = None,
        fill: bool = False,
        warm: bool | Sequence[str] | ForkServers = False,
        faults: Sequence[Fault] = (),
        trace: Trace | None = None,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"a timeout must be more than 0 seconds, not {timeout}")
        check_nodes(nodes, engine)
        if remote is not None and (nodes > 1 or join or engine != "python"):
            raise ValueError("jobs run on nodes of a roster, with servers of the python engine, or on simulated ones")
        if terms is not None:
            check_restarts(terms, engine == "native", remote is not None)
        self._joining = _joining(cluster, join, address, engine)
        hostname = _socket.gethostname() or "localhost"
        # Used in file names, and in a pattern of the guard.
        label = "".join([c if c.isascii() and c.isalnum() else "-" for c in hostname.partition(".")[0]])
        inherited = launch.inherited_environment(os.environ if env is None else env)
        name = f"pypmix-{label}-{os.getpid()}-{os.urandom(3).hex()}"
        super().__init__(
            Loop(),
            machine=self.machine_class(inherited, os.path.join(temporary_folder(inherited), name)),
            space=_check_nspace(nspace) or new_nspace(is_sole_proof(engine)),
            grace=grace,
            limits=Limits.of(os.environ) if limits is None else limits,
            cluster=cluster,
        )
        self.loop: Loop
        self.native = engine == "native"
        self._fill = fill
        self._own_forks = False
        self.trace = trace
        if warm is not False:
            self._take_forks(warm)
        self._timeout = timeout
        self._own_process = own_process
        file = rendezvous_file(os.environ if env is None else env)

        tmpdir = self.machine.tmpdir
        names = [hostname] if nodes == 1 else [f"node{number}" for number in range(nodes)]
        folders = [tmpdir if nodes == 1 else os.path.join(tmpdir, name) for name in names]
        if remote is None:
            self.here = tuple(
                [LocalNode(number, name, folders[number], self.machine) for number, name in enumerate(names)]
            )
            if nodes == 1:
                # Rankfiles and spawns may name this machine so, as for mpirun.
                self.here[0].names += ("localhost",)
            self.nodes = self.here
            self.site.mapping = mapping.replace(crowded=True) if mapping is not None else self.site.mapping
        else:
            from pypmix.host.session import LAUNCHER, Fleet

            self.site = fleet = Fleet(self, remote, self._space, self.loop, trace, mapping)
            self._parts[type(fleet.elastic)] = fleet.elastic
            own = LocalNode(len(fleet.nodes), LAUNCHER, tmpdir, self.machine, 0)
            self.here = (own,)
            self.nodes = (own, *fleet.nodes)
        for node in self.here:
            asked: OnUpcall = partial(self.upcall, node)
            if trace is not None:
                asked = trace.wrap(asked, node.hostname)
            node.attach(
                Server(
                    asked if wrap is None else wrap(asked, node.hostname),
                    engine=engine,
                    nspace=f"{self._space}@0",
                    tmpdir=node.tmpdir,
                    tool_support=node is self.here[0],
                    rendezvous_file=file if node is self.here[0] else None,
                    hostname=node.hostname,
                    rank=node.number,
                    library=library,
                    limits=self.limits,
                )
            )
        self._first: RunningJob | None = None
        self._given: tuple[tuple[Application, ...], Terms] = tuple(apps), terms or Terms()
        self._faults = tuple(faults)
        if self.site.has_slots:
            self._settle_size()
        elif not fill:
            self._check_faults()
        if self.site.complete:
            self._make_first()
        elif self.site.has_slots:
            # Refuse a job that does not fit before anything is started.
            spares = self._given[1].spares
            self.site.place([app.np for app in self._given[0]], self.site.spared(ANYWHERE, spares))
        self._over: list[RunningJob] = []
        self._feed: Feed | None = None
        self.broken: Exception | None = None
        self._outcome = JobsOutcome()
        self._ended_all = False
        self._impatient = False
        self._stopping = False
        """Whether SIGINT has been sent."""

    # Differences from other managers: the host is finished when all jobs are

    @property
    def ending(self) -> bool:
        """Whether all jobs are being ended, and no other may begin."""
        return self._ended_all

    def patience(self) -> Callable[[], bool]:
        """Return a predicate that is true while the grace lasts, which starts now; a second SIGINT ends the grace."""
        lasts = super().patience()
        return lambda: not self._impatient and lasts()

    def unwritable(self, error: OSError) -> None:
        """End all jobs: output can no longer be written."""
        if isinstance(error, BrokenPipeError):
            # The reader of our output has exited (`pypmix run ... | head`): SIGPIPE does the same to a single program.
            self.end(128 + signal.SIGPIPE, "")
        else:
            self.end(1, f"the ranks' output cannot be written: {error.strerror}")

    def broke(self, error: Exception) -> None:
        """Record an internal fault that keeps a job from ending, and end all jobs."""
        if self.broken is None:
            self.broken = error
        self.loop.wake()

    def end(self, code: int, reason: str, signum: int = signal.SIGTERM) -> None:
        """End all jobs, unless they are already ending."""
        if self._ended_all:
            return
        self._ended_all = True
        self._outcome.decide(code, reason)
        for job in list(self.jobs.values()):
            job.end(code, reason, signum)

    def job_failed(self, job: RunningJob) -> None:
        """Record the outcome of a failed job, and end the jobs that it has spawned."""
        self._outcome.add_failed(job)
        super().job_failed(job)

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """See `ServingManager.rank_ended`; a rank of several that never connected may get a line."""
        super().rank_ended(job, rank)
        if is_unconnected(job, rank):
            self.part(UnconnectedRanks).add(job, rank)

    def outcome_corrected(self, former: Outcome, outcome: Outcome) -> None:
        """See `Manager.outcome_corrected`."""
        self._outcome.correct(former, outcome)

    def job_over(self, job: RunningJob) -> None:
        """Remove a job of which only output may be left; the servers know it for a while."""
        del self.jobs[job.nspace]
        self._outcome.add_finished(job)
        if self.jobs:
            super().job_over(job)
            return
        # Wait for the output of the last job.
        self._over.append(job)
        self.tell_end(job)

    # Running

    def _settle_size(self) -> None:
        """Fill the nodes, if requested: their slots are known by now."""
        apps, terms = self._given
        if self._fill:
            self._fill = False
            nodes = self.site.spared(ANYWHERE, terms.spares).nodes or self.site.nodes
            nodes = [node for node in nodes if node.slots != 0]
            rooms = self.site.rooms([(node, node.slots or 0) for node in nodes], ANYWHERE)
            size, why = fill(rooms, self.site.mapping)
            self._given = ((apps[0].replace(np=size or apps[0].np),), terms)
            if any(node.slots for node in nodes):
                text = f"{size} rank{'s' if size != 1 else ''}, {why}; -n says otherwise"
                self.sink(2).write(None, f"pypmix run: {text}\n".encode())
        self._check_faults()

    def _check_faults(self) -> None:
        if self._faults:
            from pypmix.host.trying import check

            there = [node.hostname for node in self.site.nodes]
            check(self._faults, sum([app.np for app in self._given[0]]), there)

    def _make_first(self) -> None:
        apps, terms = self._given
        self._first = self.make(apps, terms, None)
        self.job = self._first.job

    @property
    def wake_fd(self) -> int:
        """A descriptor that ends the wait of the thread in `run` when a byte is written to it."""
        return self.loop.wake_fd

    def interrupt(self, signum: int) -> None:
        """Handle a signal that this process was sent; from any thread or signal handler.

        SIGUSR1 writes all pending operations and the state of each rank to standard error, and is passed on to ranks
        that have a handler for it. SIGTSTP stops the ranks and this process. SIGINT, SIGTERM, SIGHUP and SIGQUIT are
        passed on and end the jobs; the outcome of SIGINT names the procs missing in operations that have long been
        pending. A SIGINT while jobs end kills all remaining processes at once. All others are passed on to the ranks. A
        signal that a resource manager has sent to all processes is not passed on.
        """
        self.loop.post(lambda: self._interrupted(signum))

    def run(self) -> Outcome:
        """Run the job and return when nothing of it and of the jobs that it has spawned is left; to be called once.

        Returns:
            The first failure; code 0 if there was none.

        Raises:
            FileNotFoundError: A program or a working directory does not exist.
            PermissionError: A program cannot be executed.
            OSError: The system lacks a resource that the job needs.

        Example:
            >>> outcome = LocalHost([Application(("true",), np=2)], timeout=60).run()
            >>> if outcome.code:
            ...     print(outcome.reason)
        """
        signals = Signals(self.wake_fd) if self._own_process else None
        interval = sys.getswitchinterval()
        if self._own_process:
            # The servers' threads release the interpreter with each system call, and regain it after this interval
            # while the host is busy.
            sys.setswitchinterval(SWITCH)
        try:
            programs = [self.site.program(app) for app in self._given[0]]
            self.make_room(sum([app.np for app in self._given[0]]))
            if signals is not None:
                signals.handle(self.interrupt)
            try:
                self._run(programs)
            finally:
                self._close()
        finally:
            if signals is not None:
                signals.restore()
            if self.machine.former_limits is not None:
                launch.restore_descriptor_limit(0, self.machine.former_limits)
            self.loop.close()
            sys.setswitchinterval(interval)
        return self._outcome.final

    def _take_forks(self, warm: bool | Sequence[str] | ForkServers) -> None:
        if isinstance(warm, str):
            raise TypeError(f"warm is True, or the names of modules in a list, not the string {warm!r:.80}")
        if isinstance(warm, bool | Sequence):
            make = load_extension("warm-start")
            self.machine.forks, self._own_forks = make(() if isinstance(warm, bool) else tuple(warm)), True
        else:
            self.machine.forks = warm

    def _run(self, programs: list[str]) -> None:
        self.open_folder()
        self.site.warm_up(self._given[0], programs)
        for node in self.here if len(self.here) > 1 else ():
            os.mkdir(node.tmpdir, 0o700)
        if len(self.here) > 1 and self._joining is None:
            self._crossings = self.crossings()
        for node in self.here:
            node.server.open()
        self._crossings = self.site.open() or self._crossings
        if self._ended_all:
            return
        if self._first is None:
            self._settle_late()
        if self._joining is not None:
            from pypmix.host.crossings import Crossings

            # Other clusters see it at once, and may send requests.
            self._crossings = Crossings(self, joining=self._joining)
        if self._timeout is not None:
            self.due = time.monotonic() + self._timeout
            self.loop.later(self._timeout, self._timed_out)
        if self._own_process:
            self.site.adopt()
        if self.trace is not None:
            self.trace.attend(self.nodes, self.jobs, self.loop)
            self.at_rank_end.append(self.trace.rank_ended)
        self._begin_jobs(programs)
        self.loop.run(self._is_finished)
        if self.broken is not None:
            raise self.broken
        if self._own_process:
            self.site.end_strays(self.loop)
        self._hand_over()

    def _settle_late(self) -> None:
        """Make the first job; if it fills the nodes, their daemons have reported their numbers of CPUs."""
        if self._fill:
            try:
                self._settle_size()
            except ValueError as error:
                raise OverflowError(str(error)) from None
            self.make_room(sum([app.np for app in self._given[0]]))
        self._make_first()

    def _is_finished(self) -> bool:
        """Return True if no job is left, or an internal fault has ended all."""
        return not self.jobs or self.broken is not None

    def _begin_jobs(self, programs: list[str]) -> None:
        """Start the first job."""
        first = self._first
        assert first is not None
        first.programs = programs
        self.begin(first)
        if self._faults:
            from pypmix.host.trying import arrange

            first.when_started(lambda: arrange(self, first, self._faults))
        self._feed_input(first)

    def crossings(self) -> Crossings:
        """Make the crossings of the servers of several simulated nodes."""
        from pypmix.host.crossings import Crossings

        return Crossings(self)

    def _feed_input(self, first: RunningJob) -> None:
        """Pass on this process's input to ranks that have not inherited it."""
        terms = first.terms
        inputs = [rank.input for rank in first.ranks if rank.input is not None]
        if terms.pushed or not inputs:
            return
        if readable_here(0):
            from pypmix.host.feeding import Feed

            self._feed = Feed(self.loop, 0, inputs)
        else:
            for each in inputs:
                each.close()

    def _timed_out(self) -> None:
        if self._ended_all:
            return
        self.site.refresh(self._end_in_time)

    def _end_in_time(self) -> None:
        from pypmix.host.report import unfinished

        lines = [
            f"the job did not end within {self._timeout:g} s and was ended",
            *unfinished(self),
        ]
        self.end(TIMED_OUT, "\n  ".join(lines))

    # Ending

    def _interrupted(self, signum: int) -> None:
        if signum == signal.SIGTSTP:
            self.pass_on(signal.SIGSTOP)
            self.site.away(True)
            os.kill(os.getpid(), signal.SIGSTOP)
            self.site.away(False)
            self.pass_on(signal.SIGCONT)
        elif signum == signal.SIGCONT:
            self.pass_on(signum)
        else:
            # By then it is known if ranks were sent it too.
            self.loop.later(LOOK, lambda: self._signalled(signum))

    def _signalled(self, signum: int) -> None:
        """Act on a signal: pass it on to the ranks unless it was sent to all processes."""
        reached = self.is_sent_to_all(signum)
        if signum not in ENDING:
            if not reached:
                self.pass_on(signum, handled=signum == signal.SIGUSR1)
                if signum == signal.SIGUSR1:
                    self.site.refresh(self._report)
            return
        if not reached and signum in (signal.SIGINT, signal.SIGQUIT):
            # A user at a terminal does not wait for a resource manager.
            self.forget_reached()
        if not self.site.complete:
            self._stop(signum)
        elif signum == signal.SIGINT and (self._stopping or self._all_end()):
            self._stop_at_once(signum)
        elif signum == signal.SIGINT:
            # The user may be waiting for a pending operation: name it.
            self._stopping = True
            self.site.refresh(lambda: self._stop(signum))
        elif not self._all_end():
            self._stop(signum)

    def _all_end(self) -> bool:
        return all(job.outcome is not None for job in self.jobs.values())

    def _stop_at_once(self, signum: int) -> None:
        """Kill the remaining processes, and wait a moment for their end, but for no answer."""
        self._impatient = True
        if not self._all_end():
            self._stop(signum)
        self.pass_on(signal.SIGKILL)
        left = [(job, list(job.launches)) for job in self.jobs.values()]

        def give_up() -> None:
            for job, launches in left:
                job.give_up(launches)

        self.loop.later(IMPATIENT_SECONDS, give_up)

    def _stop(self, signum: int) -> None:
        lines = [f"ended by {signal_text(signum)}"]
        if self._stopping:
            long = [item for item in self.pending() if time.monotonic() - item.since > HANG and item.missing]
            lines += pending_text(long, self.name_for_person, self.only_job)
        self.end(128 + signum, "\n  ".join(lines), signum)

    def report_loss(self, node: HostNode, text: str) -> bool:
        """Print a line about a node that is lost, for a job that continues."""
        self.sink(2).write(None, f"pypmix run: {printable_lines(text)}\n".encode())
        node.loss_is_reported = True
        return True

    def _report(self) -> None:
        from pypmix.host.report import report

        self.sink(2).write(None, f"pypmix run: {printable_lines(report(self))}\n".encode())

    def _hand_over(self) -> None:
        """Pass on the last of the output; for jobs that were ended, only as long as the grace."""
        for job in self._over:
            job.finish_output()
        if self._outcome.final.reason:
            # The caller writes it to the same standard error.
            self.sink(2).end_line()
        patience = self.patience()
        ended = self._outcome.decided is not None
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
        if self._crossings is not None:
            self._crossings.close()
        self.site.close()
        for node in self.here:
            node.server.close()
        if self.trace is not None:
            self.trace.close()
        if self.machine.forks is not None:
            self.machine.forks.unwatch()
            if self._own_forks:
                self.machine.forks.close()
        self.close_folder()


def _joining(cluster: str, folder: str, address: str, engine: str) -> Joining | None:
    """Return the clusters with which a host is joined; raise `ValueError` if it cannot be joined."""
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
    """Return the beginning of the nspaces of jobs, if it is valid."""
    if any(c in ":/@" for c in nspace) or len(nspace) > MAX_NSLEN // 2:
        raise ValueError(f"the nspaces of jobs cannot begin with {nspace!r:.80}")
    if nspace:
        check_nspace(nspace, MAX_NSLEN // 2, "the beginning of the nspaces of jobs")
    return nspace
