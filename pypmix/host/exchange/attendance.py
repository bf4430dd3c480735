"""The members of collectives that are awaited: they have not ended, and have not left the group."""

from __future__ import annotations

from collections import OrderedDict

from pypmix.host.exchange import deciding
from pypmix.host.exchange.kinds import CONSTRUCT, GATHER, KINDS, OFFER
from pypmix.host.exchange.limits import MAX_LEFT
from pypmix.host.exchange.places import Places

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Part
    from pypmix.host.exchange.rounds import PendingContribution, Round
    from pypmix.standard.types import Proc

    Absent = Callable[[bytes, str, list[bytes]], bool]


class Attendance:
    """The members of collectives, as far as one server knows; used in the turns of its exchange.

    Args:
        session: The present servers, and the clock.

    Attributes:
        places: The server of each proc.
        absent: Returns True if a participant will no longer contribute to an allgather: given the signature, the
            participant, and the data of the others.
    """

    def __init__(self, session: Exchange) -> None:
        self.name = session.name
        self.places = Places()
        self.absent: Absent = lambda _signature, _name, _data: False
        self._session = session
        self._leavers: OrderedDict[str, dict[Proc, float]] = OrderedDict()
        """The procs that have left a group, by its name, and when."""
        self._leaders: OrderedDict[str, Proc] = OrderedDict()
        """The leaders of constructs whose servers wait for more callers, by the name of the group."""

    # Members of groups

    def record_leaver(self, name: str, proc: Proc) -> None:
        """Record that a member has left a group."""
        self._leavers.setdefault(name, {})[proc] = self._session.now()
        if len(self._leavers) > MAX_LEFT:
            self._leavers.popitem(last=False)

    def leader_of(self, name: str) -> Proc | None:
        """Return the declared leader of a construct to which its server has not contributed yet."""
        return self._leaders.get(name)

    def anybody_gone(self) -> bool:
        """Return True if any server or proc has ended, or has left a group: then members have to be checked."""
        return bool(self._session.membership.gone or self._leavers or self.places.any_missing)

    def has_left_session(self, proc: Proc) -> bool:
        """Return True if a proc has ended, its job has ended, or its server is lost."""
        if self.places.has_departed(proc) or self.places.is_ended_job(proc.nspace):
            return True
        return self.places.server_of(proc) in self._session.gone

    def are_out(self, part: Part, procs: Iterable[Proc]) -> bool:
        """Return True if none of these procs takes part any longer: they have ended, or have left the group."""
        left = self.leavers_of(part.kind, part.name)
        return all(self.places.is_missing(proc, part.incarnation) or proc in left for proc in procs)

    def is_out_of(self, round: Round) -> bool:
        """Return True if this server has members of a round, and none of them takes part any longer."""
        mine = {proc for _, part in round.parts for proc in part.party.servers.get(self.name, ())}
        return bool(mine) and not any(map(self.may_come(round), mine))

    def is_void(self, pending: PendingContribution) -> bool:
        """Return True if none of the procs of a contribution takes part any longer."""
        servers = pending.part.party.servers
        return all(self.are_out(pending.part, servers.get(name, ())) for name in pending.servers)

    def leavers_of(self, kind: int, name: str) -> set[Proc]:
        """Return the procs that have left the group of an operation."""
        return set(self._leavers.get(name.partition("\0")[0], ())) if KINDS[kind].needs_callers else set()

    def waiting(self, round: Round) -> tuple[list[str], set[Proc]]:
        """Return the servers, and the procs on them, that a round waits for."""
        if round.kind == OFFER:
            return [], self.offers(round)[0]
        found, _ = self.members(round)
        return sorted(found), {proc for procs in found.values() for proc in procs}

    def members(self, round: Round) -> tuple[dict[str, list[Proc]], set[Proc]]:
        """Return the awaited members by server, and the departed ones."""
        party = round.pending[0].part.party
        if round.alike and round.is_full() and not party.unknown and not self.anybody_gone():
            return {}, set()
        present = round.present
        if round.kind == GATHER:
            part = round.pending[0].part
            signature, given = part.name.encode("utf-8", "surrogateescape"), [each.data for _, each in round.parts]
            absent = [name for name in part.servers if name not in present and not self.absent(signature, name, given)]
            return {name: [] for name in absent}, set()
        may_come = self.may_come(round)
        servers: dict[str, list[Proc]] = {}
        gone: set[Proc] = set()
        if round.alike and self.places.stands(party):
            servers = party.servers
        else:
            for proc in sorted(round.members):
                where = self.places.server_of(proc)
                if where is None:
                    # Its job has ended.
                    gone.add(proc)
                else:
                    servers.setdefault(where, []).append(proc)
        waiting = {}
        for server, procs in servers.items():
            if server in present:
                if round.kind == CONSTRUCT:
                    gone.update([proc for proc in procs if self.places.has_departed(proc)])
                continue
            awaited = [] if server in self._session.gone else [*filter(may_come, procs)]
            gone.update(set(procs).difference(awaited))
            if awaited:
                waiting[server] = awaited
        return waiting, gone

    def may_come(self, round: Round) -> Callable[[Proc], bool]:
        """Return a predicate that is true for members that have not ended, and have not left the group."""
        incarnation = max([part.incarnation for pending in round.pending for _, part in pending.parts])
        left = self.leavers_of(round.kind, round.name)
        is_missing = self.places.is_missing
        return lambda proc: not is_missing(proc, incarnation) and proc not in left

    def shows_awaited(self, round: Round) -> bool:
        """Return True if a few of the members show that a proc is awaited.

        So all members are checked only when the last contribution has arrived, and not with each one before.
        """
        party = round.pending[0].part.party
        if round.kind == GATHER or not round.alike or not self.places.stands(party):
            return False
        may_come = self.may_come(round)
        away = round.present.union(self._session.gone)
        return any(server not in away and any(map(may_come, procs)) for server, procs in party.servers.items())

    def offers(self, round: Round) -> tuple[set[Proc], set[Proc], list[PendingContribution]]:
        """Return the added procs that are awaited, the ended ones, and the arrived offers of added procs."""
        leaders = deciding.leaders_in(round.parts)
        added = {proc for proc in deciding.added_by(round.parts) if proc not in leaders}
        gone = {proc for proc in leaders | added if self.has_left_session(proc)} | round.dead
        came: list[PendingContribution] = []
        waiting = added - gone
        unnamed: dict[str, list[PendingContribution]] = {}
        for pending in round.pending:
            if deciding.size_of(pending.part) is None:
                if not pending.part.procs:
                    unnamed.setdefault(pending.server, []).append(pending)
                elif not added.isdisjoint(pending.part.procs):
                    came.append(pending)
                    waiting.difference_update(pending.part.procs)
        for server, offers in unnamed.items():
            # Its server does not name the proc: it is one of the procs that are added there.
            here = sorted([proc for proc in waiting if self.places.server_of(proc) == server])
            came += offers[: len(here)]
            waiting.difference_update(here[: len(offers)])
        return waiting, gone, came

    def declare_leader(self, name: str, leader: Proc) -> None:
        """Record the leader of a construct to which its server has not contributed yet: it may end before that."""
        self._leaders[name] = leader
        if len(self._leaders) > MAX_LEFT:
            self._leaders.popitem(last=False)

    def forget_leader(self, name: str) -> None:
        """Forget the declared leader of a construct that has ended."""
        self._leaders.pop(name, None)

    def record_members(self, name: str, procs: Iterable[Proc], since: float) -> frozenset[Proc]:
        """Record that procs are members of a group, and so have not left it. Return the procs that have.

        Args:
            name: The group's name.
            procs: Its members when it was formed.
            since: When this server began to take part in the construct. Later reports are about this group: the report
                of a member that leaves at once may arrive before the group does, or between the answers to several
                callers.
        """
        left = self._leavers.get(name)
        if left is None:
            return frozenset()
        for proc in procs:
            if left.get(proc, since) < since:
                del left[proc]
        if not left:
            del self._leavers[name]
        return frozenset(left)
