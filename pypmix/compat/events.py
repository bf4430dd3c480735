"""Event handlers with the signature of the official binding, on clients and servers, and notification."""

from __future__ import annotations

import threading
from collections import deque

from pypmix.compat.running import Methods, attempt, log, named_after, schedule_answer
from pypmix.compat.scalars import from_proc, refused, to_int, to_proc
from pypmix.compat.values import from_infos, to_infos
from pypmix.engine.chain import Handlers
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import DeregisterEventHandler, Notification, NotifyEvent, RegisterEventHandler
from pypmix.standard.ops.publishing import RANGE_SESSION
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Delivery
    from pypmix.engine.chain import Handler
    from pypmix.standard.ops import Notification, RegisterEventHandler
    from pypmix.standard.types import Proc


class Registration:
    """A handler of events or output; calls before its number is known are delayed until then."""

    def __init__(self, function: object) -> None:
        self._function = function
        self._id = -1
        self._known = threading.Event()

    def call(self, *args: object) -> Any:
        """Call the program's function with the handler's number and some arguments."""
        self._known.wait()
        assert callable(self._function)
        return self._function(self._id, *args)

    def register(self, run: Callable[[], int]) -> tuple[int, int]:
        """Register the handler by `run`, which returns its number; return the status and the number, -1 at an error."""
        status = statuses.ERROR
        try:
            if callable(self._function):
                status, number = attempt(run)
                self._id = -1 if number is None else number
            else:
                status, _ = attempt(self._refuse)
        finally:
            self._known.set()
        return status, self._id

    def _refuse(self) -> None:
        raise refused(f"a handler is a function, not {self._function!r:.80}")


def answer_of(returned: object) -> tuple[int, tuple[Info, ...]]:
    """Return the status and results of a handler's answer, which is both, only the status, or None."""
    if returned is None:
        return statuses.EVENT_NO_ACTION_TAKEN, ()
    if isinstance(returned, tuple | list) and len(returned) == 2:
        return to_int(codes.STATUS, returned[0]), to_infos(returned[1])
    return to_int(codes.STATUS, returned), ()


def code_list(items: object) -> tuple[int, ...]:
    """Return the event codes of a list; empty for None."""
    if items is None:
        return ()
    if not isinstance(items, list | tuple):
        raise refused(f"event codes are a list, not {items!r:.80}")
    return tuple([to_int(codes.STATUS, code) for code in items])


class Events(Methods):
    """The methods for events."""

    def register_event_handler(self, pycodes: object, pyinfo: object, hdlr: object) -> tuple[int, int]:
        """`PMIx_Register_event_handler`: returns the status and the handler's number, -1 without one.

        The handler is called as `hdlr(number, status, source, infos, results)` and returns a status such as
        `PMIX_EVENT_ACTION_COMPLETE` and a list of results, which may be None.
        """
        registration = Registration(hdlr)

        def register() -> int:
            wanted = code_list(pycodes)
            refusals = statuses.GROUP_INVITE_FAILED in wanted and statuses.GROUP_INVITE_DECLINED not in wanted

            def handle(delivery: Delivery) -> None:
                told = delivery.notification
                if refusals and told.code == statuses.GROUP_INVITE_DECLINED:
                    told = _failed(told)

                def call() -> None:
                    source, infos = from_proc(told.source), from_infos(told.infos)
                    answer = registration.call(int(told.code), source, infos, from_infos(delivery.results))
                    delivery.done(*answer_of(answer))

                schedule_answer(named_after(hdlr, call), (), lambda error: delivery.done(statuses.ERROR))

            heard = (*wanted, statuses.GROUP_INVITE_DECLINED) if refusals else wanted
            number: int = self._run(RegisterEventHandler(handle, heard, to_infos(pyinfo)))
            return number

        return registration.register(register)

    def deregister_event_handler(self, ref: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_Deregister_event_handler`; with a function, `cbfunc(status, cbdata)` is called at its end."""
        return self._either(cbfunc, cbdata, lambda: DeregisterEventHandler(to_int(codes.SIZE, ref)))

    def notify_event(
        self,
        status: object,
        pysrc: object,
        range: object,
        pyinfo: object = None,
        cbfunc: object = None,
        cbdata: object = None,
    ) -> int:
        """`PMIx_Notify_event`; with a function, `cbfunc(status, cbdata)` is called at its end.

        The source of an event is always the proc that raises it.
        """

        def event() -> NotifyEvent:
            if pysrc is not None and to_proc(pysrc) != self._me():
                log.info("an event is raised in the name of %s, not of %r", self._me(), pysrc)
            where = to_int(codes.DATA_RANGE, range) or RANGE_SESSION
            return NotifyEvent(to_int(codes.STATUS, status), where, to_infos(pyinfo))

        return self._either(cbfunc, cbdata, event)

    def _either(self, cbfunc: object, cbdata: object, make: Callable[[], Any]) -> int:
        return self._do(make) if cbfunc is None else self._begin(None, cbfunc, cbdata, make)


def _failed(declined: Notification) -> Notification:
    """Convert the event of a declined invitation to libpmix's event for leaders: failed, with the declining proc."""
    infos = tuple([info for info in declined.infos if info.key != keys.EVENT_AFFECTED_PROC])
    return Notification(
        statuses.GROUP_INVITE_FAILED,
        declined.source,
        declined.range,
        (*infos, Info(keys.EVENT_AFFECTED_PROC, Value(codes.PROC, declined.source))),
    )


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
