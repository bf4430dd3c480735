"""A TCP connection between two servers: frames in, frames out, both bounded."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections import deque

from pypmix.engine.times import KEEP_ALIVE_SECONDS
from pypmix.host.exchange.carrier import MAX_MESSAGE
from pypmix.host.exchange.handshake import MAX_FRAME
from pypmix.host.exchange.journal import Journal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pypmix.host.exchange.handshake import Handshake
    from pypmix.host.exchange.rendezvous import Address
    from pypmix.host.loop import Cancellable as Timer
    from pypmix.host.tls import Tunnel

_LENGTH = struct.Struct("!I")
CHUNK = 1 << 18

RECEIVE = 1 << 16
"""Bytes that are read at a time while little arrives: a larger buffer makes each call a pair of mmap and munmap."""

TLS_HELLO = b"\x16"
"""The first byte of a connection that is encrypted."""

CONTROL = 1 << 31
"""The bit of a frame's length that marks a frame of the carriers, which is not a message."""


RESETS = (errno.ECONNRESET, errno.ECONNABORTED)
"""The errors that mean that a connection has ended, but not that its other side has."""

ACKNOWLEDGE = b"\0"
"""The first byte of a frame that acknowledges messages."""

_ACKNOWLEDGED = struct.Struct("!cQ")


class Broken(Exception):
    """The connection can no longer be used; the text says why."""


class Ended(Broken):
    """The connection has ended without a cause on this side.

    Attributes:
        reset: Whether it was reset.
        refused: Whether it was refused: no process listens there.
        closed: Whether the other side has closed it, as the system does when a process ends.
    """

    def __init__(self, detail: str, *, reset: bool = False, refused: bool = False, closed: bool = False) -> None:
        super().__init__(detail)
        self.reset = reset
        self.refused = refused
        self.closed = closed

    @classmethod
    def by(cls, code: int) -> Ended:
        """Return the end by an error of the system."""
        return cls(os.strerror(code), refused=code == errno.ECONNREFUSED)


class Pulse:
    """Signs of life of another server.

    Attributes:
        seen: Its signs of life at the end of the last turn.
        silent: For how many turns it has been silent, if it is watched.
        away: Whether it has reported that it will be silent.
        asked: The servers that have asked if it is present, and get an answer.
        vouched: Whether another server vouches for it since it is silent here.
    """

    __slots__ = ("asked", "away", "seen", "silent", "vouched")

    def __init__(self) -> None:
        self.seen = 0
        self.silent = 0
        self.away = False
        self.asked: set[str] = set()
        self.vouched = False


class Link:
    """One connection.

    It is open once both sides have proved who they are. A connection that was reset, or let go, is closed and has a
    journal: it keeps its messages until another one takes its place (`heir`), which sends them.

    Args:
        sock: The socket; it belongs to the link from here on.
        handshake: Its handshake.
        dials: Whether this side has dialed.
        keep_alive: Seconds after which the system ends the connection if nothing is acknowledged.
        encrypt: Whether the connection is encrypted; the side that was dialed follows the other one if it may.
        address: The other side's address.

    Attributes:
        address: The address at which the other side is dialed, or listens.
        open: Whether both sides have proved who they are.
        closed: Whether it has ended.
        asleep: Whether it was let go, and is not being restored.
        idle: For how many turns of the keep-alive no message has passed.
        moved: How many messages had passed at the end of the last turn.
        told: The last change of servers that the other side knows (`roll`); -1 until both have compared.
        journal: The data to restore it; None while it is not open, and after its final end.
        heir: The connection that has taken its place.
        since: When it began, by `time.monotonic`.
        timer: Ends it if it gets no further.
        unsent: How many bytes wait to be sent.
        sent: How many bytes have been sent.
        signs: How many bytes have arrived from the other side, and how many that waited for it have been sent.
        pulse: The signs of life of the other side.
        control: Called with the frames of the carriers.
        tunnel: Encrypts the connection; None if it is not encrypted.
    """

    def __init__(
        self,
        sock: socket.socket,
        handshake: Handshake,
        *,
        dials: bool,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        encrypt: bool = False,
        address: Address = ("", 0),
    ) -> None:
        self.sock = sock
        self.address = address
        self.fd = sock.fileno()
        self.handshake = handshake
        self.dials = dials
        self.connecting = dials
        self.open = False
        self.closed = False
        self.asleep = False
        self.idle = 0
        self.moved = 0
        self.told = -1
        self.journal: Journal | None = None
        self.heir: Link | None = None
        self.watched = 0
        self.since = time.monotonic()
        self.timer: Timer | None = None
        self.unsent = 0
        self.sent = 0
        self.signs = 0
        self.pulse = Pulse()
        self.control: Callable[[bytes], None] = lambda _data: None
        self.tunnel: Tunnel | None = None
        self._encrypt = encrypt
        self._began = dials
        self._shut = False
        self._reset = False
        self._lock = threading.Lock()
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._most = RECEIVE
        if dials and encrypt:
            self._secure()
        sock.setblocking(False)
        self._set_options(keep_alive)

    def _set_options(self, keep_alive: float) -> None:
        sock = self.sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", keep_alive / 3),
            ("TCP_KEEPINTVL", keep_alive / 6),
            ("TCP_KEEPCNT", 4),
            ("TCP_USER_TIMEOUT", keep_alive * 1000),
        ):
            if hasattr(socket, option):
                # The system takes whole seconds, and at most 32767 of them.
                most = 1 << 30 if option == "TCP_USER_TIMEOUT" else 32767
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), max(1, min(int(value), most)))

    @property
    def peer(self) -> str:
        """The other server's name, empty until it has sent it."""
        return self.handshake.peer

    @property
    def owes(self) -> bool:
        """Whether the other side has not acknowledged all messages to it."""
        return self.journal is not None and not self.journal.acknowledged

    def begin(self) -> None:
        """Both sides have proved who they are."""
        self.open = True
        self.journal = Journal(self.handshake.link())

    def send(self, message: bytes, limit: int, control: int = 0) -> bool | None:
        """Send a frame, or as much as there is room for now; from any thread.

        Args:
            message: The content of the frame.
            limit: How many bytes may wait.
            control: `CONTROL` if it is a frame of the carriers.

        Returns:
            Whether bytes are left to `flush`; None if another connection has taken its place, which has to send it.

        Raises:
            Broken: The other side reads too slowly, or not at all.
            Ended: The connection has ended.
        """
        with self._lock:
            if self.heir is not None:
                return None
            journal = self.journal
            if self._shut or (self.closed and journal is None):
                return False
            if self.unsent and self.unsent + len(message) > limit:
                raise Broken(f"it does not read what it is sent: {self.unsent} bytes wait")
            if journal is not None and not control:
                if journal.size > limit and journal.late > limit + MAX_MESSAGE:
                    raise Broken(f"it does not acknowledge what it is sent: {journal.late} bytes are kept")
                journal.sent(message)
            if self.closed:
                self.unsent += 0 if control else len(message)
                return False
            if not self._out and not self.connecting and self.tunnel is None and len(message) < CHUNK:
                # Most are short, and find room.
                frame = _LENGTH.pack(len(message) | control) + message
                sent = self._push(frame)
                if sent == len(frame):
                    return False
                self._out.append(memoryview(frame)[sent:])
                self.unsent += len(frame) - sent
                return True
            for piece in _pieces(message, control):
                rest = piece
                if not self._out and not self.connecting:
                    rest = rest[self._push(rest) :]
                if rest:
                    self._out.append(rest)
                    self.unsent += len(rest)
            return self._waits()

    def suspend(self, asleep: bool = False) -> None:
        """Keep messages from here on: the connection was reset, or is let go."""
        with self._lock:
            self._close()
            self.asleep = asleep
            self.unsent = self.journal.size if self.journal is not None else 0

    def hand_over(self, heir: Link) -> Journal:
        """Let another connection send the messages of this one, from here on."""
        with self._lock:
            assert self.journal is not None
            journal = self.journal
            journal.resume(heir.handshake.theirs)
            self.journal = None
            self.heir = heir
            return journal

    def replace(self, other: Link) -> None:
        """Take the place of a connection that was reset; messages that its other side has not got are left to `flush`.

        Raises:
            RemoteProtocolError: The other side acknowledges messages that were not sent.
        """
        with self._lock:
            self.journal = journal = other.hand_over(self)
            self.pulse = other.pulse
            for message in journal.unacknowledged():
                for piece in _pieces(message, 0):
                    self._out.append(piece)
                    self.unsent += len(piece)
            self.open = True

    def flush(self) -> bool:
        """Send waiting bytes. Return True if some are left.

        Raises:
            Ended: The connection has ended.
        """
        with self._lock:
            if self.tunnel is not None and not self.closed:
                try:
                    self.tunnel.flush()
                except OSError as error:
                    raise self._ended(error) from None
            while self._out and not self.closed:
                piece = self._out[0]
                count = self._push(piece)
                self.unsent -= count
                self.signs += count
                if count < len(piece):
                    self._out[0] = piece[count:]
                    break
                self._out.popleft()
            return self._waits()

    def _waits(self) -> bool:
        """Return True if bytes wait for room in the socket."""
        if self.tunnel is None:
            return bool(self._out)
        return self.tunnel.waiting or (bool(self._out) and (self.tunnel.ready or self.connecting))

    def _secure(self) -> None:
        from pypmix.host.tls import Tunnel

        self.tunnel = Tunnel(self.sock, dials=self.dials)
        self.handshake.binding = self.tunnel.binding

    def _push(self, piece: memoryview | bytes) -> int:
        try:
            count = (self.tunnel or self.sock).send(piece)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self._ended(error) from None
        self.sent += count
        return count

    def _ended(self, error: OSError) -> Ended:
        self._reset = self._reset or error.errno in RESETS
        return Ended(error.strerror or str(error), reset=self._reset)

    def acknowledgement(self) -> bytes:
        """Return the frame that acknowledges arrived messages; empty if there is nothing to acknowledge."""
        count = self.journal.acknowledgement() if self.journal is not None else None
        return b"" if count is None else _ACKNOWLEDGED.pack(ACKNOWLEDGE, count)

    def finish(self) -> None:
        """Shut the sending side down when all has been sent; further messages of the other side can be received."""
        with self._lock:
            if not self.unsent and not self._waits() and not self._shut and not self.closed:
                self._shut = True
                try:
                    self.sock.shutdown(socket.SHUT_WR)
                except OSError:
                    # It has ended already.
                    return

    def receive(self) -> bool:
        """Read some of the bytes that have arrived: little before the other side has proved who it is.

        Returns:
            Whether any bytes have arrived.

        Raises:
            Broken: It has to be encrypted, and is not.
            Ended: The connection has ended.
        """
        try:
            if not self._began:
                self._begin()
            data = (self.tunnel or self.sock).recv(self._most if self.open else MAX_FRAME + _LENGTH.size)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise self._ended(error) from None
        if not data:
            with self._lock:
                # The system reports a reset to one thread; it may have been a thread that was sending.
                raise Ended("it has closed the connection", reset=self._reset, closed=not self._reset)
        self._most = RECEIVE if len(data) < RECEIVE else CHUNK
        self._in += data
        self.signs += len(data)
        return True

    def _begin(self) -> None:
        """Find out from the first byte if the other side encrypts: a frame's length begins with another one."""
        first = self.sock.recv(1, socket.MSG_PEEK)
        self._began = True
        if first == TLS_HELLO:
            self._secure()
        elif first and self._encrypt:
            raise Broken("it does not encrypt")

    def message(self, limit: int) -> bytes | None:
        """Return the message that has arrived if it is the only one and whole, as most are; `frames` has all others."""
        data = self._in
        size = len(data) - 4
        if not 0 < size <= limit or self.closed or self.journal is None or _LENGTH.unpack_from(data)[0] != size:
            return None
        message = bytes(memoryview(data)[4:])
        data.clear()
        self.journal.received(size)
        return message

    def frames(self, limit: int) -> Iterator[bytes]:
        """Yield the whole frames that have arrived; ends when the link is closed.

        Args:
            limit: How long one may be while the link is open; before, `handshake.MAX_FRAME` holds.

        Raises:
            Broken: One is longer.
        """
        start = 0
        try:
            while len(self._in) - start >= 4 and not self.closed:
                size = _LENGTH.unpack_from(self._in, start)[0]
                most = limit if self.open else MAX_FRAME
                control = size > most and self.open and CONTROL <= size <= CONTROL + MAX_FRAME
                if control:
                    size -= CONTROL
                elif size > most:
                    raise Broken(f"it announces a message of {size} bytes; the limit is {most}")
                end = start + 4 + size
                if len(self._in) < end:
                    break
                frame = bytes(memoryview(self._in)[start + 4 : end])
                start = end
                if control:
                    self._control(frame)
                    continue
                if self.journal is not None:
                    self.journal.received(size)
                yield frame
        finally:
            del self._in[:start]

    def _control(self, frame: bytes) -> None:
        if frame[:1] != ACKNOWLEDGE:
            self.control(frame)
            return
        if len(frame) != _ACKNOWLEDGED.size:
            raise Broken("it acknowledges nothing that can be read")
        with self._lock:
            if self.journal is not None:
                self.journal.acknowledge(_ACKNOWLEDGED.unpack(frame)[1])

    def _close(self) -> None:
        self.closed = True
        self._out.clear()
        self.unsent = 0
        self.sock.close()

    def close(self) -> None:
        """End the connection for good."""
        with self._lock:
            self._close()
            self.journal = None
        if self.timer is not None:
            self.timer.cancel()


def _pieces(message: bytes, control: int) -> tuple[memoryview, ...]:
    """Return a frame: in one piece, for one segment, if it is short; without a copy if it is long."""
    head = _LENGTH.pack(len(message) | control)
    if len(message) < CHUNK:
        return (memoryview(head + message),)
    return memoryview(head), memoryview(message)
