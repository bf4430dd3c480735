"""Requests, messages and allgathers between the servers of a job over a carrier, and the servers that are present."""

from __future__ import annotations

import struct
import threading
import time
from collections import deque
from functools import partial
from itertools import count
from threading import get_ident

from pypmix.engine import times
from pypmix.engine.alarms import Alarms
from pypmix.host.exchange import codec, limits
from pypmix.host.exchange.codec import LENGTH, NUMBER, TEXT, framed_text
from pypmix.host.exchange.errors import (
    ExchangeTimeout,
    as_error,
    left,
    listed,
    log,
    lost,
    make,
    pack_error,
    unpack_error,
)
from pypmix.host.exchange.kinds import GATHER, Part, hearers, unpack_gathered
from pypmix.host.exchange.participant import PART, Own, Participant
from pypmix.host.exchange.places import Party
from pypmix.host.exchange.telling import Telling
from pypmix.host.exchange.tree import UP
from pypmix.host.naming import shown
from pypmix.standard.errors import NotSupported, OutOfResources, PMIxError, RemoteProtocolError, Unreachable
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.host.exchange.carrier import Carrier
    from pypmix.host.exchange.coordinator import Absent
    from pypmix.host.exchange.kinds import Gathered, OnAnswer, Outcome, Timer

    Later = Callable[[float, Callable[[], None]], Timer]
    Handler = Callable[[str, bytes, OnAnswer], None]
    OnGathered = Callable[[Gathered | None, PMIxError | None], None]
    OnPresent = Callable[[None, PMIxError | None], None]
    Listener = Callable[[str, bytes], None]
    Watcher = Callable[[str, bool], None]

REQUEST, ANSWER, REFUSED, TELL, ASIDE = range(1, 6)
"""The kinds of messages; `ASIDE` messages pass the kept messages of their sender."""

SEVERAL, BASED = 12, 13
"""Several messages as one, and a message with the basis that the receiver needs before it (`Exchange.rebase`)."""

MAX_JOINED = 1 << 16
"""The longest message, in bytes, that buffered messages are joined with."""

_NUMBERED = struct.Struct("!BIq")
"""The beginning of a request or an answer: its kind, and its number as a field."""

_HEAD = struct.Struct("!BIqI")
"""The same, and the length of the next field."""

_HEAD_SIZE = _HEAD.size

LOST = "pypmix.lost"
"""The sender has lost the server of this name."""

DISCONNECTED = "pypmix.disconnected"
"""The server of this name has lost the receiver."""

LEAVES = "pypmix.leaves"
"""The sender leaves; the data is the reason."""

ALLGATHER = "allgather"
_NO_PARTY = Party((), lambda _proc: None)


class Strand:
    """Runs calls in the order in which they arrive, on the thread that brings one while none is running.

    No caller waits: a call that arrives while another is running is left to that thread. A call made during a call
    runs after it, so state that is only touched here needs no lock.
    """

    __slots__ = ("_busy", "_calls", "_next", "_thread")

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._next: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._busy = threading.Lock()
        self._thread = 0

    def __call__(self, function: Callable[..., object], *args: Any) -> None:
        """Run a call, now or after the calls that arrived before; an exception is logged."""
        calls = self._calls
        calls.append((function, args))
        # The holder of the lock looks once more after it has released it, so that no call stays behind.
        while calls and self._busy.acquire(blocking=False):
            self._thread = get_ident()
            try:
                while calls or self._next:
                    function, args = (self._next or calls).popleft()
                    try:
                        function(*args)
                    except Exception:
                        _failed(function)
                    # Kept, it would hold its objects until the next call.
                    del function, args
            finally:
                self._thread = 0
                self._busy.release()

    def next(self, function: Callable[..., object], *args: Any) -> None:
        """Run a call after the present one, before calls that have arrived in the meantime; in a call."""
        self._next.append((function, args))

    def now(self, function: Callable[..., object], *args: Any) -> None:
        """Run a call as part of the call in progress on this thread, otherwise as any other call."""
        if self._thread == get_ident():
            function(*args)
        else:
            self(function, *args)

    def wait(self, begin: Callable[[Callable[[], None]], None], seconds: float) -> None:
        """Run a call that gets a function to call later, and wait for that; does nothing as part of a call."""
        if self._thread != get_ident():
            over = threading.Event()
            self(begin, over.set)
            over.wait(seconds)


def _nothing() -> None:
    """Do nothing."""


def _failed(function: Callable[..., object]) -> None:
    log.exception("%s failed", getattr(function, "__qualname__", function))


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

    __slots__ = ("_cancel", "_missing", "number", "participants")

    def __init__(
        self,
        number: int,
        participants: tuple[str, ...],
        missing: Callable[[], tuple[str, ...]],
        cancel: Callable[[PMIxError], None],
    ) -> None:
        self.number = number
        self.participants = participants
        self._missing = missing
        self._cancel = cancel

    @property
    def coordinator(self) -> str:
        """The server that decides how it ends."""
        return self.participants[0]

    def missing(self) -> tuple[str, ...]:
        """Return the participants that have not contributed; empty unless this server is the coordinator."""
        return self._missing()

    def cancel(self, error: PMIxError) -> None:
        """Give up: it ends with this error on all servers that have contributed, if it has not ended yet."""
        self._cancel(error)


class _Asked:
    """A request of this server that is not answered yet."""

    __slots__ = ("done", "since", "timer", "to", "topic")

    def __init__(self, to: str, topic: str, done: OnAnswer, since: float) -> None:
        self.to = to
        self.topic = topic
        self.done = done
        self.since = since
        self.timer: Timer | None = None


class _Awaited:
    """A call that waits for servers to join."""

    __slots__ = ("done", "names", "timer")

    def __init__(self, names: frozenset[str], done: OnPresent) -> None:
        self.names = names
        self.done = done
        self.timer: Timer | None = None


class Exchange:
    """One server's side of the exchange between the servers of a job.

    Every callback (`done`, handlers, listeners, watchers) is called one at a time, on the thread that the carrier, the
    clock or a caller brings, never under a lock; it must not block. Errors of an operation go to its `done`, which is
    called exactly once. All methods may be called from any thread, and from callbacks.

    Two servers that lose their connection while both live are dead to each other. Servers that are still connected with
    both would continue with both of them, and no operation of all three could end in one way. So a server that loses
    another one reports that to the others: to all of a few; of many to the servers that follow it by name after 1, 2,
    4, ... places, and to servers that take their place in the next moment. Of the servers in a circle of which some
    have lost another one, one is followed by a server that has not, unless all have: so that is enough, and a death
    costs each server a few messages. A server that is connected with both informs the lost one; if that lives, the
    later of the two by name leaves: it informs all its remaining connections, and continues alone. (So the
    first server by name stays: it keeps the session's unique state.) A server that has ended does not answer, and its
    end is reported by each server's own carrier, after its last message: reports of others before that end nothing. If
    carriers report an end to each other (`heard_by_all`), no exchange needs to.

    Args:
        carrier: The carrier of the messages; it belongs to the exchange from here on.
        later: Calls a function after some seconds and returns an object with a `cancel`; itself called on any thread.
            A thread for timers by default.
        now: The clock that `underway` reads.

    Attributes:
        name: This server's name.
        gone: The names of servers that were present and no longer are.
        collectives: The collectives that this server takes part in.
    """

    def __init__(
        self, carrier: Carrier, *, later: Later | None = None, now: Callable[[], float] = time.monotonic
    ) -> None:
        if not hasattr(carrier, "send") or not hasattr(carrier, "name"):
            raise TypeError(f"an exchange stands on a carrier, such as TCPCarrier, not on {type(carrier).__name__}")
        self.name = carrier.name
        self.soon = Strand()
        """Calls a function in turn with the callbacks, now or when those before it have ended; from any thread."""
        self._carrier = carrier
        self._alarms: Alarms | None = None
        if later is None:
            self._alarms = Alarms()
            later = self._alarms.later
        self._later: Later = later
        self._now = now
        self._closed = self._out = False
        """The second: whether this server has left the others."""
        self._here: set[str] = {self.name}
        self.gone: frozenset[str] = frozenset()
        self._numbers = count(1)
        self._asked: dict[int, _Asked] = {}
        self._answering: dict[object, tuple[str, int]] = {}
        self._load: dict[str, int] = {}
        self._handlers: dict[str, Handler] = {}
        self._listeners: dict[str, Listener] = {
            LOST: self._told_lost,
            DISCONNECTED: self._told_disconnected,
            LEAVES: self._told_leaves,
        }
        self._watchers: list[Watcher] = []
        self._held: dict[str, tuple[Callable[[], None], list[bytes]]] = {}
        """Messages of servers, kept until they can be processed, and the function to call when one has arrived."""
        self._deferred: Callable[[], None] | None = None
        self._buffered: dict[str, list[Callable[[], bytes]]] = {}
        """Messages, by their receiver, that are sent with the next one to it."""
        self._basis = b""
        self._based: set[str] = set()
        """The servers that need no basis: they have got the current one, or never need one."""
        self._has_basis: Callable[[str, bytes], bool] = lambda _sender, _basis: True
        self._arrivals: dict[str, Callable[[], None]] = {}
        """Functions that are called after messages of servers."""
        self._losing = ""
        """The server that is being removed: its messages need no basis."""
        self._waiting: list[_Awaited] = []
        self._lately: dict[str, tuple[float, set[str]]] = {}
        """Servers that this one has lost in the last moment, when, and the servers that were informed."""
        self._reasons: dict[str, str] = {}
        """The reasons that servers sent before they left."""
        self._carrier_reason: Callable[[str], str] = getattr(carrier, "reason", lambda _name: "")
        self._heard_by_all: Callable[[str], bool] = getattr(carrier, "heard_by_all", lambda _name: False)
        self._telling = Telling(self, carrier.send, self._taken)
        self.collectives = Participant(self)

    # For users

    def start(self) -> None:
        """Begin to exchange messages; handlers, listeners and watchers are in place by then."""
        self._carrier.listen(partial(self.soon, self._arrived), partial(self.soon, self._changed))

    def close(self) -> None:
        """Leave: all open operations end with `LostConnection`. May be called twice.

        The broadcasts of this server arrive before the report of its departure: servers that pass them on have a second
        for that, and then they are sent to each server directly.
        """
        self.soon(self._catch_up)
        self.soon(self.send_buffered)
        if self._alarms is not None:
            self.soon.wait(self._telling.when_heard, times.LINK_LINGER_SECONDS)
        self.soon(self._telling.finish)
        self._carrier.close()
        self.soon(self._close)
        if self._alarms is not None:
            self._alarms.close()

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all present servers, this one included; sorted."""
        # Not the carrier's: it may know servers whose arrival has not had its turn. These cannot be sent to yet.
        return tuple(sorted({self.name} if self._out or self._closed else self._here.copy()))

    def reason(self, name: str) -> str:
        """Return why a server is lost, as it has reported or the carrier knows; empty if it has left in order."""
        return self._reasons.get(name) or self._carrier_reason(name)

    def has(self, name: str) -> bool:
        """Return True if a server is present; this one is."""
        return name in self._here

    def now(self) -> float:
        """Return the time on the exchange's clock."""
        return self._now()

    def number(self) -> int:
        """Return a number that this server assigns to nothing else."""
        return next(self._numbers)

    def handle(self, topic: str, handler: Handler) -> None:
        """Answer requests of a topic.

        Args:
            topic: The topic.
            handler: Called with the asking server's name, the data, and `answer`, which it calls once with bytes and
                None or with None and an error, now or later, from any thread. An exception of it is the answer too.
        """
        self._handlers[topic] = handler

    def hear(self, topic: str, listener: Listener) -> None:
        """Receive the messages of a topic: the listener is called with the sending server's name and the data."""
        self._listeners[topic] = listener

    def watch(self, watcher: Watcher) -> None:
        """Watch servers that join and leave: called with the name, and True for a server that has joined."""
        self._watchers.append(watcher)

    def absences(self, absent: Absent) -> None:
        """Set the predicate for participants that will not contribute to an allgather, though their server is present.

        Args:
            absent: Called with the signature, a participant, and the data of the others, if this server coordinates;
                called again after `review`.
        """
        self.collectives.coordinator.absent = absent

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
            raise ValueError(f"{shown(self.name)} gathers with {listed(names)} and is none of them")
        text = _checked(signature).decode("utf-8", "surrogateescape")
        part = Part(self.number(), GATHER, text, _NO_PARTY, names, int(status), data=_checked(data, timeout))

        def decided(outcome: Outcome) -> None:
            try:
                if outcome.status:
                    raise make(outcome.status, outcome.detail, outcome.servers, ALLGATHER)
                self.soon(done, unpack_gathered(outcome.data, names), None)
            except PMIxError as error:
                self.soon(done, None, error)

        own = Own(part, decided, self._now())
        self.soon(self._begin, own, timeout)
        return Gathering(
            part.number,
            names,
            lambda: self.collectives.missing(own)[0],
            lambda error: self.soon(self.collectives.give_up, own, error.code, error.detail),
        )

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
        self.soon(self.ask, to, topic, _checked(data, timeout), done, timeout)

    def tell(self, to: str, topic: str, data: bytes) -> None:
        """Send another server, or this one, a message without an answer."""
        self.soon(self._tell, (to,), topic, _checked(data))

    def broadcast(self, topic: str, data: bytes) -> None:
        """Send a message to all other servers that are present."""
        self.soon(self.tell_others, topic, _checked(data))

    def tell_others(self, topic: str, data: bytes, to: str = "") -> None:
        """Send a message to all other present servers, or to one of them, at once; in a callback of the exchange."""
        if to or len(self._here) <= limits.MAX_MESH or self._closed:
            self._tell((to,) if to else self.others(), topic, data)
        else:
            self._catch_up()
            told = codec.pack(TELL, TEXT.write(topic), data)
            if self._basis and not self._based.issuperset(self._here):
                self.send_buffered()
                told = codec.pack(BASED, self._basis, told)
            self._telling.tell(told)

    def aside(self, to: str, topic: str, data: bytes) -> None:
        """Send a message that another server processes even while it holds this one; in a callback of the exchange."""
        if to in self._here and not self._closed:
            self._carrier.send(to, codec.pack(ASIDE, TEXT.write(topic), data))

    def hold(self, name: str, wake: Callable[[], None]) -> None:
        """Keep the messages of another server until `release`, or until it is lost; in a callback of the exchange.

        Args:
            name: Its name.
            wake: Called when a message has arrived.
        """
        self._held.setdefault(name, (wake, []))

    def release(self, name: str) -> None:
        """Continue with the kept messages of a server, which may be held again; in a callback of the exchange."""
        for kept in self._held.pop(name, (None, ()))[1]:
            self._taken(name, kept)

    def defer(self, call: Callable[[], None], seconds: float) -> None:
        """Call a function after some seconds, or before the next message of this server, whichever is first.

        There is one such call at a time; in a callback of the exchange.
        """
        self._deferred = call
        self.later(seconds, self._catch_up)

    def buffer(self, to: str, topic: str, write: Callable[[], bytes]) -> None:
        """Send a message with the next one to its receiver, or alone after `NEWS_SECONDS`; in a callback.

        Args:
            to: The receiver.
            topic: The topic.
            write: Returns the data when the message is sent.
        """
        if to not in self._here or self._closed:
            return
        if not self._buffered:
            self.later(times.NEWS_SECONDS, self.send_buffered)
        self._buffered.setdefault(to, []).append(lambda: codec.pack(TELL, TEXT.write(topic), write()))

    def needs_basis(self, has: Callable[[str, bytes], bool]) -> None:
        """Ask a function, given the sender and a basis, whether messages with that basis can be delivered.

        Until it agrees the sender's messages wait; `release` asks again.
        """
        self._has_basis = has

    def rebase(self, basis: bytes, exempt: Iterable[str]) -> None:
        """Send a basis with the next message to each server, and buffered messages before that; in a callback.

        Args:
            basis: The data that receivers need before they process this server's messages.
            exempt: The servers that never need it.
        """
        self._basis = basis
        self._based = {self.name, *exempt}

    def sent_lately(self) -> tuple[tuple[str, int], ...]:
        """Return how many messages this server has sent to which others alone, if any was sent lately."""
        return self._telling.lately()

    def received(self, name: str) -> int:
        """Return how many messages have arrived that another server has sent to this one alone."""
        return self._telling.received(name)

    def after_messages(self, name: str, call: Callable[[], None] | None) -> None:
        """Call a function after each message of another server, None to stop; in a callback."""
        if call is None:
            self._arrivals.pop(name, None)
        else:
            self._arrivals[name] = call

    def when_present(self, names: Iterable[str], done: OnPresent, *, timeout: float = 0.0) -> None:
        """Wait until servers are present.

        Args:
            names: Their names.
            done: Called with None and None, or with None and an `ExchangeTimeout` that names the missing ones.
            timeout: Seconds after which to give up; 0 waits for ever.
        """
        self.soon(self._await, frozenset(names), done, timeout)

    def underway(self) -> list[Underway]:
        """Return the operations of this server that have not ended, oldest first; from any thread."""
        found = [
            Underway(
                own.part.name.encode("utf-8", "surrogateescape"),
                own.part.servers,
                self.collectives.missing(own)[0],
                own.since,
            )
            for own in self.collectives.open()
            if own.part.kind == GATHER
        ]
        found += [
            Underway(asked.topic.encode(), (asked.to,), (asked.to,), asked.since)
            for asked in list(self._asked.values())
            if asked.topic not in (PART, UP)
        ]
        return sorted(found, key=lambda each: each.since)

    def later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function after some seconds on the exchange's clock, in turn with its callbacks."""
        return self._later(seconds, lambda: self.soon(function))

    def open(self) -> int:
        """Return how many requests, contributions and waits for servers have not ended; from any thread."""
        return len(self.collectives) + len(self._asked) + len(self._answering) + len(self._waiting)

    # Requests of this server

    def _begin(self, own: Own, timeout: float) -> None:
        if self._closed:
            self.soon(own.done, self.collectives.left())
        else:
            self.collectives.start(own, timeout)

    def ask(self, to: str, topic: str, data: bytes, done: OnAnswer, timeout: float = 0.0) -> None:
        """Send a request as `request` does, in a callback of the exchange."""
        error: PMIxError | None = None
        if self._closed:
            error = left(topic)
        elif to in self.gone:
            error = lost((to,), topic)
        elif to not in self._here:
            error = Unreachable(f"{listed((to,))} is not there", operation=topic)
        elif len(self._asked) >= limits.MAX_ASKED:
            text = f"{limits.MAX_ASKED} requests are unanswered"
            error = OutOfResources(text, operation=topic)
        if error is not None:
            self.soon(done, None, error)
            return
        number = next(self._numbers)
        asked = self._asked[number] = _Asked(to, topic, done, self._now())
        if timeout:
            asked.timer = self.later(timeout, lambda: self._unanswered(number))
        if to == self.name:
            self._asked_for(to, number, topic, data)
            return
        try:
            self._send(to, _NUMBERED.pack(REQUEST, 8, number) + framed_text(topic) + LENGTH.pack(len(data)) + data)
        except OverflowError as problem:
            self._answered(to, number, None, OutOfResources(str(problem), operation=topic))

    def _unanswered(self, number: int) -> None:
        asked = self._asked.get(number)
        if asked is not None:
            text = f"{listed((asked.to,))} did not answer in time"
            error = ExchangeTimeout(text, servers=(asked.to,), operation=asked.topic)
            self._answered(asked.to, number, None, error)

    def _answered(
        self, sender: str, number: int, data: bytes | None, error: PMIxError | None, *, arrived: bool = False
    ) -> None:
        """A server has answered a request of this one, or the request ends here; `arrived` in the turn of a message."""
        asked = self._asked.get(number)
        if asked is None or asked.to != sender:
            # It arrived too late, or from a server that was not asked.
            return
        del self._asked[number]
        if asked.timer is not None:
            asked.timer.cancel()
        if error is not None:
            error.operation = error.operation or asked.topic
        if not arrived:
            self.soon(asked.done, data, error)
            return
        # The arrived answer counts before the report, which may wait for its turn already, that its sender has left.
        try:
            asked.done(data, error)
        except Exception:
            _failed(asked.done)

    # Requests of others

    def _asked_for(self, sender: str, number: int, topic: str, data: bytes) -> None:
        handler = self._handlers.get(topic)
        load = self._load.get(sender, 0)
        if handler is None:
            error: PMIxError = NotSupported(f"{shown(self.name)} answers nothing about {topic!r}", operation=topic)
            self._deliver(sender, number, None, error)
            return
        if load >= limits.MAX_ANSWERING:
            text = f"{load} requests of {shown(sender)} are unanswered at {shown(self.name)}"
            self._deliver(sender, number, None, OutOfResources(text, operation=topic))
            return
        token = object()
        self._answering[token] = sender, number
        self._load[sender] = load + 1
        try:
            handler(sender, data, lambda result, problem: self.soon(self._answer, token, result, problem))
        except Exception as problem:
            if not isinstance(problem, PMIxError):
                log.exception("the handler of %r failed", topic)
            self._answer(token, None, as_error(problem, topic))

    def _answer(self, token: object, data: bytes | None, error: BaseException | None) -> None:
        asker = self._answering.pop(token, None)
        if asker is None:
            # Answered already, or the asking server is lost.
            return
        sender, number = asker
        self._load[sender] -= 1
        if not self._load[sender]:
            del self._load[sender]
        if error is None and not (data is None or isinstance(data, bytes)):
            error = TypeError(f"an answer is bytes, not {type(data).__name__}")
        self._deliver(sender, number, data or b"", None if error is None else as_error(error))

    def _deliver(self, to: str, number: int, data: bytes | None, error: PMIxError | None) -> None:
        if to == self.name:
            self._answered(to, number, None if error is not None else data, error)
            return
        if error is None:
            data = data or b""
            try:
                self._send(to, _HEAD.pack(ANSWER, 8, number, len(data)) + data)
            except OverflowError as problem:
                error = OutOfResources(str(problem))
        if error is not None:
            self._send(to, codec.pack(REFUSED, pack_error(number, error)))

    def _send(self, to: str, message: bytes) -> None:
        if self._deferred is not None:
            self._catch_up()
        if self._basis and to not in self._based:
            self.send_buffered()
            self._based.add(to)
            message = codec.pack(BASED, self._basis, message)
        if self._buffered:
            message = self._joined(to, message)
        self._send_one(to, message)

    def _send_one(self, to: str, message: bytes) -> None:
        telling = self._telling
        self._carrier.send(to, telling.after(message) if telling.unheard else message)
        # A message that the carrier does not take was not sent: the receiver would wait for it.
        telling.sent[to] += 1

    def _joined(self, to: str, message: bytes) -> bytes:
        """Return a message joined with the buffered ones to its receiver, which go first."""
        buffered = self._buffered.pop(to, None)
        if buffered is None:
            return message
        before = [write() for write in buffered]
        if len(message) > MAX_JOINED:
            # The carrier may not take it, or not both together.
            self._send_one(to, codec.pack(SEVERAL, *before))
            return message
        return codec.pack(SEVERAL, *before, message)

    def send_buffered(self) -> None:
        """Send the buffered messages now; in a callback."""
        buffered, self._buffered = self._buffered, {}
        for to, written in buffered.items():
            if to in self._here and not self._closed:
                texts = [write() for write in written]
                self._send_one(to, texts[0] if len(texts) == 1 else codec.pack(SEVERAL, *texts))

    def _catch_up(self) -> None:
        call, self._deferred = self._deferred, None
        if call is not None:
            call()

    # Messages and reports

    def others(self) -> list[str]:
        """Return the names of the other servers that are present, sorted."""
        return sorted(self._here - {self.name})

    def _tell(self, names: Iterable[str], topic: str, data: bytes) -> None:
        told = codec.pack(TELL, TEXT.write(topic), data)
        for name in names:
            if name == self.name:
                self._heard(name, topic, data)
            elif name in self._here and not self._closed:
                self._send(name, told)

    def _heard(self, sender: str, topic: str, data: bytes) -> None:
        listener = self._listeners.get(topic)
        if listener is None:
            log.warning("%s: %s tells of %r, which has no listener", shown(self.name), shown(sender), topic)
            return
        listener(sender, data)

    # Events of the carrier

    def _arrived(self, sender: str, message: bytes) -> None:
        if self._closed or sender not in self._here:
            return
        try:
            kind = message[0] if message else 0
            if kind == ASIDE:
                self._read(sender, message)
            elif kind > ASIDE or not self._telling.is_next(sender):
                self._telling.take(sender, message)
            elif sender in self._held:
                self._taken(sender, message)
            else:
                self._read(sender, message)
        except RemoteProtocolError as error:
            log.error("%s: a message of %s is dropped: %s", shown(self.name), shown(sender), error)
        if self._arrivals and (call := self._arrivals.get(sender)) is not None:
            call()

    def _taken(self, sender: str, message: bytes) -> None:
        """Process a message of another server, whose turn it is."""
        if sender in self._held:
            wake, kept = self._held[sender]
            kept.append(message)
            wake()
            return
        try:
            self._read(sender, message)
        except RemoteProtocolError as error:
            log.error("%s: a message of %s is dropped: %s", shown(self.name), shown(sender), error)
        except Exception:
            # Further work for others, as when the sender is lost, does not end with this message.
            log.exception("%s: a message of %s could not be dealt with", shown(self.name), shown(sender))

    def _read(self, sender: str, message: bytes) -> None:
        kind = message[0] if message else 0
        if kind == REQUEST:
            number, topic, data = _numbered(message, 2)
            self._asked_for(sender, number, TEXT.read(topic), data)
            return
        if kind == ANSWER:
            number, data = _numbered(message, 1)
            self._answered(sender, number, data, None, arrived=True)
            return
        kind, parts = codec.unpack(message)
        if kind == REFUSED:
            (data,) = codec.expect(parts, 1)
            asked, error = unpack_error(data)
            self._answered(sender, asked, None, error, arrived=True)
        elif kind in (TELL, ASIDE):
            topic, data = codec.expect(parts, 2)
            self._heard(sender, TEXT.read(topic), data)
        elif kind == SEVERAL:
            for each in parts:
                self._taken(sender, each)
        elif kind == BASED:
            basis, text = codec.expect(parts, 2)
            if sender == self._losing or self._has_basis(sender, basis):
                self._taken(sender, text)
            else:
                self._held[sender] = _nothing, [message]
        else:
            raise codec.broken(f"a message is of the unknown kind {kind}")

    def _changed(self, name: str, here: bool) -> None:
        if self._closed:
            return
        if here and self._out:
            self._carrier.send(name, codec.pack(ASIDE, TEXT.write(LEAVES), b""))
        elif here:
            self.gone -= {name}
            self._reasons.pop(name, None)
            self._lately.pop(name, None)
            self._here.add(name)
            told = self._telling.count
            self._tell_of(name, True)
            # After the messages of watchers to it.
            self.soon(self._telling.meet, name, told)
            self.soon(self._telling.come, name)
        elif name in self._here:
            if not self._heard_by_all(name):
                self._lately[name] = self._now(), set()
            self._lose(name)

    def _tell_of_losses(self) -> None:
        """Report the losses of the last moment to servers that are due to know and have not been informed."""
        names = hearers(self._here, self.name)
        for name, (since, told) in list(self._lately.items()):
            if self._now() - since > times.DECISION_SECONDS:
                del self._lately[name]
            else:
                self._tell(sorted(names - told), LOST, TEXT.write(name))
                told |= names

    def _told_lost(self, sender: str, data: bytes) -> None:
        name = TEXT.read(data)
        if name not in (sender, self.name):
            self._tell((name,), DISCONNECTED, TEXT.write(sender))

    def _told_leaves(self, sender: str, data: bytes) -> None:
        if reason := TEXT.read(data)[: limits.MAX_DETAIL]:
            self._reasons[sender] = reason
        self._lose(sender)

    def _told_disconnected(self, sender: str, data: bytes) -> None:
        other = TEXT.read(data)
        if other > self.name:
            self._tell((sender,), LOST, TEXT.write(other))
            self._lose(other)
        elif other < self.name and not self._out:
            self._out = True
            reason = f"it has no connection with {shown(other)}"
            # The receivers report it, if the carrier leaves losses to others.
            level = log.info if getattr(self._carrier, "quiet", False) else log.warning
            level("%s: leaves the session, since %s", shown(self.name), reason)
            rest = self.others()
            for each in rest:
                # Directly, and past the messages it waits for: the servers that would pass that on lose this server.
                self.aside(each, LEAVES, TEXT.write(reason))
            for each in rest:
                self._lose(each)

    def _lose(self, name: str) -> None:
        """Remove another server: it answers no requests, and waits for none."""
        # One of its messages may end another server, or this one again.
        outer, self._losing = self._losing, name
        self._telling.release(name)
        while name in self._held:
            # Its messages before it was lost count.
            self.release(name)
        self._losing = outer
        if name not in self._here:
            return
        self._here.discard(name)
        self._based.discard(name)
        self._buffered.pop(name, None)
        self.gone |= {name}
        self._telling.lose(name)
        self.collectives.changed(name, False)
        for number, asked in [item for item in self._asked.items() if item[1].to == name]:
            self._answered(name, number, None, lost((name,), asked.topic))
        for token in [token for token, asker in self._answering.items() if asker[0] == name]:
            del self._answering[token]
        self._load.pop(name, None)
        self._tell_of(name, False)
        if self._lately and not self._out:
            self._tell_of_losses()

    def _tell_of(self, name: str, here: bool) -> None:
        if here:
            self.collectives.changed(name, True)
        for awaited in [awaited for awaited in self._waiting if awaited.names <= self._here]:
            self._come(awaited, None)
        for watcher in self._watchers:
            # Before the first message of a server that has joined, which may be waiting by now.
            self.soon.next(watcher, name, here)

    def _await(self, names: frozenset[str], done: OnPresent, timeout: float) -> None:
        if self._closed:
            self.soon(done, None, left("when_present"))
        elif names <= self._here:
            self.soon(done, None, None)
        else:
            awaited = _Awaited(names, done)
            self._waiting.append(awaited)
            if timeout:
                awaited.timer = self.later(timeout, lambda: self._late(awaited))

    def _late(self, awaited: _Awaited) -> None:
        missing = sorted(awaited.names - self._here)
        self._come(awaited, ExchangeTimeout(f"{listed(missing)} did not come in time", servers=missing))

    def _come(self, awaited: _Awaited, error: PMIxError | None) -> None:
        if awaited in self._waiting:
            self._waiting.remove(awaited)
            if awaited.timer is not None:
                awaited.timer.cancel()
            self.soon(awaited.done, None, error)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._held.clear()
        self._telling.close()
        self.collectives.close()
        for number, asked in list(self._asked.items()):
            self._answered(asked.to, number, None, left(asked.topic))
        self._answering.clear()
        self._load.clear()
        for awaited in list(self._waiting):
            self._come(awaited, left("when_present"))


def _numbered(message: bytes, count: int) -> tuple[Any, ...]:
    """Return the number of a request or an answer, and its other fields, one or two.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    size = len(message)
    if size >= _HEAD_SIZE:
        _, eight, number, first = _HEAD.unpack_from(message)
        end = _HEAD_SIZE + first
        if eight == 8 and count == 1 and end == size:
            return number, message[_HEAD_SIZE:]
        if eight == 8 and count == 2 and end + 4 <= size and end + 4 + LENGTH.unpack_from(message, end)[0] == size:
            return number, message[_HEAD_SIZE:end], message[end + 4 :]
    told, *parts = codec.expect(codec.unpack(message)[1], count + 1)
    return NUMBER.read(told), *parts


def _checked(data: bytes, timeout: float = 0.0) -> bytes:
    """Return data as bytes; raise if an argument cannot be carried."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"what is exchanged is bytes, not {type(data).__name__}")
    if not timeout >= 0:
        raise ValueError(f"a time limit is a number of seconds, 0 for none, not {timeout!r}")
    return bytes(data)
