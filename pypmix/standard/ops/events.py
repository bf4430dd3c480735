"""Events: handlers for them, and telling others."""

from __future__ import annotations

from pypmix.standard import codes as kinds
from pypmix.standard import keys, statuses
from pypmix.standard.errors import WrongType
from pypmix.standard.ops.core import HostOp, Op
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION, RANGES
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_WILDCARD, DataArray, Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol
else:
    from pypmix.standard._typing import Generic as Protocol

OWN_CLIENTS = "pypmix.evt.own"
"""In an event of a host: only clients that run pypmix receive it. In a registration: it is of such a client. A flag."""

RANGE_RM = 1
RANGE_LOCAL = 2
RANGE_NAMESPACE = 3
RANGE_PROC_LOCAL = 7


FLAGS = (
    keys.EVENT_HDLR_FIRST,
    keys.EVENT_HDLR_LAST,
    keys.EVENT_HDLR_FIRST_IN_CATEGORY,
    keys.EVENT_HDLR_LAST_IN_CATEGORY,
    keys.EVENT_HDLR_PREPEND,
    keys.EVENT_HDLR_APPEND,
)
PLACES = (*FLAGS, keys.EVENT_HDLR_BEFORE, keys.EVENT_HDLR_AFTER)
"""The directives that say where in a chain a handler stands; at most one of them is given."""

DIRECTIVES = frozenset(
    (
        *PLACES,
        keys.EVENT_HDLR_NAME,
        keys.RANGE,
        keys.EVENT_CUSTOM_RANGE,
        keys.EVENT_AFFECTED_PROC,
        keys.EVENT_AFFECTED_PROCS,
        keys.EVENT_ONESHOT,
        keys.EVENT_RETURN_OBJECT,
    )
)
"""Directives between a process and its own library, which a server does not get."""


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


class Delivery(Protocol):
    """An event at one handler of its process; answered once, now or later, from any thread.

    Attributes:
        notification: The event.
        results: What the handlers before this one have handed on.
    """

    notification: Notification
    results: tuple[Info, ...]

    def done(self, status: int = statuses.EVENT_NO_ACTION_TAKEN, results: tuple[Info, ...] = ()) -> None:
        """Let the chain of handlers go on, or end it with `EVENT_ACTION_COMPLETE`.

        Args:
            status: How it was handled: `EVENT_NO_ACTION_TAKEN` by default, another of these, or an error.
            results: What the handlers that follow, and a server that waits for the outcome, are told.
        """


def check_codes(codes: object) -> None:
    """Raise where one of these is not an event code."""
    if not isinstance(codes, tuple):
        raise TypeError(f"codes must be a tuple, not {type(codes).__name__}")
    for code in codes:
        check_code(code)


def check_code(code: object) -> None:
    """Raise where this is not an event code."""
    if not isinstance(code, int) or isinstance(code, bool):
        raise TypeError(f"an event code is an int, not {type(code).__name__}")
    if not -(2**31) <= code < 2**31:
        raise OverflowError(f"an event code has 32 bits, {code} has more")


def is_set(infos: Iterable[Info], key: str) -> bool:
    """Tell whether a flag is among these; one without a value is set."""
    return any(info.key == key and (info.value.type == kinds.UNDEF or bool(info.value.data)) for info in infos)


_JUST_PROCS = {Proc}


def procs_in(infos: Iterable[Info], *keys: str) -> tuple[Proc, ...] | None:
    """Return the procs that these name under some keys, each one proc or an array of them; None if they name none.

    Raises:
        WrongType: A value is neither.
    """
    found: list[Proc] | None = None
    for info in infos:
        if info.key in keys:
            found = found or []
            data = info.value.data
            if isinstance(data, Proc):
                found.append(data)
            elif isinstance(data, DataArray) and {*map(type, data.items)} <= _JUST_PROCS:
                found.extend(data.items)
            else:
                raise WrongType(f"{info.key!r} takes a proc or an array of procs, not {info.value!r:.80}")
    return None if found is None else tuple(found)


def number_in(infos: Iterable[Info], key: str) -> int | None:
    """Return the first number that these give under a key, which is a status or a count; None if they give none.

    Raises:
        WrongType: The value is not a number of 32 bits.
    """
    for info in infos:
        if info.key == key:
            data = info.value.data
            if isinstance(data, bool) or not isinstance(data, int) or not -(1 << 31) <= data < 1 << 32:
                raise WrongType(f"{key!r} takes a number of 32 bits, not {info.value!r:.80}")
            return data
    return None


def among(proc: Proc, procs: Iterable[Proc]) -> bool:
    """Tell whether a proc is one of these; on either side the wildcard rank stands for all of an nspace."""
    return any(proc[0] == other[0] and (proc[1] == other[1] or RANK_WILDCARD in (proc[1], other[1])) for other in procs)


def place_in(directives: Iterable[Info]) -> tuple[str, str]:
    """Return where a handler wants to stand, as one of `PLACES` or nothing, and the name that it refers to.

    Raises:
        TypeError: A name is not a string.
        ValueError: It wants to stand in two places.
    """
    found: list[tuple[str, str]] = []
    for info in directives:
        if info.key in (keys.EVENT_HDLR_BEFORE, keys.EVENT_HDLR_AFTER):
            if not isinstance(info.value.data, str):
                raise TypeError(f"{info.key!r} takes the name of a handler, not {info.value!r:.80}")
            found.append((info.key, info.value.data))
        elif info.key in FLAGS and is_set((info,), info.key):
            found.append((info.key, ""))
    if len(found) > 1:
        raise ValueError(f"a handler stands in one place, not in {' and '.join(repr(key) for key, _ in found)}")
    return found[0] if found else ("", "")


def check_range(range: int, infos: tuple[Info, ...]) -> None:
    """Raise where procs are named and the range is not a custom one, or the other way round."""
    procs = procs_in(infos, keys.EVENT_CUSTOM_RANGE)
    if range == RANGE_CUSTOM and not procs:
        raise ValueError("the custom range needs the procs that it consists of, in attrs.EVENT_CUSTOM_RANGE")
    if range != RANGE_CUSTOM and procs is not None:
        raise ValueError("attrs.EVENT_CUSTOM_RANGE goes with Range.CUSTOM only")


class RegisterEventHandler(Op[int]):
    """`PMIx_Register_event_handler`: have a function called for events; returns the handler's id.

    No codes makes it a default handler: called for events of any code, after the other handlers of the process. The
    engine calls `handler` on a thread of its own, where it must neither block nor raise; the chain of handlers goes on
    when the delivery is `done`, from whatever thread.

    Understood directives: `attrs.EVENT_HDLR_NAME`, `attrs.EVENT_HDLR_FIRST`, `attrs.EVENT_HDLR_LAST`,
    `attrs.EVENT_HDLR_FIRST_IN_CATEGORY`, `attrs.EVENT_HDLR_LAST_IN_CATEGORY`, `attrs.EVENT_HDLR_BEFORE`,
    `attrs.EVENT_HDLR_AFTER`, `attrs.EVENT_HDLR_PREPEND`, `attrs.EVENT_HDLR_APPEND`, `attrs.EVENT_CUSTOM_RANGE`,
    `attrs.RANGE`, `attrs.EVENT_AFFECTED_PROC`, `attrs.EVENT_AFFECTED_PROCS`, `attrs.EVENT_ONESHOT`.

    Attributes:
        ended: Called once like `handler` when no further event can come because the session has ended: with None where
            it was closed, with the error where the server was lost. Not called after a deregistration.
    """

    handler: Callable[[Delivery], None]
    codes: tuple[int, ...] = ()
    directives: tuple[Info, ...] = ()
    ended: Callable[[BaseException | None], None] | None = None

    def __validate__(self) -> None:
        super().__validate__()
        if not callable(self.handler):
            raise TypeError(f"a handler is called with each event, which a {type(self.handler).__name__} cannot be")
        check_codes(self.codes)
        place_in(self.directives)
        procs_in(self.directives, keys.EVENT_CUSTOM_RANGE, keys.EVENT_AFFECTED_PROC, keys.EVENT_AFFECTED_PROCS)
        for info in self.directives:
            if info.key == keys.EVENT_HDLR_NAME and not isinstance(info.value.data, str):
                raise TypeError(f"the name of a handler is a str, not {info.value!r:.80}")


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
        super().__validate__()
        check_code(self.code)
        if self.range not in RANGES:
            raise ValueError(f"{self.range!r} is not a range to notify")
        check_range(self.range, self.infos)
        procs_in(self.infos, keys.EVENT_AFFECTED_PROC, keys.EVENT_AFFECTED_PROCS)


class RegisterEvents(HostOp[None]):
    """Upcall `register_events`: a client is interested in these codes, which the host may raise; none means all."""

    codes: tuple[int, ...] = ()
    directives: tuple[Info, ...] = ()


class DeregisterEvents(HostOp[None]):
    """Upcall `deregister_events`: no client of this server is interested in these codes any more."""

    codes: tuple[int, ...] = ()
