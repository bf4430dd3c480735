"""Events: handlers for them, and telling others."""

from __future__ import annotations

from pypmix.standard.ops.core import Op, instances
from pypmix.standard.ops.publishing import RANGE_SESSION, RANGES
from pypmix.standard.record import Record
from pypmix.standard.types import Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Delivery


EVENT_NO_ACTION_TAKEN = -331
EVENT_PARTIAL_ACTION_TAKEN = -332
EVENT_ACTION_DEFERRED = -333
EVENT_ACTION_COMPLETE = -334
"""How a handler answers; the last one ends the chain."""


class Notification(Record):
    """An event as a handler receives it.

    Attributes:
        code: The event's code, an `EventCode` or a status.
        source: The proc that raised it; a server raises some of its own.
        range: The range that it was notified to; None where the server does not say.
        infos: What came with it, without what servers add for themselves.
    """

    code: int
    source: Proc
    range: int | None = None
    infos: tuple[Info, ...] = ()


def check_codes(codes: object) -> None:
    """Raise where these are no event codes."""
    if not isinstance(codes, tuple):
        raise TypeError(f"codes must be a tuple, not {type(codes).__name__}")
    for code in codes:
        check_code(code)


def check_code(code: object) -> None:
    """Raise where this is no event code."""
    if not isinstance(code, int) or isinstance(code, bool):
        raise TypeError(f"an event code is an int, not {type(code).__name__}")
    if not -(2**31) <= code < 2**31:
        raise OverflowError(f"an event code has 32 bits, {code} has more")


class RegisterEventHandler(Op[int]):
    """`PMIx_Register_event_handler`: have a function called for events; returns the handler's id.

    No codes makes it a default handler: called for what no other handler of the process was registered for. The
    engine calls `handler` on a thread of its own, where it must neither block nor raise; the chain of handlers goes on
    when the delivery is `done`, from whatever thread.

    Understood directives: `attrs.EVENT_HDLR_NAME`, `attrs.EVENT_HDLR_FIRST`, `attrs.EVENT_HDLR_LAST`,
    `attrs.EVENT_HDLR_FIRST_IN_CATEGORY`, `attrs.EVENT_HDLR_LAST_IN_CATEGORY`, `attrs.EVENT_HDLR_BEFORE`,
    `attrs.EVENT_HDLR_AFTER`, `attrs.EVENT_HDLR_PREPEND`, `attrs.EVENT_HDLR_APPEND`, `attrs.EVENT_CUSTOM_RANGE`,
    `attrs.RANGE`, `attrs.EVENT_AFFECTED_PROC`, `attrs.EVENT_AFFECTED_PROCS`, `attrs.EVENT_ONESHOT`.
    """

    handler: Callable[[Delivery], None]
    codes: tuple[int, ...] = ()
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        if not callable(self.handler):
            raise TypeError(f"a handler is called with each event, which a {type(self.handler).__name__} cannot be")
        check_codes(self.codes)
        instances("directives", self.directives, Info)


class DeregisterEventHandler(Op[None]):
    """`PMIx_Deregister_event_handler`: have a handler called no more."""

    id: int


class NotifyEvent(Op[None]):
    """`PMIx_Notify_event`: raise an event; the caller's own handlers see it as well. Also an upcall.

    Understood infos: `attrs.EVENT_CUSTOM_RANGE` (a proc or an array of them, with `Range.CUSTOM`),
    `attrs.EVENT_NON_DEFAULT`, `attrs.EVENT_DO_NOT_CACHE`, `attrs.EVENT_AFFECTED_PROC`, `attrs.EVENT_AFFECTED_PROCS`;
    all others travel with the event.
    """

    code: int
    range: int = RANGE_SESSION
    infos: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        check_code(self.code)
        if self.range not in RANGES:
            raise ValueError(f"{self.range!r} is no range to notify")
        instances("infos", self.infos, Info)


class RegisterEvents(Op[None]):
    """Upcall `register_events`: a client is interested in these codes, which the host may raise; none means all."""

    codes: tuple[int, ...] = ()
    directives: tuple[Info, ...] = ()


class DeregisterEvents(Op[None]):
    """Upcall `deregister_events`: no client of this server is interested in these codes any more."""

    codes: tuple[int, ...] = ()
