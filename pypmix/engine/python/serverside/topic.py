"""What a server does on one topic, as its machine sees it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Pending
    from pypmix.engine.python.server import Peer, Server
    from pypmix.engine.python.serverdata import Namespace, Process


class Topic:
    """Base of all topics: what a topic does not care about, it leaves as it is here.

    Attributes:
        server: The machine.
        handlers: What carries out each command, given the peer that sent it, its tag and the message. A `PMIxError`
            that it raises is answered with its status.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.handlers: dict[int, Callable[[Peer, int, bytes], None]] = {}

    def connected(self, peer: Peer) -> None:
        """A client or tool has been admitted."""

    def disconnected(self, peer: Peer) -> None:
        """A connection has ended; nothing can be sent to it any more."""

    def departed(self, process: Process, lost: bool) -> None:
        """A proc has finalized or was lost, and takes part in nothing any more."""

    def deregistered(self, namespace: Namespace) -> None:
        """An nspace is forgotten."""

    def pending(self) -> list[Pending]:
        """Return what is under way here."""
        return []
