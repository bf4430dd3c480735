"""The servers of a session, as one server knows them: for carriers that are not connected with most of the others.

Theory of operation. A server has a *life*, a number that no other process has, and in it a *phase*, which only grows:
even while it is present, odd while it has reported that it will be stopped, `ENDED` after its end. So of two records of
one life the later one is known by its phase, and records may arrive by any way, in any order, and more than once. The
end of a life is remembered: later records of it are old. A further life under the name of a present one waits for the
end of that one.

Each server passes records that are new to it on to its *neighbours*: the servers that follow it after 1, 2, 4, 8, ...
places in the order of names, in which the last is followed by the first, and the servers that it follows so. Neighbours
are connected, and watch each other (`keepalive`). When two are newly connected, they compare a digest of all their
records, and send each other all records if it differs.

    unknown --a record of it--> there <--> away --any record of its end--> ended

No I/O and no clock: `tcp` has both.
"""

from __future__ import annotations

from hashlib import blake2b

from pypmix.host.exchange import codec
from pypmix.host.exchange.codec import BYTES, NAME, NUMBER, Field, many
from pypmix.host.exchange.handshake import ADDRESS
from pypmix.host.exchange.limits import MAX_ENDED, MAX_SERVERS
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pypmix.host.exchange.rendezvous import Address

ENDED = 1 << 32
LEFT = ENDED + 1
"""The phases of a life that has ended, and of a life that has ended because the server has left."""

LIFE = 16
"""The bytes of a life's number."""

MAX_ADDRESSES = 4
MAX_HOST = 255


class Entry(Record):
    """The record of a server.

    Attributes:
        name: Its name.
        life: The number of its process.
        phase: The phase of that process.
        addresses: Its addresses; empty if it cannot be dialed, and dials the others.
    """

    name: str
    life: bytes
    phase: int = 0
    addresses: tuple[Address, ...] = ()

    def __validate__(self) -> None:
        if len(self.life) != LIFE or not 0 <= self.phase <= LEFT or len(self.addresses) > MAX_ADDRESSES:
            raise ValueError("a record of no server")
        if any(len(host) > MAX_HOST or not 0 < port < 1 << 16 for host, port in self.addresses):
            raise ValueError("a server listens nowhere like that")

    @property
    def away(self) -> bool:
        """Whether it has reported that it will be stopped."""
        return self.phase % 2 == 1 and self.phase < ENDED

    @property
    def is_dead(self) -> bool:
        """Whether it has ended."""
        return self.phase >= ENDED


ENTRY: Field[Entry] = codec.record(Entry, NAME, BYTES, NUMBER, many(ADDRESS))


def followers(ring: Sequence[str], name: str) -> set[str]:
    """Return the servers that follow one of them after 1, 2, 4, ... places.

    Args:
        ring: All servers, sorted, this one too.
        name: The server that they follow.
    """
    place, count = ring.index(name), len(ring)
    return {ring[(place + (1 << power)) % count] for power in range((count - 1).bit_length())} - {name}


def neighbours(ring: Sequence[str], name: str) -> set[str]:
    """Return the servers that follow one of them after 1, 2, 4, ... places, and the servers that it follows so."""
    place, count = ring.index(name), len(ring)
    before = {ring[(place - (1 << power)) % count] for power in range((count - 1).bit_length())}
    return (followers(ring, name) | before) - {name}


class Roll:
    """The records that one server has of all, in the order in which they changed.

    Args:
        record: Its own record.

    Attributes:
        last: The number of the last change.
    """

    def __init__(self, record: Entry) -> None:
        self.last = 0
        self._there: dict[str, Entry] = {}
        self._next: dict[str, Entry] = {}
        """Further lives under names of present servers."""
        self._ended: dict[bytes, Entry] = {}
        self._changes: dict[bytes, tuple[int, bytes, object]] = {}
        """The number of the last change of each life, its record as bytes, and the source."""
        self._ring: list[str] | None = None
        self._digest = b""
        self.take(record)

    def get(self, name: str) -> Entry | None:
        """Return the record of a present server."""
        return self._there.get(name)

    def is_dead(self, life: bytes) -> bool:
        """Return True if a life is known to have ended."""
        return life in self._ended

    def ring(self) -> list[str]:
        """Return the names of all present servers, sorted."""
        if self._ring is None:
            self._ring = sorted(self._there)
        return self._ring

    def digest(self) -> bytes:
        """Return a digest that is the same on servers that know the same servers to be present."""
        if not self._digest:
            hashed = blake2b(digest_size=16)
            for name in self.ring():
                entry = self._there[name]
                hashed.update(b"%s %d\n" % (entry.life, entry.phase))
            self._digest = hashed.digest()
        return self._digest

    def since(self, number: int, but: object) -> list[bytes]:
        """Return the records that have changed after a change, as bytes, except for those of one source."""
        found = []
        for last, data, source in reversed(self._changes.values()):
            if last <= number:
                break
            if source is not but:
                found.append(data)
        return found

    def take(self, entry: Entry, source: object = None) -> bool:
        """Add a record. Return True if it is news.

        Args:
            entry: The record.
            source: The connection on which it has arrived.
        """
        taken = self._take(entry)
        if taken is None:
            return False
        self.last += 1
        self._changes.pop(entry.life, None)
        self._changes[entry.life] = self.last, ENTRY.write(taken), source
        return True

    def _take(self, entry: Entry) -> Entry | None:
        """Add a record. Return it as it is kept; None if it is old."""
        if entry.life in self._ended:
            return None
        if entry.is_dead:
            return self._end(entry)
        known = self._there.get(entry.name)
        if known is None or known.life != entry.life:
            lives = self._there if known is None else self._next
            waits = self._next.get(entry.name)
            if waits is not None and waits.life == entry.life and waits.phase >= entry.phase:
                return None
            if waits is not None and waits.life != entry.life:
                del self._changes[waits.life]
            if waits is None and len(self._there) + len(self._next) >= MAX_SERVERS:
                return None
            lives[entry.name] = entry
        else:
            if entry.phase < known.phase or (entry.phase == known.phase and known.addresses):
                return None
            # A later report may contain fewer of its addresses.
            entry = entry.replace(addresses=entry.addresses or known.addresses)
            if entry == known:
                return None
            self._there[entry.name] = entry
        self._changed()
        return entry

    def revive(self, life: bytes) -> None:
        """Forget that a life has ended."""
        self._ended.pop(life, None)

    def following(self, name: str) -> Entry | None:
        """Return the record of the life that follows the ended one under a name, and forget that it waits."""
        return self._next.pop(name, None)

    def _end(self, entry: Entry) -> Entry:
        for lives in (self._there, self._next):
            if entry.name in lives and lives[entry.name].life == entry.life:
                del lives[entry.name]
        self._changed()
        entry = self._ended[entry.life] = entry.replace(addresses=())
        if len(self._ended) > MAX_ENDED:
            oldest = next(iter(self._ended))
            del self._ended[oldest], self._changes[oldest]
        return entry

    def _changed(self) -> None:
        self._ring = None
        self._digest = b""


PIECE = 2048
"""The most bytes of records in one frame, about."""


def pieces(entries: Iterable[bytes]) -> Iterator[tuple[bytes, ...]]:
    """Yield packed records, as many at a time as one frame takes."""
    found: list[bytes] = []
    size = 0
    for data in entries:
        if size + len(data) > PIECE and found:
            yield tuple(found)
            found, size = [], 0
        found.append(data)
        size += len(data)
    if found:
        yield tuple(found)
