"""The end of a collective, decided from the servers' contributions. Pure functions: no clock, message or state.

`coordinator` decides when a collective ends: when no member is awaited any longer. This module decides how, from the
contributions and the members that have ended:

* A fence, a connect, a disconnect and a destruct (`together`) fail if members are missing, unless the callers'
  directives admit that; otherwise the data of all servers is joined in the order of their names.
* A construct of named members (`Construct`) ends, continues without lost members, or is answered to servers that take
  rounds, so that their clients can react to a lost leader first. The rules are the same as on one server
  (`engine.collective.rules`).
* A construct whose members are not known beforehand (`bootstrapped`) ends when as many leaders as they expect, and all
  procs that these add, have called.

All servers get the same `Outcome`, so nothing here depends on the server that decides.
"""

from __future__ import annotations

from pypmix.engine.collective import rules
from pypmix.engine.collective.rules import OrderProposal
from pypmix.host.exchange.errors import listed
from pypmix.host.exchange.kinds import (
    DESTRUCT,
    DISCONNECT,
    FENCE,
    GATHER,
    KINDS,
    Outcome,
    pack_gathered,
)
from pypmix.standard import attrs, codes, keys, statuses
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
    COMMITTED,
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

    from pypmix.host.exchange.kinds import Part

    Parts = Sequence[tuple[str, Part]]

ABORT = statuses.GROUP_CONSTRUCT_ABORT

OPTIONAL = keys.GROUP_OPTIONAL
NOTIFY_TERMINATION = keys.GROUP_NOTIFY_TERMINATION
ASSIGN_CONTEXT_ID = keys.GROUP_ASSIGN_CONTEXT_ID
FINAL_ORDER = keys.GROUP_FINAL_MEMBERSHIP_ORDER
ADD_MEMBERS = keys.GROUP_ADD_MEMBERS
BOOTSTRAP = keys.GROUP_BOOTSTRAP

KEPT = NOTIFY_TERMINATION, keys.GROUP_FT_COLLECTIVE, OPTIONAL
"""Directives of a construct that the group keeps."""

CONNECTED = CONNECT_EARLY_TERM, CONNECT_NOTIFY_EACH, CONNECT_OPTIONAL
"""Directives of a connect that the servers of the other callers have to know."""

TOLD = frozenset(
    (keys.GROUP_INFO, keys.GROUP_INFO_ARRAY, keys.GROUP_ENDPT_DATA, keys.GROUP_JOB_INFO, keys.PROC_INFO_ARRAY)
)
"""Keys of the infos that the members of a group share."""

ARRAYS = frozenset((GROUP_ABSENT, GROUP_ORDER, GROUP_CLAIMS, FINAL_ORDER, ADD_MEMBERS))
"""Directives that name procs."""

SHARED_DIRECTIVES = frozenset(
    (
        *KEPT,
        *TOLD,
        *ARRAYS,
        *CONNECTED,
        COMMITTED,
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
"""The directives that other servers receive.

The server that gets the call processes others itself, such as a time limit, or passes them on in another form, such as
a leader. An unknown directive is ignored, as on a session with one server.
"""


# Values in contributions


def named(key: str, procs: Iterable[Proc]) -> Info:
    """Return an info that names procs."""
    return Info(key, Value(codes.DATA_ARRAY, DataArray(codes.PROC, tuple(procs))))


def procs_under(part: Part, key: str) -> tuple[Proc, ...]:
    """Return the procs that a contribution names under a key."""
    return procs_in(part.infos, key) or ()


def has_flag(parts: Parts, key: str) -> bool:
    """Return True if any contribution sets a flag."""
    return any(is_set(part.infos, key) for _, part in parts)


def _is_ft(operation: str, parts: Parts) -> bool:
    return rules.is_ft(operation, [info for _, part in parts for info in part.infos])


def takes_rounds(part: Part) -> bool:
    """Return True if a server contributes again to a construct that continues, with lost procs; native ones do not."""
    return any(info.key == GROUP_ROUND for info in part.infos)


def is_later_round(part: Part) -> bool:
    """Return True if a server contributes to a construct for another time than the first."""
    return any(info.key == GROUP_ROUND and info.value.data != 1 for info in part.infos)


def size_of(part: Part) -> int | None:
    """Return how many leaders an offer expects; None for the offer of a proc that is to be added."""
    return number_in(part.infos, BOOTSTRAP)


def leaders_in(parts: Parts) -> set[Proc]:
    """Return the procs whose offers are leaders' offers."""
    return {proc for _, part in parts if size_of(part) is not None for proc in part.procs}


def leaders_expected(parts: Parts) -> int | None:
    """Return how many leaders a construct by offers has; None before the first leader's offer.

    Raises:
        PMIxError: They do not agree.
    """
    return rules.leader_count([size for _, part in parts if (size := size_of(part)) is not None])


def absent_in(parts: Parts) -> set[Proc]:
    """Return the procs that have not called, according to the servers."""
    return {proc for _, part in parts if part.infos for proc in procs_under(part, GROUP_ABSENT)}


def _by_procs(part: tuple[str, Part]) -> tuple[Proc, ...]:
    return tuple(sorted(part[1].procs))


def added_by(parts: Parts) -> tuple[Proc, ...]:
    """Return the procs that the leaders add, in the order of the leaders and then of each leader's list."""
    named = [proc for _, part in sorted(parts, key=_by_procs) for proc in procs_under(part, ADD_MEMBERS)]
    return tuple(dict.fromkeys(named))


def final_order(parts: Parts) -> tuple[Proc, ...]:
    """Return the final order of the members, empty if no server gives one."""
    given = [(part.party.servers.get(server, part.procs), procs_under(part, FINAL_ORDER)) for server, part in parts]
    return rules.final_order(given)


def committed_in(parts: Parts) -> list[Info]:
    """Return the data that the participants on all servers have committed."""
    return [info for _, part in parts for info in part.infos if info.key == COMMITTED]


def data_size(outcome: Outcome) -> int:
    """Return the size of the committed data in a decision."""
    return len(outcome.data) + sum([len(info.value.data) for info in outcome.infos if info.key == COMMITTED])


def assigns(parts: Parts) -> bool:
    """Return True if a connect makes an nspace: a caller understands it, and no caller refuses it."""
    return has_flag(parts, CONNECT_ASSIGN) and not has_flag(parts, CONNECT_XCHG_ONLY)


# Failures


def failure(status: int, detail: str, missing: Iterable[Proc] = (), servers: Iterable[str] = ()) -> Outcome:
    """Return the end of a collective that has failed."""
    return Outcome(status, detail, tuple(sorted(missing)), tuple(sorted(servers)))


def overdue(servers: Iterable[str] = (), missing: Iterable[Proc] = ()) -> Outcome:
    """Return the end of a collective to which servers have not contributed in time."""
    names = tuple(servers)
    text = f"{listed(names)} did not contribute in time" if names else "the time limit has passed"
    return failure(statuses.ERR_TIMEOUT, text, missing, names)


def servers_lost(kind: int, servers: Iterable[str], missing: Iterable[Proc]) -> Outcome:
    """Return the end of a collective that ends with a lost server."""
    names = tuple(sorted(servers))
    text = f"{listed(names)} {'have' if len(names) > 1 else 'has'} gone"
    if kind == DISCONNECT:
        return Outcome()
    return failure(statuses.ERR_UNREACH if kind == GATHER else statuses.ERR_PARTIAL_SUCCESS, text, missing, names)


def different(parts: Parts) -> Outcome:
    """Return the end of a construct whose callers name different groups."""
    return failure(statuses.ERR_BAD_PARAM, f"{listed([name for name, _ in parts])} name different procs for it")


_WHOLE = frozenset((*SUCCESSES, statuses.ERR_PARTIAL_SUCCESS))
"""The statuses of contributions that have not failed."""


def _broken(parts: Parts) -> Outcome | None:
    """Return the failure of a collective if a server reports that its own part has failed."""
    hard = [(name, part.status) for name, part in parts if part.status not in _WHOLE]
    if hard and has_flag(parts, OPTIONAL):
        hard = [each for each in hard if each[1] != statuses.ERR_TIMEOUT]
    if not hard:
        return None
    names = [name for name, status in hard if status == hard[0][1]]
    return failure(hard[0][1], f"it failed on {listed(names)}", absent_in(parts))


# Constructs


class Construct:
    """A construct to which all procs that may call it have contributed.

    Args:
        parts: The contributions of the servers, in the order of their names.
        departed: The procs that have ended, or are on a lost server.
        leaders: Procs that have declared themselves leaders besides the leaders in the contributions.

    Attributes:
        absent: Named procs that do not become members.
        leader: The proc that has declared itself leader, the first of several; or the leader that was chosen since.
    """

    def __init__(self, parts: Parts, departed: set[Proc], leaders: set[Proc]) -> None:
        self.parts = parts
        self.absent = departed | absent_in(parts)
        self._last_leaders = {proc for _, part in parts for proc in part.leaders}
        declared = {proc for _, part in parts for proc in procs_under(part, GROUP_LEADER_PROC)}
        is_first_round = not any(part.losses for _, part in parts)
        # Servers that contribute again know the last leader, or that no leader has replaced the failed one.
        candidates = declared.union(leaders) if is_first_round else self._last_leaders
        self.leader = min(candidates, default=None)

    def outcome(self) -> Outcome | None:
        """Return its failure, or that it continues; None if the group is formed."""
        parts, absent = self.parts, self.absent
        problem = _broken(parts)
        if problem is not None:
            return problem
        if any(info.key == GROUP_VERDICT for _, part in parts for info in part.infos):
            return failure(ABORT, "a participant has given it up", absent)
        headless = self.leader in absent
        if not has_flag(parts, OPTIONAL) and (unreported := self._unreported()):
            leader = self.leader if self.leader in unreported else self.leading()
            # The members choose another leader first, which is then informed of the others.
            later = unreported - {leader} if leader in unreported else set()
            infos = [named(GROUP_ABSENT, sorted(absent - later))]
            if leader is not None:
                infos.append(Info(GROUP_LEADER_PROC, Value(codes.PROC, leader)))
            return Outcome(infos=tuple(infos))
        if _is_ft(rules.CONSTRUCT, parts) or (headless and self._winner() is not None):
            return None
        if headless:
            return failure(ABORT, f"its leader {self.leader} has gone, and no member leads in its place", absent)
        if absent:
            return failure(ABORT, "some of its members have gone", absent)
        where = [name for name, part in parts if part.status == statuses.ERR_PARTIAL_SUCCESS and not takes_rounds(part)]
        return failure(ABORT, f"members on {listed(where)} have gone") if where else None

    def _unreported(self) -> set[Proc]:
        """Return the lost procs of which callers must get an event before the construct can end.

        Of members that fail, a leader alone gets the events: its successor gets those events again.
        """
        absent, leader = self.absent, self.leader
        unknown = {proc for _, part in self.parts if takes_rounds(part) for proc in absent.difference(part.losses)}
        if not has_flag(self.parts, NOTIFY_TERMINATION):
            return unknown if leader in unknown else set()
        replaced = leader in absent and leader in self._last_leaders
        return unknown or (absent - {leader} if replaced else set())

    def _winner(self) -> Proc | None:
        """Return the first proc that claims the lead in place of a leader that has ended."""
        claims = {proc for _, part in self.parts for proc in procs_under(part, GROUP_CLAIMS)}
        return min(claims - self.absent, default=None)

    def members(self) -> tuple[Proc, ...]:
        """Return the members of the group, by their ranks."""
        proposals = [
            # A native server names the procs in the order that its callers agree on, if they do.
            OrderProposal(
                procs_under(part, GROUP_ORDER) or (() if takes_rounds(part) else part.procs),
                leads=self.leader is not None and self.leader in procs_under(part, GROUP_LEADER_PROC),
            )
            for _, part in self.parts
        ]
        everybody = {proc for _, part in self.parts for proc in part.procs} - self.absent
        return rules.placed(final_order(self.parts) or rules.agreed_order(proposals), everybody)

    def leading(self) -> Proc | None:
        """Return the leader, or the proc that leads in its place."""
        return self._winner() if self.leader in self.absent else self.leader


def formed(
    parts: Parts, members: tuple[Proc, ...], absent: Iterable[Proc], leader: Proc | None, context_id: int | None
) -> Outcome:
    """Return the end of a construct that has formed a group."""
    infos = [named(keys.GROUP_MEMBERSHIP, members)]
    if context_id is not None:
        infos.append(attrs.GROUP_CONTEXT_ID(context_id))
    infos += dict.fromkeys([info for _, part in parts for info in part.infos if info.key in TOLD])
    infos += committed_in(parts)
    infos += [Info(key, Value(codes.BOOL, True)) for key in KEPT if has_flag(parts, key)]
    missing = tuple(sorted(absent))
    if missing:
        infos.append(named(GROUP_ABSENT, missing))
    if leader is not None:
        infos.append(Info(GROUP_LEADER_PROC, Value(codes.PROC, leader)))
    return Outcome(infos=tuple(infos))


def bootstrapped(parts: Parts, departed: set[Proc], context_id: int | None) -> tuple[Outcome, tuple[Proc, ...]]:
    """Return the end of a construct by offers to which all have contributed, and the members.

    Args:
        parts: The offers; the leaders' offers agree on the number of leaders.
        departed: The leaders and added procs that have ended.
        context_id: The context id that is wanted, if any.
    """
    absent = departed | absent_in(parts)
    if departed and not _is_ft(rules.CONSTRUCT, parts):
        return failure(ABORT, "some of its members have gone", absent), ()
    offers = [part.procs for _, part in parts if size_of(part) is not None]
    # Leaders that know each other make one offer, in the order that they have agreed on.
    leaders = offers[0] if len(offers) == 1 else sorted([proc for procs in offers for proc in procs])
    order = rules.bootstrap_order(leaders, added_by(parts), final_order(parts))
    members = tuple([proc for proc in order if proc not in absent])
    if not members:
        return failure(ABORT, "no member is left", absent), ()
    declared = {proc for _, part in parts for proc in procs_under(part, GROUP_LEADER_PROC)}
    return formed(parts, members, absent, min(declared - absent, default=None), context_id), members


# The others


def together(kind: int, parts: Parts, absent: set[Proc], silent: Iterable[str], leavers: set[Proc]) -> Outcome:
    """Return the end of a collective other than a construct, when nothing more is awaited.

    Args:
        kind: Its kind.
        parts: The contributions of the servers.
        absent: Members that all servers name, and that are no longer awaited.
        silent: The servers that have not contributed because all of their members have ended.
        leavers: The members that have left the group.
    """
    if kind == GATHER:
        return Outcome(data=pack_gathered(list(parts), tuple(silent)))
    data = b"".join([part.data for _, part in parts])
    if not absent and not [part for _, part in parts if part.status or part.infos]:
        # All arguments are given: defaults cost more.
        return Outcome(statuses.SUCCESS, "", (), (), (), data, (), False, None)
    problem = _broken(parts)
    if problem is not None:
        return problem
    # Members that have left take no part in the destruct.
    lost = (absent | absent_in(parts)) - (leavers if kind == DESTRUCT else set())
    failed = [name for name, part in parts if part.status == statuses.ERR_PARTIAL_SUCCESS]
    ft = not (lost or failed) or _is_ft(KINDS[kind].operation, parts)
    if lost and not ft:
        where = [*silent, *failed] if kind == FENCE else []
        text = f"members on {listed(where)} have gone" if where else "some of its members have gone"
        return failure(statuses.ERR_PARTIAL_SUCCESS, text, lost)
    if failed and not ft and kind != DESTRUCT:
        return failure(statuses.ERR_PARTIAL_SUCCESS, f"members on {listed(failed)} have gone", lost)
    return Outcome(infos=(named(GROUP_ABSENT, sorted(lost)),) if lost else (), data=data)


def connected(outcome: Outcome, parts: Parts, callers: Iterable[Proc], name: str) -> Outcome:
    """Return the end of a connect that has not failed.

    Args:
        outcome: Its end apart from the connection.
        parts: The contributions of the servers.
        callers: The procs that have called.
        name: The nspace that is assigned; empty for none.
    """
    infos = [Info(key, Value(codes.BOOL, True)) for key in CONNECTED if has_flag(parts, key)]
    infos += committed_in(parts)
    if name:
        members = rules.placed((), callers)
        if not members:
            return failure(statuses.ERR_PARTIAL_SUCCESS, "no proc is left")
        infos += [Info(CONNECT_NAME, Value(codes.STRING, name)), named(CONNECT_PROCS, members)]
    return outcome.replace(infos=(*outcome.infos, *infos))


def connection_in(infos: tuple[Info, ...]) -> Connected | None:
    """Return the connection that a connect has made; None if it has neither an nspace nor directives."""
    name = next((str(info.value.data) for info in infos if info.key == CONNECT_NAME), "")
    directives = tuple([info for info in infos if info.key in CONNECTED or info.key == COMMITTED])
    if not name and not directives:
        return None
    return Connected(name, procs_in(infos, CONNECT_PROCS) or (), directives=directives)
