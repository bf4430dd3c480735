"""LocalHost: the embedded resource manager that runs one job on this node."""

from __future__ import annotations

import os
import signal
import socket
import time

from pypmix.host import launch, orphans
from pypmix.host.directory import Directory, Who
from pypmix.host.folders import remove, temporary_folder, working_directory
from pypmix.host.guard import Guard
from pypmix.host.job import Application, Job, Node, check_local_size
from pypmix.host.loop import READ, Loop
from pypmix.host.outcome import (
    CANNOT_EXECUTE,
    NOT_FOUND,
    TIMED_OUT,
    Outcome,
    exit_code,
    listed,
    pending_text,
    signal_text,
)
from pypmix.host.output import Sink, Stream, channel
from pypmix.host.rank import CONNECTED, FINALIZED, STARTED, Rank
from pypmix.host.signals import Signals
from pypmix.server import Server
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.ops import (
    PERSIST_APP,
    ClientAborted,
    ClientConnected,
    ClientFinalized,
    ClientLost,
    Lookup,
    Publish,
    Unpublish,
)
from pypmix.standard.types import RANK_WILDCARD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pypmix.engine.base import Upcall
    from pypmix.standard.types import Pdata, Proc

GRACE = 5.0
"""Seconds that ranks have between the request to end and SIGKILL."""

_INTERRUPT_GRACE = 1.0
"""Seconds after which a forwarded SIGINT, which a rank inside of a C call never sees, becomes SIGTERM."""

_POLL = 0.01


class LocalHost:
    """Run one job on this node: a server, the job's processes, their output, and the clean-up.

    A rank that is killed by a signal, exits with another code than 0, or exits with 0 after it has
    initialized and not finalized, ends the job; so does `PMIx_Abort`. Ending means SIGTERM, and SIGKILL after
    a grace. Each rank runs in a session of its own, and what it started ends with the job.

    Args:
        apps: What to run; ranks are numbered through it.
        engine: The engine of the server.
        env: The environment that ranks inherit; this process's by default. Variables of an outer job are left
            out.
        tag_output: Start each line of output with `[rank]<stdout>: ` or `[rank]<stderr>: `.
        timeout: Seconds after which the job is ended; the outcome's reason says what was pending then.
        grace: Seconds that ranks have between SIGTERM and SIGKILL.
        own_process: This process exists for the job only, and this is its main thread: take its signals, and
            become the parent of all processes that the job leaves behind, so that none survives it.
    """

    def __init__(
        self,
        apps: Sequence[Application],
        *,
        engine: str = "python",
        env: Mapping[str, str] | None = None,
        tag_output: bool = False,
        timeout: float | None = None,
        grace: float = GRACE,
        own_process: bool = False,
    ) -> None:
        if timeout is not None and not timeout > 0:
            raise ValueError(f"a timeout must be more than 0 seconds, not {timeout}")
        self._env = launch.inherited_environment(os.environ if env is None else env)
        self._tag_output = tag_output
        self._timeout = timeout
        self._grace = grace
        self._own_process = own_process
        hostname = socket.gethostname() or "localhost"
        name = f"pypmix-{hostname.partition('.')[0]}-{os.getpid()}-{os.urandom(3).hex()}"
        self.tmpdir = os.path.join(temporary_folder(self._env), name)
        apps = tuple(apps)
        size = sum([app.np for app in apps])
        check_local_size(size)
        self.job = Job(
            nspace=f"{name}@1",
            apps=apps,
            nodes=(Node(hostname, tuple(range(size))),),
            session=os.getpid(),
            tmpdir=self.tmpdir,
            wdir=working_directory(),
        )
        self._server = Server(self._upcall, engine=engine, nspace=f"{name}@0", tmpdir=self.tmpdir)
        self._ranks = [Rank(self.job.proc(rank)) for rank in range(size)]
        self._running = 0
        self._loop = Loop()
        self._directory = Directory(self._loop.later)
        self._sinks: dict[int, Sink] = {}
        self._guard: Guard | None = None
        self._outcome: Outcome | None = None
        self._partial: Outcome | None = None
        self._impatient = False
        self._asked: set[int] = set()

    @property
    def wake_fd(self) -> int:
        """A descriptor that ends the wait of the thread in `run` when a byte is written to it."""
        return self._loop.wake_fd

    def interrupt(self, signum: int) -> None:
        """Take in a signal that this process was sent; from any thread or signal handler.

        SIGUSR1, SIGUSR2 and SIGCONT are passed on to the ranks, SIGTSTP stops them and this process. Others
        are passed on and end the job; a SIGINT while it ends kills what is left at once.
        """
        self._loop.post(lambda: self._interrupted(signum))

    def run(self) -> Outcome:
        """Run the job and return when nothing of it is left; to be called once.

        Raises:
            FileNotFoundError: A program or a working directory does not exist.
            PermissionError: A program cannot be executed.
            OSError: The system lacks what the job needs.
        """
        signals = Signals(self) if self._own_process else None
        limits = None
        try:
            programs = [self._program(app) for app in self.job.apps]
            limits = launch.raise_descriptor_limit(self.job.size)
            if signals is not None:
                signals.take()
            try:
                self._run(programs, limits)
            finally:
                self._close()
        finally:
            if signals is not None:
                signals.restore()
            if limits is not None:
                launch.restore_descriptor_limit(0, limits)
            self._loop.close()
        return self._outcome or self._partial or Outcome(0)

    def _run(self, programs: list[str], limits: tuple[int, int] | None) -> None:
        os.mkdir(self.tmpdir, 0o700)
        self._guard = Guard(self.job.nspace, self.tmpdir)
        self._server.open()
        self._server.register_nspace(self.job.info())
        if self._timeout is not None:
            self._loop.later(self._timeout, self._timed_out)
        if self._own_process:
            orphans.adopt()
        self._start(programs, limits)
        unwatched = [rank for rank in self._ranks if rank.alive and rank.pidfd < 0]
        self._loop.run(lambda: self._over(unwatched), every=_POLL if unwatched else None)
        self._sweep()
        self._hand_over()

    def _program(self, app: Application) -> str:
        if app.wdir and not os.path.isdir(app.wdir):
            raise FileNotFoundError(2, "no such working directory", app.wdir)
        return launch.find_program(app.argv[0], {**self._env, **dict(app.env)}, app.wdir)

    # Starting

    def _start(self, programs: list[str], limits: tuple[int, int] | None) -> None:
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            for slot in self.job.slots():
                rank = self._ranks[slot.rank]
                try:
                    self._launch(rank, self.job.apps[slot.app], programs[slot.app], null)
                except OSError as error:
                    code = NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_EXECUTE
                    reason = launch.explain(error, programs[slot.app])
                    self._end(code, f"cannot start rank {slot.rank}: {reason}")
                    return
                if limits is not None:
                    launch.restore_descriptor_limit(rank.pid, limits)
        finally:
            os.close(null)

    def _launch(self, rank: Rank, app: Application, program: str, null: int) -> None:
        os.mkdir(self.job.procdir(rank.proc.rank), 0o700)
        self._server.register_client(rank.proc)
        env = {**self._env, **dict(app.env), **self._server.client_env(rank.proc)}
        if app.wdir:
            env["PWD"] = app.wdir
        stdin = 0 if rank.proc.rank == 0 and _readable_here(0) else null
        outputs: list[int] = []
        try:
            # A lone rank needs no forwarding: it has this process's own output, a terminal where that is one.
            if self.job.size > 1 or self._tag_output:
                for number in (1, 2):
                    outputs.append(self._pipe(rank, number))
            files = (stdin, outputs[0], outputs[1]) if outputs else (stdin, 1, 2)
            rank.pid = launch.spawn(program, app.argv, env, files, app.wdir)
        finally:
            for fd in outputs:
                os.close(fd)
        assert self._guard is not None
        self._guard.add(rank.pid)
        rank.alive = True
        self._running += 1
        rank.pidfd = launch.open_pidfd(rank.pid)
        if rank.pidfd >= 0:
            self._loop.watch(rank.pidfd, READ, lambda: self._ready(rank))

    def _pipe(self, rank: Rank, number: int) -> int:
        reader, writer = channel(number)
        tag = f"[{rank.proc.rank}]<{'stdout' if number == 1 else 'stderr'}>: " if self._tag_output else ""
        rank.streams.append(Stream(self._loop, reader, self._sink(number), tag.encode()))
        return writer

    def _sink(self, number: int) -> Sink:
        if number not in self._sinks:
            other = self._sinks.get(3 - number)
            # Two sinks on one pipe would write into each other's lines.
            same = other is not None and os.path.sameopenfile(1, 2)
            self._sinks[number] = other if other is not None and same else Sink(self._loop, number, self._unread)
        return self._sinks[number]

    # What happens to the ranks

    def _upcall(self, upcall: Upcall) -> None:
        # On the engine's thread. What a rank did is noted before it is answered, hence before it can exit.
        op = upcall.op
        match op:
            case ClientConnected():
                self._note(op.proc, CONNECTED)
            case ClientFinalized():
                self._note(op.proc, FINALIZED)
            case ClientLost():
                pass
            case ClientAborted():
                self._loop.post(lambda: self._aborted(op))
            case Publish() | Lookup() | Unpublish():
                self._loop.post(lambda: self._consult(upcall))
                return
            case _:
                upcall.fail(NotSupported("LocalHost does not offer it", operation=op.name))
                return
        upcall.reply()

    def _consult(self, upcall: Upcall) -> None:
        """Have the directory answer; one thread for all of it, so that nothing in it can meet."""
        op = upcall.op
        assert upcall.requestor is not None and upcall.uid is not None and upcall.gid is not None
        who = Who(upcall.requestor, upcall.uid, upcall.gid)

        def found(data: tuple[Pdata, ...], error: PMIxError | None) -> None:
            if error is None:
                upcall.reply(data)
            else:
                upcall.fail(error)

        try:
            match op:
                case Publish():
                    self._directory.publish(who, op)
                    rank = self._ranks[who.proc.rank]
                    if not rank.alive:
                        # It did not wait for the answer, and what lasts as long as itself is over.
                        self._retire(rank)
                    upcall.reply()
                case Lookup():
                    self._directory.lookup(who, op, found)
                case Unpublish():
                    self._directory.unpublish(who, op)
                    upcall.reply()
        except PMIxError as error:
            upcall.fail(error)

    def _retire(self, rank: Rank) -> None:
        """Remove what was published for as long as a rank, or the application that it was the last of, has lived."""
        self._directory.leave(rank.proc)
        if not self._directory:
            return
        apps = [slot.app for slot in self.job.slots()]
        same = [other for other in self._ranks if apps[other.proc.rank] == apps[rank.proc.rank]]
        if not any(other.alive for other in same):
            self._directory.forget({other.proc for other in same}, PERSIST_APP)

    def _note(self, proc: Proc, stage: str) -> None:
        if proc.nspace == self.job.nspace and proc.rank < len(self._ranks):
            self._ranks[proc.rank].stage = stage

    def _over(self, unwatched: list[Rank]) -> bool:
        for rank in unwatched:
            self._ready(rank)
        return not self._running

    def _ready(self, rank: Rank) -> None:
        if self._collect(rank) and rank.blame and self._outcome is None:
            # A rank that asked for an abort may have exited since, and one that died a moment ago may have
            # taken others with it: look at all of them before one is named.
            self._loop.run_posted()
            for other in self._ranks:
                self._collect(other)
            if self._outcome is None:
                culprit = max(self._ranks, key=lambda each: each.blame)
                code = 128 + culprit.signum if culprit.signum else culprit.code or 1
                self._end(code, culprit.end() + self._others(culprit))

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
        self._running -= 1
        for stream in rank.streams:
            stream.finish()
        self._server.deregister_client(rank.proc)
        self._retire(rank)
        return True

    def _forget(self, rank: Rank) -> None:
        rank.alive = False
        if rank.pidfd >= 0:
            self._loop.unwatch(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = -1

    def _others(self, culprit: Rank) -> str:
        alive = sum([rank.alive for rank in self._ranks if rank is not culprit])
        if not alive:
            return ""
        return f"; {alive} other rank{'s were' if alive > 1 else ' was'} ended"

    def _aborted(self, op: ClientAborted) -> None:
        caller = self._ranks[op.proc.rank]
        named = set(op.targets)
        whole = not named or self.job.proc(RANK_WILDCARD) in named
        targets = [rank for rank in self._ranks if whole or rank.proc in named]
        reason = f"{caller} called abort with status {op.code}" + (f": {op.message}" if op.message else "")
        if all(rank in targets for rank in self._ranks if rank.alive):
            self._end(exit_code(op.code), reason + self._others(caller))
            return
        for rank in targets:
            rank.excused = True
        self._signal_all(signal.SIGTERM, targets)
        if self._partial is None:
            victims = listed([str(rank) for rank in targets])
            self._partial = Outcome(exit_code(op.code), f"{reason}; it ended {victims}")
        self._loop.later(self._grace, lambda: self._signal_all(signal.SIGKILL, targets))

    def _timed_out(self) -> None:
        if self._outcome is not None:
            return
        lines = [f"the job did not end within {self._timeout:g} s and was ended"]
        lines += pending_text(self._server.pending(), self._who)
        for stage, text in (
            (STARTED, "running without having initialized"),
            (CONNECTED, "initialized and not finalized"),
            (FINALIZED, "finalized and not ended"),
        ):
            ranks = [str(rank) for rank in self._ranks if rank.alive and rank.stage == stage]
            if ranks:
                lines.append(f"{text}: {listed(ranks)}")
        self._end(TIMED_OUT, "\n  ".join(lines))

    def _who(self, proc: Proc) -> str:
        if proc.nspace == self.job.nspace and proc.rank < len(self._ranks):
            return str(self._ranks[proc.rank])
        return str(proc)

    def _unread(self, error: OSError) -> None:
        if isinstance(error, BrokenPipeError):
            # Nobody reads our output any more (`pypmix run ... | head`): what SIGPIPE does to a single program.
            self._end(128 + signal.SIGPIPE, "")
        else:
            self._end(1, f"the ranks' output cannot be written: {error.strerror}")

    # Ending

    def _interrupted(self, signum: int) -> None:
        if signum in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT):
            self._signal_all(signum)
        elif signum == signal.SIGTSTP:
            self._signal_all(signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)
            self._signal_all(signal.SIGCONT)
        elif self._outcome is None:
            self._end(128 + signum, f"ended by {signal_text(signum)}", signum)
        elif signum == signal.SIGINT:
            self._impatient = True
            self._signal_all(signal.SIGKILL)

    def _end(self, code: int, reason: str, signum: int = signal.SIGTERM) -> None:
        """End the job, unless that is under way already: whatever was first is the outcome."""
        if self._outcome is not None:
            return
        self._outcome = Outcome(code, reason)
        self._signal_all(signum)
        if signum != signal.SIGTERM:
            self._loop.later(_INTERRUPT_GRACE, lambda: self._signal_all(signal.SIGTERM))
        self._loop.later(self._grace, lambda: self._signal_all(signal.SIGKILL))

    def _signal_all(self, signum: int, ranks: Sequence[Rank] | None = None) -> None:
        for rank in self._ranks if ranks is None else ranks:
            if rank.alive:
                launch.signal_group(rank.pid, signum)
                if signum in (signal.SIGTERM, signal.SIGINT):
                    # A stopped process does not see it before it goes on.
                    launch.signal_group(rank.pid, signal.SIGCONT)

    def _sweep(self) -> None:
        """End what the ranks started and left behind."""
        groups = {rank.pid for rank in self._ranks if rank.pid}
        for group in groups:
            os.waitpid(group, 0)
        if self._left(groups, signal.SIGTERM):
            patience = self._patience()
            # Nobody tells of the end of a process group, so it is asked for.
            self._loop.run(lambda: not self._left(groups, 0 if patience() else signal.SIGKILL), every=_POLL)

    def _left(self, groups: set[int], signum: int) -> bool:
        """Send a signal to what is left behind, 0 for none; tell whether there is anything."""
        groups -= {group for group in groups if not launch.signal_group(group, signum)}
        strays: set[int] = set()
        if self._own_process and self._guard is not None:
            strays = orphans.collect({self._guard.pid})
            for pid in strays:
                # The end of one makes orphans of its children, so there are new ones to ask all the time.
                os.kill(pid, signum if pid in self._asked else signal.SIGTERM)
            self._asked |= strays
        return bool(groups or strays)

    def _patience(self) -> Callable[[], bool]:
        """Return what tells whether the grace that starts now still lasts; a second SIGINT ends it."""
        end = time.monotonic() + self._grace
        return lambda: not self._impatient and time.monotonic() < end

    def _hand_over(self) -> None:
        """Pass on the last of the output; for a job that was ended, only as long as the grace."""
        for rank in self._ranks:
            for stream in rank.streams:
                stream.finish()
                stream.close()
        patience = self._patience()
        ended = self._outcome is not None
        self._loop.run(
            lambda: (
                all(sink.empty for sink in self._sinks.values()) or not (patience() if ended else not self._impatient)
            ),
            every=_POLL if ended else None,
        )

    def _close(self) -> None:
        for rank in self._ranks:
            if rank.alive:
                # Only an error of our own leads here.
                launch.signal_group(rank.pid, signal.SIGKILL)
                os.waitpid(rank.pid, 0)
                self._forget(rank)
            for stream in rank.streams:
                stream.close()
        for sink in self._sinks.values():
            sink.abandon()
        self._server.close()
        remove(self.tmpdir)
        if self._guard is not None:
            self._guard.dismiss()


def _readable_here(fd: int) -> bool:
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
