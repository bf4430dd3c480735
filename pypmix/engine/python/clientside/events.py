"""The client's side of events: registrations with the server, received events, and events of this process."""

from __future__ import annotations

from pypmix.engine.chain import Handler, Handlers, RaisedEvents
from pypmix.engine.groups import TAKEN_IN
from pypmix.engine.python.client import Operation
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import (
    SUCCESSES,
    LocalProtocolError,
    NotInitialized,
    PMIxError,
    RemoteProtocolError,
)
from pypmix.standard.ops import DeregisterEventHandler, Notification, NotifyEvent, RegisterEventHandler
from pypmix.standard.ops.events import (
    DIRECTIVES,
    RANGE_PROC_LOCAL,
    matches_any,
    procs_in,
)
from pypmix.standard.types import RANK_UNDEF, Info, Proc, Value, decimal
from pypmix.wire.frames import TAG_NOTIFY
from pypmix.wire.messages import EVENT, Command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.python.client import Call, Client

TOPIC = "events"


DEFAULT = -(2**31)
"""The code that stands for all codes in a message that needs a code."""


NO_CODES_FROM = (7, 0, 0)
"""The first release whose servers accept a registration without codes.

Earlier ones answer it with success and forget it. But for an event they look for registrations of `DEFAULT`, which a
client can register like any code.
"""

_FAILURES = {
    statuses.ERR_NOT_SUPPORTED: "the server's host does not report such events",
}


class _Interest:
    """The registration of a code with the server.

    Attributes:
        handlers: How many handlers are for it.
        leader: The registration that was sent to the server, until the answer.
        registered: Whether the server has accepted it.
    """

    __slots__ = ("handlers", "leader", "registered")

    def __init__(self) -> None:
        self.handlers = 0
        self.leader: Call | None = None
        self.registered = False


class ClientEvents:
    """The events of one client."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._interests: dict[int, _Interest] = {}
        self._registering: dict[Call, Handler] = {}
        self._server = _server_of(client)
        host = self._server[0]
        # The transport sets `enter` after the machine was made.
        self.handlers = Handlers(client.proc, host, lambda step: client.enter(step), client.tell, self._release)
        self._raised = RaisedEvents()
        client.at_loss.append(self._handle_disconnect)
        client.at_resume.append(self.handlers.recover)

    # Registration

    def register(self, call: Call, op: RegisterEventHandler) -> None:
        """Begin a registration."""
        handler = self.handlers.add(op)
        self._registering[call] = handler
        for code in self._registration_codes(handler):
            self._interests.setdefault(code, _Interest()).handlers += 1
        try:
            self._advance(call)
        except LocalProtocolError:
            del self._registering[call]
            self.handlers.remove(handler.id)
            raise

    def registered(self, call: Call, status: int) -> None:
        """The server has answered a registration."""
        for interest in self._interests.values():
            if interest.leader is call:
                interest.leader = None
                interest.registered = status in SUCCESSES
        if status in SUCCESSES:
            self._advance(call)
        else:
            self.handlers.remove(self._registering.pop(call).id)
            self._client.settle(call, status, failures=_FAILURES)
        followers, call.followers = call.followers, ()
        for follower in followers:
            self._advance(follower)

    def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
        """See `Handlers.watch`; it is registered with the server like a handler, without waiting for the answer."""
        self.handlers.watch(code, watcher)
        if self._client.server is not None:
            interest = self._interests.setdefault(code, _Interest())
            interest.handlers += 1
            if not interest.registered and interest.leader is None:
                interest.registered = True
                self._client.listeners[TAG_NOTIFY] = self._arrived
                self._client.send(_request(self._client, (code,), ()))

    def _registration_codes(self, handler: Handler) -> tuple[int, ...]:
        """Return the codes of which the server must know for a handler."""
        if self._client.server is None or handler.range == RANGE_PROC_LOCAL:
            return ()
        return handler.codes or (DEFAULT,)

    def _advance(self, call: Call) -> None:
        """Take a registration as far as it can go now."""
        client, handler = self._client, self._registering[call]
        interests = {code: self._interests[code] for code in self._registration_codes(handler)}
        new = [code for code, interest in interests.items() if not interest.registered and interest.leader is None]
        op = call.op
        assert isinstance(op, RegisterEventHandler)
        if new:
            client.listeners[TAG_NOTIFY] = self._arrived
            directives = tuple([info for info in op.directives if info.key not in DIRECTIVES])
            client.request(call, _request(client, new, directives))
            for code in new:
                interests[code].leader = call
            return
        for interest in interests.values():
            if interest.leader is not None:
                interest.leader.followers += (call,)
                return
        del self._registering[call]
        if call.outcome is not None:
            # The caller has given up, and could never deregister it.
            self.handlers.remove(handler.id)
            return
        client.end(call, handler.id)
        self.handlers.activate(handler)

    def _release(self, handler: Handler) -> None:
        self._forget(self._registration_codes(handler))

    def _forget(self, event_codes: tuple[int, ...]) -> None:
        """Count one handler less for these codes; deregister the codes that have no handler left."""
        client = self._client
        unused = []
        for code in event_codes:
            interest = self._interests[code]
            interest.handlers -= 1
            if not interest.handlers:
                del self._interests[code]
                if interest.registered or interest.leader is not None:
                    unused.append(code)
        if client.closed is not None:
            return
        if unused:
            client.send(client.encode(Command.DEREGEVENTS, codes=unused))
        if not self._interests:
            client.listeners.pop(TAG_NOTIFY, None)

    # Events

    def raised(self, op: NotifyEvent) -> None:
        """Run this process's own handlers, to which no server brings what the process has raised itself."""
        client = self._client
        targets = procs_in(op.infos, keys.EVENT_CUSTOM_RANGE)
        if targets is None or matches_any(client.proc, targets):
            # The server keeps it for late handlers of this process, unless its range is this process alone.
            keep = client.server is None or op.range == RANGE_PROC_LOCAL
            if not keep:
                self._raised.add(op)
            notification = Notification(int(op.code), client.proc, int(op.range), op.infos)
            if self.handlers.start_chain(notification, keep) and not keep:
                self._raised.match_delivery(op.code, op.infos)

    def _arrived(self, payload: bytes) -> None:
        client = self._client
        try:
            event = EVENT.decode(payload, client.buffer_type, client.release)
            targets = procs_in(event["infos"], keys.EVENT_CUSTOM_RANGE)
        except (RemoteProtocolError, TypeError) as error:
            client.pass_on(_complain, error)
            return
        if targets is None or matches_any(client.proc, targets):
            infos = tuple([info for info in event["infos"] if info.key != keys.INTERNAL_NOTIFY])
            if event["source"] == client.proc and not self._raised.match_delivery(event["code"], infos)[0]:
                return
            notification = Notification(event["code"], event["source"], event["range"], infos)
            self.handlers.start_chain(notification, True, effect=client.effect)

    def _handle_disconnect(self) -> None:
        client = self._client
        self._registering.clear()
        error = client.closed() if client.closed is not None and not client.finalizing else None
        if error is not None and not isinstance(error, NotInitialized):
            server = Value.unchecked(codes.PROC, self._server)
            infos = (Info.unchecked(keys.EVENT_AFFECTED_PROC, server, 0),)
            self.handlers.start_chain(
                Notification(statuses.ERR_LOST_CONNECTION, self._server, RANGE_PROC_LOCAL, infos), False
            )
            self.handlers.end(error)
        else:
            self.handlers.end(None)


def events_of(client: Client) -> ClientEvents:
    """Return the events of a client."""
    found = client.topics.get(TOPIC)
    if found is None:
        found = client.topics[TOPIC] = ClientEvents(client)
    assert isinstance(found, ClientEvents)
    return found


def _server_of(client: Client) -> Proc:
    nspace, _, rank = client.server.name.rpartition(".") if client.server is not None else ("", "", "")
    return Proc.unchecked(nspace, RANK_UNDEF if (number := decimal(rank)) is None else number)


def _request(client: Client, event_codes: list[int] | tuple[int, ...], directives: tuple[Info, ...]) -> bytes:
    if client.release >= NO_CODES_FROM and DEFAULT in event_codes:
        event_codes = ()
    return client.encode(Command.REGEVENTS, codes=event_codes, infos=directives)


def _complain(error: Exception) -> None:
    from pypmix.standard.logtext import get_logger

    get_logger("pypmix.events").warning("the server sent an event that makes no sense, which is dropped: %s", error)


def _register(client: Client, call: Call, op: RegisterEventHandler) -> None:
    if client.server is not None and not TAKEN_IN.isdisjoint(op.codes):
        client.grouped().expect(op.codes)
    try:
        events_of(client).register(call, op)
    except LocalProtocolError:
        raise
    except PMIxError as error:
        client.fail(call, error)


def _registered(client: Client, call: Call, op: RegisterEventHandler, status: int) -> None:
    events_of(client).registered(call, status)


def _deregister(client: Client, call: Call, op: DeregisterEventHandler) -> None:
    try:
        events_of(client).handlers.remove(op.id)
    except PMIxError as error:
        client.fail(call, error)
    else:
        client.end(call)


def _notify(client: Client, call: Call, op: NotifyEvent) -> None:
    if client.server is None or op.range == RANGE_PROC_LOCAL:
        client.end(call)
    else:
        client.request(call, client.encode(Command.NOTIFY, code=op.code, range=op.range, infos=op.infos))
    events_of(client).raised(op)


OPERATIONS = {
    RegisterEventHandler: Operation(_register, act=_registered),
    DeregisterEventHandler: Operation(_deregister),
    NotifyEvent: Operation(_notify),
}
