"""The requests of a server's clients with their times, for a trace of a job; it is not loaded without a trace.

A traced connection is a `TracedPeer` from its handshake on, whose link records the answers. For each request three
numbers are recorded, which costs the server little and its garbage collector nothing. `Tracer.drain` describes them,
once for each kind of request, on another thread than the server's.
"""

from __future__ import annotations

from struct import Struct
from time import monotonic_ns

from pypmix.engine.python.node import Peer, fields_of
from pypmix.standard import keys
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.wire.frames import TAG_DYNAMIC
from pypmix.wire.messages import COMMAND_NAMES, Command, decode_fence, decode_get, decode_status, peek_command

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.base import Asked, Kind, Traced
    from pypmix.engine.python.node import Link, Node, Owner
    from pypmix.engine.python.processes import Process
    from pypmix.standard.releases import Release
    from pypmix.wire.handshake import Hello

    Request = bytes | Asked
    Begin = tuple[int, Request]
    AnsweredRequest = tuple["TracedPeer", Request, bytes]

KEPT = 4096
"""The longest request that is kept until it is described; a longer request is described at once."""

HEAD = 64
"""The end of the kept part of an answer's frame: the status is the first field of the payload."""

MAX_KNOWN = 4096
"""Descriptions that are remembered."""

NAMES = {
    Command.REQ: "job_info",
    Command.ALLOC: "allocation_request",
    Command.MONITOR: "process_monitor",
    Command.REGEVENTS: "register_events",
    Command.DEREGEVENTS: "deregister_events",
    Command.VALIDATE_CRED: "validate_credential",
    Command.COMPUTE_DEVICE_DISTANCES: "compute_distances",
}
"""The names of operations whose commands have other names."""

TOGETHER = (Command.CONNECTNB, Command.DISCONNECTNB, Command.GROUP_CONSTRUCT, Command.GROUP_DESTRUCT)
"""The commands that procs send together, besides fences."""

_tag_of = Struct("!4xI").unpack_from


class TracedLink:
    """The link of a traced connection: it records the answers that are sent.

    Args:
        link: The link itself.
        peer: The connection.
        tracer: The tracer that records them.
    """

    __slots__ = ("_link", "full", "hold", "is_closed", "send", "send_now", "uid")

    def __init__(self, link: Link, peer: TracedPeer, tracer: Tracer) -> None:
        self._link = link
        self.full = link.full
        self.hold = link.hold
        self.uid = link.uid
        self.is_closed = link.is_closed
        self.send = _sending(link.send, peer, tracer)
        self.send_now = _sending(link.send_now, peer, tracer)

    @property
    def owner(self) -> Owner | None:
        """See `Link`."""
        return self._link.owner

    @owner.setter
    def owner(self, owner: Owner | None) -> None:
        self._link.owner = owner

    @property
    def is_client(self) -> bool:
        """See `Link`."""
        return self._link.is_client

    @is_client.setter
    def is_client(self, is_client: bool) -> None:
        self._link.is_client = is_client

    def close(self) -> None:
        """See `Link`."""
        self._link.close()


# These two need no look-up of attributes: they are called once for each request.


def _sending(send: Callable[[bytes], None], peer: TracedPeer, tracer: Tracer) -> Callable[[bytes], None]:
    """Return a function that sends like `send`, and records which request the message answers, if any."""
    end, note, number_of = peer.begun.pop, tracer.noted.extend, tracer.number
    number, last_answer = 0, b""
    last_request: Request = b""

    def send_noted(data: bytes) -> None:
        nonlocal number, last_request, last_answer
        entry, now = end(_tag_of(data)[0], None), monotonic_ns()
        # First of all, as others wait for it.
        send(data)
        if entry is not None:
            begin, request = entry
            answer = data[16:HEAD]
            # Nearly all requests repeat the one before byte by byte, and so do their answers.
            if request != last_request or answer != last_answer:
                last_request, last_answer = request, answer
                number = number_of(peer, request, answer)
            note((number, begin, now))

    return send_noted


def _taking(take: Callable[[int, bytes], None], peer: TracedPeer) -> Callable[[int, bytes], None]:
    """Return a function that handles messages like `take`, and records the time of each request."""
    begun = peer.begun

    def take_noted(tag: int, payload: bytes) -> None:
        if tag > TAG_DYNAMIC:
            begun[tag] = monotonic_ns(), payload if len(payload) <= KEPT else described(peer, payload)
        take(tag, payload)

    return take_noted


class TracedPeer(Peer):
    """A connection whose requests are recorded when they arrive.

    Attributes:
        begun: The requests that are not answered yet, by tag: the time of arrival in nanoseconds, and the request.
    """

    __slots__ = ("_take", "_tracer", "begun")

    def __init__(self, tracer: Tracer, server: Node, link: Link, process: Process, release: Release, hello: Hello):
        super().__init__(server, link, process, release, hello)
        self._tracer = tracer
        self.begun: dict[int, Begin] = {}
        self._take = _taking(super()._take, self)  # type: ignore[assignment,method-assign]
        self.link = TracedLink(link, self, tracer)

    def forget(self) -> None:
        """Forget the connection, which has ended; its waiting requests are recorded as not answered."""
        now = monotonic_ns()
        for begin, said in self.begun.values():
            self._tracer.noted += self._tracer.number(self, said, b""), begin, now
        self.begun.clear()
        super().forget()


class Tracer:
    """The requests of the clients of a server, with their times.

    Attributes:
        noted: The records since the last `drain`, three numbers for each request: the number of its kind, the time of
            its arrival, and the time of its answer.
    """

    def __init__(self) -> None:
        self.noted: list[int] = []
        self._numbers: dict[AnsweredRequest, int] = {}
        self._fresh: list[AnsweredRequest] = []
        self._count = 0

    def peer(self, server: Node, link: Link, process: Process, release: Release, hello: Hello) -> Peer:
        """Return a connection that is traced."""
        return TracedPeer(self, server, link, process, release, hello)

    def number(self, peer: TracedPeer, request: Request, answer: bytes) -> int:
        """Return the number of a kind of request: all requests with these bytes and this beginning of the answer."""
        numbers, name = self._numbers, (peer, request, answer)
        number = numbers.get(name)
        if number is None:
            if len(numbers) >= MAX_KNOWN:
                numbers.clear()
            number = numbers[name] = self._count
            self._count += 1
            self._fresh.append(name)
        return number

    def drain(self) -> Traced:
        """Return the requests that have ended since the last time; see `ServerSession.trace`."""
        # The server adds at the end meanwhile, and to the kinds before it adds to the requests.
        rows = self.noted[: len(self.noted)]
        del self.noted[: len(rows)]
        fresh = self._fresh[: len(self._fresh)]
        del self._fresh[: len(fresh)]
        kinds: list[Kind] = []
        for peer, said, answer in fresh:
            what = described(peer, said) if isinstance(said, bytes) else said
            kinds.append((peer.process.proc, what, status_of(peer, answer)))
        return kinds, rows


def status_of(peer: Peer, answer: bytes) -> int | None:
    """Return the status of an answer; None without an answer."""
    if not answer:
        return None
    try:
        # The job info begins with another number.
        return min(0, decode_status(answer, peer.buffer_type))
    except PMIxError:
        # Its first bytes are not a status, or only a part of one.
        return 0


def described(peer: Peer, payload: bytes) -> Asked:
    """Return a description of a request: the operation, the procs, and more for a person."""
    try:
        command = peek_command(payload, peer.buffer_type)
    except PMIxError:
        return "unreadable", (), ""
    name = NAMES.get(command) or COMMAND_NAMES.get(command, f"command {command}").lower().removesuffix("nb")
    procs: tuple[Proc, ...] = ()
    more = ""
    try:
        if command == Command.FENCENB:
            procs, infos = decode_fence(payload, peer.buffer_type, peer.release)
            # A client behind a library that does not know a group gives its name in addition to the procs.
            groups = [info.value.data for info in infos if info.key == keys.GROUP_ID]
            procs = tuple([Proc.unchecked(str(group), RANK_WILDCARD) for group in groups]) or procs
        elif command == Command.GETNB:
            nspace, rank, _, key = decode_get(payload, peer.buffer_type, peer.release)
            procs, more = (Proc.unchecked(nspace, rank),), key or ""
        elif command in TOGETHER:
            fields = fields_of(peer, command, payload)
            procs, more = tuple(fields.get("procs", ())), fields.get("group") or ""
    except PMIxError:
        # The client gets the error.
        pass
    return name, procs, more
