"""A TCP connection between two servers: frames in, frames out, both bounded."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections import deque

from pypmix.engine.times import KEEP_ALIVE_SECONDS
from pypmix.host.exchange.handshake import MAX_FRAME

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pypmix.engine.alarms import Alarm as Timer
    from pypmix.host.exchange.handshake import Handshake
    from pypmix.host.tls import Tunnel

_LENGTH = struct.Struct("!I")
CHUNK = 1 << 18

TLS_HELLO = b"\x16"
"""The first byte of a connection that is encrypted."""

CONTROL = 1 << 31
"""The bit of a frame's length that says that the frame is the carriers' own, and not a message."""


class Broken(Exception):
    """The connection is of no more use; the text says why."""


class Ended(Broken):
    """The connection has ended by itself."""


class Pulse:
    """Signs of life of another server.

    Attributes:
        seen: Its signs of life at the end of the last turn.
        silent: For how many turns it has been silent, if it is watched.
        away: Whether it has said that it will be silent.
    """

    __slots__ = ("away", "seen", "silent")

    def __init__(self) -> None:
        self.seen = 0
        self.silent = 0
        self.away = False


class Link:
    """One connection.

    Args:
        sock: The socket; it belongs to the link from here on.
        handshake: How it begins.
        dials: Whether this side has dialed.
        keep_alive: Seconds after which the system ends the connection if nothing is acknowledged.
        encrypt: Whether the connection is encrypted; the side that was dialed follows the other one if it may.

    Attributes:
        open: Whether both sides have proved who they are.
        closed: Whether it is over.
        since: When it began, by `time.monotonic`.
        timer: What ends it if it gets no further.
        unsent: How many bytes wait to be sent.
        sent: How many bytes have been sent.
        signs: How many bytes have come from the other side, and how many that waited for it have been sent.
        pulse: What is known of the other side's life.
        control: Told the frames that are the carriers' own.
        tunnel: What encrypts the connection; None if it is not encrypted.
    """

    def __init__(
        self,
        sock: socket.socket,
        handshake: Handshake,
        *,
        dials: bool,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        encrypt: bool = False,
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.handshake = handshake
        self.dials = dials
        self.connecting = dials
        self.open = False
        self.closed = False
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
        self._lock = threading.Lock()
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        if dials and encrypt:
            self._secure()
        sock.setblocking(False)
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
        """The other server's name, empty while it has not said it."""
        return self.handshake.peer

    def send(self, message: bytes, limit: int, control: int = 0) -> bool:
        """Send a frame, or as much as there is room for now; from any thread.

        Args:
            message: What is in it.
            limit: How many bytes may wait.
            control: `CONTROL` if the frame is the carriers' own.

        Returns:
            Whether something is left to `flush`.

        Raises:
            Broken: The other side reads too slowly, or not at all.
            Ended: The connection has ended.
        """
        with self._lock:
            if self.closed or self._shut:
                return False
            if self.unsent and self.unsent + len(message) > limit:
                raise Broken(f"it does not read what it is sent: {self.unsent} bytes wait")
            head = _LENGTH.pack(len(message) | control)
            # What is short goes in one piece, for one segment; what is long is not copied.
            for piece in (head + message,) if len(message) < CHUNK else (head, message):
                rest = memoryview(piece)
                if not self._out and not self.connecting:
                    rest = rest[self._push(rest) :]
                if rest:
                    self._out.append(rest)
                    self.unsent += len(rest)
            return self._waits()

    def flush(self) -> bool:
        """Send what waits; tell whether something is left.

        Raises:
            Ended: The connection has ended.
        """
        with self._lock:
            if self.tunnel is not None and not self.closed:
                try:
                    self.tunnel.flush()
                except OSError as error:
                    raise Ended(error.strerror or str(error)) from None
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
        """Tell whether something waits for room in the socket."""
        if self.tunnel is None:
            return bool(self._out)
        return self.tunnel.waiting or (bool(self._out) and (self.tunnel.ready or self.connecting))

    def _secure(self) -> None:
        from pypmix.host.tls import Tunnel

        self.tunnel = Tunnel(self.sock, dials=self.dials)
        self.handshake.binding = self.tunnel.binding

    def _push(self, piece: memoryview) -> int:
        try:
            count = (self.tunnel or self.sock).send(piece)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise Ended(error.strerror or str(error)) from None
        self.sent += count
        return count

    def finish(self) -> None:
        """Tell the other side, when all has been sent, that nothing more comes; what it still sends can be received."""
        with self._lock:
            if not self.unsent and not self._waits() and not self._shut and not self.closed:
                self._shut = True
                try:
                    self.sock.shutdown(socket.SHUT_WR)
                except OSError:
                    # It has ended already.
                    return

    def receive(self) -> bool:
        """Take in some of what has arrived: little before the other side has proved who it is; tell if it was any.

        Raises:
            Broken: It is to be encrypted, and is not.
            Ended: The connection has ended.
        """
        try:
            if not self._began:
                self._begin()
            data = (self.tunnel or self.sock).recv(CHUNK if self.open else MAX_FRAME + _LENGTH.size)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise Ended(error.strerror or str(error)) from None
        if not data:
            raise Ended("it has closed the connection")
        self._in += data
        self.signs += len(data)
        return True

    def _begin(self) -> None:
        """See from the first byte whether the other side encrypts: a frame's length begins with another one."""
        first = self.sock.recv(1, socket.MSG_PEEK)
        self._began = True
        if first == TLS_HELLO:
            self._secure()
        elif first and self._encrypt:
            raise Broken("it does not encrypt")

    def frames(self, limit: int) -> Iterator[bytes]:
        """Yield the frames that are there whole; ends when the link is closed.

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
                    self.control(frame)
                else:
                    yield frame
        finally:
            del self._in[:start]

    def close(self) -> None:
        """End the connection."""
        with self._lock:
            self.closed = True
            self._out.clear()
            self.unsent = 0
            self.sock.close()
        if self.timer is not None:
            self.timer.cancel()
