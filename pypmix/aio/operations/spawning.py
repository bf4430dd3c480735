"""Jobs that a client starts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pypmix.aio.mailbox import EndOfStream, Mailbox
from pypmix.aio.operations.base import Asks
from pypmix.apps import app_tuple
from pypmix.arguments import TRUE, flag, limit, seconds
from pypmix.job import read
from pypmix.spawned import ChildJob, ended_job
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, NotInitialized, NotSupported, OperationTimeout, PMIxError
from pypmix.standard.ops import JobControl, RegisterEventHandler, Spawn
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value, check_integer
from pypmix.standard.values import infos

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.aio.waits import Port
    from pypmix.apps import Apps, Word
    from pypmix.arguments import Infos
    from pypmix.engine.base import Delivery


MAX_KEPT = 1024
"""The number of ended jobs whose exit codes are remembered for later calls."""


class JobEnds:
    """Receives the ends of jobs, for one client.

    Attributes:
        over: Whether the session has ended.
    """

    def __init__(self, port: Port) -> None:
        self._port = port
        self._codes: dict[str, int] = {}
        self._waiting: list[tuple[str, Mailbox[int]]] = []
        self._following: list[tuple[str, Callable[[], None]]] = []
        self.over = False
        self._error: BaseException | None = None

    async def begin(self) -> None:
        self._port.attend()
        await self._port.run(RegisterEventHandler(self._put, (statuses.EVENT_JOB_END,), (), self._stopped))

    async def wait(self, nspace: str, timeout: float | None) -> int:
        box: Mailbox[int] = Mailbox(self._port, 1)
        entry = nspace, box
        self._waiting.append(entry)
        try:
            if nspace in self._codes:
                return self._codes[nspace]
            if self.over:
                box.end(self._error)
            return await box.get(timeout)
        finally:
            self._waiting.remove(entry)

    def is_finished(self, nspace: str) -> bool:
        """Return True if a job is known to have ended."""
        return nspace in self._codes

    def follow(self, nspace: str, function: Callable[[], None]) -> bool:
        """Call a function when a job ends; return True, and call nothing, if it has ended already."""
        self._following.append((nspace, function))
        return nspace in self._codes

    def leave(self, nspace: str, function: Callable[[], None]) -> None:
        """Do not call it."""
        if (nspace, function) in self._following:
            self._following.remove((nspace, function))

    def _put(self, delivery: Delivery) -> None:
        nspace, code = ended_job(delivery.notification.infos)
        self._codes[nspace] = code
        if len(self._codes) > MAX_KEPT:
            self._codes.pop(next(iter(self._codes)))
        for name, box in list(self._waiting):
            if name == nspace:
                box.put(code)
        for name, function in list(self._following):
            if name == nspace:
                function()
        delivery.done()

    def _stopped(self, error: BaseException | None) -> None:
        self._error = error
        self.over = True
        for _, box in list(self._waiting):
            box.end(error)


class SpawnedJob(ChildJob):
    """A job that `spawn` has started: a collection of its procs, which may be passed wherever procs are wanted.

    Attributes:
        ends: Receives its end; None where that is not known.

    Example:
        >>> job = await me.spawn(["./worker", "--fast"], n=4)
        >>> worker = job[0]
        >>> if await job.wait(timeout=600) != 0:
        ...     print(job.nspace, "failed")
    """

    __slots__ = ("_port", "ends")

    def __init__(self, port: Port, nspace: str, job_ends: JobEnds | None) -> None:
        super().__init__(port.session, nspace)
        self._port = port
        self.ends = job_ends

    async def wait(self, timeout: float | None = None) -> int:
        """Wait until the job has ended (`PMIX_EVENT_JOB_END`).

        Args:
            timeout: Seconds to wait; no limit by default.

        Returns:
            The job's exit code, which is that of the proc which ended it, 0 if all went well.

        Raises:
            OperationTimeout: It still runs.
            NotSupported: It was spawned with `notify=False`, or this server has no events.
            NotInitialized, LostConnection: The client is closed, or the server is gone.

        Example:
            >>> job = await me.spawn(["./worker"], n=4)
            >>> exit_code = await job.wait(timeout=600)
        """
        if self.ends is None:
            raise NotSupported(
                f"the end of {self.nspace} is not told to this process", operation="wait", hint="spawn with notify=True"
            )
        timeout = limit(timeout)
        try:
            return await self.ends.wait(self.nspace, timeout)
        except TimeoutError:
            raise OperationTimeout(
                f"{self.nspace} has not ended within {timeout:g} s", operation="wait", procs=self.procs
            ) from None
        except EndOfStream:
            raise NotInitialized("the client is closed", operation="wait") from None

    async def terminate(self) -> None:
        """`PMIx_Job_control`: ask the job to end (`PMIX_JOB_CTRL_TERMINATE`).

        Example:
            >>> job = await me.spawn(["./worker"], n=4)
            >>> await job.terminate()
        """
        await self._control(keys.JOB_CTRL_TERMINATE)

    async def kill(self) -> None:
        """`PMIx_Job_control`: kill the job at once (`PMIX_JOB_CTRL_KILL`).

        Example:
            >>> job = await me.spawn(["./worker"], n=4)
            >>> await job.kill()
        """
        await self._control(keys.JOB_CTRL_KILL)

    async def signal(self, number: int) -> None:
        """`PMIx_Job_control`: send a signal to all of its procs (`PMIX_JOB_CTRL_SIGNAL`).

        Example:
            >>> import signal
            >>> job = await me.spawn(["./worker"], n=4)
            >>> await job.signal(signal.SIGUSR1)
        """
        await self._control(keys.JOB_CTRL_SIGNAL, Value(codes.INT, int(number)))

    async def _control(self, key: str, value: Value = TRUE) -> None:
        op = JobControl((Proc(self.nspace, RANK_WILDCARD),), (Info(key, value),))
        if self.ends is not None and self.ends.is_finished(self.nspace):
            # PRRTE 3 signals the caller's job if it does not find the target.
            raise NotFound(f"{self.nspace} has ended", operation=op.name, procs=op.targets)
        await self._port.run(op)


class Spawning(Asks):
    """Spawn, and the facts that a spawned process knows about its spawn."""

    async def spawn(
        self,
        apps: Apps,
        *,
        n: int | None = None,
        env: Mapping[str, str] | None = None,
        cwd: Word | None = None,
        timeout: float | None = None,
        notify: bool = True,
        stdin: bool | int = False,
        info: Infos = None,
    ) -> SpawnedJob:
        """`PMIx_Spawn`: start a job of new processes.

        Args:
            apps: A command, as a list of words, or one or several `App`s, which `pypmix.app` makes.
            n: How many procs run the command; 1 by default.
            env: Variables to add to the environment that the host gives to all.
            cwd: Their working directory; the caller's by default.
            timeout: Seconds that starting them may take (`PMIX_SPAWN_TIMEOUT`).
            notify: Have the end of the job told to the caller (`PMIX_NOTIFY_COMPLETION`), so that `wait` works.
            stdin: Give them a standard input that `input` of the client writes to (`PMIX_FWD_STDIN`): True for the
                first proc, a rank for another one, `Rank.WILDCARD` for all (`PMIX_STDIN_TGT`).
            info: Further infos or a mapping, such as `attrs.MAPBY`; `attrs.FWD_STDOUT` and its like make this process
                print what the job writes.

        Returns:
            The job, with its job info; all of its procs have been started.

        Raises:
            PMIxError: The host could not start it: a program is missing, for one.
            NotSupported: The server's host starts no jobs.
            Unreachable: The caller is a singleton.
            OperationTimeout: It took longer than `timeout`.

        Example:
            >>> job = await me.spawn(["./worker", "--fast"], n=4)
            >>> print(job.nspace, "has", job.size, "processes")

        PMIx Standard: "Process Management", `PMIx_Spawn`.
        """
        directives = infos(info)
        if timeout is not None:
            directives += (Info(keys.SPAWN_TIMEOUT, seconds(timeout).value),)
        if notify and not any(item.key == keys.NOTIFY_COMPLETION for item in directives):
            directives += (flag(keys.NOTIFY_COMPLETION),)
        if stdin is not True and stdin is not False:
            rank = check_integer(stdin, "stdin, True, False or the rank that `input` writes to,")
            directives += (Info(keys.STDIN_TGT, Value(codes.PROC, Proc("", rank))),)
        if stdin is not False:
            directives += (flag(keys.FWD_STDIN),)
        op = Spawn(app_tuple(apps, n, env, cwd), directives)
        ends = await self._job_ends() if notify else None
        return SpawnedJob(self._port, await self._run(op), ends)

    async def _job_ends(self) -> JobEnds | None:
        """Have the ends of jobs told here, before there are any; None where that does not work."""
        ends = self._port.kept(JobEnds)
        if ends is None or ends.over:
            ends = JobEnds(self._port)
            try:
                await ends.begin()
            except NotSupported:
                return None
            self._port.keep(ends, replace=True)
        return ends

    @property
    def _spawned(self) -> bool:
        return bool(self._local_value(keys.SPAWNED)) or self.parent is not None

    @property
    def parent(self) -> Proc | None:
        """The proc whose spawn started this process's job (`PMIX_PARENT_ID`), None if none did.

        Example:
            >>> if me.parent is not None:
            ...     port = await me.get("acme.port", me.parent)
        """
        parent = self._local_value(keys.PARENT_ID)
        return parent if isinstance(parent, Proc) else None

    def _local_value(self, key: str) -> object:
        """Return the local value of a key of this process or of its job; None without a value."""
        session = self._session
        for rank in (session.proc.rank, RANK_WILDCARD):
            try:
                return read(session, Proc.unchecked(session.proc.nspace, rank), key)
            except PMIxError:
                continue
        return None
