"""The native engine's tool session: a process that finds its servers and connects to any number of them."""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.asking import Asking, Row
from pypmix.engine.native.library import open_library, same_environment, usage
from pypmix.engine.native.quirks import ENDS_ALONE, SERVER_BY_SERVER, raises_twice
from pypmix.engine.native.session import NativeSession
from pypmix.engine.native.structs import get_name
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import (
    EngineUnavailable,
    NotSupported,
    OperationTimeout,
    PMIxError,
    Unreachable,
    error_for,
)
from pypmix.standard.ops import (
    DeregisterEventHandler,
    Finalize,
    IOFDeregister,
    NotifyEvent,
    ToolAttachToServer,
    ToolDisconnect,
    ToolGetServers,
    ToolSetServer,
)
from pypmix.standard.ops.events import is_set
from pypmix.standard.releases import release_text
from pypmix.standard.types import Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from pypmix.engine.base import Done, R
    from pypmix.engine.native.asking import Steps
    from pypmix.engine.native.library import Library
    from pypmix.standard.ops import Op


FOREVER = 500_000_000
"""The timeout, in seconds, of a wait without a limit.

libpmix counts quarters of seconds in 32 bits, and does not wait at all without a timeout.
"""

_UNASKED = {"events": DeregisterEventHandler, "forwarding": IOFDeregister}
"""The topics whose messages a server sends unrequested, and the operation that takes an id of the topic."""

_OWN = (ToolAttachToServer, ToolSetServer, ToolGetServers, ToolDisconnect)


def open_tool(env: Mapping[str, str], library: Library, directives: Sequence[Info] = ()) -> ToolSession:
    """`PMIx_tool_init`: load a library, find a server and connect to it.

    Args:
        env: The environment that names servers. It must equal the process's environment, which libpmix reads.
        library: The result of `find_library`.
        directives: Infos for `PMIx_tool_init`.

    Raises:
        EngineUnavailable: The library cannot be loaded, or this process uses a library already.
        Unreachable: The server does not exist, or does not admit this tool.
        ValueError: `env` names other servers than the process's environment.
    """
    same_environment(env)
    open_library(library)
    engine = f"native {release_text(library.release)}"
    if usage.opened or usage.spent:
        reason = usage.spent or "it is in use already, and has one identity in a process"
        raise EngineUnavailable(
            f"libpmix {release_text(library.release)} cannot be a tool in this process: {reason}",
            operation="open",
            engine=engine,
            hint="use attach_to_server() of the tool that is open, or PYPMIX_ENGINE=python",
        )
    session = ToolSession(env, library, directives)
    usage.tool = True
    return session


class ToolSession(NativeSession):
    """An open tool; see `pypmix.engine.base.ToolSession`. `open_tool` creates it."""

    def __init__(self, env: Mapping[str, str], library: Library, directives: Sequence[Info]) -> None:
        super().__init__(env, library, directives)
        self._servers = Servers(self)
        self._earlier: list[Any] = []
        self._led = True
        self.stands = not self.singleton
        self.answers_twice = raises_twice(library.release)
        self.server = ""
        self._name_server(self._servers.there() if self.stands else ())

    @property
    def connected(self) -> bool:
        return self.open and self.stands and bool(lib.pypmix_connected())

    @property
    def job(self) -> str:
        return ""

    def run(self, op: Op[R]) -> R:
        if type(op) in _OWN:
            self._check_open(op)
            return self._servers.run(op)  # type: ignore[no-any-return]
        self._note(op)
        owner = self._owner(op)
        if owner is not None:
            return owner.run(op)  # type: ignore[no-any-return]
        return super().run(op)

    def submit(self, op: Op[R], done: Done[R]) -> None:
        if type(op) in _OWN:
            self._check_open(op)
            try:
                self._servers.submit(op, done)
            except Exception as error:
                done(None, error)
            return
        self._note(op)
        owner = self._owner(op)
        if owner is None:
            super().submit(op, done)
        else:
            owner.submit(op, done)

    # Differences from a client

    def _init(self, env: Mapping[str, str], infos: Any, count: int) -> tuple[Proc, bool]:
        here = ffi.new("pmix_proc_t *")
        status = lib.pypmix_tool_init(here, infos, count)
        if status == 0:
            return Proc(get_name(here.nspace), here.rank), not lib.pypmix_connected()
        usage.spent = "its first connection failed"
        kind: type[PMIxError] = Unreachable
        text = "there is no such server on this node, or it does not let this tool in"
        if status == statuses.ERR_BAD_PARAM:
            kind, text = error_for(status), "the directives make no sense to the library"
        raise kind(text, status=status, operation="open", engine=str(self.info), hint="does it run, and admit tools?")

    def _stop(self) -> int:
        usage.tool = False
        if self.release < ENDS_ALONE and not self._led:
            usage.spent = "its last server was left before it was finalized, which would corrupt its memory"
            return 0
        return int(lib.pypmix_tool_finalize())

    def _finalize(self, op: Finalize) -> None:
        if self.stands and not lib.pypmix_connected():
            self._down()
        if self.open and not self.stands:
            servers = self._servers.there()
            if servers:
                self._servers.run(ToolSetServer(servers[0]))
            self._led = bool(servers)
        super()._finalize(op)

    def lose(self) -> None:
        self._down()

    def leave(self, *, server_lost: bool = False) -> None:
        super().leave(server_lost=server_lost)
        for inbox, _topics in self._earlier:
            inbox.end(None)

    def _check_open(self, op: Op[Any]) -> None:
        if not self.open:
            self.closed(op.name)

    # Changes of servers

    def _name_server(self, servers: Sequence[Proc]) -> None:
        self.server = _text(servers[0]) if servers else ""

    def _down(self) -> None:
        """Handle the loss of the primary server: end its events, output and groups."""
        if self.stands:
            self.stands = False
            lib.pypmix_queue_serve(self.queue, False)
            self._part(True)

    def _part(self, server_lost: bool | None) -> None:
        """Separate the events, output and groups of the previous primary server from those of the next.

        Args:
            server_lost: True if the previous server is lost, False if the tool disconnected from it. None if it is
                still connected: its events and output continue to arrive.
        """
        inbox, self._inbox = self._inbox, None
        groups, self.groups = self.groups, None
        if groups is not None:
            groups.leave()
            self._topics.pop("groups", None)
        topics: dict[str, Any] = {name: self._topics.pop(name) for name in _UNASKED if name in self._topics}
        if "events" in topics:
            self.last_handler = topics["events"].handlers.last_id
        removed = {*topics, "groups"}
        for operation in [kind for kind in self._runners if kind.__module__.rpartition(".")[2] in removed]:
            del self._runners[operation]
        if inbox is not None:
            if server_lost is None:
                self._earlier.append((inbox, topics))
            else:
                inbox.end(self.loss(procs=(self.proc,)) if server_lost else None)

    def _owner(self, op: Op[Any]) -> Any:
        """Return the topic of an earlier server if an operation takes an id of that topic."""
        asked: Any = op
        name = next((name for name, kind in _UNASKED.items() if type(asked) is kind), "")
        for _inbox, topics in self._earlier if name else ():
            if name in topics and topics[name].has(asked.id):
                return topics[name]
        return None

    def _note(self, op: Op[Any]) -> None:
        """Note a raised event for the handlers that are registered with earlier servers: they are called, too."""
        if type(op) is NotifyEvent:
            for _inbox, topics in self._earlier:
                if "events" in topics:
                    topics["events"].note(op)

    def lead(self, server: Proc | None, *, dropped: bool = False) -> None:
        """Make another server the primary server.

        Args:
            server: The server; None if the tool has no primary server from now on.
            dropped: True if the tool disconnected from the previous server.
        """
        was, self.singleton = self.singleton, server is None
        self._part(False if dropped else True if not self.stands else None)
        self.stands = server is not None
        self.again = not was and self.release < SERVER_BY_SERVER
        lib.pypmix_queue_serve(self.queue, self.stands)
        self._name_server((server,) if server else ())


class Servers(Asking):
    """The requests of a tool to its library: attach, switch, list the servers, disconnect."""

    session: ToolSession

    def steps(self, op: Any) -> Steps:
        """Call the library, and update the session's primary server."""
        result = yield from super().steps(op)
        session = self.session
        if type(op) is ToolGetServers:
            return self._real(result)
        if type(op) is ToolAttachToServer:
            (server,) = result
            if is_set(op.directives, keys.PRIMARY_SERVER) or not session.connected:
                yield from super().steps(ToolSetServer(server))
                session.lead(server)
            return server
        if type(op) is ToolSetServer:
            if session.server != _text(op.server) or not session.stands:
                session.lead(op.server)
        elif type(op) is ToolDisconnect and session.server == _text(op.server):
            session.lead(None, dropped=True)
        return result

    def there(self) -> tuple[Proc, ...]:
        """Return the servers, the primary one first."""
        found: tuple[Proc, ...] = self.run(ToolGetServers())
        return found

    def _real(self, servers: tuple[Proc, ...]) -> tuple[Proc, ...]:
        """Remove procs that are not servers, and servers that are lost, from an answer of the library."""
        session = self.session
        lost_server = "" if session.stands else session.server
        return tuple([each for each in servers if each.nspace and each != session.proc and _text(each) != lost_server])

    def directives(self, op: Any) -> tuple[Info, ...]:
        if type(op) is ToolSetServer and is_set(op.directives, keys.WAIT_FOR_CONNECTION):
            # libpmix reads the value as the type that it expects, whatever the type of the value is.
            limit = next((int(info.value.data) for info in op.directives if info.key == keys.TIMEOUT), 0) or FOREVER
            return (
                *[info for info in op.directives if info.key != keys.TIMEOUT],
                Info.unchecked(keys.TIMEOUT, Value.unchecked(codes.INT, min(limit, FOREVER)), 0),
            )
        if type(op) is ToolAttachToServer:
            # Releases up to 6.1 free a server twice at the end if the attach makes it the primary server.
            return tuple([info for info in op.directives if info.key != keys.PRIMARY_SERVER])
        return getattr(op, "directives", ())

    def limit(self, op: Any) -> float:
        return -1.0

    def fault(self, op: Any, call: Any) -> int:
        status = super().fault(op, call)
        return 0 if type(op) is ToolGetServers and status == statuses.ERR_UNREACH else status

    def error(self, op: Any, status: int) -> PMIxError:
        session = self.session
        engine, procs = str(session.info), _named(op)
        if not session.open:
            return session.failed(op.name, statuses.ERR_LOST_CONNECTION)
        if type(op) is ToolSetServer and status == statuses.ERR_NOT_FOUND:
            text = f"the tool was not connected to {op.server} in time"
            return OperationTimeout(text, status=statuses.ERR_TIMEOUT, operation=op.name, engine=engine, procs=procs)
        if type(op) is ToolAttachToServer:
            text = "there is no such server on this node, or it does not let this tool in"
            return Unreachable(text, status=status, operation=op.name, engine=engine)
        if status in (statuses.ERR_UNREACH, statuses.ERR_NOT_FOUND):
            text = f"the tool is not connected to {procs[0]}"
            hint = "connect to it first, with attach_to_server()"
            return Unreachable(text, status=status, operation=op.name, engine=engine, procs=procs, hint=hint)
        return error_for(status)("the library refused it", status=status, operation=op.name, engine=engine, procs=procs)

    def row(self, op: Any) -> Row:
        if type(op) is ToolSetServer and op.server == self.session.proc:
            raise NotSupported(
                "libpmix takes a tool for connected that is its own server; disconnect from the others instead",
                operation=op.name,
                engine=str(self.session.info),
            )
        if type(op) is ToolAttachToServer and not self.directives(op):
            raise error_for(statuses.ERR_BAD_PARAM)(
                "libpmix needs to be told which server is meant",
                status=statuses.ERR_BAD_PARAM,
                operation=op.name,
                engine=str(self.session.info),
            )
        return self.rows[type(op)]


def _text(server: Proc) -> str:
    return f"{server.nspace}.{server.rank}"


def _named(op: Any) -> tuple[Proc, ...]:
    return (op.server,) if hasattr(op, "server") else ()


def _server(topic: Asking, op: Any, parameters: Any) -> None:
    topic.marshal.fill(parameters.items, codes.PROC, (op.server,))


def _procs(topic: Asking, call: Any) -> tuple[Proc, ...]:
    return topic.marshal.results(call.results)


Servers.rows = {
    ToolAttachToServer: Row(lib.PYPMIX_TOOL_ATTACH, take=_procs),
    ToolSetServer: Row(lib.PYPMIX_TOOL_SET_SERVER, _server),
    ToolGetServers: Row(lib.PYPMIX_TOOL_GET_SERVERS, take=_procs),
    ToolDisconnect: Row(lib.PYPMIX_TOOL_DISCONNECT, _server),
}
