# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""The servers of a tool."""

from __future__ import annotations

import os

from pypmix.arguments import TIMEOUT, TRUE, flag, wait_infos
from pypmix.lazy import renamed
from pypmix.operations.base import Asks
from pypmix.standard import codes, keys
from pypmix.standard.ops import ToolAttachToServer, ToolDisconnect, ToolGetServers, ToolSetServer
from pypmix.standard.types import MAX_NSLEN, Info, Proc, Value, check_integer, check_name, check_number, name_call
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.arguments import Infos

SYSTEM = ("only", "first")


def server_infos(
    pid: int | None,
    nspace: str | None,
    uri: str | None,
    file: str | os.PathLike[str] | None,
    system: bool | str,
    host: str | None,
    tmpdir: str | os.PathLike[str] | None,
    timeout: float | None,
) -> tuple[Info, ...]:
    """Return the directives that name a server."""
    given = [name for name, value in (("pid", pid), ("nspace", nspace), ("uri", uri), ("file", file)) if value]
    if system and system is not True and system not in SYSTEM:
        raise ValueError(f"system is True, {' or '.join(map(repr, SYSTEM))}, not {system!r}")
    if system and system != "first":
        given.append("system")
    if len(given) > 1:
        raise ValueError(f"a server is named in one way, not by {' and '.join(given)}")
    directives: list[Info] = []
    if pid is not None:
        pid = check_integer(pid, "a pid")
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
        directives.append(flag(keys.CONNECT_SYSTEM_FIRST if system == "first" else keys.CONNECT_TO_SYSTEM))
    if host is not None:
        directives.append(_text(keys.SERVER_HOSTNAME, host, "a host"))
    if tmpdir is not None:
        directives.append(_text(keys.SERVER_TMPDIR, os.fspath(tmpdir), "a folder"))
    if timeout is not None:
        timeout = check_number(timeout, TIMEOUT)
        if not 0 <= timeout < 2**31:
            raise ValueError(f"{name_call()}a timeout must be at least 0 and less than 2**31 seconds, not {timeout}")
        # The attributes have whole seconds between two looks.
        directives.append(Info(keys.CONNECT_MAX_RETRIES, Value(codes.UINT32, -int(-timeout // 1))))
        directives.append(Info(keys.CONNECT_RETRY_DELAY, Value(codes.UINT32, 1)))
    return tuple(directives)


def _text(key: str, value: object, what: str) -> Info:
    if not isinstance(value, str):
        raise TypeError(f"{what} is a string, not {type(value).__name__}")
    if not value:
        raise ValueError(f"{what} must not be empty")
    return Info(key, Value(codes.STRING, value))


class Servers(Asks):
    """The servers of a tool."""

    @renamed("pypmix.Tool")
    def attach_to_server(
        self,
        *,
        pid: int | None = None,
        nspace: str | None = None,
        uri: str | None = None,
        file: str | os.PathLike[str] | None = None,
        system: bool | str = False,
        host: str | None = None,
        tmpdir: str | os.PathLike[str] | None = None,
        timeout: float | None = None,
        primary: bool = False,
        info: Infos = None,
    ) -> Proc:
        """`PMIx_tool_attach_to_server`: connect to a further server; the connections that there are stay.

        Args:
            pid: The server's process id.
            nspace: Its nspace.
            uri: Its URI.
            file: Its rendezvous file.
            system: Whether it is the system server of this node; see the class.
            host: The name of its node.
            tmpdir: The folder to search.
            timeout: Seconds to wait for it to be there. None and 0 do not wait.
            primary: Make it the primary server. It becomes that in any case where the tool has none.
            info: Further infos or a mapping.

        Returns:
            The server's name. A server that the tool is connected to already is found again; a search without a
            target looks for a further one.

        Raises:
            Unreachable: There is no such server, or it does not let this tool in.

        Example:
            >>> with Tool(pid=4711) as tool:
            ...     server = tool.attach_to_server(nspace="other.server", primary=True)

        PMIx Standard: "Tools and Debuggers", PMIx_tool_attach_to_server.
        """
        directives = server_infos(pid, nspace, uri, file, system, host, tmpdir, timeout) + infos(info)
        return self._run(ToolAttachToServer((*directives, flag(keys.PRIMARY_SERVER)) if primary else directives))

    @renamed("pypmix.Tool")
    def set_server(self, server: Proc, *, timeout: float | None = None, info: Infos = None) -> None:
        """`PMIx_tool_set_server`: make a server the primary one, which carries out what is asked from now on.

        What was registered with the one before (event handlers, output) stays with that.

        Args:
            server: A server that the tool is connected to; the tool's own name to have none.
            timeout: Seconds to wait for the connection to it: `math.inf` without a limit. None and 0 do not wait.
            info: Further infos or a mapping.

        Raises:
            Unreachable: The tool is not connected to it.
            OperationTimeout: It was not in time.

        Example:
            >>> with Tool(pid=4711) as tool:
            ...     server = tool.attach_to_server(nspace="other.server")
            ...     tool.set_server(server, timeout=10)

        PMIx Standard: "Tools and Debuggers", PMIx_tool_set_server.
        """
        self._run(ToolSetServer(server, infos(info) + wait_infos(keys.WAIT_FOR_CONNECTION, TRUE, timeout)))

    def get_servers(self) -> list[Proc]:
        """`PMIx_tool_get_servers`: the servers that the tool is connected to.

        Returns:
            Their names, that of the primary one first; empty where there is none.

        Example:
            >>> with Tool(pid=4711) as tool:
            ...     primary, *others = tool.get_servers()

        PMIx Standard: "Tools and Debuggers", PMIx_tool_get_servers.
        """
        return list(self._run(ToolGetServers()))

    def disconnect_from_server(self, server: Proc) -> None:
        """`PMIx_tool_disconnect`: leave a server; without its primary server the tool has none afterwards.

        Args:
            server: A server that the tool is connected to.

        Raises:
            Unreachable: The tool is not connected to it.

        Example:
            >>> with Tool(pid=4711) as tool:
            ...     server = tool.attach_to_server(nspace="other.server")
            ...     tool.disconnect_from_server(server)

        PMIx Standard: "Tools and Debuggers", PMIx_tool_disconnect.
        """
        self._run(ToolDisconnect(server))
