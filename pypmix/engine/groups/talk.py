"""The messages of a group's processes to each other, and to a server of the Python engine, as events.

The Standard's events mean what the Standard says, so that programs on other libraries take part as far as those do.
Messages that it has no event for use codes of pypmix's own, which such programs never receive.
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
"""In a construct of the caller alone: it is added by others, and its library has no other way to say so."""

ABSENT = "pypmix.grp.absent"
"""Which procs of a construct have ended without coming, an array; between servers and their hosts."""

ERROR_STATUS = "pypmix.grp.status"
"""A status, where an event tells that something has failed: in `LEADER_SELECTED` that no proc wanted to lead."""

TERM = "pypmix.grp.term"
"""Which leader of the group in a row it is about, a `SIZE`: the first is 1."""

ADDED = "pypmix.grp.added"
"""In `MEMBERSHIP_UPDATE`: the admitted proc; with `PLACE` and `LIFE`."""

PLACE = "pypmix.grp.place"
LIFE = "pypmix.grp.life"
"""Numbers, each a `SIZE` or an array of them: see `membership.Admission`. A proc that leaves names the life it ends."""

LIVES = "pypmix.grp.lives"
"""The lives of several procs, where `LIFE` is something else."""

DEPARTED = "pypmix.grp.departed"
"""The procs that have left, an array."""

INFOS = "pypmix.grp.infos"
"""The infos that the members of a group got when it was formed, an array."""

ENDED = "pypmix.grp.ended"
"""The procs that have ended without leaving, an array."""

EPOCH = "pypmix.grp.epoch"
"""The number of changes of the membership, a `SIZE`."""

DESTRUCTS = "pypmix.grp.destruct"
"""In a fence: the group that it destructs, for members whose library knows of no such group."""

WITHOUT = "standing without"
"""From the host to the members on its server: those under `ENDED` had ended before the group stood."""

GONE = "gone"
"""To another server, and from a host to its server: `AFFECTED_PROC` has ended, and is a member of no group."""

DECLARES = "construct declares"
"""From a server to the other servers of a construct: the source declares itself the leader of the group."""

WELCOME = "enter welcome"
"""To the new member: it is one, in its life `LIFE`, and this is the group."""

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
"""The most choices, reports and answers that are remembered, for messages that come late."""


def found(infos: Iterable[Info], key: str, kind: type[D]) -> D | None:
    """Return what stands under a key, None where that is nothing of this kind: peers may send anything."""
    for info in infos:
        if info.key == key and isinstance(info.value.data, kind):
            return info.value.data
    return None


def left_in(infos: tuple[Info, ...]) -> list[Proc]:
    """Return the procs of which `NEWS` or a `WELCOME` say that they have left, and are not members again."""
    if found(infos, SAYS, str) not in (NEWS, WELCOME):
        return []
    added = {*listed(infos, ADDED)}
    return [each for each in listed(infos, DEPARTED) if each not in added]


def named(event: Notification) -> str:
    """Return the name of the group that an event is about; empty where there is none."""
    return found(event.infos, keys.GROUP_ID, str) or ""


_JUST_PROCS = {Proc}


def listed(infos: Iterable[Info], key: str) -> tuple[Proc, ...]:
    """Return the procs under a key, one or an array of them; none where there is nothing of the kind."""
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
    """Return the number under a key, None where there is none that `size` can carry on."""
    return next(iter(numbers(infos, key)), None)


def numbers(infos: Iterable[Info], key: str) -> tuple[int, ...]:
    """Return the numbers under a key, one or an array of them; none where there is nothing of the kind."""
    for info in infos:
        if info.key == key:
            data = info.value.data
            items = data.items if isinstance(data, DataArray) else (data,)
            if all(type(item) is int and 0 <= item < 2**64 for item in items):
                return tuple(items)
    return ()


def status_in(infos: Iterable[Info]) -> int:
    """Return the `ERROR_STATUS`: 0 where there is none, -1 where it is none that can be."""
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
    """Return what the handlers of an event have answered: `ABORT`, `CLAIM` or `GO_ON`.

    Args:
        status: That of the last handler.
        results: Those of all, with the status of each.
    """
    results = tuple(results)
    if status == statuses.GROUP_CONSTRUCT_ABORT or any(
        info.value.type == codes.STATUS and info.value.data == statuses.GROUP_CONSTRUCT_ABORT for info in results
    ):
        return ABORT
    return CLAIM if is_set(results, keys.GROUP_LEADER) else GO_ON


def keep(kept: dict[K, V], key: K, value: V, limit: int = KEPT) -> None:
    """Remember something, and forget what is oldest where it is too much."""
    kept.pop(key, None)
    kept[key] = value
    if len(kept) > limit:
        del kept[next(iter(kept))]


def only_hear(_event: Notification) -> None:
    """Watch an event, which is dealt with as it is screened, or after the handlers: so the server tells of it."""
