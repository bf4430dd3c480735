"""A relay between the ranks of a test and their servers, so that the test can act on these links.

Each rank connects to its socket of the relay instead of its server's, with any library. The relay runs on the loop of
the test's host.
"""

from __future__ import annotations

import contextlib
import socket

from pypmix.engine.common import SOCKET_VARIABLE
from pypmix.host.loop import READ, WRITE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.host.loop import HostLoop
    from pypmix.testing.links import Gate, Links

URI = "PMIX_SERVER_URI41"
CHUNK = 65536
SECONDS = 20.0
"""Seconds that a server has to accept a connection."""


class Side:
    """One end of a connection.

    Args:
        loop: The loop.
        sock: The socket.
        gate: The gate for the bytes that are read.
    """

    def __init__(self, loop: HostLoop, sock: socket.socket, gate: Gate) -> None:
        sock.setblocking(False)
        self.open = True
        self._loop = loop
        self._sock = sock
        self._fd = sock.fileno()
        self._gate = gate
        self._backlog = bytearray()
        self._reading = True
        self._closed = False
        self._watched = 0
        self.other: Side
        self._watch()

    def _watch(self) -> None:
        events = (READ if self._reading else 0) | (WRITE if self._backlog else 0)
        if not self.open or events == self._watched:
            return
        if self._watched:
            self._loop.unwatch(self._fd)
        if events:
            self._loop.watch(self._fd, events, self._happened)
        self._watched = events

    def _happened(self) -> None:
        if self._backlog:
            self._write()
        if self._reading and self.open:
            self._read()

    def _read(self) -> None:
        try:
            data = self._sock.recv(CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._reading = False
            self._watch()
        self._gate.add(lambda: self.other.send(data))

    def send(self, data: bytes) -> None:
        """Write data; empty data closes the direction."""
        if not self.open:
            return
        self._closed = self._closed or not data
        self._backlog += data
        self._write()

    def _write(self) -> None:
        try:
            if self._backlog:
                del self._backlog[: self._sock.send(self._backlog)]
            if self._closed and not self._backlog:
                self._sock.shutdown(socket.SHUT_WR)
        except BlockingIOError:
            pass
        except OSError:
            # Its process has exited.
            self._closed, self._reading = True, False
            self._backlog.clear()
        self._watch()
        if self.done and self.other.done:
            self.close()
            self.other.close()

    @property
    def done(self) -> bool:
        """Whether both directions are closed."""
        return not self.open or (not self._reading and self._closed and not self._backlog)

    def close(self) -> None:
        """Close the socket; may be called twice."""
        if self.open:
            self.open = False
            if self._watched:
                self._loop.unwatch(self._fd)
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._sock.close()


class Relay:
    """Forwards the connections of ranks to their servers.

    Args:
        loop: The loop.
        links: The links, whose gates all bytes pass.
    """

    def __init__(self, loop: HostLoop, links: Links) -> None:
        self._loop = loop
        self._links = links
        self._listeners: list[socket.socket] = []
        self._sides: dict[int, list[Side]] = {}

    def environment(self, rank: int, env: Mapping[str, str]) -> dict[str, str]:
        """Return the environment of a rank that connects by the relay."""
        name, _, address = env[URI].partition(";")
        beside = env.get(SOCKET_VARIABLE, "").partition(" ")[2]
        port = int(address.rpartition(":")[2])

        def dial() -> socket.socket:
            if not beside:
                return socket.create_connection(("127.0.0.1", port), SECONDS)
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(SECONDS)
            sock.connect(beside)
            return sock

        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        self._listeners.append(listener)
        self._loop.watch(listener.fileno(), READ, lambda: self._accept(rank, listener, dial))
        kept = {key: text for key, text in env.items() if key != SOCKET_VARIABLE}
        return {**kept, URI: f"{name};tcp4://127.0.0.1:{listener.getsockname()[1]}"}

    def _accept(self, rank: int, listener: socket.socket, dial: Callable[[], socket.socket]) -> None:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            server = dial()
        except OSError:
            sock.close()
            return
        up, down = self._links.gates(rank)
        near, far = Side(self._loop, sock, up), Side(self._loop, server, down)
        near.other, far.other = far, near
        kept = [side for side in self._sides.get(rank, []) if side.open]
        self._sides[rank] = [*kept, near, far]

    def cut(self, rank: int) -> None:
        """Close the connections of a rank, at both ends."""
        for side in self._sides.pop(rank, []):
            side.close()

    def close(self) -> None:
        """Close the sockets; the loop must still be open."""
        for rank in list(self._sides):
            self.cut(rank)
        for listener in self._listeners:
            self._loop.unwatch(listener.fileno())
            listener.close()
