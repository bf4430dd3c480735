"""The servers of a tool."""

from __future__ import annotations

from pypmix.aio.operations.base import Asks
from pypmix.requests import waited
from pypmix.requests.tools import attach_op, set_server_op, target
from pypmix.standard.ops import ToolDisconnect, ToolGetServers

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from pypmix.requests import Infos
    from pypmix.standard.types import Proc


class Servers(Asks):
    """The servers of a tool."""

    async def attach_to_server(
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
        wait: float | None = None,
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
            timeout: Seconds to wait for it to be there.
            wait: The same as `timeout`.
            primary: Make it the primary server. It becomes that in any case where the tool has none.
            info: Further infos or a mapping.

        Returns:
            The server's name. A server that the tool is connected to already is found again; a search without a
            target looks for a further one.

        Raises:
            Unreachable: There is no such server, or it does not let this tool in.

        PMIx Standard: "Tools and Debuggers", PMIx_tool_attach_to_server.
        """
        directives = target(pid, nspace, uri, file, system, host, tmpdir, waited(wait, timeout), info)
        return await self._run(attach_op(directives, primary))

    async def set_server(
        self, server: Proc, *, timeout: float | None = None, wait: float | bool | None = None, info: Infos = None
    ) -> None:
        """`PMIx_tool_set_server`: make a server the primary one, which carries out what is asked from now on.

        What was registered with the one before (event handlers, output) stays with that.

        Args:
            server: A server that the tool is connected to; the tool's own name to have none.
            timeout: Seconds to wait until the tool is connected to it; by default it is not waited for.
            wait: True to wait for as long as it takes; a number is the same as `timeout`.
            info: Further infos or a mapping.

        Raises:
            Unreachable: The tool is not connected to it.
            OperationTimeout: It was not in time.

        PMIx Standard: "Tools and Debuggers", PMIx_tool_set_server.
        """
        await self._run(set_server_op(server, waited(wait, timeout), info))

    async def get_servers(self) -> list[Proc]:
        """`PMIx_tool_get_servers`: the servers that the tool is connected to.

        Returns:
            Their names, that of the primary one first; empty where there is none.

        PMIx Standard: "Tools and Debuggers", PMIx_tool_get_servers.
        """
        return list(await self._run(ToolGetServers()))

    async def disconnect_from_server(self, server: Proc) -> None:
        """`PMIx_tool_disconnect`: leave a server; where it was the primary one, the tool has none afterwards.

        Args:
            server: A server that the tool is connected to.

        Raises:
            Unreachable: The tool is not connected to it.

        PMIx Standard: "Tools and Debuggers", PMIx_tool_disconnect.
        """
        await self._run(ToolDisconnect(server))
