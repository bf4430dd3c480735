"""Rules that every server of a session must apply in the same way: member order, fault tolerance, leader counts.

Pure functions. A rule takes what contributors have said, whether these are processes of one node or servers of a
session, so one text serves each level: contributions are combined on the way up with `combined` and `agreed_order`, and
the level that decides applies the others. Servers that disagreed on one of these would give one group two memberships.
"""

from __future__ import annotations

from zlib import adler32, crc32

from pypmix.standard import codes, keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops.connecting import CONNECT_OPTIONAL
from pypmix.standard.ops.events import is_set
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.standard.types import Info, Proc

FENCE = "fence"
CONNECT = "connect"
DISCONNECT = "disconnect"
CONSTRUCT = "group_construct"
DESTRUCT = "group_destruct"

CONSTRUCT_FT = frozenset((keys.GROUP_OPTIONAL, keys.GROUP_NOTIFY_TERMINATION, keys.GROUP_FT_COLLECTIVE))
"""Directives with which a construct goes on without procs that are lost; the group keeps them."""

FT = {
    FENCE: frozenset((keys.GROUP_FT_COLLECTIVE,)),
    CONNECT: frozenset((keys.GROUP_FT_COLLECTIVE, CONNECT_OPTIONAL)),
    CONSTRUCT: CONSTRUCT_FT,
    DESTRUCT: frozenset((keys.GROUP_FT_COLLECTIVE, keys.GROUP_NOTIFY_TERMINATION)),
}
"""Directives that make an operation fault tolerant, by operation."""

MAX_LEADERS = 1 << 20


# Fault tolerance


def is_ft(operation: str, infos: Iterable[Info]) -> bool:
    """Tell whether an operation goes on without participants that are lost; a disconnect always does."""
    return operation == DISCONNECT or not ft_directives(operation, infos).isdisjoint(FT[operation])


def ft_directives(operation: str, infos: Iterable[Info]) -> frozenset[str]:
    """Return which directives that make an operation fault tolerant are set."""
    wanted = FT.get(operation, frozenset())
    return frozenset([info.key for info in infos if info.key in wanted and is_set((info,), info.key)])


# Participants


def checksum(procs: Iterable[Proc]) -> int:
    """Return 64 bits by which two sets of procs are compared without sending them."""
    names = "\0".join(sorted(map(str, procs))).encode()
    return crc32(names) << 32 | adler32(names)


# Member order


class Wish(Record):
    """The order of members that one contributor wants.

    Attributes:
        order: The members as it names them; empty if its own callers do not agree.
        final: The value of `FINAL_MEMBERSHIP_ORDER`; empty if it gives none.
        leads: Whether it is, or speaks for, the leader of the group.
    """

    order: tuple[Proc, ...] = ()
    final: tuple[Proc, ...] = ()
    leads: bool = False


def agreed_order(wishes: Iterable[Wish]) -> tuple[Proc, ...]:
    """Return the order that holds for contributors together, empty if they do not agree.

    A final order counts before all else, then the leader's order, then one that all of them have.
    """
    wishes = tuple(wishes)
    for wish in wishes:
        if wish.final:
            return wish.final
    for wish in wishes:
        if wish.leads and wish.order:
            return wish.order
    orders = {wish.order for wish in wishes}
    return orders.pop() if len(orders) == 1 else ()


def placed(order: Iterable[Proc], members: Iterable[Proc]) -> tuple[Proc, ...]:
    """Return members of a group or a connection by rank: those in the order that was agreed on, then the rest."""
    members = frozenset(members)
    first = dict.fromkeys([proc for proc in order if proc in members])
    return (*first, *sorted(members.difference(first)))


# Constructs whose leaders know only how many they are


def leader_count(counts: Iterable[int]) -> int | None:
    """Return how many leaders (`GROUP_BOOTSTRAP`) a construct has; None as long as no leader has come.

    Raises:
        PMIxError: Leaders expect different numbers, or an impossible one (`ERR_BAD_PARAM`).
    """
    expected = set(counts)
    if len(expected) > 1 or any(not 0 < count <= MAX_LEADERS for count in expected):
        text = "leaders expect " + ", ".join(map(str, sorted(expected))) + " leaders"
        raise PMIxError(text, status=statuses.ERR_BAD_PARAM)
    return next(iter(expected), None)


def all_leaders_came(count: int | None, came: int, lost: int) -> bool:
    """Tell whether no further leader is to come. Those that are lost count: the others were told to expect them."""
    return count is not None and came + lost >= count


def bootstrap_order(
    leaders: Sequence[Sequence[Proc]], added: Iterable[Proc], final: Iterable[Proc] = ()
) -> tuple[Proc, ...]:
    """Return the members of a construct by leaders, by group rank: leaders, then those added, as they are named.

    Args:
        leaders: The procs of each leader's contribution. One that stands for several (it comes from a server where
            a construct has been decided but for those it adds) keeps their order; otherwise they are sorted.
        added: Procs that leaders add, in the order in which they are named.
        final: The value of `FINAL_MEMBERSHIP_ORDER`; these procs come first.
    """
    named = [proc for procs in leaders for proc in procs]
    everyone = dict.fromkeys([*(named if len(leaders) == 1 else sorted(named)), *added])
    return tuple(dict.fromkeys([*[proc for proc in final if proc in everyone], *everyone]))


# Directives


def combined(said: Iterable[tuple[Info, ...]], without: frozenset[str] = frozenset()) -> tuple[Info, ...]:
    """Return the directives of all contributors as one list: of each key, those of the first contributor that gives it.

    A flag that any of them sets is set.

    Args:
        said: The directives of each contributor.
        without: Keys that are left out.
    """
    found: dict[str, list[Info]] = {}
    before: tuple[Info, ...] = ()
    for infos in said:
        if infos is before or not infos:
            # Servers keep equal requests as one object.
            continue
        before = infos
        mine: dict[str, list[Info]] = {}
        for info in infos:
            if info.key not in without:
                mine.setdefault(info.key, []).append(info)
        for key, items in mine.items():
            known = found.setdefault(key, items)
            if known is not items and _is_off(known[0]) and not _is_off(items[0]):
                found[key] = items
    return tuple([info for items in found.values() for info in items])


def _is_off(info: Info) -> bool:
    return info.value.type == codes.BOOL and not info.value.data
