"""Large data of a fence, which its servers send each other instead of to the coordinator and back.

Theory of operation
-------------------
The coordinator of a fence that collects data sends the data of all to each server right below it, and these to the
servers below them: with 1 MB of each of 8 servers the first one sends 56 MB. So a server with large data (`is_much`)
keeps it, and contributes its size. The decision contains the servers that take part and how much each has kept
(`kinds.Spread`); the fence ends on a server when it has the data of all.

The servers form a circle, in the order of their names. Each has only its own data to begin with. In the steps 1, 2, 4,
... a server sends its data of as many places, itself the first, to the server so many places before it: so after each
step it has the data of twice as many. Every server sends and gets the data of each other one once, in as many steps as
the number of servers has binary digits. A step begins when its data is present, without requests, and nothing is
kept longer than the fence lasts. Data that arrives before the decision waits for it (`Participant._take`).

A fence that has succeeded has the data of all: nothing is fetched later. The Standard requires that (`COLLECT_DATA`
makes data locally available, and a get that asks only its server has to find it), and a loss after the fence loses no
data. Data that few will read is not collected: a get asks the proc's server then.

A lost server ends a fence. In this phase it may have left because the fence has ended for it and it has sent all its
data, since no message of a lost server arrives after the report of its loss. So the fence ends at once if any of its
data is missing, and otherwise if it has not ended after `DECISION_SECONDS`. A server that ends it without having sent
all reports that to the servers that wait for its data (`VOID`), and so does a server that had ended it before the
decision arrived.

All of this happens in turns of the exchange.
"""

from __future__ import annotations

from pypmix.host.exchange.codec import BYTES, NUMBER, STATUS, TEXT, TEXTS, Field, message
from pypmix.host.exchange.limits import KEPT_BYTES, PIECE_BYTES, SPREAD_BYTES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pypmix.host.exchange.exchange import Exchange
    from pypmix.host.exchange.kinds import Spread

    Name = tuple[int, str, str, int]
    """A collective's kind and name, the server that has decided it, and that server's number for it."""

DATA = "pypmix.collective.data"
VOID = "pypmix.collective.void"

_NAME: Field[Name] = message(NUMBER, TEXT, TEXT, NUMBER)

PIECE: Field[tuple[Name, int, bytes]] = message(_NAME, NUMBER, BYTES)
"""A collective, the step, and data."""

VOIDED: Field[tuple[Name, int, str, tuple[str, ...]]] = message(_NAME, STATUS, TEXT, TEXTS)
"""A collective, the status with which it has ended, its detail, and the servers that are the cause."""


def is_much(size: int, servers: int) -> bool:
    """Return True if a server keeps data of this size for so many servers."""
    return servers > 1 and size >= KEPT_BYTES and size * servers >= SPREAD_BYTES


def pieces(blobs: Iterable[bytes]) -> Iterator[bytes]:
    """Yield data in messages of `PIECE_BYTES`."""
    waiting: list[bytes] = []
    size = 0
    for blob in blobs:
        for at in range(0, len(blob), PIECE_BYTES):
            piece = blob[at : at + PIECE_BYTES]
            if size + len(piece) > PIECE_BYTES:
                yield b"".join(waiting)
                waiting, size = [], 0
            waiting.append(piece)
            size += len(piece)
    if waiting:
        yield b"".join(waiting)


class Spreading:
    """The data of one collective at one of its servers.

    Args:
        session: The exchange.
        kind: The kind of the collective.
        name: Its name.
        spread: The servers and the sizes of their data.
        kept: The data of this server.

    Attributes:
        name: The identity of the collective.
    """

    def __init__(self, session: Exchange, kind: int, name: str, spread: Spread, kept: bytes) -> None:
        self.name: Name = kind, name, spread.root, spread.number
        self._session = session
        by_place = tuple(spread.sizes)
        self._names = [server for server, _ in by_place]
        self._place = self._names.index(session.name)
        count = len(self._names)
        self._sizes = [by_place[(self._place + far) % count][1] for far in range(count)]
        """The bytes of each server, by its distance from this one; and below, the data that has arrived."""
        self._blobs: list[bytes | None] = [None if size else b"" for size in self._sizes]
        self._blobs[0] = kept
        self._steps = [1 << power for power in range((count - 1).bit_length())]
        """The steps in which this server has not sent yet."""
        self._came: dict[int, list[bytes]] = {}
        self._lacking = {step for step in self._steps if any(self._sizes[far] for far in self._span(step, step))}
        """The steps of others of which data has not arrived."""

    def _span(self, step: int, first: int) -> range:
        """Return the distances, from one on, of the servers whose data is sent in a step."""
        return range(first, first + min(step, len(self._names) - step))

    def _at(self, far: int) -> str:
        return self._names[(self._place + far) % len(self._names)]

    def go_on(self) -> None:
        """Send the data that is ready."""
        while self._steps:
            step = self._steps[0]
            blobs = [self._blobs[far] for far in self._span(step, 0)]
            found = [blob for blob in blobs if blob is not None]
            if len(found) < len(blobs):
                return
            del self._steps[0]
            for piece in pieces(found):
                self._session.tell_others(DATA, PIECE.write((self.name, step, piece)), self._at(-step))

    def take(self, sender: str, step: int, piece: bytes) -> bool:
        """Add data that a server has sent. Return False if it does not belong to the fence."""
        if step not in self._lacking or sender != self._at(step):
            return False
        came = self._came.setdefault(step, [])
        came.append(piece)
        span = self._span(step, step)
        lacking = sum([self._sizes[far] for far in span]) - sum(map(len, came))
        if not lacking:
            self._lacking.remove(step)
            data, at = b"".join(self._came.pop(step)), 0
            for far in span:
                self._blobs[far] = data[at : at + self._sizes[far]]
                at += self._sizes[far]
            self.go_on()
        return lacking >= 0

    @property
    def missing_servers(self) -> list[str]:
        """The servers that have not sent all their data for this server."""
        return [self._at(step) for step in sorted(self._lacking)]

    @property
    def data(self) -> bytes | None:
        """The data of all in the order of their names, None while any is missing."""
        if self._lacking:
            return None
        count = len(self._names)
        return b"".join([self._blobs[(index - self._place) % count] or b"" for index in range(count)])

    def give_up(self, status: int, detail: str, servers: Sequence[str]) -> None:
        """End it in another way: stop sending, and report that to the servers that wait for it."""
        steps, self._steps = self._steps, []
        for step in steps:
            if any(self._sizes[far] for far in self._span(step, 0)):
                data = VOIDED.write((self.name, status, detail, tuple(servers)))
                self._session.tell_others(VOID, data, self._at(-step))
