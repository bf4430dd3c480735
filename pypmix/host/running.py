"""A job while it runs: its processes from their start to the last of what they left behind."""

from __future__ import annotations

import os
import signal
import time

from pypmix.host import launch, orphans
from pypmix.host.folders import remove_job
from pypmix.host.loop import READ
from pypmix.host.outcome import CANNOT_EXECUTE, NOT_FOUND, TIMED_OUT, Outcome
from pypmix.host.output import Copy, Stream, channel
from pypmix.host.rank import Rank
from pypmix.standard.types import RANK_WILDCARD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.host.job import Application, Job, Slot
    from pypmix.host.local import LocalHost
    from pypmix.host.loop import Timer
    from pypmix.host.nodes import LocalNode
    from pypmix.host.terms import Terms

INTERRUPT_GRACE = 1.0
"""Seconds after which a forwarded SIGINT, which a rank inside of a C call never sees, becomes SIGTERM."""

POLL = 0.01
"""Seconds between looks at what the kernel tells nobody about."""

DYING = 10
"""How often is looked whether a rank has ended whose connection has."""

STDOUT = 2
STDERR = 4
NAMES = {STDOUT: "stdout", STDERR: "stderr"}


def vital(step: Callable[..., None]) -> Callable[..., None]:
    """Have a fault in a step end the host: without the step its job would never be over, and all wait for it."""

    def guarded(self: RunningJob, *arguments: object) -> None:
        try:
            step(self, *arguments)
        except Exception as error:
            if self.host.broken is None:
                self.host.broken = error
            self.host.loop.wake()

    return guarded


class RunningJob:
    """A job of a host.

    Args:
        host: The host; all of a job belongs to its loop.
        job: What runs.
        number: Which of the host's jobs this is, from 1.
        terms: How it runs.
        placed: The nodes that it runs on, and the ranks that each holds.

    Attributes:
        nodes: The nodes that it runs on.
        ranks: Its processes, by rank; those that have ended too.
        running: How many of them have not.
        outcome: How it ended, once that is decided; None while it is to go on.
        partial: The first failure that did not end it.
        unlaunched: Why it could not be started.
        deadline: When its time is over; None where it has no limit.
    """

    def __init__(
        self, host: LocalHost, job: Job, number: int, terms: Terms, placed: Sequence[tuple[LocalNode, Sequence[int]]]
    ) -> None:
        self.host = host
        self.job = job
        self.number = number
        self.terms = terms
        of = "" if number == 1 else f" of job {number}"
        self.nodes = tuple([node for node, _ in placed])
        homes = {rank: node for node, ranks in placed for rank in ranks}
        self.ranks = [Rank(job.proc(rank), f"rank {rank}{of}", homes[rank]) for rank in range(job.size)]
        self.running = 0
        self.outcome: Outcome | None = None
        self.partial: Outcome | None = None
        self.unlaunched: OSError | None = None
        self.deadline: Timer | None = None
        self._unjudged = False
        self._groups: set[int] | None = None
        self._patience: Callable[[], bool] | None = None
        self._open_files: list[Copy] = []

    @property
    def nspace(self) -> str:
        """Its namespace."""
        return self.job.nspace

    def __str__(self) -> str:
        return "the job" if self.number == 1 else f"job {self.number}"

    # Starting

    def start(self, programs: Sequence[str], limits: tuple[int, int] | None) -> None:
        """Start the ranks; one that cannot be started ends the job.

        Args:
            programs: The program of each application.
            limits: The limits of open files to give the ranks, where they are not this process's own.
        """
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            for slot in self.job.slots():
                rank = self.ranks[slot.rank]
                try:
                    self._launch(rank, slot, self.job.apps[slot.app], programs[slot.app], null)
                except OSError as error:
                    self.unlaunched = error
                    code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE
                    reason = launch.explain(error, programs[slot.app])
                    self.end(code, f"cannot start {rank.label}: {reason}")
                    break
                if limits is not None:
                    launch.restore_descriptor_limit(rank.pid, limits)
        finally:
            os.close(null)
        if not self.running:
            self.host.loop.later(0, self._sweep)
        elif any(rank.alive and rank.pidfd < 0 for rank in self.ranks):
            self._watch_without_pidfds()
        if self.terms.limit:
            self.deadline = self.host.loop.later(self.terms.limit, self._timed_out)

    def _launch(self, rank: Rank, slot: Slot, app: Application, program: str, null: int) -> None:
        host = self.host
        server = rank.node.server
        os.mkdir(f"{rank.node.folder(self.number)}/{rank.proc.rank}", 0o700)
        server.register_client(rank.proc)
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
            rank.pid = launch.spawn(program, argv, env, (stdin, stdout, stderr), app.wdir)
            host.guard_group(rank.pid)
        finally:
            for fd in ours:
                os.close(fd)
        rank.alive = True
        self.running += 1
        rank.node.running += 1
        rank.pidfd = launch.open_pidfd(rank.pid)
        if rank.pidfd >= 0:
            host.loop.watch(rank.pidfd, READ, lambda: self._ready(rank))

    def _input(self, rank: Rank, null: int, ours: list[int]) -> int:
        """Return what a rank reads; what has to be closed here goes into `ours`."""
        terms = self.terms
        if terms.stdin not in (RANK_WILDCARD, rank.proc.rank):
            return null
        if not terms.pushed and not terms.forwarded and (terms.stdin != RANK_WILDCARD or self.job.size == 1):
            return 0 if readable_here(0) else null
        from pypmix.host.feeding import Input

        reader, writer = os.pipe2(os.O_CLOEXEC)
        ours.append(reader)
        os.set_blocking(writer, False)
        rank.input = Input(self.host.loop, writer)
        return reader

    def _outputs(self, rank: Rank, ours: list[int]) -> tuple[int, int]:
        """Return what a rank writes to; what has to be closed here goes into `ours`."""
        terms = self.terms
        piped = self.number > 1 or self.job.size > 1 or terms.tagged or terms.stamped or terms.forwarded
        if not piped and not terms.directory and not terms.file:
            # A lone rank needs no forwarding: it has this process's own output, a terminal where that is one.
            return 1, 1 if terms.merged else 2
        copy = self._copy(f"{terms.file}.{rank.proc.rank}") if terms.file else None
        found = []
        for kind in (STDOUT,) if terms.merged else (STDOUT, STDERR):
            number = 1 if kind == STDOUT else 2
            if terms.directory:
                copy = self._copy(f"{terms.directory}/{self.number}/rank.{rank.proc.rank}/{NAMES[kind]}")
            sink = self.host.sink(number) if terms.shown[number - 1] else None
            reader, writer = channel(number if sink is not None else -1)
            ours.append(writer)
            where = "" if self.number == 1 else f"{self.number}:"
            tag = f"[{where}{rank.proc.rank}]<{NAMES[kind]}>: " if terms.tagged else ""
            stream = Stream(self.host.loop, reader, sink, tag.encode(), stamped=terms.stamped, copy=copy)
            rank.streams[kind] = stream
            if terms.kept:
                stream.tap = self.host.delivery(rank.proc, kind, STDERR if terms.merged else 0)
            else:
                stream.untapped = self.host.catch_up
            found.append(writer)
        return found[0], found[-1]

    def _copy(self, path: str) -> Copy:
        copy = Copy(path, self.host.unwritable)
        self._open_files.append(copy)
        return copy

    # What happens to the ranks

    @vital
    def _watch_without_pidfds(self) -> None:
        for rank in self.ranks:
            if rank.pidfd < 0:
                self._ready(rank)
        if self.running:
            self.host.loop.later(POLL, self._watch_without_pidfds)

    @vital
    def _ready(self, rank: Rank) -> None:
        if self._collect(rank) and self.outcome is None and (rank.blame or self._unjudged):
            self._judge(DYING)

    @vital
    def _judge(self, chances: int) -> None:
        """A rank has failed: end the job, in the name of the one that began."""
        # A rank that asked for an abort may have exited since, and one that died a moment ago may have taken others
        # with it: look at all of them before one is named.
        self.host.loop.run_posted()
        for other in self.ranks:
            self._collect(other)
        if self.outcome is not None or not any(other.blame for other in self.ranks):
            return
        if chances and any(other.alive and other.lost for other in self.ranks):
            # The others have heard that its connection is gone before the system tells that it is.
            self._unjudged = True
            self.host.loop.later(POLL, lambda: self._judge(chances - 1))
            return
        self._unjudged = False
        culprit = max(self.ranks, key=lambda each: each.blame)
        code = 128 + culprit.signum if culprit.signum else culprit.code or 1
        if not self.terms.keep_going:
            self.end(code, culprit.end() + self.others(culprit))
        elif self.partial is None:
            self.partial = Outcome(code, f"{culprit.end()}; the others went on")

    def _collect(self, rank: Rank) -> bool:
        """Take in the end of a rank; its pid stays taken until the job is over, so that its group has no other."""
        if not rank.alive:
            return False
        end = os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if end is None:
            return False
        if end.si_code == os.CLD_EXITED:
            rank.code = end.si_status
        else:
            rank.signum = end.si_status
            rank.dumped = end.si_code == os.CLD_DUMPED
        self._forget(rank)
        self.running -= 1
        rank.node.running -= 1
        if not self.running:
            self.host.loop.later(0, self._sweep)
        for stream in rank.streams.values():
            stream.finish()
        if rank.input is not None:
            rank.input.close()
        self.host.rank_ended(self, rank)
        return True

    def _forget(self, rank: Rank) -> None:
        rank.alive = False
        if rank.pidfd >= 0:
            self.host.loop.unwatch(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = -1

    def others(self, culprit: Rank | None) -> str:
        """Say how many others are ended because of one."""
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
        """End the job, unless that is under way already: whatever was first is the outcome.

        Args:
            code: Its exit code.
            reason: Why, for a person.
            signum: The signal to begin with.
        """
        if self.outcome is not None:
            return
        self.outcome = Outcome(code, reason)
        self.host.job_failed(self)
        self.send(signum)
        if signum != signal.SIGTERM:
            self.host.loop.later(INTERRUPT_GRACE, lambda: self.send(signal.SIGTERM))
        self.host.loop.later(self.host.grace, lambda: self.send(signal.SIGKILL))

    def end_ranks(self, ranks: Sequence[Rank], code: int, reason: str) -> None:
        """End some ranks, while the others go on."""
        for rank in ranks:
            rank.excused = True
        self.send(signal.SIGTERM, ranks)
        if self.partial is None:
            self.partial = Outcome(code, reason)
        self.host.loop.later(self.host.grace, lambda: self.send(signal.SIGKILL, ranks))

    def send(self, signum: int, ranks: Sequence[Rank] | None = None) -> None:
        """Send a signal to ranks, all by default, and to what they have started."""
        for rank in self.ranks if ranks is None else ranks:
            if rank.alive:
                launch.signal_group(rank.pid, signum)
                if signum in (signal.SIGTERM, signal.SIGINT):
                    # A stopped process does not see it before it goes on.
                    launch.signal_group(rank.pid, signal.SIGCONT)

    @vital
    def _sweep(self) -> None:
        """All ranks have ended: end what they started and left behind, and then the job."""
        if self._groups is None:
            self._groups = {rank.pid for rank in self.ranks if rank.pid}
            for group in self._groups:
                os.waitpid(group, 0)
            signum: int = signal.SIGTERM
        else:
            assert self._patience is not None
            signum = 0 if self._patience() else signal.SIGKILL
        for group in self._groups:
            orphans.reap(group)
        gone = {group for group in self._groups if not launch.signal_group(group, signum)}
        self._groups -= gone
        self.host.forget_groups(gone)
        if not self._groups:
            self.host.job_over(self)
            return
        if self._patience is None:
            self._patience = self.host.patience()
        # Nobody tells of the end of a process group, so it is asked for.
        self.host.loop.later(POLL, self._sweep)

    def finish_output(self) -> None:
        """Pass on the last of the output and read no more."""
        for rank in self.ranks:
            for stream in rank.streams.values():
                stream.finish()
                stream.close()

    def close(self) -> None:
        """Let go of all that the job holds; processes that are left only after an error of our own are killed."""
        for rank in self.ranks:
            if rank.alive:
                launch.signal_group(rank.pid, signal.SIGKILL)
                os.waitpid(rank.pid, 0)
                self._forget(rank)
            for stream in rank.streams.values():
                stream.close()
            if rank.input is not None:
                rank.input.close()
        for copy in self._open_files:
            copy.close()
        if self.number > 1:
            for node in self.host.nodes:
                remove_job(node.folder(self.number))


def patience(grace: float, spent: Callable[[], bool]) -> Callable[[], bool]:
    """Return what tells whether the grace that starts now still lasts."""
    end = time.monotonic() + grace
    return lambda: not spent() and time.monotonic() < end


def readable_here(fd: int) -> bool:
    """Tell whether a rank may be given this descriptor to read.

    A terminal that another process group owns must not be read: a background job would take what is typed to
    the shell.
    """
    try:
        os.fstat(fd)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        # No terminal, or not the one that controls this session: nobody else's input.
        return True
