"""The record of a connection, by which it is restored after a reset, without a message lost or repeated.

Theory of operation. A reset means that the connection has ended, but not that the other server has: a device between
them has forgotten the connection, such as a firewall or a virtual machine that was moved. So the connection is made
again, and the exchange above does not notice. A server that has closed a connection without a message has ended: it is
not dialed again.

    open --reset--> broken --a new connection for this journal--> open
    broken --it is refused there, or the other server does not know the journal, or the time is over--> lost

Each side counts the messages that have arrived and acknowledges them now and then: after `MANY` or after `MUCH`, and in
each turn of the keep-alive. It keeps sent messages until they are acknowledged. Both sides dial, at once: if the other
side is dead, the connection is refused at once. If both dial each other, the connection of the first by name counts. A
side that listens at another address than it dials from, or whose address is translated on the way, is waited for. When
a new connection is made, both prove again that they know the secret, and each sends (`Progress`):

* the number of the connection to continue: only these two know it, from their first handshake;
* how many messages have arrived: the other side sends the later ones again;
* how often it has dialed: an unfinished handshake no longer counts when a later one is finished.

A side that has not noticed the reset yet first processes the messages that have arrived, and then drops the old
connection.

Time ends for both sides after the time of the keep-alive. The side that gives up forgets the journal; the other side
gets that answer when it dials, and then both have lost each other as if it had never been dialed. All of this happens
on the carrier's thread, but for `sent`, which is called under the lock of the connection.
"""

from __future__ import annotations

from collections import deque

from pypmix.host.exchange.handshake import Progress
from pypmix.standard.errors import RemoteProtocolError

MANY = 64
MUCH = 1 << 16
"""The numbers of messages and of bytes after which they are acknowledged."""


class Journal:
    """The sent messages that are not acknowledged, and the number of arrived ones.

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

    # Sent messages

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
        """The number of messages that have been sent or have arrived."""
        return self._base + len(self._kept) + self._received

    @property
    def acknowledged(self) -> bool:
        """Whether the other side has acknowledged all sent messages."""
        return not self._kept

    @property
    def settled(self) -> bool:
        """Whether each side has acknowledged all messages that have arrived."""
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
        """Return the messages to send again, in their order."""
        return tuple(self._kept)

    # Arrived messages

    def received(self, size: int) -> None:
        """Count a message of so many bytes that has arrived."""
        self._received += 1
        self._untold += size

    def due(self) -> bool:
        """Return True if arrived messages are to be acknowledged at once."""
        return self._untold >= MUCH or self._received - self._told >= MANY

    def acknowledgement(self) -> int | None:
        """Return how many messages have arrived, for the other side; None if it knows."""
        if self._received == self._told:
            return None
        self._told, self._untold = self._received, 0
        return self._received

    # Restoring the connection

    def is_of(self, theirs: Progress) -> bool:
        """Return True if the other side means the connection of this journal."""
        return theirs.link == self._link

    def is_old(self, theirs: Progress) -> bool:
        """Return True if the other side dialed before the connection was last restored."""
        return theirs.dialed <= self._taken

    def progress(self) -> Progress:
        """Return how many messages have arrived, with the number of the connection."""
        self._told, self._untold = self._received, 0
        return Progress(self._link, self.dialed, self._received)

    def resume(self, theirs: Progress) -> None:
        """Use a new connection, for which the other side has sent its progress.

        Raises:
            RemoteProtocolError: Its progress is not possible.
        """
        self.acknowledge(theirs.received)
        self._taken = max(self._taken, theirs.dialed)
