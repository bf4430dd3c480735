"""The arguments and results of log, job control, allocations, monitors and credentials."""

from __future__ import annotations

from pypmix.answers import Answers, Credential
from pypmix.requests import proc_tuple, seconds
from pypmix.standard import attrs, keys, ops, statuses
from pypmix.standard.attr import Attr
from pypmix.standard.ops import (
    AllocationRequest,
    GetCredential,
    JobControl,
    Log,
    ProcessMonitor,
    ValidateCredential,
)
from pypmix.standard.types import Info, Value
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from os import PathLike
    from typing import Any

    from pypmix.requests import Infos, Procs

    Channel = str | Attr[Any]
    Path = str | PathLike[str]

CHANNELS: dict[str, Attr[str]] = {
    "stderr": attrs.LOG_STDERR,
    "stdout": attrs.LOG_STDOUT,
    "syslog": attrs.LOG_SYSLOG,
    "local syslog": attrs.LOG_LOCAL_SYSLOG,
    "global syslog": attrs.LOG_GLOBAL_SYSLOG,
}
"""The channels that `to` of a log may name."""


_numbers = iter(range(1, 1 << 62))


def _timed(info: Infos, timeout: float | None) -> tuple[Info, ...]:
    directives = infos(info)
    return directives if timeout is None else (*directives, seconds(timeout))


def _given(**values: tuple[Attr[Any], object]) -> tuple[Info, ...]:
    """Return the infos of the arguments that were given."""
    found = []
    for name, (attribute, value) in values.items():
        if value is None or value is False:
            continue
        try:
            found.append(attribute(value))
        except (TypeError, OverflowError) as error:
            raise type(error)(f"{name}: {error}") from None
    return tuple(found)


def log_op(
    data: str | Mapping[Any, object] | Iterable[Info],
    to: Channel | Iterable[Channel] | None,
    tag: bool,
    timestamp: bool,
    once: bool,
    timeout: float | None,
    info: Infos,
) -> Log:
    if isinstance(data, str):
        if "\0" in data:
            raise ValueError("a text to log must not contain a NUL character")
        channels: Iterable[Channel] = ("stderr",) if to is None else (to,) if isinstance(to, str | Attr) else to
        entries = tuple([_channel(channel)(data) for channel in channels])
    elif isinstance(data, bytes | bytearray) or not hasattr(data, "__iter__"):
        raise TypeError(f"what is logged is a text, a mapping, or infos, not {type(data).__name__}")
    elif to is not None:
        raise TypeError("`to` is for a text; a mapping and infos say themselves where each entry goes")
    else:
        entries = infos(data)
    directives = _given(
        tag=(attrs.LOG_TAG_OUTPUT, tag),
        timestamp=(attrs.LOG_GENERATE_TIMESTAMP, timestamp),
        once=(attrs.LOG_ONCE, once),
    )
    if timestamp:
        directives += (attrs.LOG_TIMESTAMP_OUTPUT(True),)
    return Log(entries, directives + _timed(info, timeout))


def _channel(channel: Channel) -> Attr[Any]:
    if isinstance(channel, Attr):
        return channel
    found = CHANNELS.get(channel)
    if found is None:
        raise ValueError(f"{channel!r} is not a channel to log to: {', '.join(CHANNELS)}, or an attribute")
    return found


def control_op(procs: Procs, info: Infos, timeout: float | None = None, *more: Info) -> JobControl:
    return JobControl(proc_tuple(procs), (*more, *_timed(info, timeout)))


def signal_op(procs: Procs, signum: int, info: Infos) -> JobControl:
    if isinstance(signum, bool) or not isinstance(signum, int):
        raise TypeError(f"a signal is an int or a signal.Signals, not {type(signum).__name__}")
    if not 0 < signum < 65:
        raise ValueError(f"{signum} is not a signal")
    return control_op(_somebody(procs), info, None, attrs.JOB_CTRL_SIGNAL(int(signum)))


def steer_op(procs: Procs, directive: Attr[bool], info: Infos) -> JobControl:
    return control_op(_somebody(procs), info, None, directive(True))


def _somebody(procs: Procs) -> Procs:
    if procs is None:
        raise TypeError("procs have to be named: `me.job` is all of the own job")
    return procs


def cleanup_op(
    path: Path, directory: bool, recursive: bool, keep_top: bool, ignore: Iterable[Path], procs: Procs, info: Infos
) -> JobControl:
    from os import fspath

    if isinstance(ignore, str):
        raise TypeError(f"paths to ignore are a collection of strings, not the string {ignore!r}")
    attribute = attrs.REGISTER_CLEANUP_DIR if directory or recursive or keep_top else attrs.REGISTER_CLEANUP
    directives = [attribute(fspath(path)), *[attrs.CLEANUP_IGNORE(fspath(each)) for each in ignore]]
    directives += _given(
        recursive=(attrs.CLEANUP_RECURSIVE, recursive), keep_top=(attrs.CLEANUP_LEAVE_TOPDIR, keep_top)
    )
    return control_op(procs, info, None, *directives)


def allocation_op(directive: int, info: Infos, timeout: float | None = None, *more: Info) -> AllocationRequest:
    return AllocationRequest(int(directive), (*more, *_timed(info, timeout)))


def allocate_op(
    directive: int,
    nodes: int | None,
    cpus: int | None,
    memory: float | None,
    time: str | int | None,
    queue: str | None,
    id: str | None,
    request_id: str | None,
    timeout: float | None,
    info: Infos,
) -> AllocationRequest:
    more = _given(
        id=(attrs.ALLOC_ID, id),
        request_id=(attrs.ALLOC_REQ_ID, request_id),
        nodes=(attrs.ALLOC_NUM_NODES, nodes),
        cpus=(attrs.ALLOC_NUM_CPUS, cpus),
        memory=(attrs.ALLOC_MEM_SIZE, memory),
        time=(attrs.ALLOC_TIME, time),
        queue=(attrs.ALLOC_QUEUE, queue),
    )
    return allocation_op(directive, info, timeout, *more)


def monitor_op(monitor: Info, error: int, info: Infos) -> ProcessMonitor:
    return ProcessMonitor(monitor, int(error), infos(info))


def heartbeat_monitor_op(
    seconds: int, drops: int, error: int | None, id: str | None, info: Infos
) -> tuple[str, ProcessMonitor]:
    name = f"heartbeat.{next(_numbers)}" if id is None else id
    terms = (
        attrs.MONITOR_ID(name),
        attrs.MONITOR_HEARTBEAT_TIME(_period(seconds)),
        attrs.MONITOR_HEARTBEAT_DROPS(drops),
    )
    code = statuses.MONITOR_HEARTBEAT_ALERT if error is None else int(error)
    return name, ProcessMonitor(attrs.MONITOR_HEARTBEAT(True), code, (*terms, *infos(info)))


def file_monitor_op(
    path: Path,
    seconds: int,
    size: bool,
    access: bool,
    modify: bool,
    drops: int,
    error: int | None,
    id: str | None,
    info: Infos,
) -> tuple[str, ProcessMonitor]:
    from os import fspath

    if not (size or access or modify):
        raise ValueError("nothing of the file is to be watched: size, access or modify")
    name = f"file.{next(_numbers)}" if id is None else id
    terms = (
        attrs.MONITOR_ID(name),
        *_given(
            size=(attrs.MONITOR_FILE_SIZE, size),
            access=(attrs.MONITOR_FILE_ACCESS, access),
            modify=(attrs.MONITOR_FILE_MODIFY, modify),
        ),
        attrs.MONITOR_FILE_CHECK_TIME(_period(seconds)),
        attrs.MONITOR_FILE_DROPS(drops),
    )
    code = statuses.MONITOR_FILE_ALERT if error is None else int(error)
    return name, ProcessMonitor(attrs.MONITOR_FILE(fspath(path)), code, (*terms, *infos(info)))


def _period(seconds: int) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int):
        raise TypeError(f"a monitor checks after whole seconds, an int, not {type(seconds).__name__}")
    if seconds <= 0:
        raise ValueError(f"a monitor checks after one second or more, not {seconds}")
    return seconds


def cancel_op(id: str | None) -> ProcessMonitor:
    from pypmix.standard import codes

    monitor = Info(keys.MONITOR_CANCEL, Value.unchecked(codes.STRING, None)) if id is None else attrs.MONITOR_CANCEL(id)
    return ProcessMonitor(monitor, 0)


def get_credential_op(type: str | None, timeout: float | None, info: Infos) -> GetCredential:
    return GetCredential(_given(type=(attrs.CRED_TYPE, type)) + _timed(info, timeout))


def credential_of(found: ops.Credential) -> Credential:
    return Credential(found.data, found.infos)


def validate_credential_op(
    credential: bytes | ops.Credential, timeout: float | None, info: Infos
) -> ValidateCredential:
    data = credential.data if isinstance(credential, ops.Credential) else credential
    if isinstance(data, bytearray | memoryview):
        data = bytes(data)
    return ValidateCredential(data, _timed(info, timeout))


def told(found: Iterable[Info]) -> Answers:
    return Answers(found)
