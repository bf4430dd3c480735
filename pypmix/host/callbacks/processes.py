"""The processes of a job that a host has started, for the host's author to wait for, signal and end."""

from __future__ import annotations

import asyncio
import signal

from pypmix.arguments import limit
from pypmix.host.outcome import exit_code
from pypmix.standard.errors import NotInitialized, OperationTimeout
from pypmix.standard.logtext import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Any, TypeVar

    from pypmix.host.callbacks.watching import Watching
    from pypmix.host.job import Application, JobLayout
    from pypmix.host.rank import Rank
    from pypmix.host.running import Launch

    T = TypeVar("T")

log = get_logger("pypmix.host")

REAP = 5.0
"""Seconds that the system has to end killed processes."""


def check_signal(signum: int) -> None:
    if signum not in signal.valid_signals():
        raise ValueError(f"{signum!r} is not a signal")


async def to_the_end(task: asyncio.Task[None]) -> None:
    """Wait for the end of a task; if the caller is cancelled, raise `CancelledError` afterwards."""
    cancelled = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
    task.result()


class Home:
    """A host, as the objects in its loop see it.

    Attributes:
        grace: Seconds that processes have between SIGTERM and SIGKILL.
    """

    grace: float

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the host's handlers."""
        raise NotImplementedError

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the host's loop and block until it has ended."""
        raise NotImplementedError


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the loop that runs on this thread, if there is one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


async def run_in_loop(host: Home, coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in the host's loop, from any loop."""
    try:
        loop = host.loop
    except NotInitialized:
        coroutine.close()
        raise
    if running_loop() is loop:
        return await coroutine
    return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(coroutine, loop))


class Launched:
    """A launch, for code in the host's loop to await; use it only in that loop.

    Args:
        host: The host.
        watching: The host's loop, as the manager of its jobs uses it.
        launch: The launch.
        apps: The applications of the job, as this launch runs them.
    """

    def __init__(self, host: Home, watching: Watching, launch: Launch, apps: tuple[Application, ...]) -> None:
        self.host = host
        self._watching = watching
        self.running = launch.job
        self.job = launch.job.job
        self.ranks = launch.ranks
        self.status: int | None = None
        self._launch = launch
        self._apps = apps
        self._change: asyncio.Future[None] = host.loop.create_future()
        self._closing: asyncio.Task[None] | None = None
        launch.changed = self._changed

    def _changed(self) -> None:
        change, self._change = self._change, self._change.get_loop().create_future()
        change.set_result(None)

    @property
    def is_over(self) -> bool:
        """Whether all processes have ended, with their output."""
        return self._launch.over

    async def _until(self, condition: Callable[[], bool], timeout: float | None = None) -> bool:
        """Wait until a condition is true; return False if it is not true in time."""
        loop = self.host.loop
        deadline = None if timeout is None else loop.time() + timeout
        while not condition():
            left = None if deadline is None else deadline - loop.time()
            if left is not None and left <= 0:
                return False
            await asyncio.wait([self._change], timeout=left)
        return True

    async def open(self) -> None:
        """Start all processes, or none.

        Raises:
            OSError: A program or a directory does not exist, or the system lacks what the job needs.
        """
        try:
            await self._begin()
        except BaseException as error:
            if isinstance(error, OSError):
                self._launch.failed(error, str(error), of_program=True)
            await self.close()
            raise

    async def _begin(self) -> None:
        used = {slot.app for slot in self.job.slots()}
        programs = [self.running.host.site.program(app) if n in used else "" for n, app in enumerate(self._apps)]
        starting = self._launch.starting(self._apps, programs)
        try:
            for _ in starting:
                # Processes that run already may send requests.
                await asyncio.sleep(0)
                if self._closing is not None:
                    raise NotInitialized("the host was closed while processes were started", operation="start")
        finally:
            starting.close()
        if self.running.unlaunched is not None:
            raise self.running.unlaunched

    def alive(self) -> list[Rank]:
        """Return the ranks that run."""
        return [rank for rank in self.ranks if rank.alive]

    async def wait(self, timeout: float | None = None) -> dict[int, int]:
        """Wait for the end of all processes; see `Processes.wait`."""
        timeout = limit(timeout)
        if not await self._until(lambda: not self.alive(), timeout):
            alive = [rank.proc for rank in self.alive()]
            detail = f"{len(alive)} of {len(self.ranks)} processes run after {timeout:g} s"
            raise OperationTimeout(detail, operation="wait", missing=alive)
        return self.codes()

    def codes(self) -> dict[int, int]:
        """Return the exit codes of the processes that have ended, by rank."""
        return {rank.proc.rank: -rank.signum if rank.signum else rank.code or 0 for rank in self.ranks if rank.over}

    def send(self, signum: int, ranks: list[Rank] | None = None) -> None:
        """Send a signal to processes, all by default, and to the processes that they have started."""
        self.running.send(signum, self.ranks if ranks is None else ranks)

    async def end_ranks(self, ranks: list[Rank], status: int | None = None) -> None:
        """End processes by SIGTERM, and by SIGKILL after the grace; return when they have ended."""
        if status is not None and self.status is None:
            self.status = status
            self.running.decide(exit_code(status) if status else 0, f"the host has ended it with status {status}")
        for signum, patience in ((signal.SIGTERM, self.host.grace), (signal.SIGKILL, REAP)):
            self.send(signum, ranks)
            if await self._until(lambda: not any(rank.alive for rank in ranks), patience):
                return
        for rank in ranks:
            if rank.alive:
                log.error("%s does not end although it was killed", rank)

    async def close(self) -> None:
        """End the processes that are left; complete this even if the caller is cancelled."""
        if self._closing is None:
            self._closing = self.host.loop.create_task(self._close())
        await to_the_end(self._closing)

    async def _close(self) -> None:
        await self.end_ranks(self.alive())
        self._launch.release()
        if self.alive():
            self._launch.give_up()
        await self._until(lambda: self._launch.over, self.host.grace + REAP)
        await self._watching.drained(self.host.grace)


class Running:
    """Processes that a host has started: their pids and exit codes, and signals for them."""

    def __init__(self, launch: Launched) -> None:
        self._launch = launch

    @property
    def job(self) -> JobLayout:
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
        """The exit codes of ended processes, by rank; the negative signal number if a signal ended the process."""
        return self._launch.codes()

    @property
    def status(self) -> int | None:
        """The status that `Host.kill` was given for the job; None if it was not."""
        return self._launch.status

    def signal(self, signum: int) -> None:
        """Send a signal to all running processes, and to the processes that they have started; from any thread.

        Raises:
            ValueError: This is not a signal.

        Example:
            >>> with host.start(host.job("job2", np=2), ["sleep", "60"]) as processes:
            ...     processes.signal(15)
            ...     codes = processes.wait(timeout=60)
        """
        check_signal(signum)
        self._launch.host.loop.call_soon_threadsafe(self._launch.send, signum)


class Processes(Running):
    """The processes of a job that a host has started, for code in the host's loop; see `Host.start`.

    Example:
        >>> async with Host() as host:
        ...     job = host.job("job1", np=2, argv=["true"])
        ...     async with host.start(job) as processes:
        ...         print(processes.nspace, processes.pids, await processes.wait(timeout=60))
    """

    async def wait(self, timeout: float | None = None) -> dict[int, int]:
        """Wait until all processes have ended.

        Args:
            timeout: Seconds; None for ever.

        Returns:
            The exit codes, by rank; the negative signal number if a signal ended the process.

        Raises:
            OperationTimeout: Some processes still run after that time; they are its `missing`.

        Example:
            >>> async with Host() as host:
            ...     async with host.start(host.job("job1", np=2, argv=["true"])) as processes:
            ...         codes = await processes.wait(timeout=60)
        """
        return await run_in_loop(self._launch.host, self._launch.wait(timeout))


class BlockingProcesses(Running):
    """`Processes`, for code on other threads than the host's loop.

    Example:
        >>> with host.start(host.job("job2", np=2), ["true"]) as processes:
        ...     print(processes.nspace, processes.pids)
        ...     codes = processes.wait(timeout=60)
    """

    def wait(self, timeout: float | None = None) -> dict[int, int]:
        """Wait until all processes have ended; see `Processes.wait`.

        Example:
            >>> with host.start(host.job("job2", np=2), ["true"]) as processes:
            ...     codes = processes.wait(timeout=60)
        """
        return self._launch.host.run(self._launch.wait(timeout))


class Start:
    """Processes that run as long as the body of `async with`, or of `with`; returned by `Host.start`.

    Args:
        host: The host.
        make: Creates the launch, in the host's loop.
    """

    def __init__(self, host: Home, make: Callable[[], Launched]) -> None:
        self._host = host
        self._make = make
        self._launch: Launched | None = None

    async def _begin(self) -> Launched:
        if self._launch is not None:
            raise RuntimeError("these processes have been started before; call start() again")
        self._launch = found = self._make()
        await found.open()
        return found

    async def __aenter__(self) -> Processes:
        return Processes(await run_in_loop(self._host, self._begin()))

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._launch is not None:
            await run_in_loop(self._host, self._launch.close())

    def __enter__(self) -> BlockingProcesses:
        return BlockingProcesses(self._host.run(self._begin()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._launch is not None:
            self._host.run(self._launch.close())
