"""Events, as calls of the library: handlers, their order, and the events that this process raises.

The library has one handler for each code with handlers of this session, however many they are; that handler runs the
session's chain. So the order of handlers, the results that they pass on, and the events that are kept for late handlers
are the same with all releases. The chains of releases differ, and some have faults: see `quirks`. For handlers in C,
the session's handlers are like one handler that was registered without a position: a C handler that is declared first
runs before them; C handlers for several codes, for all codes, and the C handler declared last run after them.
"""

from __future__ import annotations

from pypmix.engine.chain import Handler, Handlers, RaisedEvents
from pypmix.engine.groups import TAKEN_IN
from pypmix.engine.native._ffi import lib
from pypmix.engine.native.asking import Asking, Row
from pypmix.engine.native.connection import NO_LIMIT, arguments
from pypmix.engine.native.quirks import ANSWERED_TWICE, EVENTS_OF_THE_LIBRARY, RAISED_ANYWHERE, SHIFTED
from pypmix.engine.native.structs import get_proc
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import DeregisterEventHandler, Notification, NotifyEvent, RegisterEventHandler
from pypmix.standard.ops.events import DIRECTIVES, OWN_CLIENTS, RANGE_PROC_LOCAL, matches_any, procs_in
from pypmix.standard.types import RANK_UNDEF, Info, Proc, Value, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pypmix.engine.base import Done
    from pypmix.engine.native.asking import Steps
    from pypmix.engine.native.connection import Connection


AGAIN = Info("pypmix.again", Value(codes.BOOL, True))
"""A directive that the library does not know.

Because of it, the library registers a code with the server that it has already registered with another server.
"""

OWN = Info(OWN_CLIENTS, Value(codes.BOOL, True))

ENDS = (statuses.PROC_TERMINATED, statuses.EVENT_PROC_TERMINATED)
"""The codes of events that servers of pypmix raise only to pypmix's own clients if a proc ends without an error."""

DEFAULT = -(2**31)
"""The code that means all codes to servers.

Servers before 7 forget clients that register without codes. But they look for this code, and let clients register it.
"""

_FAILURES = {statuses.ERR_NOT_SUPPORTED: "the server's host does not report such events"}


class _Interest:
    """A code that has handlers; the code None means all codes.

    Attributes:
        handlers: The number of handlers.
        id: The id of the library's handler for the code; None before it is registered.
    """

    __slots__ = ("handlers", "id")

    def __init__(self) -> None:
        self.handlers = 0
        self.id: int | None = None


class EventsTopic(Asking):
    """The events of one session."""

    def __init__(self, session: Connection) -> None:
        super().__init__(session)
        self._interests: dict[int | None, _Interest] = {}
        self._raised = RaisedEvents()
        nspace, _, rank = session.server.partition(" ")[0].rpartition(".")
        self._server = Proc.unchecked(nspace, RANK_UNDEF if (number := decimal(rank)) is None else number)
        self._inbox = inbox = session.inbox
        self.handlers = Handlers(session.proc, nspace, inbox.enter, inbox.tell, self._dropped)
        self.handlers.last_id = session.last_handler
        inbox.readers[lib.PYPMIX_EVENT] = self._arrived
        inbox.enders.append(self._end_handlers)

    # Operations

    def steps(self, op: Any) -> Steps:
        if type(op) is RegisterEventHandler:
            return self._register(op)
        if type(op) is DeregisterEventHandler:
            return self._deregister(op)
        if type(op) is NotifyEvent:
            self.note(op)
        return super().steps(op)

    def _register(self, op: RegisterEventHandler) -> Steps:
        handler, missing = self._add_handler(op)
        try:
            for code in missing:
                yield from self._register_code(op, code)
        except BaseException:
            self._inbox.enter(lambda: self._given_up(handler))
            raise
        self._inbox.enter(lambda: self.handlers.activate(handler))
        return handler.id

    def _deregister(self, op: DeregisterEventHandler) -> Steps:
        self._inbox.enter(lambda: self.handlers.remove(op.id))
        return
        yield  # This makes the function a generator.

    def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
        """See `Handlers.watch`; under the inbox's lock. Do not wait for the registration with the library."""
        self.handlers.watch(code, watcher)
        interest = self._interests.setdefault(code, _Interest())
        interest.handlers += 1
        if interest.id is None:
            op = RegisterEventHandler(_unused, (code,))
            self.drive(op, self._register_code(op, code), _unasked)

    def inside(self, op: NotifyEvent, done: Done[Any]) -> None:
        """Raise an event on behalf of the library itself; under the inbox's lock."""
        self._raised.add(op)
        self.drive(op, super().steps(op), done)

    def has(self, id: int) -> bool:
        """Return True if a handler with an id is registered."""
        return id in self.handlers

    def directives(self, op: NotifyEvent) -> tuple[Info, ...]:
        return op.infos

    # Handlers

    def _library_codes(self, handler: Handler) -> tuple[int | None, ...]:
        """Return the codes that the library needs handlers for; a handler for all codes takes two of them."""
        return handler.codes or (DEFAULT, None)

    def _add_handler(self, op: RegisterEventHandler) -> tuple[Handler, list[int | None]]:
        """Add a handler; return it, and the codes to register with the library."""
        added: list[tuple[Handler, list[int | None]]] = []
        groups = None
        if not self.session.singleton and not TAKEN_IN.isdisjoint(op.codes):
            # Groups must process these events before a handler does.
            groups = self.session.with_groups()

        def step() -> None:
            if groups is not None:
                groups.expect(op)
            handler = self.handlers.add(op)
            missing = []
            for code in self._library_codes(handler):
                interest = self._interests.setdefault(code, _Interest())
                interest.handlers += 1
                if interest.id is None:
                    missing.append(code)
            added.append((handler, missing))

        self._inbox.enter(step)
        return added[0]

    def _given_up(self, handler: Handler) -> None:
        if not handler.removed:
            self.handlers.remove(handler.id)

    def _register_code(self, op: RegisterEventHandler, code: int | None) -> Steps:
        """Register the library's handler for a code; drop it if a call at the same time has registered one, too."""

        def fill(parameters: Any) -> None:
            parameters.number = self._inbox.number
            if code is not None:
                self.marshal.fill(parameters.items, codes.STATUS, (code,))
            directives = tuple([info for info in op.directives if info.key not in DIRECTIVES])
            if self.session.again:
                directives = (*directives, AGAIN)
            if code in ENDS:
                directives = (*directives, OWN)
            parameters.infos, parameters.ninfos = self.marshal.infos(directives)

        call = yield lib.PYPMIX_REGISTER_EVENT_HANDLER, arguments(fill), NO_LIMIT
        status, id = call.status, call.word
        lib.pypmix_call_free(call)
        if status:
            raise self.session.failed(op.name, status, _FAILURES.get(status, ""))

        def step() -> None:
            interest = self._interests.get(code)
            if interest is None or interest.id is not None:
                self._inbox.deregister(id)
            else:
                interest.id = id

        self._inbox.enter(step)

    def _dropped(self, handler: Handler) -> None:
        self._release_codes(self._library_codes(handler))

    def _release_codes(self, event_codes: Sequence[int | None]) -> None:
        """Count one handler less for these codes."""
        for code in event_codes:
            interest = self._interests[code]
            interest.handlers -= 1
            if not interest.handlers:
                del self._interests[code]
                if interest.id is not None and not self._inbox.closed:
                    self._inbox.deregister(interest.id)

    # Events

    def note(self, op: NotifyEvent) -> None:
        """Note that this process raises an event."""
        self._inbox.enter(lambda: self._raised.add(op))

    def _arrived(self, message: Any) -> None:
        inbox = self._inbox
        source, code, news, span = get_proc(message.source), message.code, True, None
        infos = tuple([info for info in inbox.infos(message.infos) if info[0] != keys.INTERNAL_NOTIFY])
        results = inbox.infos(message.results)
        if source == self.session.proc:
            news, span = self._raised.match_delivery(code, infos)
        try:
            targets = procs_in(infos, keys.EVENT_CUSTOM_RANGE)
        except TypeError:
            targets = None
        if not news or (targets is not None and not matches_any(self.session.proc, targets)):
            inbox.answer(message)
            return

        def answer(status: int, handed_on: tuple[Info, ...]) -> None:
            if status == statuses.EVENT_ACTION_COMPLETE and code in EVENTS_OF_THE_LIBRARY:
                status = statuses.EVENT_NO_ACTION_TAKEN
            inbox.answer(message, status, handed_on[len(results) :])

        self.handlers.start_chain(Notification(code, source, span, infos), True, results, answer)

    def _end_handlers(self, error: BaseException | None) -> None:
        if error is not None:
            infos = (Info.unchecked(keys.EVENT_AFFECTED_PROC, Value.unchecked(codes.PROC, self._server), 0),)
            self.handlers.start_chain(
                Notification(statuses.ERR_LOST_CONNECTION, self._server, RANGE_PROC_LOCAL, infos), False
            )
        self.handlers.end(error)


def _unused(_delivery: object) -> None:
    """The handler of registrations for watchers; it is never called."""


def _unasked(_result: object, _error: BaseException | None) -> None:
    """Ignore the end of a registration that no caller waits for."""


def _notification(topic: Asking, op: NotifyEvent, parameters: Any) -> None:
    span = RANGE_PROC_LOCAL if topic.session.singleton else op.range
    topic.marshal.fill(parameters.items, codes.PROC, (topic.session.proc,))
    session = topic.session
    flags = (ANSWERED_TWICE if session.answers_twice else 0) | (RAISED_ANYWHERE if session.release < SHIFTED else 0)
    parameters.number = span << 32 | op.code & 0xFFFFFFFF | flags


EventsTopic.rows = {
    NotifyEvent: Row(
        lib.PYPMIX_NOTIFY_EVENT, _notification, about=lambda op: str(op.code), failures=_FAILURES, alone=True
    ),
}
