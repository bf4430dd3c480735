"""A job while it runs: its processes, from their start until the last process that they left behind has ended.

A `RunningJob` is the state that a host keeps of one of its jobs; a `Launch` is a set of its ranks started together.
`pypmix run` has one launch for each job. A `Host` may start the ranks of a job in several, and leave some to others.

All of it happens on the thread of the host's loop:

1. `Launch.start` starts the ranks, each in a separate process group.
2. The kernel reports the end of a rank by its pidfd (`look`); without pidfds the job polls. The rank stays a zombie, so
   that neither its pid nor its process group is given to another process.
3. A rank that has failed is judged (`_judge`): depending on the terms of the job it ends the job, or is only recorded.
4. When the last rank of a launch has ended, and the launch is not held, it is swept: the processes that its ranks left
   in their process groups get SIGTERM, and SIGKILL after the grace. The kernel does not report that a process group is
   empty, so this is polled. A `Host` holds a launch until its `async with` block is left.
5. With its last launch the job is finished (`job_over` of the host).
"""

from __future__ import annotations

import os
import signal
import time

from pypmix.host import launch, orphans
from pypmix.host.cascades import CAUSE, Reader, summary
from pypmix.host.loop import READ
from pypmix.host.outcome import CANNOT_EXECUTE, NOT_FOUND, TIMED_OUT, Outcome, listed
from pypmix.host.output import Copy, Stream, channel
from pypmix.host.rank import Rank
from pypmix.standard.logtext import get_logger
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
    from typing import Protocol

    from pypmix.host.job import Application, Job, Slot
    from pypmix.host.loop import HostLoop, Loop
    from pypmix.host.nodes import HostNode, LocalNode
    from pypmix.host.output import Sink
    from pypmix.host.rank import Parent
    from pypmix.host.terms import Terms
    from pypmix.server import Server

    class Keeper(Protocol):
        """The interface of a job's manager that the job uses."""

        env: Mapping[str, str]
        grace: float
        nodes: tuple[HostNode, ...]
        here: tuple[LocalNode, ...]
        native: bool

        @property
        def loop(self) -> HostLoop: ...

        def program(self, app: Application, /) -> str: ...

        def start_process(
            self,
            app: Application,
            program: str,
            argv: tuple[str, ...],
            env: Mapping[str, str],
            files: tuple[int, int, int],
            /,
        ) -> tuple[Parent | None, int]: ...

        def sink(self, number: int, /) -> Sink: ...

        def delivery(self, proc: Proc, channel: int, also: int = 0, /) -> Callable[[bytes], None]: ...

        def catch_up(self) -> None: ...

        def launch_of(self, job: RunningJob, ranks: list[Rank], terms: Terms, held: bool, /) -> Launch: ...

        def guard_group(self, group: int, /) -> None: ...

        def forget_groups(self, groups: Iterable[int], /) -> None: ...

        def patience(self) -> Callable[[], bool]: ...

        def is_being_ended(self) -> bool: ...

        def is_sent_to_all(self, signum: int, /) -> bool: ...

        def unwritable(self, error: OSError, /) -> None: ...

        def broke(self, error: Exception, /) -> None: ...

        def rank_ended(self, job: RunningJob, rank: Rank, /) -> None: ...

        def job_failed(self, job: RunningJob, /) -> None: ...

        def outcome_corrected(self, former: Outcome, outcome: Outcome, /) -> None: ...

        def job_over(self, job: RunningJob, /) -> None: ...

        def tell_end(self, job: RunningJob, /) -> None: ...


KILLED_SECONDS = 5.0
"""Seconds that processes have to end after SIGKILL, and nodes to report that nothing is left: the kernel may block a
process in a system call forever, and a daemon may be such a process."""

INTERRUPT_GRACE = 1.0
"""Seconds after which a forwarded SIGINT, which a rank inside a C call never handles, becomes SIGTERM."""

SPREAD = 1.0
"""Seconds that a resource manager has to send SIGTERM to all nodes of a job that it ends."""

POLL = 0.01
"""Seconds between polls of states that the kernel does not report."""

DYING = 10
"""The number of polls for the end of a rank whose connection has ended."""

UNKNOWN = 255
"""The exit code of a process that other code of this program has collected."""

STDOUT = 2
STDERR = 4
NAMES = {STDOUT: "stdout", STDERR: "stderr"}
NUMBERS = {STDOUT: 1, STDERR: 2}


_log = get_logger("pypmix.host")


def vital(step: Callable[..., None]) -> Callable[..., None]:
    """Make a fault in a step end the host: without the step its job would never finish, and all would wait for it."""

    def guarded(self: RunningJob | Launch, *arguments: object) -> None:
        try:
            step(self, *arguments)
        except Exception as error:
            self.host.broke(error)

    return guarded


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
        nodes: The nodes that it runs on.
        launches: Its launches that are not finished.
        bare: Whether its applications have names and no programs.
        running: The number of its ranks that run.
        outcome: Its outcome, once decided; None while it is to continue.
        partial: The first failure that did not end it.
        failed_at: The time of its first failure, in seconds since 1970; 0 for none.
        unlaunched: The error because of which it could not be started.
        due: The time at which its limit ends, by `time.monotonic`; None without a limit.
    """

    def __init__(
        self, host: Keeper, job: Job, number: int, terms: Terms, homes: Mapping[int, HostNode], mark: str = ""
    ) -> None:
        self.host = host
        self.job = job
        self.number = number
        self.terms = terms
        self.mark = mark
        self.nodes = tuple(dict.fromkeys(homes.values()))
        self._homes = homes
        self._ranks: dict[int, Rank] = {}
        self._former: list[Rank] = []
        """Ranks that have been started again, while others of their launch have not ended."""
        self.launches: list[Launch] = []
        self.bare = False
        self._awaited: list[Callable[[], None]] = []
        self.renew(homes)
        self._unjudged = False
        self._leaving: Rank | None = None
        """A rank that seems to end; the judgement waits for it."""
        self._suspect: Rank | None = None
        """The rank to blame when that wait began, if it matters."""
        self._open_files: list[Copy] = []

    def renew(self, ranks: Iterable[int]) -> None:
        """Renew ranks, none of which runs, for another start; renew the whole job if nothing else is left of it."""
        of = f" of job {self.mark}" if self.mark else ""
        for rank in ranks:
            former = self._ranks.get(rank)
            if former is not None:
                self._former.append(former)
            self._ranks[rank] = Rank(self.job.proc(rank), f"rank {rank}{of}", self._homes[rank])
        self._former = [rank for rank in self._former if rank.launch is not None and not rank.launch.over]
        if self.launches:
            return
        self.running = 0
        self.outcome: Outcome | None = None
        self._culprit: Rank | None = None
        self._blamed: Rank | None = None
        """The rank whose end was judged, whether or not it has ended the job."""
        self._awaits_cause = False
        """Whether a wait with a limit has begun for the cause of a failure."""
        self.partial: Outcome | None = None
        self.failed_at = 0.0
        self.unlaunched: OSError | None = None
        self.due: float | None = None

    @property
    def nspace(self) -> str:
        """Its namespace."""
        return self.job.nspace

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

    def launch(self, ranks: Iterable[int], terms: Terms | None = None, *, held: bool = False) -> Launch:
        """Make the launch that starts some of its ranks.

        Args:
            ranks: The ranks to start.
            terms: The terms of their output and input, if they differ from the job's.
            held: Whether the processes that they leave behind stay until the launch is released.
        """
        made = self.host.launch_of(self, [self._ranks[rank] for rank in ranks], terms or self.terms, held)
        self.launches.append(made)
        if self.terms.limit and self.due is None:
            self.due = time.monotonic() + self.terms.limit
            self.host.loop.later(self.terms.limit, self._timed_out)
        return made

    def open_copy(self, path: str) -> Copy:
        """Open a file for the output of ranks; it is closed with the job."""
        copy = Copy(path, self.host.unwritable)
        self._open_files.append(copy)
        return copy

    # Ends of the ranks

    @vital
    def watch_without_pidfds(self) -> None:
        """Poll the ranks without a pidfd for their end."""
        for rank in self.ranks:
            if rank.alive and rank.pidfd < 0:
                self.look(rank)
        if self.running:
            self.host.loop.later(POLL, self.watch_without_pidfds)

    @vital
    def look(self, rank: Rank) -> None:
        """Check if a rank has ended, and judge its end."""
        if self._collect(rank):
            self._consider((rank,))

    def ended_elsewhere(self, rank: Rank, code: int) -> None:
        """Record the end of a rank that this host has not started; a negative code is the number of a signal."""
        rank.signum, rank.code = (-code, None) if code < 0 else (0, code)
        rank.over = True
        self.host.rank_ended(self, rank)
        if rank.blame and not self._is_judged():
            self._judge(0)
        if all(each.over for each in self.ranks):
            self.host.tell_end(self)

    def _is_judged(self) -> bool:
        """Return True if no further end makes a difference."""
        return self.outcome is not None or (self.terms.keep_going and self.partial is not None)

    def _consider(self, ended: Sequence[Rank]) -> None:
        """Judge the job after ranks have ended, unless that would wait for the same ranks as before.

        Thousands may end at once, and each judgement looks at all of them.
        """
        if self._is_judged() or not (self._unjudged or any(rank.blame for rank in ended)):
            return
        if self._leaving is not None and self._leaving.leaves:
            suspect = self._suspect
            if suspect is None or all(_guilt(rank) <= _guilt(suspect) for rank in ended):
                return
        self._judge(DYING)

    @vital
    def _judge(self, chances: int) -> None:
        """End the job after a rank has failed, and name the rank that failed first.

        Args:
            chances: The polls left for ranks that seem to end; below 0 it waits for no further end.
        """
        # A rank that requested an abort may have exited since, and a rank that died a moment ago may have taken others
        # with it: look at all of them before naming one.
        self.host.loop.run_posted()
        for other in self.ranks:
            self._collect(other)
        if self.outcome is not None or not any(other.blame for other in self.ranks):
            return
        self._leaving = self._suspect = None
        dying = [other for other in self.ranks if other.alive and other.lost] if chances > 0 else []
        if dying:
            # The others have seen its connection end before the system reports its exit.
            self._unjudged = True
            self._wait_for(dying)
            self.host.loop.later(POLL, lambda: self._judge(chances - 1))
            return
        culprit = max(self.ranks, key=_guilt)
        leaving = [other for other in self.ranks if other.leaves] if chances >= 0 and culprit.follows else []
        self._unjudged = bool(leaving)
        if leaving:
            # It missed a rank that has left and may be about to report a cause; the end of that rank is judged again.
            self._wait_for(leaving, culprit)
            if not self._awaits_cause:
                self._awaits_cause = True
                self.host.loop.later(CAUSE, lambda: self._judge(-1))
            return
        code = culprit.exit_code or 1
        self._blamed = culprit
        if not self.terms.keep_going:
            self._culprit = culprit
            reason = culprit.end() + self.others(culprit)
            if self.partial is not None:
                # Some ranks were ended on request, which the others may not survive: the request decides.
                code, reason = self.partial.code, f"{self.partial.reason}; then {reason}"
            self.end(code, reason)
        else:
            self.decide(code, f"{culprit.end()}; the others went on")

    def _wait_for(self, ranks: Sequence[Rank], suspect: Rank | None = None) -> None:
        # Of many ranks that end one after the other, in either direction, this one is among the last.
        self._leaving, self._suspect = ranks[len(ranks) // 2], suspect

    def _collect(self, rank: Rank) -> bool:
        """Read the end of a rank; it keeps its pid until the job is finished, so that its group stays unique."""
        if not rank.alive or not rank.node.here:
            return False
        # A host that adopts orphans is the parent of the ranks of an exited fork server.
        forked = rank.forked is not None and rank.forked.is_running
        try:
            end = rank.forked.read_exit(rank.pid) if rank.forked is not None and forked else launch.read_exit(rank.pid)
        except ChildProcessError:
            # This process ignores SIGCHLD, or other code of this program collects its children.
            rank.code = UNKNOWN
        else:
            if end is None:
                return False
            rank.code, rank.signum, rank.dumped = end
        self._ended(rank)
        return True

    def _ended(self, rank: Rank) -> None:
        self.release(rank)
        self.running -= 1
        rank.node.running -= 1
        assert rank.launch is not None
        rank.launch.rank_ended(rank)
        self.host.rank_ended(self, rank)

    @vital
    def ended_there(self, ranks: Sequence[Rank]) -> None:
        """Record the end of ranks started by another process for this one; they already hold their exit status."""
        for rank in ranks:
            self._ended(rank)
        self._consider(ranks)

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

    def release(self, rank: Rank) -> None:
        """Stop watching a rank, which has ended."""
        rank.alive = False
        rank.over = True
        if rank.pidfd >= 0:
            self.host.loop.unwatch(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = -1

    def others(self, culprit: Rank | None) -> str:
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
        reason += self.others(caller) if whole else f"; it ended {listed([str(rank) for rank in ranks])}"
        # The request was sent before the end of its caller, and has arrived after it.
        late = caller is not None and caller is self._blamed
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

    def decide(self, code: int, reason: str) -> None:
        """Record the outcome of a job that continues, unless an earlier failure has set it."""
        if self.partial is None:
            self.partial = Outcome(code, reason)
            self.failed_at = self.failed_at or time.time()

    def send(self, signum: int, ranks: Sequence[Rank] | None = None, *, handled: bool = False) -> None:
        """Send a signal to ranks, by default to all, and to the processes they started; see `HostNode.signal`."""
        by_node: dict[HostNode, list[Rank]] = {}
        for rank in self.ranks if ranks is None else ranks:
            if rank.alive:
                by_node.setdefault(rank.node, []).append(rank)
        for node, those in by_node.items():
            node.signal(those, signum, handled)

    def launch_over(self, ended: Launch) -> None:
        """Remove a launch of which nothing is left except output, perhaps."""
        self.launches.remove(ended)
        if self.launches:
            _finish_output(ended.ranks)
        else:
            self.host.job_over(self)

    def finish_output(self) -> None:
        """Pass on the last of the output and stop reading."""
        ranks = (*self._former, *self.ranks)
        for rank in ranks:
            for stream in rank.streams.values():
                stream.finish()
        self._fold([rank for rank in ranks if rank.holds])
        _finish_output(ranks)

    def is_cascade(self, rank: Rank) -> bool:
        """Return True if a rank failed because another one had failed, or was ended with the job."""
        ended = self.outcome is not None and rank.signum in (signal.SIGTERM, signal.SIGKILL)
        return bool(rank.blame) and (rank.follows or ended)

    def _fold(self, ranks: Sequence[Rank]) -> None:
        """Show one line for the held tracebacks of ranks; show all of one rank if nothing else shows the cause."""
        first = self._culprit or next(iter(ranks), None)
        rest = [rank for rank in ranks if rank is not first]
        if first is None or not rest:
            return
        caused = not first.holds
        for stream in first.streams.values():
            stream.let_go()
        text = summary([rank.proc.rank for rank in rest], first.proc.rank, caused=caused)
        self.host.sink(NUMBERS[STDERR]).write(None, f"pypmix run: {text}\n".encode())
        for rank in rest:
            for stream in rank.streams.values():
                stream.drop()

    def close(self) -> None:
        """Release all resources of the job; processes that are left only after an internal error are killed."""
        for rank in (*self._former, *self.ranks):
            if rank.alive:
                rank.node.signal([rank], signal.SIGKILL)
                if rank.forked is not None:
                    rank.forked.collect([rank.pid])
                elif rank.node.here:
                    os.waitpid(rank.pid, 0)
                self.release(rank)
            for stream in rank.streams.values():
                stream.close()
                stream.let_go()
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
        held: Whether the processes that they leave behind stay until `release`.

    Attributes:
        unstarted: Whether its ranks are still to be started.
        over: Whether nothing of it is left except output, perhaps.
        changed: Called when a rank has ended, and when the launch is finished.
    """

    def __init__(self, job: RunningJob, ranks: list[Rank], terms: Terms, held: bool) -> None:
        self.host = job.host
        self.job = job
        self.ranks = ranks
        self.terms = terms
        self.over = False
        self.changed: Callable[[], None] = lambda: None
        self._held = held
        self._running = 0
        self.unstarted = True
        self._swept = False
        self._groups: set[int] | None = None
        self._patience: Callable[[], bool] | None = None
        self._given_up = False
        for rank in ranks:
            rank.launch = self

    # Starting

    def start(self, apps: Sequence[Application], programs: Sequence[str], limits: tuple[int, int] | None) -> None:
        """Start the ranks; a rank that cannot be started ends the job.

        Args:
            apps: The applications of the job, which the ranks run.
            programs: The program of each.
            limits: The limits of open files to give the ranks, if they differ from the limits of this process.
        """
        for _ in self.starting(apps, programs, limits):
            pass

    def starting(
        self, apps: Sequence[Application], programs: Sequence[str], limits: tuple[int, int] | None
    ) -> Generator[Rank, None, None]:
        """Start the ranks one by one, as `start` does; yields each before it is started."""
        job = self.job
        slots = job.job.slots()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            self._register()
            for rank in self.ranks:
                yield rank
                slot = slots[rank.proc.rank]
                try:
                    self._launch(rank, slot, apps[slot.app], programs[slot.app], null)
                except OSError as error:
                    program = programs[slot.app]
                    reason = f"cannot start {rank.label}: {launch.explain(error, program)}"
                    of_program = error.filename in (None, program)
                    if of_program and isinstance(error, FileNotFoundError):
                        error.strerror = launch.NO_PROGRAM
                    self.failed(error, reason, of_program)
                    break
                if limits is not None:
                    launch.restore_descriptor_limit(rank.pid, limits)
        finally:
            os.close(null)
            self.unstarted = False
        if not self._running:
            self._last_ended()
        elif any(rank.alive and rank.pidfd < 0 for rank in self.ranks):
            job.watch_without_pidfds()

    def failed(self, error: OSError, reason: str, of_program: bool) -> None:
        """End the job because its ranks, or one of them, cannot be started.

        Args:
            error: The error.
            reason: The reason, for a person.
            of_program: Whether the error is about the program, and not about a folder or the system.
        """
        self.unstarted = False
        self.job.unlaunched = error
        # An error without a number comes from a lost node or a fork server, and not from the system.
        code = CANNOT_EXECUTE if of_program and error.errno else 1
        self.job.end(NOT_FOUND if launch.is_missing(error) else code, reason)

    def _register(self) -> None:
        """Register the ranks with the servers: all at once, as each call waits for a server's thread."""
        expected: dict[Server, list[Proc]] = {}
        for rank in self.ranks:
            expected.setdefault(rank.node.server, []).append(rank.proc)
        for server, procs in expected.items():
            server.session.register_clients(procs, os.geteuid(), os.getegid())

    def _launch(self, rank: Rank, slot: Slot, app: Application, program: str, null: int) -> None:
        host = self.host
        server = rank.node.server
        folder = f"{rank.node.folder(self.job.number)}/{rank.proc.rank}"
        try:
            os.mkdir(folder, 0o700)
        except FileNotFoundError:
            os.makedirs(folder, 0o700, exist_ok=True)
        except FileExistsError:
            # A rank that is started again has one.
            pass
        env = {**app.environment(host.env), **server.client_env(rank.proc)}
        if app.wdir:
            env["PWD"] = app.wdir
        argv = app.argv
        if self.terms.indexed:
            argv = (f"{argv[0]}-{rank.proc.rank}", *argv[1:])
        ours: list[int] = []
        try:
            stdin = self._input(rank, null, ours)
            stdout, stderr = self._outputs(rank, ours)
            rank.forked, rank.pid = host.start_process(app, program, argv, env, (stdin, stdout, stderr))
            host.guard_group(rank.pid)
        finally:
            for fd in ours:
                os.close(fd)
        rank.alive = True
        self._running += 1
        self.job.running += 1
        rank.node.running += 1
        rank.pidfd = launch.open_pidfd(rank.pid)
        if rank.pidfd >= 0:
            host.loop.watch(rank.pidfd, READ, lambda: self.job.look(rank))

    def _input(self, rank: Rank, null: int, ours: list[int]) -> int:
        """Return the descriptor that a rank reads; append the descriptors to close here to `ours`."""
        terms = self.terms
        if terms.stdin not in (RANK_WILDCARD, rank.proc.rank):
            return null
        if not terms.pushed and not terms.forwarded and (terms.stdin != RANK_WILDCARD or self.job.job.size == 1):
            return 0 if readable_here(0) else null
        from pypmix.host.feeding import Input

        reader, writer = os.pipe2(os.O_CLOEXEC)
        ours.append(reader)
        os.set_blocking(writer, False)
        rank.input = Input(self.host.loop, writer)
        return reader

    def _outputs(self, rank: Rank, ours: list[int]) -> tuple[int, int]:
        """Return the descriptors that a rank writes to; append the descriptors to close here to `ours`."""
        terms, job = self.terms, self.job
        piped = job.number > 1 or job.job.size > 1 or terms.tagged or terms.stamped or terms.forwarded
        if not piped and not terms.directory and not terms.file:
            # A lone rank needs no forwarding: it inherits this process's output, perhaps a terminal.
            return 1, 1 if terms.merged else 2
        found: list[int] = []

        def read(kind: int, sink: Sink | None) -> int:
            reader, writer = channel(-1 if sink is None else NUMBERS[kind])
            ours.append(writer)
            found.append(writer)
            return reader

        self.connect_outputs(rank, read)
        return found[0], found[-1]

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
            sink = self.host.sink(number) if terms.shown[number - 1] else None
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
                reader=Reader() if kind == STDERR and job.job.size > 1 and not job.terms.keep_going else None,
                folds=terms.folds,
            )
            rank.streams[kind] = stream
            if terms.kept:
                stream.tap = self.host.delivery(rank.proc, kind, STDERR if terms.merged else 0)
            elif self.host.native:
                stream.untapped = self.host.catch_up

    # Ending

    def rank_ended(self, rank: Rank) -> None:
        """Read the last output of a rank that has ended, and close its input."""
        self._running -= 1
        for stream in rank.streams.values():
            stream.finish()
        cascade = self.job.is_cascade(rank)
        for stream in rank.streams.values():
            stream.keep() if cascade else stream.let_go()
        if rank.input is not None:
            rank.input.close()
        if not self._running:
            self._last_ended()
        self.changed()

    def _last_ended(self) -> None:
        if not self._held and not self.unstarted and not self._swept:
            self._swept = True
            self.host.loop.later(0, self._sweep)

    def release(self) -> None:
        """Release the launch: end the processes that its ranks leave behind once the ranks have ended."""
        self._held = False
        if not self._running:
            self._last_ended()

    def awaited(self) -> str:
        """Return the things that the launch waits for although none of its ranks runs, as a text; empty for nothing."""
        groups = sorted(self._groups or ())
        return f"left behind by ranks: {listed([f'process group {group}' for group in groups])}" if groups else ""

    @vital
    def give_up(self) -> None:
        """Stop waiting for processes that were killed and do not end."""
        stuck = [rank for rank in self.ranks if rank.alive]
        self._given_up = bool(stuck or self._groups)
        for rank in stuck:
            rank.signum, rank.fate = signal.SIGKILL, "was killed and does not end"
            _log.error("%s was killed and does not end: it is left behind", rank)
        if stuck:
            self.job.ended_there(stuck)

    @vital
    def _sweep(self) -> None:
        """End the processes that the ranks, all ended, left behind, and then the launch."""
        if self._groups is None:
            self._groups = {rank.pid for rank in self.ranks if rank.pid and rank.over}
            for parent in {rank.forked for rank in self.ranks if rank.forked is not None}:
                parent.collect([rank.pid for rank in self.ranks if rank.over and rank.forked is parent])
            signum: int = signal.SIGKILL if self._given_up else signal.SIGTERM
        else:
            assert self._patience is not None
            signum = 0 if self._patience() and not self._given_up else signal.SIGKILL
        for group in self._groups:
            orphans.reap(group)
        gone = {group for group in self._groups if not launch.signal_group(group, signum)}
        self._groups -= gone
        self.host.forget_groups(gone)
        if self._given_up and self._groups:
            _log.error("%s was killed and does not end: it is left behind", self.awaited())
            self._groups = set()
        if self._groups:
            if self._patience is None:
                self._patience = self.host.patience()
            # The kernel does not report the end of a process group.
            self.host.loop.later(POLL, self._sweep)
            return
        self.over = True
        self.job.launch_over(self)
        self.changed()


def _guilt(rank: Rank) -> tuple[int, bool]:
    """Return a key that is greater the more likely a rank is the cause of others' ends."""
    return rank.blame, not rank.follows


def _finish_output(ranks: Iterable[Rank]) -> None:
    for rank in ranks:
        for stream in rank.streams.values():
            stream.finish()
            stream.close()
            stream.let_go()


def patience(grace: float, spent: Callable[[], bool]) -> Callable[[], bool]:
    """Return a predicate that is true while the grace lasts, which starts now."""
    end = time.monotonic() + grace
    return lambda: not spent() and time.monotonic() < end


def end_strays(loop: Loop, strays: Callable[[int], bool], patience: Callable[[], Callable[[], bool]]) -> None:
    """End the processes that have left the jobs' process groups: SIGTERM, and SIGKILL after the grace.

    Args:
        loop: The loop, which runs meanwhile.
        strays: Sends a signal to them, 0 for none; returns True if there are any.
        patience: Starts the grace, and returns a predicate that is true while it lasts.
    """
    if not strays(signal.SIGTERM):
        return
    lasts = patience()
    killed = 0.0

    def are_gone() -> bool:
        nonlocal killed
        if not lasts():
            killed = killed or time.monotonic()
        if not strays(signal.SIGKILL if killed else 0):
            return True
        return bool(killed) and time.monotonic() - killed > KILLED_SECONDS

    # The kernel does not report the end of a process that is not our child.
    loop.run(are_gone, every=POLL)


def readable_here(fd: int) -> bool:
    """Return True if a rank may be given this descriptor to read.

    A terminal that another process group owns must not be read: a background job would take the input typed to
    the shell.
    """
    try:
        os.fstat(fd)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        # Not a terminal, or not the controlling terminal of this session: the input is ours.
        return True
