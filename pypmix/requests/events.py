"""The arguments of event operations, and what becomes of a handler's answer."""

from __future__ import annotations

from pypmix.events import Answer, Event
from pypmix.requests import proc_tuple
from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import NotifyEvent, RegisterEventHandler
from pypmix.standard.types import DataArray, Info, Value
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Delivery
    from pypmix.requests import Infos, Procs

RANGE_SESSION = 4
RANGE_CUSTOM = 6

ORDERS = {
    "first": keys.EVENT_HDLR_FIRST,
    "last": keys.EVENT_HDLR_LAST,
    "first_in_category": keys.EVENT_HDLR_FIRST_IN_CATEGORY,
    "last_in_category": keys.EVENT_HDLR_LAST_IN_CATEGORY,
    "prepend": keys.EVENT_HDLR_PREPEND,
    "append": keys.EVENT_HDLR_APPEND,
}

_TRUE = Value.unchecked(codes.BOOL, True)


def _procs(key: str, single: str, procs: Procs) -> Info:
    found = proc_tuple(procs)
    if len(found) == 1:
        return Info(single, Value(codes.PROC, found[0]))
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, found)))


def event_code(code: object) -> int:
    """Return an event code as a plain int."""
    if not isinstance(code, int) or isinstance(code, bool):
        raise TypeError(f"an event code is a member of EventCode, such as EventCode.PROC_TERMINATED, not {code!r:.100}")
    return int(code)


def notify_op(
    code: int,
    range: int | None,
    targets: Procs,
    affected: Procs,
    non_default: bool,
    cache: bool,
    info: Infos,
) -> NotifyEvent:
    told = infos(info)
    if targets is not None:
        if range not in (None, RANGE_CUSTOM):
            raise ValueError(f"targets are a range of their own, so they cannot go with range {range!r}")
        range = RANGE_CUSTOM
        told += (_procs(keys.EVENT_CUSTOM_RANGE, keys.EVENT_CUSTOM_RANGE, targets),)
    elif range == RANGE_CUSTOM and not any(item.key == keys.EVENT_CUSTOM_RANGE for item in told):
        raise ValueError("Range.CUSTOM needs targets")
    if affected is not None:
        told += (_procs(keys.EVENT_AFFECTED_PROCS, keys.EVENT_AFFECTED_PROC, affected),)
    if non_default:
        told += (Info(keys.EVENT_NON_DEFAULT, _TRUE),)
    if not cache:
        told += (Info(keys.EVENT_DO_NOT_CACHE, _TRUE),)
    return NotifyEvent(event_code(code), RANGE_SESSION if range is None else int(range), told)


def handler_op(
    handler: Callable[[Delivery], None],
    events: tuple[int, ...],
    ended: Callable[[BaseException | None], None] | None,
    *,
    name: str | None = None,
    order: str | None = None,
    before: str | None = None,
    after: str | None = None,
    affected: Procs = None,
    once: bool = False,
    info: Infos = None,
) -> RegisterEventHandler:
    directives = infos(info)
    if sum(item is not None for item in (order, before, after)) > 1:
        raise ValueError("of order, before and after only one can be given")
    if order is not None:
        if order not in ORDERS:
            raise ValueError(f"{order!r} is not an order of handlers, which is one of {', '.join(ORDERS)}")
        directives += (Info(ORDERS[order], _TRUE),)
    for key, text in ((keys.EVENT_HDLR_NAME, name), (keys.EVENT_HDLR_BEFORE, before), (keys.EVENT_HDLR_AFTER, after)):
        if text is not None:
            directives += (Info(key, Value(codes.STRING, text)),)
    if affected is not None:
        directives += (_procs(keys.EVENT_AFFECTED_PROCS, keys.EVENT_AFFECTED_PROC, affected),)
    if once:
        directives += (Info(keys.EVENT_ONESHOT, _TRUE),)
    return RegisterEventHandler(handler, tuple([event_code(code) for code in events]), directives, ended)


def event_of(delivery: Delivery) -> Event:
    return Event(delivery.notification, delivery.results)


def answer_of(delivery: Delivery, returned: object) -> None:
    """Answer with what a handler has returned."""
    if returned is None:
        delivery.done(statuses.EVENT_NO_ACTION_TAKEN)
    elif isinstance(returned, Answer):
        delivery.done(returned.status, returned.results)
    else:
        raise TypeError(f"an event handler returns what ev.done() and its like make, or None, not {returned!r:.100}")


def failed(delivery: Delivery, function: Callable[..., Any], error: BaseException) -> None:
    """Log that a handler has raised, and answer so."""
    import logging

    name = getattr(function, "__qualname__", repr(function))
    logging.getLogger("pypmix.events").error("the handler %s failed in %r", name, event_of(delivery), exc_info=error)
    delivery.done((error.code if isinstance(error, PMIxError) else statuses.ERROR) or statuses.ERROR)
