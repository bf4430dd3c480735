"""The event handlers of one process, and the chains of handlers that events pass: no I/O, no clock.

The chain of an event is built when the event arrives: the handler declared first, the handlers for only this code, the
handlers for several codes, the handlers for all codes, the handler declared last. Each is called when the one before it
has answered. Several chains may be in progress, and they start in the order in which their events arrived.
"""

from __future__ import annotations

from _thread import allocate_lock, get_ident
from collections import OrderedDict, deque

from pypmix.engine.faults import fault, struck
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import NotFound, PMIxError, WouldDeadlock
from pypmix.standard.ops.events import (
    RANGE_NAMESPACE,
    RANGE_PROC_LOCAL,
    RANGE_RM,
    is_set,
    matches_any,
    place_in,
    procs_in,
)
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import RANK_VALID, Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable
    from typing import Any

    from pypmix.standard.ops import Notification, NotifyEvent, RegisterEventHandler
    from pypmix.standard.types import Proc

    Completion = Callable[[int, tuple[Info, ...]], None]
    Conclusion = Callable[[Notification, int, tuple[Info, ...]], None]
    Effect = Callable[[Callable[[Any], object], Any], object]


MAX_KEPT = 512
"""The most events without a handler that are kept for later handlers; libpmix keeps as many."""

NAMELESS = "UNKNOWN"
"""The name of an unnamed handler, in the results that are passed on."""

SINGLE, MULTI, DEFAULT = range(3)


def _at_once(function: Callable[[Any], object], argument: Any) -> None:
    function(argument)


def _combine(
    notification: Notification,
    conclusions: list[Conclusion],
    completion: Completion | None,
    guarded: Callable[..., object],
) -> Completion:
    def complete(status: int, results: tuple[Info, ...]) -> None:
        if completion is not None:
            completion(status, results)
        for conclusion in list(conclusions):
            guarded(conclusion, notification, status, results)

    return complete


class Handler:
    """A registered handler.

    Attributes:
        id: Its number.
        codes: Its event codes, each once; empty for all codes.
        active: Whether it takes part in the chains of new events.
        removed: Whether it was deregistered, or has received its single event.
    """

    __slots__ = (
        "active",
        "affected",
        "codes",
        "ended",
        "function",
        "id",
        "name",
        "oneshot",
        "place",
        "range",
        "removed",
        "within",
    )

    def __init__(self, id: int, op: RegisterEventHandler) -> None:
        self.id = id
        self.function = op.handler
        self.ended = op.ended
        self.codes = tuple(dict.fromkeys(op.codes))
        self.name = ""
        self.range = 0
        for info in op.directives:
            if info.key == keys.EVENT_HDLR_NAME:
                self.name = info.value.data
            elif info.key == keys.RANGE:
                self.range = info.value.data
        self.place = place_in(op.directives)[0]
        self.oneshot = is_set(op.directives, keys.EVENT_ONESHOT)
        self.affected = procs_in(op.directives, keys.EVENT_AFFECTED_PROC, keys.EVENT_AFFECTED_PROCS)
        self.within = procs_in(op.directives, keys.EVENT_CUSTOM_RANGE)
        if self.within is not None and not self.range:
            self.range = RANGE_CUSTOM
        self.active = False
        self.removed = False

    @property
    def category(self) -> int:
        """Whether it is for one code, several, or all."""
        return DEFAULT if not self.codes else SINGLE if len(self.codes) == 1 else MULTI


class _Chain:
    """The chain of one event."""

    __slots__ = ("completion", "notification", "remaining", "results", "status")

    def __init__(
        self,
        notification: Notification,
        handlers: list[Handler],
        results: tuple[Info, ...] = (),
        completion: Completion | None = None,
    ) -> None:
        self.notification = notification
        self.remaining = deque(handlers)
        self.results = results
        self.completion = completion
        self.status = statuses.EVENT_NO_ACTION_TAKEN


class Delivery:
    """An event at one handler; see `pypmix.engine.base.Delivery`."""

    __slots__ = ("_answer", "_handlers", "_inside", "_open", "chain", "handler", "notification", "results")

    def __init__(self, handlers: Handlers, chain: _Chain, handler: Handler) -> None:
        self.notification = chain.notification
        self.results = chain.results
        self._handlers = handlers
        self.chain = chain
        self.handler = handler
        self._open = [True]
        self._inside = 0
        self._answer: tuple[int, tuple[Info, ...]] | None = None

    def done(self, status: int = statuses.EVENT_NO_ACTION_TAKEN, results: tuple[Info, ...] = ()) -> None:
        """Continue the chain, or end it with `EVENT_ACTION_COMPLETE`; from any thread.

        Only the first answer counts; further answers, and answers after the client was closed, have no effect.
        """
        if not isinstance(status, int):
            raise TypeError(f"a handler's status is an int, not {type(status).__name__}")
        if not -(2**31) <= status < 2**31:
            raise OverflowError(f"a handler's status has 32 bits, {status} has more")
        if not isinstance(results, tuple) or not all(isinstance(result, Info) for result in results):
            raise TypeError("a handler's results are a tuple of Info")
        try:
            self._open.pop()
        except IndexError:
            return
        if self._inside == get_ident():
            # The caller of the handler continues the chain, so that a long chain is not a deep stack.
            self._answer = int(status), results
            return
        try:
            self._handlers.enter(lambda: self._handlers.continue_chain(self, int(status), results))
        except WouldDeadlock:
            self._open.append(True)
            raise

    def hand_over(self) -> tuple[int, tuple[Info, ...]] | None:
        """Call the handler; return its answer if it has answered already."""
        self._inside = get_ident()
        try:
            self.handler.function(self)
        except BaseException as error:
            self._inside = 0
            if not isinstance(error, Exception):
                # An exception of a signal handler must reach the program, and the chain must not wait forever.
                self.done(statuses.ERROR)
                raise
            from logging import getLogger

            name = self.handler.name or "without a name"
            code = self.notification.code
            getLogger("pypmix.events").error("the handler %s failed on the event %d", name, code, exc_info=error)
            try:
                self._open.pop()
            except IndexError:
                return self._answer
            return statuses.ERROR, ()
        self._inside = 0
        return self._answer


class Handlers:
    """The handlers of one process.

    Args:
        proc: The process.
        host: The nspace of its server, which is the source of events of `Range.RM`; empty without a server.
        enter: Runs a function exclusively, from any thread that does not already run one.
        tell: Schedules a call with an argument outside of the exclusive section, in the order of these requests.
        dropped: Called with a removed handler.
    """

    def __init__(
        self,
        proc: Proc,
        host: str,
        enter: Callable[[Callable[[], None]], None],
        tell: Callable[[Callable[[Any], None], object], None],
        dropped: Callable[[Handler], None],
    ) -> None:
        self.enter = enter
        self._proc = proc
        self._host = host
        self._tell = tell
        self._dropped = dropped
        self._known: dict[int, Handler] = {}
        self.last_id = 0
        self._first: Handler | None = None
        self._last: Handler | None = None
        self._rows: tuple[list[Handler], list[Handler], list[Handler]] = ([], [], [])
        self._watchers: dict[int, list[Callable[[Notification], None]]] = {}
        self._screens: dict[int, list[Callable[[Notification], bool]]] = {}
        self._conclusions: dict[int, list[Conclusion]] = {}
        self._kept: deque[Notification] = deque(maxlen=MAX_KEPT)
        self._calls: deque[tuple[Callable[[Any], None], object]] = deque()
        """The calls to make, in this order regardless of threads."""
        self._calling = allocate_lock()
        self.failed: Callable[[Exception], object] = lambda error: fault("a step that an event leads to", error)
        """Called with an error of a screen, a watcher or a conclusion; the event continues."""

    # Registration

    def __contains__(self, id: int) -> bool:
        return id in self._known

    def add(self, op: RegisterEventHandler) -> Handler:
        """Add a handler in its place; it is not active yet.

        Raises:
            NotFound: It is to be placed before or after an unknown handler.
            PMIxError: Its place is taken (`ERR_EVENT_REGISTRATION`).
        """
        handler = Handler(self.last_id + 1, op)
        self._insert(handler, place_in(op.directives)[1])
        self.last_id = handler.id
        self._known[handler.id] = handler
        return handler

    def activate(self, handler: Handler) -> None:
        """Activate a handler; it first receives the kept events."""
        handler.active = True
        for notification in list(self._kept):
            if not handler.removed and self._matches(handler, notification):
                self._kept.remove(notification)
                self._start(_Chain(notification, [handler]))

    def remove(self, id: int) -> Handler:
        """Deregister a handler; chains that have not reached it yet skip it.

        Raises:
            NotFound: The handler does not exist.
        """
        handler = self._known.get(id)
        if handler is None:
            raise NotFound(
                f"there is no event handler {id}", hint="was it deregistered before, or has it received its one event?"
            )
        self._drop(handler)
        return handler

    def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
        """Call a function of the library with each event of a code, before any handler, whatever these do.

        The watcher is called in the exclusive section.
        """
        self._watchers.setdefault(code, []).append(watcher)

    def screen(self, code: int, accept: Callable[[Notification], bool]) -> None:
        """Add a filter of the library for events of a code; events that any of them rejects are dropped.

        Args:
            code: The code.
            accept: Returns True for events to deliver; called in the exclusive section, whatever others return.
        """
        self._screens.setdefault(code, []).append(accept)

    def conclude(self, code: int, conclusion: Conclusion) -> None:
        """Add a function of the library to call after the chain of each event of a code, even without handlers.

        Args:
            code: The code.
            conclusion: Called in the exclusive section with the event, the status of its last handler and all results.
        """
        self._conclusions.setdefault(code, []).append(conclusion)

    def is_host(self, source: Proc) -> bool:
        """Return True if the source of an event is the server or the host."""
        return source[0] in ("", self._host) or source[1] > RANK_VALID

    def end(self, error: BaseException | None) -> None:
        """Report to all handlers that no further event can arrive."""
        for handler in list(self._known.values()):
            if handler.active and handler.ended is not None:
                self._call(handler.ended, error)

    def _insert(self, handler: Handler, anchor: str) -> None:
        place = handler.place
        if place == keys.EVENT_HDLR_FIRST:
            if self._first is not None:
                raise _occupied_place("first", self._first)
            self._first = handler
            return
        if place == keys.EVENT_HDLR_LAST:
            if self._last is not None:
                raise _occupied_place("last", self._last)
            self._last = handler
            return
        row = self._rows[handler.category]
        head = 1 if row and row[0].place == keys.EVENT_HDLR_FIRST_IN_CATEGORY else 0
        tail = len(row) - 1 if row and row[-1].place == keys.EVENT_HDLR_LAST_IN_CATEGORY else len(row)
        if place in ("", keys.EVENT_HDLR_PREPEND):
            at = head
        elif place == keys.EVENT_HDLR_APPEND:
            at = tail
        elif place == keys.EVENT_HDLR_FIRST_IN_CATEGORY:
            if head:
                raise _occupied_place("first in its category", row[0])
            at = 0
        elif place == keys.EVENT_HDLR_LAST_IN_CATEGORY:
            if tail < len(row):
                raise _occupied_place("last in its category", row[-1])
            at = len(row)
        else:
            at = self._position_beside_named(handler, row, head, tail, anchor)
        row.insert(at, handler)

    def _position_beside_named(self, handler: Handler, row: list[Handler], head: int, tail: int, anchor: str) -> int:
        """Return the position for a handler that is to come before or after a named one."""
        everyone = [self._first, *[other for each in self._rows for other in each], self._last]
        other = next((each for each in everyone if each is not None and each.name == anchor), None)
        after = handler.place == keys.EVENT_HDLR_AFTER
        if not anchor or other is None:
            raise NotFound(
                f"there is no event handler of the name {anchor!r} to come {'after' if after else 'before'}",
                hint="register that one first, with attrs.EVENT_HDLR_NAME",
            )
        where = -1 if other is self._first else DEFAULT + 1 if other is self._last else other.category
        if where == handler.category:
            at = row.index(other) + after
            if head <= at <= tail:
                return at
        elif after == (where < handler.category):
            return head if after else tail
        raise PMIxError(
            f"the handler cannot come {'after' if after else 'before'} the handler {anchor!r}: "
            "handlers for one code precede handlers for several codes, and these precede handlers for all codes",
            status=statuses.ERR_EVENT_REGISTRATION,
        )

    def _drop(self, handler: Handler) -> None:
        handler.removed = True
        del self._known[handler.id]
        if handler is self._first:
            self._first = None
        elif handler is self._last:
            self._last = None
        else:
            self._rows[handler.category].remove(handler)
        self._dropped(handler)

    # Events

    def start_chain(
        self,
        notification: Notification,
        keep: bool,
        results: tuple[Info, ...] = (),
        completion: Completion | None = None,
        effect: Effect = _at_once,
    ) -> bool:
        """Start the chain of an event; return True if there is a handler for it.

        Args:
            notification: The event.
            keep: Whether to keep an event without a handler for later handlers.
            results: The results of earlier handlers elsewhere.
            completion: Called once in the exclusive section when the chain has ended, with the status of its last
                handler and all results.
            effect: Calls the one C function that makes the event take effect. An exception of a signal handler before
                it leaves no trace, and `recover` completes the work after it.
        """
        screens = self._screens.get(notification.code)
        if screens is not None and False in [self._guarded(screen, notification) for screen in screens]:
            if completion is not None:
                completion(statuses.EVENT_NO_ACTION_TAKEN, results)
            return False
        for watcher in list(self._watchers.get(notification.code, ())):
            self._guarded(watcher, notification)
        conclusions = self._conclusions.get(notification.code)
        if conclusions is not None:
            completion = _combine(notification, conclusions, completion, self._guarded)
        everyone = [self._first, *[handler for row in self._rows for handler in row], self._last]
        chain = [handler for handler in everyone if handler is not None and self._matches(handler, notification)]
        chain = [handler for handler in chain if handler.active]
        if chain:
            self._start(_Chain(notification, chain, results, completion), effect)
            return True
        if keep and not is_set(notification.infos, keys.EVENT_DO_NOT_CACHE):
            effect(self._kept.append, notification)
        if completion is not None:
            completion(statuses.EVENT_NO_ACTION_TAKEN, results)
        return False

    def _guarded(self, function: Callable[..., Any], *arguments: object) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            if struck(error):
                raise
            self.failed(error)
            return None

    def continue_chain(self, delivery: Delivery, status: int, results: tuple[Info, ...]) -> None:
        """Continue a chain after an answer that was given after the handler had returned."""
        following = self._advance(delivery, status, results)
        if following is not None:
            self._call(self._hand_over, following)

    def recover(self) -> None:
        """Complete the work of `start_chain` after an exception of a signal handler."""
        for _, argument in list(self._calls):
            if isinstance(argument, Delivery):
                self._spend(argument.handler)
        self._tell(self._make_calls, None)

    def _start(self, chain: _Chain, effect: Effect = _at_once) -> None:
        delivery = self._reach(chain)
        if delivery is not None:
            effect(self._calls.append, (self._hand_over, delivery))
            self._spend(delivery.handler)
            self._tell(self._make_calls, None)

    def _call(self, function: Callable[[Any], None], argument: object) -> None:
        self._calls.append((function, argument))
        self._tell(self._make_calls, None)

    def _make_calls(self, _: object) -> None:
        """Make the scheduled calls, in one thread at a time, which keeps their order."""
        while self._calls:
            mine: list[bool] = []
            try:
                # This is one call of C functions: no exception of a signal handler can leave the lock locked.
                mine.extend(map(self._calling.acquire, (False,)))
                if not mine[0]:
                    return
                while self._calls:
                    function, argument = self._calls.popleft()
                    function(argument)
            finally:
                if mine and mine[0]:
                    self._calling.release()
                    if self._calls:
                        self._tell(self._make_calls, None)

    def _next(self, chain: _Chain) -> Delivery | None:
        delivery = self._reach(chain)
        if delivery is not None:
            self._spend(delivery.handler)
        return delivery

    def _reach(self, chain: _Chain) -> Delivery | None:
        while chain.remaining:
            handler = chain.remaining.popleft()
            if not handler.removed:
                return Delivery(self, chain, handler)
        if chain.completion is not None:
            chain.completion(chain.status, chain.results)
        return None

    def _spend(self, handler: Handler) -> None:
        """Remove a handler for a single event, which it has received."""
        if handler.oneshot and not handler.removed:
            self._drop(handler)

    def _advance(self, delivery: Delivery, status: int, results: tuple[Info, ...]) -> Delivery | None:
        chain = delivery.chain
        name = delivery.handler.name or NAMELESS
        chain.results += (Info.unchecked(name, Value.unchecked(codes.STATUS, status), 0), *results)
        chain.status = status
        if status == statuses.EVENT_ACTION_COMPLETE:
            chain.remaining.clear()
        return self._next(chain)

    def _hand_over(self, delivery: Delivery) -> None:
        """Call a handler, and the next ones as long as each answers at once; outside of the exclusive section."""
        following: list[Delivery | None] = [delivery]
        while (current := following.pop()) is not None:
            handler = current.handler
            if handler.removed and not handler.oneshot:
                self.enter(lambda current=current: following.append(self._next(current.chain)))  # type: ignore[misc]
                continue
            answer = current.hand_over()
            if answer is None:
                return
            self.enter(lambda current=current, answer=answer: following.append(self._advance(current, *answer)))  # type: ignore[misc]

    # Matching

    def _matches(self, handler: Handler, notification: Notification) -> bool:
        if handler.codes:
            if notification.code not in handler.codes:
                return False
        elif is_set(notification.infos, keys.EVENT_NON_DEFAULT):
            return False
        return self._in_range(handler, notification.source) and _concerns(handler.affected, notification.infos)

    def _in_range(self, handler: Handler, source: Proc) -> bool:
        """Return True if a handler accepts events of a source."""
        if handler.range == RANGE_CUSTOM:
            return matches_any(source, handler.within or ())
        if handler.range == RANGE_PROC_LOCAL:
            return matches_any(source, handler.within or (self._proc,))
        if handler.range == RANGE_NAMESPACE:
            return source[0] in [proc[0] for proc in handler.within or (self._proc,)]
        if handler.range == RANGE_RM:
            return self.is_host(source)
        # This process may not know whether a source is in the session or on the node.
        return True


def _concerns(procs: tuple[Proc, ...] | None, infos: tuple[Info, ...]) -> bool:
    """Return True if an event affects one of the procs, or names no affected procs."""
    if procs is None:
        return True
    try:
        affected = procs_in(infos, keys.EVENT_AFFECTED_PROC, keys.EVENT_AFFECTED_PROCS)
    except TypeError:
        return True
    return affected is None or any(matches_any(proc, procs) for proc in affected)


def _occupied_place(place: str, other: Handler) -> PMIxError:
    name = f" ({other.name!r})" if other.name else ""
    return PMIxError(
        f"another event handler{name} is {place} already",
        status=statuses.ERR_EVENT_REGISTRATION,
        hint="deregister that one",
    )


class RaisedEvents:
    """The events that this process has raised itself, with the number of expected deliveries of each."""

    # libpmix delivers some of them again to handlers that are registered later, whether they were handled or not.

    def __init__(self) -> None:
        self._entries: OrderedDict[Hashable, list[int]] = OrderedDict()

    def add(self, op: NotifyEvent) -> None:
        name = self._name(op.code, op.infos)
        if name is not None:
            self._entries.setdefault(name, [0, 0])[0] += 1
            self._entries[name][1] = op.range
            self._entries.move_to_end(name)
            if len(self._entries) > MAX_KEPT:
                self._entries.popitem(last=False)

    def match_delivery(self, code: int, infos: tuple[Info, ...]) -> tuple[bool, int | None]:
        """Return whether an event is new, and its range if it was raised here."""
        entry = self._entries.get(self._name(code, infos))
        if entry is None:
            return True, None
        if not entry[0]:
            # A repeated delivery must not count against a later event of the same kind.
            return False, entry[1]
        entry[0] -= 1
        return True, entry[1]

    @staticmethod
    def _name(code: int, infos: tuple[Info, ...]) -> Hashable:
        name = code, tuple([(info[0], info[1]) for info in infos])
        try:
            hash(name)
        except TypeError:
            return None
        return name
