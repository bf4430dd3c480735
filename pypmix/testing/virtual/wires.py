"""Connections on virtual time: sent data arrives in order, after a latency."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.python.node import Owner
    from pypmix.testing.virtual.simulation import Simulation

SHORT = 0.01
"""The longest latency of a message between a client and its server, in seconds."""


class Wire:
    """One direction of a connection.

    Data arrives in order, or not at all if the wire is cut. The latencies of different wires are independent.

    Args:
        world: The simulation, for its clock and latencies.
        arrive: Called with data that has arrived; with empty data at the end.
    """

    __slots__ = ("_arrive", "_chunks", "_due", "_over", "_world")

    def __init__(self, world: Simulation, arrive: Callable[[bytes], None]) -> None:
        self._world = world
        self._arrive = arrive
        self._chunks: list[bytes] = []
        self._due = False
        self._over = False

    def send(self, data: bytes) -> None:
        """Send data; empty data is the end."""
        if not self._over:
            self._over = not data
            self._chunks.append(data)
            if not self._due:
                self._due = True
                self._world.later(self._world.pace(SHORT), self._deliver)

    def end(self) -> None:
        """Close the wire after the data that was sent."""
        self.send(b"")

    def cut(self) -> None:
        """Break the wire; data in transit is lost."""
        self._chunks.clear()
        self._over = False
        self.end()

    def _deliver(self) -> None:
        self._due = False
        chunks, self._chunks = self._chunks, []
        data = b"".join(chunks)
        if data:
            self._arrive(data)
        if not chunks[-1]:
            self._arrive(b"")


class End:
    """The server's end of a connection; see `pypmix.engine.python.node.Link`.

    Args:
        world: The simulation, for its clock and latencies.
        send: Sends to the client; empty data is the end.
        uid: The user of the client.
    """

    __slots__ = ("_arrived", "_paused", "_send", "_uid", "_world", "is_client", "owner")

    def __init__(self, world: Simulation, send: Callable[[bytes], None], uid: int | None = None) -> None:
        self._world = world
        self._paused = False
        self._arrived: list[bytes] = []
        self._send = send
        self._uid = os.geteuid() if uid is None else uid
        self.is_client = False
        self.owner: Owner | None = None

    def uid(self) -> int | None:
        """Return the user of the client."""
        return self._uid

    def is_closed(self) -> bool:
        """Return False: the end of the connection arrives as data."""
        return False

    def send(self, data: bytes) -> None:
        """Send to the client."""
        self._send(data)

    def send_now(self, data: bytes) -> None:
        """Send to the client."""
        self._send(data)

    def hold(self, paused: bool) -> None:
        """Stop receiving data, or continue."""
        self._paused = paused
        if not paused and self._arrived:
            self._world.later(0.0, self._deliver)

    def full(self) -> bool:
        """Return False: the connection has no limit for unread data."""
        return False

    def close(self) -> None:
        """Close the connection after the data that was sent."""
        self._send(b"")

    def arrive(self, data: bytes) -> None:
        """Receive data of the client; empty data is the end."""
        self._arrived.append(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._arrived and not self._paused:
            data = self._arrived.pop(0)
            owner = self.owner
            if owner is None:
                continue
            if data:
                owner.received(data)
            else:
                # As with a reactor, no data follows the end.
                self.owner = None
                owner.handle_disconnect()
