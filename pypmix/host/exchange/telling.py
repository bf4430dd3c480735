"""Sends one message to many servers, through each other.

Theory of operation. In a small session (`MAX_MESH`) each server sends to all others itself. In a larger one the origin
of a broadcast sends to the servers that follow it by name after 1, 2, 4, 8, ... places, in a circle, and each of these
passes the message on to the servers up to the next one, in the same way. So each server sends a few messages instead of
one to each, and on connections that exist in any case (`circle`). The tree of one server contains the others' trees:
all use the same connections.

    the server at place 0 sends to 1, 2, 4, 8, ...; 2 sends to 3; 4 sends to 5 and 6, and 6 sends to 7

A server that passes a message on is answered when all servers of its part have it. So:

* If a server in the middle is lost, the server that gave it its part passes the message on itself.
* Servers do not know all others that join and leave at the same time. A digest of the names comes with each part; a
  receiver with other names in this part reports that, and gets the names. It returns the names that it does not know.

The messages of one server stay in order all the same. Its broadcasts are numbered. Until all have got them, each of its
messages to a single server names the broadcast that comes before it, and is kept there until then. Conversely, a
broadcast says how many messages its origin has sent lately to which servers, and is kept until these have arrived. A
server that joins later gets the number after which it gets all broadcasts, when it has got the state before them.

A server that leaves waits until all have its broadcasts, since the report of its departure takes other ways. After a
while it sends each broadcast that not all have to each server itself. A server that has to leave because it lacks a
connection does not wait, and reports that past all other messages: some may never get its broadcasts.

A broadcast can arrive before the report that its origin has joined, or after the report that it is lost. It is kept
then, and dropped after `STALL_SECONDS` if the origin does not join. A server that joins under a name for which messages
are kept is asked for its process (`WHOSE`): messages of an earlier process are dropped.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

import struct
import time
from bisect import bisect_left
from collections import defaultdict, deque
from hashlib import blake2b

from pypmix.engine.times import DECISION_SECONDS, STALL_SECONDS
from pypmix.host.exchange import codec
from pypmix.host.exchange.codec import NAME, NAMES, NUMBER, Field, many, message
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.limits import MAX_EARLY, MAX_ENDED, MAX_SERVERS
from pypmix.host.naming import shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, ClassVar, Protocol

    from pypmix.host.exchange.kinds import Timer

    class Teller(Protocol):
        """The part of an exchange that a telling uses."""

        name: str

        @property
        def gone(self) -> frozenset[str]: ...

        def has(self, name: str) -> bool: ...

        def now(self) -> float: ...

        def later(self, seconds: float, function: Callable[[], None]) -> Timer: ...

        def others(self) -> list[str]: ...


SPREAD, HEARD, DIFFERS, AFTER, SINCE, WHOSE = range(6, 12)
"""The kinds of messages: a broadcast, with a part to pass it on to; all of a part have it; a request for the names of
a part; a message for one server that comes after a broadcast; the number after which a server that has joined gets all
broadcasts; a request for the number of the process, which is answered with such a `SINCE`."""

BESIDE = bytes((SPREAD, HEARD, DIFFERS, SINCE, WHOSE))
"""The kinds that are outside the order of their sender's other messages."""

MARK = 8

_HEAD = struct.Struct(f"!QI{MARK}s")
"""The number of a duty, how many servers follow the receiver in its part, and the digest of their names."""

_WHICH = struct.Struct(f"!{MARK}sQ")
"""The number of a process, and the number of its broadcast."""

_DUTY = struct.Struct("!Q")
_NONE = b"\0"
"""An empty list, as a field."""

_BEFORE: Field[tuple[tuple[str, int], ...]] = many(message(NAME, NUMBER))


def _nothing() -> None:
    """Do nothing."""


class Part:
    """A broadcast, with the data that the servers it is passed on to need.

    Attributes:
        origin: The server that sends it.
        era: The number of the origin's process.
        number: The number of the broadcast, counted by the origin.
        text: The message.
        packed: All of this as bytes, which are passed on unchanged.
        before: How many messages the origin had sent to which of the servers, if it was lately.
    """

    __slots__ = ("before", "era", "number", "origin", "packed", "text")

    def __init__(self, packed: bytes, before: tuple[tuple[str, int], ...]) -> None:
        origin, which, self.text = codec.expect(codec.unpack(packed)[1], 3)
        self.origin = NAME.read(origin)
        self.era, self.number = unpacked(_WHICH, which)
        self.packed = packed
        self.before = before


def unpacked(form: struct.Struct, data: bytes) -> tuple[Any, ...]:
    """Return the values of a struct.

    Raises:
        RemoteProtocolError: The bytes have another length.
    """
    if len(data) != form.size:
        raise codec.broken(f"{len(data)} bytes where {form.size} are expected")
    return form.unpack(data)


def mark_of(names: Sequence[str]) -> bytes:
    """Return the digest of names."""
    return blake2b("/".join(names).encode("utf-8", "surrogateescape"), digest_size=MARK).digest()


def split(names: Sequence[str]) -> list[Sequence[str]]:
    """Return names, in the order of the circle from a server on, in runs that begin after 1, 2, 4, ... places."""
    return [names[(1 << power) - 1 : (2 << power) - 1] for power in range(len(names).bit_length())]


class _Duty:
    """A message that is passed on to some servers.

    Attributes:
        part: The message.
        waiting: The runs that it was passed on to, by the number of the message.
        missing: Servers that none of the asked ones knew.
        done: Called with the servers that have not got it when all others have.
    """

    __slots__ = ("done", "missing", "part", "waiting")

    def __init__(self, part: Part, done: Callable[[tuple[str, ...]], None]) -> None:
        self.part = part
        self.waiting: dict[int, Sequence[str]] = {}
        self.missing: list[str] = []
        self.done = done


class _Origin:
    """The messages that have arrived from one server.

    Attributes:
        era: The number of its process, after its first broadcast.
        seen: The number of the last broadcast that counts.
        got: How many messages have arrived for this server alone.
        early: Broadcasts that arrived before others of it, by their numbers.
        behind: Messages for this server that arrived before broadcasts that were sent first.
        doubtful: Whether it may be another process than the present one.
    """

    __slots__ = ("behind", "doubtful", "early", "era", "got", "seen")

    def __init__(self) -> None:
        self.era = b""
        self.doubtful = False
        self.seen = 0
        self.got = 0
        self.early: dict[int, tuple[int, bytes]] = {}
        self.behind: deque[tuple[int, bytes]] = deque()


class Telling:
    """One server's part in broadcasts.

    Args:
        teller: Its exchange.
        send: Sends a message outside the order of the others.
        deliver: Processes a message of another server.

    Attributes:
        count: How many broadcasts this server has sent.
        sent: How many messages it has sent to each server alone.
        unheard: The broadcasts of this server that not all have.
    """

    def __init__(
        self, teller: Teller, send: Callable[[str, bytes], None], deliver: Callable[[str, bytes], None]
    ) -> None:
        self.count = 0
        self.sent: dict[str, int] = defaultdict(int)
        self.unheard: dict[int, None] = {}
        self._teller = teller
        self._send = send
        self._deliver = deliver
        # A later process under the same name has a greater number.
        self._era = time.time_ns().to_bytes(MARK, "big")
        self._last = 0
        self._duties: dict[int, tuple[str, _Duty]] = {}
        self._newer: dict[str, int] = {}
        self._older: dict[str, int] = {}
        """The same at two moments, of which the second is longer ago than such messages can take."""
        self._noted = float("-inf")
        self._origins: dict[str, _Origin] = {}
        self._later: dict[str, _Origin] = {}
        """Further processes under names of present servers."""
        self._over: dict[bytes, None] = {}
        """The numbers of processes that are lost."""
        self._circle: list[str] | None = None
        self._quiet: Callable[[], None] = _nothing

    def __len__(self) -> int:
        return len(self._duties)

    # Messages of this server

    def tell(self, text: bytes) -> None:
        """Send a message to all other servers."""
        self.count += 1
        number = self.count
        self.unheard[number] = None
        packed = codec.pack(0, NAME.write(self._teller.name), _WHICH.pack(self._era, number), text)
        part = Part(packed, self.lately())

        def done(_missing: tuple[str, ...]) -> None:
            self.unheard.pop(number, None)
            self._see_if_quiet()

        self._pass_on(_Duty(part, done), self._others())

    def lately(self) -> tuple[tuple[str, int], ...]:
        """Return how many messages were sent to which servers alone, for the servers that got any lately."""
        now = self._teller.now()
        if now - self._noted >= DECISION_SECONDS:
            self._older, self._newer, self._noted = self._newer, self.sent.copy(), now
        older = self._older
        return tuple([item for item in self.sent.items() if item[1] != older.get(item[0])])

    def after(self, text: bytes) -> bytes:
        """Return a message for one server that comes after this server's broadcasts."""
        return codec.pack(AFTER, _WHICH.pack(self._era, self.count), text)

    def meet(self, name: str, count: int) -> None:
        """Give a new server the number of broadcasts before its state: it gets all later ones."""
        if count:
            self._send(name, codec.pack(SINCE, _WHICH.pack(self._era, count)))

    # Messages of others

    def is_next(self, sender: str) -> bool:
        """Count a message for this server alone if no other message must come before it. Return True if so."""
        origin = self._origins.get(sender) or self._origin(sender)
        if origin.behind or origin.early:
            return False
        origin.got += 1
        return True

    def received(self, sender: str) -> int:
        """Return how many messages of a server for this one alone have arrived."""
        origin = self._origins.get(sender)
        return 0 if origin is None else origin.got

    def take(self, sender: str, text: bytes) -> None:
        """Process a message of another server.

        Raises:
            RemoteProtocolError: It does not parse.
        """
        kind = text[0]
        if kind in BESIDE:
            self._TAKES[kind](self, sender, codec.unpack(text)[1])
            return
        origin = self._origin(sender)
        origin.got += 1
        after = 0
        if kind == AFTER:
            which, text = codec.expect(codec.unpack(text)[1], 2)
            era, after = unpacked(_WHICH, which)
            origin = self._claim(sender, origin, era)
        if origin.behind or after > origin.seen:
            if len(origin.behind) >= MAX_EARLY:
                raise codec.broken("what it has told all before does not come")
            origin.behind.append((after, text))
        else:
            self._deliver(sender, text)
        if origin.early:
            self._go_on(sender, origin)

    def _told(self, sender: str, fields: list[bytes]) -> None:
        head, listed, before, packed = codec.expect(fields, 4)
        number, count, mark = unpacked(_HEAD, head)
        names: Sequence[str] = NAMES.read(listed) if listed != _NONE else ()
        if count and not names:
            names = self._others()[:count]
            if len(names) != count or mark_of(names) != mark:
                self._send(sender, codec.pack(DIFFERS, _DUTY.pack(number)))
                return
        part = Part(packed, _BEFORE.read(before) if before != _NONE else ())
        if not names:
            self._send(sender, codec.pack(HEARD, _DUTY.pack(number), _NONE))
        else:

            def done(missing: tuple[str, ...]) -> None:
                if self._teller.has(sender):
                    self._send(sender, codec.pack(HEARD, _DUTY.pack(number), NAMES.write(missing)))

            self._pass_on(_Duty(part, done), names)
        self._keep(part)

    def _keep(self, part: Part) -> None:
        if part.origin == self._teller.name or part.era in self._over:
            return
        origin = self._origin_of(part)
        if origin is None:
            return
        if part.number <= origin.seen or part.number in origin.early:
            return
        if len(origin.early) >= MAX_EARLY:
            raise codec.broken(f"what {part.origin} has told all before does not come")
        need = next((count for name, count in part.before if name == self._teller.name), 0)
        if not origin.early:
            self._await(part.origin, origin)
        origin.early[part.number] = need, part.text
        self._go_on(part.origin, origin)
        if part.number in origin.early and need > origin.got:
            self._teller.later(STALL_SECONDS, lambda: self._late(part, origin))

    def _origin_of(self, part: Part) -> _Origin | None:
        """Return the record for a broadcast; None if its process has ended.

        Of processes under one name the later one counts; a later one waits while an earlier one is present.
        """
        name = part.origin
        if name not in self._origins and len(self._origins) >= MAX_SERVERS:
            raise codec.broken(f"{len(self._origins)} servers have told something, and {name} is one more")
        origin = self._origin(name)
        if origin.era not in (b"", part.era):
            if part.era < origin.era:
                return None
            if self._teller.has(name):
                origin = self._later.get(name, origin)
                if origin.era < part.era:
                    origin = self._later[name] = _Origin()
                elif origin.era > part.era:
                    return None
            else:
                origin = self._origins[name] = _Origin()
        origin.era = part.era
        return origin

    def _since(self, sender: str, fields: list[bytes]) -> None:
        era, number = unpacked(_WHICH, codec.expect(fields, 1)[0])
        origin = self._claim(sender, self._origin(sender), era)
        self._skip(sender, origin, number)

    def _whose(self, sender: str, fields: list[bytes]) -> None:
        codec.expect(fields, 0)
        self._send(sender, codec.pack(SINCE, _WHICH.pack(self._era, 0)))

    def _skip(self, name: str, origin: _Origin, number: int) -> None:
        """Stop waiting for the broadcasts of a server up to a number."""
        for each in sorted(origin.early):
            if each <= number and origin.era:
                del origin.early[each]
        origin.seen = max(origin.seen, number)
        self._go_on(name, origin)

    def _await(self, name: str, origin: _Origin) -> None:
        """Keep messages of an absent server for a while: it may be about to join, or be lost already."""
        if not self._teller.has(name):
            self._teller.later(STALL_SECONDS, lambda: self._forget(name, origin))

    def _forget(self, name: str, origin: _Origin) -> None:
        if self._origins.get(name) is origin and not self._teller.has(name):
            del self._origins[name]

    def _late(self, part: Part, origin: _Origin) -> None:
        """Stop waiting for earlier messages that never arrive, as when only one side has begun a new connection."""
        if part.number in origin.early and self._origins.get(part.origin) is origin:
            log.warning("%s: what %s has sent before does not come", shown(self._teller.name), shown(part.origin))
            origin.early[part.number] = 0, part.text
            self._go_on(part.origin, origin)

    def _go_on(self, name: str, origin: _Origin) -> None:
        """Deliver the next messages."""
        while self._teller.has(name) and self._origins.get(name) is origin and not origin.doubtful:
            if origin.behind and origin.behind[0][0] <= origin.seen:
                self._deliver(name, origin.behind.popleft()[1])
                continue
            need, text = origin.early.get(origin.seen + 1, (origin.got + 1, b""))
            # The messages for this server that wait here themselves were sent after it.
            if need > origin.got - len(origin.behind):
                return
            origin.seen += 1
            del origin.early[origin.seen]
            self._deliver(name, text)

    def _origin(self, name: str) -> _Origin:
        origin = self._origins.get(name)
        if origin is None:
            origin = self._origins[name] = _Origin()
        return origin

    def _claim(self, name: str, origin: _Origin, era: bytes) -> _Origin:
        """Return the record of the process that a server itself says it is."""
        origin.doubtful = False
        if origin.era in (b"", era):
            origin.era = era
            return origin
        # The earlier broadcasts came through others, from a process that was lost.
        later = self._later.pop(name, None)
        claimed = self._origins[name] = later if later is not None and later.era == era else _Origin()
        claimed.era, claimed.got, claimed.behind = era, origin.got, origin.behind
        return claimed

    # Passing on

    def _others(self) -> list[str]:
        """Return all other servers in the order of the circle."""
        if self._circle is None:
            others = self._teller.others()
            place = bisect_left(others, self._teller.name)
            self._circle = others[place:] + others[:place]
        return self._circle

    def _pass_on(self, duty: _Duty, names: Sequence[str]) -> None:
        there = [name for name in names if self._teller.has(name)]
        # Lost servers too: another process may have joined under the name, which this server does not know yet.
        duty.missing += [name for name in names if not self._teller.has(name)]
        for run in split(there):
            if run:
                self._last += 1
                duty.waiting[self._last] = run
                self._duties[self._last] = run[0], duty
                self._give(duty, self._last, ())
        self._review(duty)

    def _give(self, duty: _Duty, number: int, names: tuple[str, ...]) -> None:
        run = duty.waiting[number]
        before = _NONE
        if duty.part.before:
            inside = set(run)
            before = _BEFORE.write(tuple([each for each in duty.part.before if each[0] in inside]))
        mark = mark_of(run[1:]) if len(run) > 1 and not names else b""
        listed = NAMES.write(names) if names else _NONE
        self._send(run[0], codec.pack(SPREAD, _HEAD.pack(number, len(run) - 1, mark), listed, before, duty.part.packed))

    def _differs(self, sender: str, fields: list[bytes]) -> None:
        (number,) = unpacked(_DUTY, codec.expect(fields, 1)[0])
        to, duty = self._duties.get(number, ("", None))
        if to == sender and duty is not None:
            self._give(duty, number, tuple(duty.waiting[number][1:]))

    def _heard(self, sender: str, fields: list[bytes]) -> None:
        which, listed = codec.expect(fields, 2)
        (number,), missing = unpacked(_DUTY, which), NAMES.read(listed) if listed != _NONE else ()
        to, duty = self._duties.get(number, ("", None))
        if to != sender or duty is None:
            return
        del self._duties[number]
        run = set(duty.waiting.pop(number))
        again = [name for name in missing if name in run and self._teller.has(name)]
        duty.missing += [name for name in missing if name in run and not self._teller.has(name)]
        for name in again:
            self._pass_on_to(duty, name)
        self._review(duty)

    def _pass_on_to(self, duty: _Duty, name: str) -> None:
        self._last += 1
        duty.waiting[self._last] = (name,)
        self._duties[self._last] = name, duty
        self._give(duty, self._last, ())

    @staticmethod
    def _review(duty: _Duty) -> None:
        if not duty.waiting:
            duty.done(tuple(duty.missing))

    # Servers that join and leave

    def come(self, name: str) -> None:
        """A server has joined.

        The messages kept under its name may be of an earlier process, which was lost before it was known here: the
        server is asked for the number of its process.
        """
        self._circle = None
        origin = self._origins.get(name)
        if origin is not None and origin.early:
            origin.doubtful = True
            self._send(name, codec.pack(WHOSE))

    def release(self, name: str) -> None:
        """Deliver all kept messages of a server that is about to be lost, even if others before them are missing."""
        origin = self._origins.get(name)
        while origin is not None and (origin.early or origin.behind):
            if origin.behind and (not origin.early or origin.behind[0][0] < min(origin.early)):
                self._deliver(name, origin.behind.popleft()[1])
            else:
                origin.seen = min(origin.early)
                self._deliver(name, origin.early.pop(origin.seen)[1])

    def lose(self, name: str) -> None:
        """A server is lost: pass its parts on without it."""
        self._circle = None
        origin = self._origins.pop(name, None)
        if origin is not None and origin.era:
            self._over[origin.era] = None
            if len(self._over) > MAX_ENDED:
                del self._over[next(iter(self._over))]
        if name in self._later:
            self._origins[name] = self._later.pop(name)
            self._await(name, self._origins[name])
        for counts in (self.sent, self._newer, self._older):
            counts.pop(name, None)
        for number, (to, duty) in list(self._duties.items()):
            if to == name:
                del self._duties[number]
                self._pass_on(duty, duty.waiting.pop(number)[1:])

    def when_heard(self, call: Callable[[], None]) -> None:
        """Call a function as soon as all have got this server's broadcasts."""
        self._quiet = call
        self._see_if_quiet()

    def finish(self) -> None:
        """This server is about to leave: send each server itself the broadcasts that not all have."""
        for number, (_, duty) in list(self._duties.items()):
            if duty.part.origin == self._teller.name:
                for name in duty.waiting[number][1:]:
                    if self._teller.has(name):
                        self._pass_on_to(duty, name)

    def _see_if_quiet(self) -> None:
        if not self.unheard:
            call, self._quiet = self._quiet, _nothing
            call()

    def close(self) -> None:
        """This server leaves."""
        self._duties.clear()
        self._origins.clear()
        self._later.clear()

    _TAKES: ClassVar[dict[int, Callable[[Telling, str, list[bytes]], None]]] = {
        SPREAD: _told,
        HEARD: _heard,
        DIFFERS: _differs,
        SINCE: _since,
        WHOSE: _whose,
    }
