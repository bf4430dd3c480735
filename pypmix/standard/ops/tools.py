"""The connections of a tool with servers, and the upcall for a tool."""

from __future__ import annotations

from pypmix.standard.ops.core import HostOp, Op
from pypmix.standard.types import Info, Proc


def _server(server: object) -> None:
    if not isinstance(server, Proc):
        raise TypeError(f"a server is named by its Proc, not by a {type(server).__name__}")


class ToolAttachToServer(Op[Proc]):
    """`PMIx_tool_attach_to_server`: connect to a further server; returns its name.

    Understood directives: `attrs.TOOL_ATTACHMENT_FILE`, `attrs.SERVER_URI`, `attrs.TCP_URI`, `attrs.SERVER_PIDINFO`,
    `attrs.SERVER_NSPACE`, `attrs.CONNECT_TO_SYSTEM`, `attrs.CONNECT_SYSTEM_FIRST`, `attrs.CONNECT_TO_SCHEDULER`,
    `attrs.CONNECT_TO_SYS_CONTROLLER`, `attrs.SERVER_HOSTNAME`, `attrs.SERVER_TMPDIR`, `attrs.SYSTEM_TMPDIR`,
    `attrs.CONNECT_MAX_RETRIES`, `attrs.CONNECT_RETRY_DELAY`, `attrs.TIMEOUT`, `attrs.PRIMARY_SERVER`.
    """

    directives: tuple[Info, ...]


class ToolSetServer(Op[None]):
    """`PMIx_tool_set_server`: make a connected server the one for all further requests.

    Understood directives: `attrs.WAIT_FOR_CONNECTION`, `attrs.TIMEOUT`.
    """

    server: Proc
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        _server(self.server)


class ToolGetServers(Op[tuple[Proc, ...]]):
    """`PMIx_tool_get_servers`: the servers that the tool is connected to, the primary one first."""


class ToolDisconnect(Op[None]):
    """`PMIx_tool_disconnect`: leave a server."""

    server: Proc

    def __validate__(self) -> None:
        super().__validate__()
        _server(self.server)


class ToolConnected(HostOp[Proc | None]):
    """Upcall `tool_connected2`: a tool wants to connect; the answer is its name, an error refuses it.

    A tool with a name keeps it, whatever the answer is; if neither it nor the host has a name, the server makes one.
    The upcall's `uid` and `gid` are the tool's, as verified by the server. Its exit is reported like a client's, by
    `ClientFinalized` or `ClientLost`.

    Attributes:
        proc: Its name; None if it requests one.
        pid: Its process id, if it sends one, unverified.
        launcher: Whether it launches jobs.
        release: The release of its library.
        directives: The infos of its handshake.
    """

    proc: Proc | None = None
    pid: int | None = None
    launcher: bool = False
    release: str = ""
    directives: tuple[Info, ...] = ()
