"""The event handlers of a server itself, as `PMIx_Register_event_handler` of a server has them."""

from __future__ import annotations

import itertools
import logging
import threading

from pypmix.standard.errors import NotFound
from pypmix.standard.ops import events
from pypmix.standard.ops.events import EVENT_ACTION_COMPLETE, EVENT_NO_ACTION_TAKEN, is_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.ops import Notification, RegisterEventHandler
    from pypmix.standard.types import Info

log = logging.getLogger("pypmix.compat")

NON_DEFAULT = "pmix.evnondef"


class _Delivery:
    """An event at one handler; see `pypmix.engine.base.Delivery`."""

    __slots__ = ("_lock", "_round", "notification", "results")

    def __init__(self, round: _Round) -> None:
        self.notification = round.notification
        self.results = tuple(round.results)
        self._lock = threading.Lock()
        self._round: _Round | None = round

    def done(self, status: int = EVENT_NO_ACTION_TAKEN, results: tuple[Info, ...] = ()) -> None:
        """Let the chain go on, or end it."""
        with self._lock:
            round, self._round = self._round, None
        if round is not None:
            round.results.extend(results)
            if status != EVENT_ACTION_COMPLETE:
                round.step()


class _Round:
    """An event on its way through the handlers."""

    def __init__(self, notification: Notification, handlers: list[RegisterEventHandler]) -> None:
        self.notification = notification
        self.results: list[Info] = []
        self._left = iter(handlers)

    def step(self) -> None:
        """Call the next handler, if there is one."""
        for op in self._left:
            try:
                op.handler(_Delivery(self))
            except Exception:
                log.exception("an event could not be delivered")
                continue
            return


class Handlers:
    """The handlers of a server, in the order in which they are called."""

    def __init__(self) -> None:
        self._ids = itertools.count()
        self._lock = threading.Lock()
        self._handlers: dict[int, RegisterEventHandler] = {}

    def register(self, op: RegisterEventHandler) -> int:
        """Add a handler; return its id."""
        with self._lock:
            number = next(self._ids)
            self._handlers[number] = op
        return number

    def deregister(self, number: int) -> None:
        """Call a handler no more.

        Raises:
            NotFound: There is none of that id.
        """
        with self._lock:
            if self._handlers.pop(number, None) is None:
                raise NotFound(f"there is no event handler {number}", operation="deregister_event_handler")

    def notify(self, notification: Notification) -> None:
        """Call the handlers for an event, one after the other."""
        plain = not is_set(notification.infos, NON_DEFAULT)
        with self._lock:
            found = [
                (number, op)
                for number, op in self._handlers.items()
                if (notification.code in op.codes if op.codes else plain)
            ]
            found.sort(key=lambda each: _place(*each))
            for number, op in found:
                if is_set(op.directives, events.ONESHOT):
                    del self._handlers[number]
        _Round(notification, [op for _, op in found]).step()

    def close(self) -> None:
        """No further event comes."""
        with self._lock:
            left, self._handlers = list(self._handlers.values()), {}
        for op in left:
            if op.ended is not None:
                op.ended(None)


def _place(number: int, op: RegisterEventHandler) -> tuple[int, int, int]:
    """Return where a handler stands: those of one code before those of several, default ones behind, new ones first."""

    def asks(key: str) -> bool:
        return is_set(op.directives, key)

    kind = 1 if len(op.codes) == 1 else 2 if op.codes else 3
    kind = 0 if asks(events.FIRST) else 4 if asks(events.LAST) else kind
    place = 0 if asks(events.FIRST_IN_CATEGORY) else 2 if asks(events.LAST_IN_CATEGORY) else 1
    return kind, place, number if asks(events.APPEND) else -number
