"""The framing of messages after the handshake: a header of 16 bytes in network order, then the payload."""

from __future__ import annotations

import struct
from itertools import chain, repeat

from pypmix.standard.errors import LocalProtocolError, RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

HEADER = struct.Struct("!iIII")
"""Index of the peer, tag, bytes of payload, padding."""

LONGEST = 0xFFFFFFFF
"""The longest payload that a header can announce, in bytes."""

MAX_MESSAGE = 32 << 20
"""The most bytes that natives of 6.0 and later accept as the payload of one message."""

MAX_SKIPPED = 1 << 30
"""The longest payload that is skipped; a peer that announces more does not send messages."""

TAG_NOTIFY = 0
TAG_HEARTBEAT = 1
TAG_IOF = 2
TAG_IOF_CONTROL = 3
TAG_DATA_DELETE = 4
TAG_DYNAMIC = 100
"""Requests of a client have tags above this one; the reply carries the tag of its request."""

_TAG_LAST = 0xFFFFFFFF
_unpack_header = HEADER.unpack_from


def tags(last: int = TAG_DYNAMIC) -> Iterator[int]:
    """Yield the tags for a client's requests after a tag, in a cycle without end."""
    every = repeat(range(TAG_DYNAMIC + 1, _TAG_LAST + 1))
    return chain(range(last + 1, _TAG_LAST + 1), chain.from_iterable(every))


def frame(pindex: int, tag: int, payload: bytes) -> bytes:
    """Return the whole frame of one message.

    Args:
        pindex: The index that the handshake gave to this client; 0 on a server.
        tag: One of the fixed tags, or the tag of the request.
        payload: The packed message; may be empty.

    Raises:
        LocalProtocolError: The payload has 4 GiB or more.
    """
    size = len(payload)
    if size > 0xFFFFFFFF:
        raise LocalProtocolError(f"a message of {size} bytes does not fit into one frame")
    return HEADER.pack(pindex, tag, size, 0) + payload


class FrameReader:
    """Cuts a stream of bytes into messages.

    Args:
        limit: The longest payload to accept, in bytes.
        skips: Whether longer requests are skipped, instead of ending the stream with an error.

    Attributes:
        held: The bytes of an incomplete message.
        left: The number of remaining bytes of a skipped message.
        skipped: The lengths of skipped messages by tag; the code that answers a message removes its entry.
    """

    __slots__ = ("_error", "_limit", "_need", "_skips", "held", "left", "skipped")

    def __init__(self, limit: int = MAX_MESSAGE, skips: bool = False) -> None:
        self._limit = limit
        self._skips = skips
        self.left = 0
        self.skipped: dict[int, int] = {}
        self.held = bytearray()
        self._need = 16
        self._error = ""

    @property
    def pending(self) -> int:
        """The number of bytes of an incomplete message."""
        return len(self.held)

    def feed(self, data: bytes) -> list[tuple[int, bytes]]:
        """Add received bytes; return the messages that are complete now, as (tag, payload).

        Raises:
            RemoteProtocolError: A payload is announced beyond the limit. The messages of the same bytes are lost, the
                stream cannot be read any further, and every later call raises again.
        """
        size = len(data)
        if not self.held and not self._error and not self.left and size >= 16:
            _, tag, length, _ = _unpack_header(data)
            if length + 16 == size and length <= self._limit:
                return [(tag, data[16:])]
        return self._feed(data)

    def _feed(self, data: bytes) -> list[tuple[int, bytes]]:
        if self._error:
            raise RemoteProtocolError(self._error, operation="receive")
        if self.left:
            gone = min(self.left, len(data))
            self.left -= gone
            data = data[gone:]
            if not data:
                return []
        held = self.held
        if held:
            held += data
            if len(held) < self._need:
                return []
            view = memoryview(held)
        else:
            view = memoryview(data)
        found: list[tuple[int, bytes]] = []
        size = len(view)
        position = 0
        self._need = 16
        with view:
            while size - position >= 16:
                _, tag, length, _ = _unpack_header(view, position)
                if self._limit < length <= MAX_SKIPPED and self._skips and tag > TAG_DYNAMIC:
                    # It is answered at once, and its bytes are not kept.
                    self.skipped[tag] = length
                    found.append((tag, b""))
                    self.left = length - min(length, size - position - 16)
                    position += 16 + length - self.left
                    continue
                if length > self._limit:
                    self._error = f"a message of {length} bytes is announced; the limit is {self._limit}"
                    self.held = bytearray()
                    raise RemoteProtocolError(self._error, operation="receive")
                end = position + 16 + length
                if end > size:
                    self._need = end - position
                    break
                found.append((tag, bytes(view[position + 16 : end])))
                position = end
            if not held:
                held += view[position:]
                return found
        del held[:position]
        return found
