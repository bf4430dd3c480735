"""The processes of a job that a host has started: from their start to the last of what they leave behind."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from functools import partial

from pypmix.engine.faults import fault
from pypmix.host import launch, orphans
from pypmix.host.folders import remove_job
from pypmix.host.output import Stream, channel
from pypmix.requests import limit
from pypmix.standard.errors import NotInitialized, OperationTimeout
from pypmix.standard.logtext import get_logger
from pypmix.standard.ops import Output
from pypmix.standard.ops.forwarding import STDERR, STDOUT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from pypmix.host.callbacks.jobs import Jobs
    from pypmix.host.job import Application, Job
    from pypmix.standard.types import Proc

log = get_logger("pypmix.host")

UNKNOWN = 255
"""The exit code of a process whose own is not known."""

REAP = 5.0
"""Seconds that the system has to end what was killed."""


class Rank:
    """One process.

    Attributes:
        proc: Its name to PMIx.
        pid: Its pid, which is its process group too; taken until the job is over, so that neither has another.
        code: What it exited with, or the negative number of the signal that ended it; None while it runs.
    """

    __slots__ = ("code", "pid", "pidfd", "proc", "streams")

    def __init__(self, proc: Proc) -> None:
        self.proc = proc
        self.pid = 0
        self.pidfd = -1
        self.code: int | None = None
        self.streams: list[Stream] = []

    @property
    def alive(self) -> bool:
        """Whether it has been started and has not ended."""
        return self.pid > 0 and self.code is None


class Launch:
    """The processes of a job on this node; all of it belongs to the host's loop.

    Args:
        host: The host.
        job: The job.
        ranks: Which ranks to start.
        argv: What they run instead of the job's applications; None for those.
        env: What their environment has on top of this process's.
        wdir: Where they run; empty for the application's own directory.
        shown: Whether their output is passed on to that of this process.
        told: Whether somebody waits for the job's end.
    """

    def __init__(
        self,
        host: Jobs,
        job: Job,
        ranks: tuple[int, ...],
        argv: tuple[str, ...] | None,
        env: dict[str, str],
        wdir: str,
        shown: bool,
        told: bool,
    ) -> None:
        self.host = host
        self.job = job
        self.told = told
        self.status: int | None = None
        self.ranks = [Rank(job.proc(rank)) for rank in ranks]
        self._argv = argv
        self._env = env
        self._wdir = wdir
        self._shown = shown
        self._over = asyncio.Event()
        self._change: asyncio.Future[None] = host.loop.create_future()
        self._closing: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Start them all, or none.

        Raises:
            OSError: A program or a directory does not exist, or the system lacks what the job needs.
        """
        self.host.launched(self)
        try:
            await self._begin()
        except BaseException as error:
            self.host.begun(self, error)
            await self.close()
            raise
        self.host.begun(self, None)

    async def _begin(self) -> None:
        slots = self.job.slots()
        programs = {slot.app: self._program(self.job.apps[slot.app]) for slot in slots}
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        try:
            for rank in self.ranks:
                # Those that run already may ask something.
                await asyncio.sleep(0)
                if self._closing is not None:
                    raise NotInitialized("the host was closed while processes were started", operation="start")
                slot = slots[rank.proc.rank]
                self._start(rank, self.job.apps[slot.app], programs[slot.app], null)
        finally:
            os.close(null)
        if not self.ranks:
            self._over.set()

    def _program(self, app: Application) -> str:
        name = self._argv[0] if self._argv else app.program or app.argv[0]
        wdir = self._wdir or app.wdir
        if wdir and not os.path.isdir(wdir):
            raise FileNotFoundError(2, "no such working directory", wdir)
        return launch.find_program(name, {**app.environment(self.host.env), **self._env}, wdir)

    def _start(self, rank: Rank, app: Application, program: str, null: int) -> None:
        host, loop = self.host, self.host.loop
        if self.job.tmpdir:
            os.makedirs(self.job.procdir(rank.proc.rank), 0o700, exist_ok=True)
        host.server.register_client(rank.proc)
        env = {**app.environment(host.env), **self._env, **host.server.client_env(rank.proc)}
        wdir = self._wdir or app.wdir
        if wdir:
            env["PWD"] = wdir
        writers: list[int] = []
        try:
            for kind, number in ((STDOUT, 1), (STDERR, 2)):
                sink = host.sink(number) if self._shown else None
                reader, writer = channel(number if sink is not None else -1)
                writers.append(writer)
                stream = Stream(host.watching, reader, sink)
                stream.tap = partial(self._deliver, rank.proc, kind)
                rank.streams.append(stream)
            rank.pid = launch.spawn(program, self._argv or app.argv, env, (null, *writers), wdir)  # type: ignore[arg-type]
            host.guard_group(rank.pid)
        finally:
            for fd in writers:
                os.close(fd)
        rank.pidfd = launch.open_pidfd(rank.pid)
        if rank.pidfd >= 0:
            loop.add_reader(rank.pidfd, self._ready, rank)
        else:
            threading.Thread(target=self._await, args=(rank,), name=f"pypmix-wait-{rank.pid}", daemon=True).start()

    def _deliver(self, proc: Proc, kind: int, data: bytes) -> None:
        try:
            self.host.server.deliver_output(Output(proc, kind, data))
        except NotInitialized:
            return

    def _await(self, rank: Rank) -> None:
        """Wait for the end of a process where the kernel (before 5.3) cannot tell of it otherwise."""
        try:
            os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOWAIT)
        except ChildProcessError:
            pass
        try:
            self.host.loop.call_soon_threadsafe(self._ready, rank)
        except RuntimeError:
            return

    def _ready(self, rank: Rank) -> None:
        """A process has ended; it stays a zombie, so that its pid and its process group have no other."""
        if rank.code is not None:
            return
        try:
            end = os.waitid(os.P_PID, rank.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            # This process ignores SIGCHLD, or somebody else here collects its children.
            rank.code = UNKNOWN
            log.warning("how %s (pid %d) ended is not known: somebody else has collected it", rank.proc, rank.pid)
        else:
            if end is None:
                return
            rank.code = end.si_status if end.si_code == os.CLD_EXITED else -end.si_status
        if rank.pidfd >= 0:
            self.host.loop.remove_reader(rank.pidfd)
            os.close(rank.pidfd)
            rank.pidfd = -1
        try:
            for stream in rank.streams:
                stream.finish()
            self.host.rank_over(rank.proc, rank.code)
        except Exception as error:
            # Whoever waits for the process has to hear of its end all the same.
            fault("to take in the end of a process", error)
        change, self._change = self._change, self.host.loop.create_future()
        change.set_result(None)
        if not any(other.alive for other in self.ranks):
            self._over.set()

    async def wait(self, timeout: float | None = None) -> dict[int, int]:
        """Wait for the end of all of them; see `Processes.wait`."""
        try:
            await asyncio.wait_for(self._over.wait(), limit(timeout))
        except TimeoutError:
            running = [rank.proc for rank in self.ranks if rank.code is None]
            detail = f"{len(running)} of {len(self.ranks)} processes run after {timeout:g} s"
            raise OperationTimeout(detail, operation="wait", missing=running) from None
        return self.codes()

    def codes(self) -> dict[int, int]:
        """Return the exit codes of those that have ended, by rank."""
        return {rank.proc.rank: rank.code for rank in self.ranks if rank.code is not None}

    def send(self, signum: int, ranks: Iterable[Rank] | None = None) -> None:
        """Send a signal to processes, all by default, and to what they have started."""
        for rank in self.ranks if ranks is None else ranks:
            if rank.alive:
                launch.signal_group(rank.pid, signum)
                if signum in (signal.SIGTERM, signal.SIGINT):
                    # A stopped process does not see it before it goes on.
                    launch.signal_group(rank.pid, signal.SIGCONT)

    async def end_ranks(self, ranks: list[Rank], status: int | None = None) -> None:
        """End processes: SIGTERM, and SIGKILL after the grace; returns when they have ended."""
        if status is not None and self.status is None:
            self.status = status
            self.host.killed(self, status)
        for signum, patience in ((signal.SIGTERM, self.host.grace), (signal.SIGKILL, REAP)):
            self.send(signum, ranks)
            deadline = self.host.loop.time() + patience
            while any(rank.alive for rank in ranks) and (left := deadline - self.host.loop.time()) > 0:
                await asyncio.wait([self._change], timeout=left)
        for rank in ranks:
            if rank.alive:
                log.error("%s (pid %d) does not end although it was killed", rank.proc, rank.pid)

    async def close(self) -> None:
        """End what is left, collect it, and deregister the job; all of it is done even if the caller is cancelled."""
        if self._closing is None:
            self._closing = self.host.loop.create_task(self._close())
        cancelled = None
        while not self._closing.done():
            try:
                await asyncio.shield(self._closing)
            except asyncio.CancelledError as error:
                cancelled = error
        if cancelled is not None:
            raise cancelled
        self._closing.result()

    async def _close(self) -> None:
        started = [rank for rank in self.ranks if rank.pid]
        await self.end_ranks([rank for rank in started if rank.alive])
        for rank in started:
            # What it has started and left behind in its group; the zombie keeps the number for us.
            launch.signal_group(rank.pid, signal.SIGKILL)
            if not rank.alive:
                # It is a child in its own group, as are those that this process has adopted.
                orphans.reap(rank.pid)
            self.host.forget_group(rank.pid)
        for rank in self.ranks:
            for stream in rank.streams:
                stream.finish()
                stream.close()
        await self.host.watching.drained(self.host.grace)
        if self.job.tmpdir:
            remove_job(self.job.tmpdir)
        self.host.launch_over(self)


class Processes:
    """The processes of a job that a host has started, for code in the host's loop; see `Host.start`."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch

    @property
    def job(self) -> Job:
        """The job."""
        return self._launch.job

    @property
    def nspace(self) -> str:
        """The job's namespace."""
        return self._launch.job.nspace

    @property
    def pids(self) -> dict[int, int]:
        """The pid of each process, by rank."""
        return {rank.proc.rank: rank.pid for rank in self._launch.ranks}

    @property
    def codes(self) -> dict[int, int]:
        """The exit codes of those that have ended, by rank; the negative number of the signal that ended one."""
        return self._launch.codes()

    @property
    def status(self) -> int | None:
        """The status that `Host.kill` was given for the job; None where it was not."""
        return self._launch.status

    def signal(self, signum: int) -> None:
        """Send a signal to all that run, and to what they have started; from any thread."""
        self._launch.host.loop.call_soon_threadsafe(self._launch.send, signum)

    async def wait(self, timeout: float | None = None) -> dict[int, int]:
        """Wait until all have ended.

        Args:
            timeout: Seconds; None for ever.

        Returns:
            The exit code of each by rank; the negative number of the signal that ended one.

        Raises:
            OperationTimeout: Some run after that time; they are its `missing`.
        """
        return await self._launch.host.hop(self._launch.wait(timeout))


class BlockingProcesses:
    """The same for code on other threads than the host's loop; see `Processes`."""

    def __init__(self, launch: Launch) -> None:
        self._launch = launch
        self._processes = Processes(launch)
        self.job = launch.job
        self.nspace = launch.job.nspace

    @property
    def pids(self) -> dict[int, int]:
        """The pid of each process, by rank."""
        return self._processes.pids

    @property
    def codes(self) -> dict[int, int]:
        """The exit codes of those that have ended, by rank; the negative number of the signal that ended one."""
        return self._processes.codes

    @property
    def status(self) -> int | None:
        """The status that `Host.kill` was given for the job; None where it was not."""
        return self._processes.status

    def signal(self, signum: int) -> None:
        """Send a signal to all that run, and to what they have started."""
        self._processes.signal(signum)

    def wait(self, timeout: float | None = None) -> dict[int, int]:
        """Wait until all have ended; see `Processes.wait`."""
        return self._launch.host.run(self._launch.wait(timeout))


class Start:
    """What `Host.start` returns: processes that run as long as the body of `async with`, or of `with`.

    Args:
        host: The host.
        make: Makes the launch, in the host's loop.
    """

    def __init__(self, host: Jobs, make: Callable[[], Launch]) -> None:
        self._host = host
        self._make = make
        self._launch: Launch | None = None

    async def _begin(self) -> Launch:
        if self._launch is not None:
            raise RuntimeError("these processes have been started before; call start() again")
        self._launch = found = self._make()
        await found.open()
        return found

    async def __aenter__(self) -> Processes:
        return Processes(await self._host.hop(self._begin()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._launch is not None:
            await self._host.hop(self._launch.close())

    def __enter__(self) -> BlockingProcesses:
        return BlockingProcesses(self._host.run(self._begin()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._launch is not None:
            self._host.run(self._launch.close())
