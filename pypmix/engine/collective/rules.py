"""Rules that every server of a session must apply in the same way: member order, fault tolerance, leader counts.

All rules are pure functions of contributions, whether of processes of one node or of servers of a session, so each
level uses the same ones: it combines contributions with `combined` and `agreed_order` and passes them up, and the level
that decides applies the other rules. If two servers disagreed, one group would have two memberships.

**The order of a group's members** is decided once, when the group is formed, and the answer of the construct carries it
to all members. The rules are these, the first that applies:

1. A `FINAL_MEMBERSHIP_ORDER` (`final_order`).
2. If callers name all members: the order in which the leader names them, or in which all callers do (`agreed_order`).
3. If leaders know only their number, or add procs: first the leaders, then the added procs (`bootstrap_order`).

Members that the order of 1 or 2 lacks follow in the order of procs (`placed`), or in that of 3.

The owner of the decision is the level at which all callers meet:

- a Python server whose clients are the only callers (`serverside.constructs`, `serverside.bootstrapping`);
- the host of one native server (`host.nodegroups`), where the library has put the callers' order into the upcall;
- in a session with several servers, the server that coordinates the construct (`exchange.deciding`).

A group by invitation has its leader first, and then the invited procs in the order of the invitation: that leader's
library decides it (`engine.groups.inviting`). Clients decide no other order, except behind a foreign server before 6.1,
which sorts the members whatever the callers name: there each client restores the order of its own call
(`engine.groups.foreign.constructing`).
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
    from collections.abc import Iterable

    from pypmix.standard.types import Info, Proc

FENCE = "fence"
CONNECT = "connect"
DISCONNECT = "disconnect"
CONSTRUCT = "group_construct"
DESTRUCT = "group_destruct"

CONSTRUCT_FT = frozenset((keys.GROUP_OPTIONAL, keys.GROUP_NOTIFY_TERMINATION, keys.GROUP_FT_COLLECTIVE))
"""Directives with which a construct continues without lost procs; the group keeps them."""

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
    """Return True if an operation continues without lost participants; a disconnect always does."""
    return operation == DISCONNECT or not ft_directives(operation, infos).isdisjoint(FT[operation])


def ft_directives(operation: str, infos: Iterable[Info]) -> frozenset[str]:
    """Return the set directives that make an operation fault tolerant."""
    tolerant = FT.get(operation, frozenset())
    return frozenset([info.key for info in infos if info.key in tolerant and is_set((info,), info.key)])


# Participants


def checksum(procs: Iterable[Proc]) -> int:
    """Return 64 bits to compare two sets of procs without sending them."""
    names = "\0".join(sorted(map(str, procs))).encode()
    return crc32(names) << 32 | adler32(names)


# Member order


class OrderProposal(Record):
    """The order of members that one contributor requests.

    Attributes:
        order: The members in the contributor's order; empty if its callers do not agree.
        leads: Whether the contribution includes the leader of the group.
    """

    order: tuple[Proc, ...] = ()
    leads: bool = False


def final_order(orders: Iterable[tuple[Iterable[Proc], tuple[Proc, ...]]]) -> tuple[Proc, ...]:
    """Return the final order of the members, empty if no contributor gives one.

    If several do, that of the first proc counts, so that neither arrival nor the layout of nodes decides.

    Args:
        orders: For each contributor, the procs for which it speaks, and its value of `FINAL_MEMBERSHIP_ORDER`.
    """
    return min([(sorted(procs), order) for procs, order in orders if order], default=([], ()))[1]


def agreed_order(proposals: Iterable[OrderProposal]) -> tuple[Proc, ...]:
    """Return the common order of contributors, empty if they do not agree.

    The leader's order takes precedence, then an order that all contributors share; a `final_order` precedes both.
    """
    proposals = tuple(proposals)
    for proposal in proposals:
        if proposal.leads and proposal.order:
            return proposal.order
    orders = {proposal.order for proposal in proposals}
    return orders.pop() if len(orders) == 1 else ()


def placed(order: Iterable[Proc], members: Iterable[Proc]) -> tuple[Proc, ...]:
    """Return members of a group or a connection by rank: first the members in the agreed order, then the others."""
    members = frozenset(members)
    first = dict.fromkeys([proc for proc in order if proc in members])
    return (*first, *sorted(members.difference(first)))


# Constructs whose leaders know only their number


def leader_count(counts: Iterable[int]) -> int | None:
    """Return the number of leaders (`GROUP_BOOTSTRAP`) of a construct; None until a leader has joined.

    Raises:
        PMIxError: Leaders expect different numbers, or an impossible one (`ERR_BAD_PARAM`).
    """
    expected = set(counts)
    if len(expected) > 1 or any(not 0 < count <= MAX_LEADERS for count in expected):
        text = "leaders expect " + ", ".join(map(str, sorted(expected))) + " leaders"
        raise PMIxError(text, status=statuses.ERR_BAD_PARAM)
    return next(iter(expected), None)


def have_all_leaders(count: int | None, joined: int, failed: int) -> bool:
    """Return True if no further leader is expected; failed leaders count, as the others were told to expect them."""
    return count is not None and joined + failed >= count


def bootstrap_order(leaders: Iterable[Proc], added: Iterable[Proc], final: Iterable[Proc] = ()) -> tuple[Proc, ...]:
    """Return the members of a construct by leaders in group-rank order: the leaders, then the added procs.

    Leaders 5 and 2, which add 4 and 1, form the group 2, 5, 4, 1.

    Args:
        leaders: The leaders in their order: sorted, or as they have agreed if they know each other.
        added: Procs that leaders add, in the order of the leaders and then of each leader's list.
        final: The value of `FINAL_MEMBERSHIP_ORDER`; these procs come first.
    """
    everyone = dict.fromkeys([*leaders, *added])
    return tuple(dict.fromkeys([*[proc for proc in final if proc in everyone], *everyone]))


# Directives


def combined(contributions: Iterable[tuple[Info, ...]], without: frozenset[str] = frozenset()) -> tuple[Info, ...]:
    """Combine the directives of all contributors: for each key, use the first contributor that sets it.

    A flag is set if any contributor sets it.

    Args:
        contributions: The directives of each contributor.
        without: Keys to leave out.
    """
    found: dict[str, list[Info]] = {}
    before: tuple[Info, ...] = ()
    for infos in contributions:
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
