"""Handlers of events in programs that block: they run on a separate thread, one after the other.

This module is written by hand: a handler that blocks needs a thread, which ends with the last handler, whereas an event
loop calls functions and runs coroutines as tasks. Both forms read events and answer them by `pypmix.events`.
"""

from __future__ import annotations

import threading
from queue import SimpleQueue
from typing import Any, Generic, TypeVar

from pypmix.engine.faults import fault
from pypmix.events import event_of, report_failure, send_answer
from pypmix.standard import keys
from pypmix.standard.ops import DeregisterEventHandler
from pypmix.standard.ops.events import is_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Delivery
    from pypmix.standard.ops import RegisterEventHandler
    from pypmix.waits import Port

F = TypeVar("F", bound="Callable[..., Any]")


class _Worker:
    """The thread that calls the handlers of one client."""

    def __init__(self, name: str) -> None:
        self._work: SimpleQueue[tuple[Handler[Any], Delivery] | None] = SimpleQueue()
        self.put = self._work.put
        self._lock = threading.Lock()
        self._users = 0
        self._name = name

    def enter(self) -> None:
        """Add a handler to the thread's users, and start the thread for the first."""
        with self._lock:
            self._users += 1
            if self._users == 1:
                threading.Thread(target=self._run, name=self._name, daemon=True).start()

    def leave(self) -> None:
        """Remove a handler from the thread's users; without users the thread ends after the queued calls."""
        with self._lock:
            self._users -= 1
            if not self._users:
                self._work.put(None)

    def _run(self) -> None:
        while (item := self._work.get()) is not None:
            handler, delivery = item
            try:
                handler.call(delivery)
            except BaseException as error:
                # Other handlers need the thread.
                fault("to call an event handler", error)


class Handler(Generic[F]):
    """A registered handler; calling it calls the function itself.

    Attributes:
        function: The function that is called with each event.
        id: The engine's number of the handler.

    Example:
        >>> @me.on(EventCode.PROC_TERMINATED)
        ... def ended(event):
        ...     print(event.affected, "ended")
        >>> ended.remove()
    """

    def __init__(self, port: Port, function: F) -> None:
        self.function = function
        self.id = -1
        self._port = port
        self._session = port.session
        self._left = False
        self._removed = False
        self._once = False
        self._worker = port.kept(_Worker) or port.keep(_Worker(f"pypmix-handlers-{port.session.proc.rank}"))

    def begin(self, op: Callable[[Callable[[Delivery], None], Any], RegisterEventHandler]) -> None:
        """Register it."""
        self._worker.enter()
        try:
            made = op(self._deliver, self._leave_at_end)
            self._once = is_set(made.directives, keys.EVENT_ONESHOT)
            self.id = self._port.run(made)
        except BaseException:
            self._leave()
            raise

    def ready(self) -> None:
        """Return at once: the handler was registered when it was made."""

    def remove(self) -> None:
        """`PMIx_Deregister_event_handler`: do not call it any longer.

        No call begins after this or the client's `close` has returned, not even for an event that has arrived before;
        a call that has begun continues. An event that waited for this handler goes to the next one.

        Example:
            >>> @me.on(EventCode.custom(-4242))
            ... def loaded(event):
            ...     print("load of", event.source, event.info.get("acme.load"))
            >>> loaded.remove()
        """
        try:
            self._port.run(DeregisterEventHandler(self.id))
        finally:
            self._removed = True
            self._leave()

    def call(self, delivery: Delivery) -> None:
        """Call the function with an event, and answer."""
        try:
            event = event_of(delivery)
            # A client that is closed has another session.
            over = self._removed or self._port.session is not self._session
            send_answer(delivery, None if over else self.function(event))
        except BaseException as error:
            # A `sys.exit` too ends nothing but the call: other handlers need the thread, and the event an answer.
            report_failure(delivery, self.function, error)
        if self._once:
            self._leave()

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def _deliver(self, delivery: Delivery) -> None:
        self._worker.put((self, delivery))

    def _leave_at_end(self, _error: BaseException | None) -> None:
        self._leave()

    def _leave(self) -> None:
        if not self._left:
            self._left = True
            self._worker.leave()
