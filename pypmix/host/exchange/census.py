"""The servers that are present for a carrier: those with a connection, and those that the introducer reports.

Theory of operation. Without an introducer, each server is connected with each other one, and a server is present while
it is connected. An *introducer* is a server that all others connect with, such as a launcher. Each of them first sends
it a record of itself. As long as they are few (`mesh`), a server that joins receives the records of the earlier ones,
and dials them: all are connected. Once there are more, and from then on, the introducer reports all servers that join
or end to all others, and a server is present by that report. A connection with such a server is made when there is a
message to send, or when the other one makes it.

Of two servers whose addresses are translated on the way, neither may reach the other. So each dials the other one, and
they are present for each other only once they are connected; until then the exchange reaches them by a detour.

The reports travel as messages do: none is lost, and they stay in order. The introducer alone decides which servers have
ended for all: a server that has sent that it leaves, whose system has closed the connection, or that is silent for too
long. A server that loses another one, or has it reported as ended, never takes the same process for present again. With
the introducer, a server loses all others.

Messages arrive before departures. The report that a server has left may take a shorter way than a message of that
server, whose connection may not even be made yet. So a server that leaves waits first until all its messages are
acknowledged, on each connection and on connections that are still being made or restored; a receiver acknowledges the
messages that it has passed on to its exchange. Only then does it say goodbye, to all at once. The time for either is
bounded: messages that a receiver has not processed until then may be lost with the sender.

No I/O: `tcp` does that, and calls all of this on its thread.
"""

from __future__ import annotations

import os

from pypmix.engine.times import ENDING_SECONDS, GATHER_SECONDS
from pypmix.host.exchange import codec
from pypmix.host.exchange.codec import BYTES, NAME, NUMBER, Field, many
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.handshake import ADDRESS
from pypmix.host.exchange.limits import MAX_ENDED
from pypmix.host.naming import shown
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.exchange.rendezvous import Address
    from pypmix.host.exchange.stream import Stream
    from pypmix.host.exchange.tcp import Peers

KNOWN, PRESENT, HIDDEN, ENDED, LEFT = range(5)
"""The states of a server in a record: it may be dialed; it is present; it is, and others cannot dial it, since its
address is translated on the way; it has ended; it has left in order."""

LIFE = 16
"""The bytes of the number of a server's process, which no other process has."""

MAX_ADDRESSES = 4
MAX_HOST = 255


class Entry(Record):
    """The record of a server.

    Attributes:
        name: Its name.
        life: The number of its process.
        state: Its state.
        addresses: Its addresses; empty if it cannot be dialed, and dials the others.
    """

    name: str
    life: bytes
    state: int = KNOWN
    addresses: tuple[Address, ...] = ()

    def __validate__(self) -> None:
        if len(self.life) != LIFE or not KNOWN <= self.state <= LEFT or len(self.addresses) > MAX_ADDRESSES:
            raise ValueError(
                f"the record of {shown(self.name)} has a number of {len(self.life)} bytes, the state {self.state} and"
                f" {len(self.addresses)} addresses: they are {LIFE}, {KNOWN} to {LEFT}, and at most {MAX_ADDRESSES}"
            )
        if any(len(host) > MAX_HOST or not 0 < port < 1 << 16 for host, port in self.addresses):
            raise ValueError(f"the record of {shown(self.name)} has an address that is too long, or has no port")


ENTRIES: Field[tuple[Entry, ...]] = many(codec.record(Entry, NAME, BYTES, NUMBER, many(ADDRESS)))


class Census:
    """The servers that one knows.

    Args:
        peers: The carrier's other servers.
        introducer: The server that introduces all others to each other; empty if there is none.
        mesh: How many servers are all connected with each other, if there is an introducer.
        addresses: Where this server listens, if others can dial it there.

    Attributes:
        present: The number of the process of each other server that is present, by its name.
        sparse: Whether servers are present by the introducer's report, and not all connected.
        life: The number of this server's process.
    """

    def __init__(self, peers: Peers, introducer: str, mesh: int, addresses: tuple[Address, ...]) -> None:
        self.present: dict[str, bytes] = {}
        self.sparse = False
        self.life = os.urandom(LIFE)
        self._peers = peers
        self._introducer = introducer
        self._mesh = mesh
        self._addresses = addresses
        self._introduces = introducer == peers.name
        self._is_hidden = False
        self._records: dict[str, Entry] = {}
        """The records of others: at the introducer, of all that have introduced themselves."""
        self._ended: dict[bytes, None] = {}
        """The last processes that have ended, or that this server has lost."""
        self._news: dict[bytes, Entry] = {}
        """The last changes that the introducer is about to report, by the number of the process."""
        self._rests = False
        """Whether it has reported changes a moment ago."""

    def addresses_of(self, name: str) -> tuple[Address, ...]:
        """Return where a server listens, if that is known."""
        entry = self._records.get(name)
        return () if entry is None else entry.addresses

    def admits(self, name: str, life: bytes) -> bool:
        """Return True if a server may connect under this name: not while another one of that name has not ended."""
        return self.present.get(name, life) == life

    def counts_as_lost(self, life: bytes) -> bool:
        """Return True if a server has ended, or has been lost."""
        return self.sparse and life in self._ended

    # Events of the carrier

    def add(self, stream: Stream) -> None:
        """A connection is made, the first one with this server."""
        self.present[stream.name] = stream.life
        self._ended.pop(stream.life, None)
        if stream.name == self._introducer:
            entry = Entry(self._peers.name, self.life, KNOWN, self._addresses)
            self._peers.send_report(stream, ENTRIES.write((entry,)))

    def remove(self, name: str, in_order: bool) -> None:
        """A server has ended, or is lost to this one.

        Args:
            name: Its name.
            in_order: Whether it has left in order.
        """
        life = self.present.pop(name)
        self._record_end(life)
        if self._records.pop(name, None) is not None and self._introduces and self.sparse:
            self._announce(Entry(name, life, LEFT if in_order else ENDED))

    def lose_introducer(self, name: str) -> None:
        """Lose all others with the introducer, if this server is the one; after its loss was reported."""
        if self.sparse and name == self._introducer:
            for each in list(self.present):
                self._peers.vanish(each, f"{name} is lost, which reports it", quiet=True)

    def _record_end(self, life: bytes) -> None:
        self._ended[life] = None
        if len(self._ended) > MAX_ENDED:
            del self._ended[next(iter(self._ended))]

    def take(self, stream: Stream, data: bytes) -> None:
        """Process a report of another server.

        Raises:
            RemoteProtocolError: It does not parse, or that server has nothing to report.
        """
        entries = ENTRIES.read(data)
        claims = [(each.name, each.life) for each in entries]
        if self._introduces and claims == [(stream.name, stream.life)] and stream.name not in self._records:
            self._introduce(stream, entries[0])
        elif stream.name != self._introducer:
            raise RemoteProtocolError(
                f"{shown(stream.name)} reports other servers, which only the introducer may", operation="exchange"
            )
        else:
            # Its own record first, on which depends how it reaches the others.
            for entry in sorted(entries, key=lambda entry: entry.name != self._peers.name):
                self._apply(entry)

    # The introducer

    def _introduce(self, stream: Stream, entry: Entry) -> None:
        """A server has introduced itself: it is to know the others, and they it."""
        # It is behind an address translation if another address is seen than it listens on.
        hidden = not stream.address[1]
        addresses = entry.addresses or (() if hidden else (stream.address,))
        earlier = tuple(self._records.values())
        entry = self._records[entry.name] = Entry(entry.name, entry.life, HIDDEN if hidden else PRESENT, addresses)
        if self.sparse:
            self._announce(entry)
            self._peers.send_report(stream, ENTRIES.write((*earlier, entry)))
        elif len(self._records) < self._mesh:
            met = tuple([each.replace(state=KNOWN) for each in earlier])
            self._peers.send_report(stream, ENTRIES.write(met))
        else:
            self.sparse = True
            log.info("%s: %d servers: connections are made when they are needed", shown(self._peers.name), self._mesh)
            self._report((*earlier, entry))

    def _announce(self, entry: Entry) -> None:
        """Report a change in a moment, together with later ones until then."""
        if not self._news and not self._rests:
            self._peers.loop.later(GATHER_SECONDS, self._flush)
        self._news[entry.life] = entry

    def _flush(self) -> None:
        """Report the changes; further ones wait the longer, the more servers get them."""
        news, self._news = self._news, {}
        self._rests = bool(news)
        if news:
            self._report(tuple(news.values()))
            self._peers.loop.later(GATHER_SECONDS * (1 + len(self._records) // 50), self._flush)

    def _report(self, entries: tuple[Entry, ...]) -> None:
        data = ENTRIES.write(entries)
        for name in list(self._records):
            stream = self._peers.streams.get(name)
            if stream is not None and not self._peers.closing:
                self._peers.send_report(stream, data)

    # The other servers

    def _apply(self, entry: Entry) -> None:
        """Process a record that the introducer has sent."""
        peers, name, life = self._peers, entry.name, self.present.get(entry.name)
        if name == peers.name:
            if entry.life == self.life and entry.state == HIDDEN:
                self._is_hidden = True
                for each in list(self.present):
                    peers.dialer.reach(each)
        elif entry.state in (ENDED, LEFT):
            if life == entry.life:
                self._end(name, "" if entry.state == LEFT else "others have seen its end")
            else:
                peers.dialer.forget(name)
                self._record_end(entry.life)
        elif entry.state == KNOWN:
            self._dial(entry)
        elif entry.life not in self._ended:
            self.sparse = True
            if life not in (None, entry.life):
                peers.vanish(name, "")
            self._records[name] = entry
            if life == entry.life:
                return
            if self._is_hidden and entry.state == HIDDEN:
                # They may reach each other behind the same translation, or not at all.
                self._dial(entry)
                return
            self.present[name] = entry.life
            peers.appear(name)
            if self._is_hidden:
                peers.dialer.reach(name)

    def _dial(self, entry: Entry) -> None:
        """Dial a server that is present once it is connected."""
        if entry.addresses:
            self._peers.dialer.meet(entry.name, entry.addresses, 0)

    def _end(self, name: str, reason: str) -> None:
        """End a server that the introducer reports as ended: after its last messages, if it is connected."""
        stream = self._peers.streams.get(name)
        if stream is None or stream.connection is None:
            self._peers.vanish(name, reason)
        else:
            self._peers.loop.later(ENDING_SECONDS, lambda: self._peers.lose(stream, reason))
