"""The servers that are present for a carrier, and the servers that it has to be connected with.

Theory of operation. As long as a server knows few others (`mesh`), it is connected with all of them, and they are
present while they are connected. Once it knows more, and from then on, it is connected with its neighbours alone,
passes its records on to them (`roll`), and others are present by report. A connection with one of these is made when
there is a message to send, or when the other one makes it.

A server has ended for all when a server that was connected with it has observed that: it has sent that it leaves, its
system has closed the connection, its address no longer has a listener, or it has been silent for too long and no other
server that was asked vouches for it. All get a report of that, and so does the server itself if it lives: it continues
alone then. A server with which no connection can be made, and that others vouch for, or cannot be asked about, is lost
to this server alone: the exchange handles that, which reports it to others.

Messages arrive before departures. The report that a server has left may take a shorter way than a message of that
server, whose connection may not even be made yet. So a server that leaves waits first until all its messages are
acknowledged, on each connection and on connections that are still being made or restored; a receiver acknowledges the
messages that it has passed on to its exchange. Only then does it say goodbye, to all at once. Its broadcasts through
others have been answered before that (`telling`). The time for either is bounded: messages that a receiver has not
processed until then may be lost with the sender.

No I/O: `tcp` does that, and calls all of this on its thread.
"""

from __future__ import annotations

from pypmix.engine.times import ROLL_SECONDS
from pypmix.host.exchange import codec
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.limits import MAX_APART
from pypmix.host.exchange.roll import ENDED, ENTRY, LEFT, MAX_ADDRESSES, Entry, Roll, followers, neighbours, pieces
from pypmix.host.naming import shown
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from pypmix.host.exchange.rendezvous import Address
    from pypmix.host.exchange.stream import Stream


class Port(Record):
    """The functions that a circle calls of its carrier.

    Attributes:
        tell: Sends a frame of the carriers on a connection.
        later: Calls a function after some seconds.
        appear: A server is present.
        ended: A server has ended, as others report; called with whether it has left.
        review: Checks soon which servers this one has to be connected with.
        meet: Dials a server that is connected with another one.
        expelled: The others count this server as lost.
    """

    tell: Callable[[Stream, bytes], None]
    later: Callable[[float, Callable[[], None]], object]
    appear: Callable[[str], None]
    ended: Callable[[str, bool], None]
    review: Callable[[], None]
    meet: Callable[[str, tuple[Address, ...]], None]
    expelled: Callable[[], None]


ROLL, DIGEST, HIDDEN = 20, 21, 22
"""The kinds of frames, beside the frames of the keep-alive: records, the digest of all records, and that the
receiver's address is not the address that others may dial."""

KINDS = (ROLL, DIGEST, HIDDEN)


class Circle:
    """The servers that one knows.

    Args:
        record: This server's record.
        mesh: How many servers are all connected with each other.
        streams: The streams with the others.
        port: The carrier.

    Attributes:
        mesh: How many servers are all connected with each other.
        present: The life of each other server that is present, by its name.
        sparse: Whether this server knows more than `mesh`.
        alone: Whether the others have lost this server.
        hidden: Whether the others cannot dial this server, so that it dials all.
    """

    def __init__(self, record: Entry, mesh: int, streams: Mapping[str, Stream], port: Port) -> None:
        self.present: dict[str, bytes] = {}
        self.sparse = False
        self.alone = False
        self.hidden = False
        self._own = record
        self.mesh = mesh
        self._streams = streams
        self._port = port
        self._roll = Roll(record)
        self._known: set[bytes] = set()
        """Records that have arrived, as bytes: most arrive from each neighbour."""
        self._apart: dict[bytes, None] = {}
        """Lives of servers that this one alone has lost."""
        self._planned = False

    # Questions of others

    @property
    def life(self) -> bytes:
        """The number of this server's process."""
        return self._own.life

    def ring(self) -> Sequence[str]:
        """Return the names of all servers, sorted."""
        return self._roll.ring() if self.sparse else sorted((self._own.name, *self.present))

    def addresses_of(self, name: str) -> tuple[Address, ...]:
        """Return where a server listens, if that is known."""
        entry = self._roll.get(name)
        return () if entry is None else entry.addresses

    def is_away(self, name: str) -> bool:
        """Return True if a server has reported that it will be stopped."""
        entry = self._roll.get(name)
        return entry is not None and entry.away

    def admits(self, name: str, life: bytes) -> bool:
        """Return True if a server may connect under this name: not while another one of that name has not ended."""
        return not self.sparse or self.present.get(name, life) == life

    def counts_as_lost(self, life: bytes) -> bool:
        """Return True if a server has been lost."""
        return self.alone or (self.sparse and (life in self._apart or self._roll.is_dead(life)))

    def needed_servers(self) -> set[str]:
        """Return the servers that this one has to be connected with."""
        if not self.sparse:
            return set(self.present)
        names = set(self.present) if self.hidden else followers(self._roll.ring(), self._own.name)
        return {name for name in names if name in self.present}

    def near(self, unmet: Collection[str]) -> set[str]:
        """Return the servers without any connection yet that this one has to dial first."""
        names = sorted({*self._roll.ring(), *unmet})
        return followers(names, self._own.name).intersection(unmet)

    def count(self, unmet: Collection[str] = ()) -> None:
        """Check if there are more servers than are all connected with each other."""
        if self.sparse or len({*self._roll.ring(), *self.present, *unmet}) <= self.mesh:
            return
        self.sparse = True
        log.info(
            "%s: more than %d servers: connections are made when they are needed", shown(self._own.name), self.mesh
        )
        for stream in list(self._streams.values()):
            self._compare(stream)
            self._see_if_hidden(stream)
        for name in [name for name in self._roll.ring() if name != self._own.name]:
            self._greet(name)
        self._port.review()

    # Events of the carrier

    def met(self, stream: Stream, life: bytes, addresses: Iterable[Address]) -> None:
        """A connection is made."""
        name = stream.name
        entry = Entry(name, life, 0, tuple(addresses)[:MAX_ADDRESSES])
        if not self.sparse:
            self._roll.revive(life)
        if self._roll.take(entry, life):
            self._spread()
        self.present[name] = life
        stream.pulse.away = self.is_away(name)
        self.count()
        if self.sparse:
            self._see_if_hidden(stream)
            self._compare(stream)
            self._port.review()

    def resumed(self, stream: Stream) -> None:
        """A connection is restored: the last frames on it may be lost."""
        stream.pulse.away = stream.pulse.away or self.is_away(stream.name)
        if self.sparse:
            self._compare(stream)

    def remove(self, name: str, sure: bool, in_order: bool = False) -> None:
        """A server is lost to this one.

        Args:
            name: Its name.
            sure: Whether it is lost to all.
            in_order: Whether it has left.
        """
        life = self.present.pop(name, b"")
        if sure and not self.alone:
            entry = Entry(name, life, LEFT if in_order else ENDED)
            if self._roll.take(entry):
                self._hurry()
        elif life:
            self._apart[life] = None
            if len(self._apart) > MAX_APART:
                del self._apart[next(iter(self._apart))]
        self._port.review()

    def part(self, stream: Stream) -> None:
        """Inform a server that it has ended for the others."""
        entry = Entry(stream.name, self.present.get(stream.name, stream.life), ENDED)
        self._port.tell(stream, codec.pack(ROLL, ENTRY.write(entry)))

    def away(self, going: bool) -> None:
        """This server will be stopped, or is back."""
        phase = self._own.phase + (self._own.away != going)
        self._own = self._own.replace(phase=phase)
        if self._roll.take(self._own):
            self._hurry()

    def take(self, stream: Stream, kind: int, parts: list[bytes]) -> None:
        """Process a frame of another server.

        Raises:
            RemoteProtocolError: It does not parse.
        """
        if kind == DIGEST:
            (digest,) = codec.expect(parts, 1)
            if digest == self._roll.digest():
                stream.roll_number = self._roll.last
                return
            if not self.sparse and stream.roll_number < 0:
                # It is to send everything as well.
                self._compare(stream)
            self._tell(stream)
            return
        if kind == HIDDEN:
            self.hidden = True
            self._port.review()
            return
        for data in parts:
            if data not in self._known:
                self._hear(stream, data, ENTRY.read(data))
        self.count()

    # Records

    def _hear(self, stream: Stream | None, data: bytes, entry: Entry) -> None:
        if len(self._known) >= 1 << 16:
            self._known.clear()
        self._known.add(data)
        if entry.name == self._own.name:
            self._hear_of_itself(entry)
            return
        if not self._roll.take(entry, stream.life if stream is not None else None):
            return
        if entry.is_dead:
            self._hear_of_end(entry)
            return
        self._spread()
        if not self.sparse:
            self._port.meet(entry.name, entry.addresses)
        else:
            self._greet(entry.name)

    def _hear_of_itself(self, entry: Entry) -> None:
        if entry.life == self._own.life and entry.is_dead:
            self.alone = True
            self._port.expelled()

    def _hear_of_end(self, entry: Entry) -> None:
        self._apart.pop(entry.life, None)
        self._hurry()
        if self.present.get(entry.name) == entry.life:
            self._port.ended(entry.name, entry.phase == LEFT)
        else:
            self.follow(entry.name)
        self._port.review()

    def _greet(self, name: str) -> None:
        entry = self._roll.get(name)
        if entry is None or self.alone or entry.life in self._apart:
            return
        stream = self._streams.get(name)
        if stream is not None and self.present.get(name) == entry.life:
            stream.pulse.away = entry.away
        elif name not in self.present:
            self.present[name] = entry.life
            self._port.appear(name)
            self._port.review()

    def follow(self, name: str) -> None:
        """Continue with another server of that name, if any, when the end of the last one has been reported."""
        entry = self._roll.following(name)
        if entry is not None:
            self._hear(None, b"", entry)

    # Sending records

    def _near(self) -> set[str]:
        return neighbours(self._roll.ring(), self._own.name)

    def _see_if_hidden(self, stream: Stream) -> None:
        """Inform a server whose address is translated on the way that others cannot dial it at that address."""
        if not stream.address[1]:
            self._port.tell(stream, codec.pack(HIDDEN))

    def _compare(self, stream: Stream) -> None:
        self._port.tell(stream, codec.pack(DIGEST, self._roll.digest()))

    def _tell(self, stream: Stream) -> None:
        """Send another server the changes that it does not know, except for changes that it has sent itself."""
        changes = self._roll.since(stream.roll_number, stream.life)
        stream.roll_number = self._roll.last
        for piece in pieces(changes):
            self._port.tell(stream, codec.pack(ROLL, *piece))

    def _spread(self) -> None:
        """Send the news to the neighbours in a moment, with later news until then."""
        if self.sparse and not self._planned:
            self._planned = True
            self._port.later(ROLL_SECONDS, self._flush)

    def _hurry(self) -> None:
        """Send the news to the neighbours, at once unless there were others a moment ago."""
        if not self._planned:
            self._flush()
            self._spread()

    def _flush(self) -> None:
        self._planned = False
        if not self.sparse or self.alone:
            return
        for name in sorted(self._near()):
            stream = self._streams.get(name)
            if stream is not None and stream.connected and 0 <= stream.roll_number < self._roll.last:
                self._tell(stream)
