"""Events: hearing of them, and raising them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pypmix.aio.handlers import Handler
from pypmix.aio.operations.base import Asks
from pypmix.aio.operations.streams import Stream
from pypmix.events import Event
from pypmix.requests.events import event_code, event_of, handler_op, notify_op
from pypmix.standard import statuses
from pypmix.standard.enums import EventCode
from pypmix.standard.ops import DeregisterEventHandler

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from pypmix.aio.mailbox import Mailbox
    from pypmix.aio.waits import Port
    from pypmix.engine.base import Delivery
    from pypmix.requests import Infos, Procs
    from pypmix.standard.ops import RegisterEventHandler

    F = TypeVar("F", bound=Callable[..., Any])


_NAMED = frozenset(EventCode)


class EventStream(Stream[Event]):
    """The events of some codes or of all, in the order in which they come; `events` of a client makes one.

    It observes: each event is answered at once with `PMIX_EVENT_NO_ACTION_TAKEN`, so that other handlers see it too.
    """

    _name = "events"

    def __init__(self, port: Port, codes: tuple[int, ...], buffer: int, options: dict[str, Any]) -> None:
        super().__init__(port, buffer)
        self._codes = codes
        self._options = options
        self._ids: list[int] = []
        # What is wrong with the arguments is to be said here and not when the stream is opened.
        handler_op(self._put, codes, None, **options)

    async def _begin(self, box: Mailbox[Event]) -> None:
        self._ids = []
        op = handler_op(self._put, self._codes or tuple(EventCode), box.end, **self._options)
        await self._register(op)
        if not self._codes:
            # A default handler never gets the events that are not for such ones, the ends of procs and jobs among them.
            try:
                await self._register(handler_op(self._put_unnamed, (), None, **self._options | {"name": None}))
            except BaseException:
                await self._finish()
                raise

    async def _register(self, op: RegisterEventHandler) -> None:
        self._ids.append(await self._port.run(op, DeregisterEventHandler))

    async def _finish(self) -> None:
        for id in self._ids:
            await self._port.run(DeregisterEventHandler(id))

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
        *codes: int,
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

        PMIx Standard: "Event Notification", `PMIx_Register_event_handler`.
        """
        return EventStream(self._port, codes, buffer, {"affected": self._procs(affected), "name": name, "info": info})

    def on(
        self,
        *codes: int,
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
        called on one thread of their own, where all calls are allowed; in an event loop a handler is a coroutine
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

        PMIx Standard: "Event Notification", `PMIx_Register_event_handler`.
        """
        for code in codes:
            if callable(code):
                advice = "as in `@me.on()` or `@me.on(EventCode.EVENT_JOB_END)`"
                raise TypeError(f"`on` is called before it decorates, {advice}")
            event_code(code)
        options: dict[str, Any] = {
            "order": order,
            "before": before,
            "after": after,
            "name": name,
            "affected": self._procs(affected),
            "once": once,
            "info": info,
        }

        def register(function: F) -> Handler[F]:
            if not callable(function):
                raise TypeError(f"an event handler is a function, not {function!r:.100}")
            handler = Handler(self._port, function)
            self._attend()
            handler.begin(lambda deliver, ended: handler_op(deliver, codes, ended, **options))
            return handler

        return register

    async def notify(
        self,
        code: int,
        *,
        range: int | None = None,
        targets: Procs = None,
        affected: Procs = None,
        non_default: bool = False,
        cache: bool = True,
        info: Infos = None,
    ) -> None:
        """`PMIx_Notify_event`: raise an event; the caller's own handlers see it as well.

        Args:
            code: An `EventCode`; `EventCode.custom(-4242)` is one of the application's own.
            range: The procs that get it: `Range.SESSION` by default, `NAMESPACE`, `LOCAL` (this node), `GLOBAL`,
                `RM` (the resource manager alone), `PROC_LOCAL` (this process alone).
            targets: The procs that get it, instead of a range (`Range.CUSTOM`).
            affected: The procs that it is about.
            non_default: Do not bother default handlers with it.
            cache: Keep it for those who register later.
            info: What is to travel with it: infos or a mapping.

        Raises:
            PMIxError: The server or its host refused it.

        PMIx Standard: "Event Notification", `PMIx_Notify_event`.
        """
        await self._run(notify_op(code, range, self._procs(targets), self._procs(affected), non_default, cache, info))
