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
ended, it is void.

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

from pypmix.engine.collective import rules
from pypmix.engine.states import Machine, Row
from pypmix.engine.times import EXPIRY_SECONDS, LATE_SECONDS, OPTIONAL_SECONDS
from pypmix.host.exchange import deciding
from pypmix.host.exchange.codec import NUMBER, PROCS, TEXT, Field, message
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
    Decision,
    Outcome,
    Part,
    Spread,
)
from pypmix.host.exchange.limits import MAX_DECIDED, MAX_DECIDED_BYTES, MAX_LATE, MAX_LEFT
from pypmix.host.exchange.places import Party, Places
from pypmix.host.exchange.tree import ABSENT, NAMED, is_flat
from pypmix.host.naming import shown
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops.hosting import GROUP_LEADER_PROC
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, Info, Value, decimal

_by_server = itemgetter(0)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Iterator

    from pypmix.host.exchange.kinds import Key, OnDecision, OnOutcome, Session, Timer
    from pypmix.standard.types import Proc

    Absent = Callable[[bytes, str, list[bytes]], bool]
    _End = tuple[int, str, Outcome]
    """The kind and the name of a collective, and its end."""

    Forward = Callable[[Part, OnOutcome], Callable[[int], None]]


class Life(Machine):
    """A collective operation at the server that coordinates it."""

    GATHERS = START = "contributions come"
    CLOSES = "latecomers have a moment"
    CLOSED = "waits no more"
    FORWARDED = "is where offers meet"
    EXPIRES = "ends on servers that lack callers"
    ENDED = "over"

    CLOSE = "the time of a caller is over, or that moment, and those who have come are the group"
    AGAIN = "some are lost, as not all know"
    FORWARD = "all have come, and add procs of servers that are not known"
    EXPIRE = "the time of a caller is over, and other servers may have callers"
    END = "it is decided, fails, or has no contribution any more"

    ROWS = (
        Row(GATHERS, CLOSE, CLOSES),
        Row(GATHERS, AGAIN, GATHERS, "the servers that take rounds"),
        Row(GATHERS, FORWARD, FORWARDED, "the server where offers meet"),
        Row(GATHERS, EXPIRE, EXPIRES, "the servers that have not contributed"),
        Row(GATHERS, END, ENDED, "the servers"),
        Row(CLOSES, CLOSE, CLOSED),
        Row(CLOSES, AGAIN, GATHERS, "the servers that take rounds"),
        Row(CLOSES, FORWARD, FORWARDED, "the server where offers meet"),
        Row(CLOSES, END, ENDED, "the servers"),
        Row(CLOSED, AGAIN, GATHERS, "the servers that take rounds"),
        Row(CLOSED, FORWARD, FORWARDED, "the server where offers meet"),
        Row(CLOSED, END, ENDED, "the servers"),
        Row(FORWARDED, END, ENDED, "the servers"),
        Row(EXPIRES, END, ENDED, "the servers"),
    )


PARTS = "pypmix.grp.parts"
"""The contributions for which an offer is given, as texts."""

TIME_IS_OVER = "pypmix.collective.expired"
"""The topic of requests to end a collective that still lacks callers on a server; answered once it has ended there."""

EXPIRED: Field[tuple[int, str, tuple[Proc, ...]]] = message(NUMBER, TEXT, PROCS)
"""Its kind, its name, and the procs."""

EXPIRE = frozenset((FENCE, GROUP_FENCE, CONNECT, DISCONNECT, GROUP_DISCONNECT, CONSTRUCT, DESTRUCT))
"""The kinds that a server may have callers of before it contributes."""

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
        self._find_outcome: OrderedDict[Key, _End] = OrderedDict()
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
            self._find_outcome.update(dict.fromkeys(end[2].parts, end))
            while len(self._find_outcome) > max(MAX_DECIDED, len(end[2].parts)):
                self._find_outcome.popitem(last=False)
        self._waiting = self._bytes = 0
        found = self._find_outcome.get(key)
        return None if found is None else found[2]

    def list_outcomes(self, kind: int, name: str) -> list[Outcome]:
        """Return the decisions about the collectives of a name; a construct may have been decided as an offer."""
        known = {id(end): end for end in (*self._find_outcome.values(), *self._new)}
        return [end[2] for end in known.values() if end[1] == name and end[0] in (kind, OFFER)]


class PendingContribution:
    """Contributions that have arrived as one and wait for the others: one, or several that were combined on the way.

    Args:
        server: The server that sent them.
        number: The number by which that server gives them up.
        parts: The contributions, each with its server.
        answer: Called with the decision.

    Attributes:
        part: The first of them.
        servers: The servers that have contributed.
    """

    __slots__ = ("answer", "number", "part", "parts", "server", "servers")

    def __init__(self, server: str, number: int, parts: tuple[tuple[str, Part], ...], answer: OnDecision) -> None:
        self.server = server
        self.number = number
        self.parts = parts
        self.part = parts[0][1]
        self.answer = answer
        if len(parts) == 1 and not self.part.covers:
            self.servers = frozenset((parts[0][0],))
        else:
            self.servers = frozenset([name for head, part in parts for name in part.covers or (head,)])

    @property
    def key(self) -> Key:
        """The key of the message, by which it is given up."""
        return self.server, self.number

    @property
    def keys(self) -> list[Key]:
        """The contributions."""
        return [key for server, part in self.parts for key in part.keys(server)]

    def drop(self, servers: Container[str]) -> bool:
        """Drop the void or repeated contributions of some servers. Return True if any is left.

        An object without any is answered with the others of its round.
        """
        left: list[tuple[str, Part]] = []
        for server, part in self.parts:
            if part.covers:
                left += part.without(servers)
            elif server not in servers:
                left.append((server, part))
        self.parts = tuple(left)
        self.servers = frozenset([name for head, part in left for name in part.covers or (head,)])
        return bool(left)


class Round:
    """A collective that has not ended.

    Attributes:
        state: A state of `Life`.
        rule: The rule of its kind.
        members: The participants that all servers name.
        alike: Whether all servers name the same.
        expected: How many servers take part, according to the first of them.
        flat: Whether so few servers contribute that none is between the others and the coordinator.
        pending: The contributions that have arrived and wait.
        keys: All contributions that have arrived, even if their server is lost.
        leaders: The procs that have declared themselves leaders in these.
        dead: The procs whose offers were taken back.
        since: When the first contribution arrived.
        asked: The servers that were asked if they have contributed, because their contribution may be on its way.
        absent: The asked servers that have not contributed.
        give_up: Once forwarded: gives the forwarded offer up, with a status.
    """

    __slots__ = (
        "absent",
        "alike",
        "asked",
        "dead",
        "expected",
        "flat",
        "give_up",
        "keys",
        "kind",
        "leaders",
        "members",
        "name",
        "pending",
        "rule",
        "since",
        "state",
        "timer",
    )

    def __init__(self, kind: int, name: str, since: float) -> None:
        self.kind = kind
        self.rule = KINDS[kind]
        self.since = since
        self.name = name
        self.state = Life.GATHERS
        self.members: frozenset[Proc] = frozenset()
        self.expected = 0
        self.flat = True
        self.alike = True
        self.pending: list[PendingContribution] = []
        self.keys: list[Key] = []
        self.leaders: set[Proc] = set()
        self.dead: set[Proc] = set()
        self.asked: set[str] = set()
        self.absent: set[str] = set()
        self.timer: Timer | None = None
        self.give_up: Callable[[int], None] | None = None

    def __contains__(self, server: str) -> bool:
        return any(server in pending.servers for pending in self.pending)

    def step(self, what: str) -> None:
        """Take a step of its state machine.

        Raises:
            IllegalStep: It is not possible in this state.
        """
        self.state = Life.step(self.state, what)

    @property
    def parts(self) -> list[tuple[str, Part]]:
        """The contributions that have arrived, in the order of servers."""
        return sorted([part for pending in self.pending for part in pending.parts], key=_by_server)

    @property
    def present(self) -> set[str]:
        """The servers that have contributed."""
        return {server for pending in self.pending for server in pending.servers}

    def is_full(self) -> bool:
        """Return True if as many servers have contributed as take part."""
        if self.flat:
            return len(self.pending) >= self.expected
        return sum([len(pending.servers) for pending in self.pending]) >= self.expected

    def add(self, pending: PendingContribution) -> bool:
        """Add a contribution. Return True if it names the same members as the others."""
        part = pending.part
        party = part.party
        if not self.keys:
            self.members = party.members
            self.expected = len(part.servers or party.servers)
            self.flat = is_flat(self.expected)
        same = self.members is party.members or self.members == party.members
        if not same:
            self.alike = False
            self.members &= party.members
        self.pending.append(pending)
        self.keys += pending.keys
        if part.infos:
            self.keys += _offered_in(part)
        return same


class LateConstruct(Record):
    """A construct that has ended without servers that may still contribute to it."""

    name: str
    procs: frozenset[Proc]
    servers: set[str]
    outcome: Outcome


class Coordinator:
    """The collectives that this server coordinates; used in the turns of its exchange.

    Args:
        session: The present servers, and the clock.
        forward: Gives a contribution to the server where offers meet; returns a function to give it up with a status.

    Attributes:
        places: The server of each proc.
        absent: Returns True if a participant will no longer contribute to an allgather: given the signature, the
            participant, and the data of the others.
        decided: The ends of collectives.
    """

    def __init__(self, session: Session, forward: Forward) -> None:
        self.name = session.name
        self.places = Places()
        self.absent: Absent = lambda _signature, _name, _given: False
        self.decided = Decided()
        self._session = session
        self._forward = forward
        self._rounds: dict[tuple[int, str], list[Round]] = {}
        self._late: deque[LateConstruct] = deque(maxlen=MAX_LATE)
        self._declared: OrderedDict[str, Proc] = OrderedDict()
        """The leaders of constructs whose servers wait for more callers, by the name of the group."""
        self._left: OrderedDict[str, dict[Proc, float]] = OrderedDict()
        self._context_ids = ContextIds(self.name)
        self._names = Names()

    def __len__(self) -> int:
        return sum([len(rounds) for rounds in self._rounds.values()])

    def remembers(self) -> int:
        """Return how many constructs are remembered to which servers have not contributed in time."""
        return len(self._late)

    def _all(self) -> Iterator[Round]:
        return iter([round for rounds in list(self._rounds.values()) for round in list(rounds)])

    # Contributions

    def contribute(self, pending: PendingContribution) -> None:
        """Process a contribution of a server, or contributions that it passes on."""
        gone = self._session.gone
        server, part = pending.server, pending.part
        rule = KINDS[part.kind]
        if gone and not rule.loss_ends and not pending.drop(gone):
            # The report of their loss has overtaken them.
            pending.answer(Decision(Outcome(apart=True)))
            return
        known = None if rule.loss_ends else self._find_outcome(pending)
        if known is None and (rule.unknown or gone):
            known = self._refused(part)
        if known is not None:
            pending.answer(Decision(known))
            return
        round = self._round_for(pending)
        if part.kind == GATHER and round.keys and part.servers != round.pending[0].part.servers:
            others = round.pending[0].part.servers
            text = f"{shown(server)} gathers with {listed(part.servers)}, others with {listed(others)}"
            pending.answer(Decision(deciding.failure(statuses.ERR_BAD_PARAM, text)))
            return
        same = round.add(pending)
        if round.state == Life.EXPIRES:
            return
        if part.status == statuses.ERR_TIMEOUT and part.kind in EXPIRE:
            self._overdue(round, pending)
        elif not same and rule.names_alike:
            self._end(round, deciding.different(round.parts))
        elif gone or not same or self._left or self.places.any_missing or round.is_full():
            self._settle(round)

    def _find_outcome(self, pending: PendingContribution) -> Outcome | None:
        """Return the end of the collective that servers contribute to, if it has ended."""
        keys = pending.keys
        ends = [self.decided.find(key) for key in keys]
        if pending.part.rule.remembered and None in ends:
            ends = [end or self._missed(key[0], pending.part) for end, key in zip(ends, keys, strict=True)]
        first = ends[0]
        if any(end is not first for end in ends):
            return Outcome(apart=True)
        for late in self._late if first is not None else ():
            if late.outcome is first:
                late.servers.difference_update(pending.servers)
        return first

    def names_unknown_jobs(self, parts: Iterable[tuple[str, Part]]) -> bool:
        """Return True if contributions name procs of jobs that this server does not know yet."""
        unknown = [proc for _, part in parts for proc in part.party.unknown]
        return any(not self.places.is_ended_job(proc.nspace) for proc in unknown)

    def _anybody_gone(self) -> bool:
        """Return True if any server or proc has ended, or has left a group: then members have to be checked."""
        return bool(self._session.gone or self._left or self.places.any_missing)

    def _missed(self, server: str, part: Part) -> Outcome | None:
        """Return the end of a construct to which a server contributes too late."""
        for late in self._late:
            if late.name == part.name and server in late.servers and not late.procs.isdisjoint(part.procs):
                return late.outcome
        return None

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
                if deciding.size_of(part) is None or not self._all_leaders_came(round):
                    return round
            elif not round.pending or (
                all(map(pending.servers.isdisjoint, [other.servers for other in round.pending]))
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
        if round.give_up is not None:
            round.give_up(status)
        elif status == statuses.ERR_TIMEOUT:
            self._overdue(round, pending)
        elif round.rule.loss_ends and status == statuses.ERR_UNREACH and servers:
            self._end(round, self.servers_lost(pending.part, servers))
        elif round.kind == OFFER:
            self._withdraw(round, pending, deciding.failure(status, "it was given up"))
        else:
            outcome = deciding.failure(status, detail or f"{pending.server} has given it up")
            self._remember(round, outcome)
            self._end(round, outcome)

    def _overdue(self, round: Round, pending: PendingContribution) -> None:
        constructs = round.kind in (CONSTRUCT, OFFER)
        if constructs and deciding.has_flag(round.parts, deciding.OPTIONAL):
            if round.state == Life.GATHERS:
                round.step(Life.CLOSE)
                round.timer = self._session.later(OPTIONAL_SECONDS, lambda: self._close(round))
            return
        if round.kind == OFFER and deciding.size_of(pending.part) is None and not self._is_added(round, pending.part):
            self._withdraw(round, pending, deciding.overdue())
            return
        outcome = deciding.overdue(*self._waiting(round))
        if deciding.is_later_round(pending.part):
            # All have contributed before, and do so once more, if only to give it up as well.
            self._remember(round, outcome)
        elif round.kind in EXPIRE and round.state == Life.GATHERS:
            self._expire(round, outcome)
            return
        if round.state != Life.EXPIRES:
            self._end(round, outcome)

    def _expire(self, round: Round, outcome: Outcome) -> None:
        """End it on the servers that have callers of it and still wait for others, and then on all others."""
        waiting = {*self._members(round)[0]} - self._session.gone
        round.step(Life.EXPIRE)
        if not waiting:
            self._end(round, outcome)
        data = EXPIRED.write((round.kind, round.name, round.pending[0].part.procs))

        def take_answer(name: str, _data: bytes | None, _error: PMIxError | None) -> None:
            waiting.discard(name)
            if not waiting and round.state == Life.EXPIRES:
                self._end(round, outcome)

        for name in sorted(waiting):
            self._session.ask(name, TIME_IS_OVER, data, partial(take_answer, name), EXPIRY_SECONDS)

    def _close(self, round: Round) -> None:
        """Stop waiting for late procs: the present ones are the group."""
        if round.state == Life.CLOSES:
            round.step(Life.CLOSE)
            self._settle(round)

    def _withdraw(self, round: Round, pending: PendingContribution, outcome: Outcome) -> None:
        """End an offer whose caller will not be in the group."""
        self._take_back(round, pending)
        pending.answer(Decision(outcome))
        self._settle(round)

    def _take_back(self, round: Round, pending: PendingContribution) -> None:
        """Drop a contribution that is void; if it was an offer that the others need, its caller is dead to them."""
        round.pending.remove(pending)
        if round.kind == OFFER and (deciding.size_of(pending.part) is not None or self._is_added(round, pending.part)):
            round.dead.update(pending.part.procs)

    @staticmethod
    def _is_added(round: Round, part: Part) -> bool:
        return not set(deciding.added_by(round.parts)).isdisjoint(part.procs)

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
            if lost and not round.present:
                for each in round.pending:
                    each.answer(Decision(Outcome(apart=True)))
                round.pending.clear()
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
            round.pending.clear()
            self._remove(round)

    def leave(self, name: str, proc: Proc) -> None:
        """A member has left a group."""
        self._left.setdefault(name, {})[proc] = self._session.now()
        if len(self._left) > MAX_LEFT:
            self._left.popitem(last=False)
        self.review()

    def declare_leader(self, name: str, leader: Proc) -> None:
        """Record the leader of a construct to which its server has not contributed yet: it may end before that."""
        self._declared[name] = leader
        if len(self._declared) > MAX_LEFT:
            self._declared.popitem(last=False)

    def forget_leader(self, name: str) -> None:
        """Forget the declared leader of a construct that has ended."""
        self._declared.pop(name, None)

    def joined(self, name: str, procs: Iterable[Proc], since: float) -> frozenset[Proc]:
        """Record that procs are members of a group, and so have not left it. Return the procs that have.

        Args:
            name: The group's name.
            procs: Its members when it was formed.
            since: When this server began to take part in the construct. Later reports are about this group: the report
                of a member that leaves at once may arrive before the group does, or between the answers to several
                callers.
        """
        left = self._left.get(name)
        if left is None:
            return frozenset()
        for proc in procs:
            if left.get(proc, since) < since:
                del left[proc]
        if not left:
            del self._left[name]
        return frozenset(left)

    def _left_of(self, kind: int, name: str) -> set[Proc]:
        """Return the procs that have left the group of an operation."""
        return set(self._left.get(name.partition("\0")[0], ())) if KINDS[kind].needs_callers else set()

    def are_out(self, part: Part, procs: Iterable[Proc]) -> bool:
        """Return True if none of these procs takes part any longer: they have ended, or have left the group."""
        left = self._left_of(part.kind, part.name)
        return all(self.places.is_missing(proc, part.incarnation) or proc in left for proc in procs)

    # Decisions of other servers

    def learn(self, kind: int, name: str, outcome: Outcome) -> None:
        """Apply a decision of a lost coordinator, for contributions that have arrived here since."""
        self.decided.add(kind, name, outcome)
        keys = set(outcome.parts)
        for round in self._all():
            for pending in [pending for pending in round.pending if not keys.isdisjoint(pending.keys)]:
                round.pending.remove(pending)
                pending.answer(Decision(outcome))
            self._drop_empty(round)

    def end_waiting(self, part: Part) -> None:
        """End contributions that still wait here for a construct of this server that has ended."""
        for round in list(self._rounds.get((CONSTRUCT, part.name), ())):
            if round.pending and self.name not in round and not round.members.isdisjoint(part.procs):
                self._end(round, deciding.failure(deciding.ABORT, "it has ended without them"))

    # The awaited procs

    def missing(self, key: Key) -> tuple[list[str], set[Proc]]:
        """Return the servers, and the procs on them, that the collective of a contribution waits for.

        This may be called from any thread, while the round continues: then no proc is awaited.
        """
        for round in self._all():
            if any(pending.key == key for pending in list(round.pending)):
                try:
                    return self._waiting(round)
                except (IndexError, ValueError):
                    break
        return [], set()

    def unattended(self) -> list[tuple[Part, set[Proc], float]]:
        """Return a part of each round that this server has not contributed to, the missing procs, and when it began.

        This may be called from any thread.
        """
        rounds = [round for round in self._all() if round.kind not in (GATHER, OFFER) and self.name not in round]
        first = [(round, pending) for round in rounds for pending in round.pending[:1]]
        return [(pending.part, self.missing(pending.key)[1], round.since) for round, pending in first]

    def _waiting(self, round: Round) -> tuple[list[str], set[Proc]]:
        if round.kind == OFFER:
            return [], self._offers(round)[0]
        found, _ = self._members(round)
        return sorted(found), {proc for procs in found.values() for proc in procs}

    def _members(self, round: Round) -> tuple[dict[str, list[Proc]], set[Proc]]:
        """Return the awaited members by server, and the departed ones."""
        party = round.pending[0].part.party
        if round.alike and round.is_full() and not party.unknown and not self._anybody_gone():
            return {}, set()
        present = round.present
        if round.kind == GATHER:
            part = round.pending[0].part
            signature, given = part.name.encode("utf-8", "surrogateescape"), [each.data for _, each in round.parts]
            absent = [name for name in part.servers if name not in present and not self.absent(signature, name, given)]
            return {name: [] for name in absent}, set()
        may_come = self._may_come(round)
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

    def _may_come(self, round: Round) -> Callable[[Proc], bool]:
        """Return a predicate that is true for members that have not ended, and have not left the group."""
        incarnation = max([part.incarnation for pending in round.pending for _, part in pending.parts])
        left = self._left_of(round.kind, round.name)
        is_missing = self.places.is_missing
        return lambda proc: not is_missing(proc, incarnation) and proc not in left

    def _shows_awaited(self, round: Round) -> bool:
        """Return True if a few of the members show that a proc is awaited.

        So all members are checked only when the last contribution has arrived, and not with each one before.
        """
        party = round.pending[0].part.party
        if round.kind == GATHER or not round.alike or round.is_full() or not self.places.stands(party):
            return False
        may_come = self._may_come(round)
        away = round.present.union(self._session.gone)
        return any(server not in away and any(map(may_come, procs)) for server, procs in party.servers.items())

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
        if round.rule.needs_callers and all(self._is_out(pending) for pending in round.pending):
            # The others may have ended it without them.
            self._end(round, deciding.failure(statuses.ERR_PARTIAL_SUCCESS, "all who have called it have gone"))
            return
        if round.state != Life.CLOSED and self._shows_awaited(round):
            return
        waiting, gone = self._members(round)
        if (not waiting or round.state == Life.CLOSED) and not self._asks(round):
            if round.kind == CONSTRUCT:
                self._settle_construct(round, gone, {proc for procs in waiting.values() for proc in procs})
            else:
                self._end(round, self._decision(round, gone))

    def _asks(self, round: Round) -> bool:
        """Ask servers that need not contribute if they have done so. Return True while any of them has not answered."""
        if round.rule.unknown or round.is_full():
            return False
        part = round.pending[0].part
        # This server, too: its contribution may wait for the decisions of a lost coordinator.
        away = round.present.union(round.absent, self._session.gone)
        names = [name for name in part.servers or part.party.names if name not in away]

        def take_absence(name: str) -> None:
            round.absent.add(name)
            self._settle(round)

        for name in [name for name in names if name not in round.asked]:
            round.asked.add(name)
            asked = NAMED.write((round.kind, round.name))
            self._session.ask(name, ABSENT, asked, lambda _data, _error, name=name: take_absence(name))  # type: ignore[misc]
        return bool(names)

    def _is_out(self, pending: PendingContribution) -> bool:
        servers = pending.part.party.servers
        return all(self.are_out(pending.part, servers.get(name, ())) for name in pending.servers)

    def _decision(self, round: Round, departed: set[Proc]) -> Outcome:
        parts, part = round.parts, round.pending[0].part
        present = () if round.is_full() else round.present
        late = [name for name in part.servers or part.party.names if name not in present] if present else []
        if round.kind == GROUP_DISCONNECT:
            # The members were connected until now: all ended procs are reported to them, which not all servers name.
            may_come, named = self._may_come(round), {proc for _, each in parts for proc in each.procs}
            departed = departed.union([proc for proc in named if not may_come(proc)])
        end = deciding.together(round.kind, parts, departed, late, self._left_of(round.kind, round.name))
        if round.kind == CONNECT and end.status == statuses.SUCCESS:
            came = {
                proc
                for pending in round.pending
                for server in pending.servers
                for proc in pending.part.party.servers.get(server, ())
            }
            name = self._names.take() if deciding.assigns(parts) else ""
            end = deciding.connected(end, parts, came - deciding.absent_in(parts), name)
        if end.status == statuses.SUCCESS and any(each.sizes for _, each in parts):
            kept = sorted([key for server, each in parts for key in each.kept(server)])
            end = end.replace(spread=Spread(self.name, self._session.number(), tuple(kept)))
        return end

    def _settle_construct(self, round: Round, departed: set[Proc], silent: set[Proc]) -> None:
        declared = round.members & {self._declared.get(round.name)}
        construct = deciding.Construct(round.parts, departed | silent, round.leaders | declared)
        outcome = construct.outcome()
        if outcome is not None and outcome.status == statuses.SUCCESS:
            self._begin_round_again(round, outcome)
            return
        if silent:
            self._remember(round, deciding.overdue())
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
        round.pending = [pending for pending in round.pending if pending not in told]
        self._drop_empty(round)
        self._answer(round, told, outcome.replace(parts=tuple([key for pending in told for key in pending.keys])))

    def _forward_offer(
        self, round: Round, construct: deciding.Construct, members: tuple[Proc, ...], added: tuple[Proc, ...]
    ) -> None:
        """Forward the offer of all leaders, which add other procs: these are where offers meet."""
        parts = round.parts
        formed = deciding.formed(parts, members, construct.absent, construct.leading(), None)
        infos = [info for info in formed.infos if info.key in deciding.CARRIED]
        infos += [attrs.GROUP_BOOTSTRAP(len(members)), deciding.named(deciding.ADD_MEMBERS, added)]
        if deciding.has_flag(parts, deciding.ASSIGN_CONTEXT_ID):
            infos.append(attrs.GROUP_ASSIGN_CONTEXT_ID(True))
        if final := deciding.final_order(parts):
            infos.append(deciding.named(deciding.FINAL_ORDER, final))
        # If this server is lost, the end of these contributions is known where offers meet.
        keys = tuple([f"{number} {server}" for server, number in round.keys])
        infos.append(Info(PARTS, Value(codes.DATA_ARRAY, DataArray(codes.STRING, keys))))
        party = Party(members, self.places.server_of)
        part = Part(self._session.number(), OFFER, round.name, party, infos=tuple(infos))
        round.step(Life.FORWARD)
        round.give_up = self._forward(part, lambda outcome: self._end(round, outcome.replace(parts=())))

    def _context_id(self, parts: deciding.Parts) -> int | None:
        return self._context_ids.take() if deciding.has_flag(parts, deciding.ASSIGN_CONTEXT_ID) else None

    @staticmethod
    def _all_leaders_came(round: Round) -> bool:
        sizes = [size for pending in round.pending if (size := deciding.size_of(pending.part)) is not None]
        came = deciding.leaders_in(round.parts)
        return rules.have_all_leaders(min(sizes, default=None), len(came), len(round.dead - came))

    def _offers(self, round: Round) -> tuple[set[Proc], set[Proc], list[PendingContribution]]:
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

    def has_left_session(self, proc: Proc) -> bool:
        """Return True if a proc has ended, its job has ended, or its server is lost."""
        if self.places.has_departed(proc) or self.places.is_ended_job(proc.nspace):
            return True
        return self.places.server_of(proc) in self._session.gone

    def _settle_offers(self, round: Round) -> None:
        try:
            expected = deciding.leaders_expected(round.parts)
        except PMIxError as error:
            self._end(round, deciding.failure(error.code, error.detail))
            return
        closed = round.state == Life.CLOSED
        if not self._all_leaders_came(round) and not (closed and expected):
            if closed:
                self._end(round, deciding.overdue())
            return
        waiting, gone, came = self._offers(round)
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
        round.pending = offers
        self._end(round, outcome)
        text = f"it was not added to the group {round.name!r}"
        for pending in others:
            pending.answer(Decision(deciding.failure(statuses.ERR_NOT_FOUND, text)))

    def _remember(self, round: Round, outcome: Outcome) -> None:
        """Keep the end of a round for servers that contribute later."""
        if round.rule.remembered:
            late = LateConstruct(round.name, round.members, set(self._members(round)[0]), outcome)
            if late.servers:
                self._late.append(late)
                self._session.later(LATE_SECONDS, lambda: self._forget(late))

    def _forget(self, record: LateConstruct) -> None:
        if record in self._late:
            self._late.remove(record)

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
            self.forget_leader(round.name)
        # A round that ends with a lost server does not ask the others for its end.
        inquires = not outcome.apart and not round.rule.loss_ends
        self._answer(round, round.pending, outcome.replace(parts=tuple(round.keys)) if inquires else outcome)

    def _answer(self, round: Round, contributions: list[PendingContribution], outcome: Outcome) -> None:
        self.decided.add(round.kind, round.name, outcome)
        decision = Decision(outcome)
        for pending in contributions:
            pending.answer(decision)


def _offered_in(part: Part) -> list[Key]:
    """Return the contributions that an offer represents."""
    found: list[Key] = []
    for info in part.infos:
        data = info.value.data
        for text in data.items if info.key == PARTS and isinstance(data, DataArray) else ():
            number, _, server = str(text).partition(" ")
            place = decimal(number)
            if place is not None:
                found.append((server, place))
    return found
