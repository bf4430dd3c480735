"""The ranks of a launch that are processes of this machine: started, fed, read, signalled, and swept.

The kernel reports the end of a rank by its pidfd; without pidfds it is polled. The rank stays a zombie until its job is
finished, so that neither its pid nor its process group is given to another process. When the last rank of a launch has
ended, the processes that its ranks left in their process groups get SIGTERM, and SIGKILL after the grace. The kernel
does not report that a process group is empty, so this is polled.
"""

from __future__ import annotations

import os
import time

from pypmix.host import launch, orphans
from pypmix.host.loop import READ, vital
from pypmix.host.machine import POLL
from pypmix.host.output import channel
from pypmix.host.running import NUMBERS, Share
from pypmix.host.signals import signal
from pypmix.standard import attrs, keys
from pypmix.standard.logtext import get_logger
from pypmix.standard.types import RANK_WILDCARD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from pypmix.host.job import Application, Slot
    from pypmix.host.nodes import LocalNode
    from pypmix.host.output import Sink
    from pypmix.host.rank import Rank
    from pypmix.host.running import Launch

PREPARE_SECONDS = 0.01
"""Seconds after which the server prepares for clients: a rank that still runs may soon be one."""

UNKNOWN = 255
"""The exit code of a process that other code of this program has collected."""

PACE = 0.25
"""Seconds to wait for a rank that was signalled to end, if the server takes losses of clients one at a time."""

MOST_PACED = 1.5
"""Seconds after which the remaining ranks are ended at once."""

_log = get_logger("pypmix.host")


class LocalShare(Share):
    """The ranks of a launch on a node of this process.

    Args:
        starter: The launch.
        node: The node.
        ranks: Its ranks there.
    """

    node: LocalNode

    def __init__(self, starter: Launch, node: LocalNode, ranks: list[Rank]) -> None:
        super().__init__(starter, node, ranks)
        self._machine = node.machine
        self._is_swept = False
        self._patience: Callable[[], bool] | None = None
        self._is_given_up = False

    # Starting

    def start(self, apps: Sequence[Application], programs: Sequence[str]) -> None:
        for _ in self.starting(apps, programs):
            pass
        self.launch.share_started()
        self.host.loop.later(PREPARE_SECONDS, self.node.server.session.prepare)

    def starting(self, apps: Sequence[Application], programs: Sequence[str]) -> Generator[Rank, None, None]:
        if self.launch.is_failed:
            return
        slots = self.launch.job.job.slots()
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            # All at once, as each call waits for a server's thread.
            procs = [rank.proc for rank in self.ranks]
            self.node.server.session.register_clients(procs, os.geteuid(), os.getegid())
            if self.launch.job.job.restarts:
                for rank in self.ranks:
                    life = attrs.REINCARNATION(rank.life)
                    self.node.server.session.store_internal(rank.proc, life.key, life.value)
            for rank in self.ranks:
                yield rank
                slot = slots[rank.proc.rank]
                try:
                    self._start_rank(rank, slot, apps[slot.app], programs[slot.app], null)
                except OSError as error:
                    self._fail(rank, error, programs[slot.app])
                    break
        finally:
            os.close(null)
        if any(rank.alive and rank.pidfd < 0 for rank in self.ranks):
            self._watch_without_pidfds()

    def _fail(self, rank: Rank, error: OSError, program: str) -> None:
        reason = f"cannot start {rank.label}: {launch.explain(error, program)}"
        of_program = error.filename in (None, program)
        if of_program and isinstance(error, FileNotFoundError):
            error.strerror = launch.NO_PROGRAM
        self.launch.failed(error, reason, of_program)

    def _start_rank(self, rank: Rank, slot: Slot, app: Application, program: str, null: int) -> None:
        node, machine, job = self.node, self._machine, self.launch.job
        folder = f"{node.folder(job.number)}/{rank.proc.rank}"
        try:
            os.mkdir(folder, 0o700)
        except FileNotFoundError:
            os.makedirs(folder, 0o700, exist_ok=True)
        except FileExistsError:
            # A rank that is started again has one.
            pass
        place, number = job.job.nodes[slot.node], rank.proc.rank
        variables = dict(place.variables_of(number))
        env = {**app.environment(machine.env), **variables, **node.server.client_env(rank.proc)}
        if app.wdir:
            env["PWD"] = app.wdir
        rank.pmi, variables = machine.pmi.register(self.host.loop, rank.proc, job.job.size, env)
        env |= variables
        argv = app.argv
        if self.launch.terms.indexed:
            argv = (f"{argv[0]}-{rank.proc.rank}", *argv[1:])
        ours: list[int] = []
        try:
            stdin = self._input(rank, null, ours)
            stdout, stderr = self._outputs(rank, ours)
            files = (stdin, stdout, stderr)
            if self._is_debugged(rank):
                self._start_debugger(rank, app, env, files, place.cpus_of(number))
            elif number in job.job.stopped_ranks(keys.DEBUG_STOP_ON_EXEC):
                from pypmix.host.stopping import start_stopped

                rank.pid = start_stopped(program, argv, env, files, app.wdir, place.cpus_of(number))
            else:
                rank.forked, rank.pid = machine.start_process(app, program, argv, env, files, place.cpus_of(number))
            machine.guard(rank.pid)
        finally:
            for fd in ours:
                os.close(fd)
        rank.alive = True
        self.launch.count(node, 1)
        rank.pidfd = launch.open_pidfd(rank.pid)
        if rank.pidfd >= 0:
            self.host.loop.watch(rank.pidfd, READ, lambda: self._look(rank))

    def _is_debugged(self, rank: Rank) -> bool:
        debugger = self.launch.job.job.debugger
        return bool(debugger) and int(debugger[0]) == rank.proc.rank

    def _has_terminal(self, rank: Rank) -> bool:
        """Return True if a rank has this process's input and output to itself, as its debugger does on this node."""
        return self._is_debugged(rank) and not self.launch.terms.forwarded

    def _start_debugger(
        self, rank: Rank, app: Application, env: dict[str, str], files: tuple[int, int, int], cpus: str
    ) -> None:
        """Start a rank under its debugger, which gets the terminal if it is on this node."""
        words = self.launch.job.job.debugger[1:]
        program = launch.find_program(words[0], env, app.wdir)
        here = self._has_terminal(rank)
        with launch.Bound(0, cpus):
            rank.pid = launch.spawn(program, words, env, files, app.wdir, foreground=here)
        if here:
            launch.give_terminal(rank.pid)

    def _input(self, rank: Rank, null: int, ours: list[int]) -> int:
        """Return the descriptor that a rank reads; append the descriptors to close here to `ours`."""
        terms = self.launch.terms
        if self._has_terminal(rank):
            return 0
        if terms.stdin not in (RANK_WILDCARD, rank.proc.rank):
            return null
        if not terms.pushed and not terms.forwarded and (terms.stdin != RANK_WILDCARD or self.launch.job.job.size == 1):
            return 0 if readable_here(0) else null
        from pypmix.host.feeding import Input

        reader, writer = os.pipe2(os.O_CLOEXEC)
        ours.append(reader)
        os.set_blocking(writer, False)
        rank.input = Input(self.host.loop, writer)
        return reader

    def _outputs(self, rank: Rank, ours: list[int]) -> tuple[int, int]:
        """Return the descriptors that a rank writes to; append the descriptors to close here to `ours`."""
        terms, job = self.launch.terms, self.launch.job
        if self._has_terminal(rank):
            return 1, 2
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

        self.launch.connect_outputs(rank, read)
        return found[0], found[-1]

    # Ending

    @vital
    def _look(self, rank: Rank) -> None:
        """Check if a rank has ended, and report its end."""
        if self._read_exit(rank):
            self.launch.job.ranks_ended((rank,))

    def collect(self) -> None:
        for rank in self.ranks:
            if self._read_exit(rank):
                self.launch.job.record_end(rank)

    @vital
    def _watch_without_pidfds(self) -> None:
        """Poll the ranks without a pidfd for their end."""
        for rank in self.ranks:
            if rank.pidfd < 0:
                self._look(rank)
        if any(rank.alive for rank in self.ranks):
            self.host.loop.later(POLL, self._watch_without_pidfds)

    def _read_exit(self, rank: Rank) -> bool:
        """Read the end of a rank; it keeps its pid until the job is finished, so that its group stays unique."""
        if not rank.alive:
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
        if self._has_terminal(rank):
            launch.give_terminal(os.getpgrp())
        self._unwatch(rank)
        return True

    def _unwatch(self, rank: Rank) -> None:
        if rank.pidfd >= 0:
            self.host.loop.unwatch(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = -1

    def signal(self, ranks: Sequence[Rank], signum: int, handled: bool = False) -> None:
        """Send a signal to the process groups of ranks.

        If the server takes losses of clients one at a time only, each rank gets a moment to end before the next one.
        """
        ending = signum in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)
        end = time.monotonic() + MOST_PACED
        for rank in ranks:
            if handled and not launch.handles(rank.pid, signum):
                continue
            paced = ending and time.monotonic() < end and self.node.server.session.settle()
            launch.signal_group(rank.pid, signum)
            if signum in (signal.SIGTERM, signal.SIGINT):
                # A stopped process does not handle it before it continues.
                launch.signal_group(rank.pid, signal.SIGCONT)
            if paced:
                launch.wait_for_end(rank.pid, PACE)

    @vital
    def give_up(self) -> None:
        """Stop waiting for processes that were killed and do not end."""
        stuck = [rank for rank in self.ranks if rank.alive]
        self._is_given_up = bool(stuck or self.groups)
        for rank in stuck:
            self._unwatch(rank)
            rank.signum, rank.fate = signal.SIGKILL, "was killed and does not end"
            _log.error("%s was killed and does not end: it is left behind", rank)
        if stuck:
            self.launch.job.ranks_ended(stuck)

    def end_group(self, rank: Rank) -> None:
        if rank.pid:
            launch.signal_group(rank.pid, signal.SIGKILL)

    @vital
    def sweep(self) -> None:
        """End the processes that the ranks, all ended, left behind."""
        if not self._is_swept:
            self._is_swept = True
            self.groups = {rank.pid for rank in self.ranks if rank.pid and rank.over}
            for parent in {rank.forked for rank in self.ranks if rank.forked is not None}:
                parent.collect([rank.pid for rank in self.ranks if rank.over and rank.forked is parent])
            signum: int = signal.SIGKILL if self._is_given_up else signal.SIGTERM
        else:
            assert self._patience is not None
            signum = 0 if self._patience() and not self._is_given_up else signal.SIGKILL
        for group in self.groups:
            orphans.reap(group)
        empty = {group for group in self.groups if not launch.signal_group(group, signum)}
        self.groups -= empty
        self._machine.release_groups(empty)
        if self._is_given_up and self.groups:
            _log.error("%s was killed and does not end: it is left behind", self.launch.wait_text())
            self.groups = set()
        if self.groups:
            if self._patience is None:
                self._patience = self.host.patience()
            # The kernel does not report the end of a process group.
            self.host.loop.later(POLL, self.sweep)
            return
        self.launch.share_over(self)

    def close(self) -> None:
        for rank in self.ranks:
            if rank.alive:
                self.signal([rank], signal.SIGKILL)
                if rank.forked is not None:
                    rank.forked.collect([rank.pid])
                else:
                    os.waitpid(rank.pid, 0)
                self._unwatch(rank)
                rank.alive = False


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
