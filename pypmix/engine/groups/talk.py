"""The messages of a group's processes to each other, and to a server of the Python engine, as events.

The Standard's events keep their meaning, so that programs on other libraries take part as far as they can. Messages
for which it has no event use codes of pypmix, which such programs never receive.
"""

from __future__ import annotations

from pypmix.standard import codes, keys, statuses
from pypmix.standard._typing import TypeVar
from pypmix.standard.ops import NotifyEvent
from pypmix.standard.ops.events import is_set
from pypmix.standard.ops.publishing import RANGE_CUSTOM
from pypmix.standard.types import DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.standard.ops import Notification


SAYS = "pypmix.grp.says"
"""The kind of message in a `TALK`, a string: see the constants below."""

REASON = "pypmix.grp.reason"
"""Why an invitation is declined, or a construct given up, a string."""

REACTS = "pypmix.grp.reacts"
"""In a construct: the caller's library answers each `MEMBER_FAILED` and `LEADER_FAILED` of it with a `REACTION`."""

COMES_ADDED = "pypmix.grp.comes"
"""In a construct of the caller alone: others add the caller, and its library has no other way to express that."""

ABSENT = "pypmix.grp.absent"
"""The procs of a construct that have ended without calling it, an array; between servers and their hosts."""

ERROR_STATUS = "pypmix.grp.status"
"""A status, if an event reports a failure: in `LEADER_SELECTED` that no proc wanted to lead."""

TERM = "pypmix.grp.term"
"""The number of the leader that a message is about, a `SIZE`: the first leader of a group is 1."""

ADDED = "pypmix.grp.added"
"""In `MEMBERSHIP_UPDATE`: the admitted proc; with `PLACE` and `LIFE`."""

PLACE = "pypmix.grp.place"
LIFE = "pypmix.grp.life"
"""Numbers, each a `SIZE` or an array of them: see `standing.AdmissionRecord`. A proc that leaves names the life
it ends."""

LIVES = "pypmix.grp.lives"
"""The lives of several procs, in messages in which `LIFE` is something else."""

DEPARTED = "pypmix.grp.departed"
"""The procs that have left, an array."""

INFOS = "pypmix.grp.infos"
"""The infos that the members of a group got when it was formed, an array."""

ENDED = "pypmix.grp.ended"
"""The procs that have ended without leaving, an array."""

EPOCH = "pypmix.grp.epoch"
"""The number of changes of the membership, a `SIZE`."""

DESTRUCTS = "pypmix.grp.destruct"
"""In a fence: the group that it destructs, for members whose library does not know that group."""

WITHOUT = "standing without"
"""From the host to the members on its server: the procs under `ENDED` had ended before the group was formed."""

GONE = "gone"
"""To another server, and from a host to its server: `AFFECTED_PROC` has ended, and is a member of no group."""

DECLARES = "construct declares"
"""From a server to the other servers of a construct: the source declares itself the leader of the group."""

WELCOME = "enter welcome"
"""To the new member: it is a member, in its life `LIFE`, and this is the group."""

NEWS = "admit news"
"""To the admitted members, from the registrar: the other admitted ones, the members that have left or ended, and the
leader."""

REACTION = "reaction"
"""To the server: the verdict of a proc's handlers on the failure of `AFFECTED_PROC` during a construct. It is `CLAIM`,
`ABORT` or `GO_ON`, under `VERDICT`."""

VERDICT = "pypmix.grp.verdict"
CLAIM = "claim"
ABORT = "abort"
GO_ON = "go on"


def text(key: str, value: str) -> Info:
    """Return an info with a string."""
    return Info(key, Value(codes.STRING, value))


def flag(key: str, value: bool = True) -> Info:
    """Return an info with a bool."""
    return Info(key, Value(codes.BOOL, value))


def size(key: str, value: int) -> Info:
    """Return an info with a number."""
    return Info(key, Value(codes.SIZE, value))


def proc(key: str, value: Proc) -> Info:
    """Return an info with a proc."""
    return Info(key, Value(codes.PROC, value))


def procs(key: str, values: Iterable[Proc]) -> Info:
    """Return an info with an array of procs."""
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(values))))


D = TypeVar("D")
K = TypeVar("K")
V = TypeVar("V")

KEPT = 256
"""The most choices, reports and answers that are remembered, for messages that arrive late."""


def found(infos: Iterable[Info], key: str, kind: type[D]) -> D | None:
    """Return the value under a key; None if it is not of this kind: peers may send anything."""
    for info in infos:
        if info.key == key and isinstance(info.value.data, kind):
            return info.value.data
    return None


def left_in(infos: tuple[Info, ...]) -> list[Proc]:
    """Return the procs that have left according to `NEWS` or a `WELCOME`, and are not members again."""
    if found(infos, SAYS, str) not in (NEWS, WELCOME):
        return []
    added = {*listed(infos, ADDED)}
    return [each for each in listed(infos, DEPARTED) if each not in added]


def named(event: Notification) -> str:
    """Return the name of the group that an event is about; empty if it names none."""
    return found(event.infos, keys.GROUP_ID, str) or ""


_JUST_PROCS = {Proc}


def listed(infos: Iterable[Info], key: str) -> tuple[Proc, ...]:
    """Return the procs under a key, one or an array of them; empty if the value is not of that kind."""
    for info in infos:
        if info.key == key:
            data = info.value.data
            if isinstance(data, Proc):
                return (data,)
            if isinstance(data, DataArray) and {*map(type, data.items)} <= _JUST_PROCS:
                return tuple(data.items)
    return ()


def sizes(key: str, values: Iterable[int]) -> Info:
    """Return an info with an array of numbers."""
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.SIZE, tuple(values))))


def number(infos: Iterable[Info], key: str) -> int | None:
    """Return the number under a key; None if there is not a number that `size` can carry."""
    return next(iter(numbers(infos, key)), None)


def numbers(infos: Iterable[Info], key: str) -> tuple[int, ...]:
    """Return the numbers under a key, one or an array of them; empty if the value is not of that kind."""
    for info in infos:
        if info.key == key:
            data = info.value.data
            items = data.items if isinstance(data, DataArray) else (data,)
            if all(type(item) is int and 0 <= item < 2**64 for item in items):
                return tuple(items)
    return ()


def timeout_in(directives: Iterable[Info]) -> float:
    """Return the seconds after which an operation is to give up; 0 for never."""
    for info in directives:
        if info.key == keys.TIMEOUT and isinstance(info.value.data, (int, float)) and info.value.data > 0:
            return float(info.value.data)
    return 0.0


def status_in(infos: Iterable[Info]) -> int:
    """Return the `ERROR_STATUS`: 0 if there is not one, -1 if it is not a possible status."""
    status = next((info.value.data for info in infos if info.key == ERROR_STATUS), 0)
    return status if isinstance(status, int) and -(2**31) <= status < 2**31 else -1


def event(code: int, group: str, to: Iterable[Proc], infos: Iterable[Info] = ()) -> NotifyEvent:
    """Return an event about a group for some procs; only handlers of its code get it."""
    return NotifyEvent(
        code,
        RANGE_CUSTOM,
        (procs(keys.EVENT_CUSTOM_RANGE, to), text(keys.GROUP_ID, group), flag(keys.EVENT_NON_DEFAULT), *infos),
    )


def say(says: str, group: str, to: Iterable[Proc], infos: Iterable[Info] = ()) -> NotifyEvent:
    """Return a `TALK` about a group to the libraries of some procs; see `Agent.hear`."""
    return event(statuses.TALK, group, to, (text(SAYS, says), *infos))


def verdict_of(status: int, results: Iterable[Info]) -> str:
    """Return the answer of the handlers of an event: `ABORT`, `CLAIM` or `GO_ON`.

    Args:
        status: The status of the last handler.
        results: The results of all handlers, with the status of each.
    """
    results = tuple(results)
    if status == statuses.GROUP_CONSTRUCT_ABORT or any(
        info.value.type == codes.STATUS and info.value.data == statuses.GROUP_CONSTRUCT_ABORT for info in results
    ):
        return ABORT
    return CLAIM if is_set(results, keys.GROUP_LEADER) else GO_ON


def keep(kept: dict[K, V], key: K, value: V, limit: int = KEPT) -> None:
    """Remember a value, and forget the oldest one beyond the limit."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > limit:
        del kept[next(iter(kept))]


def only_hear(_event: Notification) -> None:
    """Watch an event that is processed by a screen or after the handlers: the server then sends it."""
