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
from pypmix.host.exchange.codec import BYTES, LENGTH, NUMBER, TEXT, Field, framed_text, message
from pypmix.host.exchange.detours import Detours
from pypmix.host.exchange.errors import (
    ExchangeTimeout,
    as_error,
    listed,
    log,
    make,
    make_departure,
    make_loss,
    pack_error,
    unpack_error,
)
from pypmix.host.exchange.kinds import GATHER, Part, unpack_gathered
from pypmix.host.exchange.membership import LEAVES, Membership
from pypmix.host.exchange.participant import PART, LocalContribution, Participant
from pypmix.host.exchange.places import Party
from pypmix.host.exchange.statelog import BROADCAST, StateLog
from pypmix.host.exchange.tree import UP
from pypmix.host.naming import shown
from pypmix.standard.errors import NotSupported, OutOfResources, PMIxError, RemoteProtocolError, Unreachable
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.engine.base import Guest
    from pypmix.host.exchange.attendance import Absent
    from pypmix.host.exchange.carrier import Carrier
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

_ASIDE = bytes((ASIDE,))

_BROADCAST: Field[tuple[str, bytes]] = message(TEXT, BYTES)
"""The topic and the data of a message for all servers."""

MAX_JOINED = 1 << 16
"""The longest message, in bytes, that buffered messages are joined with."""

_NUMBERED = struct.Struct("!BIq")
"""The beginning of a request or an answer: its kind, and its number as a field."""

_HEAD = struct.Struct("!BIqI")
"""The same, and the length of the next field."""

_HEAD_SIZE = _HEAD.size

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


class PendingRequest:
    """A request of this server that is not answered yet."""

    __slots__ = ("done", "since", "timer", "to", "topic")

    def __init__(self, to: str, topic: str, done: OnAnswer, since: float) -> None:
        self.to = to
        self.topic = topic
        self.done = done
        self.since = since
        self.timer: Timer | None = None


class WaitingMessages:
    """Messages of a server that wait for entries: the basis of the first one, and their size."""

    __slots__ = ("basis", "messages", "size", "timer")

    def __init__(self, basis: bytes) -> None:
        self.basis = basis
        self.messages: list[bytes] = []
        self.size = 0
        self.timer: Timer | None = None


class PresenceWait:
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
        self._closed = False
        self._numbers = count(1)
        self._asked: dict[int, PendingRequest] = {}
        self._answering: dict[object, tuple[str, int]] = {}
        self._load: dict[str, int] = {}
        self._handlers: dict[str, Handler] = {}
        self._listeners: dict[str, Listener] = {}
        self._watchers: list[Watcher] = []
        self._held: dict[str, WaitingMessages] = {}
        """Messages of servers that wait for entries."""
        self._returning: dict[str, tuple[bytes, list[bytes]]] = {}
        """Servers that have joined while an earlier process of their name is not lost yet: their lives and messages."""
        self._deferred: Callable[[], None] | None = None
        self._buffered: dict[str, list[Callable[[], bytes]]] = {}
        """Messages, by their receiver, that are sent with the next one to it."""
        self._basis = b""
        self._based: set[str] = set()
        """The servers that need no basis: they have got the current one, or never need one."""
        self._reaching: set[str] = set()
        """The servers that collectives wait for."""
        self._losing = ""
        """The server that is being removed: its messages need no basis."""
        self._waiting: list[PresenceWait] = []
        self._carrier_reason: Callable[[str], str] = getattr(carrier, "reason", lambda _name: "")
        self._carrier_life: Callable[[str], bytes] = getattr(carrier, "life", lambda _name: b"")
        self.state = StateLog(self)
        self.state.on(BROADCAST, self._apply_broadcast)
        self.membership = Membership(self, self.state)
        self.detours = Detours(self, self.membership)
        self.collectives = Participant(self)

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
        self._carrier.listen(partial(self.soon, self._arrived), self._note_change)

    def close(self) -> None:
        """Leave: all open operations end with `LostConnection`. May be called twice."""
        self.soon(self._catch_up)
        self.soon(self.send_buffered)
        self._carrier.close()
        self.soon(self._close)
        if self._alarms is not None:
            self._alarms.close()

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all present servers, this one included; sorted."""
        # Not the carrier's: it may know servers whose arrival has not had its turn. These cannot be sent to yet.
        membership = self.membership
        return tuple(sorted({self.name} if membership.has_left or self._closed else membership.present.copy()))

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

    def life_of(self, name: str) -> bytes:
        """Return the number of a present server's process, empty if the carrier does not know that."""
        return self.membership.life_of(name)

    def reach(self, name: str) -> None:
        """Reach a server through the root unless it joins in a moment; in a callback of the exchange."""

        def look_again(is_present: bool) -> None:
            self._reaching.discard(name)
            # A launcher gets to know all servers.
            if not is_present and self.launcher and name not in self.gone:
                self.later(times.DECISION_SECONDS, lambda: self.reach(name))

        if not self.has(name) and name not in self._reaching:
            self._reaching.add(name)
            self.detours.reach(name, look_again)

    def follow(self, launcher: str) -> None:
        """Make the launcher's server the root; before `start`."""
        self.membership.launcher = launcher

    def conclude(self) -> None:
        """The session ends: its root declares no further losses."""
        self.membership.is_closing = True

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

        local = LocalContribution(part, decided, self._now())
        self.soon(self._begin, local, timeout)
        return Gathering(
            part.number,
            names,
            lambda: self.collectives.missing(local)[0],
            lambda error: self.soon(self.collectives.give_up, local, error.code, error.detail),
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
        """Send a message to all other present servers, or to one of them, at once; in a callback of the exchange.

        In a session of more than `MAX_MESH` servers the root passes on what is for all.
        """
        if self._closed:
            return
        if to or len(self.membership.present) <= limits.MAX_MESH:
            self._tell((to,) if to else self.list_others(), topic, data)
        else:
            self.state.submit(BROADCAST, _BROADCAST.write((topic, data)))

    def _apply_broadcast(self, origin: str, data: bytes) -> None:
        self._call_listener(origin, *_BROADCAST.read(data))

    def aside(self, to: str, topic: str, data: bytes) -> None:
        """Send a message that another server processes even while it holds this one; in a callback of the exchange."""
        if not self._closed:
            self._carry(to, codec.pack(ASIDE, TEXT.write(topic), data))

    def release_ready(self) -> None:
        """Process the messages of servers whose basis has been applied, and which may have to wait again."""
        for name, waiting in sorted(self._held.items()):
            if self.state.has_basis(name, waiting.basis):
                self._release(name)

    def _release(self, name: str) -> None:
        waiting = self._held.pop(name, None)
        if waiting is None:
            return
        if waiting.timer is not None:
            waiting.timer.cancel()
        for kept in waiting.messages:
            # One of them may have to wait for more.
            self._process(name, kept)

    def _hold(self, name: str, message: bytes, basis: bytes = b"") -> None:
        """Keep a message of another server until its basis has been applied, within bounds."""
        waiting = self._held.get(name)
        if waiting is None:
            waiting = self._held[name] = WaitingMessages(basis)
            waiting.timer = self.later(times.HELD_SECONDS, lambda: self._stop_holding(name, waiting))
        waiting.messages.append(message)
        waiting.size += len(message)
        if waiting.size > limits.HELD_BYTES:
            self._stop_holding(name, waiting)

    def _stop_holding(self, name: str, waiting: WaitingMessages) -> None:
        """Process the messages of a server although their basis has not been applied."""
        if self._held.get(name) is waiting:
            log.warning("%s: %s has sent messages whose basis does not arrive", shown(self.name), shown(name))
            before, self._losing = self._losing, name
            self._release(name)
            self._losing = before

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
        if not self.has(to) or self._closed:
            return
        if not self._buffered:
            self.later(times.NEWS_SECONDS, self.send_buffered)
        self._buffered.setdefault(to, []).append(lambda: codec.pack(TELL, TEXT.write(topic), write()))

    def rebase(self, basis: bytes, exempt: Iterable[str]) -> None:
        """Send a basis with the next message to each server, and buffered messages before that; in a callback.

        Args:
            basis: The data that receivers need before they process this server's messages.
            exempt: The servers that never need it.
        """
        self._basis = basis
        self._based = {self.name, *exempt}

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
            for request in list(self._asked.values())
            if request.topic not in (PART, UP)
        ]
        return sorted(found, key=lambda each: each.since)

    def later(self, seconds: float, function: Callable[[], None]) -> Timer:
        """Call a function after some seconds on the exchange's clock, in turn with its callbacks."""
        return self._later(seconds, lambda: self.soon(function))

    def open(self) -> int:
        """Return how many requests, contributions and waits for servers have not ended; from any thread."""
        return len(self.collectives) + len(self._asked) + len(self._answering) + len(self._waiting)

    # Requests of this server

    def _begin(self, local: LocalContribution, timeout: float) -> None:
        if self._closed:
            self.soon(local.done, self.collectives.left_outcome())
        else:
            self.collectives.start(local, timeout)

    def ask(
        self, to: str, topic: str, data: bytes, done: OnAnswer, timeout: float = 0.0, is_absent: bool = False
    ) -> None:
        """Send a request as `request` does, in a callback of the exchange; `is_absent` if no server knows it."""
        error: PMIxError | None = None
        if self._closed:
            error = make_departure(topic)
        elif to in self.gone:
            error = make_loss((to,), topic)
        elif not self.has(to) and (is_absent or self.root == self.name):
            error = Unreachable(f"{listed((to,))} is not there", operation=topic)
        elif len(self._asked) >= limits.MAX_ASKED:
            text = f"{limits.MAX_ASKED} requests are unanswered"
            error = OutOfResources(text, operation=topic)
        if error is not None:
            self.soon(done, None, error)
            return
        if not self.has(to):
            self.detours.reach(to, lambda here: self.ask(to, topic, data, done, timeout, not here))
            return
        number = next(self._numbers)
        request = self._asked[number] = PendingRequest(to, topic, done, self._now())
        if timeout:
            request.timer = self.later(timeout, lambda: self._unanswered(number))
        if to == self.name:
            self._asked_for(to, number, topic, data)
            return
        try:
            self._send(to, _NUMBERED.pack(REQUEST, 8, number) + framed_text(topic) + LENGTH.pack(len(data)) + data)
        except OverflowError as problem:
            self._take_answer(to, number, None, OutOfResources(str(problem), operation=topic))

    def _unanswered(self, number: int) -> None:
        request = self._asked.get(number)
        if request is not None:
            text = f"{listed((request.to,))} did not answer in time"
            error = ExchangeTimeout(text, servers=(request.to,), operation=request.topic)
            self._take_answer(request.to, number, None, error)

    def _take_answer(
        self, sender: str, number: int, data: bytes | None, error: PMIxError | None, *, arrived: bool = False
    ) -> None:
        """A server has answered a request of this one, or the request ends here; `arrived` in the turn of a message."""
        request = self._asked.get(number)
        if request is None or request.to != sender:
            # It arrived too late, or from a server that was not asked.
            return
        del self._asked[number]
        if request.timer is not None:
            request.timer.cancel()
        if error is not None:
            error.operation = error.operation or request.topic
        if not arrived:
            self.soon(request.done, data, error)
            return
        # The arrived answer counts before the report, which may wait for its turn already, that its sender has left.
        try:
            request.done(data, error)
        except Exception:
            _failed(request.done)

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
            self._take_answer(to, number, None if error is not None else data, error)
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
        self._carry(to, message)

    def _carry(self, to: str, message: bytes) -> None:
        if to in self.membership.detoured:
            to, topic, data = self.detours.wrap(to, message)
            message = codec.pack(TELL, TEXT.write(topic), data)
        # A later process under the name of a doubted server does not get its messages.
        if to not in self.membership.doubted:
            self._carrier.send(to, message)

    def receive(self, sender: str, message: bytes) -> None:
        """Process a message of another server that the root has passed on; in a callback of the exchange."""
        self._arrived(sender, message)

    def _joined(self, to: str, message: bytes) -> bytes:
        """Return a message joined with the buffered ones to its receiver, which go first."""
        buffered = self._buffered.pop(to, None)
        if buffered is None:
            return message
        before = [write() for write in buffered]
        if len(message) > MAX_JOINED:
            # The carrier may not take it, or not both together.
            self._carry(to, codec.pack(SEVERAL, *before))
            return message
        return codec.pack(SEVERAL, *before, message)

    def send_buffered(self) -> None:
        """Send the buffered messages now; in a callback."""
        buffered, self._buffered = self._buffered, {}
        for to, written in buffered.items():
            if self.has(to) and not self._closed:
                texts = [write() for write in written]
                self._carry(to, texts[0] if len(texts) == 1 else codec.pack(SEVERAL, *texts))

    def _catch_up(self) -> None:
        call, self._deferred = self._deferred, None
        if call is not None:
            call()

    # Messages and reports

    def list_others(self) -> list[str]:
        """Return the names of the other servers that are present, sorted."""
        return self.membership.list_others()

    def _tell(self, names: Iterable[str], topic: str, data: bytes) -> None:
        text = codec.pack(TELL, TEXT.write(topic), data)
        for name in names:
            if name == self.name:
                self._call_listener(name, topic, data)
            elif self.has(name) and not self._closed:
                self._send(name, text)

    def _call_listener(self, sender: str, topic: str, data: bytes) -> None:
        listener = self._listeners.get(topic)
        if listener is None:
            log.warning("%s: %s tells of %r, which has no listener", shown(self.name), shown(sender), topic)
            return
        listener(sender, data)

    # Events of the carrier

    def _arrived(self, sender: str, message: bytes) -> None:
        if self._closed:
            return
        if sender in self._returning:
            messages = self._returning[sender][1]
            if sum(map(len, messages)) <= limits.HELD_BYTES:
                messages.append(message)
        elif self.has(sender):
            self._process(sender, message)

    def _process(self, sender: str, message: bytes) -> None:
        """Process a message of another server, whose turn it is."""
        if sender in self._held and not message.startswith(_ASIDE):
            self._hold(sender, message)
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
            self._take_answer(sender, number, data, None, arrived=True)
            return
        kind, parts = codec.unpack(message)
        if kind == REFUSED:
            (data,) = codec.expect(parts, 1)
            request, error = unpack_error(data)
            self._take_answer(sender, request, None, error, arrived=True)
        elif kind in (TELL, ASIDE):
            topic, data = codec.expect(parts, 2)
            self._call_listener(sender, TEXT.read(topic), data)
        elif kind == SEVERAL:
            for each in parts:
                self._process(sender, each)
        elif kind == BASED:
            basis, text = codec.expect(parts, 2)
            if sender == self._losing or self.state.has_basis(sender, basis):
                self._process(sender, text)
            else:
                self._hold(sender, message, basis)
        else:
            raise codec.broken(f"a message is of the unknown kind {kind}")

    def _note_change(self, name: str, here: bool) -> None:
        # The carrier may know a later process of that name by the time that this has its turn.
        self.soon(self._changed, name, here, self._carrier_life(name) if here else b"")

    def _changed(self, name: str, here: bool, life: bytes = b"") -> None:
        if self._closed:
            return
        if here and self.membership.has_left:
            self.aside(name, LEAVES, b"")
        elif name in self.membership.detoured and (here or name not in self.membership.doubted):
            # A server that is reached through the root is lost when the root declares that.
            return
        elif here and self.has(name):
            # Its earlier process is not lost yet.
            self._returning[name] = life, []
            self.membership.doubt(name)
        elif here:
            self.join(name, life)
        else:
            self._returning.pop(name, None)
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
        before, self._losing = self._losing, name
        # Its messages before it was lost count.
        self._release(name)
        self._losing = before
        if not self.has(name):
            return
        self._based.discard(name)
        self._buffered.pop(name, None)
        self.membership.remove(name)
        self.collectives.changed(name, False)
        for number, request in [item for item in self._asked.items() if item[1].to == name]:
            self._take_answer(name, number, None, make_loss((name,), request.topic))
        for token in [token for token, asker in self._answering.items() if asker[0] == name]:
            del self._answering[token]
        self._load.pop(name, None)
        self._tell_of(name, False)
        self.soon.next(self.membership.follow_root)
        if name in self._returning:
            self.soon.next(self._return, name)

    def _return(self, name: str) -> None:
        """A server has joined under the name of a lost one."""
        life, messages = self._returning.pop(name, (b"", None))
        if messages is not None and not self.membership.has_left:
            self.join(name, life)
            for message in messages:
                self.soon.next(self._arrived, name, message)

    def _tell_of(self, name: str, here: bool) -> None:
        if here:
            self.collectives.changed(name, True)
        for wait in [wait for wait in self._waiting if wait.names <= self.membership.present]:
            self._end_wait(wait, None)
        for watcher in self._watchers:
            # Before the first message of a server that has joined, which may be waiting by now.
            self.soon.next(watcher, name, here)

    def _await(self, names: frozenset[str], done: OnPresent, timeout: float) -> None:
        if self._closed:
            self.soon(done, None, make_departure("when_present"))
        elif names <= self.membership.present:
            self.soon(done, None, None)
        else:
            wait = PresenceWait(names, done)
            self._waiting.append(wait)
            if timeout:
                wait.timer = self.later(timeout, lambda: self._time_out_wait(wait))

    def _time_out_wait(self, wait: PresenceWait) -> None:
        missing = sorted(wait.names - self.membership.present)
        self._end_wait(wait, ExchangeTimeout(f"{listed(missing)} did not come in time", servers=missing))

    def _end_wait(self, wait: PresenceWait, error: PMIxError | None) -> None:
        if wait in self._waiting:
            self._waiting.remove(wait)
            if wait.timer is not None:
                wait.timer.cancel()
            self.soon(wait.done, None, error)

    def _close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._held.clear()
        self.collectives.close()
        for number, request in list(self._asked.items()):
            self._take_answer(request.to, number, None, make_departure(request.topic))
        self._answering.clear()
        self._load.clear()
        for wait in list(self._waiting):
            self._end_wait(wait, make_departure("when_present"))


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
    text, *parts = codec.expect(codec.unpack(message)[1], count + 1)
    return NUMBER.read(text), *parts


def _checked(data: bytes, timeout: float = 0.0) -> bytes:
    """Return data as bytes; raise if an argument cannot be carried."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"what is exchanged is bytes, not {type(data).__name__}")
    if not timeout >= 0:
        raise ValueError(f"a time limit is a number of seconds, 0 for none, not {timeout!r}")
    return bytes(data)
