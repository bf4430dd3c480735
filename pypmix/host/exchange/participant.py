"""One server's part in collectives between servers: its contributions, on their way to the coordinator and back.

A contribution is sent to the server that coordinates: the first by name of the servers that take part, are not lost and
do not refuse it or, if the participants are not known, the root of the session. It waits for that server to join if it
has not begun yet. Then the coordinator decides, or is lost. In that case all send their contributions once more, to the
next one. One of them may have got the decision, so the next coordinator asks all that take part for ends that they
know, and decides only if none is known. All apply the loss at the same place in the order of the session (`statelog`),
and no server accepts a decision of a lost one after that: so a decision that is unknown then stays unknown. A
collective that ends with any lost server ends at once when the coordinator is lost.

If servers have kept data for it, the decision is not the end yet: they send that to each other (`spreading`).

A time limit runs here. When it has passed the coordinator is informed, which names the missing procs; if it does not
answer either, the collective ends without it. `coordinator` describes the other half. All of this happens in turns of
the exchange.
"""

from __future__ import annotations

from functools import partial

from pypmix.engine.times import DECISION_SECONDS
from pypmix.host.exchange import deciding
from pypmix.host.exchange.codec import BYTES, TEXT, Field, broken, message
from pypmix.host.exchange.coordinator import TIME_IS_OVER, Coordinator
from pypmix.host.exchange.errors import ServerLost, as_error, listed, log, make_loss
from pypmix.host.exchange.kinds import (
    CANCEL,
    GATHER,
    KINDS,
    OUTCOME,
    Outcome,
    Part,
    read_parts,
    write_parts,
)
from pypmix.host.exchange.limits import EARLY_BYTES, EARLY_ENTRY
from pypmix.host.exchange.rounds import PendingContribution
from pypmix.host.exchange.searches import Searches
from pypmix.host.exchange.spreading import DATA, PIECE, VOID, VOIDED, Spreading, is_much
from pypmix.host.exchange.tree import ABSENT, GIVE_UP, NAMED, UP, UPWARDS, Relay, has_below, is_flat, servers_from
from pypmix.host.naming import shown
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError, RemoteProtocolError, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import OnAnswer, OnOutcome, Spread, Timer
    from pypmix.host.exchange.searches import Server
    from pypmix.host.exchange.spreading import Name
    from pypmix.standard.types import Proc

    Named = tuple[int, str, tuple[Proc, ...]]
    """The kind, the name and the procs of a collective."""
    Expire = Callable[[int, str, tuple[Proc, ...], Callable[[], None]], None]

PART = "pypmix.collective"
AGAIN = "pypmix.collective.again"
"""The topics of contributions, and of contributions whose coordinator is lost."""

_AGAIN: Field[tuple[str, bytes, bytes]] = message(TEXT, BYTES, BYTES)
"""The lost coordinator, the number of its process, and the contributions."""

UNDECIDED = Outcome()
"""The decision while nothing is decided, and the end of a contribution that has not ended."""


class LocalContribution:
    """A contribution of this server that has not ended.

    Attributes:
        part: The contribution.
        done: Called with the decision.
        since: When it began.
        to: The server that has it: the coordinator or a server on the way there; None if no server has it.
        root: The coordinator.
        apart: Whether the coordinator wants it directly.
        life: The number of the coordinator's process.
        lost: The last coordinator that was lost, and the number of its process; None for none.
        refused: The servers that no longer coordinate it, as their members have ended.
        cancelled: Its end unless it is decided before; it was given up.
        kept: Data that this server sends itself.
        spreading: After the decision: the data of all servers that have kept any.
        decided: The decision, in that case.
        early: Messages with data of other servers that arrived before the decision.
        early_bytes: The size of these.
        end: Its end.
    """

    to: str | None = None
    root = ""
    apart = False
    life = b""
    lost: Server | None = None
    refused: frozenset[str] = frozenset()
    cancelled: Outcome | None = None
    timer: Timer | None = None
    kept = b""
    spreading: Spreading | None = None
    decided = end = UNDECIDED
    early_bytes = 0

    def __init__(self, part: Part, done: OnOutcome, since: float) -> None:
        self.part = part
        self.done = done
        self.since = since
        self.early: list[Callable[[], None]] = []

    @property
    def servers(self) -> Iterable[str]:
        """The servers that take part, as far as that is known."""
        return self.part.servers or self.part.party.servers


class Participant:
    """The collectives that one server takes part in, and the collectives that it coordinates.

    Args:
        session: The exchange.

    Attributes:
        coordinator: The collectives that this server coordinates.
        session: The exchange.
    """

    def __init__(self, session: Exchange) -> None:
        self.name = session.name
        self.coordinator = Coordinator(session)
        self.session = session
        self._open: dict[int, LocalContribution] = {}
        self._relay = Relay(session)
        self._searches = Searches(session, self.coordinator)
        self._data = DataCollection(self)
        self._absences: list[tuple[Named, OnAnswer]] = []
        self.expire: Expire = lambda _kind, _name, _procs, done: done()
        """Ends an operation that some clients of this server have not called yet, and calls a function."""
        session.requests.handle(PART, self._take_contribution, is_prompt=True)
        session.requests.handle(UP, self._came_up, is_prompt=True)
        session.requests.handle(AGAIN, self._take_repeated, is_prompt=True)
        session.handle(ABSENT, self._asked_absent)
        session.handle(TIME_IS_OVER, self._asked_to_expire)
        session.hear(GIVE_UP, self._told_give_up)

    def __len__(self) -> int:
        return len(self._open) + len(self.coordinator) + len(self._relay)

    def open(self) -> list[LocalContribution]:
        """Return the contributions that have not ended; from any thread."""
        return list(self._open.values())

    def is_open(self, local: LocalContribution) -> bool:
        """Return True if a contribution has not ended."""
        return local.part.number in self._open

    def begin(self, part: Part, done: OnOutcome, seconds: float, since: float = 0.0) -> LocalContribution:
        """Give a contribution; `done` is called once, with the decision.

        Args:
            part: The contribution.
            done: Called with its end.
            seconds: The time limit, 0 for none.
            since: The time, if the caller knows it.
        """
        local = LocalContribution(part, done, since or self.session.now())
        if part.data and KINDS[part.kind].spreads and is_much(len(part.data), len(part.party.servers)):
            local.kept = part.data
            local.part = part.replace(data=b"", sizes=(len(local.kept),))
        self.start(local, seconds)
        return local

    def start(self, local: LocalContribution, seconds: float) -> None:
        """Give an existing contribution."""
        if self.session.is_closed:
            self.session.soon(local.done, self.left_outcome())
            return
        self._open[local.part.number] = local
        if seconds:
            local.timer = self.session.later(seconds, lambda: self._overdue(local))
        self._send(local)

    def missing(self, local: LocalContribution) -> tuple[tuple[str, ...], set[Proc]]:
        """Return the servers and procs that are waited for; empty if this server is not the coordinator."""
        if local.spreading is not None:
            awaited = local.spreading.missing_servers
            return tuple(awaited), set(self.procs_on(local, awaited))
        if local.root != self.name:
            return (), set()
        servers, procs = self.coordinator.missing((self.name, local.part.number))
        return tuple(servers), procs

    # The way to the coordinator

    def _coordinator_of(self, local: LocalContribution) -> str | None:
        """Return the server that coordinates it; None if no server is left."""
        part = local.part
        if KINDS[part.kind].unknown:
            return self.session.root
        gone = self.session.membership.gone | local.refused
        # They are sorted.
        for name in part.servers or part.party.names:
            if name not in gone:
                return name
        return None

    def _send(self, local: LocalContribution) -> None:
        part = local.part
        if part.number not in self._open:
            return
        if local.cancelled is not None:
            self.finish(local, local.cancelled)
            return
        rule = KINDS[part.kind]
        gone = self.session.membership.gone
        lost = gone.intersection(local.servers) if gone and rule.loss_ends else ()
        if lost:
            self.end_by_loss(local, lost)
            return
        to = self._coordinator_of(local)
        mine = part.party.servers.get(self.name, ()) if local.lost else ()
        if to is None or (mine and self.coordinator.attendance.are_out(part, mine)):
            # Procs that have not ended do not wait for this server any longer.
            status = deciding.ABORT if rule.remembered else statuses.ERR_PARTIAL_SUCCESS
            self.finish(local, deciding.failure(status, "all of its members here have gone", part.procs))
        elif to not in self.session.membership.present:
            local.to, local.root = None, ""
            # Once it is present, all that wait for it are sent.
            self.session.detours.pursue(to)
        else:
            local.root = to
            local.life = self.session.membership.life_of(to)
            if (
                to == self.name
                or local.apart
                or local.lost
                or part.status == statuses.ERR_TIMEOUT
                or rule.unknown
                or is_flat(len(part.servers or part.party.servers))
            ):
                self._send_to(local, to)
            else:
                self._send_up(local, to)

    def _send_to(self, local: LocalContribution, to: str) -> None:
        """Contribute directly, perhaps to a collective that this server coordinates itself."""
        local.to = local.root = to
        parts = ((self.name, local.part),)
        answer = partial(self._take_decision, local, to)
        if to != self.name:
            data = write_parts(parts)
            topic, data = (AGAIN, _AGAIN.write((*local.lost, data))) if local.lost else (PART, data)
            self.session.requests.ask(to, topic, data, answer)
            return
        pending = PendingContribution(to, local.part.number, parts, answer)
        if local.lost:
            self._searches.search_before(local.lost, pending, partial(self._contribute, pending, local))
        else:
            self._contribute(pending, local)

    def _send_up(self, local: LocalContribution, root: str) -> None:
        """Contribute through the servers in the middle, of which this one may be one."""
        part = local.part
        names = part.servers or part.party.names
        parts = ((self.name, part),)
        local.to = self.name if has_below(names, root, self.name) else self._relay.above(names, root) or root
        answer = partial(self._take_decision, local, local.to)
        if local.to == self.name:
            self._relay.take(root, local.life, PendingContribution(self.name, part.number, parts, answer))
        else:
            data = UPWARDS.write((root, local.life, part.number, write_parts(parts)))
            self.session.requests.ask(local.to, UP, data, answer)

    def _contribute(self, pending: PendingContribution, local: LocalContribution | None = None) -> None:
        """Take a contribution in, unless it is one of this server that has ended or is sent elsewhere by now."""
        if local is not None and (local.to != self.name or not self.is_open(local)):
            return
        try:
            self.coordinator.contribute(pending)
        except Exception as problem:
            log.exception("%s: a contribution could not be taken in", shown(self.name))
            pending.answer(None, as_error(problem))

    def _take_contribution(self, sender: str, data: bytes, answer: OnAnswer, former: Server | None = None) -> None:
        """A server contributes directly to a collective that this one coordinates; again if the one before is lost."""
        parts = read_parts(self.coordinator.attendance.places, data)
        if len(parts) != 1:
            raise broken(f"{shown(sender)} contributes to {len(parts)} collectives at once")
        self.session.authority.check_parts(sender, parts, (sender,))
        pending = PendingContribution(sender, parts[0][1].number, parts, answer)
        if former is None:
            self.coordinator.contribute(pending)
        else:
            self._searches.search_before(former, pending, partial(self._contribute, pending))

    def _take_repeated(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        """A server contributes once more, as the coordinator is lost."""
        name, life, packed = _AGAIN.read(data)
        self._take_contribution(sender, packed, answer, (name, life))

    def _came_up(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        """Contributions have arrived through the servers in the middle, for this server or for servers above."""
        root, life, number, packed = UPWARDS.read(data)
        parts = read_parts(self.coordinator.attendance.places, packed)
        pending = PendingContribution(sender, number, parts, answer)
        meant = {(part.kind, part.name, part.servers) for _, part in parts}
        if len(meant) != 1 or parts[0][1].rule.unknown:
            raise broken(f"{shown(sender)} combines contributions to different collectives")
        names = parts[0][1].servers or parts[0][1].party.names
        self.session.authority.check_parts(sender, parts, servers_from(names, root, sender))
        if root == self.name and life != self.session.membership.life_of(root):
            # They are meant for a former process of this name.
            answer(None, make_loss((root,), parts[0][1].name))
        elif root == self.name:
            self.coordinator.contribute(pending)
        elif self.name in servers_from(names, root, sender):
            raise broken(f"{shown(sender)} passes contributions on to {shown(self.name)}, which is below it")
        else:
            self._relay.take(root, life, pending)

    def _asked_absent(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        """A coordinator asks if this server has contributed: answered once no contribution of it is open."""
        self._absences.append((NAMED.read(data), answer))
        self._say_absent()

    def _asked_to_expire(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        """The time of a caller on another server has passed."""
        kind, name, procs = named = NAMED.read(data)
        if sender not in {self.coordinator.attendance.places.server_of(proc) for proc in procs}:
            raise broken(f"{shown(sender)} ends {name!r}, and has none of its procs")
        if self._contributes(named):
            # The contribution of this server is on its way to the coordinator, which answers it with that end.
            answer(b"", None)
        else:
            self.expire(kind, name, procs, lambda: answer(b"", None))

    def _say_absent(self) -> None:
        absences, self._absences = self._absences, []
        for named, answer in absences:
            if self._contributes(named):
                self._absences.append((named, answer))
            else:
                answer(b"", None)

    def _contributes(self, named: Named) -> bool:
        """Return True if a contribution of this server to a collective is open."""
        kind, name, procs = named
        return any(
            part.kind == kind and part.name == name and not (procs and part.party.members.isdisjoint(procs))
            for part in [local.part for local in self.open()]
        )

    def _told_give_up(self, sender: str, data: bytes) -> None:
        given_up = CANCEL.read(data)
        if not (self._searches.give_up(sender, given_up) or self._relay.cancel(sender, *given_up)):
            self.coordinator.cancel(sender, *given_up)

    def _take_decision(self, local: LocalContribution, to: str, data: bytes | None, error: PMIxError | None) -> None:
        """A coordinator has answered."""
        if local.to != to:
            return
        outcome = UNDECIDED
        if error is None:
            try:
                outcome = OUTCOME.read(data or b"")
            except RemoteProtocolError as problem:
                error = problem
        if error is None:
            self._decide(local, outcome)
        else:
            self._failed(local, to, error)

    def _failed(self, local: LocalContribution, to: str, error: PMIxError) -> None:
        """A coordinator has answered with an error, or is lost."""
        if local.part.number not in self._open:
            return
        if isinstance(error, ServerLost | Unreachable) and not local.part.rule.loss_ends:
            root, local.root, local.to = local.root, "", None
            if root != to and self.session.has(root):
                # A server on the way is lost, or has lost the coordinator. Repeat that a contribution was given up.
                self._send_to(local, root)
                if local.cancelled is not None:
                    self._tell_given_up(local, local.cancelled)
                return
            local.lost = root, local.life
            self._send(local)
            self._searches.settle()
            return
        if isinstance(error, ServerLost):
            self.end_by_loss(local, error.servers)
            return
        self.finish(local, deciding.failure(error.code, error.detail))

    def _decide(self, local: LocalContribution, outcome: Outcome) -> None:
        """A coordinator has decided."""
        if local.part.number not in self._open:
            if outcome.spread is not None:
                # The others need the data that this server has kept.
                end = local.end
                self._data.make(local, outcome.spread).give_up(end.status, end.detail, end.servers)
            return
        if outcome.spread is not None:
            self._data.begin(local, outcome, outcome.spread)
            return
        if outcome.apart:
            local.refused |= frozenset(outcome.servers)
            self._contribute_again(local)
            return
        if outcome.parts:
            self.coordinator.decided.add(local.part.kind, local.part.name, outcome)
        self.finish(local, outcome)
        if KINDS[local.part.kind].remembered and (
            any(info.key == keys.GROUP_MEMBERSHIP for info in outcome.infos) or outcome.status != statuses.SUCCESS
        ):
            self.coordinator.end_waiting(local.part)

    def _contribute_again(self, local: LocalContribution) -> None:
        """Contribute directly, or to another root."""
        local.apart, local.to = True, None
        self._searches.settle()
        root = local.root
        if not local.part.rule.unknown or self.session.root != root:
            self._send(local)
            return

        def stop_waiting() -> None:
            if local.to is None and local.root == root and local.part.number in self._open:
                self.finish(
                    local, deciding.failure(deciding.ABORT, "the servers do not agree on the server that decides")
                )

        # This server gets to know the other root in a moment.
        self.session.later(DECISION_SECONDS, stop_waiting)

    def finish(self, local: LocalContribution, outcome: Outcome) -> None:
        """End a contribution."""
        if self._open.pop(local.part.number, None) is not None:
            if local.timer is not None:
                local.timer.cancel()
            if self._absences:
                self._say_absent()
            if self._searches.unsettled:
                self._searches.settle()
            local.end = outcome
            if local.early:
                local.early.clear()
            if local.spreading is not None:
                local.spreading.give_up(outcome.status, outcome.detail, outcome.servers)
            local.done(outcome)

    # Giving up

    def give_up(self, local: LocalContribution, status: int, detail: str = "") -> None:
        """End a collective with this status for all, if it has not ended yet."""
        if local.part.number not in self._open:
            return
        local.cancelled = deciding.failure(status, detail or f"{shown(self.name)} has given it up")
        if local.to is not None:
            self._tell_given_up(local, Outcome(status, detail))
        elif local.part.kind == GATHER:
            self.finish(local, local.cancelled)

    def _tell_given_up(self, local: LocalContribution, why: Outcome) -> None:
        assert local.to is not None
        self.session.tell(local.to, GIVE_UP, CANCEL.write((local.part.number, why.status, why.detail, why.servers)))

    def _overdue(self, local: LocalContribution) -> None:
        if local.part.number not in self._open:
            return
        local.timer = self.session.later(DECISION_SECONDS, lambda: self._forsake(local))
        if local.spreading is not None:
            awaited = local.spreading.missing_servers
            self.finish(local, deciding.overdue(awaited, self.procs_on(local, awaited)))
        elif local.to is None and not local.part.rule.unknown:
            late = sorted(set(local.servers).difference(self.session.members))
            self.finish(local, deciding.overdue(late, self.procs_on(local, late)))
        else:
            self.give_up(local, statuses.ERR_TIMEOUT)

    def _forsake(self, local: LocalContribution) -> None:
        """End a collective whose coordinator does not even name the missing procs."""
        where = f"{listed((local.to,))} does not answer" if local.to else "no server reports how it has ended"
        self.finish(
            local,
            deciding.failure(statuses.ERR_TIMEOUT, where, (), (local.to,) if local.to else ()),
        )

    def procs_on(self, local: LocalContribution, servers: Iterable[str]) -> list[Proc]:
        """Return the members of a contribution that are on some servers."""
        return [proc for name in servers for proc in local.part.party.servers.get(name, ())]

    # Servers that join and leave

    def changed(self, name: str, here: bool) -> None:
        """A server has joined or is lost."""
        if here:
            self._searches.change(name, True)
            self._relay.changed(name, True)
            self.coordinator.meet()
            self._send_waiting(name)
            return
        self.coordinator.lose(name)
        self._relay.changed(name, False)
        for local in [local for local in self.open() if local.part.rule.loss_ends and name in local.servers]:
            if local.spreading is not None:
                self._data.lack(local, name)
            elif local.to in (None, name) or local.root == name:
                # Otherwise the coordinator ends it for all.
                self.end_by_loss(local, (name,))
            elif not self.session.launcher:
                # The contribution may arrive when the coordinator has forgotten the jobs of that server.
                self._tell_given_up(local, Outcome(statuses.ERR_UNREACH, servers=(name,)))
        self._searches.change(name, False)
        self._send_waiting(name)

    def _send_waiting(self, name: str) -> None:
        """Send the contributions that wait for a server, or for another root."""
        for local in self.open():
            if local.to is None and local.spreading is None and local.root != self.session.root:
                self._send(local)

    def end_by_loss(self, local: LocalContribution, servers: Iterable[str]) -> None:
        """End a collective that ends with a lost server."""
        self.finish(local, self.coordinator.servers_lost(local.part, servers))

    def close(self) -> None:
        """This server leaves the exchange."""
        self._searches.close()
        self._absences.clear()
        self._relay.close()
        self.coordinator.close()
        for local in self.open():
            self.finish(local, self.left_outcome())

    @staticmethod
    def left_outcome() -> Outcome:
        """Return the end of collectives that are open, or begun, when this server has left the exchange."""
        return deciding.failure(statuses.ERR_LOST_CONNECTION, "this server has left the exchange")


class DataCollection:
    """The data that servers have kept for the open contributions of one server, and send each other (`spreading`).

    Args:
        participant: The contributions.
    """

    def __init__(self, participant: Participant) -> None:
        self._participant = participant
        self._session = participant.session
        self._session.hear(DATA, self._take_data)
        self._session.hear(VOID, self._take_void)

    def begin(self, local: LocalContribution, outcome: Outcome, spread: Spread) -> None:
        """Wait for the data of all servers: it is decided, and ends when that has arrived."""
        try:
            spreading = self.make(local, spread)
        except RemoteProtocolError as problem:
            self._participant.finish(local, deciding.failure(problem.code, problem.detail))
            return
        local.spreading, local.decided, local.to, local.root = spreading, outcome, None, ""
        spreading.go_on()
        self._complete(local)
        early, local.early = local.early, []
        for call in early:
            try:
                call()
            except RemoteProtocolError as problem:
                log.error("%s: data of a fence is dropped: %s", shown(self._participant.name), problem)
        for name in self._session.gone.intersection(local.servers) if self._participant.is_open(local) else ():
            self.lack(local, name)

    def make(self, local: LocalContribution, spread: Spread) -> Spreading:
        """Return the data of a decided collective."""
        if (self._participant.name, len(local.kept)) not in spread.sizes:
            raise broken(f"{shown(spread.root)} waits for data that {shown(self._participant.name)} has not kept")
        return Spreading(self._session, local.part.kind, local.part.name, spread, local.kept)

    def _complete(self, local: LocalContribution) -> None:
        """End it if the data of all has arrived."""
        data = None if local.spreading is None else local.spreading.data
        if data is not None:
            self._participant.finish(local, local.decided.replace(data=local.decided.data + data, spread=None))

    def lack(self, local: LocalContribution, name: str) -> None:
        """A server is lost while data is on its way."""
        if local.spreading is not None and name in local.spreading.missing_servers:
            self._participant.end_by_loss(local, (name,))
        else:
            self._session.later(DECISION_SECONDS, partial(self._participant.end_by_loss, local, (name,)))

    def _take_data(self, sender: str, data: bytes) -> None:
        """A server sends data that it has kept or received."""
        name, step, piece = PIECE.read(data)

        def take(local: LocalContribution, spreading: Spreading) -> None:
            if not spreading.take(sender, step, piece):
                raise broken(f"{shown(sender)} sends data of a fence that another server has, or that has arrived")
            self._complete(local)

        self._take(sender, name, len(piece), take)

    def _take_void(self, sender: str, data: bytes) -> None:
        """The data of a server will not arrive."""
        name, status, detail, servers = VOIDED.read(data)

        def void(local: LocalContribution, spreading: Spreading) -> None:
            if sender not in spreading.missing_servers:
                raise broken(f"{shown(sender)} gives up a fence of which it has no data to send")
            missing = self._participant.procs_on(local, servers)
            self._participant.finish(local, deciding.failure(status, detail, missing, servers))

        self._take(sender, name, len(detail), void)

    def _take(self, sender: str, name: Name, size: int, act: Callable[[LocalContribution, Spreading], None]) -> None:
        """Process a message about a decided collective, or keep it until this server gets the decision."""

        def process(local: LocalContribution) -> None:
            if local.spreading is not None and local.spreading.name == name:
                act(local, local.spreading)

        for local in self._participant.open():
            if (local.part.kind, local.part.name) != name[:2] or sender not in local.servers:
                continue
            if local.spreading is not None:
                process(local)
            elif local.early_bytes + size + EARLY_ENTRY <= EARLY_BYTES:
                local.early_bytes += size + EARLY_ENTRY
                local.early.append(partial(process, local))
            else:
                # Servers that need this server's data are informed when the decision arrives.
                this = shown(self._participant.name)
                text = f"other servers have sent {this} more than {EARLY_BYTES} bytes for it before it was decided"
                self._participant.finish(local, deciding.failure(statuses.ERR_OUT_OF_RESOURCE, text))
