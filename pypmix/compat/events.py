"""Event handlers with the signature of the official binding, and notification."""

from __future__ import annotations

import threading

from pypmix.compat.doors import Doors
from pypmix.compat.running import answered, attempt, log, named_after
from pypmix.compat.values import from_infos, from_proc, refused, to_infos, to_int, to_proc
from pypmix.standard import codes, keys, statuses
from pypmix.standard.ops import DeregisterEventHandler, Notification, NotifyEvent, RegisterEventHandler
from pypmix.standard.ops.publishing import RANGE_SESSION
from pypmix.standard.types import Info, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Delivery


class Registration:
    """A handler on its way to being registered: what comes before its number is known waits for that."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.id = -1
        self.known = threading.Event()

    def settle(self, number: int) -> None:
        """Its number is known, or will never be."""
        self.id = number
        self.known.set()


def answer_of(returned: object) -> tuple[int, tuple[Info, ...]]:
    """Return the status and results that a handler has answered with: both, the status alone, or nothing."""
    if returned is None:
        return statuses.EVENT_NO_ACTION_TAKEN, ()
    if isinstance(returned, tuple | list) and len(returned) == 2:
        return to_int(codes.STATUS, returned[0]), to_infos(returned[1])
    return to_int(codes.STATUS, returned), ()


def code_list(given: object) -> tuple[int, ...]:
    """Return the event codes of a list; none for None."""
    if given is None:
        return ()
    if not isinstance(given, list | tuple):
        raise refused(f"event codes are a list, not {given!r:.80}")
    return tuple([to_int(codes.STATUS, code) for code in given])


class Events(Doors):
    """The methods about events."""

    def register_event_handler(self, pycodes: object, pyinfo: object, hdlr: object) -> tuple[int, int]:
        """`PMIx_Register_event_handler`: returns the status and the handler's number, -1 without one.

        The handler is called as `hdlr(number, status, source, infos, results)` and returns a status such as
        `PMIX_EVENT_ACTION_COMPLETE` and a list of results, which may be None.
        """
        if not callable(hdlr):
            return attempt(_no_handler, hdlr)[0], -1
        status, wanted = attempt(code_list, pycodes)
        if wanted is None:
            return status, -1
        registration = Registration(hdlr)
        refusals = statuses.GROUP_INVITE_FAILED in wanted and statuses.GROUP_INVITE_DECLINED not in wanted
        heard = (*wanted, statuses.GROUP_INVITE_DECLINED) if refusals else wanted

        def handle(delivery: Delivery) -> None:
            told = delivery.notification
            if refusals and told.code == statuses.GROUP_INVITE_DECLINED:
                told = _failed(told)

            def call() -> None:
                registration.known.wait()
                source, infos = from_proc(told.source), from_infos(told.infos)
                args = registration.id, int(told.code), source, infos, from_infos(delivery.results)
                delivery.done(*answer_of(registration.function(*args)))

            answered(named_after(hdlr, call), (), lambda error: delivery.done(statuses.ERROR))

        status, number = statuses.ERROR, None
        try:
            status, number = attempt(lambda: self._run(RegisterEventHandler(handle, heard, to_infos(pyinfo))))
        finally:
            registration.settle(-1 if number is None else number)
        return status, registration.id

    def deregister_event_handler(self, ref: object, cbfunc: object = None, cbdata: object = None) -> int:
        """`PMIx_Deregister_event_handler`; with a function, `cbfunc(status, cbdata)` tells the end of it."""
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
        """`PMIx_Notify_event`; with a function, `cbfunc(status, cbdata)` tells the end of it.

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
    """Return a refused invitation as libpmix tells a leader of it: as one that failed, with who it was."""
    infos = tuple([info for info in declined.infos if info.key != keys.EVENT_AFFECTED_PROC])
    return Notification(
        statuses.GROUP_INVITE_FAILED,
        declined.source,
        declined.range,
        (*infos, Info(keys.EVENT_AFFECTED_PROC, Value(codes.PROC, declined.source))),
    )


def _no_handler(given: object) -> None:
    raise refused(f"a handler is a function, not {given!r:.80}")
