"""Turns a tool's arguments into the directives that name its server."""

from __future__ import annotations

import os

from pypmix.standard import codes, keys
from pypmix.standard.ops import ToolAttachToServer, ToolSetServer
from pypmix.standard.types import MAX_NSLEN, Info, Proc, Value, check_name
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.requests import Infos

SYSTEM = ("only", "first")

_TRUE = Value.unchecked(codes.BOOL, True)


def _text(key: str, value: object, what: str) -> Info:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a string, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{what} must not be empty")
    return Info(key, Value(codes.STRING, value))


def target(
    pid: int | None,
    nspace: str | None,
    uri: str | None,
    file: str | os.PathLike[str] | None,
    system: bool | str,
    host: str | None,
    tmpdir: str | os.PathLike[str] | None,
    timeout: float | bool | None,
    info: Infos,
) -> tuple[Info, ...]:
    """Return the directives that say which server is meant."""
    given = [name for name, value in (("pid", pid), ("nspace", nspace), ("uri", uri), ("file", file)) if value]
    if system and system is not True and system not in SYSTEM:
        raise ValueError(f"system is True, {' or '.join(map(repr, SYSTEM))}, not {system!r}")
    if system and system != "first":
        given.append("system")
    if len(given) > 1:
        raise ValueError(f"a server is named in one way, not by {' and '.join(given)}")
    directives: list[Info] = []
    if pid is not None:
        if isinstance(pid, bool) or not isinstance(pid, int):
            raise TypeError(f"a pid is an int, not {type(pid).__name__}")
        if not 0 < pid < 2**31:
            raise ValueError(f"{pid} is not a process id")
        directives.append(Info(keys.SERVER_PIDINFO, Value(codes.PID, pid)))
    if nspace is not None:
        check_name(nspace, MAX_NSLEN, "an nspace")
        directives.append(_text(keys.SERVER_NSPACE, nspace, "an nspace"))
    if uri is not None:
        directives.append(_text(keys.SERVER_URI, uri, "a URI"))
    if file is not None:
        directives.append(_text(keys.TOOL_ATTACHMENT_FILE, os.fspath(file), "a file"))
    if system:
        key = keys.CONNECT_SYSTEM_FIRST if system == "first" else keys.CONNECT_TO_SYSTEM
        directives.append(Info(key, _TRUE))
    if host is not None:
        directives.append(_text(keys.SERVER_HOSTNAME, host, "a host"))
    if tmpdir is not None:
        directives.append(_text(keys.SERVER_TMPDIR, os.fspath(tmpdir), "a folder"))
    if timeout is not None:
        if isinstance(timeout, bool) or not isinstance(timeout, int | float):
            raise TypeError(f"a timeout is a number of seconds, not {type(timeout).__name__}")
        if not 0 <= timeout < 2**31:
            raise ValueError(f"a timeout must be at least 0 and less than 2**31 seconds, not {timeout}")
        # Whole seconds between two looks is what the attributes can say.
        directives.append(Info(keys.CONNECT_MAX_RETRIES, Value(codes.UINT32, -int(-timeout // 1))))
        directives.append(Info(keys.CONNECT_RETRY_DELAY, Value(codes.UINT32, 1)))
    return (*directives, *infos(info))


def name(proc: Proc | None) -> tuple[Info, ...]:
    """Return the directives by which a tool brings its name."""
    if proc is None:
        return ()
    if not isinstance(proc, Proc):
        raise TypeError(f"a tool's name is a Proc, not a {type(proc).__name__}")
    return (
        Info(keys.TOOL_NSPACE, Value(codes.STRING, proc.nspace)),
        Info(keys.TOOL_RANK, Value(codes.PROC_RANK, proc.rank)),
    )


def attach_op(directives: tuple[Info, ...], primary: bool) -> ToolAttachToServer:
    return ToolAttachToServer((*directives, Info(keys.PRIMARY_SERVER, _TRUE)) if primary else directives)


def set_server_op(server: Proc, wait: float | bool | None, info: Infos) -> ToolSetServer:
    directives = infos(info)
    if wait is not None and wait is not False:
        directives += (Info(keys.WAIT_FOR_CONNECTION, _TRUE),)
        if wait is not True:
            from pypmix.requests import seconds

            directives += (seconds(wait),)
    return ToolSetServer(server, directives)
