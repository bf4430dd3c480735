"""Handlers of events in programs of an event loop: coroutine functions, or functions that do not block.

This module is written by hand: the loop calls functions and runs coroutines as tasks, whereas a handler that blocks
needs a thread. Both forms read events and answer them by `pypmix.events`.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import anyio

from pypmix.aio.pump import background
from pypmix.events import event_of, report_failure, send_answer
from pypmix.standard import statuses
from pypmix.standard.ops import DeregisterEventHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pypmix.aio.waits import Port
    from pypmix.engine.base import Delivery
    from pypmix.standard.ops import RegisterEventHandler

F = TypeVar("F", bound="Callable[..., Any]")


class Handler(Generic[F]):
    """A registered handler; calling it calls the function itself. All of it runs in the event loop's thread.

    Attributes:
        function: The function that is called with each event; each call of a coroutine function is a separate task.
        id: The engine's number of the handler, -1 before it is registered.

    Example:
        >>> @me.on(EventCode.PROC_TERMINATED)
        ... async def ended(event):
        ...     print(event.affected, "ended")
        >>> await ended.ready()
        >>> await ended.remove()
    """

    def __init__(self, port: Port, function: F) -> None:
        self.function = function
        self.id = -1
        self._port = port
        self._error: BaseException | None = None
        self._answered = anyio.Event()

    def begin(self, op: Callable[[Callable[[Delivery], None], Any], RegisterEventHandler]) -> None:
        """Register it."""
        self._port.session.submit(op(self._deliver, None), self._registered)

    async def ready(self) -> None:
        """Wait until it is registered.

        Raises:
            PMIxError: It could not be.
        """
        await self._answered.wait()
        if self._error is not None:
            raise self._error

    async def remove(self) -> None:
        """`PMIx_Deregister_event_handler`: do not call it any longer.

        No call begins after this or the client's `close` has returned; a call that has begun continues.

        Example:
            >>> @me.on(EventCode.custom(-4242))
            ... def loaded(event):
            ...     print("load of", event.source, event.info.get("acme.load"))
            >>> await loaded.remove()
        """
        await self.ready()
        await self._port.run(DeregisterEventHandler(self.id))

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def _registered(self, result: int | None, error: BaseException | None) -> None:
        if result is not None:
            self.id = result
        self._error = error
        self._answered.set()

    def _deliver(self, delivery: Delivery) -> None:
        try:
            returned = self.function(event_of(delivery))
            if hasattr(returned, "__await__"):
                background(self._finish, delivery, returned)
            else:
                send_answer(delivery, returned)
        except Exception as error:
            report_failure(delivery, self.function, error)

    async def _finish(self, delivery: Delivery, returned: Awaitable[object]) -> None:
        try:
            send_answer(delivery, await returned)
        except Exception as error:
            report_failure(delivery, self.function, error)
        except BaseException:
            # Its task was cancelled, or all of the program ends: the event must not wait for this handler.
            delivery.done(statuses.ERROR)
            raise
