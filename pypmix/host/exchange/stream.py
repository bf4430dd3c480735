"""The stream of messages between this server and one process of another server, over one connection after the other.

Theory of operation. A `Connection` is one socket: frames in, frames out, both bounded, encrypted or not. A `Stream` is
what the carrier has of the other server, and survives its connections. It begins with the first message or connection
and ends when the other server has left or is lost.

    ABSENT --a connection is proved--> OPEN --reset--> BROKEN --another one is proved--> OPEN
    any --the other side has closed it, refuses it, is silent, or the time is over--> ended

A reset means that a connection has ended, but not that the other server has: a device between them has forgotten the
connection, such as a firewall or a virtual machine that was moved. So the connection is made again, and the exchange
above does not notice. A server that has closed a connection without a message has ended: it is not dialed again.

Each side counts the messages that have arrived and acknowledges them now and then: after `MANY` or after `MUCH`, and in
each turn of the keep-alive. It keeps sent messages until they are acknowledged, and messages that were sent before
there was any connection as well. Both sides dial, at once: if the other side is dead, the connection is refused at
once. If both dial each other, the connection of the first by name counts. A side that listens at another address than
it dials from, or whose address is translated on the way, is waited for. When a new connection is made, both prove again
that they know the secret, and each sends (`handshake.Progress`):

* the number of the stream: only these two know it, from their first handshake;
* how many messages have arrived: the other side sends the later ones again;
* how often it has dialed: an unfinished handshake no longer counts when a later one is finished.

A side that has not noticed the reset yet first processes the messages that have arrived, and then drops the old
connection. Time ends for both sides after the time of the keep-alive. The side that gives up forgets the stream; the
other side gets that answer when it dials, and then both have lost each other as if it had never been dialed.

Bounds. Only `handshake.MAX_FRAME` bytes are read of a peer that has not proved who it is; a longer frame than the
carrier takes ends the connection. At most `limit` bytes wait for a peer that does not read, or is not reached, and
`MAX_MESSAGE` more for a peer that does not acknowledge.

`Stream.send` may be called on any thread, everything else on the carrier's. A lock orders the two: from its first use
for messages on, a connection has its stream's lock.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from collections import deque

from pypmix.engine.times import KEEP_ALIVE_SECONDS
from pypmix.host.addresses import set_keep_alive
from pypmix.host.exchange.carrier import MAX_MESSAGE
from pypmix.host.exchange.handshake import MAX_FRAME, Progress
from pypmix.standard.errors import RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from pypmix.engine.base import Cancellable as Timer
    from pypmix.host.exchange.handshake import Handshake
    from pypmix.host.exchange.rendezvous import Address
    from pypmix.host.tls import Tunnel

_LENGTH = struct.Struct("!I")
CHUNK = 1 << 18

RECEIVE = 1 << 16
"""Bytes that are read at a time while little arrives: a larger buffer makes each call a pair of mmap and munmap."""

TLS_HELLO = b"\x16"
"""The first byte of a connection that is encrypted."""

CONTROL = 1 << 31
"""The bit of a frame's length that marks a frame of the carriers, which is not a message."""

REPORT = 1 << 30
"""The bit of a frame's length that marks a message of the carriers themselves."""

RESETS = (errno.ECONNRESET, errno.ECONNABORTED)
"""The errors that mean that a connection has ended, but not that its other side has."""

ACKNOWLEDGE = b"\0"
"""The first byte of a frame that acknowledges messages."""

_ACKNOWLEDGED = struct.Struct("!cQ")

MANY = 64
MUCH = 1 << 16
"""The numbers of messages and of bytes after which they are acknowledged."""


class Report(bytes):
    """A message of the carriers themselves that is not acknowledged."""


class Broken(Exception):
    """The connection can no longer be used; the text says why."""


class ConnectionEnd(Broken):
    """The connection has ended without a cause on this side.

    Attributes:
        reset: Whether it was reset.
        refused: Whether it was refused: no process listens there.
        connection: The connection, if another thread has to end it.
    """

    connection: Connection | None = None

    def __init__(self, detail: str, *, reset: bool = False, refused: bool = False) -> None:
        super().__init__(detail)
        self.reset = reset
        self.refused = refused


class Connection:
    """One connection with another server, which carries messages once both sides have proved who they are.

    Args:
        sock: The socket; it belongs to the connection from here on.
        handshake: Its handshake.
        keep_alive: Seconds after which the system ends the connection if nothing is acknowledged.
        encrypt: Whether the connection is encrypted; the side that was dialed follows the other one if it may.
        address: The other side's address.

    Attributes:
        address: The address at which the other side is dialed, or listens.
        stream: Its stream; None until both sides have proved who they are.
        closed: Whether it has ended.
        since: When it began, by `time.monotonic`.
        timer: Ends it if its handshake gets no further.
        watched: The events for which the carrier's loop watches it.
        unsent: How many bytes wait to be sent.
        sent: How many bytes have been sent.
        signs: How many bytes have arrived from the other side, and how many that waited for it have been sent.
        tunnel: Encrypts the connection; None if it is not encrypted.
        lock: Held while bytes are written.
    """

    def __init__(
        self,
        sock: socket.socket,
        handshake: Handshake,
        keep_alive: float = KEEP_ALIVE_SECONDS,
        encrypt: bool = False,
        address: Address = ("", 0),
    ) -> None:
        self.sock = sock
        self.fd = sock.fileno()
        self.address = address
        self.handshake = handshake
        self.dials = self.connecting = dials = handshake.dials
        self.stream: Stream | None = None
        self.closed = False
        self.since = time.monotonic()
        self.timer: Timer | None = None
        self.watched = self.unsent = self.sent = self.signs = 0
        self.tunnel: Tunnel | None = None
        self.lock = threading.Lock()
        self._encrypt = encrypt
        self._began = dials
        self._shut = self._reset = False
        self._out: deque[memoryview] = deque()
        self._in = bytearray()
        self._most = RECEIVE
        if dials and encrypt:
            self._secure()
        sock.setblocking(False)
        self._is_local = sock.family == socket.AF_UNIX
        if not self._is_local:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            set_keep_alive(
                sock,
                TCP_KEEPIDLE=keep_alive / 3,
                TCP_KEEPINTVL=keep_alive / 6,
                TCP_KEEPCNT=4,
                TCP_USER_TIMEOUT=keep_alive * 1000,
            )

    @property
    def peer(self) -> str:
        """The other server's name, empty until it has sent it."""
        return self.handshake.peer

    def send(self, message: bytes) -> bool:
        """Send a frame of the handshake. Return True if bytes are left to `flush`.

        Raises:
            ConnectionEnd: The connection has ended.
        """
        with self.lock:
            return self.write(message)

    def write(self, message: bytes, kind: int = 0) -> bool:
        """Send a frame, or as much as there is room for now; with the lock.

        Args:
            message: The content of the frame.
            kind: `CONTROL` or `REPORT` if it is a frame of the carriers.

        Returns:
            Whether bytes are left to `flush`.

        Raises:
            ConnectionEnd: The connection has ended.
        """
        if self._shut or self.closed:
            return False
        size = len(message)
        if self._out or self.connecting or size >= CHUNK:
            self.queue(message, kind)
            self._write_out()
            return self._waits()
        # Most are short, and find room.
        frame = _LENGTH.pack(size | kind) + message
        count = self._write_piece(frame)
        if count < size + 4:
            self._out.append(memoryview(frame)[count:])
            self.unsent += size + 4 - count
        elif self.tunnel is None:
            return False
        return self._waits()

    def queue(self, message: bytes, kind: int = 0) -> None:
        """Leave a frame to `flush`; with the lock."""
        head = _LENGTH.pack(len(message) | kind)
        # One segment if it is short; no copy if it is long.
        for piece in (head + message,) if len(message) < CHUNK else (head, message):
            self._out.append(memoryview(piece))
            self.unsent += len(piece)

    def flush(self) -> bool:
        """Send waiting bytes. Return True if some are left.

        Raises:
            ConnectionEnd: The connection has ended.
        """
        with self.lock:
            if self.tunnel is not None and not self.closed:
                try:
                    self.tunnel.flush()
                except OSError as error:
                    raise self._make_end(error) from None
            before = self.sent
            self._write_out()
            self.signs += self.sent - before
            return self._waits()

    def _write_out(self) -> None:
        while self._out and not self.closed and not self.connecting:
            piece = self._out[0]
            count = self._write_piece(piece)
            self.unsent -= count
            if count < len(piece):
                self._out[0] = piece[count:]
                return
            self._out.popleft()

    def _write_piece(self, piece: memoryview | bytes) -> int:
        try:
            count = (self.tunnel or self.sock).send(piece)
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as error:
            raise self._make_end(error) from None
        self.sent += count
        return count

    def _waits(self) -> bool:
        """Return True if bytes wait for room in the socket."""
        if self.tunnel is None:
            return bool(self._out)
        return self.tunnel.waiting or (bool(self._out) and (self.tunnel.ready or self.connecting))

    def _secure(self) -> None:
        from pypmix.host.tls import Tunnel

        self.tunnel = Tunnel(self.sock, dials=self.dials)
        self.handshake.binding = self.tunnel.binding

    def _make_end(self, error: OSError) -> ConnectionEnd:
        # No device on the way resets a connection that does not leave the machine.
        self._reset = self._reset or (error.errno in RESETS and not self._is_local)
        found = ConnectionEnd(error.strerror or str(error), reset=self._reset)
        found.connection = self
        return found

    def finish_connecting(self) -> None:
        """Find out whether the connection that this side has begun is made.

        Raises:
            ConnectionEnd: It is not.
        """
        code = self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise ConnectionEnd(os.strerror(code), refused=code == errno.ECONNREFUSED)
        self.connecting = False

    def shut(self) -> None:
        """Shut the sending side down when all has been sent; further messages of the other side can be received."""
        with self.lock:
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
            ConnectionEnd: The connection has ended.
        """
        try:
            if not self._began:
                self._begin()
            most = MAX_FRAME + _LENGTH.size if self.stream is None else self._most
            data = (self.tunnel or self.sock).recv(most)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError as error:
            raise self._make_end(error) from None
        if not data:
            with self.lock:
                # The system reports a reset to one thread; it may have been a thread that was sending.
                raise ConnectionEnd("it has closed the connection", reset=self._reset)
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
        if not 0 < size <= limit or self.closed or self.stream is None or _LENGTH.unpack_from(data)[0] != size:
            return None
        message = bytes(memoryview(data)[4:])
        data.clear()
        self.stream.count(size)
        return message

    def frames(self, limit: int) -> Iterator[tuple[int, bytes]]:
        """Yield the whole frames that have arrived, each after its kind (`CONTROL`, `REPORT` or 0), until it is closed.

        Args:
            limit: How long a message may be; before the other side has proved who it is, `MAX_FRAME` holds.

        Raises:
            Broken: One is longer.
        """
        start = 0
        try:
            while len(self._in) - start >= 4 and not self.closed:
                size = _LENGTH.unpack_from(self._in, start)[0]
                stream = self.stream
                kind = 0 if stream is None else size & (CONTROL | REPORT)
                most = MAX_FRAME if stream is None or kind & CONTROL else limit
                if size - kind > most:
                    raise Broken(f"it announces a message of {size - kind} bytes; the limit is {most}")
                size -= kind
                end = start + 4 + size
                if len(self._in) < end:
                    break
                frame = bytes(memoryview(self._in)[start + 4 : end])
                start = end
                if stream is not None and not kind & CONTROL:
                    stream.count(size)
                elif stream is not None and frame[:1] == ACKNOWLEDGE:
                    stream.take_acknowledgement(frame)
                    continue
                yield kind, frame
        finally:
            del self._in[:start]

    def close(self) -> None:
        """End the connection; with the lock, if other threads may send on it."""
        self.closed = True
        self._out.clear()
        self.unsent = 0
        self.sock.close()
        if self.timer is not None:
            self.timer.cancel()


class Stream:
    """The messages between this server and one process of another one.

    Args:
        name: The other server's name.
        life: The number of its process.
        limit: How many bytes may wait for it.

    Attributes:
        number: The number of the stream, which only its two sides know; empty before its first connection.
        connection: The connection, or None.
        address: The address at which it is dialed to restore the connection; port 0 if it cannot be dialed.
        encrypted: Whether the connection is encrypted.
        ended: Whether the other server has left or is lost.
        dialed: How often this side has dialed to restore the connection.
        size: The number of bytes that are not acknowledged.
        due: Whether arrived messages are to be acknowledged at once.
        seen: The signs of life of the other side at the end of the last turn of the keep-alive.
        silent: For how many turns there was none.
        away: Whether the other side has reported that it will be silent.
    """

    def __init__(self, name: str, life: bytes, limit: int) -> None:
        self.name = name
        self.life = life
        self.number = b""
        self.connection: Connection | None = None
        self.address: Address = ("", 0)
        self.encrypted = False
        self.ended = False
        self.dialed = 0
        self.size = 0
        self.due = False
        self.seen = self.silent = 0
        self.away = False
        self._limit = limit
        self._lock = threading.Lock()
        self._messages: deque[bytes] = deque()
        """The messages that are not acknowledged."""
        self._acknowledged = 0
        """The number of messages that the other side has acknowledged."""
        self._arrived = self._reported = self._unreported = 0
        """The numbers of arrived and of acknowledged messages, and the bytes of those that are not acknowledged."""
        self._taken = 0
        self._signs = 0

    @property
    def connected(self) -> bool:
        """Whether there is a connection."""
        return self.connection is not None

    @property
    def signs(self) -> int:
        """The signs of life of the other side, on all connections."""
        return self._signs + (self.connection.signs if self.connection is not None else 0)

    # Sent messages

    def send(self, message: bytes, kind: int = 0) -> bool:
        """Send a frame, or keep it until there is a connection; from any thread.

        Args:
            message: The message; a frame of the carriers is lost without a connection.
            kind: `CONTROL` for a frame of the carriers, `REPORT` for a message of theirs.

        Returns:
            Whether the carrier has to act: bytes are left to `flush`, or a connection has to be made.

        Raises:
            Broken: The other side reads too slowly, or not at all.
            ConnectionEnd: The connection has ended.
        """
        with self._lock:
            connection = self.connection
            if self.ended:
                return False
            size = len(message)
            if connection is not None and connection.unsent and connection.unsent + size > self._limit:
                raise Broken(f"it does not read what it is sent: {connection.unsent} bytes wait")
            if kind == CONTROL:
                return connection is not None and connection.write(message, kind)
            if self.size and self.size + size > self._limit:
                self._check_room(connection)
            self._messages.append(Report(message) if kind else message)
            self.size += size
            return not self.number if connection is None else connection.write(message, kind)

    def _check_room(self, connection: Connection | None) -> None:
        """Raise if too many messages are kept."""
        if connection is None:
            raise Broken(f"it is not reached, and {self.size} bytes wait")
        late = self.size - len(self._messages[0])
        if self.size > self._limit and late > self._limit + MAX_MESSAGE:
            raise Broken(f"it does not acknowledge what it is sent: {late} bytes are kept")

    @property
    def owes(self) -> bool:
        """Whether the other side has not acknowledged all messages to it."""
        return bool(self._messages)

    def _acknowledge(self, count: int) -> None:
        """Forget the messages that the other side has got, as many as it reports.

        Raises:
            RemoteProtocolError: They have not been sent.
        """
        sent = self._acknowledged + len(self._messages)
        if not self._acknowledged <= count <= sent:
            text = f"{count} messages are acknowledged, of {sent} that were sent and {self._acknowledged} acknowledged"
            raise RemoteProtocolError(text, operation="exchange")
        while self._acknowledged < count:
            self.size -= len(self._messages.popleft())
            self._acknowledged += 1

    def take_acknowledgement(self, frame: bytes) -> None:
        """Process a frame by which the other side acknowledges messages.

        Raises:
            RemoteProtocolError: They have not been sent.
            Broken: It does not parse.
        """
        if len(frame) != _ACKNOWLEDGED.size:
            raise Broken("it acknowledges nothing that can be read")
        with self._lock:
            self._acknowledge(_ACKNOWLEDGED.unpack(frame)[1])

    # Arrived messages

    def count(self, size: int) -> None:
        """Count a message of so many bytes that has arrived."""
        self._arrived += 1
        self._unreported += size
        self.due = self._unreported >= MUCH or self._arrived - self._reported >= MANY

    def acknowledgement(self) -> bytes:
        """Return the frame that acknowledges arrived messages; empty if there is nothing to acknowledge."""
        if self._arrived == self._reported:
            return b""
        return _ACKNOWLEDGED.pack(ACKNOWLEDGE, self._report())

    def _report(self) -> int:
        """Return the number of arrived messages, which the other side knows from here on."""
        self._reported, self._unreported, self.due = self._arrived, 0, False
        return self._arrived

    # Connections

    def progress(self, life: bytes) -> Progress:
        """Return the progress of this side, by which a connection continues the stream.

        Args:
            life: The number of this server's process.
        """
        return Progress(self.number, self.dialed, self._report(), life)

    def is_old(self, theirs: Progress) -> bool:
        """Return True if the other side dialed before the connection was last restored."""
        return theirs.dialed <= self._taken

    def attach(self, connection: Connection) -> None:
        """Use a connection from here on; messages that have not arrived are left to its `flush`.

        Raises:
            RemoteProtocolError: The other side acknowledges messages that were not sent.
        """
        theirs = connection.handshake.theirs
        with self._lock:
            if self.number:
                self._acknowledge(theirs.received)
            self._taken = max(self._taken, theirs.dialed)
            self.number = self.number or connection.handshake.number()
            self.address, self.encrypted = connection.address, connection.tunnel is not None
            for message in self._messages:
                connection.queue(message, REPORT if isinstance(message, Report) else 0)
            connection.lock = self._lock
            connection.stream = self
            self.connection = connection

    def detach(self) -> None:
        """Keep messages from here on: the connection was reset."""
        with self._lock:
            if self.connection is not None:
                self._signs += self.connection.signs
                self.connection.close()
            self.connection = None

    def discard_messages(self) -> None:
        """Forget all messages that have not been acknowledged."""
        with self._lock:
            self._messages.clear()
            self.size = 0

    def end(self) -> None:
        """End the stream and its connection."""
        with self._lock:
            self.ended = True
            if self.connection is not None:
                self.connection.close()
                self.connection = None
