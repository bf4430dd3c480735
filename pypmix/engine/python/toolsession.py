"""A tool on the Python engine: its servers, and the choice of the server for an operation.

Theory of operation
-------------------
A tool has any number of servers. Each is a `Member`: a separate client session, with its own machine and transport. It
differs from the session of a launched client in its handshake (`_greet`). One of them is the primary one; it carries
out all operations but these:

- The tool's own (`_OWN`): to connect to a server, to choose the primary one, to list the servers, and to leave a
  server. They block. If such an operation is submitted, it gets a separate thread (`_elsewhere`), and `_deliver`
  reports its end.
- Operations that take an id from a server's connection (`_SPENT`): they go to that connection. The ids that the tool
  returns (`_MINTED`) carry the connection's number in their upper bits.
- `Finalize`: it goes to all servers.

Without a server (`alone`), the primary member is a singleton. `_lock` guards the members and which is the primary one;
it is not held while the tool waits for a server. A lost server stays a member until another one joins: its session
gives the reason why operations fail.
"""

from __future__ import annotations

import _thread
import os
import sys
from time import monotonic, sleep

from pypmix._version import __version__
from pypmix.engine.common import EngineInfo, sleep_for
from pypmix.engine.peeruid import OWNER
from pypmix.engine.python.attachment import Aim, aim, candidates, identity, launched_by
from pypmix.engine.python.client import ENGINE, Client, ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.engine.python.session import (
    OPEN_WAIT,
    Session,
    adapts,
    client_hello,
    lone_job,
    singleton,
)
from pypmix.engine.python.transport import Connection, Front, connect
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import (
    LostConnection,
    NotInitialized,
    NotSupported,
    OperationTimeout,
    PMIxError,
    RemoteProtocolError,
    Unreachable,
)
from pypmix.standard.ops import (
    DeregisterEventHandler,
    Finalize,
    GroupUnwatch,
    GroupWatch,
    IOFDeregister,
    IOFPull,
    RegisterEventHandler,
    ToolAttachToServer,
    ToolDisconnect,
    ToolGetServers,
    ToolSetServer,
)
from pypmix.standard.releases import NEWEST, OLDEST_PEER, parse_release
from pypmix.standard.types import MAX_NSLEN, Info, Proc, Value
from pypmix.wire.additions import greeting
from pypmix.wire.handshake import (
    FLAG_LAUNCHER_NEEDS_ID,
    FLAG_TOOL_CLIENT,
    FLAG_TOOL_GIVEN_ID,
    FLAG_TOOL_NEEDS_ID,
    encode_hello,
)
from pypmix.wire.toolreply import NEEDS_ID, ToolReply, ToolReplyReader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar

    from pypmix.engine.base import Done
    from pypmix.engine.python.rendezvous import Contact
    from pypmix.standard._typing import TypeVar
    from pypmix.standard.ops import GroupState, Op
    from pypmix.standard.releases import Release

    R = TypeVar("R")

RECONNECT = "tool.reconnect"
"""The feature that a tool may connect again under a name that it has had before; natives refuse it."""

UNTOLD = (5, 0, 0)
"""The release that a server is taken for which is known by its URI only; the layouts of its neighbours differ least."""

MAX_TOLD = 6
"""Bound of the servers that an error names."""

_MINTED = (RegisterEventHandler, IOFPull, GroupWatch)
"""Operations that return an id that only the server's own connection knows."""

_SPENT = (DeregisterEventHandler, IOFDeregister, GroupUnwatch)
"""Operations that take such an id."""

_SHIFT = 40
"""The number of the lower bits of an id; the number of the connection is above them."""


class Member:
    """One of a tool's servers, or a placeholder for a tool without servers.

    Attributes:
        session: The connection to it.
        server: Its name; the tool's own name if there is no server.
        contact: Its contact; None if there is no server.
        number: The number of the member, unique among all members until now.
    """

    __slots__ = ("_machine", "contact", "number", "server", "session")

    def __init__(self, session: Session, machine: Client, server: Proc, contact: Contact | None, number: int) -> None:
        self.session = session
        self.server = server
        self.contact = contact
        self.number = number
        self._machine = machine

    @property
    def connected(self) -> bool:
        """Whether there is a server, and the connection is open."""
        return not self.session.singleton and self._machine.closed is None


class ToolSession:
    """An open tool; see `pypmix.engine.base.ToolSession`.

    Args:
        env: The environment.
        proc: The name that the tool has chosen; None if the server assigns one.
        launcher: Whether it launches jobs.
    """

    def __init__(self, env: Mapping[str, str], proc: Proc | None, launcher: bool) -> None:
        self.proc = proc or Proc("", 0)
        self.info = EngineInfo(ENGINE, "")
        self.server = ""
        self.singleton = True
        self._named = proc is not None
        self._launched = False
        self._env = env
        self._launcher = launcher
        self._hostname = env.get("PMIX_HOSTNAME") or os.uname().nodename
        self._members: list[Member] = []
        self._primary: Member | None = None
        self._number = 0
        self._closed = False
        self._attached = False
        self._lock: Any = _thread.RLock()
        self._arrivals: list[Any] = []
        """Locks that are released when another server joins, or no further server can join."""
        self._silent: set[str] = set()
        """The URIs of servers that did not finish a handshake in time."""
        self._finished: list[Callable[[], None]] = []
        self._front: Front | None = None

    # The interface of a session

    @property
    def connected(self) -> bool:
        return self._primary is not None and self._primary.connected

    def withdraw(self, done: Done[Any]) -> bool:
        """Return False: a tool withdraws from no collective."""
        return False

    def submit(self, op: Op[R], done: Done[R]) -> None:
        kind = type(op)
        if kind in self._OWN:
            if self._closed:
                raise _closed(op)
            if kind is ToolGetServers:
                self._settle(lambda: self._run_own(op), done)
            else:
                self._elsewhere(lambda: self._run_own(op), done)
        elif kind is Finalize:
            self._elsewhere(lambda: self._finalize(op), done)
        elif kind in _MINTED:
            member = self._member()
            member.session.submit(op, lambda result, error: done(_minted(member, result), error))
        elif kind in _SPENT:
            owner, inner = self._spent(op)
            if owner is None:
                done(None, None)
            else:
                owner.session.submit(inner, done)
        else:
            self._active().submit(op, done)

    def run(self, op: Op[R]) -> R:
        kind = type(op)
        if kind in self._OWN:
            if self._closed:
                raise _closed(op)
            return self._run_own(op)  # type: ignore[no-any-return]
        if kind is Finalize:
            return self._finalize(op)  # type: ignore[no-any-return]
        if kind in _MINTED:
            member = self._member()
            return _minted(member, member.session.run(op))  # type: ignore[no-any-return]
        if kind in _SPENT:
            owner, inner = self._spent(op)
            return None if owner is None else owner.session.run(inner)  # type: ignore[return-value]
        return self._active().run(op)  # type: ignore[no-any-return]

    def put(self, key: str, value: Value, scope: int) -> None:
        self._active().put(key, value, scope)

    def fetch_local(self, proc: Proc, key: str) -> Value | None:
        return self._active().fetch_local(proc, key)

    def group_state(self, name: str) -> GroupState | None:
        return self._active().group_state(name)

    def fileno(self) -> int:
        with self._lock:
            if self._front is None:
                self._front = Front(*[fd for member in self._members if (fd := member.session.fileno()) >= 0])
            return self._front.epoll.fileno()

    def attach(self) -> None:
        with self._lock:
            self.fileno()
            self._attached = True
            for member in self._members:
                member.session.attach()

    def detach(self) -> None:
        with self._lock:
            self._attached = False
            for member in self._members:
                member.session.detach()
        self._deliver()

    def poll(self) -> None:
        with self._lock:
            if self._front is not None:
                self._front.silence()
            members = list(self._members)
        self._deliver()
        for member in members:
            member.session.poll()

    def supports(self, feature: str) -> bool:
        if feature == RECONNECT:
            return (
                self._primary is not None and self._primary.contact is not None and bool(self._primary.contact.pypmix)
            )
        return self._active().supports(feature)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._attached = False
            for member in self._members:
                member.session.close()
            for arrival in self._arrivals:
                arrival.release()
            self._arrivals.clear()
            if self._front is not None:
                self._front.close()
                self._front = None
        self._deliver()

    def forked(self) -> None:
        self._closed = True
        for member in self._members:
            member.session.forked()
        if self._front is not None:
            self._front.close()
            self._front = None

    # Servers

    def alone(self) -> None:
        """Go on without a server."""
        if not self._named:
            self.proc = Proc(f"{self._hostname}:{os.getpid()}"[:MAX_NSLEN], 0)
            self._named = True
        machine = singleton(self._env, self.proc)
        with self._lock:
            self._lead(self._join(Session(machine, None), machine, self.proc, None))

    def connect(self, target: Aim) -> Proc:
        """Connect to the server that is wanted; see `open_tool`."""
        tries = target.retries
        while True:
            error = self._try(target)
            if error is None:
                assert self._newest is not None
                return self._newest.server
            if not tries:
                raise error
            tries -= 1
            sleep(sleep_for(target.delay))

    def _try(self, target: Aim) -> PMIxError | None:
        """Connect to the first server that accepts the tool; return an error if no server does."""
        try:
            servers = candidates(target, self._env)
        except Unreachable as error:
            return error
        refused: list[PMIxError] = []
        # Silent servers are tried last: each takes its whole time limit.
        for contact in sorted(servers, key=lambda each: each.uri in self._silent):
            joined = self._by_uri(contact.uri)
            if joined is not None:
                # A search looks for a server that is not a member yet.
                if not target.explicit:
                    continue
                member = joined
            else:
                try:
                    member = self._greet(contact, target)
                except (Unreachable, NotSupported, LostConnection, RemoteProtocolError) as error:
                    refused.append(error)
                    if error.status == statuses.ERR_TIMEOUT:
                        self._silent.add(contact.uri)
                    continue
            with self._lock:
                self._newest = member
                if target.primary or not self.connected:
                    self._lead(member)
            return None
        if len(refused) == 1:
            return refused[0]
        if refused:
            # Dead servers may have left any number of files: they are tried last.
            refused.sort(key=lambda error: error.status == statuses.ERR_UNREACH)
            details = [error.detail for error in refused[:MAX_TOLD]]
            if len(refused) > MAX_TOLD:
                details.append(f"and {len(refused) - MAX_TOLD} more")
            others = [error.status for error in refused if error.status != statuses.ERR_UNREACH]
            return Unreachable(
                f"none of the servers found lets this tool in: {'; '.join(details)}",
                status=others[0] if others else None,
                operation="open",
                engine=ENGINE,
            )
        return Unreachable(
            f"there is no {str(target).removeprefix('a ')} on this node" + _list_other_servers(target, self._env),
            operation="open",
            engine=ENGINE,
            hint="does it run, is it of this user, and does it write its files into the folder that "
            "TMPDIR or attrs.SERVER_TMPDIR names?",
        )

    _newest: Member | None = None

    def _greet(self, contact: Contact, target: Aim) -> Member:
        """Introduce the tool to a server.

        Raises:
            Unreachable: There is no server, or it refuses the tool.
            NotSupported: This engine does not support its release.
        """
        release = _release(contact)
        own = launched_by(self._env)
        launched = self._launched or (not self._named and own is not None and own.uri == contact.uri)
        proc = identity(self._env) if launched else self.proc
        flag = FLAG_TOOL_CLIENT if launched else FLAG_TOOL_GIVEN_ID if self._named else FLAG_TOOL_NEEDS_ID
        if self._launcher:
            flag += FLAG_LAUNCHER_NEEDS_ID - FLAG_TOOL_NEEDS_ID
        described = self._env.get("PMIX_BFROP_BUFFER_TYPE") == "PMIX_BFROP_BUFFER_FULLY_DESC"
        ours = adapts(self._env, contact.nspace) if own is not None and own.uri == contact.uri else bool(contact.pypmix)
        server = ServerInfo(contact.name, release, 2 if described else 1, tool=True, adapts=ours)
        hello = client_hello({**self._env, "PMIX_VERSION": ".".join(map(str, release))}, proc, server)
        infos = [Info(keys.PROC_PID, Value(codes.PID, os.getpid())), Info(keys.CMD_LINE, _command_line())]
        if contact.pypmix:
            infos.append(greeting(__version__))
        hello = hello.replace(flag=flag, uid=os.geteuid(), gid=os.getegid(), infos=(*target.others, *infos))
        deadline = monotonic() + (target.timeout or OPEN_WAIT)
        sock = connect(contact.address, contact.local, (contact.owner,), self._env.get(OWNER, ""), contact.alive)
        try:
            reply, rest = _exchange(sock, encode_hello(hello), ToolReplyReader(flag), contact, deadline)
        except BaseException:
            sock.close()
            raise
        if flag in NEEDS_ID:
            assert reply.proc is not None
            proc = reply.proc
        store = DataStore(proc, self._hostname, release)
        if not launched:
            store.add_job(lone_job(proc, self._hostname))
        machine = Client(proc, store, server)
        connection = Connection(sock, machine)
        try:
            call = machine.begin(rest, deadline)
            connection.open(call)
        except BaseException:
            connection.close()
            raise
        assert call.outcome is not None
        error = call.outcome[1]
        if error is not None and (launched or machine.closed is not None or isinstance(error, Unreachable)):
            connection.close()
            raise error
        # A server without job info of a tool need not send any: the tool has these values already.
        store.keep(keys.SERVER_NSPACE, Value.unchecked(codes.STRING, reply.server.nspace))
        store.keep(keys.SERVER_RANK, Value.unchecked(codes.PROC_RANK, reply.server.rank))
        store.keep(keys.SERVER_URI, Value.unchecked(codes.STRING, contact.uri))
        with self._lock:
            if self._closed:
                connection.close()
                raise NotInitialized("the tool was closed meanwhile", operation="tool_attach_to_server")
            self.proc, self._named, self._launched = proc, True, launched
            return self._join(Session(machine, connection), machine, reply.server, contact)

    def _join(self, session: Session, machine: Client, server: Proc, contact: Contact | None) -> Member:
        member = Member(session, machine, server, contact, self._number)
        self._number += 1
        for other in [each for each in self._members if not each.connected and each is not self._primary]:
            other.session.close()
            self._members.remove(other)
        self._members.append(member)
        if self._attached:
            session.attach()
        if self._front is not None and (fd := session.fileno()) >= 0:
            self._front.add(fd)
        for arrival in self._arrivals:
            arrival.release()
        self._arrivals.clear()
        return member

    def _lead(self, member: Member) -> None:
        """Make a server the primary one."""
        self._primary = member
        self.info, self.server, self.singleton = member.session.info, member.session.server, member.session.singleton

    def _member(self) -> Member:
        if self._primary is None:
            raise NotInitialized("the tool is not open")
        return self._primary

    def _active(self) -> Session:
        return self._member().session

    def _by_uri(self, uri: str) -> Member | None:
        there = [each for each in self._members if each.connected]
        return next((each for each in there if each.contact is not None and each.contact.uri == uri), None)

    def _by_name(self, server: Proc) -> Member | None:
        return next((each for each in self._members if each.connected and each.server == server), None)

    # The operations of a tool

    def _run_own(self, op: Op[Any]) -> Any:
        return self._OWN[type(op)](self, op)

    def _attach_to_server(self, op: ToolAttachToServer) -> Proc:
        try:
            target = aim(op.directives)
        except (TypeError, ValueError) as error:
            raise PMIxError(str(error), status=statuses.ERR_BAD_PARAM, operation=op.name, engine=ENGINE) from None
        try:
            return self.connect(target)
        except PMIxError as error:
            error.operation = op.name
            raise

    def _set_server(self, op: ToolSetServer) -> None:
        wait, limit = False, 0
        for info in op.directives:
            if info.key == keys.WAIT_FOR_CONNECTION:
                wait = info.value.data is not False
            elif info.key == keys.TIMEOUT:
                # Threads cannot wait for centuries.
                limit = min(max(0, int(info.value.data)), 1 << 31)
        deadline = monotonic() + limit if limit else None
        while True:
            arrival = _thread.allocate_lock()
            arrival.acquire()
            with self._lock:
                member = self._by_name(op.server)
                if member is not None:
                    self._lead(member)
                    return
                if op.server == self.proc:
                    self.alone()
                    return
                self._arrivals.append(arrival)
            if self._closed:
                raise _closed(op)
            if not wait:
                self._arrivals.remove(arrival)
                raise Unreachable(
                    f"the tool is not connected to {op.server}",
                    operation=op.name,
                    engine=ENGINE,
                    procs=(op.server,),
                    hint="connect to it first, with attach_to_server()",
                )
            left = -1.0 if deadline is None else max(0.0, deadline - monotonic())
            if not arrival.acquire(True, left):
                with self._lock:
                    if arrival in self._arrivals:
                        self._arrivals.remove(arrival)
                raise OperationTimeout(
                    f"the tool was not connected to {op.server} within {limit} s",
                    operation=op.name,
                    engine=ENGINE,
                    procs=(op.server,),
                )

    def _get_servers(self, op: ToolGetServers) -> tuple[Proc, ...]:
        with self._lock:
            there = [member for member in self._members if member.connected]
            return tuple([each.server for each in sorted(there, key=lambda member: member is not self._primary)])

    def _disconnect(self, op: ToolDisconnect) -> None:
        with self._lock:
            member = self._by_name(op.server)
        if member is None:
            raise Unreachable(
                f"the tool is not connected to {op.server}", operation=op.name, engine=ENGINE, procs=(op.server,)
            )
        try:
            member.session.run(Finalize())
        except PMIxError:
            pass  # It is left in any case.
        with self._lock:
            member.session.close()
            if member in self._members:
                self._members.remove(member)
            if self._primary is member:
                self.alone()

    _OWN: ClassVar[dict[type, Callable[[ToolSession, Any], Any]]] = {
        ToolAttachToServer: _attach_to_server,
        ToolSetServer: _set_server,
        ToolGetServers: _get_servers,
        ToolDisconnect: _disconnect,
    }

    def _finalize(self, op: Op[Any]) -> Any:
        failures: list[PMIxError] = []
        for member in list(self._members):
            if member.connected or member.session.singleton:
                try:
                    member.session.run(op)
                except PMIxError as error:
                    failures.append(error)
        if failures:
            raise failures[0]

    def _spent(self, op: Any) -> tuple[Member | None, Any]:
        """Return the member to which an operation's id belongs, and the operation with the id of that connection."""
        number = op.id >> _SHIFT
        owner = next((member for member in self._members if member.number == number), None)
        return owner, op.replace(id=op.id & ((1 << _SHIFT) - 1))

    # Submitted operations, which the caller's thread does not wait for

    def _elsewhere(self, function: Callable[[], Any], done: Done[Any]) -> None:
        _thread.start_new_thread(self._settle, (function, done))

    def _settle(self, function: Callable[[], Any], done: Done[Any]) -> None:
        try:
            result, failure = function(), None
        except BaseException as error:
            result, failure = None, error
        with self._lock:
            self._finished.append(lambda: done(result, failure))
            if self._attached and self._front is not None:
                # An event loop wants this in its own thread.
                self._front.ring()
                return
        self._deliver()

    def _deliver(self) -> None:
        while self._finished:
            try:
                function = self._finished.pop(0)
            except IndexError:
                return
            try:
                function()
            except Exception:
                sys.excepthook(*sys.exc_info())


def open_tool(env: Mapping[str, str] | None = None, directives: tuple[Info, ...] = ()) -> ToolSession:
    """Open a tool (`PMIx_tool_init`): find a server of this node and connect to it.

    Args:
        env: The environment; by default the environment of this process.
        directives: The directives of `ToolAttachToServer`, and `attrs.TOOL_NSPACE`, `attrs.TOOL_RANK`,
            `attrs.TOOL_DO_NOT_CONNECT`, `attrs.TOOL_CONNECT_OPTIONAL` and `attrs.LAUNCHER`.

    Raises:
        Unreachable: No such server is found, or it refuses this tool.
        NotSupported: This engine does not support the server's release or security module.
        ValueError, TypeError: The directives are not valid.
    """
    env = os.environ if env is None else env
    target = aim(directives)
    proc = Proc(target.tool_nspace, target.tool_rank) if target.tool_nspace else None
    session = ToolSession(env, proc, target.launcher)
    try:
        if target.apart:
            session.alone()
        else:
            try:
                session.connect(target)
            except Unreachable:
                if not target.optional:
                    raise
                session.alone()
    except BaseException:
        session.close()
        raise
    return session


def _exchange(
    sock: socket, message: bytes, reader: ToolReplyReader, contact: Contact, deadline: float
) -> tuple[ToolReply, bytes]:
    """Carry out the handshake; return the answer, and the bytes received after it."""
    answer: ToolReply | int | None = None
    data = b"more"
    try:
        sock.settimeout(max(0.001, sleep_for(deadline - monotonic())))
        sock.sendall(message)
        while data and answer is None:
            sock.settimeout(max(0.001, sleep_for(deadline - monotonic())))
            data = sock.recv(65536)
            answer = reader.feed(data)
        sock.settimeout(None)
    except RemoteProtocolError:
        raise
    except TimeoutError:
        raise Unreachable(
            f"the server {_called(contact)} accepted the connection and did not finish the handshake in time",
            status=statuses.ERR_TIMEOUT,
            operation="open",
            engine=ENGINE,
            hint="is it stopped, or very busy?",
        ) from None
    except OSError as error:
        raise _refused(contact, f"broke the connection during the handshake: {error.strerror or error}") from None
    if answer is None:
        raise _refused(contact, "closed the connection during the handshake, which is how servers refuse")
    if isinstance(answer, int):
        raise _refused(contact, f"refused this tool with {_status(answer)}")
    if answer.verdict:
        raise _refused(contact, f"refused the credential of this tool with {_status(answer.verdict)}")
    if contact.path and answer.server.nspace != contact.nspace:
        raise _refused(contact, f"is gone; {answer.server} has its port now")
    return answer, reader.rest


def _list_other_servers(target: Aim, env: Mapping[str, str]) -> str:
    """Return a phrase that lists the other servers of the node, for the error of a server that was not found."""
    if not (target.pid or target.nspace):
        return ""
    there = [contact for contact in candidates(Aim(host=target.host, tmpdir=target.tmpdir), env) if contact.alive]
    names = [_called(contact) for contact in there[:MAX_TOLD]]
    if len(there) > MAX_TOLD:
        names.append(f"{len(there) - MAX_TOLD} more")
    return f", but there are {', '.join(names)}" if names else ""


def _called(contact: Contact) -> str:
    return contact.nspace + (f" (pid {contact.pid})" if contact.pid else "")


def _refused(contact: Contact, what: str) -> Unreachable:
    return Unreachable(
        f"the server {_called(contact)} {what}",
        operation="open",
        engine=ENGINE,
        hint="does it admit tools, and is it of the same user?",
    )


def _status(status: int) -> str:
    return f"{PMIxError('', status=status).status.name} {status}"


def _release(contact: Contact) -> Release:
    if not contact.release:
        return UNTOLD
    try:
        release = parse_release(contact.release)
    except ValueError:
        return UNTOLD
    if release < OLDEST_PEER:
        raise NotSupported(
            f"the server {contact.name} is of release {contact.release}, which this engine does not speak to",
            operation="open",
            engine=ENGINE,
        )
    return min(release, NEWEST)


def _command_line() -> Value:
    text = " ".join(sys.orig_argv).replace("\0", " ")
    return Value(codes.STRING, text[:4096])


def _minted(member: Member, result: Any) -> Any:
    return result | member.number << _SHIFT if isinstance(result, int) else result


def _closed(op: Op[Any]) -> NotInitialized:
    return NotInitialized("the tool is closed", operation=op.name, engine=ENGINE, hint="open a new one")
