"""Requests, messages and allgathers between the servers of a job over a carrier, and the servers that are present.

Theory of operation
-------------------
An `Exchange` is one server. It owns the carrier, the clock and the order of calls, and its parts have a question each:

    carrier --> arrivals --> requests, listeners, collectives --> outbox --> carrier
                   |                                                 |
                   +-- waits for entries (statelog)                  +-- adds the basis, goes a detour (detours)

* `membership`: which servers are present, and which of them is the root?
* `statelog`: in which order do all apply a change?
* `arrivals`: may a message be processed, or does it wait for a change that its sender knew?
* `requests`: which answer belongs to which request, and what if the other server is lost?
* `outbox`: which messages go together, and which way?
* `participant`, with `coordinator`: how does a collective end?

Everything happens in *turns* (`Strand`): one call at a time, on whichever thread brings it, and never under a lock. A
turn that causes another one appends it, so no callback runs inside another one. The parts therefore have no locks.

The carrier reports servers that join or leave. Only `membership` decides what follows: a reported end is a doubt, and
`lose` is called when the root has declared the loss.
"""

from __future__ import annotations

import time
from functools import partial
from itertools import count

from pypmix.engine import times
from pypmix.engine.alarms import Alarms
from pypmix.host.exchange import codec, limits
from pypmix.host.exchange.arrivals import Arrivals
from pypmix.host.exchange.authority import Authority
from pypmix.host.exchange.codec import BYTES, TEXT, Field, message
from pypmix.host.exchange.detours import Detours
from pypmix.host.exchange.errors import listed, make
from pypmix.host.exchange.kinds import GATHER, Part, unpack_gathered
from pypmix.host.exchange.membership import LEAVES, Membership
from pypmix.host.exchange.outbox import Outbox
from pypmix.host.exchange.participant import PART, LocalContribution, Participant
from pypmix.host.exchange.places import Party
from pypmix.host.exchange.presence import PresenceWaits
from pypmix.host.exchange.requests import Requests
from pypmix.host.exchange.statelog import BROADCAST, StateLog
from pypmix.host.exchange.strand import Strand
from pypmix.host.exchange.tree import UP
from pypmix.host.naming import shown
from pypmix.standard.errors import PMIxError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.base import Guest
    from pypmix.host.exchange.arrivals import Listener
    from pypmix.host.exchange.attendance import Absent
    from pypmix.host.exchange.carrier import Carrier
    from pypmix.host.exchange.kinds import Gathered, OnAnswer, Outcome, Timer
    from pypmix.host.exchange.presence import OnPresent
    from pypmix.host.exchange.requests import Handler

    Later = Callable[[float, Callable[[], None]], Timer]
    OnGathered = Callable[[Gathered | None, PMIxError | None], None]
    Watcher = Callable[[str, bool], None]

_BROADCAST: Field[tuple[str, bytes]] = message(TEXT, BYTES)
"""The topic and the data of a message for all servers."""

ALLGATHER = "allgather"
_NO_PARTY = Party((), lambda _proc: None)


class Underway(Record):
    """An allgather that this server has contributed to, or a request that it has made, which has not ended.

    Attributes:
        signature: The signature, or the request's topic.
        servers: The participants, or the server that is asked.
        missing: The servers that have not contributed, as far as this server knows.
        since: When it began, on the exchange's clock.
    """

    signature: bytes
    servers: tuple[str, ...]
    missing: tuple[str, ...]
    since: float


class Gathering:
    """This server's part in one allgather.

    Attributes:
        number: The number of its contribution.
        participants: The servers that take part, sorted.
    """

    __slots__ = ("_exchange", "_local", "number", "participants")

    def __init__(self, exchange: Exchange, local: LocalContribution) -> None:
        self._exchange = exchange
        self._local = local
        self.number = local.part.number
        self.participants = local.part.servers

    @property
    def coordinator(self) -> str:
        """The server that decides how it ends."""
        return self.participants[0]

    def missing(self) -> tuple[str, ...]:
        """Return the participants that have not contributed; empty unless this server is the coordinator."""
        return self._exchange.collectives.missing(self._local)[0]

    def cancel(self, error: PMIxError) -> None:
        """Give up: it ends with this error on all servers that have contributed, if it has not ended yet."""
        exchange = self._exchange
        exchange.soon(exchange.collectives.give_up, self._local, error.code, error.detail)


class Exchange:
    """One server's side of the exchange between the servers of a job.

    Every callback (`done`, handlers, listeners, watchers) is called one at a time, on the thread that the carrier, the
    clock or a caller brings, never under a lock; it must not block. Errors of an operation go to its `done`, which is
    called exactly once. All methods may be called from any thread, and from callbacks.

    Which servers are present is decided in one place for all (`membership`), and what all have to know reaches them in
    one order (`statelog`).

    Args:
        carrier: The carrier of the messages; it belongs to the exchange from here on.
        later: Calls a function after some seconds and returns an object with a `cancel`; itself called on any thread.
            A thread for timers by default.
        now: The clock that `underway` reads.

    Attributes:
        name: This server's name.
        state: The order of entries that all servers apply.
        membership: The present servers, and the root.
        collectives: The collectives that this server takes part in.
        requests: The requests of this server, and those that it answers.
        arrivals: The messages of other servers.
        authority: Who may send what.
        outbox: The messages of this server.
        detours: The servers that are reached through the root alone.
        is_closed: Whether this server has left.
    """

    def __init__(
        self, carrier: Carrier, *, later: Later | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        if not hasattr(carrier, "send") or not hasattr(carrier, "name"):
            raise TypeError(f"an exchange needs a carrier, such as TCPCarrier, not {type(carrier).__name__}")
        self.name = carrier.name
        self.soon = Strand()
        """Calls a function in turn with the callbacks, now or when those before it have ended; from any thread."""
        self._carrier = carrier
        self._alarms: Alarms | None = None
        if later is None:
            self._alarms = Alarms()
            later = self._alarms.later
        self._later: Later = later
        self.now: Callable[[], float] = now
        """Returns the time on the exchange's clock."""
        self.take_number: Callable[[], int] = count(1).__next__
        """The same as `number`, without a call of Python."""
        self.is_closed = False
        self._watchers: list[Watcher] = []
        self.authority: Authority = Authority(self)
        self.requests: Requests = Requests(self)
        self.arrivals: Arrivals = Arrivals(self)
        self._carrier_reason: Callable[[str], str] = getattr(carrier, "reason", lambda _name: "")
        self._carrier_life: Callable[[str], bytes] = getattr(carrier, "life", lambda _name: b"")
        self.state: StateLog = StateLog(self)
        self.state.on(BROADCAST, self._apply_broadcast)
        self.membership: Membership = Membership(self, self.state)
        self.detours: Detours = Detours(self, self.membership)
        self.outbox: Outbox = Outbox(self, carrier, self.membership, self.detours)
        self._waits = PresenceWaits(self, self.membership)
        self.collectives: Participant = Participant(self)

    # For users

    def live_on(self, loop: Guest) -> None:
        """Run the carrier and the timers on a loop instead of threads of their own, if it can; before `start`."""
        live_on: Callable[[Guest], None] | None = getattr(self._carrier, "live_on", None)
        if live_on is not None:
            live_on(loop)
            self._alarms, self._later = None, loop.later

    def start(self) -> None:
        """Begin to exchange messages; handlers, listeners and watchers are in place by then."""
        patience = getattr(self._carrier, "keep_alive", times.KEEP_ALIVE_SECONDS)
        self.membership.begin(self._carrier_life(self.name), patience)
        self._carrier.listen(partial(self.soon, self.arrivals.take), self._note_change)

    def close(self) -> None:
        """Leave: all open operations end with `LostConnection`. May be called twice."""
        self.soon(self.state.flush)
        self.soon(self.outbox.send_buffered)
        self._carrier.close()
        self.soon(self._close)
        if self._alarms is not None:
            self._alarms.close()

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all present servers, this one included; sorted."""
        # Not the carrier's: it may know servers whose arrival has not had its turn. These cannot be sent to yet.
        membership = self.membership
        return tuple(sorted({self.name} if membership.has_left or self.is_closed else membership.present.copy()))

    @property
    def gone(self) -> frozenset[str]:
        """The names of servers that were present and no longer are."""
        return self.membership.gone

    @property
    def launcher(self) -> str:
        """The launcher's server; empty in a session without one."""
        return self.membership.launcher

    @property
    def root(self) -> str:
        """The server that declares losses and orders what all have to know."""
        return self.membership.root

    def reason(self, name: str) -> str:
        """Return why a server is lost, as it has reported or the carrier knows; empty if it has left in order."""
        return self.membership.reasons.get(name) or self._carrier_reason(name)

    def has(self, name: str) -> bool:
        """Return True if a server is present; this one is."""
        return name in self.membership.present

    def follow(self, launcher: str) -> None:
        """Make the launcher's server the root; before `start`."""
        self.membership.launcher = launcher

    def conclude(self) -> None:
        """The session ends: its root declares no further losses, and sends no entries."""
        self.membership.is_closing = True

    def number(self) -> int:
        """Return a number that this server assigns to nothing else."""
        return self.take_number()

    def handle(self, topic: str, handler: Handler) -> None:
        """Answer requests of a topic.

        Args:
            topic: The topic.
            handler: Called with the asking server's name, the data, and `answer`, which it calls once with bytes and
                None or with None and an error, now or later, from any thread. An exception of it is the answer too.
        """
        self.requests.handle(topic, handler)

    def hear(self, topic: str, listener: Listener) -> None:
        """Receive the messages of a topic: the listener is called with the sending server's name and the data."""
        self.arrivals.hear(topic, listener)

    def watch(self, watcher: Watcher) -> None:
        """Watch servers that join and leave: called with the name, and True for a server that has joined."""
        self._watchers.append(watcher)

    def absences(self, absent: Absent) -> None:
        """Set the predicate for participants that will not contribute to an allgather, though their server is present.

        Args:
            absent: Called with the signature, a participant, and the data of the others, if this server coordinates;
                called again after `review`.
        """
        self.collectives.coordinator.attendance.absent = absent

    def review(self) -> None:
        """Look again for servers that are absent in the allgathers that this server coordinates."""
        self.soon(self.collectives.coordinator.review)

    def allgather(
        self,
        signature: bytes,
        participants: Iterable[str],
        data: bytes,
        done: OnGathered,
        *,
        status: int = 0,
        timeout: float = 0.0,
    ) -> Gathering:
        """Contribute to an allgather, and get the contributions of all participants.

        The n-th contributions of the participants to a signature belong together. If a participant leaves, or gives up,
        the round ends with an error on all servers that have contributed. If it succeeds on two of them, they get the
        same data.

        Args:
            signature: The signature of the allgather.
            participants: The servers that take part, this one among them; all name the same for a signature. A server
                that has not joined yet is waited for.
            data: The contribution of this server.
            done: Called with the `Gathered` and None, or with None and the error: `ServerLost`, `ExchangeTimeout`
                (both name the `servers`), or another `PMIxError`.
            status: A status to contribute along with the data.
            timeout: Seconds after which to give up, for all; 0 waits for ever.

        Returns:
            An object to give it up with, by its `cancel`.

        Raises:
            ValueError: This server does not take part.
        """
        names = tuple(sorted(set(participants)))
        if self.name not in names:
            raise ValueError(
                f"{shown(self.name)} is not a participant of an allgather of {listed(names)}: add its name"
            )
        text = _checked(signature).decode("utf-8", "surrogateescape")
        part = Part(self.number(), GATHER, text, _NO_PARTY, names, int(status), data=_checked(data, timeout))

        def decided(outcome: Outcome) -> None:
            try:
                if outcome.status:
                    raise make(outcome.status, outcome.detail, outcome.servers, ALLGATHER)
                self.soon(done, unpack_gathered(outcome.data, names), None)
            except PMIxError as error:
                self.soon(done, None, error)

        local = LocalContribution(part, decided, self.now())
        self.soon(self.collectives.start, local, timeout)
        return Gathering(self, local)

    def request(self, to: str, topic: str, data: bytes, done: OnAnswer, *, timeout: float = 0.0) -> None:
        """Send a request to another server, or to this one.

        Args:
            to: Its name.
            topic: The topic: its handler there answers.
            data: The data of the request.
            done: Called with the answer and None, or with None and the error that the handler answered with, or
                `Unreachable` (it is not present), `ServerLost`, `ExchangeTimeout`.
            timeout: Seconds after which to give up; 0 waits for ever.
        """
        self.soon(self.requests.ask, to, topic, _checked(data, timeout), done, timeout)

    def tell(self, to: str, topic: str, data: bytes) -> None:
        """Send another server, or this one, a message without an answer."""
        self.soon(self._tell, (to,), topic, _checked(data))

    def tell_several(self, names: Iterable[str], topic: str, data: bytes) -> None:
        """Send other servers the same message, without an answer."""
        self.soon(self._tell, tuple(names), topic, _checked(data))

    def broadcast(self, topic: str, data: bytes) -> None:
        """Send a message to all other servers that are present."""
        self.soon(self.tell_others, topic, _checked(data))

    def tell_others(self, topic: str, data: bytes, to: str = "") -> None:
        """Send a message to all other present servers, or to one of them, at once; in a callback of the exchange.

        In a session of more than `MAX_MESH` servers, which are not all connected, the launcher passes it on.
        """
        if self.is_closed:
            return
        if to or not self.launcher or len(self.membership.present) <= limits.MAX_MESH:
            self._tell((to,) if to else self.list_others(), topic, data)
        else:
            self.state.submit(BROADCAST, _BROADCAST.write((topic, data)))

    def _apply_broadcast(self, origin: str, data: bytes) -> None:
        self.arrivals.call_listener(origin, *_BROADCAST.read(data))

    def when_present(self, names: Iterable[str], done: OnPresent, *, timeout: float = 0.0) -> None:
        """Wait until servers are present.

        Args:
            names: Their names.
            done: Called with None and None, or with None and an `ExchangeTimeout` that names the missing ones.
            timeout: Seconds after which to give up; 0 waits for ever.
        """
        self.soon(self._waits.start, frozenset(names), done, timeout)

    def underway(self) -> list[Underway]:
        """Return the operations of this server that have not ended, oldest first; from any thread."""
        found = [
            Underway(
                local.part.name.encode("utf-8", "surrogateescape"),
                local.part.servers,
                self.collectives.missing(local)[0],
                local.since,
            )
            for local in self.collectives.open()
            if local.part.kind == GATHER
        ]
        found += [
            Underway(request.topic.encode(), (request.to,), (request.to,), request.since)
            for request in self.requests.list_pending()
            if request.topic not in (PART, UP)
        ]
        return sorted(found, key=lambda each: each.since)

    def later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function after some seconds on the exchange's clock, in turn with its callbacks."""
        return self._later(seconds, lambda: self.soon(function))

    def open(self) -> int:
        """Return how many requests, contributions and waits for servers have not ended; from any thread."""
        return len(self.collectives) + len(self.requests) + len(self._waits)

    # Messages and reports

    def list_others(self) -> list[str]:
        """Return the names of the other servers that are present, sorted."""
        return self.membership.list_others()

    def _tell(self, names: Iterable[str], topic: str, data: bytes) -> None:
        text = codec.pack(codec.TELL, TEXT.write(topic), data)
        for name in names:
            if name == self.name:
                self.arrivals.call_listener(name, topic, data)
            elif self.has(name) and not self.is_closed:
                self.outbox.send(name, text)

    # Events of the carrier

    def _note_change(self, name: str, here: bool) -> None:
        # The carrier may know a later process of that name by the time that this has its turn.
        self.soon(self._changed, name, here, self._carrier_life(name) if here else b"")

    def _changed(self, name: str, here: bool, life: bytes = b"") -> None:
        if self.is_closed:
            return
        if here and self.membership.has_left:
            self.outbox.aside(name, LEAVES, b"")
        elif name in self.membership.detoured and (here or name not in self.membership.doubted):
            # A server that is reached through the root is lost when the root declares that.
            return
        elif here and self.has(name):
            # Its earlier process is not lost yet.
            self.arrivals.expect_return(name, life)
            self.membership.doubt(name)
        elif here:
            self.join(name, life)
        else:
            self.arrivals.take_return(name)
            self.membership.doubt(name)

    def join(self, name: str, life: bytes) -> None:
        """Make another server present; in a callback of the exchange."""
        self.membership.add(name, life)
        self._tell_of(name, True)
        # After the messages of watchers to it.
        self.soon.next(self.membership.follow_root, name)
        self.detours.settle(name, True)

    def lose(self, name: str) -> None:
        """Remove another server: it answers no requests, and waits for none; in a callback of the exchange."""
        # Its messages before it was lost count.
        self.arrivals.release_lost(name)
        if not self.has(name):
            return
        self.outbox.forget(name)
        self.membership.remove(name)
        self.collectives.changed(name, False)
        self.requests.lose(name)
        self._tell_of(name, False)
        self.soon.next(self.membership.follow_root)
        self.soon.next(self._return, name)

    def _return(self, name: str) -> None:
        """Make a server present that has joined under the name of a lost one, if there is one."""
        returned = self.arrivals.take_return(name)
        if returned is not None and not self.membership.has_left:
            life, messages = returned
            self.join(name, life)
            for message in messages:
                self.soon.next(self.arrivals.take, name, message)

    def _tell_of(self, name: str, here: bool) -> None:
        if here:
            self.collectives.changed(name, True)
        self._waits.end_complete()
        for watcher in self._watchers:
            # Before the first message of a server that has joined, which may be waiting by now.
            self.soon.next(watcher, name, here)

    def _close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self.arrivals.close()
        self.collectives.close()
        self.requests.close()
        self._waits.close()


def _checked(data: bytes, timeout: float = 0.0) -> bytes:
    """Return data as bytes; raise if an argument cannot be carried."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"data is bytes, not {type(data).__name__}")
    if not timeout >= 0:
        raise ValueError(f"a time limit is a number of seconds, 0 for none, not {timeout!r}")
    return bytes(data)
