"""What a server does on one topic, as its machine sees it."""

from __future__ import annotations

from pypmix.standard.errors import ERR_BAD_PARAM, ERROR, SUCCESS, PMIxError
from pypmix.wire.messages import request_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.base import Pending
    from pypmix.engine.python.server import Peer, Server
    from pypmix.engine.python.serverdata import Namespace, Process


class Topic:
    """Base of all topics: what a topic does not care about, it leaves as it is here.

    Attributes:
        server: The machine.
        handlers: What carries out each command, given the peer that sent it, its tag and the message. A `PMIxError`
            that it raises is answered with its status.
        tags: What takes messages that are no requests, by their tag. Nobody answers them.
    """

    def __init__(self, server: Server) -> None:
        self.server = server
        self.handlers: dict[int, Callable[[Peer, int, bytes], None]] = {}
        self.tags: dict[int, Callable[[Peer, bytes], None]] = {}

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


def fields_of(peer: Peer, command: int, payload: bytes) -> dict[str, Any]:
    """Return the fields of a request."""
    return request_layout(command, peer.release).decode(payload, peer.buffer_type, peer.release)


def made(make: Callable[..., Any], *fields: object) -> Any:
    """Return the operation that a client asks for.

    Raises:
        PMIxError: It is no sound one (`ERR_BAD_PARAM`).
    """
    try:
        return make(*fields)
    except (TypeError, ValueError) as error:
        raise PMIxError(str(error), status=ERR_BAD_PARAM) from None


def status_of(error: BaseException | None) -> int:
    """Return the status that tells a client how its request ended."""
    if error is None:
        return SUCCESS
    return (error.code if isinstance(error, PMIxError) else ERROR) or ERROR
