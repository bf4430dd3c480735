"""One server's part in collectives between servers: its contributions, on their way to the coordinator and back.

A contribution is sent to the server that coordinates: the first by name of the servers that take part and are not lost
or, if the participants are not known, the root of the session. It waits for that server to join if it has not begun
yet. Then the coordinator decides, or is lost. In that case all send their contributions once more, to the next one. One
of them may have got the decision, so the next coordinator asks all that take part for ends that they know, and decides
only if none is known. All apply the loss at the same place in the order of the session (`statelog`), and no server
accepts a decision of a lost one after that: so a decision that is unknown then stays unknown. A collective that ends
with any lost server ends at once when the coordinator is lost.

If servers have kept data for it, the decision is not the end yet: they send that to each other (`spreading`).

A time limit runs here. When it has passed the coordinator is informed, which names the missing procs; if it does not
answer either, the collective ends without it. `coordinator` describes the other half. All of this happens in turns of
the exchange.
"""

from __future__ import annotations

from functools import partial

from pypmix.engine.times import AGAIN_SECONDS, DECISION_SECONDS
from pypmix.host.exchange import deciding
from pypmix.host.exchange.codec import BYTES, NUMBER, TEXT, Field, broken, many, message
from pypmix.host.exchange.coordinator import EXPIRED, TIME_IS_OVER, Coordinator, Held
from pypmix.host.exchange.errors import ServerLost, as_error, listed, log
from pypmix.host.exchange.kinds import (
    CANCEL,
    CONSTRUCT,
    GATHER,
    KINDS,
    OUTCOME,
    Outcome,
    Part,
    parts_field,
)
from pypmix.host.exchange.limits import EARLY_BYTES, EARLY_ENTRY, MAX_AGAIN
from pypmix.host.exchange.spreading import DATA, PIECE, VOID, VOIDED, Spreading, is_much
from pypmix.host.exchange.tree import ABSENT, GIVE_UP, NAMED, UP, UPWARDS, Relay, has_below, is_flat
from pypmix.host.naming import shown
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError, RemoteProtocolError, Unreachable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.exchange.kinds import Key, OnAnswer, OnOutcome, Session, Spread, Timer
    from pypmix.host.exchange.spreading import Name
    from pypmix.standard.types import Proc

    Server = tuple[str, bytes]
    """A server, and the number of its process, if carriers know that."""

    Search = tuple[Server, int, str, str]
    """A lost coordinator, and the kind, the name and the procs of a collective."""

    Expire = Callable[[int, str, tuple[Proc, ...], Callable[[], None]], None]

PART = "pypmix.collective"
AGAIN = "pypmix.collective.again"
FIND = "pypmix.collective.find"
"""The topics of contributions, of contributions whose coordinator is lost, and of requests for ends that are known."""

_AGAIN: Field[tuple[str, bytes, bytes]] = message(TEXT, BYTES, BYTES)
"""The lost coordinator, the number of its process, and the contributions."""

_FIND: Field[tuple[str, bytes, int, str]] = message(TEXT, BYTES, NUMBER, TEXT)
"""The lost coordinator, the number of its process, and the kind and the name of a collective."""

_ENDS: Field[tuple[bytes, ...]] = many(BYTES)

MAX_SEARCHES = 1024
"""The most searches for ends that are remembered."""

UNDECIDED = Outcome()
"""The decision while nothing is decided, and the end of a contribution that has not ended."""


class Own:
    """A contribution of this server that has not ended.

    Attributes:
        part: The contribution.
        done: Called with the decision.
        since: When it began.
        to: The server that has it: the coordinator or a server on the way there; None if no server has it.
        root: The coordinator.
        apart: Whether the coordinator wants it directly.
        awaited: The coordinator that it waits for, which has not joined yet.
        life: The number of the coordinator's process.
        lost: The last coordinator that was lost, and the number of its process; None for none.
        cancelled: Its end unless it is decided before; it was given up.
        kept: Data that this server sends itself.
        spreading: After the decision: the data of all servers that have kept any.
        decided: The decision, in that case.
        early: Messages with data of other servers that arrived before the decision.
        early_bytes: The size of these.
        end: Its end.
    """

    __slots__ = (
        "apart",
        "awaited",
        "cancelled",
        "decided",
        "done",
        "early",
        "early_bytes",
        "end",
        "kept",
        "life",
        "lost",
        "part",
        "root",
        "since",
        "spreading",
        "timer",
        "to",
    )

    def __init__(self, part: Part, done: OnOutcome, since: float) -> None:
        self.part = part
        self.done = done
        self.since = since
        self.to: str | None = None
        self.root = ""
        self.apart = False
        self.awaited: str | None = None
        self.life = b""
        self.lost: Server | None = None
        self.cancelled: Outcome | None = None
        self.timer: Timer | None = None
        self.kept = b""
        self.spreading: Spreading | None = None
        self.decided = self.end = UNDECIDED
        self.early: list[Callable[[], None]] = []
        self.early_bytes = 0

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
    """

    def __init__(self, session: Session) -> None:
        self.name = session.name
        self.coordinator = Coordinator(session, self._forward)
        self._session = session
        self._parts = parts_field(lambda: self.coordinator.places)
        self._open: dict[int, Own] = {}
        session.handle(PART, self._came)
        self._relay = Relay(session, self._parts.write)
        self._searches: dict[Search, list[Callable[[], None]] | None] = {}
        """Calls that wait for ends that others may know, None for a search that has finished."""
        self._searching: dict[Key, tuple[int, int, str, tuple[str, ...]] | None] = {}
        """Contributions that wait for a search, and how they were given up since."""
        self._until_lost: dict[str, list[Callable[[], None]]] = {}
        """Calls that wait until a server is lost here, too."""
        self._absences: list[tuple[tuple[int, str], OnAnswer]] = []
        self.expire: Expire = lambda _kind, _name, _procs, done: done()
        """Ends an operation that some clients of this server have not called yet, and calls a function."""
        session.handle(UP, self._came_up)
        session.handle(ABSENT, self._asked_absent)
        session.handle(TIME_IS_OVER, self._asked_to_expire)
        session.hear(GIVE_UP, self._told_give_up)
        session.handle(AGAIN, self._came_again)
        session.handle(FIND, self._asked_to_find)
        session.hear(DATA, self._told_data)
        session.hear(VOID, self._told_void)

    def __len__(self) -> int:
        return len(self._open) + len(self.coordinator) + len(self._relay)

    def open(self) -> list[Own]:
        """Return the contributions that have not ended; from any thread."""
        return list(self._open.values())

    def begin(self, part: Part, done: OnOutcome, seconds: float, since: float = 0.0) -> Own:
        """Give a contribution; `done` is called once, with the decision.

        Args:
            part: The contribution.
            done: Called with its end.
            seconds: The time limit, 0 for none.
            since: The time, if the caller knows it.
        """
        own = Own(part, done, since or self._session.now())
        if part.data and part.rule.spreads and is_much(len(part.data), len(part.party.servers)):
            own.kept = part.data
            own.part = part.replace(data=b"", sizes=(len(own.kept),))
        self.start(own, seconds)
        return own

    def start(self, own: Own, seconds: float) -> None:
        """Give an existing contribution."""
        self._open[own.part.number] = own
        if seconds:
            own.timer = self._session.later(seconds, lambda: self._overdue(own))
        self._send(own)

    def missing(self, own: Own) -> tuple[tuple[str, ...], set[Proc]]:
        """Return the servers and procs that are waited for; empty if this server is not the coordinator."""
        if own.spreading is not None:
            awaited = own.spreading.awaited
            return tuple(awaited), set(self._procs_on(own, awaited))
        if own.root != self.name:
            return (), set()
        servers, procs = self.coordinator.missing((self.name, own.part.number))
        return tuple(servers), procs

    def _forward(self, part: Part, done: OnOutcome) -> Callable[[int], None]:
        """Give a contribution for others to the server where offers meet."""
        own = self.begin(part, done, 0.0)
        return lambda status: self.give_up(own, status)

    # The way to the coordinator

    def _coordinator_of(self, own: Own) -> str | None:
        """Return the server that coordinates it; None if no server is left."""
        part = own.part
        if KINDS[part.kind].unknown:
            return self._session.root
        # They are sorted.
        gone = self._session.gone
        return next((name for name in part.servers or part.party.names if name not in gone), None)

    def _send(self, own: Own) -> None:
        part = own.part
        if part.number not in self._open:
            return
        if own.cancelled is not None:
            self._finish(own, own.cancelled)
            return
        rule = KINDS[part.kind]
        gone = self._session.gone
        lost = gone.intersection(own.servers) if gone and rule.loss_ends else ()
        if lost:
            self._lost(own, lost)
            return
        to = self._coordinator_of(own)
        mine = part.party.servers.get(self.name, ()) if own.lost else ()
        if to is None or (mine and self.coordinator.are_out(part, mine)):
            # Procs that have not ended do not wait for this server any longer.
            status = deciding.ABORT if rule.remembered else statuses.ERR_PARTIAL_SUCCESS
            self._finish(own, deciding.failure(status, "all of its members here have gone", part.procs))
        elif self._session.has(to):
            own.to, own.root, own.awaited, own.life = to, to, None, self._session.life_of(to)
            if to == self.name:
                self._contribute(own, to)
            elif not (
                own.apart
                or own.lost
                or part.status == statuses.ERR_TIMEOUT
                or rule.unknown
                or is_flat(len(part.servers or part.party.servers))
            ):
                self._send_up(own, to)
            else:
                self._send_to(own, to)
        else:
            own.to, own.root, own.awaited = None, "", to
            # Once it is present, all that wait for it are sent.
            self._session.reach(to)

    def _send_to(self, own: Own, to: str) -> None:
        """Contribute directly."""
        own.to = own.root = to
        data = self._parts.write(((self.name, own.part),))
        topic, data = (AGAIN, _AGAIN.write((*own.lost, data))) if own.lost else (PART, data)
        self._session.ask(to, topic, data, partial(self._told, own, to))

    def _send_up(self, own: Own, root: str) -> None:
        """Contribute through the servers in the middle, of which this one may be one."""
        part = own.part
        names = part.servers or part.party.names
        if has_below(names, root, self.name):
            own.to = self.name
            parts = ((self.name, part),)
            self._relay.take(self.name, part.number, root, parts, partial(self._told, own, self.name))
        else:
            own.to = self._relay.above(names, root) or root
            data = UPWARDS.write((root, part.number, self._parts.write(((self.name, part),))))
            self._session.ask(own.to, UP, data, partial(self._told, own, own.to))

    def _contribute(self, own: Own, to: str) -> None:
        """Contribute to a collective that this server coordinates itself."""
        parts = ((self.name, own.part),)
        decided = partial(self._session.soon, self._decide, own, to)
        held = Held(to, own.part.number, parts, lambda made: decided(made.outcome))

        def come() -> None:
            if own.to != to or own.part.number not in self._open:
                return
            try:
                self.coordinator.come(held)
            except Exception as problem:
                log.exception("%s: a contribution could not be taken in", shown(self.name))
                error = as_error(problem)
                self._finish(own, deciding.failure(error.code, error.detail))

        if own.lost:
            self._search_before(own.lost, held, come)
        else:
            come()

    def _came(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        """A server contributes directly to a collective that this one coordinates."""
        for held in self._direct(sender, data, answer):
            self.coordinator.come(held)

    def _direct(self, sender: str, data: bytes, answer: OnAnswer) -> list[Held]:
        found = []
        for server, part in self._parts.read(data):
            if server != sender or part.covers:
                raise broken(f"{sender} contributes for {shown(server)}")
            parts = ((server, part),)
            found.append(Held(server, part.number, parts, lambda decision: answer(decision.packed, None)))
        return found

    def _came_up(self, sender: str, data: bytes, answer: OnAnswer, tries: int = 0) -> None:
        """Contributions have arrived through the servers in the middle, for this server or for servers above."""
        root, number, packed = UPWARDS.read(data)
        parts = self._parts.read(packed)
        if tries < MAX_AGAIN and self.coordinator.lacks(parts):
            # They have overtaken the report of the servers of their procs.
            self._session.later(AGAIN_SECONDS, lambda: self._came_up(sender, data, answer, tries + 1))
            return
        meant = {(part.kind, part.name, part.servers) for _, part in parts}
        if len(meant) != 1 or parts[0][1].rule.unknown:
            raise broken(f"{sender} passes on what does not go together")
        if root == self.name:
            self.coordinator.come(Held(sender, number, parts, lambda decision: answer(decision.packed, None)))
        elif self._relay.is_above(sender, root, parts):
            raise broken(f"{sender} passes on what comes from above")
        else:
            self._relay.take(sender, number, root, parts, answer)

    def _asked_absent(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        """A coordinator asks if this server has contributed: answered once no contribution of it is open."""
        self._absences.append((NAMED.read(data), answer))
        self._say_absent()

    def _asked_to_expire(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        """The time of a caller on another server has passed."""
        kind, name, procs = EXPIRED.read(data)
        if any((own.part.kind, own.part.name) == (kind, name) for own in self.open()):
            # The contribution of this server is on its way to the coordinator, which answers it with that end.
            answer(b"", None)
        else:
            self.expire(kind, name, procs, lambda: answer(b"", None))

    def _say_absent(self) -> None:
        given = {(own.part.kind, own.part.name) for own in self.open()}
        absences, self._absences = self._absences, []
        for named, answer in absences:
            if named in given:
                self._absences.append((named, answer))
            else:
                answer(b"", None)

    def _told_give_up(self, sender: str, data: bytes) -> None:
        given_up = CANCEL.read(data)
        if (sender, given_up[0]) in self._searching:
            self._searching[sender, given_up[0]] = given_up
        elif not self._relay.cancel(sender, *given_up):
            self.coordinator.cancel(sender, *given_up)

    def _told(self, own: Own, to: str, data: bytes | None, error: PMIxError | None) -> None:
        """A coordinator has answered."""
        if own.to != to:
            return
        if error is not None:
            self._failed(own, to, error)
            return
        try:
            outcome = OUTCOME.read(data or b"")
        except RemoteProtocolError as problem:
            outcome = deciding.failure(problem.code, problem.detail)
        self._decide(own, to, outcome)

    def _failed(self, own: Own, to: str, error: PMIxError) -> None:
        """A coordinator has answered with an error, or is lost."""
        if own.part.number not in self._open:
            return
        if isinstance(error, ServerLost | Unreachable) and not own.part.rule.loss_ends:
            root, own.root, own.to = own.root, "", None
            if root != to and self._session.has(root):
                # A server on the way is lost, or has lost the coordinator. Repeat that a contribution was given up.
                self._send_to(own, root)
                if own.cancelled is not None:
                    self._tell_given_up(own, own.cancelled)
                return
            own.lost = root, own.life
            self._send(own)
            return
        if isinstance(error, ServerLost):
            self._lost(own, error.servers)
            return
        self._decide(own, to, deciding.failure(error.code, error.detail))

    def _decide(self, own: Own, to: str, outcome: Outcome) -> None:
        """A coordinator has decided."""
        if own.part.number not in self._open or own.to != to:
            if outcome.spread is not None:
                # The others need the data that this server has kept.
                end = own.end
                self._spreading(own, outcome.spread).give_up(end.status, end.detail, end.servers)
            return
        if outcome.spread is not None:
            self._spread(own, outcome, outcome.spread)
            return
        if outcome.apart:
            self._contribute_again(own)
            return
        self.coordinator.decided.add(own.part.kind, own.part.name, outcome)
        self._finish(own, outcome)
        if KINDS[own.part.kind].remembered and (
            any(info.key == keys.GROUP_MEMBERSHIP for info in outcome.infos) or outcome.status != statuses.SUCCESS
        ):
            self.coordinator.over(own.part)

    def _contribute_again(self, own: Own) -> None:
        """Contribute directly, or to another root."""
        own.apart, own.to = True, None
        root = own.root
        if not own.part.rule.unknown or self._session.root != root:
            self._send(own)
            return

        def stop_waiting() -> None:
            if own.to is None and own.root == root and own.part.number in self._open:
                self._finish(own, deciding.failure(deciding.ABORT, "the servers do not agree where they meet"))

        # This server gets to know the other root in a moment.
        self._session.later(DECISION_SECONDS, stop_waiting)

    def _finish(self, own: Own, outcome: Outcome) -> None:
        if self._open.pop(own.part.number, None) is not None:
            if own.timer is not None:
                own.timer.cancel()
            if self._absences:
                self._say_absent()
            own.end = outcome
            if own.early:
                own.early.clear()
            if own.spreading is not None:
                own.spreading.give_up(outcome.status, outcome.detail, outcome.servers)
            own.done(outcome)

    # Data that servers have kept

    def _spreading(self, own: Own, spread: Spread) -> Spreading:
        if (self.name, len(own.kept)) not in spread.sizes:
            raise broken(f"{spread.root} says that {self.name} has kept what it has not")
        return Spreading(self._session, own.part.kind, own.part.name, spread, own.kept)

    def _spread(self, own: Own, outcome: Outcome, spread: Spread) -> None:
        """Wait for the data of all servers: it is decided, and ends when that has arrived."""
        try:
            spreading = self._spreading(own, spread)
        except RemoteProtocolError as problem:
            self._finish(own, deciding.failure(problem.code, problem.detail))
            return
        own.spreading, own.decided, own.to, own.root = spreading, outcome, None, ""
        spreading.go_on()
        self._complete(own)
        early, own.early = own.early, []
        for call in early:
            call()
        for name in self._session.gone.intersection(own.servers) if own.part.number in self._open else ():
            self._lack(own, name)

    def _complete(self, own: Own) -> None:
        """End it if the data of all has arrived."""
        data = None if own.spreading is None else own.spreading.data
        if data is not None:
            self._finish(own, own.decided.replace(data=own.decided.data + data, spread=None))

    def _lack(self, own: Own, name: str) -> None:
        """A server is lost while data is on its way."""
        if own.spreading is not None and name in own.spreading.awaited:
            self._lost(own, (name,))
        else:
            self._session.later(DECISION_SECONDS, partial(self._lost, own, (name,)))

    def _meant(self, name: Name) -> list[Own]:
        return [own for own in self.open() if (own.part.kind, own.part.name) == name[:2]]

    def _told_data(self, sender: str, data: bytes) -> None:
        """A server sends data that it has kept or received."""
        name, step, piece = PIECE.read(data)
        for own in self._meant(name):
            self._take(own, sender, name, step, piece)

    def _take(self, own: Own, sender: str, name: Name, step: int, piece: bytes) -> None:
        if own.spreading is None:
            self._keep(own, lambda: self._take(own, sender, name, step, piece), len(piece))
        elif own.spreading.name == name:
            if not own.spreading.take(step, piece):
                raise broken(f"{sender} sends data that does not belong to the fence")
            self._complete(own)

    def _keep(self, own: Own, call: Callable[[], None], size: int) -> None:
        """Keep a message that has arrived before the decision."""
        own.early_bytes += size + EARLY_ENTRY
        if own.early_bytes <= EARLY_BYTES:
            own.early.append(call)
            return
        # Servers that need this server's data are informed when the decision arrives.
        text = f"other servers have sent {shown(self.name)} more than {EARLY_BYTES} bytes for it before it was decided"
        self._finish(own, deciding.failure(statuses.ERR_OUT_OF_RESOURCE, text))

    def _told_void(self, _sender: str, data: bytes) -> None:
        """The data of a server will not arrive."""
        name, status, detail, servers = VOIDED.read(data)
        for own in self._meant(name):
            self._void(own, name, deciding.failure(status, detail, self._procs_on(own, servers), servers))

    def _void(self, own: Own, name: Name, outcome: Outcome) -> None:
        if own.spreading is None:
            self._keep(own, lambda: self._void(own, name, outcome), len(outcome.detail))
        elif own.spreading.name == name:
            self._finish(own, outcome)

    # A lost coordinator

    def _came_again(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        """A server contributes once more, as the coordinator is lost."""
        name, life, packed = _AGAIN.read(data)
        for held in self._direct(sender, packed, answer):
            self._search_before((name, life), held, partial(self._come_late, held, answer))

    def _search_before(self, lost: Server, held: Held, come: Callable[[], None]) -> None:
        """Take a contribution in after a search, and give it up then if that was asked for in the meantime."""
        self._searching[held.key] = None

        def finish() -> None:
            given_up = self._searching.pop(held.key, None)
            come()
            if given_up is not None:
                self.coordinator.cancel(held.server, *given_up)

        self._search(lost, held.part, finish)

    def _come_late(self, held: Held, answer: OnAnswer) -> None:
        try:
            self.coordinator.come(held)
        except Exception as problem:
            answer(None, as_error(problem))

    def _is_present(self, server: Server) -> bool:
        """Return True if a process is present: a later one under its name is another one."""
        return self._session.has(server[0]) and self._session.life_of(server[0]) == server[1]

    def _when_lost(self, server: Server, call: Callable[[], None]) -> None:
        if self._is_present(server):
            self._until_lost.setdefault(server[0], []).append(call)
        else:
            call()

    def _search(self, lost: Server, part: Part, then: Callable[[], None]) -> None:
        """Ask all that take part in a collective for ends that the lost coordinator has decided, and continue."""
        if self._is_present(lost):
            self._when_lost(lost, lambda: self._search(lost, part, then))
            return
        search = lost, part.kind, part.name, part.party.label
        waiting = self._searches.get(search, [])
        if waiting is None:
            then()
            return
        waiting.append(then)
        if len(waiting) > 1:
            return
        self._searches[search] = waiting
        asked = set(self._session.members)
        if not part.rule.unknown:
            # Offers for a construct are decided by another server.
            meet = (self._session.root,) if part.kind == CONSTRUCT else ()
            asked.intersection_update((*part.party.names, *meet))
        asked.discard(self.name)

        def told(name: str, data: bytes | None, _error: PMIxError | None) -> None:
            asked.discard(name)
            for end in _ENDS.read(data) if data else ():
                self.coordinator.learn(part.kind, part.name, OUTCOME.read(end))
            if not asked:
                finish()

        def finish() -> None:
            if self._searches.get(search) is waiting:
                self._searches[search] = None
                finished = [each for each, calls in self._searches.items() if calls is None]
                for each in finished[: max(0, len(finished) - MAX_SEARCHES)]:
                    del self._searches[each]
                for call in waiting:
                    call()

        for name in sorted(asked):
            self._session.ask(name, FIND, _FIND.write((*lost, part.kind, part.name)), partial(told, name))
        if not asked:
            finish()

    def _asked_to_find(self, _sender: str, data: bytes, answer: OnAnswer) -> None:
        """Another server coordinates a collective in place of a lost one: answer with its ends that are known here."""
        server, life, kind, name = _FIND.read(data)

        def find() -> None:
            ends = self.coordinator.decided.ends(kind, name)
            answer(_ENDS.write(tuple(map(OUTCOME.write, ends))), None)

        self._when_lost((server, life), find)

    # Giving up

    def give_up(self, own: Own, status: int, detail: str = "") -> None:
        """End a collective with this status for all, if it has not ended yet."""
        if own.part.number not in self._open:
            return
        own.cancelled = deciding.failure(status, detail or f"{shown(self.name)} has given it up")
        if own.to is not None:
            self._tell_given_up(own, Outcome(status, detail))
        elif own.part.kind == GATHER:
            self._finish(own, own.cancelled)

    def _tell_given_up(self, own: Own, why: Outcome) -> None:
        assert own.to is not None
        self._session.tell(own.to, GIVE_UP, CANCEL.write((own.part.number, why.status, why.detail, ())))

    def _overdue(self, own: Own) -> None:
        if own.part.number not in self._open:
            return
        own.timer = self._session.later(DECISION_SECONDS, lambda: self._forsake(own))
        if own.spreading is not None:
            awaited = own.spreading.awaited
            self._finish(own, deciding.overdue(awaited, self._procs_on(own, awaited)))
        elif own.to is None and not own.part.rule.unknown:
            late = sorted(set(own.servers).difference(self._session.members))
            self._finish(own, deciding.overdue(late, self._procs_on(own, late)))
        else:
            self.give_up(own, statuses.ERR_TIMEOUT)

    def _forsake(self, own: Own) -> None:
        """End a collective whose coordinator does not even name the missing procs."""
        where = f"{listed((own.to,))} does not answer" if own.to else "no server says how it has ended"
        self._finish(own, deciding.failure(statuses.ERR_TIMEOUT, where, (), (own.to,) if own.to else ()))

    def _procs_on(self, own: Own, servers: Iterable[str]) -> list[Proc]:
        return [proc for name in servers for proc in own.part.party.servers.get(name, ())]

    # Servers that join and leave

    def changed(self, name: str, here: bool) -> None:
        """A server has joined or is lost."""
        if here:
            # Without a number of its process, a later loss of it is a search of its own.
            self._searches = {
                search: calls
                for search, calls in self._searches.items()
                if calls is not None or search[0] != (name, b"")
            }
            self._relay.changed(name, True)
            self.coordinator.meet()
            self._send_waiting(name)
            return
        self.coordinator.lose(name)
        self._relay.changed(name, False)
        for own in [own for own in self.open() if own.part.rule.loss_ends and name in own.servers]:
            if own.spreading is not None:
                self._lack(own, name)
            elif own.to in (None, name) or own.root == name:
                # Otherwise the coordinator ends it for all.
                self._lost(own, (name,))
        for call in self._until_lost.pop(name, ()):
            call()
        self._send_waiting(name)

    def _send_waiting(self, name: str) -> None:
        """Send the contributions that wait for a server, or for another root."""
        roots = "", self._session.root
        for own in self.open():
            if own.awaited == name or (own.to is None and own.part.rule.unknown and own.root not in roots):
                self._send(own)

    def _lost(self, own: Own, servers: Iterable[str]) -> None:
        """End a collective that ends with a lost server."""
        self._finish(own, self.coordinator.servers_lost(own.part, servers))

    def close(self) -> None:
        """This server leaves the exchange."""
        self._searches.clear()
        self._searching.clear()
        self._until_lost.clear()
        self._absences.clear()
        self._relay.close()
        self.coordinator.close()
        for own in self.open():
            self._finish(own, self.left())

    @staticmethod
    def left() -> Outcome:
        """Return the end of collectives that are open, or begun, when this server has left the exchange."""
        return deciding.failure(statuses.ERR_LOST_CONNECTION, "this server has left the exchange")
