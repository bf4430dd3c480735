"""Events: their handlers and notifications."""

from __future__ import annotations

from pypmix.standard import codes as kinds
from pypmix.standard import keys, statuses
from pypmix.standard.errors import WrongType
from pypmix.standard.ops.core import HostOp, Op, instances
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
"""In an event of a host: only clients that run pypmix receive it. In a registration: the client runs pypmix. A flag."""

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
"""The directives for the place of a handler in a chain, at most one of which may be set."""

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
"""Directives between a process and its library, which are not sent to a server."""


class Notification(Record):
    """An event as a handler receives it.

    Attributes:
        code: The event's code, an `EventCode` or a status.
        source: The proc that raised it; servers raise some events themselves.
        range: The range of the notification; None if the server does not send it.
        infos: Its infos, without the internal infos of servers.
    """

    code: int
    source: Proc
    range: int | None = None
    infos: tuple[Info, ...] = ()


class Delivery(Protocol):
    """An event at one handler of its process; answered once, now or later, from any thread.

    Attributes:
        notification: The event.
        results: The results of the handlers before this one.
    """

    notification: Notification
    results: tuple[Info, ...]

    def done(self, status: int = statuses.EVENT_NO_ACTION_TAKEN, results: tuple[Info, ...] = ()) -> None:
        """Continue the chain of handlers, or end it with `EVENT_ACTION_COMPLETE`.

        Args:
            status: The outcome: by default `EVENT_NO_ACTION_TAKEN`, another such status, or an error.
            results: Results for the next handlers, and for a server that waits for the outcome.
        """


def check_codes(codes: object) -> None:
    """Raise an error if one of the codes is not an event code."""
    if not isinstance(codes, tuple):
        raise TypeError(f"codes must be a tuple, not {type(codes).__name__}")
    for code in codes:
        check_code(code)


def check_code(code: object) -> None:
    """Raise an error if this is not an event code."""
    if not isinstance(code, int) or isinstance(code, bool):
        raise TypeError(f"an event code is an int, not {type(code).__name__}")
    if not -(2**31) <= code < 2**31:
        raise OverflowError(f"an event code has 32 bits, {code} has more")


def is_set(infos: Iterable[Info], key: str) -> bool:
    """Return True if a flag is set in infos; a flag without a value is set."""
    return any(info.key == key and (info.value.type == kinds.UNDEF or bool(info.value.data)) for info in infos)


_JUST_PROCS = {Proc}


def procs_in(infos: Iterable[Info], *keys: str) -> tuple[Proc, ...] | None:
    """Return the procs of infos under some keys, each a proc or an array of procs; None without such infos.

    Raises:
        WrongType: A value is neither a proc nor an array of procs.
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
    """Return the first number of infos under a key, a status or a count; None without such an info.

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


def matches_any(proc: Proc, procs: Iterable[Proc]) -> bool:
    """Return True if a proc is among procs; on either side the wildcard rank means all ranks of the nspace."""
    return any(proc[0] == other[0] and (proc[1] == other[1] or RANK_WILDCARD in (proc[1], other[1])) for other in procs)


def place_in(directives: Iterable[Info]) -> tuple[str, str]:
    """Return the place directive of a handler, one of `PLACES` or empty, and the handler name that it refers to.

    Raises:
        TypeError: A name is not a string.
        ValueError: Two places are set.
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
        raise ValueError(f"a handler has one place, not {' and '.join(repr(key) for key, _ in found)}")
    return found[0] if found else ("", "")


def check_range(range: int, infos: tuple[Info, ...]) -> None:
    """Raise an error unless procs are named for the custom range, and only for it."""
    procs = procs_in(infos, keys.EVENT_CUSTOM_RANGE)
    if range == RANGE_CUSTOM and not procs:
        raise ValueError("the custom range needs the procs that it consists of, in attrs.EVENT_CUSTOM_RANGE")
    if range != RANGE_CUSTOM and procs is not None:
        raise ValueError("attrs.EVENT_CUSTOM_RANGE goes with Range.CUSTOM only")


def check_event(event: Notification) -> None:
    """Raise an error unless a host can raise this event."""
    check_code(event.code)
    if event.range not in (None, *RANGES):
        raise ValueError(f"{event.range!r} is not a valid range")
    instances("infos", event.infos, Info)
    check_range(event.range or RANGE_SESSION, event.infos)


class RegisterEventHandler(Op[int]):
    """`PMIx_Register_event_handler`: register a function for events; returns the handler's id.

    Without codes it is a default handler: called for events of any code, after the other handlers of the process. The
    engine calls `handler` in its thread, so it must neither block nor raise; the chain of handlers continues when the
    delivery is `done`, from any thread.

    Understood directives: `attrs.EVENT_HDLR_NAME`, `attrs.EVENT_HDLR_FIRST`, `attrs.EVENT_HDLR_LAST`,
    `attrs.EVENT_HDLR_FIRST_IN_CATEGORY`, `attrs.EVENT_HDLR_LAST_IN_CATEGORY`, `attrs.EVENT_HDLR_BEFORE`,
    `attrs.EVENT_HDLR_AFTER`, `attrs.EVENT_HDLR_PREPEND`, `attrs.EVENT_HDLR_APPEND`, `attrs.EVENT_CUSTOM_RANGE`,
    `attrs.RANGE`, `attrs.EVENT_AFFECTED_PROC`, `attrs.EVENT_AFFECTED_PROCS`, `attrs.EVENT_ONESHOT`.

    Attributes:
        ended: Called once like `handler` when the session has ended, so that no further event can arrive: with None if
            it was closed, with the error if the server was lost. Not called after a deregistration.
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
    """`PMIx_Deregister_event_handler`: stop calling a handler."""

    id: int


class NotifyEvent(Op[None]):
    """`PMIx_Notify_event`: raise an event; the caller's own handlers see it as well. Also an upcall.

    Understood infos: `attrs.EVENT_CUSTOM_RANGE` (a proc or an array of them, with `Range.CUSTOM`),
    `attrs.EVENT_NON_DEFAULT`, `attrs.EVENT_DO_NOT_CACHE`, `attrs.EVENT_AFFECTED_PROC`, `attrs.EVENT_AFFECTED_PROCS`;
    all others are sent with the event.
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
    """Upcall `register_events`: a client has registered for codes, which the host may raise; none means all."""

    codes: tuple[int, ...] = ()
    directives: tuple[Info, ...] = ()


class DeregisterEvents(HostOp[None]):
    """Upcall `deregister_events`: no client of this server is registered for these codes any longer."""

    codes: tuple[int, ...] = ()
