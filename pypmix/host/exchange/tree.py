"""The tree by which contributions of many servers reach the coordinator, and the decision comes back.

Theory of operation
-------------------
The coordinator is the root. The other servers that take part are in the order of their names. They are cut into `RADIX`
runs of the same length; the first of each run is a child of the root, and the rest of the run is below it in the same
way. With at most `FLAT` times as many others no server is between these and the root: each contributes to it directly,
and this module is not used.

A server with others below it (`Relay`) collects their contributions and its own, and passes them on as one message. It
does so as soon as all have arrived, and otherwise `COMBINE_SECONDS` after the first: so this module need not know which
of them will not arrive, and the coordinator knows which are missing, but for the last moment. A contribution that a
server gives up is passed on at once, before the message that gives it up. The next server on the way is the nearest
present one above.

Contributions of neighbours that differ only in their data become one (`combined`), so that a fence without data costs
each server as many messages, and as much work, as it has servers right below it.

A message has one answer. It is passed unchanged to all servers whose contributions were in it. So contributions that
can end in different ways are not combined: a message is about one collective, a server is in it once, and servers that
contribute again to a construct that continues are not combined with others (`_Lane`). If the coordinator has to answer
the contributions of a message differently after all, it says so (`Outcome.apart`), and each server contributes
directly.

A direct message to the coordinator may overtake the sender's contribution: the report that its procs have ended, for
instance. So the coordinator does without a present server only after that server has answered that it has not
contributed (`ABSENT`).

A lost server ends a fence, an allgather and a disconnect: each server that loses a participant ends it independently,
and so does the coordinator. All other collectives continue:

* With a server in the middle the way of the decision is lost. The contributions that passed through it may have reached
  the coordinator, or not, or their decision may have returned as far as that server. The servers that had sent them to
  it send them again, with the same numbers, to the coordinator directly. It answers the contributions that it has
  decided already, and takes the others in place of the earlier ones (`Coordinator`).
* With the coordinator all is void. Each server that has passed contributions on reports that to the servers below it,
  and all continue as described in `participant`, up another tree.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from operator import itemgetter

from pypmix.engine.times import COMBINE_SECONDS
from pypmix.host.exchange import deciding
from pypmix.host.exchange.codec import BYTES, NUMBER, PROCS, TEXT, Field, message
from pypmix.host.exchange.errors import ServerLost, make, make_loss
from pypmix.host.exchange.kinds import CANCEL, GATHER, KINDS, write_parts
from pypmix.host.exchange.rounds import PendingContribution
from pypmix.host.naming import shown
from pypmix.standard import statuses
from pypmix.standard.errors import Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Part, Parts, Timer
    from pypmix.standard.errors import PMIxError
    from pypmix.standard.types import Proc

    Name = tuple[str, int, str, tuple[str, ...], frozenset[Proc], bool, bytes]
    """A lane: root, kind and name of the collective, servers or procs, whether servers may contribute
    again, and the number of the root's process."""

UP = "pypmix.collective.up"
ABSENT = "pypmix.collective.absent"
GIVE_UP = "pypmix.collective.cancel"

RADIX = 16
"""The most servers that are right below one."""

FLAT = 2
"""Up to so many times as many are right below the root: a server in between would have only one below it, and their
combined contribution costs the root more than two separate ones."""

UPWARDS: Field[tuple[str, bytes, int, bytes]] = message(TEXT, BYTES, NUMBER, BYTES)
"""The coordinator, the number of a message of contributions, and these."""


NAMED: Field[tuple[int, str, tuple[Proc, ...]]] = message(NUMBER, TEXT, PROCS)
"""The kind, the name and the procs of a collective; groups of disjoint procs may have the same name."""


def spans(count: int, place: int) -> tuple[list[int], int]:
    """Return the places above a place in a tree, the root first, and the place after the last one below it."""
    low, high = 0, count
    above = []
    while low != place:
        above.append(low)
        length = -(-(high - low - 1) // RADIX)
        low += 1 + (place - low - 1) // length * length
        high = min(high, low + length)
    return above, high


def index_in(names: Sequence[str], name: str) -> int | None:
    """Return the index of a name in a sorted sequence, None if it does not contain it."""
    index = bisect_left(names, name)
    return index if index < len(names) and names[index] == name else None


def place_in(names: Sequence[str], root: str, name: str) -> int | None:
    """Return the place of a server in the tree of a root; None if one of them does not take part."""
    first, index = index_in(names, root), index_in(names, name)
    if first is None or index is None:
        return None
    return 0 if index == first else index + (index < first)


def at_place(names: Sequence[str], root: str, place: int) -> str:
    """Return the server at a place in the tree of a root."""
    return root if place == 0 else names[place - 1] if names[place - 1] < root else names[place]


def servers_from(names: Sequence[str], root: str, name: str) -> frozenset[str]:
    """Return a server with the servers below it; only itself if it does not take part."""
    place = place_in(names, root, name)
    last = 0 if place is None else spans(len(names), place)[1]
    return frozenset([name, *[at_place(names, root, each) for each in range((place or 0) + 1, last)]])


def is_flat(count: int) -> bool:
    """Return True if so many servers need no server in the middle."""
    return count <= FLAT * RADIX + 1


def has_below(names: Sequence[str], root: str, name: str) -> bool:
    """Return True if there are servers below this one."""
    place = place_in(names, root, name)
    return place is not None and spans(len(names), place)[1] > place + 1


def combined(names: Sequence[str], parts: Iterable[tuple[str, Part]]) -> Parts:
    """Return contributions in the order of servers, with one for neighbours that differ only in their data."""
    runs: list[list[tuple[str, Part]]] = []
    after: int | None = None
    for server, part in sorted(parts, key=itemgetter(0)):
        index = index_in(names, server)
        if index is not None and index == after and _alike(runs[-1][0][1], part):
            runs[-1].append((server, part))
        else:
            runs.append([(server, part)])
        after = None if index is None else index + (len(part.covers) or 1)
    return tuple([run[0] if len(run) == 1 else _join(run) for run in runs])


def _alike(first: Part, second: Part) -> bool:
    if first.kind == GATHER or first.status or second.status or first.infos != second.infos:
        return False
    return not (first.losses or second.losses or first.leaders or second.leaders) and first.party == second.party


def _join(run: list[tuple[str, Part]]) -> tuple[str, Part]:
    server, first = run[0]
    covers, numbers = zip(*[key for each, part in run for key in part.keys(each)], strict=True)
    latest = max([part.incarnation for _, part in run])
    data = b"".join([part.data for _, part in run])
    sizes: tuple[int, ...] = ()
    if any(part.sizes for _, part in run):
        sizes = tuple([size for each, part in run for _, size in part.kept(each)])
    return server, first.replace(incarnation=latest, data=data, covers=covers, numbers=numbers, sizes=sizes)


class SentContributions:
    """Contributions that were passed on.

    Attributes:
        to: The server that has them.
        incoming: The contributions.
        data: The message.
        given_up: The message that gives them up, if that was sent.
    """

    given_up = b""

    def __init__(self, to: str, incoming: list[PendingContribution], data: bytes) -> None:
        self.to = to
        self.incoming = incoming
        self.data = data


class _Lane:
    """Contributions to one collective, one of each server.

    Attributes:
        names: The servers that take part, sorted.
        servers: The servers that have contributed and are not answered.
        waiting: The contributions that were not passed on yet.
        sent: The contributions that were, by the number of the message.
    """

    timer: Timer | None = None

    def __init__(self, name: Name, names: tuple[str, ...]) -> None:
        self.name = name
        self.names = names
        self.servers: set[str] = set()
        self.waiting: list[PendingContribution] = []
        self.sent: dict[int, SentContributions] = {}


class Relay:
    """One server between others and the coordinators of their collectives; used in the turns of its exchange.

    Args:
        session: The exchange.
    """

    def __init__(self, session: Exchange) -> None:
        self.name = session.name
        self._session = session
        self._lanes: dict[Name, list[_Lane]] = {}

    def __len__(self) -> int:
        return sum([len(lanes) for lanes in self._lanes.values()])

    def above(self, names: Sequence[str], root: str) -> str | None:
        """Return the nearest present server on the way to the root, None if there is not one."""
        place = place_in(names, root, self.name)
        way = [] if place is None else [at_place(names, root, each) for each in spans(len(names), place)[0]]
        return next(filter(self._session.has, reversed(way or [root])), None)

    def take(self, root: str, life: bytes, pending: PendingContribution) -> None:
        """Add contributions of a server below, or of this one.

        Args:
            root: The coordinator.
            life: The number of its process, as the contributors know it.
            pending: The contributions.
        """
        first = pending.part
        if self._has_returned(root, life):
            self._session.soon(pending.answer, None, make_loss((root,), first.name))
            return
        names = first.servers or first.party.names
        # Not by the order of the procs: of two collectives of the same procs, the first contribution of each server
        # belongs to one, in whatever order it names them.
        name = root, first.kind, first.name, first.servers, first.party.members, deciding.takes_rounds(first), life
        lanes = self._lanes.setdefault(name, [])
        lane = next((lane for lane in lanes if lane.servers.isdisjoint(pending.servers)), None)
        if lane is None:
            lane = _Lane(name, names)
            lanes.append(lane)
        lane.servers |= pending.servers
        lane.waiting.append(pending)
        place = place_in(names, root, self.name)
        if place is None or len(lane.servers) >= spans(len(names), place)[1] - place:
            self._pass_on(lane)
        elif lane.timer is None:
            lane.timer = self._session.later(COMBINE_SECONDS, lambda: self._pass_on(lane))

    def _pass_on(self, lane: _Lane) -> None:
        """Pass on the waiting contributions."""
        self._stop(lane)
        root, life = lane.name[0], lane.name[-1]
        to = self.above(lane.names, root)
        if root in self._session.gone or self._has_returned(root, life):
            self._hand_down(lane, self._waiting(lane), None, make_loss((root,), lane.name[2]))
        if to is None or not lane.waiting:
            # The root has not joined yet, as far as this server knows.
            return
        number = self._session.number()
        incoming = self._waiting(lane)
        parts = combined(lane.names, [part for each in incoming for part in each.parts])
        lane.sent[number] = SentContributions(to, incoming, UPWARDS.write((root, life, number, write_parts(parts))))
        self._send(lane, number)

    def _has_returned(self, root: str, life: bytes) -> bool:
        """Return True if a later process of the coordinator's name is present: contributions are not meant for it."""
        return self._session.has(root) and self._session.membership.life_of(root) != life

    def _send(self, lane: _Lane, number: int) -> None:
        sent = lane.sent[number]
        self._session.requests.ask(sent.to, UP, sent.data, partial(self._take_decision, lane, number))
        if sent.given_up:
            self._session.tell(sent.to, GIVE_UP, sent.given_up)

    @staticmethod
    def _stop(lane: _Lane) -> None:
        if lane.timer is not None:
            lane.timer.cancel()
            lane.timer = None

    @staticmethod
    def _waiting(lane: _Lane) -> list[PendingContribution]:
        """Take the waiting contributions out of a lane."""
        incoming, lane.waiting = lane.waiting, []
        return incoming

    def _take_decision(self, lane: _Lane, number: int, data: bytes | None, error: PMIxError | None) -> None:
        """The decision has arrived, or its sender is lost."""
        sent, root = lane.sent.get(number), lane.name[0]
        if sent is None:
            return
        if isinstance(error, ServerLost | Unreachable) and not KINDS[lane.name[1]].loss_ends and sent.to != root:
            if self._session.has(root) and not self._has_returned(root, lane.name[-1]):
                sent.to = root
                self._send(lane, number)
                return
            error = make_loss((root,), lane.name[2])
        del lane.sent[number]
        self._hand_down(lane, sent.incoming, data, error)

    def _hand_down(
        self, lane: _Lane, incoming: list[PendingContribution], data: bytes | None, error: PMIxError | None
    ) -> None:
        for each in incoming:
            lane.servers -= each.servers
        self._drop_empty(lane)
        for each in incoming:
            # In the turn that follows what has caused it.
            self._session.soon(each.answer, data, error)

    def _drop_empty(self, lane: _Lane) -> None:
        lanes = self._lanes.get(lane.name, [])
        if not lane.waiting and not lane.sent and lane in lanes:
            lanes.remove(lane)
            if not lanes:
                del self._lanes[lane.name]

    def _all(self) -> list[_Lane]:
        return [lane for lanes in self._lanes.values() for lane in lanes]

    def cancel(self, sender: str, number: int, status: int, detail: str, servers: tuple[str, ...]) -> bool:
        """Report to the coordinator that a contribution is given up. Return True if it is on its way here."""

        def has(incoming: list[PendingContribution]) -> bool:
            return any(each.key == (sender, number) for each in incoming)

        for lane in self._all():
            if has(lane.waiting):
                self._pass_on(lane)
            for passed, sent in lane.sent.items():
                if has(sent.incoming):
                    if not detail and status != statuses.ERR_TIMEOUT:
                        detail = f"{shown(sender)} has given it up"
                    sent.given_up = CANCEL.write((passed, status, detail, servers))
                    self._session.tell(sent.to, GIVE_UP, sent.given_up)
                    return True
            if has(lane.waiting):
                # The coordinator has not joined yet.
                self._hand_down(lane, self._waiting(lane), None, make(status, detail, servers, lane.name[2]))
                return True
        return False

    def changed(self, name: str, here: bool) -> None:
        """A server has joined or is lost."""
        for lane in self._all():
            if here and lane.name[0] == name:
                self._pass_on(lane)
            elif not here and not KINDS[lane.name[1]].loss_ends:
                if lane.name[0] == name:
                    for sent in list(lane.sent.values()):
                        lane.waiting += sent.incoming
                    lane.sent.clear()
                    self._stop(lane)
                    self._hand_down(lane, self._waiting(lane), None, make_loss((name,), lane.name[2]))
            elif not here and index_in(lane.names, name) is not None:
                # It ends with that server, whose procs the coordinator may have forgotten before this arrived.
                for passed, sent in lane.sent.items():
                    if sent.to != name:
                        gone = CANCEL.write((passed, statuses.ERR_UNREACH, "", (name,)))
                        self._session.tell(sent.to, GIVE_UP, gone)
                self._stop(lane)
                self._hand_down(lane, self._waiting(lane), None, make_loss((name,), lane.name[2]))

    def close(self) -> None:
        """This server leaves."""
        for lane in self._all():
            self._stop(lane)
        self._lanes.clear()
