"""Log, job control, allocations, monitors and heartbeats, credentials."""

from __future__ import annotations

import os
from itertools import count

from pypmix.aio.operations.base import Asks
from pypmix.answers import Answers, Credential
from pypmix.arguments import NEW, number_of, proc_tuple, timed
from pypmix.events import event_code
from pypmix.lazy import renamed
from pypmix.standard import attrs, codes, keys, ops, statuses
from pypmix.standard.attr import Attr
from pypmix.standard.types import Info, Value, check_integer
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from pypmix.aio.waits import Port
    from pypmix.arguments import Infos, Procs
    from pypmix.standard.enums import AllocDirective, EventCode
    from pypmix.standard.types import Proc

    Channel = str | Attr[Any]
    Path = str | os.PathLike[str]

CHANNELS: dict[str, Attr[str]] = {
    "stderr": attrs.LOG_STDERR,
    "stdout": attrs.LOG_STDOUT,
    "syslog": attrs.LOG_SYSLOG,
    "local syslog": attrs.LOG_LOCAL_SYSLOG,
    "global syslog": attrs.LOG_GLOBAL_SYSLOG,
}
"""The channels that `to` of a log may name."""

_numbers = count(1)


def _infos_of(**values: tuple[Attr[Any], object]) -> tuple[Info, ...]:
    """Return the infos of the arguments that were given; errors name the argument."""
    found = []
    for name, (attribute, value) in values.items():
        if value is None or value is False:
            continue
        try:
            found.append(attribute(value))
        except (TypeError, OverflowError) as error:
            raise type(error)(f"{name}: {error}") from None
    return tuple(found)


def _channel(channel: Channel) -> Attr[Any]:
    if isinstance(channel, Attr):
        return channel
    found = CHANNELS.get(channel)
    if found is None:
        raise ValueError(f"{channel!r} is not a channel to log to: {', '.join(CHANNELS)}, or an attribute")
    return found


def _period(seconds: int) -> int:
    seconds = check_integer(seconds, "the number of seconds after which a monitor checks")
    if seconds <= 0:
        raise ValueError(f"a monitor checks after one second or more, not {seconds}")
    return seconds


class ProcControl:
    """The control of some procs; `control` of a client makes one."""

    def __init__(self, port: Port, procs: tuple[Proc, ...]) -> None:
        self._port = port
        self._procs = procs

    async def _run(self, directives: tuple[Info, ...]) -> tuple[Info, ...]:
        return await self._port.run(ops.JobControl(self._procs, directives))

    async def _send(self, directive: Info, info: Infos) -> None:
        if not self._procs:
            raise TypeError("name the procs, as in `me.control(me.job)`")
        await self._run((directive, *infos(info)))

    def __repr__(self) -> str:
        return f"<ProcControl of {' '.join(map(str, self._procs)) or 'the whole job'}>"

    async def request(self, *, timeout: float | None = None, info: Infos = None) -> Answers:
        """`PMIx_Job_control`: request anything of the host for these procs.

        Args:
            timeout: Seconds to wait for the server's answer; no limit by default.
            info: The directives, as infos or a mapping, such as `{attrs.JOB_CTRL_CHECKPOINT: "name"}`.

        Returns:
            What the host tells of it, mostly nothing.

        Raises:
            NotSupported: The host does not do this.
            NotFound: The host does not know all of the targets.
            PermissionDenied: The caller may not do this to them.
            Unreachable: The caller is a singleton.

        Example:
            >>> await me.control(me.job).request(info={attrs.JOB_CTRL_CHECKPOINT: "step7"})

        PMIx Standard: Job Management and Reporting, "Job Control".
        """
        return Answers(await self._run(timed(infos(info), timeout)))

    async def signal(self, signum: int, *, info: Infos = None) -> None:
        """`PMIx_Job_control` with `PMIX_JOB_CTRL_SIGNAL`: send procs a signal.

        Args:
            signum: Its number, such as `signal.SIGUSR1`.
            info: Further directives as infos or a mapping.

        Raises:
            PMIxError: As for `request`.

        Example:
            >>> await me.control(me.job).signal(10)

        PMIx Standard: Job Management and Reporting, "Job Control".
        """
        signum = check_integer(signum, "a signal")
        if not 0 < signum < 65:
            raise ValueError(f"{signum} is not a signal")
        await self._send(attrs.JOB_CTRL_SIGNAL(signum), info)

    async def kill(self, *, info: Infos = None) -> None:
        """`PMIx_Job_control` with `PMIX_JOB_CTRL_KILL`: end procs at once, with SIGKILL.

        Args:
            info: Further directives as infos or a mapping.

        Raises:
            PMIxError: As for `request`.

        Example:
            >>> await me.control(me.job[1]).kill()

        PMIx Standard: Job Management and Reporting, "Job Control".
        """
        await self._send(attrs.JOB_CTRL_KILL(True), info)

    async def terminate(self, *, info: Infos = None) -> None:
        """`PMIx_Job_control` with `PMIX_JOB_CTRL_TERMINATE`: ask procs to end, with SIGTERM.

        Args:
            info: Further directives as infos or a mapping.

        Raises:
            PMIxError: As for `request`.

        Example:
            >>> await me.control(me.job[1:]).terminate()

        PMIx Standard: Job Management and Reporting, "Job Control".
        """
        await self._send(attrs.JOB_CTRL_TERMINATE(True), info)

    async def pause(self, *, info: Infos = None) -> None:
        """`PMIx_Job_control` with `PMIX_JOB_CTRL_PAUSE`: stop procs until they are resumed.

        Args:
            info: Further directives as infos or a mapping.

        Raises:
            PMIxError: As for `request`.

        Example:
            >>> await me.control(me.job).pause()

        PMIx Standard: Job Management and Reporting, "Job Control".
        """
        await self._send(attrs.JOB_CTRL_PAUSE(True), info)

    async def resume(self, *, info: Infos = None) -> None:
        """`PMIx_Job_control` with `PMIX_JOB_CTRL_RESUME`: let paused procs continue.

        Args:
            info: Further directives as infos or a mapping.

        Raises:
            PMIxError: As for `request`.

        Example:
            >>> await me.control(me.job).resume()

        PMIx Standard: Job Management and Reporting, "Job Control".
        """
        await self._send(attrs.JOB_CTRL_RESUME(True), info)

    async def register_cleanup(
        self,
        path: Path,
        *,
        directory: bool = False,
        recursive: bool = False,
        keep_top: bool = False,
        ignore: Iterable[Path] = (),
        info: Infos = None,
    ) -> None:
        """`PMIx_Job_control` with `PMIX_REGISTER_CLEANUP`: have a file or folder removed when procs have ended.

        Args:
            path: The file, or the folder.
            directory: It is a folder; only its own files are removed.
            recursive: It is a folder, and those in it are emptied too.
            keep_top: It is a folder, and stays itself.
            ignore: Files to leave alone.
            info: Further directives as infos or a mapping.

        Raises:
            PMIxError: As for `request`.

        Example:
            >>> await me.control().register_cleanup("/dev/shm/acme", directory=True)

        PMIx Standard: Job Management and Reporting, "Job Control".
        """
        if isinstance(ignore, str):
            raise TypeError(f"paths to ignore are a collection of strings, not the string {ignore!r}")
        attribute = attrs.REGISTER_CLEANUP_DIR if directory or recursive or keep_top else attrs.REGISTER_CLEANUP
        directives = (
            attribute(os.fspath(path)),
            *[attrs.CLEANUP_IGNORE(os.fspath(each)) for each in ignore],
            *_infos_of(recursive=(attrs.CLEANUP_RECURSIVE, recursive), keep_top=(attrs.CLEANUP_LEAVE_TOPDIR, keep_top)),
        )
        await self._run(directives + infos(info))


class Monitors:
    """The monitors of the caller at its server: `monitors` of a client."""

    def __init__(self, port: Port) -> None:
        self._port = port

    async def watch(self, monitor: Info, error: EventCode, *, info: Infos = None) -> Answers:
        """`PMIx_Process_monitor`: have the server watch something.

        Args:
            monitor: The kind of monitor: `attrs.MONITOR_HEARTBEAT(True)`, `attrs.MONITOR_FILE(path)`, or
                `attrs.MONITOR_CANCEL(id)`.
            error: The code of the event to raise.
            info: Directives as infos or a mapping, such as `attrs.MONITOR_ID`.

        Returns:
            What the server tells of it, mostly nothing.

        Raises:
            NotSupported: The server watches nothing like that.
            Unreachable: The caller is a singleton.

        Example:
            >>> await me.monitors.watch(attrs.MONITOR_HEARTBEAT(True), EventCode.MONITOR_HEARTBEAT_ALERT)

        PMIx Standard: Job Management and Reporting, "Process and Job Monitoring".
        """
        return Answers(await self._port.run(ops.ProcessMonitor(monitor, event_code(error), infos(info))))

    @renamed("pypmix.Client.monitors")
    async def watch_heartbeat(
        self,
        seconds: int,
        *,
        drops: int = 0,
        error: EventCode | None = None,
        name: str | None = None,
        info: Infos = None,
    ) -> str:
        """`PMIx_Process_monitor` with `PMIX_MONITOR_HEARTBEAT`: raise an event when the caller's heart stops.

        From now on the caller has to call `send_heartbeat` at least once in each period.

        Args:
            seconds: The period, whole seconds.
            drops: How many periods may pass without a heartbeat before the event.
            error: The event, `EventCode.MONITOR_HEARTBEAT_ALERT` by default. Native servers raise that in any case.
            name: A name for the monitor; made up by default.
            info: Further directives as infos or a mapping, such as `attrs.RANGE`: the procs that get the event.

        Returns:
            The monitor's name, for `cancel`.

        Raises:
            PMIxError: As for `watch`.

        Example:
            >>> name = await me.monitors.watch_heartbeat(10, drops=2)
            >>> await me.monitors.send_heartbeat()

        PMIx Standard: Job Management and Reporting, "Process and Job Monitoring".
        """
        chosen = f"heartbeat.{next(_numbers)}" if name is None else name
        terms = (
            attrs.MONITOR_ID(chosen),
            attrs.MONITOR_HEARTBEAT_TIME(_period(seconds)),
            attrs.MONITOR_HEARTBEAT_DROPS(drops),
        )
        code = statuses.MONITOR_HEARTBEAT_ALERT if error is None else event_code(error)
        await self._port.run(ops.ProcessMonitor(attrs.MONITOR_HEARTBEAT(True), code, terms + infos(info)))
        return chosen

    @renamed("pypmix.Client.monitors")
    async def watch_file(
        self,
        path: Path,
        seconds: int,
        *,
        size: bool = False,
        access: bool = False,
        modify: bool = False,
        drops: int = 0,
        error: EventCode | None = None,
        name: str | None = None,
        info: Infos = None,
    ) -> str:
        """`PMIx_Process_monitor` with `PMIX_MONITOR_FILE`: raise an event when a file no longer shows a sign of life.

        Args:
            path: The file.
            seconds: How often to look, whole seconds.
            size: Whether its size has to change.
            access: Whether the time of its last access has to change.
            modify: Whether the time of its last modification has to change.
            drops: How many looks in a row may find nothing new before the event.
            error: The event, `EventCode.MONITOR_FILE_ALERT` by default. Native servers raise that in any case.
            name: A name for the monitor; made up by default.
            info: Further directives as infos or a mapping, such as `attrs.RANGE`: the procs that get the event.

        Returns:
            The monitor's name, for `cancel`.

        Raises:
            PMIxError: As for `watch`.

        Example:
            >>> await me.monitors.watch_file("out.log", 60, size=True)

        PMIx Standard: Job Management and Reporting, "Process and Job Monitoring".
        """
        if not (size or access or modify):
            raise ValueError("nothing of the file is to be watched: size, access or modify")
        chosen = f"file.{next(_numbers)}" if name is None else name
        terms = (
            attrs.MONITOR_ID(chosen),
            *_infos_of(
                size=(attrs.MONITOR_FILE_SIZE, size),
                access=(attrs.MONITOR_FILE_ACCESS, access),
                modify=(attrs.MONITOR_FILE_MODIFY, modify),
            ),
            attrs.MONITOR_FILE_CHECK_TIME(_period(seconds)),
            attrs.MONITOR_FILE_DROPS(drops),
        )
        code = statuses.MONITOR_FILE_ALERT if error is None else event_code(error)
        await self._port.run(ops.ProcessMonitor(attrs.MONITOR_FILE(os.fspath(path)), code, terms + infos(info)))
        return chosen

    @renamed("pypmix.Client.monitors")
    async def cancel(self, name: str | None = None) -> None:
        """`PMIx_Process_monitor` with `PMIX_MONITOR_CANCEL`: end what `watch_heartbeat` and others have started.

        Args:
            name: The monitor's name; all monitors of the caller by default.

        Raises:
            PMIxError: As for `watch`.

        Example:
            >>> await me.monitors.cancel()

        PMIx Standard: Job Management and Reporting, "Process and Job Monitoring".
        """
        every = Info(keys.MONITOR_CANCEL, Value.unchecked(codes.STRING, None))
        await self._port.run(ops.ProcessMonitor(every if name is None else attrs.MONITOR_CANCEL(name), 0))

    async def send_heartbeat(self) -> None:
        """`PMIx_Heartbeat`: tell the server that the caller lives. Nothing comes back.

        Raises:
            LostConnection: The server is gone.
            Unreachable: The caller is a singleton.

        Example:
            >>> await me.monitors.send_heartbeat()

        PMIx Standard: Job Management and Reporting, "Process and Job Monitoring".
        """
        await self._port.run(ops.Heartbeat())


class Credentials:
    """The credentials of processes: `credentials` of a client."""

    def __init__(self, port: Port) -> None:
        self._port = port

    @renamed("pypmix.Client.credentials")
    async def get(self, *, kinds: str | None = None, timeout: float | None = None, info: Infos = None) -> Credential:
        """`PMIx_Get_credential`: a credential that tells others who the caller is.

        Args:
            kinds: The kinds that will do, in the order of preference, separated by commas; any by default.
            timeout: Seconds to wait for the server's answer; no limit by default.
            info: Further directives as infos or a mapping.

        Returns:
            The credential, with its `data`, opaque bytes to be handed on, and the `info` that came with it.

        Raises:
            NotSupported: The host gives none.
            Unreachable: The caller is a singleton.

        Example:
            >>> credential = await me.credentials.get()
            >>> await me.put("credential", credential.data)

        PMIx Standard: Security, "Obtaining Credentials".
        """
        directives = _infos_of(kinds=(attrs.CRED_TYPE, kinds)) + timed(infos(info), timeout)
        found = await self._port.run(ops.GetCredential(directives))
        return Credential(found.data, found.infos)

    async def validate(
        self, credential: bytes | Credential, *, timeout: float | None = None, info: Infos = None
    ) -> Answers:
        """`PMIx_Validate_credential`: have the host say whose credential this is.

        Args:
            credential: The bytes that another process got by `get`.
            timeout: Seconds to wait for the server's answer; no limit by default.
            info: Further directives as infos or a mapping.

        Returns:
            Whose it is, such as `attrs.USERID` and `attrs.GRPID`.

        Raises:
            PermissionDenied: It is not valid, or has expired.
            NotSupported: The host does not validate credentials.
            Unreachable: The caller is a singleton.

        Example:
            >>> who = await me.credentials.validate(b"opaque")
            >>> print(who.get(attrs.USERID))

        PMIx Standard: Security, "Validating Credentials".
        """
        data = credential.data if isinstance(credential, ops.Credential) else credential
        if isinstance(data, bytearray | memoryview):
            data = bytes(data)
        return Answers(await self._port.run(ops.ValidateCredential(data, timed(infos(info), timeout))))


class Control(Asks):
    """Log, job control, allocations, monitors and heartbeats, credentials."""

    async def log(
        self,
        data: str | Mapping[Any, object] | Iterable[Info],
        *,
        to: Channel | Iterable[Channel] | None = None,
        tag: bool = False,
        timestamp: bool = False,
        once: bool = False,
        timeout: float | None = None,
        info: Infos = None,
    ) -> None:
        """`PMIx_Log`: have the host write something down.

        Args:
            data: A text; or a mapping of channels to texts; or infos, such as
                `{attrs.LOG_JOB_RECORD: True}`.
            to: The channel of a text: `stderr` (by default) and `stdout` are the launcher's, `syslog`, `local syslog`
                and `global syslog` the system's; or an attribute; or several of these.
            tag: Have each line say who wrote it (`PMIX_LOG_TAG_OUTPUT`).
            timestamp: Have each line say when this was called (`PMIX_LOG_GENERATE_TIMESTAMP`).
            once: With several channels, the first that works is enough (`PMIX_LOG_ONCE`).
            timeout: Seconds to wait for the server's answer; no limit by default.
            info: Further directives as infos or a mapping.

        Raises:
            NotSupported: The host has no such channel.
            Unreachable: The caller is a singleton.

        Example:
            >>> await me.log("step 7 is done", timestamp=True)
            >>> await me.log("the disk is full", to=["stderr", "syslog"], once=True)

        PMIx Standard: Job Management and Reporting, "Logging".
        """
        if isinstance(data, str):
            if "\0" in data:
                raise ValueError("a text to log must not contain a NUL character")
            channels: Iterable[Channel] = ("stderr",) if to is None else (to,) if isinstance(to, str | Attr) else to
            entries = tuple([_channel(channel)(data) for channel in channels])
        elif isinstance(data, bytes | bytearray) or not hasattr(data, "__iter__"):
            raise TypeError(f"a log takes a text, a mapping, or infos, not {type(data).__name__}")
        elif to is not None:
            raise TypeError("`to` is for a text; a mapping and infos name the channel of each entry themselves")
        else:
            entries = infos(data)
        directives = _infos_of(
            tag=(attrs.LOG_TAG_OUTPUT, tag),
            timestamp=(attrs.LOG_GENERATE_TIMESTAMP, timestamp),
            once=(attrs.LOG_ONCE, once),
        )
        if timestamp:
            directives += (attrs.LOG_TIMESTAMP_OUTPUT(True),)
        await self._run(ops.Log(entries, directives + timed(infos(info), timeout)))

    def control(self, procs: Procs = None) -> ProcControl:
        """`PMIx_Job_control`: control procs: `me.control(procs).kill()`, and signals, pauses and more.

        Args:
            procs: One proc, several, or a job: `me.job`. Without any, `request` and `register_cleanup` are for all of
                the caller's job, and the others refuse.

        Example:
            >>> await me.control(me.job[1]).kill()
            >>> await me.control(me.job).signal(10)

        PMIx Standard: Job Management and Reporting, "Job Control".
        """
        return ProcControl(self._port, proc_tuple(self._procs(procs)))

    @renamed("pypmix.Client")
    async def allocate(
        self,
        directive: AllocDirective = NEW,
        *,
        nodes: int | None = None,
        cpus: int | None = None,
        memory: float | None = None,
        time: str | int | None = None,
        queue: str | None = None,
        allocation_id: str | None = None,
        request_id: str | None = None,
        timeout: float | None = None,
        info: Infos = None,
    ) -> Answers:
        """`PMIx_Allocation_request`: ask for resources, for more or fewer of them.

        Args:
            directive: `AllocDirective.NEW` by default, `EXTEND`, `RELEASE`, `REAQUIRE` or `REQ_CANCEL`.
            nodes: How many nodes.
            cpus: How many cores.
            memory: Megabytes for each process.
            time: For how long: seconds, or a string such as `1:30:00`.
            queue: The queue to ask in.
            allocation_id: The allocation that it is about, unless it is a new one.
            request_id: A name for this request, by which it can be withdrawn.
            timeout: Seconds to wait for the server's answer; no limit by default.
            info: Further terms as infos or a mapping, such as `{attrs.ALLOC_NODE_LIST: "n1,n2"}`.

        Returns:
            What was granted, such as `attrs.ALLOC_ID`.

        Raises:
            NotSupported: The host does not allocate.
            PartialSuccess: Only a part of it was granted.
            Unreachable: The caller is a singleton.

        Example:
            >>> granted = await me.allocate(AllocDirective.EXTEND, nodes=2, time="1:00:00")
            >>> print(granted.get(attrs.ALLOC_ID))

        PMIx Standard: Job Management and Reporting, "Allocation Requests".
        """
        number = number_of(directive, "AllocDirective", "EXTEND")
        terms = _infos_of(
            allocation_id=(attrs.ALLOC_ID, allocation_id),
            request_id=(attrs.ALLOC_REQ_ID, request_id),
            nodes=(attrs.ALLOC_NUM_NODES, nodes),
            cpus=(attrs.ALLOC_NUM_CPUS, cpus),
            memory=(attrs.ALLOC_MEM_SIZE, memory),
            time=(attrs.ALLOC_TIME, time),
            queue=(attrs.ALLOC_QUEUE, queue),
        )
        return Answers(await self._run(ops.AllocationRequest(number, terms + timed(infos(info), timeout))))

    @property
    def monitors(self) -> Monitors:
        """The monitors of the caller at its server, of its heartbeat or of files.

        Example:
            >>> name = await me.monitors.watch_heartbeat(10)
            >>> await me.monitors.cancel(name)
        """
        return Monitors(self._port)

    @property
    def credentials(self) -> Credentials:
        """Credentials of the caller for others, and of others.

        Example:
            >>> credential = await me.credentials.get()
        """
        return Credentials(self._port)
