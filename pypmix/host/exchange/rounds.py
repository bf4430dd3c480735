"""The records of collectives at the server that coordinates them: contributions, open collectives, and late ones."""

from __future__ import annotations

from collections import deque
from operator import itemgetter

from pypmix.engine.collective import rules
from pypmix.engine.states import Machine, Row
from pypmix.engine.times import LATE_SECONDS
from pypmix.host.exchange import deciding
from pypmix.host.exchange.kinds import KINDS
from pypmix.host.exchange.limits import MAX_LATE
from pypmix.standard.record import Record
from pypmix.standard.types import DataArray, decimal

_by_server = itemgetter(0)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Key, OnAnswer, Outcome, Part, Parts, Timer
    from pypmix.host.exchange.participant import LocalContribution
    from pypmix.standard.types import Proc


class Life(Machine):
    """A collective operation at the server that coordinates it."""

    GATHERS = START = "gathering contributions"
    CLOSES = "waiting a moment for late ones"
    CLOSED = "closed"
    FORWARDED = "with the server of offers"
    EXPIRES = "ending on servers without all callers"
    ENDED = "done"

    CLOSE = "a caller's time has run out, or the moment has passed, and the group is made of the procs that called"
    AGAIN = "participants are lost, which not all servers know"
    FORWARD = "all have contributed, and add procs of unknown servers"
    EXPIRE = "a caller's time has run out, and other servers may have callers"
    END = "it is decided, fails, or has lost all contributions"

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


class PendingContribution:
    """Contributions that have arrived as one and wait for the others: one, or several that were combined on the way.

    Args:
        server: The server that sent them.
        number: The number by which that server gives them up.
        parts: The contributions, each with its server.
        answer: Called with the decision as bytes, or an error; in a turn that follows what has caused it.

    Attributes:
        part: The first of them.
        servers: The servers that have contributed.
    """

    __slots__ = ("answer", "number", "part", "parts", "server", "servers")

    def __init__(self, server: str, number: int, parts: Parts, answer: OnAnswer) -> None:
        self.server = server
        self.number = number
        self.parts = parts
        self.part = parts[0][1]
        self.answer = answer
        alone = len(parts) == 1 and not self.part.covers
        self.servers = frozenset((parts[0][0],)) if alone else _servers_of(parts)

    @property
    def key(self) -> Key:
        """The key of the message, by which it is given up."""
        return self.server, self.number

    @property
    def keys(self) -> list[Key]:
        """The contributions."""
        if len(self.parts) == 1:
            ((server, part),) = self.parts
            return [(server, part.number)] if not part.covers else [*part.keys(server)]
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
        self.servers = _servers_of(self.parts)
        return bool(left)


def _servers_of(parts: Parts) -> frozenset[str]:
    return frozenset([name for head, part in parts for name in part.covers or (head,)])


class Round:
    """A collective that has not ended.

    Attributes:
        state: A state of `Life`.
        rule: The rule of its kind.
        members: The participants that all servers name.
        alike: Whether all servers name the same.
        expected: How many servers take part, according to the first of them.
        pending: The contributions that have arrived and wait.
        present: The servers of these.
        keys: All contributions that have arrived, even if their server is lost, unless such a loss ends it.
        leaders: The procs that have declared themselves leaders in these.
        dead: The procs whose offers were taken back.
        since: When the first contribution arrived.
        asked: The servers that were asked if they have contributed, because their contribution may be on its way.
        absent: The asked servers that have not contributed.
        forwarded: The offer by which it was forwarded.
    """

    state = Life.GATHERS
    members: frozenset[Proc] = frozenset()
    expected = -1
    alike = True
    timer: Timer | None = None
    forwarded: LocalContribution | None = None

    def __init__(self, kind: int, name: str, since: float) -> None:
        self.kind = kind
        self.rule = KINDS[kind]
        self.since = since
        self.name = name
        self.pending: list[PendingContribution] = []
        self.present: set[str] = set()
        self.keys: list[Key] = []
        self.leaders: set[Proc] = set()
        self.dead: set[Proc] = set()
        self.asked: set[str] = set()
        self.absent: set[str] = set()

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

    def is_full(self) -> bool:
        """Return True if as many servers have contributed as take part."""
        return len(self.present) >= self.expected

    def add(self, pending: PendingContribution) -> bool:
        """Add a contribution. Return True if it names the same members as the others."""
        part = pending.part
        party = part.party
        if self.expected < 0:
            self.members = party.members
            self.expected = len(part.servers or party.servers)
        same = self.members is party.members or self.members == party.members
        if not same:
            self.alike = False
            self.members &= party.members
        self.pending.append(pending)
        self.present |= pending.servers
        if not self.rule.loss_ends:
            self.keys += pending.keys
            if part.infos:
                self.keys += _offered_in(part)
        return same

    def keep(self, pending: Iterable[PendingContribution]) -> None:
        """Replace the waiting contributions by some of them, or by the rest of them."""
        self.pending = list(pending)
        self.present = {server for each in self.pending for server in each.servers}

    def remove(self, pending: PendingContribution) -> None:
        """Remove a waiting contribution."""
        self.keep([each for each in self.pending if each is not pending])

    def adds(self, part: Part) -> bool:
        """Return True if leaders add a proc of an offer."""
        return not set(deciding.added_by(self.parts)).isdisjoint(part.procs)

    def has_all_leaders(self) -> bool:
        """Return True if all leaders of a construct by offers have contributed, or have ended."""
        sizes = [size for pending in self.pending if (size := deciding.size_of(pending.part)) is not None]
        came = deciding.leaders_in(self.parts)
        return rules.have_all_leaders(min(sizes, default=None), len(came), len(self.dead - came))


class LateConstruct(Record):
    """A construct that has ended without servers that may still contribute to it."""

    name: str
    procs: frozenset[Proc]
    servers: set[str]
    outcome: Outcome


class LateConstructs:
    """The constructs that are remembered for servers that have not contributed in time.

    Args:
        session: The clock.
    """

    def __init__(self, session: Exchange) -> None:
        self._session = session
        self._records: deque[LateConstruct] = deque(maxlen=MAX_LATE)

    def __len__(self) -> int:
        return len(self._records)

    def add(self, round: Round, servers: set[str], outcome: Outcome) -> None:
        """Remember the end of a round for servers that may still contribute."""
        record = LateConstruct(round.name, round.members, servers, outcome)
        if servers:
            self._records.append(record)
            self._session.later(LATE_SECONDS, lambda: self._forget(record))

    def _forget(self, record: LateConstruct) -> None:
        if record in self._records:
            self._records.remove(record)

    def find(self, server: str, part: Part) -> Outcome | None:
        """Return the end of a construct to which a server contributes too late."""
        for record in self._records:
            if record.name == part.name and server in record.servers and not record.procs.isdisjoint(part.procs):
                return record.outcome
        return None

    def answer(self, outcome: Outcome, servers: frozenset[str]) -> None:
        """Record that servers have got the end of a construct."""
        for record in self._records:
            if record.outcome is outcome:
                record.servers.difference_update(servers)


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
