"""What the servers of a job do with each other over a carrier: gather, ask, tell."""

from __future__ import annotations

import time
from itertools import count

from pypmix.engine.alarms import Alarms
from pypmix.host.exchange import fields
from pypmix.host.exchange.errors import ExchangeTimeout, listed, lost
from pypmix.host.exchange.messages import (
    ANSWER,
    CANCEL,
    CONTRIBUTE,
    FAILED,
    GATHERED,
    REFUSED,
    REQUEST,
    TELL,
    checked,
    left,
    pack_error,
    pack_gathered,
    unpack_error,
    unpack_gathered,
)
from pypmix.host.exchange.partings import OUT, Partings
from pypmix.host.exchange.requests import Requests
from pypmix.host.exchange.rounds import OPERATION, Contribution, Gathered, Rounds
from pypmix.host.exchange.turns import Turns, log
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError, RemoteProtocolError, Unreachable
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.exchange.carrier import Carrier
    from pypmix.host.exchange.requests import Handler, Later, OnAnswer, Timer
    from pypmix.host.exchange.rounds import Absent

    OnGathered = Callable[[Gathered | None, PMIxError | None], None]
    OnPresent = Callable[[None, PMIxError | None], None]
    Listener = Callable[[str, bytes], None]
    Watcher = Callable[[str, bool], None]

GRACE = 5.0
"""Seconds that a coordinator is given to say how a round has ended whose time is over."""


class Underway(Record):
    """An allgather that this server has contributed to, or a request that it has made, which has not ended.

    Attributes:
        signature: What is gathered, or the request's topic.
        servers: Who takes part, or is asked.
        missing: Those of them that have not contributed, as far as this server knows.
        since: When it began, on the exchange's clock.
    """

    signature: bytes
    servers: tuple[str, ...]
    missing: tuple[str, ...]
    since: float


class Gathering:
    """This server's part in one allgather."""

    __slots__ = ("_exchange", "contribution", "done", "participants", "sent", "signature", "since", "timer")

    def __init__(
        self,
        exchange: Exchange,
        signature: bytes,
        participants: tuple[str, ...],
        contribution: Contribution,
        done: OnGathered,
        since: float,
    ) -> None:
        self._exchange = exchange
        self.signature = signature
        self.participants = participants
        self.contribution = contribution
        self.done = done
        self.since = since
        self.sent = False
        self.timer: Timer | None = None

    @property
    def coordinator(self) -> str:
        """The server that decides how it ends."""
        return self.participants[0]

    def missing(self) -> tuple[str, ...]:
        """Return the participants that have not contributed; only the coordinator knows, elsewhere there are none."""
        return self._exchange._missing(self)

    def cancel(self, error: PMIxError) -> None:
        """Give up: the round ends with this error on all servers that have contributed, if it has not ended yet."""
        self._exchange.turns(self._exchange._give_up, self, error)


class Exchange:
    """One server's side of what the servers of a job do with each other.

    Every callback (`done`, handlers, listeners, watchers) is called one at a time, on the thread that the carrier, the
    clock or a caller brings, never under a lock; it must not block. Errors of an operation go to its `done`, which is
    called exactly once. All methods may be called from any thread, and from callbacks.

    Args:
        carrier: What carries the messages; it belongs to the exchange from here on.
        later: Calls a function after some seconds and returns what has a `cancel`; itself called on any thread. A
            thread for timers by default.
        now: The clock that `underway` reads.
    """

    def __init__(
        self, carrier: Carrier, *, later: Later | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        if not hasattr(carrier, "send") or not hasattr(carrier, "name"):
            raise TypeError(f"an exchange stands on a carrier, such as TCPCarrier, not on {type(carrier).__name__}")
        self.name = carrier.name
        self.turns = Turns()
        self._carrier = carrier
        self._alarms: Alarms | None = None
        if later is None:
            self._alarms = Alarms()
            later = self._alarms.later
        self._later: Later = later
        self._now = now
        self._closed = False
        self._here: set[str] = {self.name}
        self._gone: set[str] = set()
        self._numbers = count(1)
        self._own: dict[int, Gathering] = {}
        self._requests = Requests(carrier, self.turns, self._numbers, self._later, now)
        self._partings = Partings(self.name, self._here, self._say, self._part)
        self._listeners: dict[str, Listener] = {**self._partings.listeners}
        self._watchers: list[Watcher] = []
        self._waiting: list[_Awaited] = []
        self._rounds = Rounds(self._ended)

    # What users call

    def start(self) -> None:
        """Begin to talk to the others; handlers, listeners and watchers are in place by then."""
        self._carrier.listen(
            lambda sender, message: self.turns(self._arrived, sender, message),
            lambda name, here: self.turns(self._changed, name, here),
        )

    def close(self) -> None:
        """Leave: all that is under way ends with `LostConnection`. May be called twice."""
        self._carrier.close()
        self.turns(self._close)
        if self._alarms is not None:
            self._alarms.close()

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all servers that are there, this one included; sorted."""
        if self._partings.out:
            return (self.name,)
        return tuple([name for name in self._carrier.members if name not in self._gone])

    @property
    def gone(self) -> frozenset[str]:
        """The names of servers that were there and are not any more."""
        return frozenset(self._gone)

    def now(self) -> float:
        """Return the time on the exchange's clock."""
        return self._now()

    def number(self) -> int:
        """Return a number that this server gives to nothing else."""
        return next(self._numbers)

    def handle(self, topic: str, handler: Handler) -> None:
        """Answer requests of a topic.

        Args:
            topic: The topic.
            handler: Called with the asking server's name, the data, and `answer`, which it calls once with bytes and
                None or with None and an error, now or later, from any thread. What it raises is the answer too.
        """
        self._requests.handlers[topic] = handler

    def hear(self, topic: str, listener: Listener) -> None:
        """Hear what others tell about a topic: called with the telling server's name and the data."""
        self._listeners[topic] = listener

    def watch(self, watcher: Watcher) -> None:
        """Hear of servers that come and go: called with the name, and True for one that has come."""
        self._watchers.append(watcher)

    def absences(self, absent: Absent) -> None:
        """Say who will contribute nothing to an allgather any more, though its server is there.

        Args:
            absent: Told the signature, a participant, and what the others have contributed, where this server
                coordinates; asked again after `review`.
        """
        self._rounds.absent = absent

    def review(self) -> None:
        """Look again who is absent in the allgathers that this server coordinates."""
        self.turns(self._rounds.review)

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
        """Contribute to an allgather, and get what all participants have contributed.

        The n-th contributions of the participants to a signature belong together. Where a participant goes, or gives
        up, the round ends with an error on all that have contributed. Where two of them see it end well, they see the
        same.

        Args:
            signature: What is gathered.
            participants: The servers that take part, this one among them; all name the same for a signature. One that
                has not come yet is waited for.
            data: What this server contributes.
            done: Called with the `Gathered` and None, or with None and the error: `ServerLost`, `ExchangeTimeout`
                (both name the `servers`), or another `PMIxError`.
            status: A status to contribute along with the data.
            timeout: Seconds after which to give up, for all; 0 waits for ever.

        Returns:
            What can be given up by its `cancel`.

        Raises:
            ValueError: This server does not take part.
        """
        names = tuple(sorted(set(participants)))
        if self.name not in names:
            raise ValueError(f"{self.name} gathers with {listed(names)} and is none of them")
        contribution = Contribution(next(self._numbers), int(status), checked(data, timeout))
        own = Gathering(self, checked(signature), names, contribution, done, self._now())
        self.turns(self._contribute, own, timeout)
        return own

    def request(self, to: str, topic: str, data: bytes, done: OnAnswer, *, timeout: float = 0.0) -> None:
        """Ask another server, or this one.

        Args:
            to: Its name.
            topic: What is asked about: its handler there answers.
            data: What is asked.
            done: Called with the answer and None, or with None and the error that the handler answered with, or
                `Unreachable` (it is not there), `ServerLost`, `ExchangeTimeout`.
            timeout: Seconds after which to give up; 0 waits for ever.
        """
        self.turns(self._ask, to, topic, checked(data, timeout), done, timeout)

    def tell(self, to: str, topic: str, data: bytes) -> None:
        """Tell another server, or this one, something; nobody answers."""
        self.turns(self._tell, (to,), topic, checked(data))

    def broadcast(self, topic: str, data: bytes) -> None:
        """Tell all other servers that are there."""
        told = checked(data)
        self.turns(lambda: self._tell(sorted(self._here - {self.name}), topic, told))

    def when_present(self, names: Iterable[str], done: OnPresent, *, timeout: float = 0.0) -> None:
        """Wait until servers are there.

        Args:
            names: Their names.
            done: Called with None and None, or with None and an `ExchangeTimeout` that names those that are not.
            timeout: Seconds after which to give up; 0 waits for ever.
        """
        self.turns(self._await, frozenset(names), done, timeout)

    def underway(self) -> list[Underway]:
        """Return what this server has begun and what has not ended, oldest first; from any thread."""
        found = []
        for own in list(self._own.values()):
            found.append(Underway(own.signature, own.participants, own.missing(), own.since))
        found += [Underway(asked.topic.encode(), (asked.to,), (asked.to,), asked.since) for asked in self._requests]
        return sorted(found, key=lambda each: each.since)

    def later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Have a function called after some seconds on the exchange's clock, in turn with its callbacks."""
        return self._later(seconds, lambda: self.turns(function))

    # Allgather

    def _missing(self, own: Gathering) -> tuple[str, ...]:
        round = self._rounds.holding(self.name, own.contribution.number)
        return () if round is None else self._rounds.missing(round)

    def _contribute(self, own: Gathering, timeout: float) -> None:
        if self._closed:
            self.turns(own.done, None, left(OPERATION))
            return
        gone = self._gone.intersection(own.participants)
        if gone:
            self.turns(own.done, None, lost(gone, OPERATION))
            return
        self._own[own.contribution.number] = own
        if timeout:
            own.timer = self._later(timeout, lambda: self.turns(self._overdue, own))
        if own.coordinator in self._here:
            self._bring(own)

    def _bring(self, own: Gathering) -> None:
        """Give a contribution to its coordinator."""
        own.sent = True
        contribution = own.contribution
        if own.coordinator == self.name:
            self._rounds.contribute(self.name, own.signature, own.participants, contribution, self._gone)
            return
        message = fields.pack(
            CONTRIBUTE,
            fields.number(contribution.number),
            own.signature,
            fields.texts(own.participants),
            fields.number(contribution.status),
            contribution.data,
        )
        try:
            self._carrier.send(own.coordinator, message)
        except OverflowError as error:
            self._finish(own, None, PMIxError(str(error), status=statuses.ERR_OUT_OF_RESOURCE, operation=OPERATION))

    def _finish(self, own: Gathering, gathered: Gathered | None, error: PMIxError | None) -> None:
        if self._own.pop(own.contribution.number, None) is None:
            return
        if own.timer is not None:
            own.timer.cancel()
        self.turns(own.done, gathered, error)

    def _ended(self, contributors: dict[str, int], gathered: Gathered | None, error: PMIxError | None) -> None:
        """A round that this server coordinates has ended."""
        body = b"" if gathered is None else pack_gathered(gathered)
        for name, number in contributors.items():
            if name == self.name:
                own = self._own.get(number)
                if own is not None:
                    self._finish(own, gathered, error)
            elif error is not None:
                self._carrier.send(name, pack_error(FAILED, number, error))
            else:
                try:
                    self._carrier.send(name, fields.pack(GATHERED, fields.number(number), body))
                except OverflowError as problem:
                    text = PMIxError(str(problem), status=statuses.ERR_OUT_OF_RESOURCE, operation=OPERATION)
                    self._carrier.send(name, pack_error(FAILED, number, text))

    def _overdue(self, own: Gathering) -> None:
        if own.contribution.number not in self._own:
            return
        if own.coordinator not in self._here:
            missing = set(own.participants) - self._here
            text = f"{listed(missing)} did not come in time"
            self._finish(own, None, ExchangeTimeout(text, servers=sorted(missing), operation=OPERATION))
            return
        own.timer = self._later(GRACE, lambda: self.turns(self._forsake, own))
        self._give_up(own, ExchangeTimeout("", operation=OPERATION))

    def _forsake(self, own: Gathering) -> None:
        """The coordinator does not even say who is missing."""
        text = f"{listed((own.coordinator,))} does not answer"
        self._finish(own, None, ExchangeTimeout(text, servers=(own.coordinator,), operation=OPERATION))

    def _give_up(self, own: Gathering, error: PMIxError) -> None:
        number = own.contribution.number
        if number not in self._own:
            return
        if not own.sent:
            self._finish(own, None, error)
        elif own.coordinator == self.name:
            self._rounds.cancel(self.name, number, error)
        else:
            self._carrier.send(own.coordinator, pack_error(CANCEL, number, error))

    # Requests and news

    def _ask(self, to: str, topic: str, data: bytes, done: OnAnswer, timeout: float) -> None:
        if self._closed:
            self.turns(done, None, left(topic))
        elif to in self._here:
            self._requests.ask(to, topic, data, done, timeout)
        elif to in self._gone:
            self.turns(done, None, lost((to,), topic))
        else:
            self.turns(done, None, Unreachable(f"{listed((to,))} is not there", operation=topic))

    def _tell(self, names: Iterable[str], topic: str, data: bytes) -> None:
        for name in names:
            if name == self.name:
                self._heard(name, topic, data)
            elif name in self._here and not self._closed:
                self._carrier.send(name, fields.pack(TELL, fields.text(topic), data))

    def _say(self, to: str, topic: str, data: bytes) -> None:
        self._tell((to,), topic, data)

    def _heard(self, sender: str, topic: str, data: bytes) -> None:
        listener = self._listeners.get(topic)
        if listener is None:
            log.warning("%s: %s tells of %r, which nobody hears", self.name, sender, topic)
            return
        listener(sender, data)

    # What the carrier tells

    def _arrived(self, sender: str, message: bytes) -> None:
        if self._closed or sender not in self._here:
            return
        try:
            self._read(sender, message)
        except RemoteProtocolError as error:
            log.error("%s: a message of %s is dropped: %s", self.name, sender, error)

    def _read(self, sender: str, message: bytes) -> None:
        kind, parts = fields.unpack(message)
        if kind == GATHERED:
            first, body = fields.expect(parts, 2)
            self._gathered(sender, fields.to_number(first), body)
        elif kind == CONTRIBUTE:
            number, signature, names, status, data = fields.expect(parts, 5)
            self._contributed(sender, fields.to_number(number), signature, fields.to_texts(names), status, data)
        elif kind in (FAILED, CANCEL, REFUSED):
            self._failed(kind, sender, parts)
        elif kind == REQUEST:
            first, topic, data = fields.expect(parts, 3)
            self._requests.asked_for(sender, fields.to_number(first), fields.to_text(topic), data)
        elif kind == ANSWER:
            first, data = fields.expect(parts, 2)
            self._requests.answered(sender, fields.to_number(first), data, None)
        elif kind == TELL:
            topic, data = fields.expect(parts, 2)
            self._heard(sender, fields.to_text(topic), data)
        else:
            raise fields.broken(f"a message is of the unknown kind {kind}")

    def _failed(self, kind: int, sender: str, parts: list[bytes]) -> None:
        number, error = unpack_error(parts, "" if kind == REFUSED else OPERATION)
        if kind == REFUSED:
            self._requests.answered(sender, number, None, error)
        elif kind == CANCEL:
            self._rounds.cancel(sender, number, error)
        else:
            own = self._own.get(number)
            if own is not None and own.coordinator == sender:
                self._finish(own, None, error)

    def _gathered(self, sender: str, number: int, body: bytes) -> None:
        own = self._own.get(number)
        if own is None or own.coordinator != sender:
            return
        gathered = unpack_gathered(body)
        if sorted((*gathered.blobs, *gathered.absent)) != list(own.participants):
            raise fields.broken("a result is not that of its participants")
        self._finish(own, gathered, None)

    def _contributed(
        self, sender: str, number: int, signature: bytes, participants: tuple[str, ...], status: bytes, data: bytes
    ) -> None:
        if (
            sender not in participants
            or participants[0] != self.name
            or participants != tuple(sorted(set(participants)))
        ):
            text = f"{self.name} does not coordinate an allgather of {sender} with {listed(participants)}"
            self._carrier.send(
                sender, pack_error(FAILED, number, PMIxError(text, status=statuses.ERR_BAD_PARAM, operation=OPERATION))
            )
            return
        contribution = Contribution(number, fields.to_number(status), data)
        self._rounds.contribute(sender, signature, participants, contribution, self._gone)

    # Membership

    def _changed(self, name: str, here: bool) -> None:
        if self._closed:
            return
        if here and self._partings.out:
            self._carrier.send(name, fields.pack(TELL, fields.text(OUT), b""))
        elif here:
            self._gone.discard(name)
            self._here.add(name)
            for own in [own for own in self._own.values() if not own.sent and own.coordinator == name]:
                self._bring(own)
            self._tell_of(name, True)
        elif name in self._here:
            self._part(name)
            self._partings.lost(name)

    def _part(self, name: str) -> None:
        """Another server is not there any more."""
        if name in self._here:
            self._here.discard(name)
            self._gone.add(name)
            self._lose(name)
            self._tell_of(name, False)

    def _tell_of(self, name: str, here: bool) -> None:
        for awaited in [awaited for awaited in self._waiting if awaited.names <= self._here]:
            self._come(awaited, None)
        for watcher in self._watchers:
            self.turns(watcher, name, here)

    def _lose(self, name: str) -> None:
        self._rounds.lose(name)
        for own in [own for own in self._own.values() if name in own.participants]:
            error = lost((name,), OPERATION)
            if own.coordinator not in (name, self.name) and own.sent:
                # It may not have seen this server go.
                self._carrier.send(own.coordinator, pack_error(CANCEL, own.contribution.number, error))
            self._finish(own, None, error)
        self._requests.lose(name)

    def _await(self, names: frozenset[str], done: OnPresent, timeout: float) -> None:
        if self._closed:
            self.turns(done, None, left("when_present"))
        elif names <= self._here:
            self.turns(done, None, None)
        else:
            awaited = _Awaited(names, done)
            self._waiting.append(awaited)
            if timeout:
                awaited.timer = self._later(timeout, lambda: self.turns(self._late, awaited))

    def _late(self, awaited: _Awaited) -> None:
        missing = sorted(awaited.names - self._here)
        self._come(awaited, ExchangeTimeout(f"{listed(missing)} did not come in time", servers=missing))

    def _come(self, awaited: _Awaited, error: PMIxError | None) -> None:
        if awaited in self._waiting:
            self._waiting.remove(awaited)
            if awaited.timer is not None:
                awaited.timer.cancel()
            self.turns(awaited.done, None, error)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        for own in list(self._own.values()):
            self._finish(own, None, left(OPERATION))
        self._requests.close()
        for awaited in list(self._waiting):
            self._come(awaited, left("when_present"))
        self._rounds = Rounds(self._ended)


class _Awaited:
    """Somebody waits for servers to come."""

    __slots__ = ("done", "names", "timer")

    def __init__(self, names: frozenset[str], done: OnPresent) -> None:
        self.names = names
        self.done = done
        self.timer: Timer | None = None
