"""The event handlers that a program registers on a server, by `PMIx_Register_event_handler`."""

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
    """The handlers of a server, in the same chains as a client's; a server need not register for events."""

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
            NotFound: The handler is to precede or follow a handler that does not exist.
            PMIxError: The handler's place is taken (`ERR_EVENT_REGISTRATION`).
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
            NotFound: No handler has this id.
        """
        self._enter(lambda: self._handlers.remove(number))

    def notify(self, notification: Notification) -> None:
        """Call the handlers for an event, one after the other."""
        self._enter(lambda: self._handlers.start_chain(notification, False))

    def close(self) -> None:
        """End the chains; no handler is called for later events."""
        self._enter(lambda: self._handlers.end(None))


def _dropped(handler: Handler) -> None:
    """Do nothing: a server need not deregister the handler elsewhere."""
