"""The event handlers of a server itself, as `PMIx_Register_event_handler` of a server has them."""

from __future__ import annotations

import threading
from collections import deque

from pypmix.engine.chain import Handlers

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.chain import Handler
    from pypmix.standard.ops import Notification, RegisterEventHandler
    from pypmix.standard.types import Proc


class ServerEvents:
    """The handlers of a server, in the chains that those of a client are in; a server need not register for events."""

    def __init__(self, proc: Proc) -> None:
        self._lock = threading.Lock()
        self._told: deque[tuple[Callable[[Any], None], object]] = deque()
        self._handlers = Handlers(proc, proc.nspace, self._enter, self._tell, _dropped)

    def _enter(self, step: Callable[[], object]) -> None:
        with self._lock:
            step()
        while self._told:
            try:
                function, argument = self._told.popleft()
            except IndexError:
                return  # another thread was faster
            function(argument)

    def _tell(self, function: Callable[[Any], None], argument: object) -> None:
        self._told.append((function, argument))

    def register(self, op: RegisterEventHandler) -> int:
        """Add a handler; return its id.

        Raises:
            NotFound: It wants to stand before or after one that is not there.
            PMIxError: Its place is taken (`ERR_EVENT_REGISTRATION`).
        """
        added: list[Handler] = []

        def add() -> None:
            added.append(self._handlers.add(op))
            self._handlers.activate(added[0])

        self._enter(add)
        return added[0].id

    def deregister(self, number: int) -> None:
        """Remove a handler.

        Raises:
            NotFound: There is no handler of that id.
        """
        self._enter(lambda: self._handlers.remove(number))

    def notify(self, notification: Notification) -> None:
        """Call the handlers for an event, one after the other."""
        self._enter(lambda: self._handlers.raised(notification, False))

    def close(self) -> None:
        """No further event comes."""
        self._enter(lambda: self._handlers.end(None))


def _dropped(handler: Handler) -> None:
    """A server tells no other that a handler is gone."""
