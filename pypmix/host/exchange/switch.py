"""The carrier of servers that do not reach each other, but all reach one process, their switch.

Each server has one stream of bytes to the switch and from it, such as a socket. The switch passes messages on, and
reports to all servers which servers join and leave: its reports are the same for all. If a stream ends, its server has
left.

A frame on a stream is a kind, a name and data. A server sends its name first (`HELLO`). It gets reports of the present
servers (`HERE`), before any message of theirs, and of servers that leave (`GONE`), after their last message. A message
(`MESSAGE`) has the name of its receiver on the way to the switch, and of its sender from there on.

A slow server delays only the messages to it: while much waits for a server at the switch, the servers that send to it
are not read. So the switch keeps a bounded amount for each. A server that is not read cannot answer: it counts as
silent if it reads nothing either, as two servers may that send to each other.

Time is counted in turns, each an eighth of the time limit, as in `keepalive`. The switch pings each server once in a
turn, which answers; a server that is silent for seven turns is lost. So is the switch for a server that gets nothing
from it. No server reports beforehand that it will be silent: a process that stops itself stops its switch at once.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

from pypmix.engine.faults import fault
from pypmix.engine.times import KEEP_ALIVE_SECONDS, LINK_LINGER_SECONDS
from pypmix.host.addresses import hang_up
from pypmix.host.exchange.carrier import MAX_MESSAGE, check
from pypmix.host.exchange.errors import log
from pypmix.host.exchange.keepalive import LOST, SUSPECTED, TURNS
from pypmix.host.loop import READ, WRITE, Loop
from pypmix.host.naming import check_name, shown
from pypmix.standard.errors import RemoteProtocolError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    from pypmix.host.exchange.carrier import OnChange, OnMessage

    class Stream(Protocol):
        """The stream of a server, at the switch; each method is called on one thread."""

        def read(self) -> bytes:
            """Wait for bytes and return them; empty at the end. Raises an exception if the stream breaks."""

        def write(self, data: bytes) -> None:
            """Pass bytes on, and wait until they are taken. Raises an exception if it breaks."""

        def close(self) -> None:
            """End it; `read` and `write` end then, too. From any thread, and more than once."""

        def release(self) -> None:
            """Free its resources: no method is called after this."""


MAX_BACKLOG = 2 * MAX_MESSAGE
"""The most bytes that may wait at a server for the switch to take them."""

MAX_WAITING = 16 << 20
"""The bytes that wait at the switch for a server, from which on the servers that send to it are not read."""

PIECE = 1 << 20
"""The most bytes that the switch writes to a stream, and that are read from one, at a time."""

HELLO, HERE, GONE, MESSAGE, PING, ANSWER, GOODBYE = range(1, 8)

_HEADER = struct.Struct("!IBB")


def frame(kind: int, name: str = "", data: bytes = b"") -> bytes:
    """Return a frame."""
    called = name.encode("utf-8", "surrogateescape")
    return b"".join((_HEADER.pack(len(data), kind, len(called)), called, data))


class Frames:
    """The frames of a stream of bytes.

    Args:
        longest: The longest data of a frame.
    """

    def __init__(self, longest: int) -> None:
        self._longest = longest
        self._data = bytearray()

    def take(self, piece: bytes) -> Iterator[tuple[int, str, bytes]]:
        """Yield the frames that are complete with these bytes: kind, name and data.

        Raises:
            RemoteProtocolError: The bytes are not a frame.
        """
        data = self._data
        data += piece
        while len(data) >= _HEADER.size:
            size, kind, length = _HEADER.unpack_from(data)
            if size > self._longest or not HELLO <= kind <= GOODBYE:
                raise RemoteProtocolError(f"a frame of kind {kind} and {size} bytes on the way over the switch")
            begin = _HEADER.size + length
            if len(data) < begin + size:
                return
            name = data[_HEADER.size : begin].decode("utf-8", "surrogateescape")
            found = bytes(data[begin : begin + size])
            del data[: begin + size]
            yield kind, name, found


class SwitchCarrier:
    """The `Carrier` of a server that has a stream to a switch; it runs a thread.

    Args:
        name: This server's name.
        connection: The socket that leads to the switch, or to a process that passes its bytes on.
        max_message: The longest message, in bytes.
        max_backlog: How many bytes may wait for the switch before it is given up.
        keep_alive: Seconds after which a silent switch is lost, and with it all other servers.
    """

    def __init__(
        self,
        name: str,
        connection: socket.socket,
        *,
        max_message: int = MAX_MESSAGE,
        max_backlog: int = MAX_BACKLOG,
        keep_alive: float = KEEP_ALIVE_SECONDS,
    ) -> None:
        self.name = check_name(name)
        connection.setblocking(False)
        # Not for child processes.
        os.set_inheritable(connection.fileno(), False)
        self._connection = connection
        self._max_message = max_message
        self._max_backlog = max_backlog
        self._backlog = bytearray()
        self._every = keep_alive / TURNS
        self.keep_alive = keep_alive
        self._present: dict[str, None] = {}
        self._reasons: dict[str, str] = {}
        self._frames = Frames(max_message)
        self._on_message: OnMessage | None = None
        self._on_change: OnChange | None = None
        self._heard = self._ended = False
        self._silent = 0
        self._closing = 0.0
        self._gate = threading.Lock()
        self._watched = 0
        self._loop = Loop()
        self._thread: threading.Thread | None = None

    @property
    def members(self) -> tuple[str, ...]:
        """The names of all servers that are present, sorted."""
        return tuple(sorted((self.name, *self._present.copy())))

    def listen(self, on_message: OnMessage, on_change: OnChange) -> None:
        """Begin to call these, on a thread of the carrier, and report to the switch that this server is present."""
        self._on_message, self._on_change = on_message, on_change
        self._put(frame(HELLO, self.name))
        self._thread = threading.Thread(target=self._run, name=f"pypmix-carrier-{self.name}", daemon=True)
        self._thread.start()

    def send(self, to: str, message: bytes) -> None:
        """Send a message.

        Raises:
            OverflowError: It is longer than this carrier takes.
            ValueError: It is empty.
        """
        check(message, self._max_message)
        if to in self._present:
            self._put(frame(MESSAGE, to, message))

    def reason(self, name: str) -> str:
        """Return why a server has left; empty if it has left in order, or is present."""
        return self._reasons.get(name, "")

    def close(self) -> None:
        """Send the given messages, for a second at most, and leave; waits for it, unless the carrier itself calls."""
        with self._gate:
            closing = bool(self._closing)
            if not closing and self._thread is not None:
                # No frame comes after it, and the carrier's thread does not end before it.
                self._add(frame(GOODBYE))
            self._closing = self._closing or time.monotonic() + LINK_LINGER_SECONDS
            if not closing and self._thread is not None and not self._ended:
                # Only now, since the loop then checks if it has to end.
                self._loop.post(self._linger)
        if not closing and self._thread is None:
            self._end()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    # The carrier's thread

    def _run(self) -> None:
        try:
            self._watch()
            self._loop.later(self._every, self._turn)
            self._loop.run(self._is_finished)
        except BaseException as error:
            fault(f"the carrier of {shown(self.name)}", error)
        finally:
            self._lose("this carrier has ended")
            self._end()

    def _end(self) -> None:
        with self._gate:
            self._ended = True
            self._connection.close()
            self._loop.close()

    def _linger(self) -> None:
        # The loop checks again then if it has to end.
        self._loop.later(LINK_LINGER_SECONDS, lambda: None)

    def _is_finished(self) -> bool:
        return bool(self._closing) and (not self._backlog or time.monotonic() >= self._closing)

    def _put(self, data: bytes) -> None:
        """Send a frame, unless this server leaves; from any thread."""
        with self._gate:
            if not self._closing:
                self._add(data)

    def _add(self, data: bytes) -> None:
        """Send a frame; with the lock."""
        # If too much waits, the switch is about to be given up.
        if self._ended or self._watched < 0 or len(self._backlog) > self._max_backlog:
            return
        self._backlog += data
        if not self._watched & WRITE:
            self._write()
        if len(self._backlog) > self._max_backlog:
            self._loop.post(lambda: self._break(f"the switch does not take {self._max_backlog} bytes"))
        elif self._backlog and not self._watched & WRITE:
            self._loop.post(self._watch)

    def _write(self) -> None:
        """Write as much as possible; with the lock."""
        while self._backlog:
            try:
                written = self._connection.send(self._backlog)
            except OSError:
                # There is no room now, or the reader finds the end.
                return
            del self._backlog[:written]

    def _watch(self) -> None:
        """Wait for room to write while bytes wait to be written."""
        with self._gate:
            if self._ended or self._watched < 0:
                return
            events = READ | WRITE if self._backlog else READ
            if events != self._watched:
                if self._watched:
                    self._loop.unwatch(self._connection.fileno())
                self._watched = events
                self._loop.watch(self._connection.fileno(), events, self._ready)

    def _ready(self) -> None:
        with self._gate:
            self._write()
        self._watch()
        try:
            piece = self._connection.recv(PIECE)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(f"the stream to the switch is broken: {error}")
            return
        if not piece:
            self._break("the switch has gone")
            return
        self._heard = True
        try:
            for kind, name, data in self._frames.take(piece):
                self._take(kind, name, data)
        except RemoteProtocolError as error:
            self._break(str(error))

    def _take(self, kind: int, name: str, data: bytes) -> None:
        if kind == PING:
            self._put(frame(ANSWER))
        elif kind not in (MESSAGE, HERE, GONE) or (kind == HERE and name in self._present):
            raise RemoteProtocolError(f"a frame of kind {kind} about {name!r:.80}, which no switch sends")
        elif self._closing:
            return
        elif kind == MESSAGE and name in self._present:
            self._call(self._on_message, name, data)
        elif kind == HERE:
            self._present[name] = None
            self._reasons.pop(name, None)
            self._call(self._on_change, name, True)
        elif kind == GONE and name in self._present:
            self._leave(name, data.decode(errors="replace"))

    def _leave(self, name: str, reason: str) -> None:
        del self._present[name]
        self._reasons[name] = reason
        if reason:
            log.info("%s: %s has gone: %s", shown(self.name), shown(name), reason)
        self._call(self._on_change, name, False)

    def _turn(self) -> None:
        self._silent = 0 if self._heard else self._silent + 1
        self._heard = False
        if self._silent >= LOST:
            self._break(f"the switch has said nothing for {self._silent * self._every:.3g} s")
        self._loop.later(self._every, self._turn)

    def _break(self, reason: str) -> None:
        """The switch is lost, and with it all other servers."""
        with self._gate:
            if self._watched < 0 or self._ended:
                return
            if self._watched:
                self._loop.unwatch(self._connection.fileno())
            self._watched = -1
            self._backlog.clear()
            # The other end has to notice it, too.
            hang_up(self._connection)
        self._lose(reason)

    def _lose(self, reason: str) -> None:
        for name in list(self._present):
            if self._closing:
                del self._present[name]
            else:
                self._leave(name, reason)

    def _call(self, function: OnMessage | OnChange | None, *args: object) -> None:
        if function is None:
            return
        try:
            function(*args)  # type: ignore[arg-type]
        except Exception:
            log.exception("%s: a callback failed", shown(self.name))


class _Line:
    """A server's stream at the switch.

    Attributes:
        name: The server's name, empty until it has sent it.
        signs: How often it has sent bytes, or taken a whole piece, or any bytes while it was held.
        held: Whether it is not read, since too much waits for a server that it sends to.
        deaf: Whether it no longer takes any bytes.
        gone: Whether it has left or is lost.
    """

    def __init__(self, stream: Stream, gate: threading.Lock) -> None:
        self.stream = stream
        self.name = ""
        self.signs = self.seen = self.silent = 0
        self.held = self.deaf = self.gone = False
        self.backlog = bytearray()
        self.changed = threading.Condition(gate)
        self.writer: threading.Thread | None = None


class Switch:
    """Passes on the messages of servers that each have a stream to it, with two threads for each.

    Args:
        max_message: The longest message, in bytes.
        keep_alive: Seconds after which a server that does not answer is lost.
    """

    def __init__(self, *, max_message: int = MAX_MESSAGE, keep_alive: float = KEEP_ALIVE_SECONDS) -> None:
        self._max_message = max_message
        self._keep_alive = keep_alive
        self._gate = threading.Lock()
        self._lines: list[_Line] = []
        self._by_name: dict[str, _Line] = {}
        self._closed = threading.Event()
        self._turning: threading.Thread | None = None

    def carrier(self, name: str) -> SwitchCarrier:
        """Return the carrier of a server of this process."""
        ours, theirs = socket.socketpair()
        self.attach(SocketStream(ours))
        return SwitchCarrier(name, theirs, max_message=self._max_message, keep_alive=self._keep_alive)

    def attach(self, stream: Stream) -> None:
        """Serve one more server, until its stream ends."""
        line = _Line(stream, self._gate)
        line.writer = threading.Thread(target=self._send_all, args=(line,), name="pypmix-switch", daemon=True)
        with self._gate:
            closed = self._closed.is_set()
            if not closed:
                self._lines.append(line)
                if self._turning is None:
                    self._turning = threading.Thread(target=self._watch_lines, name="pypmix-switch", daemon=True)
                    self._turning.start()
        if closed:
            stream.close()
            stream.release()
            return
        line.writer.start()
        threading.Thread(target=self._read, args=(line,), name="pypmix-switch", daemon=True).start()

    def drop(self, name: str, reason: str) -> None:
        """End the stream of a server that counts as lost."""
        with self._gate:
            line = self._by_name.get(name)
        if line is not None:
            self._lose(line, reason)

    def close(self) -> None:
        """End all streams."""
        with self._gate:
            self._closed.set()
            lines = list(self._lines)
        for line in lines:
            self._lose(line, "")

    def _read(self, line: _Line) -> None:
        frames = Frames(self._max_message)
        reason = "its stream has ended"
        try:
            while not line.gone and (piece := line.stream.read()):
                line.signs += 1
                for kind, name, data in frames.take(piece):
                    self._take(line, kind, name, data)
        except Exception as error:
            # Streams have exceptions of many kinds for a loss.
            lines = str(error).strip().splitlines()
            reason = f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]
        self._lose(line, reason)
        assert line.writer is not None
        line.writer.join()
        line.stream.release()

    def _send_all(self, line: _Line) -> None:
        while True:
            with self._gate:
                line.changed.wait_for(lambda: line.gone or line.backlog)
                if line.gone:
                    return
                piece = bytes(line.backlog[:PIECE])
                del line.backlog[:PIECE]
                line.changed.notify_all()
            try:
                line.stream.write(piece)
            except Exception:
                # It may have left, which its last frames report: the reader finds the end, or nothing.
                with self._gate:
                    line.deaf = True
                    line.backlog.clear()
                    line.changed.notify_all()
                return
            if len(piece) == PIECE or line.held:
                # A small piece may only have been put aside. A held server cannot answer, but takes its pings.
                line.signs += 1

    def _take(self, line: _Line, kind: int, name: str, data: bytes) -> None:
        with self._gate:
            if line.gone:
                return
            if kind == HELLO and not line.name:
                if name in self._by_name:
                    raise RemoteProtocolError(f"there is a server {name:.80} already")
                line.name = check_name(name)
                for other, each in self._by_name.items():
                    self._put(line, frame(HERE, other))
                    self._put(each, frame(HERE, name))
                self._by_name[name] = line
            elif not line.name or kind not in (MESSAGE, ANSWER, GOODBYE) or (kind == MESSAGE and not data):
                raise RemoteProtocolError(f"a frame of kind {kind} and {len(data)} bytes, which no server sends here")
            elif self._by_name.get(line.name) is not line:
                # It has left, and another server may have its name.
                return
            elif kind == MESSAGE:
                to = self._by_name.get(name)
                if to is not None:
                    line.held = True
                    to.changed.wait_for(lambda: len(to.backlog) < MAX_WAITING or to.gone or line.gone)
                    line.held = False
                    # It could not answer in the meantime.
                    line.signs += 1
                    if not line.gone:
                        self._put(to, frame(MESSAGE, line.name, data))
            elif kind == GOODBYE:
                self._remove(line, "")

    @staticmethod
    def _put(line: _Line, data: bytes) -> None:
        if not (line.gone or line.deaf):
            line.backlog += data
            line.changed.notify_all()

    def _lose(self, line: _Line, reason: str) -> None:
        with self._gate:
            self._remove(line, reason)
            line.gone = True
            for each in self._lines:
                each.changed.notify_all()
            if line in self._lines:
                self._lines.remove(line)
        line.stream.close()

    def _remove(self, line: _Line, reason: str) -> None:
        """Remove a server that has left, and report that to the others."""
        if self._by_name.get(line.name) is line:
            del self._by_name[line.name]
            gone = frame(GONE, line.name, reason.encode(errors="replace"))
            for each in self._by_name.values():
                self._put(each, gone)

    def _watch_lines(self) -> None:
        every = self._keep_alive / TURNS
        began = time.monotonic()
        while not self._closed.wait(every):
            stopped, began = time.monotonic() - began > SUSPECTED * every, time.monotonic()
            try:
                self._turn(every, stopped)
            except Exception as error:
                fault("the keep-alive of a switch", error)

    def _turn(self, every: float, stopped: bool) -> None:
        silent = []
        with self._gate:
            for line in self._lines:
                # A switch that was stopped itself has received nothing in the meantime.
                line.silent = line.silent + 1 if line.seen == line.signs and not stopped else 0
                line.seen = line.signs
                if line.silent >= LOST:
                    silent.append(line)
                else:
                    self._put(line, frame(PING))
        for line in silent:
            self._lose(line, f"it has not answered for {line.silent * every:.3g} s")


class SocketStream:
    """The stream of a server over a socket.

    Args:
        connection: The socket.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def read(self) -> bytes:
        """Return the bytes that have arrived; empty at the end."""
        try:
            return self._connection.recv(PIECE)
        except ConnectionResetError:
            return b""

    def write(self, data: bytes) -> None:
        """Pass bytes on."""
        self._connection.sendall(data)

    def close(self) -> None:
        """End both directions, also for threads that wait there."""
        hang_up(self._connection)

    def release(self) -> None:
        """Close the descriptor."""
        self._connection.close()
