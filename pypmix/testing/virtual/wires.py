"""Connections on virtual time: what is sent arrives in order, some time later."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Protocol

    from pypmix.engine.python.node import Owner

    class Paces(Protocol):
        """A simulation: its clock, and how long things take in it."""

        def later(self, seconds: float, function: Callable[..., None], /) -> None: ...

        def pace(self, most: float, /) -> float: ...


SHORT = 0.01
"""Seconds that a message takes at most between a client and its server."""


class Wire:
    """One direction of a connection.

    What is sent arrives in order, or not at all once it is cut; what is sent over different ones in any order.

    Args:
        world: Whose paces it keeps.
        arrive: Called with what has arrived; with nothing at the end.
    """

    __slots__ = ("_arrive", "_chunks", "_due", "_over", "_world")

    def __init__(self, world: Paces, arrive: Callable[[bytes], None]) -> None:
        self._world = world
        self._arrive = arrive
        self._chunks: list[bytes] = []
        self._due = False
        self._over = False

    def send(self, data: bytes) -> None:
        """Send something; no data is the end."""
        if not self._over:
            self._over = not data
            self._chunks.append(data)
            if not self._due:
                self._due = True
                self._world.later(self._world.pace(SHORT), self._deliver)

    def end(self) -> None:
        """Nothing more is sent."""
        self.send(b"")

    def cut(self) -> None:
        """End it; all that is on its way is lost."""
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
        world: Whose clock it goes by.
        send: Sends to the client; no data is the end.
        uid: The user that the client is.
    """

    __slots__ = ("_arrived", "_held", "_send", "_uid", "_world", "known", "owner")

    def __init__(self, world: Paces, send: Callable[[bytes], None], uid: int | None = None) -> None:
        self._world = world
        self._held = False
        self._arrived: list[bytes] = []
        self._send = send
        self._uid = os.geteuid() if uid is None else uid
        self.known = False
        self.owner: Owner | None = None

    def uid(self) -> int | None:
        """Return the user that the client is."""
        return self._uid

    def ended(self) -> bool:
        """Tell that the client has not closed it."""
        return False

    def send(self, data: bytes) -> None:
        """Send to the client."""
        self._send(data)

    def send_now(self, data: bytes) -> None:
        """Send to the client."""
        self._send(data)

    def hold(self, held: bool) -> None:
        """Take in nothing more, or go on."""
        self._held = held
        if not held and self._arrived:
            self._world.later(0.0, self._deliver)

    def full(self) -> bool:
        """Tell whether so much waits for its reader that it is better not given more: never."""
        return False

    def close(self) -> None:
        """End the connection after what was sent."""
        self._send(b"")

    def arrive(self, data: bytes) -> None:
        """Take in what the client has sent; no data is the end."""
        self._arrived.append(data)
        self._deliver()

    def _deliver(self) -> None:
        while self._arrived and not self._held:
            data = self._arrived.pop(0)
            owner = self.owner
            if owner is None:
                continue
            if data:
                owner.received(data)
            else:
                # As a reactor has it: nothing comes after the end.
                self.owner = None
                owner.lost()
