"""Events: hearing of them, and raising them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pypmix.aio.handlers import Handler
from pypmix.aio.operations.base import Asks
from pypmix.aio.operations.streams import Stream
from pypmix.arguments import flag, number_of, proc_info, together
from pypmix.events import Event, event_code, event_of
from pypmix.lazy import renamed
from pypmix.standard import codes, keys, statuses
from pypmix.standard.enums import EventCode, Range
from pypmix.standard.ops import DeregisterEventHandler, NotifyEvent, RegisterEventHandler
from pypmix.standard.types import Info, Value
from pypmix.standard.values import infos

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    from pypmix.aio.mailbox import Mailbox
    from pypmix.aio.waits import Port
    from pypmix.arguments import Infos, Procs
    from pypmix.engine.base import Delivery

    F = TypeVar("F", bound=Callable[..., Any])


_NUMBERS = tuple([int(code) for code in EventCode])
_NAMED = frozenset(_NUMBERS)

ORDERS = {
    "first": keys.EVENT_HDLR_FIRST,
    "last": keys.EVENT_HDLR_LAST,
    "first_in_category": keys.EVENT_HDLR_FIRST_IN_CATEGORY,
    "last_in_category": keys.EVENT_HDLR_LAST_IN_CATEGORY,
    "prepend": keys.EVENT_HDLR_PREPEND,
    "append": keys.EVENT_HDLR_APPEND,
}


def _texts(**given: str | None) -> tuple[Info, ...]:
    """Return the directives of the handlers' names that were given, by the name of the key."""
    names = {"name": keys.EVENT_HDLR_NAME, "before": keys.EVENT_HDLR_BEFORE, "after": keys.EVENT_HDLR_AFTER}
    return tuple([Info(names[key], Value(codes.STRING, text)) for key, text in given.items() if text is not None])


def _place(order: str | None, before: str | None, after: str | None) -> tuple[Info, ...]:
    if sum(item is not None for item in (order, before, after)) > 1:
        raise ValueError("of order, before and after only one can be given")
    if order is None:
        return _texts(before=before, after=after)
    if order not in ORDERS:
        raise ValueError(f"{order!r} is not an order of handlers, which is one of {', '.join(ORDERS)}")
    return (flag(ORDERS[order]),)


def _affected(procs: Procs) -> tuple[Info, ...]:
    if procs is None:
        return ()
    return (proc_info(keys.EVENT_AFFECTED_PROCS, procs, keys.EVENT_AFFECTED_PROC),)


class EventStream(Stream[Event]):
    """The events of some codes or of all, in the order in which they come; `events` of a client makes one.

    It observes: each event is answered at once with `PMIX_EVENT_NO_ACTION_TAKEN`, so that other handlers see it too.

    Example:
        >>> async with me.events(EventCode.PROC_TERMINATED, EventCode.EVENT_JOB_END) as events:
        ...     async for event in events:
        ...         print(event.code.name, event.affected)
    """

    _name = "events"

    def __init__(self, port: Port, codes: tuple[int, ...], buffer: int, directives: tuple[Info, ...]) -> None:
        super().__init__(port, buffer)
        self._ids: list[int] = []
        # Refuses invalid arguments here, and not when the stream is opened.
        self._ops = [RegisterEventHandler(self._put, codes or _NUMBERS, directives, self._close_box)]
        if not codes:
            # A default handler never gets the events that are not for such ones, the ends of procs and jobs among them.
            unnamed = tuple([each for each in directives if each.key != keys.EVENT_HDLR_NAME])
            self._ops.append(RegisterEventHandler(self._put_unnamed, (), unnamed))

    async def _begin(self, box: Mailbox[Event]) -> None:
        self._ids = []
        for op in self._ops:
            try:
                self._ids.append(await self._port.run(op, DeregisterEventHandler))
            except BaseException:
                await self._finish()
                raise

    async def _finish(self) -> None:
        for id in self._ids:
            await self._port.run(DeregisterEventHandler(id))

    def _close_box(self, error: BaseException | None) -> None:
        if self._box is not None:
            self._box.end(error)

    def _put(self, delivery: Delivery) -> None:
        if self._box is not None:
            self._box.put(event_of(delivery))
        delivery.done(statuses.EVENT_NO_ACTION_TAKEN)

    def _put_unnamed(self, delivery: Delivery) -> None:
        if delivery.notification.code in _NAMED:
            delivery.done(statuses.EVENT_NO_ACTION_TAKEN)
        else:
            self._put(delivery)


class Events(Asks):
    """Event handlers and streams, and notification."""

    def events(
        self,
        *codes: EventCode,
        buffer: int = 1024,
        affected: Procs = None,
        name: str | None = None,
        info: Infos = None,
    ) -> EventStream:
        """`PMIx_Register_event_handler`: a stream of events, to be used as a context manager and iterated.

        Args:
            codes: Members of `EventCode`; none means all of them and all events that applications raise, but for those
                that an application raises as `non_default`: these come to who names their code.
            buffer: How many events are kept for a slow reader; of more than that the oldest are dropped and counted.
            affected: Only events about these procs.
            name: A name for this handler, which others can be ordered by.
            info: Further infos or a mapping.

        Returns:
            The stream; it is registered when it is entered, and then gets also what was raised a while before and is
            still kept by the server.

        Example:
            >>> async with me.events(EventCode.PROC_TERMINATED) as events:
            ...     async for event in events:
            ...         print(event.affected, "ended")

        PMIx Standard: "Event Notification", `PMIx_Register_event_handler`.
        """
        numbers = tuple([event_code(code) for code in codes])
        directives = infos(info) + _texts(name=name) + _affected(self._procs(affected))
        return EventStream(self._port, numbers, buffer, directives)

    def on(
        self,
        *codes: EventCode,
        order: str | None = None,
        before: str | None = None,
        after: str | None = None,
        name: str | None = None,
        affected: Procs = None,
        once: bool = False,
        info: Infos = None,
    ) -> Callable[[F], Handler[F]]:
        """`PMIx_Register_event_handler` as a decorator: have a function called with each `Event`.

        The handlers of an event are called one after the other until one of them returns `ev.done()`. A handler that
        raises is logged and answered with an error, and the others are called. Blocking programs have their handlers
        called on one separate thread, where all calls are allowed; in an event loop a handler is a coroutine
        function, or a function that does not block, and `ready` waits until it is registered.

        Args:
            codes: The `EventCode` members; none makes it a default handler.
            order: `first`, `last` (of all), `first_in_category`, `last_in_category`, `prepend` or `append`. Categories
                are called in the order: handlers of one code, of several, default ones.
            before: The name of the handler to be called before.
            after: The name of the handler to be called after.
            name: The name of this one.
            affected: Only events about these procs.
            once: Remove it after its first event.
            info: Further infos or a mapping.

        Raises:
            NotFound: There is no handler `before` or `after` which it could be called.
            PMIxError: There is a `first` or `last` one already.

        Example:
            >>> @me.on(EventCode.PROC_TERMINATED)
            ... def ended(event):
            ...     print(event.affected, "ended")

        PMIx Standard: "Event Notification", `PMIx_Register_event_handler`.
        """
        for code in codes:
            if callable(code):
                advice = "as in `@me.on()` or `@me.on(EventCode.EVENT_JOB_END)`"
                raise TypeError(f"`on` is called before it decorates, {advice}")
        numbers = tuple([event_code(code) for code in codes])
        directives = infos(info) + _place(order, before, after) + _texts(name=name)
        directives += _affected(self._procs(affected))
        if once:
            directives += (flag(keys.EVENT_ONESHOT),)

        def register(function: F) -> Handler[F]:
            if not callable(function):
                raise TypeError(f"an event handler is a function, not {function!r:.100}")
            handler = Handler(self._port, function)
            self._attend()
            handler.begin(lambda deliver, ended: RegisterEventHandler(deliver, numbers, directives, ended))
            return handler

        return register

    @renamed("pypmix.Client")
    async def notify(
        self,
        code: EventCode,
        *,
        data_range: Range | None = None,
        targets: Procs = None,
        affected: Procs = None,
        non_default: bool = False,
        cache: bool = True,
        info: Infos = None,
    ) -> None:
        """`PMIx_Notify_event`: raise an event; the caller's own handlers see it as well.

        Args:
            code: An `EventCode`; `EventCode.custom(-4242)` is one of the application's own.
            data_range: The procs that get it: `Range.SESSION` by default, `NAMESPACE`, `LOCAL` (this node), `GLOBAL`,
                `RM` (the resource manager alone), `PROC_LOCAL` (this process alone).
            targets: The procs that get it, instead of a range (`Range.CUSTOM`).
            affected: The procs that it is about.
            non_default: Do not bother default handlers with it.
            cache: Keep it for handlers that are registered later.
            info: The infos of the event, or a mapping.

        Raises:
            PMIxError: The server or its host refused it.

        Example:
            >>> await me.notify(EventCode.custom(-4242), targets=me.job, info={"acme.load": 0.75})

        PMIx Standard: "Event Notification", `PMIx_Notify_event`.
        """
        number, others = event_code(code), infos(info)
        if targets is not None:
            if data_range not in (None, Range.CUSTOM):
                raise ValueError(f"targets are a custom range, so they cannot go with range {data_range!r}")
            data_range = Range.CUSTOM
            others += (proc_info(keys.EVENT_CUSTOM_RANGE, together(self._procs(targets))),)
        elif data_range == Range.CUSTOM and not any(item.key == keys.EVENT_CUSTOM_RANGE for item in others):
            raise ValueError("Range.CUSTOM needs targets")
        others += _affected(self._procs(affected))
        if non_default:
            others += (flag(keys.EVENT_NON_DEFAULT),)
        if not cache:
            others += (flag(keys.EVENT_DO_NOT_CACHE),)
        await self._run(
            NotifyEvent(
                number, number_of(Range.SESSION if data_range is None else data_range, "Range", "SESSION"), others
            )
        )
