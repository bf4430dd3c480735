"""What a server does on one topic, as its machine sees it, and where each topic is."""

from __future__ import annotations

from pypmix.lazy import load
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError
from pypmix.wire.additions import encode_late
from pypmix.wire.frames import TAG_HEARTBEAT
from pypmix.wire.messages import Command, request_layout

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

    from pypmix.engine.base import Pending
    from pypmix.engine.python.server import Peer, Server
    from pypmix.engine.python.serverdata import Namespace, Process
    from pypmix.standard.types import Proc

    Handler = Callable[[Peer, int, bytes], None]
    Listener = Callable[[Peer, bytes], None]

COMMANDS: dict[str, tuple[int, ...]] = {
    "asking": (
        Command.PUBLISHNB,
        Command.LOOKUPNB,
        Command.UNPUBLISHNB,
        Command.QUERY,
        Command.LOG,
        Command.ALLOC,
        Command.JOB_CONTROL,
        Command.MONITOR,
        Command.GET_CREDENTIAL,
        Command.VALIDATE_CRED,
        Command.FABRIC_REGISTER,
        Command.FABRIC_UPDATE,
        Command.COMPUTE_DEVICE_DISTANCES,
        Command.RESOLVE_PEERS,
        Command.RESOLVE_NODE,
        Command.SESSION_CTRL,
        Command.RESBLK,
    ),
    "connecting": (Command.CONNECTNB, Command.DISCONNECTNB),
    "events": (Command.NOTIFY, Command.REGEVENTS, Command.DEREGEVENTS),
    "forwarding": (Command.IOF_PULL, Command.IOF_PUSH, Command.IOF_DEREG),
    "groups": (Command.GROUP_CONSTRUCT, Command.GROUP_DESTRUCT, Command.GROUP_INVITE, Command.GROUP_JOIN),
    "psets": (),
    "spawning": (Command.SPAWNNB,),
    "tools": (),
}
"""The modules beside this one that have a topic, the class of their name; and the commands that each carries out."""

TAGS = {"asking": (TAG_HEARTBEAT,)}
"""The messages that are no requests, by the topic that takes them."""

_TOPIC_OF = {command: name for name, commands in COMMANDS.items() for command in commands}
_TOPIC_OF_TAG = {tag: name for name, tags in TAGS.items() for tag in tags}


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
        self.handlers: dict[int, Handler] = {}
        self.tags: dict[int, Listener] = {}

    def disconnected(self, peer: Peer) -> None:
        """A connection has ended; nothing can be sent to it any more."""

    def departed(self, process: Process, lost: bool) -> None:
        """A proc has finalized or was lost, and takes part in nothing any more."""

    def deregistered(self, namespace: Namespace) -> None:
        """An nspace is forgotten."""

    def pending(self) -> list[Pending]:
        """Return what is under way here."""
        return []


class Topics:
    """The topics of a server: each is imported and made when it is first needed.

    To import all of them takes as long as a small job; and one that was never asked anything has nothing to watch.
    Those that are there can be iterated over, while others come.

    Args:
        server: The machine.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._made: dict[str, Topic] = {}

    def __iter__(self) -> Iterator[Topic]:
        return iter(tuple(self._made.values()))

    def named(self, name: str) -> Any:
        """Return the topic of a module."""
        topic = self._made.get(name)
        if topic is None:
            made = load(f"pypmix.engine.python.serverside.{name}", name.capitalize())
            topic = self._made[name] = made(self._server)
        return topic

    def handler(self, command: int) -> Handler | None:
        """Return what carries out a command, None where nothing does."""
        name = _TOPIC_OF.get(command)
        return self.named(name).handlers[command] if name is not None else None

    def listener(self, tag: int) -> Listener | None:
        """Return what takes a message that is no request, None where nothing does."""
        name = _TOPIC_OF_TAG.get(tag)
        return self.named(name).tags[tag] if name is not None else None


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
        raise PMIxError(str(error), status=statuses.ERR_BAD_PARAM) from None


def refuse(peer: Peer, tag: int, error: BaseException | None) -> None:
    """Answer with what the host says: a success, or an error, which pypmix's own clients get in words too."""
    answer_failure(peer, tag, status_of(error), None, reason_of(error))


def answer_failure(peer: Peer, tag: int, status: int, absent: tuple[Proc, ...] | None, reason: str = "") -> None:
    """Answer a client with a status; only pypmix's own understand because of whom something has failed, and why."""
    if (absent is not None or reason) and peer.pypmix:
        peer.send(tag, encode_late(peer.buffer_type, status, absent, reason))
    else:
        peer.status(tag, status)


def reason_of(error: BaseException | None) -> str:
    """Return the words of a host's error for its client; what is no `PMIxError` is the host's own business."""
    return error.detail if isinstance(error, PMIxError) else ""


def status_of(error: BaseException | None) -> int:
    """Return the status that tells a client how its request ended."""
    if error is None:
        return statuses.SUCCESS
    return (error.code if isinstance(error, PMIxError) else statuses.ERROR) or statuses.ERROR
