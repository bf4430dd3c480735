"""What groups do together as the server sees it that coordinates it: who has come, who is waited for, how it ends.

One server decides how each of these ends, and gives the same answer to all: the first by name of those with members, or
of the session where nobody knows who will come. Where that one is lost, the next one takes over: those who had come to
it come again, unless one of the others knows how it has ended.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from hashlib import blake2b
from itertools import count
from os import urandom

from pypmix.host.exchange import deciding
from pypmix.host.exchange.parts import CONNECT, CONSTRUCT, OFFER, Outcome, Part, pack_outcome, unpack_part
from pypmix.standard import attrs, codes, statuses
from pypmix.standard.ops.hosting import GROUP_LEADER_PROC
from pypmix.standard.types import DataArray, Info, Value, decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.parts import Key
    from pypmix.host.exchange.places import Places
    from pypmix.host.exchange.requests import OnAnswer, Timer
    from pypmix.standard.types import Proc

    Forward = Callable[[Part, Callable[[Outcome], None]], Callable[[int], None]]

PARTS = "pypmix.grp.parts"
"""For which parts of servers one is given, as texts."""

MAX_ENDED = 4096
"""Of how many parts it is remembered how they have ended."""

MAX_LATE = 256
"""How many constructs are remembered that somebody has not come to in time."""

MAX_LEFT = 4096
"""Of how many groups it is remembered who has left."""

LATE_SECONDS = 10.0
"""How long that is remembered."""

OPTIONAL_SECONDS = 0.25
"""How long the others are waited for once the time of one is over, where whoever has come is the group."""

COUNTER = 22
"""How many bits of a context id a server counts with."""


class ContextIds:
    """The context ids that one server gives, from any thread; no other one gives the same.

    They begin with 40 bits of a hash of the server's name, and of how often the numbers below that were used up. All
    of them are larger than those that a server gives to groups of its own.

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
    """The nspaces that one server gives to connections, from any thread; no other one gives the same."""

    def __init__(self) -> None:
        self._prefix = f"connection-{urandom(6).hex()}"
        self._given = count(1)

    def take(self) -> str:
        """Return the next one."""
        return f"{self._prefix}@{next(self._given)}"


class Ended:
    """How parts have ended that this server has coordinated or given, for those whose answer was lost."""

    def __init__(self) -> None:
        self._known: OrderedDict[Key, Outcome] = OrderedDict()

    def add(self, outcome: Outcome) -> None:
        """Remember an outcome."""
        for key in outcome.roster:
            self._known[key] = outcome
        while len(self._known) > MAX_ENDED:
            self._known.popitem(last=False)

    def find(self, server: str, number: int) -> Outcome | None:
        """Return how a part of a server has ended."""
        return self._known.get((server, number))


class _Held:
    """A part that waits for the others."""

    __slots__ = ("answer", "part", "server")

    def __init__(self, server: str, part: Part, answer: OnAnswer) -> None:
        self.server = server
        self.part = part
        self.answer = answer


class Round:
    """What a group does together, under way.

    Attributes:
        members: Who takes part: those whom all servers name.
        expected: How many servers have some of these; None where that has not been looked at.
        held: The parts that have come.
        roster: All that have come, those too whose server is lost.
        leaders: Who has declared itself leader in those.
        dead: Whose offers were taken back.
        closing: Whether the time of somebody is over, where those who have come are the group.
        over: Whether nobody else is waited for then.
        given_up: Gives the further way up, once what was gathered here waits for those who are to be added.
    """

    __slots__ = (
        "closing",
        "dead",
        "expected",
        "given_up",
        "held",
        "kind",
        "leaders",
        "members",
        "name",
        "over",
        "roster",
        "timer",
    )

    def __init__(self, kind: int, name: str) -> None:
        self.kind = kind
        self.name = name
        self.members: set[Proc] = set()
        self.expected: int | None = None
        self.held: list[_Held] = []
        self.roster: list[Key] = []
        self.leaders: set[Proc] = set()
        self.dead: set[Proc] = set()
        self.closing = False
        self.over = False
        self.timer: Timer | None = None
        self.given_up: Callable[[int], None] | None = None

    def __contains__(self, server: str) -> bool:
        return any(held.server == server for held in self.held)

    @property
    def parts(self) -> list[tuple[str, Part]]:
        """The parts that have come, in the order of servers."""
        return [(held.server, held.part) for held in sorted(self.held, key=lambda held: held.server)]

    def add(self, held: _Held) -> bool:
        """Take a part in; tell whether it names the same members as the others."""
        named = set(held.part.procs)
        same = not self.roster or named == self.members
        self.members = self.members & named if self.roster else named
        self.held.append(held)
        self.roster += ((held.server, held.part.number), *_behind(held.part))
        return same


class _Late:
    """A construct that has ended without servers that may still come to it."""

    __slots__ = ("name", "outcome", "procs", "servers")

    def __init__(self, name: str, procs: set[Proc], servers: set[str], outcome: Outcome) -> None:
        self.name = name
        self.procs = procs
        self.servers = servers
        self.outcome = outcome


class Coordinator:
    """What groups do together that this server coordinates; used in the turns of its exchange.

    Args:
        exchange: This server's exchange.
        places: Which server has which proc.
        forward: Gives a part to the server where offers meet; returns what gives that up with a status.
    """

    def __init__(self, exchange: Exchange, places: Places, forward: Forward) -> None:
        self.name = exchange.name
        self.ended = Ended()
        self._exchange = exchange
        self._places = places
        self._forward = forward
        self._rounds: dict[tuple[int, str], list[Round]] = {}
        self._late: deque[_Late] = deque(maxlen=MAX_LATE)
        self._left: OrderedDict[str, set[Proc]] = OrderedDict()
        self._context_ids = ContextIds(self.name)
        self._names = Names()

    def __len__(self) -> int:
        return sum([len(rounds) for rounds in self._rounds.values()])

    # What comes

    def come(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        """A server gives a part."""
        part = unpack_part(data)
        known = self.ended.find(sender, part.number)
        if known is None and part.kind == CONSTRUCT:
            known = self._missed(sender, part)
        if known is not None:
            answer(pack_outcome(known), None)
            return
        if part.kind == OFFER and self._exchange.members[0] != self.name:
            answer(pack_outcome(Outcome(moved=True)), None)
            return
        round = self._round_for(sender, part)
        same = round.add(_Held(sender, part, answer))
        if part.kind == CONSTRUCT and not same:
            self._end(round, deciding.different(round.parts))
        elif part.kind != CONSTRUCT or self._may_end(round):
            self._settle(round)

    def _may_end(self, round: Round) -> bool:
        """Tell, without a look at all members, whether a construct may be over: all servers have come, or some went."""
        if round.expected is None:
            round.expected = len({self._places.where(proc) for proc in round.members})
        return len(round.held) >= round.expected or bool(self._exchange.gone) or self._places.any_missing()

    def _missed(self, sender: str, part: Part) -> Outcome | None:
        """Return how a construct has ended that a server comes to too late."""
        for late in self._late:
            if late.name == part.name and sender in late.servers and not late.procs.isdisjoint(part.procs):
                late.servers.discard(sender)
                return late.outcome
        return None

    def _round_for(self, sender: str, part: Part) -> Round:
        rounds = self._rounds.setdefault((part.kind, part.name), [])
        for round in rounds:
            if part.kind == OFFER:
                if not deciding.leads(part) or not self._full(round):
                    return round
            elif sender not in round and (not round.held or not round.members.isdisjoint(part.procs)):
                return round
        round = Round(part.kind, part.name)
        rounds.append(round)
        return round

    @staticmethod
    def _full(round: Round) -> bool:
        """Tell whether all leaders of a construct by offers have come."""
        sizes = [size for _, part in round.parts if (size := deciding.size_of(part)) is not None]
        count = len({proc for _, part in round.parts if deciding.leads(part) for proc in part.procs} | round.dead)
        return bool(sizes) and count >= min(sizes)

    def cancel(self, sender: str, number: int, status: int) -> None:
        """A server gives up a part: its time is over, or a participant wants no such group."""
        for round in self._all():
            for held in round.held:
                if (held.server, held.part.number) == (sender, number):
                    self._give_up(round, held, status)
                    return

    def _give_up(self, round: Round, held: _Held, status: int) -> None:
        if round.given_up is not None:
            round.given_up(status)
        elif status == statuses.ERR_TIMEOUT and round.kind in (CONSTRUCT, OFFER):
            self._overdue(round, held)
        elif status == statuses.ERR_TIMEOUT:
            where, procs = self._waiting(round)
            self._end(round, deciding.overdue(where, procs))
        elif round.kind == OFFER:
            self._withdraw(round, held, status)
        else:
            outcome = deciding.failure(status, f"{held.server} has given it up")
            if round.kind == CONSTRUCT:
                self._remember(round, outcome)
            self._end(round, outcome)

    def _overdue(self, round: Round, held: _Held) -> None:
        where, procs = self._waiting(round)
        if deciding.asked(round.parts, deciding.OPTIONAL):
            if not round.closing:
                round.closing = True
                round.timer = self._exchange.later(OPTIONAL_SECONDS, lambda: self._close(round))
        elif round.kind == OFFER and not deciding.leads(held.part) and not self._wanted(round, held.part):
            round.held.remove(held)
            held.answer(pack_outcome(deciding.overdue((), ())), None)
            self._settle(round)
        else:
            outcome = deciding.overdue(where, procs)
            if round.kind == CONSTRUCT and deciding.is_later_round(held.part):
                # All have been there before, and come once more, if only to say that they give it up as well.
                self._remember(round, outcome)
            self._end(round, outcome)

    def _close(self, round: Round) -> None:
        """Those who have come are the group."""
        if round.closing and round in self._rounds.get((round.kind, round.name), ()):
            round.over = True
            self._settle(round)

    def _withdraw(self, round: Round, held: _Held, status: int) -> None:
        """A caller will not be in the group that it has come to."""
        round.held.remove(held)
        if deciding.leads(held.part) or self._wanted(round, held.part):
            round.dead.update(held.part.procs)
        held.answer(pack_outcome(deciding.failure(status, "it was given up")), None)
        self._settle(round)

    @staticmethod
    def _wanted(round: Round, part: Part) -> bool:
        return not set(deciding.added_by(round.parts)).isdisjoint(part.procs)

    # Who goes

    def review(self) -> None:
        """Look again who is waited for: somebody has gone."""
        for round in self._all():
            self._settle(round)

    def lose(self, name: str) -> None:
        """A server is lost, and so is what it has given."""
        for round in self._all():
            for held in [held for held in round.held if held.server == name]:
                round.held.remove(held)
                part = held.part
                round.leaders.update(part.leaders, deciding.procs_under(part, GROUP_LEADER_PROC))
                if round.kind == OFFER and (deciding.leads(part) or self._wanted(round, part)):
                    round.dead.update(part.procs)
            self._settle(round)

    def meet(self) -> None:
        """Another server has come: those who wait for unknown others may have to wait there."""
        if self._exchange.members[0] != self.name:
            for round in [round for round in self._all() if round.kind == OFFER]:
                self._end(round, Outcome(moved=True))

    def leave(self, name: str, proc: Proc) -> None:
        """A member has left a group."""
        self._left.setdefault(name, set()).add(proc)
        if len(self._left) > MAX_LEFT:
            self._left.popitem(last=False)
        self.review()

    def are_out(self, part: Part, procs: Iterable[Proc]) -> bool:
        """Tell whether none of these takes part in something any more: they have gone, or have left the group."""
        left = self._left_of(part.kind, part.name)
        return all(self._places.is_missing(proc, part.life) or proc in left for proc in procs)

    def _is_out(self, held: _Held) -> bool:
        return self.are_out(held.part, [proc for proc in held.part.procs if self._places.where(proc) == held.server])

    def _left_of(self, kind: int, name: str) -> set[Proc]:
        """Return who has left the group that does something."""
        return self._left.get(name.partition("\0")[0], set()) if kind != CONSTRUCT else set()

    def _came(self, round: Round) -> set[Proc]:
        """Return who has come, of all servers."""
        came = {proc for server, part in round.parts for proc in part.procs if self._places.where(proc) == server}
        return came - deciding.absent_in(round.parts)

    def joined(self, name: str, procs: Iterable[Proc]) -> None:
        """Somebody is a member of a group: so they have not left, or not that one."""
        left = self._left.get(name)
        if left is not None:
            left.difference_update(procs)
            if not left:
                del self._left[name]

    def elsewhere(self, part: Part) -> None:
        """A construct that this server has taken part in has ended: whoever waits for it here waits in vain."""
        for round in list(self._rounds.get((CONSTRUCT, part.name), ())) if part.kind == CONSTRUCT else ():
            if round.held and self.name not in round and not round.members.isdisjoint(part.procs):
                self._end(round, deciding.failure(statuses.GROUP_CONSTRUCT_ABORT, "it has ended without them"))

    def known(self, outcome: Outcome) -> None:
        """Something has ended that another server has coordinated, perhaps for some who have come here since."""
        keys = set(outcome.roster)
        for round in self._all():
            for held in [held for held in round.held if (held.server, held.part.number) in keys]:
                round.held.remove(held)
                held.answer(pack_outcome(outcome), None)
            self._drop_empty(round)

    # How it ends

    def missing(self, server: str, number: int) -> tuple[Proc, ...]:
        """Return who is waited for in what a part waits in."""
        for round in self._all():
            if any((held.server, held.part.number) == (server, number) for held in round.held):
                return tuple(sorted(self._waiting(round)[1]))
        return ()

    def _all(self) -> list[Round]:
        return [round for rounds in list(self._rounds.values()) for round in list(rounds)]

    def _waiting(self, round: Round) -> tuple[list[str], set[Proc]]:
        """Return which servers are waited for, and which of their procs."""
        if round.kind == OFFER:
            return [], self._offers_missing(round)[0]
        found, _, _ = self._members(round)
        return sorted(found), {proc for procs in found.values() for proc in procs}

    def _members(self, round: Round) -> tuple[dict[str, list[Proc]], set[Proc], bool]:
        """Return which members are waited for, by server, who has gone, and whether this server has any there."""
        life = max([held.part.life for held in round.held])
        left = self._left_of(round.kind, round.name)
        present = {held.server for held in round.held}
        servers: dict[str, list[Proc]] = {}
        gone: set[Proc] = set()
        for proc in sorted(round.members):
            where = self._places.where(proc)
            if where is None:
                # Its job is over.
                gone.add(proc)
            else:
                servers.setdefault(where, []).append(proc)
        mine = servers.get(self.name, [])
        here = any(not self._places.is_missing(proc, life) and proc not in left for proc in mine)
        waiting = {}
        for server, procs in servers.items():
            if server in present:
                if round.kind == CONSTRUCT:
                    gone.update([proc for proc in procs if self._places.has_departed(proc)])
            elif server in self._exchange.gone or all(
                self._places.is_missing(proc, life) or proc in left for proc in procs
            ):
                gone.update(procs)
            else:
                waiting[server] = procs
        return waiting, gone, here

    def _drop_empty(self, round: Round) -> None:
        if not round.held:
            self._remove(round)

    def _settle(self, round: Round) -> None:
        if round not in self._rounds.get((round.kind, round.name), ()):
            return
        if not round.held:
            if not round.dead:
                self._remove(round)
            else:
                # Other leaders may come yet: they expect as many as there have been.
                self._exchange.later(LATE_SECONDS, lambda: self._drop_empty(round))
            return
        if round.given_up is not None:
            return
        if round.kind == OFFER:
            self._settle_offers(round)
            return
        if round.kind != CONSTRUCT and all(self._is_out(held) for held in round.held):
            # Nobody is left of those who have called it; the others may have ended it without them.
            self._end(round, deciding.failure(statuses.ERR_PARTIAL_SUCCESS, "all who have called it have gone"))
            return
        waiting, gone, here = self._members(round)
        if round.kind != CONSTRUCT and not here:
            # Servers that know who is left here come together at the next one.
            self._end(round, Outcome(moved=True))
            return
        if waiting and not round.over:
            return
        late = {proc for procs in waiting.values() for proc in procs}
        if round.kind != CONSTRUCT:
            end = deciding.together(round.kind, round.parts, gone, self._left_of(round.kind, round.name))
            if round.kind == CONNECT and end.status == statuses.SUCCESS:
                name = self._names.take() if deciding.assigns(round.parts) else ""
                end = deciding.connected(end, round.parts, self._came(round), name)
            self._end(round, end)
            return
        construct = deciding.Construct(round.parts, gone | late, round.leaders)
        outcome = construct.outcome()
        if outcome is not None and outcome.status == statuses.SUCCESS:
            self._again(round, outcome)
            return
        if late:
            self._remember(round, deciding.overdue((), ()))
        if outcome is None:
            self._form(round, construct)
        else:
            self._end(round, outcome)

    def _again(self, round: Round, outcome: Outcome) -> None:
        """Some are absent, as not all know: those who are told come again, those who would not understand stay."""
        stay = [held for held in round.held if not deciding.understands(held.part)]
        told = [held for held in round.held if deciding.understands(held.part)]
        outcome = outcome.replace(roster=tuple([(held.server, held.part.number) for held in told]))
        self.ended.add(outcome)
        round.held = stay
        round.closing = round.over = False
        self._drop_empty(round)
        for held in told:
            held.answer(pack_outcome(outcome), None)

    def _form(self, round: Round, construct: deciding.Construct) -> None:
        parts, members, leader = round.parts, construct.members(), construct.leading()
        added = tuple([proc for proc in deciding.added_by(parts) if proc not in members])
        if not members:
            self._end(round, deciding.failure(statuses.GROUP_CONSTRUCT_ABORT, "nobody is left", construct.absent))
        elif added:
            self._wait_for(round, construct, members, added)
        else:
            self._end(round, deciding.formed(parts, members, construct.absent, leader, self._context_id(parts)))

    def _wait_for(
        self, round: Round, construct: deciding.Construct, members: tuple[Proc, ...], added: tuple[Proc, ...]
    ) -> None:
        """All leaders have come, and add others: these are where offers meet."""
        parts = round.parts
        formed = deciding.formed(parts, members, construct.absent, construct.leading(), None)
        infos = [info for info in formed.infos if info.key in deciding.CARRIED]
        infos += [attrs.GROUP_BOOTSTRAP(len(members)), deciding.named(deciding.ADD_MEMBERS, added)]
        if deciding.asked(parts, deciding.ASSIGN_CONTEXT_ID):
            infos.append(attrs.GROUP_ASSIGN_CONTEXT_ID(True))
        infos += [info for _, part in parts for info in part.infos if info.key == deciding.FINAL_ORDER][:1]
        infos.append(_named_parts(round.roster))
        jobs = {nspace: job for _, part in parts for nspace, job in part.jobs}
        part = Part(0, OFFER, round.name, members, infos=tuple(infos), jobs=tuple(jobs.items()))
        round.given_up = self._forward(part, lambda outcome: self._end(round, outcome.replace(roster=())))

    def _context_id(self, parts: deciding.Parts) -> int | None:
        return self._context_ids.take() if deciding.asked(parts, deciding.ASSIGN_CONTEXT_ID) else None

    def _offers_missing(self, round: Round) -> tuple[set[Proc], set[Proc], list[_Held]]:
        """Return who of those who are added is waited for, who has gone, and the offers of them that have come."""
        parts = round.parts
        leaders = {proc for _, part in parts if deciding.leads(part) for proc in part.procs}
        added = [proc for proc in deciding.added_by(parts) if proc not in leaders]
        gone = {proc for proc in leaders | set(added) if self._has_gone(proc)} | round.dead
        came: list[_Held] = []
        waiting = set(added) - gone
        unnamed: dict[str, list[_Held]] = {}
        for held in round.held:
            if not deciding.leads(held.part):
                if held.part.procs:
                    if not set(added).isdisjoint(held.part.procs):
                        came.append(held)
                        waiting.difference_update(held.part.procs)
                else:
                    unnamed.setdefault(held.server, []).append(held)
        for server, offers in unnamed.items():
            # Its server does not say who it is: one of those who are added there.
            here = sorted([proc for proc in waiting if self._places.where(proc) == server])
            came += offers[: len(here)]
            waiting.difference_update(here[: len(offers)])
        return waiting, gone, came

    def _has_gone(self, proc: Proc) -> bool:
        if self._places.has_departed(proc) or self._places.is_over(proc.nspace):
            return True
        return self._places.where(proc) in self._exchange.gone

    def _settle_offers(self, round: Round) -> None:
        parts = round.parts
        sizes = {size for _, part in parts if (size := deciding.size_of(part)) is not None}
        if len(sizes) > 1 or (sizes and min(sizes) < 1):
            text = "leaders expect " + ", ".join(map(str, sorted(sizes))) + " leaders"
            self._end(round, deciding.failure(statuses.ERR_BAD_PARAM, text))
            return
        if not self._full(round) and not (round.over and sizes):
            if round.over:
                self._end(round, deciding.overdue((), ()))
            return
        waiting, gone, came = self._offers_missing(round)
        if waiting and not round.over:
            return
        offers = [held for held in round.held if deciding.leads(held.part)] + came
        mine = sorted([(held.server, held.part) for held in offers], key=lambda offer: offer[0])
        outcome, members, absent = deciding.bootstrapped(mine, gone | waiting)
        if outcome is None and not members:
            outcome = deciding.failure(statuses.GROUP_CONSTRUCT_ABORT, "nobody is left", absent)
        if outcome is None:
            leader = min([proc for _, part in mine for proc in _leaders_of(part) if proc not in absent], default=None)
            outcome = deciding.formed(mine, members, absent, leader, self._context_id(mine))
        others = [held for held in round.held if held not in offers]
        if members and outcome.status == statuses.SUCCESS:
            # Its server has counted it among those who construct the group.
            offers += [held for held in others if held.part.procs and set(members).issuperset(held.part.procs)]
            others = [held for held in others if held not in offers]
        round.held = offers
        self._end(round, outcome)
        for held in others:
            text = f"nobody has added it to the group {round.name!r}"
            held.answer(pack_outcome(deciding.failure(statuses.ERR_NOT_FOUND, text)), None)

    def _remember(self, round: Round, outcome: Outcome) -> None:
        """Have servers that come later hear how it has ended."""
        late = _Late(round.name, round.members, set(self._members(round)[0]), outcome)
        if late.servers:
            self._late.append(late)
            self._exchange.later(LATE_SECONDS, lambda: self._forget(late))

    def _forget(self, late: _Late) -> None:
        if late in self._late:
            self._late.remove(late)

    def _remove(self, round: Round) -> None:
        rounds = self._rounds.get((round.kind, round.name), [])
        if round in rounds:
            rounds.remove(round)
            if not rounds:
                del self._rounds[round.kind, round.name]
            if round.timer is not None:
                round.timer.cancel()

    def _end(self, round: Round, outcome: Outcome) -> None:
        self._remove(round)
        if not outcome.moved:
            outcome = outcome.replace(roster=tuple(round.roster))
            self.ended.add(outcome)
        packed = pack_outcome(outcome)
        for held in round.held:
            held.answer(packed, None)


def _named_parts(keys: list[Key]) -> Info:
    """Return what says for which parts one is given: should its giver be lost, their end is known where offers meet."""
    texts = tuple([f"{number} {server}" for server, number in keys])
    return Info(PARTS, Value(codes.DATA_ARRAY, DataArray(codes.STRING, texts)))


def _behind(part: Part) -> list[Key]:
    found: list[Key] = []
    for info in part.infos:
        data = info.value.data
        for text in data.items if info.key == PARTS and isinstance(data, DataArray) else ():
            number, _, server = str(text).partition(" ")
            place = decimal(number)
            if place is not None:
                found.append((server, place))
    return found


def _leaders_of(part: Part) -> tuple[Proc, ...]:
    return deciding.procs_under(part, GROUP_LEADER_PROC)
