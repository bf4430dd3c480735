"""A job while it runs: its processes, from their start until the last process that they left behind has ended.

A `RunningJob` is the state that a host keeps of one of its jobs; a `Launch` is a set of its ranks started together, and
a `Share` is the part of a launch on one node. `pypmix run` has one launch for each job. A `Host` may start the ranks of
a job in several, and leave some to others.

Only shares differ between nodes: `pypmix.host.processes` starts the ranks of a node in this process, and
`pypmix.host.remote` orders a daemon to start them, whose own share does. All of it happens on the thread of the host's
loop:

1. Each share is prepared; if one cannot run its ranks, none starts. Then all shares start their ranks.
2. A share reports the end of a rank.
3. A rank that has failed is judged (`Judgement`): by the terms of the job it ends the job, or is only recorded.
4. When the last rank of a launch has ended, and the launch is not held, its shares end the processes that their ranks
   left behind. A `Host` holds a launch until its `async with` block is left.
5. With its last launch the job is finished (`job_over` of the host).
"""

from __future__ import annotations

import os
import time

from pypmix.engine.faults import fault
from pypmix.host.judgement import Judgement
from pypmix.host.launch import is_missing
from pypmix.host.loop import vital
from pypmix.host.machine import KILLED_SECONDS, POLL
from pypmix.host.outcome import CANNOT_EXECUTE, NOT_FOUND, TIMED_OUT, Outcome, listed
from pypmix.host.output import Copy, Sink, Stream
from pypmix.host.rank import Rank
from pypmix.host.signals import signal
from pypmix.standard.errors import NotInitialized
from pypmix.standard.logtext import get_logger
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from typing import Protocol

    from pypmix.engine.base import Upcall
    from pypmix.engine.common import Pending
    from pypmix.host.extensions import ForkServer
    from pypmix.host.job import Application, JobLayout
    from pypmix.host.loop import HostLoop
    from pypmix.host.mapping import Mapping as Placement
    from pypmix.host.mapping import Place
    from pypmix.host.nodes import HostNode, LocalNode
    from pypmix.host.sites import Site
    from pypmix.host.terms import Terms
    from pypmix.server import Server
    from pypmix.standard.ops import Output

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


INTERRUPT_GRACE = 1.0
"""Seconds after which a forwarded SIGINT, which a rank inside a C call never handles, becomes SIGTERM."""

SPREAD = 1.0
"""Seconds that a resource manager has to send SIGTERM to all nodes of a job that it ends."""

STDOUT = 2
STDERR = 4
NAMES = {STDOUT: "stdout", STDERR: "stderr"}
NUMBERS = {STDOUT: 1, STDERR: 2}


_log = get_logger("pypmix.host")


class JobHost:
    """The host of running jobs: its nodes, its output, and the steps that follow the ends of ranks and jobs.

    Args:
        loop: The loop on whose thread everything happens.
        grace: Seconds that ranks have between the request to end and SIGKILL.

    Attributes:
        site: The nodes on which it places ranks.
        nodes: The nodes.
        here: The nodes whose servers are in this process.
        listeners: The other nodes on which a client may read the output of ranks.
        native: Whether its server uses libpmix.
        jobs: The jobs that are not finished, by nspace.
        at_rank_end: Called with the job and the rank when a rank has ended.
        at_job_end: Called with a job when nothing of it is left.
    """

    site: Site

    def __init__(self, loop: HostLoop, grace: float) -> None:
        self.loop = loop
        self.grace = grace
        self.nodes: tuple[HostNode, ...] = ()
        self.here: tuple[LocalNode, ...] = ()
        self.listeners: dict[HostNode, None] = {}
        self.native = False
        self.jobs: dict[str, RunningJob] = {}
        self.at_rank_end: list[Callable[[RunningJob, Rank], None]] = []
        self.at_job_end: list[Callable[[RunningJob], None]] = []
        self._sinks: dict[int, Sink] = {}
        self._is_ended = False
        """Whether a resource manager has sent SIGTERM to all processes of a node."""

    def report_loss(self, node: HostNode, text: str) -> bool:
        """Print a line about a node that is lost, for a job that continues; return False if this host prints none."""
        return False

    @property
    def server(self) -> Server:
        """The server of the first node."""
        return self.nodes[0].server

    @property
    def running(self) -> int:
        """The number of ranks that run, of all jobs."""
        return sum([job.running for job in self.jobs.values()])

    # Output

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
            self._sinks[number] = other if other is not None and same else Sink(self.loop, number, self)
        return self._sinks[number]

    def sink_of(self, job: RunningJob | None, number: int) -> Sink:
        """Return the sink for the output of a job, None for output of no job."""
        return self.sink(number)

    def unwritable(self, error: OSError) -> None:
        """Report that output can no longer be written."""
        _log.error("the output of processes cannot be written any more: %s", error.strerror)

    # Ends

    def patience(self) -> Callable[[], bool]:
        """Return a predicate that is true while the grace lasts, which starts now."""
        end = time.monotonic() + self.grace
        return lambda: time.monotonic() < end

    def is_sent_to_all(self, signum: int) -> bool:
        """Return True if a signal was sent to all processes around this one, its ranks too; note it for the nodes."""
        if not self.here[0].machine.was_sent(signum):
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

    def rank_replaced(self, job: RunningJob, former: Rank, rank: Rank) -> None:
        """Report that a rank that has failed is started again."""

    def give_up_node(self, node: HostNode, reason: str) -> bool:
        """Decide about a node that has not reported the end of killed ranks; return True if it is to be lost."""
        return True

    def broke(self, error: Exception) -> None:
        """Report an internal fault that keeps a job from ending."""
        fault("a step of a job", error)

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """Call the functions that wait for the end of a rank."""
        for function in self.at_rank_end:
            function(job, rank)

    def fork_server_ended(self, server: ForkServer) -> None:
        """End the jobs with running ranks of a fork server that has ended early."""
        for job in list(self.jobs.values()):
            if any(rank.alive and rank.forked is server for rank in job.ranks):
                job.end(1, f"{server.end()}{job.others_text(None)}")

    def job_failed(self, job: RunningJob) -> None:
        """End the jobs that a failed job has spawned."""
        assert job.outcome is not None
        for child in list(self.jobs.values()):
            if child.job.parent is not None and child.job.parent.nspace == job.nspace and not child.terms.separate:
                child.end(job.outcome.code, f"{child} was ended because {job} failed, which had spawned it")

    def outcome_corrected(self, former: Outcome, outcome: Outcome) -> None:
        """Replace an outcome: the request that ended a job arrived after the end of the rank that sent it."""

    def job_over(self, job: RunningJob) -> None:
        """Close a job of which only output may be left."""
        raise NotImplementedError

    def tell_end(self, job: RunningJob) -> None:
        """Call `at_job_end` after all ranks of a job have ended."""
        for function in self.at_job_end:
            function(job)


class RunningJob:
    """A job of a host.

    Args:
        host: The host; all of a job belongs to its loop.
        job: The description of the job.
        number: The job's number among the host's jobs, from 1.
        terms: The terms that it runs with.
        homes: The ranks that this host has, and the nodes that they run on.
        mark: A mark that distinguishes it from the host's other jobs in texts; empty for the first.

    Attributes:
        judgement: Names the rank that is the cause of a failure.
        nodes: The nodes that it runs on.
        order: Its description as daemons get it, once it was written for the first of them.
        launches: Its launches that are not finished.
        bare: Whether its applications have names and no programs.
        running: The number of its ranks that run.
        ended: Its ranks that have ended and were not started again, in the order of their ends.
        outcome: Its outcome, once decided; None while it is to continue.
        partial: The first failure that did not end it.
        failed_at: The time of its first failure, in seconds since 1970; 0 for none.
        unlaunched: The error because of which it could not be started.
        due: The time at which its limit ends, by `time.monotonic`; None without a limit.
    """

    def __init__(
        self, host: JobHost, job: JobLayout, number: int, terms: Terms, homes: Mapping[int, HostNode], mark: str = ""
    ) -> None:
        self.host = host
        self.job = job
        self.number = number
        self.terms = terms
        self.mark = mark
        self.nodes = tuple(dict.fromkeys(homes.values()))
        self._homes = homes
        self.mapping: Placement | None = None
        """The rules of its placement; None for a job that is placed elsewhere."""
        self.order = b""
        self.programs: Sequence[str] = ()
        """The paths of the programs of its applications."""
        self._ranks: dict[int, Rank] = {}
        self.ended: dict[Rank, None] = {}
        self._shares: dict[Rank, Share] = {}
        """The shares of ranks that have been started; of ranks that were started again while their launch lasts."""
        self.launches: list[Launch] = []
        self.bare = False
        self._awaited: list[Callable[[], None]] = []
        self.judgement = Judgement(self)
        self.renew(homes)
        self._homeless: list[Rank] = []
        """Lost ranks that are to be started again on other nodes."""
        self._ended_launches: list[Launch] = []
        """Launches of which nothing is left, while a judgement or lost ranks keep the job from being finished."""
        self._is_moving = False
        """Whether the servers are being informed of new nodes of ranks."""
        self._open_files: list[Copy] = []

    def renew(self, ranks: Iterable[int]) -> None:
        """Renew ranks, none of which runs, for another start; renew the whole job if nothing else is left of it."""
        of = f" of job {self.mark}" if self.mark else ""
        for rank in ranks:
            former = self._ranks.get(rank)
            made = self._ranks[rank] = Rank(self.job.proc(rank), f"rank {rank}{of}", self._homes[rank])
            if former is not None:
                made.units = former.units
                self.ended.pop(former, None)
        if self.launches:
            return
        self._shares.clear()
        self.running = 0
        self.outcome: Outcome | None = None
        self.judgement.reset()
        self.partial: Outcome | None = None
        self.failed_at = 0.0
        self.unlaunched: OSError | None = None
        self.due: float | None = None

    def take_places(self, places: Iterable[Place], mapping: Placement) -> None:
        """Record the CPUs that ranks take at their places, and the rules of their placement."""
        self.mapping = mapping
        for place in places:
            rank = self._ranks.get(place.rank)
            if rank is not None and place.units:
                rank.units = place.units

    @property
    def nspace(self) -> str:
        """Its namespace."""
        return self.job.nspace

    @property
    def final_outcome(self) -> Outcome | None:
        """Its outcome, or the first failure if that did not end it; None if nothing has failed."""
        return self.outcome or self.partial

    @property
    def ranks(self) -> list[Rank]:
        """Its processes here, by rank, including ended ones."""
        return list(self._ranks.values())

    def rank(self, number: int) -> Rank | None:
        """Return one of its processes; None for a rank that this host does not have."""
        return self._ranks.get(number)

    def __str__(self) -> str:
        return f"job {self.mark}" if self.mark else "the job"

    # Starting

    def launch(self, ranks: Iterable[int], terms: Terms | None = None, *, keep_strays: bool = False) -> Launch:
        """Make the launch that starts some of its ranks.

        Args:
            ranks: The ranks to start.
            terms: The terms of their output and input, if they differ from the job's.
            keep_strays: Whether the processes that they leave behind stay until the launch is released.
        """
        made = Launch(self, [self._ranks[rank] for rank in ranks], terms or self.terms, keep_strays)
        self.launches.append(made)
        for share in made.shares.values():
            self._shares.update(dict.fromkeys(share.ranks, share))
        if self.terms.limit and self.due is None:
            self.due = time.monotonic() + self.terms.limit
            self.host.loop.later(self.terms.limit, self._timed_out)
        return made

    def open_copy(self, path: str) -> Copy:
        """Open a file for the output of ranks; it is closed with the job."""
        copy = Copy(path, self.host)
        self._open_files.append(copy)
        return copy

    # Ends of the ranks

    def ended_elsewhere(self, rank: Rank, code: int) -> None:
        """Record the end of a rank that this host has not started; a negative code is the number of a signal."""
        rank.signum, rank.code = (-code, None) if code < 0 else (0, code)
        rank.over = True
        self.ended[rank] = None
        rank.left = min(rank.left, time.monotonic())
        self.host.rank_ended(self, rank)
        if rank.blame and not self.judgement.is_final:
            self.judgement.judge(0)
        if all(each.over for each in self.ranks):
            self.host.tell_end(self)

    @vital
    def ranks_ended(self, ranks: Sequence[Rank]) -> None:
        """Record the end of ranks, which hold their exit status already, and judge it."""
        for rank in ranks:
            self.record_end(rank)
        homeless = [rank for rank in ranks if self._may_run_again(rank) and rank.node not in self.host.nodes]
        if homeless:
            self._move(homeless)
        self.judgement.consider(ranks)

    def record_end(self, rank: Rank) -> None:
        """Record the end of a rank, without judging it."""
        rank.alive = False
        rank.over = True
        self.ended[rank] = None
        rank.left = min(rank.left, time.monotonic())
        self.running -= 1
        rank.node.running -= 1
        self._shares[rank].launch.rank_ended(rank)
        self.host.rank_ended(self, rank)
        if self._may_run_again(rank) and rank.node in self.host.nodes:
            self._replace([rank], lambda start: self.host.loop.later(0, start))

    def _may_run_again(self, rank: Rank) -> bool:
        return bool(rank.blame) and rank.life < self.terms.restarts and self.outcome is None

    def _replace(self, formers: Sequence[Rank], schedule: Callable[[Callable[[], None]], object]) -> None:
        """Start ranks that have failed again; their ends are not judged.

        Args:
            formers: The ranks, all with as many restarts.
            schedule: Schedules the start.
        """
        for former in formers:
            former.excused = True
        # It keeps the job from being finished.
        launch = self.relaunch([former.proc.rank for former in formers], formers[0].life + 1)
        schedule(lambda: self._start_again(formers, launch))

    def _move(self, formers: Sequence[Rank]) -> None:
        """Start ranks that were lost with their node again on other nodes."""
        for former in formers:
            former.excused = True
        if not self._homeless:
            self.host.loop.later(0, self._find_homes)
        self._homeless += formers

    @vital
    def _find_homes(self) -> None:
        lost = [node for launch in self.launches for node in launch.shares if node not in self.host.nodes]
        if self.outcome is None and (
            self._is_moving or any(launch.holds(node) for node in lost for launch in self.launches)
        ):
            # All ranks of a node move at once, and servers know each description of the job before the next one.
            self.host.loop.later(POLL, self._find_homes)
            return
        homeless, self._homeless = self._homeless, []
        if self.outcome is None:
            self._move_to_homes(homeless)
        self.remove_ended_launches()

    def _move_to_homes(self, homeless: Sequence[Rank]) -> None:
        try:
            layout, homes = self.host.site.find_homes(self, sorted([former.proc.rank for former in homeless]))
        except OverflowError as error:
            for former in homeless:
                former.excused = False
                former.fate += f"; it is not started again: {error}"
            self.judgement.consider(homeless)
            return
        self.job, self.order = layout, b""
        self._homes = {**self._homes, **homes}
        self.nodes = tuple(dict.fromkeys(self._homes.values()))
        starts: list[Callable[[], None]] = []
        for life in sorted({former.life for former in homeless}):
            self._replace([former for former in homeless if former.life == life], starts.append)
        self._is_moving = True
        self.host.site.move(self, lambda: self._start_moved(starts))

    @vital
    def _start_moved(self, starts: Sequence[Callable[[], None]]) -> None:
        self._is_moving = False
        for start in starts:
            start()

    @vital
    def _start_again(self, formers: Sequence[Rank], launch: Launch) -> None:
        # A former process may have requested an abort: nothing is started then.
        self.host.loop.run_posted()
        if self.outcome is None:
            for former, rank in zip(formers, launch.ranks, strict=True):
                self.host.rank_replaced(self, former, rank)
        launch.start(self.job.apps, self.programs)

    def relaunch(self, numbers: Sequence[int], life: int) -> Launch:
        """Make the launch that starts ranks again that have ended; they read no input.

        Args:
            numbers: The ranks.
            life: How often they were started before.
        """
        formers = [self._ranks[number] for number in numbers]
        for former in formers:
            for stream in former.streams.values():
                stream.finish()
                # The end of this output is not that of the rank's.
                stream.tap = None
                stream.close()
            if former in self._shares:
                self._shares[former].end_group(former)
        self.renew(numbers)
        for number in numbers:
            self._ranks[number].life = life
        return self.launch(numbers, self.terms.replace(stdin=None))

    def when_started(self, done: Callable[[], None]) -> None:
        """Call `done` once its ranks have been started or could not be; at once if nothing is left to start."""
        if any(each.unstarted for each in self.launches):
            self._awaited.append(done)
        else:
            done()

    def started(self) -> None:
        """Call the functions that wait for a launch: its ranks have been started, or cannot be."""
        awaited, self._awaited = self._awaited, []
        for done in awaited:
            done()

    def others_text(self, culprit: Rank | None) -> str:
        """Return a text with the number of other ranks that are ended because of `culprit`."""
        alive = sum([rank.alive for rank in self.ranks if rank is not culprit])
        if not alive:
            return ""
        return f"; {alive} other rank{'s were' if alive > 1 else ' was'} ended"

    @vital
    def _timed_out(self) -> None:
        if self.running:
            self.end(TIMED_OUT, f"{self} did not end within {self.terms.limit:g} s and was ended")

    # Ending

    def end(self, code: int, reason: str, signum: int = signal.SIGTERM) -> None:
        """End the job, unless it is already ending: the first reason is the outcome.

        Args:
            code: Its exit code.
            reason: The reason, for a person.
            signum: The signal to begin with.
        """
        if self.outcome is not None:
            return
        self.outcome = Outcome(code, reason)
        self.failed_at = self.failed_at or time.time()
        self.host.job_failed(self)
        if self.host.is_being_ended():
            # It signals the nodes one after the other.
            self.host.loop.later(SPREAD, lambda: self._ask_to_end(signum))
        else:
            self._ask_to_end(signum)

    @vital
    def _ask_to_end(self, signum: int) -> None:
        """Signal all ranks that a resource manager does not end, and kill them after the grace."""
        self._send_first(signum)
        if signum != signal.SIGTERM:
            self.host.loop.later(INTERRUPT_GRACE, lambda: self._send_first(signal.SIGTERM))
        self.host.loop.later(self.host.grace, lambda: self._send_first(signal.SIGKILL))
        # Ranks have the grace, and then the processes that they leave behind have it.
        launches = list(self.launches)
        self.host.loop.later(2 * self.host.grace + KILLED_SECONDS, lambda: self.give_up(launches))

    def _send_first(self, signum: int) -> None:
        """Send a signal to the ranks to which a resource manager has sent neither this signal nor SIGTERM."""
        # It may have been slow: check again.
        self.host.is_sent_to_all(signal.SIGTERM)
        self.send(signum, [rank for rank in self.ranks if rank.node.reached.isdisjoint((signum, signal.SIGTERM))])

    def give_up(self, launches: Sequence[Launch]) -> None:
        """Stop waiting for processes that were killed and have not ended, and for nodes that do not answer.

        Args:
            launches: The launches of the job to finish; finished ones are skipped.
        """
        left = [rank for each in launches if not each.over for rank in each.ranks if rank.alive]
        if any(signal.SIGTERM in rank.node.reached for rank in left):
            # A resource manager ends them, at its pace.
            self.host.loop.later(KILLED_SECONDS, lambda: self.give_up(launches))
            return
        for each in launches:
            if not each.over:
                each.give_up()

    def abort(self, ranks: Sequence[Rank], code: int, reason: str, caller: Rank | None) -> None:
        """End some ranks, or all, with the requested outcome; see `Manager.end_ranks`."""
        whole = {rank for rank in self.ranks if rank.alive}.issubset(ranks)
        reason += self.others_text(caller) if whole else f"; it ended {listed([str(rank) for rank in ranks])}"
        # The request was sent before the end of its caller, and has arrived after it.
        late = caller is not None and caller is self.judgement.culprit
        if late and self.partial is not None:
            self.partial = Outcome(code, reason)
        if self.outcome is None and whole:
            self.end(code, reason)
        elif self.outcome is None:
            self.end_ranks(ranks, code, reason)
        elif late:
            former, self.outcome = self.outcome, Outcome(code, reason)
            self.host.outcome_corrected(former, self.outcome)

    def end_ranks(self, ranks: Sequence[Rank], code: int, reason: str) -> None:
        """End some ranks, while the others continue."""
        for rank in ranks:
            rank.excused = True
        self.send(signal.SIGTERM, ranks)
        self.decide(code, reason)
        self.host.loop.later(self.host.grace, lambda: self.send(signal.SIGKILL, ranks))

    def decide(self, code: int, reason: str, *, is_reported: bool = False) -> None:
        """Record the outcome of a job that continues, unless an earlier failure has set it."""
        if self.partial is None:
            self.partial = Outcome(code, reason, is_reported)
            self.failed_at = self.failed_at or time.time()

    def send(self, signum: int, ranks: Sequence[Rank] | None = None, *, handled: bool = False) -> None:
        """Send a signal to ranks, by default to all, and to the processes they started; see `Share.signal`."""
        by_share: dict[Share, list[Rank]] = {}
        for rank in self.ranks if ranks is None else ranks:
            if rank.alive:
                by_share.setdefault(self._shares[rank], []).append(rank)
        for share, alive in by_share.items():
            share.signal(alive, signum, handled)

    def launch_over(self, launch: Launch) -> None:
        """Remove a launch of which nothing is left except output, perhaps."""
        if self._homeless or self.judgement.is_active:
            # The job may end with it: its outcome comes first.
            self._ended_launches.append(launch)
            return
        self.launches.remove(launch)
        if self.launches:
            _finish_output(launch.ranks)
            for rank in launch.ranks:
                if self._ranks[rank.proc.rank] is not rank:
                    del self._shares[rank]
        else:
            self.host.job_over(self)

    def remove_ended_launches(self) -> None:
        """Remove the launches that have ended while the job was judged, or ranks had no node."""
        ended, self._ended_launches = self._ended_launches, []
        for launch in ended:
            self.launch_over(launch)

    def finish_output(self) -> None:
        """Pass on the last of the output and stop reading."""
        _finish_output(self._shares)

    def close(self) -> None:
        """Release all resources of the job; processes that are left only after an internal error are killed."""
        for share in dict.fromkeys(self._shares.values()):
            share.close()
        for rank in self._shares:
            for stream in rank.streams.values():
                stream.close()
            if rank.input is not None:
                rank.input.close()
        for copy in self._open_files:
            copy.close()
        self._open_files = []
        if self.number > 1:
            for node in self.host.here:
                node.remove_folder(self.number)


class Launch:
    """Ranks of a job that are started together, and end together with the processes they leave behind.

    Args:
        job: The job.
        ranks: Its ranks, none of which runs.
        terms: The terms of their output and input.
        keep_strays: Whether the processes that they leave behind stay until `release`.

    Attributes:
        shares: Its shares, by their nodes.
        unstarted: Whether its ranks are still to be started.
        is_failed: Whether ranks could not be started.
        over: Whether nothing of it is left except output, perhaps.
        changed: Called when a rank has ended, and when the launch is finished.
    """

    def __init__(self, job: RunningJob, ranks: list[Rank], terms: Terms, keep_strays: bool) -> None:
        self.host = job.host
        self.job = job
        self.ranks = ranks
        self.terms = terms
        self.over = False
        self.changed: Callable[[], None] = lambda: None
        self._keeps_strays = keep_strays
        self._running = 0
        self.unstarted = True
        self.is_failed = False
        self._swept = False
        self._failure: tuple[OSError, str, bool] | None = None
        by_node: dict[HostNode, list[Rank]] = {}
        for rank in ranks:
            by_node.setdefault(rank.node, []).append(rank)
        self.shares = {node: job.host.site.share(self, node, those) for node, those in by_node.items()}
        self._left = dict.fromkeys(self.shares.values())
        """The shares of which something is left, or that have not started."""
        self._awaited = len(self.shares)

    # Starting

    def start(self, apps: Sequence[Application], programs: Sequence[str]) -> None:
        """Start the ranks once all shares are prepared; ranks that cannot be started end the job.

        Args:
            apps: The applications of the job, which the ranks run.
            programs: The program of each.
        """
        self._apps, self._programs = apps, programs
        try:
            for share in self.shares.values():
                share.prepare()
        except BaseException:
            self.unstarted = False
            raise

    def starting(self, apps: Sequence[Application], programs: Sequence[str]) -> Generator[Rank, None, None]:
        """Start the ranks on nodes of this process one by one, as `start` does; yields each before it is started."""
        try:
            for share in self.shares.values():
                yield from share.starting(apps, programs)
        finally:
            self._finish_start()

    def share_prepared(self, failure: tuple[OSError, str, bool] | None = None) -> None:
        """Record that a share can start its ranks, or the arguments of `failed` if it cannot; start all after the last.

        Nothing starts if the job has been ended meanwhile.
        """
        self._failure = self._failure or failure
        self._awaited -= 1
        if self._awaited:
            return
        if self._failure is not None or self.job.outcome is not None:
            self._finish_start()
            return
        self._awaited = len(self.shares)
        for share in self.shares.values():
            share.start(self._apps, self._programs)

    def share_started(self, failure: tuple[OSError, str, bool] | None = None) -> None:
        """Record that a share has started its ranks, or the arguments of `failed` if some could not be started."""
        self._failure = self._failure or failure
        self._awaited -= 1
        if not self._awaited:
            self._finish_start()

    def _finish_start(self) -> None:
        """End the start: all ranks that are to run are running."""
        if self._failure is not None:
            self.failed(*self._failure)
        self.unstarted = False
        if not self._running:
            self._last_ended()
        self.job.started()

    def failed(self, error: OSError, reason: str, of_program: bool) -> None:
        """End the job because its ranks, or one of them, cannot be started.

        Args:
            error: The error.
            reason: The reason, for a person.
            of_program: Whether the error is about the program, and not about a folder or the system.
        """
        self.unstarted, self.is_failed = False, True
        self.job.unlaunched = error
        # An error without a number comes from a lost node or a fork server, and not from the system.
        code = CANNOT_EXECUTE if of_program and error.errno else 1
        self.job.end(NOT_FOUND if is_missing(error) else code, reason)

    def count(self, node: HostNode, more: int) -> None:
        """Count ranks that run on a node from now on, or that could not be started."""
        self._running += more
        self.job.running += more
        node.running += more

    def connect_outputs(self, rank: Rank, read: Callable[[int, Sink | None], int]) -> None:
        """Make the streams that carry the output of a rank.

        Args:
            rank: The rank.
            read: Returns the descriptor to read one of its channels from, given the sink of its lines; -1 if another
                process delivers the output.
        """
        terms, job = self.terms, self.job
        copy = job.open_copy(f"{terms.file}.{rank.proc.rank}") if terms.file else None
        for kind in (STDOUT,) if terms.merged else (STDOUT, STDERR):
            number = NUMBERS[kind]
            if terms.directory:
                copy = job.open_copy(f"{terms.directory}/{job.number}/rank.{rank.proc.rank}/{NAMES[kind]}")
            sink = self.host.sink_of(job, number) if terms.shown[number - 1] else None
            which = f"{job.mark}:{rank.proc.rank}" if job.mark else str(rank.proc.rank)
            where = f"@{rank.node.hostname}" if len(self.host.nodes) > 1 else ""
            tag = f"[{which}{where}]<{NAMES[kind]}>: " if terms.tagged else ""
            stream = Stream(
                self.host.loop,
                read(kind, sink),
                sink,
                tag.encode(),
                stamped=terms.stamped,
                copy=copy,
                whole=kind == STDERR and job.job.size > 1 and not (terms.tagged or terms.stamped),
            )
            rank.streams[kind] = stream
            if terms.kept:
                stream.tap = self.host.delivery(rank.proc, kind, STDERR if terms.merged else 0)
            elif self.host.native:
                stream.untapped = self.host.catch_up

    # Ending

    def collect(self) -> None:
        """Record the ends of ranks that the system has not reported yet; daemons report theirs at once."""
        for node in self.host.here:
            if node in self.shares:
                self.shares[node].collect()

    def rank_ended(self, rank: Rank) -> None:
        """Read the last output of a rank that has ended, and close its input."""
        self._running -= 1
        for stream in rank.streams.values():
            if not stream.ended:
                stream.finish()
        if rank.input is not None:
            rank.input.close()
        if not self._running:
            self._last_ended()
        self.changed()

    def _last_ended(self) -> None:
        if not self._keeps_strays and not self.unstarted and not self._swept:
            self._swept = True
            self.host.loop.later(0, self._sweep)

    def release(self) -> None:
        """Release the launch: end the processes that its ranks leave behind once the ranks have ended."""
        self._keeps_strays = False
        if not self._running:
            self._last_ended()

    @vital
    def _sweep(self) -> None:
        """End the processes that the ranks, all ended, left behind."""
        for share in list(self._left):
            share.sweep()
        self._check_over()

    def share_over(self, share: Share) -> None:
        """Record that nothing of a share is left."""
        self._left.pop(share, None)
        self._check_over()

    def _check_over(self) -> None:
        if self._swept and not self._left and not self.over:
            self.over = True
            self.job.launch_over(self)
            self.changed()

    def holds(self, node: HostNode) -> bool:
        """Return True if something of it is left on a node, or is about to be."""
        return self.shares.get(node) in self._left

    def wait_text(self) -> str:
        """Return the things that the launch waits for although none of its ranks runs, as a text; empty for nothing."""
        groups = [group for share in self._left for group in share.groups]
        if groups:
            return f"left behind by ranks: {listed([f'process group {group}' for group in sorted(groups)])}"
        names = listed([share.node.hostname for share in self._left if not share.node.here])
        if not names or (self._running and not self.unstarted):
            return ""
        return (
            f"{'its ranks have started' if self.unstarted else 'nothing is left of its ranks'}: no word yet of {names}"
        )

    @vital
    def give_up(self) -> None:
        """Stop waiting for processes that were killed and have not ended."""
        for share in list(self._left):
            share.give_up()


class Share:
    """The ranks of a launch on one node.

    Args:
        launch: The launch.
        node: The node.
        ranks: Its ranks there.

    Attributes:
        groups: The process groups of its ranks, all ended, that still have a process; empty if that is not known here.
    """

    def __init__(self, launch: Launch, node: HostNode, ranks: list[Rank]) -> None:
        self.launch = launch
        self.host = launch.host
        self.node = node
        self.ranks = ranks
        self.groups: set[int] = set()

    def prepare(self) -> None:
        """Make sure that the node can run the ranks; report it by `Launch.share_prepared`."""
        self.launch.share_prepared()

    def start(self, apps: Sequence[Application], programs: Sequence[str]) -> None:
        """Start the ranks; report it by `Launch.share_started`.

        Args:
            apps: The applications of the job.
            programs: The program of each.
        """
        raise NotImplementedError

    def starting(self, apps: Sequence[Application], programs: Sequence[str]) -> Generator[Rank, None, None]:
        """Start the ranks one by one; yields each before it is started. Only nodes of this process can."""
        raise NotImplementedError

    def collect(self) -> None:
        """Record the ends of ranks that the system has not reported yet, by `RunningJob.record_end`."""

    def signal(self, ranks: Sequence[Rank], signum: int, handled: bool = False) -> None:
        """Send a signal to some ranks that run, and to the processes that they have started.

        Args:
            ranks: The ranks.
            signum: The signal.
            handled: Skip ranks that have no handler for it, which it might end.
        """
        raise NotImplementedError

    def end_group(self, rank: Rank) -> None:
        """Kill the processes that a rank, which has ended and is started again, has left behind."""

    def sweep(self) -> None:
        """End the processes that the ranks, all ended, left behind; report the end of all by `Launch.share_over`."""
        raise NotImplementedError

    def give_up(self) -> None:
        """Stop waiting for processes that were killed and do not end."""

    def close(self) -> None:
        """Kill the ranks that are left after an internal error."""
        alive = [rank for rank in self.ranks if rank.alive]
        if alive:
            self.signal(alive, signal.SIGKILL)


def _finish_output(ranks: Iterable[Rank]) -> None:
    for rank in ranks:
        for stream in rank.streams.values():
            if not stream.ended:
                stream.finish()
                stream.close()
