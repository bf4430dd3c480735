"""`PMIxTool` and `PMIxScheduler`: the methods of the official binding, over a `pypmix.Tool`."""

from __future__ import annotations

from pypmix.compat.asking import PROCS
from pypmix.compat.client import Peer, PMIxClient
from pypmix.compat.events import Registration
from pypmix.compat.running import attempt, callback, named_after
from pypmix.compat.scalars import from_bytes, from_proc, to_bytes, to_int, to_proc, to_whom
from pypmix.compat.server import PMIxServer, handlers
from pypmix.compat.serverhost import open_tool_server
from pypmix.compat.values import from_info, from_infos, to_infos
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import NotInitialized
from pypmix.standard.ops import (
    IOFDeregister,
    IOFPull,
    IOFPush,
    Output,
    ToolAttachToServer,
    ToolDisconnect,
    ToolGetServers,
    ToolSetServer,
)
from pypmix.standard.types import RANK_UNDEF
from pypmix.tool import Tool

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from pypmix.standard.types import Info


class ToolPeer(Tool, Peer):
    """A tool that carries out any operation."""


class PMIxTool(PMIxServer):
    """A tool, with the methods, dicts and status ints of the Standard's Python bindings.

    As in the bindings, a tool is also a server: after `set_server_module` it serves clients. All its own requests go to
    its primary server.
    """

    def __init__(self) -> None:
        super().__init__()
        self._users = 0
        self._own = {}
        self._given: tuple[Info, ...] = ()

    def _peer(self) -> ToolPeer:
        facade = self._facade
        if not isinstance(facade, ToolPeer):
            raise NotInitialized("the tool is not initialized", operation="compat", hint="call init first")
        return facade

    # Requests go to the primary server, as a client's do, not to the host of the tool's own server.

    def _port(self) -> ToolPeer:
        return self._peer()

    notify_event = PMIxClient.notify_event
    store_internal = PMIxClient.store_internal

    def initialized(self) -> int:
        """`PMIx_Initialized`: 1 between `init` and `finalize`, else 0."""
        return int(self._facade is not None)

    def init(self, dicts: object = None, map: object = None) -> tuple[int, dict[str, Any]]:
        """`PMIx_tool_init`: find a server and connect; returns the status and the tool's name."""

        def enter() -> ToolPeer:
            if not isinstance(self._facade, ToolPeer):
                given = to_infos(dicts)
                self._facade = ToolPeer(info=given).open()
                self._given = given
            self._users += 1
            return self._peer()

        status, tool = attempt(enter)
        if tool is None:
            return status, {"nspace": "UNASSIGNED", "rank": RANK_UNDEF}
        return statuses.SUCCESS, from_proc(tool.proc)

    def finalize(self, dicts: object = None) -> int:
        """`PMIx_tool_finalize`."""

        def leave() -> None:
            tool = self._peer()
            self._users -= 1
            if self._users == 0:
                self._facade = None
                PMIxServer.finalize(self)
                self._own.clear()
                tool.close(info=to_infos(dicts))

        return attempt(leave)[0]

    def is_connected(self) -> bool:
        """`PMIx_tool_is_connected`: return True if the tool is connected to a primary server."""
        return bool(attempt(lambda: self._peer().is_connected)[1])

    def disconnect(self, server: object, pyinfo: object = None) -> int:
        """`PMIx_tool_disconnect`: leave a server; given a list, `PMIx_Disconnect` from these procs."""
        if isinstance(server, list | tuple):
            return super().disconnect(server, pyinfo)
        return self._do(lambda: ToolDisconnect(to_proc(server)))

    def attach_to_server(self, dicts: object = None) -> tuple[int, dict[str, Any] | None, dict[str, Any] | None]:
        """`PMIx_tool_attach_to_server`: returns the status, the tool's name and the server's."""

        def attach() -> tuple[dict[str, Any], dict[str, Any]]:
            server = self._run(ToolAttachToServer(to_infos(dicts)))
            return from_proc(self._me()), from_proc(server)

        status, names = attempt(attach)
        return (status, None, None) if names is None else (statuses.SUCCESS, *names)

    def connect_to_server(self, info: object = None) -> tuple[int, dict[str, Any] | None, dict[str, Any] | None]:
        """`PMIx_tool_attach_to_server`, by its name in the Standard's appendix."""
        return self.attach_to_server(info)

    def get_servers(self) -> tuple[int, list[dict[str, Any]]]:
        """`PMIx_tool_get_servers`: return the connected servers, the primary server first."""
        return self._answer(PROCS, ToolGetServers)

    def set_server(self, server: object, pyinfo: object = None) -> int:
        """`PMIx_tool_set_server`: make a server the primary server, which carries out later requests."""
        return self._do(lambda: ToolSetServer(to_proc(server), to_infos(pyinfo)))

    def set_server_module(self, map: object) -> int:
        """`PMIx_tool_set_server_module`: serve connections to this process, by the handlers of upcalls.

        The server runs on the Python engine, with the tool's name. Infos of `init` such as `PMIX_SERVER_TMPDIR`,
        `PMIX_SERVER_TOOL_SUPPORT` and `PMIX_SERVER_SCHEDULER` apply to it.
        """
        module = handlers(map)
        if module is None or self._facade is None:
            return statuses.ERR_INIT
        if self._hosting is not None:
            self._hosting.module = module
            return statuses.SUCCESS
        status, self._hosting = attempt(open_tool_server, self._me(), self._given, module)
        return status

    def iof_pull(self, pyprocs: object, iof_channel: object, pydirs: object, hdlr: object) -> tuple[int, int]:
        """`PMIx_IOF_pull`: returns the status and a number, -1 without one.

        The handler is called as `hdlr(number, channel, source, payload, infos)` with each piece of output.
        """
        registration = Registration(hdlr)

        def call(output: Output) -> None:
            payload, infos = from_bytes(output.data), from_infos(output.infos)
            registration.call(int(output.channel), from_proc(output.source), payload, infos)

        def pull() -> int:
            channels, procs = to_int(codes.IOF_CHANNEL, iof_channel), to_whom(pyprocs, self._me().nspace)
            handler = named_after(hdlr, call)
            number: int = self._run(
                IOFPull(procs, channels, to_infos(pydirs), handler=lambda output: callback(handler, output))
            )
            return number

        return registration.register(pull)

    def iof_deregister(self, regid: object, pydirs: object = None, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_IOF_deregister`; with a function, `cbfunc(status, cbdata)` is called at its end."""
        return self._either(cbfunc, cbdata, lambda: IOFDeregister(to_int(codes.SIZE, regid), to_infos(pydirs)))

    def iof_push(
        self, pytargets: object, data: object, pydirs: object = None, cbfunc: object = None, cbdata: object = None
    ) -> int:
        """`PMIx_IOF_push`: send bytes to the standard input of procs; with a function, `cbfunc(status, cbdata)`."""
        return self._either(
            cbfunc,
            cbdata,
            lambda: IOFPush(to_whom(pytargets, self._me().nspace), to_bytes(data), to_infos(pydirs)),
        )


CONNECTING = frozenset(
    attr.key
    for attr in (
        attrs.CONNECT_TO_SYSTEM,
        attrs.CONNECT_SYSTEM_FIRST,
        attrs.SERVER_PIDINFO,
        attrs.SERVER_URI,
        attrs.SERVER_NSPACE,
        attrs.TCP_URI,
        attrs.TOOL_ATTACHMENT_FILE,
        attrs.TOOL_DO_NOT_CONNECT,
        attrs.TOOL_CONNECT_OPTIONAL,
    )
)
"""The keys of infos that name a server."""


class PMIxScheduler(PMIxTool):
    """A scheduler: a tool whose handlers serve requests for sessions and resources, and which needs no server.

    The handlers are set by `set_server_module`, before or after `init`. If `init` is called with
    `PMIX_SERVER_SCHEDULER`, tools of the node that are to connect to the scheduler find it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._map: object = None

    def init(self, dicts: object = None, map: object = None) -> tuple[int, dict[str, Any]]:
        """`PMIx_tool_init`: returns the status and the scheduler's name; succeeds also without a server."""
        given = attempt(to_infos, dicts)[1]
        if given is not None and not any(info.key in CONNECTING for info in given):
            dicts = [*(dicts if isinstance(dicts, list | tuple) else ()), from_info(attrs.TOOL_CONNECT_OPTIONAL(True))]
        status, name = super().init(dicts)
        if status == statuses.SUCCESS and self._map is not None:
            status = super().set_server_module(self._map)
        return status, name

    def set_server_module(self, map: object) -> int:
        """`PMIx_tool_set_server_module`: serve connections, by the handlers of upcalls.

        Before `init` it stores the handlers for `init`, and returns `PMIX_ERR_INIT`.
        """
        if self._facade is None and handlers(map) is not None:
            self._map = map
            return statuses.ERR_INIT
        return super().set_server_module(map)
