"""How what a group does together ends, out of what its servers have given: nothing here knows a clock or a message."""

from __future__ import annotations

from pypmix.host.exchange.errors import listed
from pypmix.host.exchange.parts import CONNECT, DESTRUCT, DISCONNECT, Outcome
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import SUCCESSES
from pypmix.standard.ops.connecting import (
    CONNECT_ASSIGN,
    CONNECT_EARLY_TERM,
    CONNECT_NAME,
    CONNECT_NOTIFY_EACH,
    CONNECT_OPTIONAL,
    CONNECT_PROCS,
    CONNECT_XCHG_ONLY,
    Connected,
)
from pypmix.standard.ops.events import is_set, number_in, procs_in
from pypmix.standard.ops.hosting import (
    GROUP_ABSENT,
    GROUP_CLAIMS,
    GROUP_GUEST,
    GROUP_LEADER_PROC,
    GROUP_ORDER,
    GROUP_ROUND,
    GROUP_VERDICT,
)
from pypmix.standard.types import DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.host.exchange.parts import Part

    Parts = Sequence[tuple[str, Part]]


OPTIONAL = attrs.GROUP_OPTIONAL.key
FT_COLLECTIVE = attrs.GROUP_FT_COLLECTIVE.key
NOTIFY_TERMINATION = attrs.GROUP_NOTIFY_TERMINATION.key
ASSIGN_CONTEXT_ID = attrs.GROUP_ASSIGN_CONTEXT_ID.key
FINAL_ORDER = attrs.GROUP_FINAL_MEMBERSHIP_ORDER.key
ADD_MEMBERS = attrs.GROUP_ADD_MEMBERS.key
BOOTSTRAP = attrs.GROUP_BOOTSTRAP.key

KEPT = NOTIFY_TERMINATION, FT_COLLECTIVE, OPTIONAL
"""What is asked for that a group keeps."""

CONNECTED = CONNECT_EARLY_TERM, CONNECT_NOTIFY_EACH, CONNECT_OPTIONAL
"""What participants of a connect ask for that the servers of the others have to know."""

TOLD = frozenset(
    attribute.key
    for attribute in (
        attrs.GROUP_INFO,
        attrs.GROUP_INFO_ARRAY,
        attrs.GROUP_ENDPT_DATA,
        attrs.GROUP_JOB_INFO,
        attrs.PROC_INFO_ARRAY,
    )
)
"""What the members of a group tell each other."""

ARRAYS = frozenset((GROUP_ABSENT, GROUP_ORDER, GROUP_CLAIMS, FINAL_ORDER, ADD_MEMBERS))
"""What names procs."""

CARRIED = frozenset(
    (
        *KEPT,
        *TOLD,
        *ARRAYS,
        *CONNECTED,
        CONNECT_ASSIGN,
        CONNECT_XCHG_ONLY,
        ASSIGN_CONTEXT_ID,
        BOOTSTRAP,
        GROUP_GUEST,
        GROUP_LEADER_PROC,
        GROUP_ROUND,
        GROUP_VERDICT,
    )
)
"""The directives that other servers are told."""


def named(key: str, procs: Iterable[Proc]) -> Info:
    """Return an info that names procs."""
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(procs))))


def procs_under(part: Part, key: str) -> tuple[Proc, ...]:
    """Return the procs that a part names under a key."""
    return procs_in(part.infos, key) or ()


def asked(parts: Parts, key: str) -> bool:
    """Tell whether any part sets a flag."""
    return any(is_set(part.infos, key) for _, part in parts)


def tolerant(parts: Parts) -> bool:
    """Tell whether a construct goes on without those who have gone."""
    return any(asked(parts, key) for key in KEPT)


def understands(part: Part) -> bool:
    """Tell whether a server holds several rounds, and is told what native ones have no words for."""
    return any(info.key == GROUP_ROUND for info in part.infos)


def is_later_round(part: Part) -> bool:
    """Tell whether a server comes to a construct for another time than the first."""
    return any(info.key == GROUP_ROUND and info.value.data != 1 for info in part.infos)


def leads(part: Part) -> bool:
    """Tell whether an offer is that of a leader."""
    return size_of(part) is not None


def size_of(part: Part) -> int | None:
    """Return how many leaders an offer expects; None for one that is to be added."""
    return number_in(part.infos, BOOTSTRAP)


def absent_in(parts: Parts) -> set[Proc]:
    """Return who has not come, as the servers say."""
    return {proc for _, part in parts for proc in procs_under(part, GROUP_ABSENT)}


def failure(status: int, detail: str, missing: Iterable[Proc] = ()) -> Outcome:
    """Return the end of something that has failed."""
    return Outcome(status, detail, tuple(sorted(missing)))


def broken(parts: Parts) -> Outcome | None:
    """Return how it ends where a server says that its own part has failed."""
    waits = asked(parts, OPTIONAL)
    for name, part in parts:
        if part.status not in (*SUCCESSES, statuses.ERR_PARTIAL_SUCCESS) and not (
            waits and part.status == statuses.ERR_TIMEOUT
        ):
            return failure(part.status, f"it failed on {listed((name,))}", absent_in(parts))
    return None


class Construct:
    """A construct to which all have come who may.

    Args:
        parts: What the servers have given, in the order of their names.
        gone: Who has ended, or is on a server that is lost.
        leaders: Who has declared itself leader besides those whom the parts name.

    Attributes:
        absent: Who is no member, though named.
        leader: Who has declared itself leader; the first of several.
    """

    def __init__(self, parts: Parts, gone: set[Proc], leaders: set[Proc]) -> None:
        self.parts = parts
        self.absent = gone | absent_in(parts)
        found = set(leaders)
        for _, part in parts:
            found.update(part.leaders, procs_under(part, GROUP_LEADER_PROC))
        self.leader = min(found, default=None)

    def outcome(self) -> Outcome | None:
        """Return how it has failed, or that it is not over; None where the group stands."""
        parts, absent = self.parts, self.absent
        problem = broken(parts)
        if problem is not None:
            return problem
        if any(info.key == GROUP_VERDICT for _, part in parts for info in part.infos):
            return failure(statuses.GROUP_CONSTRUCT_ABORT, "a participant has given it up", absent)
        headless = self.leader in absent
        new = self._unknown()
        if new and not asked(parts, OPTIONAL) and (asked(parts, NOTIFY_TERMINATION) or self.leader in new):
            infos = [named(GROUP_ABSENT, sorted(absent))]
            if self.leader is not None:
                infos.append(Info(GROUP_LEADER_PROC, Value(codes.PROC, self.leader)))
            return Outcome(infos=tuple(infos))
        winner = self._winner() if headless else None
        if not tolerant(parts) and winner is None:
            if headless:
                return failure(
                    statuses.GROUP_CONSTRUCT_ABORT,
                    f"its leader {self.leader} has gone, and nobody leads in its place",
                    absent,
                )
            if absent:
                return failure(statuses.GROUP_CONSTRUCT_ABORT, "some of its members have gone", absent)
            if any(part.status == statuses.ERR_PARTIAL_SUCCESS and not understands(part) for _, part in parts):
                where = [name for name, part in parts if part.status == statuses.ERR_PARTIAL_SUCCESS]
                return failure(statuses.GROUP_CONSTRUCT_ABORT, f"members on {listed(where)} have gone")
        return None

    def _unknown(self) -> set[Proc]:
        """Return who is absent without all servers that understand it knowing."""
        found: set[Proc] = set()
        for _, part in self.parts:
            if understands(part):
                found |= self.absent - set(part.known)
        return found

    def _winner(self) -> Proc | None:
        """Return the first who wants to lead in the place of one that has gone."""
        claims = {proc for _, part in self.parts for proc in procs_under(part, GROUP_CLAIMS)}
        return min(claims - self.absent, default=None)

    def members(self) -> tuple[Proc, ...]:
        """Return those who are in the group, by their ranks."""
        return tuple([proc for proc in self._order() if proc not in self.absent])

    def _order(self) -> tuple[Proc, ...]:
        everybody = sorted({proc for _, part in self.parts for proc in part.procs})
        finals = [order for _, part in self.parts if (order := procs_under(part, FINAL_ORDER))]
        if finals:
            return _ordered(finals[0], everybody)
        orders = [_order_of(part) for _, part in self.parts]
        for (_, part), order in zip(self.parts, orders, strict=True):
            if order and self.leader is not None and self.leader in procs_under(part, GROUP_LEADER_PROC):
                return _ordered(order, everybody)
        return _ordered(orders[0], everybody) if len(set(orders)) == 1 else tuple(everybody)

    def leading(self) -> Proc | None:
        """Return the leader, or who leads in its place."""
        return self._winner() if self.leader in self.absent else self.leader


def _order_of(part: Part) -> tuple[Proc, ...]:
    """Return the order in which the callers of a server name the members; nothing where they differ."""
    return procs_under(part, GROUP_ORDER) or (() if understands(part) else part.procs)


def _ordered(first: Iterable[Proc], everybody: Iterable[Proc]) -> tuple[Proc, ...]:
    """Return everybody, those first who stand in an order."""
    known = set(everybody)
    return tuple(dict.fromkeys([*[proc for proc in first if proc in known], *everybody]))


def added_by(parts: Parts) -> tuple[Proc, ...]:
    """Return whom the leaders add, in the order in which they are named."""
    return tuple(dict.fromkeys([proc for _, part in parts for proc in procs_under(part, ADD_MEMBERS)]))


def told_by(parts: Parts) -> list[Info]:
    """Return what the members tell each other."""
    return list(dict.fromkeys([info for _, part in parts for info in part.infos if info.key in TOLD]))


def formed(
    parts: Parts, members: tuple[Proc, ...], absent: Iterable[Proc], leader: Proc | None, context_id: int | None
) -> Outcome:
    """Return the end of a construct of which a group has come."""
    infos = [named(attrs.GROUP_MEMBERSHIP.key, members)]
    if context_id is not None:
        infos.append(attrs.GROUP_CONTEXT_ID(context_id))
    infos += told_by(parts)
    infos += [Info(key, Value(codes.BOOL, True)) for key in KEPT if asked(parts, key)]
    missing = tuple(sorted(absent))
    if missing:
        infos.append(named(GROUP_ABSENT, missing))
    if leader is not None:
        infos.append(Info(GROUP_LEADER_PROC, Value(codes.PROC, leader)))
    return Outcome(infos=tuple(infos), jobs=jobs_of(parts))


def jobs_of(parts: Parts) -> bytes:
    """Return the job infos that some servers lack, each once."""
    return b"".join({nspace: job for _, part in parts for nspace, job in part.jobs}.values())


def bootstrapped(parts: Parts, gone: set[Proc]) -> tuple[Outcome | None, tuple[Proc, ...], set[Proc]]:
    """Return how a construct by offers ends to which all have come: what has failed, the members, who is absent.

    Args:
        parts: The offers, of which those of leaders agree on their number.
        gone: Who of them, and of those who are to be added, has ended.
    """
    leaders = [part for _, part in parts if leads(part)]
    absent = gone | absent_in(parts)
    if gone and not tolerant(parts):
        return failure(statuses.GROUP_CONSTRUCT_ABORT, "some of its members have gone", absent), (), absent
    found = [proc for part in leaders for proc in part.procs]
    order = dict.fromkeys([*(found if len(leaders) == 1 else sorted(found)), *added_by(parts)])
    final = next((asked for _, part in parts if (asked := procs_under(part, FINAL_ORDER))), ())
    return None, tuple([proc for proc in _ordered(final, order) if proc not in absent]), absent


def together(kind: int, parts: Parts, absent: set[Proc], left: set[Proc]) -> Outcome:
    """Return how a destruct, fence, connect or disconnect of a group ends to which all have come who may.

    Args:
        kind: What it is.
        parts: What the servers have given.
        absent: Members whom all servers name, and whom nobody waits for any more.
        left: Those of them that have left the group.
    """
    problem = broken(parts)
    if problem is not None:
        return problem
    lost = absent | absent_in(parts)
    if kind == DESTRUCT:
        # Whoever has left has nothing to take apart.
        lost -= left
    goes_on = kind == DISCONNECT or asked(parts, FT_COLLECTIVE) or (kind == CONNECT and asked(parts, CONNECT_OPTIONAL))
    if lost and not goes_on and not (kind == DESTRUCT and asked(parts, NOTIFY_TERMINATION)):
        return failure(statuses.ERR_PARTIAL_SUCCESS, "some of its members have gone", lost)
    failed = [name for name, part in parts if part.status == statuses.ERR_PARTIAL_SUCCESS]
    if failed and not goes_on and kind != DESTRUCT:
        return failure(statuses.ERR_PARTIAL_SUCCESS, f"members on {listed(failed)} have gone", lost)
    infos = (named(GROUP_ABSENT, sorted(lost)),) if lost else ()
    return Outcome(statuses.SUCCESS, infos=infos, jobs=jobs_of(parts), data=b"".join([part.data for _, part in parts]))


def assigns(parts: Parts) -> bool:
    """Tell whether a connect makes an nspace: somebody understands it, and nobody wants none."""
    return asked(parts, CONNECT_ASSIGN) and not asked(parts, CONNECT_XCHG_ONLY)


def connected(outcome: Outcome, parts: Parts, came: Iterable[Proc], name: str) -> Outcome:
    """Return the end of a connect that has not failed.

    Args:
        outcome: How it ends otherwise.
        parts: What the servers have given.
        came: Who has come.
        name: The nspace that is assigned; empty for none.
    """
    infos = [Info(key, Value(codes.BOOL, True)) for key in CONNECTED if asked(parts, key)]
    if name:
        members = sorted(came)
        if not members:
            return failure(statuses.ERR_PARTIAL_SUCCESS, "nobody is left")
        infos += [Info(CONNECT_NAME, Value(codes.STRING, name)), named(CONNECT_PROCS, members)]
    return outcome.replace(infos=(*outcome.infos, *infos))


def connection_in(infos: tuple[Info, ...]) -> Connected | None:
    """Return what a connect has made, None where it has assigned nothing and there is nothing to know of it."""
    name = next((str(info.value.data) for info in infos if info.key == CONNECT_NAME), "")
    flags = tuple([info for info in infos if info.key in CONNECTED])
    if not name and not flags:
        return None
    return Connected(name, procs_in(infos, CONNECT_PROCS) or (), directives=flags)


def overdue(who: Iterable[str], missing: Iterable[Proc]) -> Outcome:
    """Return the end of what some have not come to in time."""
    names = tuple(who)
    return failure(
        statuses.ERR_TIMEOUT, f"nothing came from {listed(names)} in time" if names else "the time is over", missing
    )


def different(parts: Parts) -> Outcome:
    """Return the end of a construct whose callers mean different groups."""
    where = [name for name, _ in parts]
    return failure(statuses.ERR_BAD_PARAM, f"{listed(where)} construct it of different procs")
