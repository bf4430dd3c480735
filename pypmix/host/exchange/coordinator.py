"""The coordinator of collectives between servers: collects contributions, and sends one decision.

Theory of operation
-------------------
A collective is carried out by the servers that have members of it. Each gives its contribution (`kinds.Part`), with
the contributions of its clients, to one of them: the coordinator. The coordinator alone decides how the collective
ends, and answers all with the same decision (`kinds.Outcome`), so that a contribution and a loss that cross on their
way never have different effects on different servers. `participant` is the other half: it finds the coordinator, gives
the contribution, and turns to the next server if the coordinator is lost.

The coordinator does not know how contributions reach it. A message contains any number of them, each with its server,
and all of these get one answer: a server between the others and the coordinator may combine the contributions from
below, pass them on as one message, and pass the one decision down (`tree`). Nothing here sends to a server that has not
asked.

An open collective is a `Round`. `KINDS` contains the properties of its kind; its states, and the events of each state,
are the table `Life`, by which every step is made:

* GATHERS: contributions arrive, servers and procs end. After each of these `_settle` checks if any proc is awaited.
* CLOSES: the time limit of one caller has passed, and the present procs become the group: late procs get a short time.
* CLOSED: that time has passed as well: no other proc is awaited.
* FORWARDED: a construct is decided except for procs that it adds, on unknown servers: its contributions were sent, as
  one offer, to the server where offers meet, and come back as the decision.
* EXPIRES: the time of a caller has passed, on whichever server. Servers that have callers of the collective and still
  wait for others end it first; then all contributors are answered, so that the next call of any of them is the
  next collective.
* ENDED: all have been answered. A round that reports lost members is not finished: those servers contribute once more,
  and it gathers again (AGAIN).

Of an ended round these are remembered, within bounds: the decision, by contribution, for servers whose answer was lost
with a coordinator (`Decided`); and the end of a construct that has ended without some servers, for these.

Servers send a contribution once more, with the same number, if one on its way to here is lost. It counts once, in
whatever order the two arrive, and all servers that have passed it on are answered; if it has ended already, it is
answered at once.

If a server is lost, its contributions are void. A collective ends at once if its kind requires that; any other
continues without the procs of that server. If a proc ends: once all members on one server have ended or left the group,
that server is not waited for. A contribution that was given counts, but if the kind needs callers and all of them have
ended, it is void. If the members on the coordinator have all ended or left their group, other servers may not know that
they were members, and contribute to the next server. So the coordinator refuses the contributions that it has, and
these servers turn to the next one as well.

All of this happens in turns of the exchange, never in two threads at a time; the clock is read only for the time at
which a round began.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial
from hashlib import blake2b
from itertools import count
from operator import itemgetter
from os import urandom

from pypmix.engine.times import EXPIRY_SECONDS, LATE_SECONDS, OPTIONAL_SECONDS
from pypmix.host.exchange import deciding
from pypmix.host.exchange.attendance import Attendance
from pypmix.host.exchange.errors import listed
from pypmix.host.exchange.kinds import (
    CONNECT,
    CONSTRUCT,
    DESTRUCT,
    DISCONNECT,
    FENCE,
    GATHER,
    GROUP_DISCONNECT,
    GROUP_FENCE,
    KINDS,
    OFFER,
    OUTCOME,
    Outcome,
    Part,
    Spread,
)
from pypmix.host.exchange.limits import MAX_DECIDED, MAX_DECIDED_BYTES
from pypmix.host.exchange.places import Party
from pypmix.host.exchange.rounds import PARTS, LateConstructs, Life, PendingContribution, Round
from pypmix.host.exchange.strand import log_failure
from pypmix.host.exchange.tree import ABSENT, NAMED
from pypmix.host.naming import shown
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops.hosting import GROUP_LEADER_PROC
from pypmix.standard.types import DataArray, Info, Value

_by_server = itemgetter(0)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Key
    from pypmix.standard.types import Proc

    Absent = Callable[[bytes, str, list[bytes]], bool]
    _End = tuple[int, str, Outcome]
    """The kind and the name of a collective, and its end."""


TIME_IS_OVER = "pypmix.collective.expired"
"""The topic of requests to end a collective that still lacks callers on a server; answered once it has ended there."""

EXPIRE = frozenset((FENCE, GROUP_FENCE, CONNECT, DISCONNECT, GROUP_DISCONNECT, CONSTRUCT, DESTRUCT))
"""The kinds that a server may have callers of before it contributes."""

OF_GROUPS = frozenset((GROUP_FENCE, GROUP_DISCONNECT, DESTRUCT))
"""The kinds whose participants are the members of a group, as far as their servers know these."""

COUNTER = 22
"""The bits of a context id that a server counts with."""


class ContextIds:
    """The context ids that one server assigns, from any thread; no other server assigns the same.

    They begin with 40 bits of a hash of the server's name, and of how often the numbers below that were used up. All
    of them are larger than the context ids that a server assigns to its local groups.

    Args:
        name: The server's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._given = count()

    def take(self) -> int:
        """Return the next one."""
        block, number = divmod(next(self._given), 1 << COUNTER)
        text = f"{block} {self._name}".encode("utf-8", "surrogateescape")
        prefix = int.from_bytes(blake2b(text, digest_size=5).digest(), "big")
        return 1 << 62 | prefix << COUNTER | number


class Names:
    """The nspaces that one server assigns to connections, from any thread; no other server assigns the same."""

    def __init__(self) -> None:
        self._prefix = f"connection-{urandom(6).hex()}"
        self._given = count(1)

    def take(self) -> str:
        """Return the next one."""
        return f"{self._prefix}@{next(self._given)}"


class Decided:
    """The ends of contributions that this server has decided or received, for servers whose answer was lost.

    Most servers never ask, so decisions are kept unchanged until one is looked up.
    """

    def __init__(self) -> None:
        self._indexed: OrderedDict[Key, _End] = OrderedDict()
        self._new: deque[_End] = deque()
        self._waiting = self._bytes = 0
        """The number of contributions in these, and the size of their data."""

    def add(self, kind: int, name: str, outcome: Outcome) -> None:
        """Remember a decision about a collective."""
        count = len(outcome.parts)
        if count:
            self._new.append((kind, name, outcome))
            self._waiting += count
            self._bytes += deciding.data_size(outcome)
            # All contributions of one decision are remembered, however many servers have contributed.
            while self._waiting > max(MAX_DECIDED, count) or (self._bytes > MAX_DECIDED_BYTES and len(self._new) > 1):
                _, _, oldest = self._new.popleft()
                self._waiting -= len(oldest.parts)
                self._bytes -= deciding.data_size(oldest)

    def find(self, key: Key) -> Outcome | None:
        """Return the end of a contribution."""
        while self._new:
            end = self._new.popleft()
            self._indexed.update(dict.fromkeys(end[2].parts, end))
            while len(self._indexed) > max(MAX_DECIDED, len(end[2].parts)):
                self._indexed.popitem(last=False)
        self._waiting = self._bytes = 0
        found = self._indexed.get(key)
        return None if found is None else found[2]

    def list_outcomes(self, kind: int, name: str) -> list[Outcome]:
        """Return the decisions about the collectives of a name; a construct may have been decided as an offer."""
        known = {id(end): end for end in (*self._indexed.values(), *self._new)}
        return [end[2] for end in known.values() if end[1] == name and end[0] in (kind, OFFER)]


class Coordinator:
    """The collectives that this server coordinates; used in the turns of its exchange.

    Args:
        session: The present servers, and the clock.

    Attributes:
        attendance: The awaited members.
        decided: The ends of collectives.
        late: The constructs that have ended without some servers.
    """

    def __init__(self, session: Exchange) -> None:
        self.name = session.name
        self.attendance = Attendance(session)
        self.decided = Decided()
        self.late = LateConstructs(session)
        self._session = session
        self._rounds: dict[tuple[int, str], list[Round]] = {}
        self._context_ids = ContextIds(self.name)
        self._names = Names()

    def __len__(self) -> int:
        return sum([len(rounds) for rounds in self._rounds.values()])

    def _all(self) -> Iterator[Round]:
        return iter([round for rounds in list(self._rounds.values()) for round in list(rounds)])

    # Contributions

    def contribute(self, pending: PendingContribution) -> None:
        """Process a contribution of a server, or contributions that it passes on."""
        gone = self._session.membership.gone
        server, part = pending.server, pending.part
        rule = KINDS[part.kind]
        if gone and not rule.loss_ends and not pending.drop(gone):
            # The report of their loss has overtaken them.
            self._answer((pending,), Outcome(apart=True))
            return
        known = None if rule.loss_ends else self._find_outcome(pending)
        if known is None and (rule.unknown or gone):
            known = self._refused(part)
        if known is not None:
            self._answer((pending,), known)
            return
        round = self._round_for(pending)
        if part.kind == GATHER and round.pending and part.servers != round.pending[0].part.servers:
            others = round.pending[0].part.servers
            text = f"{shown(server)} gathers with {listed(part.servers)}, others with {listed(others)}"
            self._answer((pending,), deciding.failure(statuses.ERR_BAD_PARAM, text))
            return
        same = round.add(pending)
        if round.state == Life.EXPIRES:
            return
        if part.status == statuses.ERR_TIMEOUT and part.kind in EXPIRE:
            self._overdue(round, pending)
        elif not same and rule.names_alike:
            self._end(round, deciding.different(round.parts))
        elif not same or len(round.present) >= round.expected or self.attendance.anybody_gone():
            self._settle(round)

    def _find_outcome(self, pending: PendingContribution) -> Outcome | None:
        """Return the end of the collective that servers contribute to, if it has ended."""
        keys = pending.keys
        ends = [self.decided.find(key) for key in keys]
        if pending.part.rule.remembered and None in ends:
            ends = [end or self.late.find(key[0], pending.part) for end, key in zip(ends, keys, strict=True)]
        first = ends[0]
        if any(end is not first for end in ends):
            return Outcome(apart=True)
        if first is not None:
            self.late.answer(first, pending.servers)
        return first

    def _refused(self, part: Part) -> Outcome | None:
        """Return why to refuse a contribution: another server is the root, or a server that it needs is lost."""
        if part.rule.unknown and self._session.root != self.name:
            return Outcome(apart=True)
        gone = self._session.gone.intersection(part.servers or part.party.servers) if part.rule.loss_ends else ()
        return self.servers_lost(part, gone) if gone else None

    def servers_lost(self, part: Part, servers: Iterable[str]) -> Outcome:
        """Return the end of a collective that ends with a lost server.

        If that server coordinated it, each of the others decides alone: procs that have ended elsewhere by now may have
        been answered before, so that only the procs of that server are missing for all.
        """
        names = set(servers)
        procs = [proc for server, here in part.party.servers.items() if server in names for proc in here]
        return deciding.servers_lost(part.kind, names, procs)

    def _round_for(self, pending: PendingContribution) -> Round:
        part = pending.part
        rule = KINDS[part.kind]
        rounds = self._rounds.setdefault((part.kind, part.name), [])
        given = () if rule.loss_ends or rule.unknown else set(pending.keys)
        for round in rounds if given else ():
            known = {key for other in round.pending for key in other.keys if key in given}
            if known:
                # They were sent once more, since a server on their way was lost: each counts once, all are answered.
                pending.drop({server for server, _ in known})
                return round
        for round in rounds:
            if part.kind == OFFER:
                if deciding.size_of(part) is None or not round.has_all_leaders():
                    return round
            elif not round.pending or (
                pending.servers.isdisjoint(round.present)
                and (part.kind == GATHER or not round.members.isdisjoint(part.party.procs))
            ):
                return round
        round = Round(part.kind, part.name, self._session.now())
        rounds.append(round)
        return round

    def cancel(self, sender: str, number: int, status: int, detail: str, servers: tuple[str, ...]) -> None:
        """A server gives up a contribution: its time has passed, a server is lost, or a caller has given up."""
        for round in self._all():
            for pending in round.pending:
                if pending.key == (sender, number):
                    self._give_up(round, pending, status, detail, servers)
                    return

    def _give_up(
        self, round: Round, pending: PendingContribution, status: int, detail: str, servers: tuple[str, ...]
    ) -> None:
        if round.forwarded is not None:
            self._session.collectives.give_up(round.forwarded, status)
        elif status == statuses.ERR_TIMEOUT:
            self._overdue(round, pending)
        elif round.rule.loss_ends and status == statuses.ERR_UNREACH and servers:
            self._end(round, self.servers_lost(pending.part, servers))
        elif round.kind == OFFER:
            self._withdraw(round, pending, deciding.failure(status, "it was given up"))
        else:
            outcome = deciding.failure(status, detail or f"{pending.server} has given it up")
            self._remember_late(round, outcome)
            self._end(round, outcome)

    def _overdue(self, round: Round, pending: PendingContribution) -> None:
        constructs = round.kind in (CONSTRUCT, OFFER)
        if constructs and deciding.has_flag(round.parts, deciding.OPTIONAL):
            if round.state == Life.GATHERS:
                round.step(Life.CLOSE)
                round.timer = self._session.later(OPTIONAL_SECONDS, lambda: self._close(round))
            return
        if round.kind == OFFER and deciding.size_of(pending.part) is None and not round.adds(pending.part):
            self._withdraw(round, pending, deciding.overdue())
            return
        outcome = deciding.overdue(*self.attendance.waiting(round))
        if deciding.is_later_round(pending.part):
            # All have contributed before, and do so once more, if only to give it up as well.
            self._remember_late(round, outcome)
        elif round.kind in EXPIRE and round.state == Life.GATHERS:
            self._expire(round, outcome)
            return
        if round.state != Life.EXPIRES:
            self._end(round, outcome)

    def _expire(self, round: Round, outcome: Outcome) -> None:
        """End it on the servers that have callers of it and still wait for others, and then on all others."""
        waiting = {*self.attendance.members(round)[0]} - self._session.gone
        round.step(Life.EXPIRE)
        if not waiting:
            self._end(round, outcome)
        data = NAMED.write((round.kind, round.name, round.pending[0].part.procs))

        def take_answer(name: str, _data: bytes | None, _error: PMIxError | None) -> None:
            waiting.discard(name)
            if not waiting and round.state == Life.EXPIRES:
                self._end(round, outcome)

        for name in sorted(waiting):
            self._session.requests.ask(name, TIME_IS_OVER, data, partial(take_answer, name), EXPIRY_SECONDS)

    def _close(self, round: Round) -> None:
        """Stop waiting for late procs: the present ones are the group."""
        if round.state == Life.CLOSES:
            round.step(Life.CLOSE)
            self._settle(round)

    def _withdraw(self, round: Round, pending: PendingContribution, outcome: Outcome) -> None:
        """End an offer whose caller will not be in the group."""
        self._take_back(round, pending)
        self._answer((pending,), outcome)
        self._settle(round)

    def _take_back(self, round: Round, pending: PendingContribution) -> None:
        """Drop a contribution that is void; if it was an offer that the others need, its caller is dead to them."""
        round.remove(pending)
        if round.kind == OFFER and (deciding.size_of(pending.part) is not None or round.adds(pending.part)):
            round.dead.update(pending.part.procs)

    # Servers and procs that join and leave

    def review(self) -> None:
        """Check again which procs are awaited: one has ended."""
        for round in self._all():
            self._settle(round)

    def lose(self, name: str) -> None:
        """A server is lost: drop its contributions."""
        for round in self._all():
            pending = next(iter(round.pending), None)
            lost = [pending for pending in round.pending if name in pending.servers]
            takes_part = pending is not None and name in (pending.part.servers or pending.part.party.servers)
            for each in lost:
                for server, part in each.parts:
                    if name in (part.covers or (server,)):
                        round.leaders.update(part.leaders, deciding.procs_under(part, GROUP_LEADER_PROC))
                if each.server == name and each.servers == {name}:
                    self._take_back(round, each)
                else:
                    each.drop((name,))
            if lost:
                round.keep(round.pending)
            if lost and not round.present:
                self._answer(round.pending, Outcome(apart=True))
                round.keep(())
            if round.rule.loss_ends and (lost or takes_part) and pending is not None:
                self._end(round, self.servers_lost(pending.part, (name,)))
            else:
                self._settle(round)

    def meet(self) -> None:
        """Another server has joined: if it is the root, rounds whose participants are not known wait there."""
        for round in [round for round in self._all() if round.rule.unknown]:
            if self._session.root != self.name:
                self._end(round, Outcome(apart=True))

    def close(self) -> None:
        """This server leaves: drop all rounds without an answer."""
        for round in self._all():
            round.keep(())
            self._remove(round)

    def leave(self, name: str, proc: Proc) -> None:
        """A member has left a group."""
        self.attendance.record_leaver(name, proc)
        self.review()

    # Decisions of other servers

    def learn(self, kind: int, name: str, outcome: Outcome) -> None:
        """Apply a decision of a lost coordinator, for contributions that have arrived here since."""
        self.decided.add(kind, name, outcome)
        keys = set(outcome.parts)
        for round in self._all():
            ended = [pending for pending in round.pending if not keys.isdisjoint(pending.keys)]
            if ended:
                round.keep([pending for pending in round.pending if pending not in ended])
                self._answer(ended, outcome)
            self._drop_empty(round)

    def end_waiting(self, part: Part) -> None:
        """End contributions that still wait here for a construct of this server that has ended."""
        for round in list(self._rounds.get((CONSTRUCT, part.name), ())):
            if round.pending and self.name not in round.present and not round.members.isdisjoint(part.procs):
                self._end(round, deciding.failure(deciding.ABORT, "it has ended without them"))

    # The awaited procs

    def missing(self, key: Key) -> tuple[list[str], set[Proc]]:
        """Return the servers, and the procs on them, that the collective of a contribution waits for.

        This may be called from any thread, while the round continues: then no proc is awaited.
        """
        for round in self._all():
            if any(pending.key == key for pending in list(round.pending)):
                try:
                    return self.attendance.waiting(round)
                except (IndexError, ValueError):
                    break
        return [], set()

    def unattended(self) -> list[tuple[Part, set[Proc], float]]:
        """Return a part of each round that this server has not contributed to, the missing procs, and when it began.

        This may be called from any thread.
        """
        rounds = [
            round for round in self._all() if round.kind not in (GATHER, OFFER) and self.name not in round.present
        ]
        first = [(round, pending) for round in rounds for pending in round.pending[:1]]
        return [(pending.part, self.missing(pending.key)[1], round.since) for round, pending in first]

    # Ending a round

    def _drop_empty(self, round: Round) -> None:
        if not round.pending:
            self._remove(round)

    def _settle(self, round: Round) -> None:
        """Decide, if no proc is awaited."""
        if round.state in (Life.ENDED, Life.EXPIRES):
            return
        if not round.pending:
            if not round.dead:
                self._remove(round)
            else:
                # Other leaders may still contribute: they expect as many as there have been.
                self._session.later(LATE_SECONDS, lambda: self._drop_empty(round))
            return
        if round.state == Life.FORWARDED:
            return
        if round.kind == OFFER:
            self._settle_offers(round)
            return
        if round.kind in OF_GROUPS and self.attendance.is_out_of(round):
            # Servers that know this name only the other members, and contribute to the next server.
            self._end(round, Outcome(apart=True, servers=(self.name,)))
            return
        if round.rule.needs_callers and all(self.attendance.is_void(pending) for pending in round.pending):
            # The others may have ended it without them.
            self._end(round, deciding.failure(statuses.ERR_PARTIAL_SUCCESS, "all who have called it have gone"))
            return
        is_full, is_closed = round.is_full(), round.state == Life.CLOSED
        if not (is_full or is_closed) and self.attendance.shows_awaited(round):
            return
        waiting, gone = self.attendance.members(round)
        if (not waiting or is_closed) and (is_full or not self._asks(round)):
            if round.kind == CONSTRUCT:
                self._settle_construct(round, gone, {proc for procs in waiting.values() for proc in procs})
            else:
                self._end(round, self._decision(round, gone))

    def _asks(self, round: Round) -> bool:
        """Ask servers that need not contribute if they have done so. Return True while any of them has not answered."""
        part = round.pending[0].part
        # This server, too: its contribution may wait for the decisions of a lost coordinator.
        away = round.present.union(round.absent, self._session.gone)
        names = [name for name in part.servers or part.party.names if name not in away]

        def take_absence(name: str) -> None:
            round.absent.add(name)
            self._settle(round)

        for name in [name for name in names if name not in round.asked]:
            round.asked.add(name)
            asked = NAMED.write((round.kind, round.name, part.procs))
            self._session.requests.ask(name, ABSENT, asked, lambda _data, _error, name=name: take_absence(name))  # type: ignore[misc]
        return bool(names)

    def _decision(self, round: Round, departed: set[Proc]) -> Outcome:
        parts, part = round.parts, round.pending[0].part
        present = () if round.is_full() else round.present
        late = [name for name in part.servers or part.party.names if name not in present] if present else []
        if round.kind == GROUP_DISCONNECT:
            # The members were connected until now: all ended procs are reported to them, which not all servers name.
            may_come, named = self.attendance.may_come(round), {proc for _, each in parts for proc in each.procs}
            departed = departed.union([proc for proc in named if not may_come(proc)])
        end = deciding.together(round.kind, parts, departed, late, self.attendance.leavers_of(round.kind, round.name))
        if round.kind == CONNECT and end.status == statuses.SUCCESS:
            came = {
                proc
                for pending in round.pending
                for server in pending.servers
                for proc in pending.part.party.servers.get(server, ())
            }
            name = self._names.take() if deciding.assigns(parts) else ""
            end = deciding.connected(end, parts, came - deciding.absent_in(parts), name)
        sizes = [each.sizes for _, each in parts]
        if end.status == statuses.SUCCESS and any(sizes):
            kept = sorted([key for server, each in parts for key in each.kept(server)])
            end = end.replace(spread=Spread(self.name, self._session.number(), tuple(kept)))
        return end

    def _settle_construct(self, round: Round, departed: set[Proc], silent: set[Proc]) -> None:
        declared = round.members & {self.attendance.leader_of(round.name)}
        construct = deciding.Construct(round.parts, departed | silent, round.leaders | declared)
        outcome = construct.outcome()
        if outcome is not None and outcome.status == statuses.SUCCESS:
            self._begin_round_again(round, outcome)
            return
        if silent:
            self._remember_late(round, deciding.overdue())
        if outcome is None:
            members, parts = construct.members(), round.parts
            added = tuple([proc for proc in deciding.added_by(parts) if proc not in members])
            if members and added:
                self._forward_offer(round, construct, members, added)
                return
            outcome = (
                deciding.formed(parts, members, construct.absent, construct.leading(), self._context_id(parts))
                if members
                else deciding.failure(deciding.ABORT, "no member is left", construct.absent)
            )
        self._end(round, outcome)

    def _begin_round_again(self, round: Round, outcome: Outcome) -> None:
        """Some members are lost, which not all know: servers that take rounds are answered and contribute again."""
        told = [pending for pending in round.pending if deciding.takes_rounds(pending.part)]
        round.step(Life.AGAIN)
        round.keep([pending for pending in round.pending if pending not in told])
        self._drop_empty(round)
        outcome = outcome.replace(parts=tuple([key for pending in told for key in pending.keys]))
        self.decided.add(round.kind, round.name, outcome)
        self._answer(told, outcome)

    def _forward_offer(
        self, round: Round, construct: deciding.Construct, members: tuple[Proc, ...], added: tuple[Proc, ...]
    ) -> None:
        """Forward the offer of all leaders, which add other procs: these are where offers meet."""
        parts = round.parts
        formed = deciding.formed(parts, members, construct.absent, construct.leading(), None)
        infos = [info for info in formed.infos if info.key in deciding.SHARED_DIRECTIVES]
        infos += [attrs.GROUP_BOOTSTRAP(len(members)), deciding.named(deciding.ADD_MEMBERS, added)]
        if deciding.has_flag(parts, deciding.ASSIGN_CONTEXT_ID):
            infos.append(attrs.GROUP_ASSIGN_CONTEXT_ID(True))
        if final := deciding.final_order(parts):
            infos.append(deciding.named(deciding.FINAL_ORDER, final))
        # If this server is lost, the end of these contributions is known where offers meet.
        keys = tuple([f"{number} {server}" for server, number in round.keys])
        infos.append(Info(PARTS, Value(codes.DATA_ARRAY, DataArray(codes.STRING, keys))))
        party = Party(members, self.attendance.places.server_of)
        part = Part(self._session.number(), OFFER, round.name, party, infos=tuple(infos))
        round.step(Life.FORWARD)
        round.forwarded = self._session.collectives.begin(
            part, lambda outcome: self._end(round, outcome.replace(parts=())), 0.0
        )

    def _context_id(self, parts: deciding.Parts) -> int | None:
        return self._context_ids.take() if deciding.has_flag(parts, deciding.ASSIGN_CONTEXT_ID) else None

    def _settle_offers(self, round: Round) -> None:
        try:
            expected = deciding.leaders_expected(round.parts)
        except PMIxError as error:
            self._end(round, deciding.failure(error.code, error.detail))
            return
        closed = round.state == Life.CLOSED
        if not round.has_all_leaders() and not (closed and expected):
            if closed:
                self._end(round, deciding.overdue())
            return
        waiting, gone, came = self.attendance.offers(round)
        if waiting and not closed:
            return
        offers = [pending for pending in round.pending if deciding.size_of(pending.part) is not None] + came
        mine = sorted([(pending.server, pending.part) for pending in offers], key=lambda offer: offer[0])
        outcome, members = deciding.bootstrapped(mine, gone | waiting, self._context_id(mine))
        others = [pending for pending in round.pending if pending not in offers]
        if members:
            # Its server has counted it among the procs that construct the group.
            offers += [
                pending for pending in others if pending.part.procs and set(members).issuperset(pending.part.procs)
            ]
            others = [pending for pending in others if pending not in offers]
        round.keep(offers)
        self._end(round, outcome)
        if others:
            text = f"it was not added to the group {round.name!r}"
            self._answer(others, deciding.failure(statuses.ERR_NOT_FOUND, text))

    def _remember_late(self, round: Round, outcome: Outcome) -> None:
        """Keep the end of a round for servers that contribute later."""
        if round.rule.remembered:
            self.late.add(round, set(self.attendance.members(round)[0]), outcome)

    def _remove(self, round: Round) -> None:
        if round.state != Life.ENDED:
            round.step(Life.END)
            rounds = self._rounds[round.kind, round.name]
            rounds.remove(round)
            if not rounds:
                del self._rounds[round.kind, round.name]
            if round.timer is not None:
                round.timer.cancel()

    def _end(self, round: Round, outcome: Outcome) -> None:
        self._remove(round)
        if round.kind == CONSTRUCT:
            self.attendance.forget_leader(round.name)
        # A round that ends with a lost server does not ask the others for its end.
        if not outcome.apart and not round.rule.loss_ends:
            outcome = outcome.replace(parts=tuple(round.keys))
        if outcome.parts:
            self.decided.add(round.kind, round.name, outcome)
        self._answer(round.pending, outcome)

    def _answer(self, contributions: Sequence[PendingContribution], outcome: Outcome) -> None:
        """Send a decision to the servers that have contributed, once for all of them, in the next turn."""
        self._session.soon(self._send_decision, tuple(contributions), OUTCOME.write(outcome))

    def _send_decision(self, contributions: tuple[PendingContribution, ...], data: bytes) -> None:
        # The others have a way to go.
        own = [pending for pending in contributions if pending.server == self.name]
        for pending in [*[each for each in contributions if each.server != self.name], *own] if own else contributions:
            try:
                pending.answer(data, None)
            except Exception:
                # The others are answered all the same.
                log_failure(pending.answer)
