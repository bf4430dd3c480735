"""The record of a connection, by which it is made again after a reset, with nothing lost and nothing twice.

Theory of operation. A reset says that the connection is over, not that the other server is: something on the way has
forgotten it, as a firewall or a virtual machine that was moved. So the connection is made again, and the exchange above
hears nothing of it. A server that has closed a connection without a word has ended: it is not dialed again.

    open --reset--> broken --a new connection for this journal--> open
    broken --it is refused there, or the other server does not know the journal, or time is over--> lost

Each side counts the messages that have come and acknowledges them now and then: after `MANY` or after `MUCH`, and in
each turn of the keep-alive. It keeps those that it has sent until they are acknowledged. Both sides dial, at once: one
whose other side is dead is refused at once. Of two that dial each other, the connection of the first by name counts. A
side that listens at another address than it dials from, or whose address is translated on the way, is waited for. When
a new connection is made, both prove again that they know the secret, and each says (`Progress`):

* which connection it goes on with: a number that only these two know, made of their first handshake;
* how many messages have come: what the other one has sent after these, it sends again;
* how often it has dialed. A handshake that was under way when a later one was done counts no more.

A side that has not noticed the reset yet takes in first what has arrived, and then gives the old connection up.

Time ends for both sides after that of the keep-alive. The one that gives up forgets the journal; the other one is told
so when it dials, and both have lost each other as if it had never been dialed. All of this happens on the carrier's
thread, but for `sent`, which is called under the lock of the connection.
"""

from __future__ import annotations

from collections import deque

from pypmix.host.exchange.handshake import Progress
from pypmix.standard.errors import RemoteProtocolError

MANY = 64
MUCH = 1 << 16
"""After how many messages, or bytes, these are acknowledged."""


class Journal:
    """Messages that were sent and are not acknowledged, and how many have come.

    Args:
        link: The number of the connection.

    Attributes:
        size: How many bytes are kept.
        dialed: How often this side has dialed to make the connection again.
    """

    __slots__ = ("_base", "_kept", "_link", "_received", "_taken", "_told", "_untold", "dialed", "size")

    def __init__(self, link: bytes) -> None:
        self.size = 0
        self.dialed = 0
        self._link = link
        self._taken = 0
        self._kept: deque[bytes] = deque()
        self._base = 0
        self._received = 0
        self._told = 0
        self._untold = 0

    # What this side sends

    def sent(self, message: bytes) -> None:
        """Keep a message until it is acknowledged."""
        self._kept.append(message)
        self.size += len(message)

    @property
    def late(self) -> int:
        """The number of bytes that are kept and were sent after the oldest message that is kept."""
        return self.size - len(self._kept[0]) if self._kept else 0

    @property
    def moved(self) -> int:
        """The number of messages that have been sent and have come."""
        return self._base + len(self._kept) + self._received

    @property
    def acknowledged(self) -> bool:
        """Whether the other side has acknowledged all that was sent."""
        return not self._kept

    @property
    def settled(self) -> bool:
        """Whether each side has acknowledged all that has come."""
        return not self._kept and self._told == self._received

    def acknowledge(self, count: int) -> None:
        """The other side has got so many messages in all.

        Raises:
            RemoteProtocolError: They have not been sent.
        """
        if not self._base <= count <= self._base + len(self._kept):
            sent = self._base + len(self._kept)
            text = (
                f"{count} messages are acknowledged, of {sent} that were sent and {self._base} that were acknowledged"
            )
            raise RemoteProtocolError(text, operation="exchange")
        while self._base < count:
            self.size -= len(self._kept.popleft())
            self._base += 1

    def unacknowledged(self) -> tuple[bytes, ...]:
        """Return what is to be sent again, in its order."""
        return tuple(self._kept)

    # What comes

    def received(self, size: int) -> None:
        """A message of so many bytes has come."""
        self._received += 1
        self._untold += size

    def due(self) -> bool:
        """Tell whether what has come is to be acknowledged at once."""
        return self._untold >= MUCH or self._received - self._told >= MANY

    def acknowledgement(self) -> int | None:
        """Return how many messages have come, to be told to the other side; None if it knows."""
        if self._received == self._told:
            return None
        self._told, self._untold = self._received, 0
        return self._received

    # The connection is made again

    def is_of(self, theirs: Progress) -> bool:
        """Tell whether the other side means the connection of this journal."""
        return theirs.link == self._link

    def is_old(self, theirs: Progress) -> bool:
        """Tell whether the other side has dialed this before the connection was made again."""
        return theirs.dialed <= self._taken

    def progress(self) -> Progress:
        """Return how far this side is."""
        self._told, self._untold = self._received, 0
        return Progress(self._link, self.dialed, self._received)

    def resume(self, theirs: Progress) -> None:
        """A new connection is there, by which the other side has said how far it is.

        Raises:
            RemoteProtocolError: It cannot be so far.
        """
        self.acknowledge(theirs.received)
        self._taken = max(self._taken, theirs.dialed)
