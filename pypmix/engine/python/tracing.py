"""The requests of a server's clients with their times, for a trace of a job; nothing of it is there without one.

A connection that is traced is a `TracedPeer` from its handshake on, whose link notes the answers. What is noted is raw:
`Tracer.drain` makes of it what is told, on a thread that is not the server's.
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

    Said = bytes | Asked
    Begun = tuple[int, Said]
    Noted = tuple["TracedPeer", Begun, int, bytes]

KEPT = 4096
"""Bytes of a request that are kept until it is described; what a longer one means is found out at once."""

HEAD = 64
"""The end of what is kept of an answer's frame: a status comes first in the payload."""

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
"""The names of operations whose commands are called otherwise."""

TOGETHER = (Command.CONNECTNB, Command.DISCONNECTNB, Command.GROUP_CONSTRUCT, Command.GROUP_DESTRUCT)
"""The commands that procs send together, besides fences."""

_tag_of = Struct("!4xI").unpack_from


class TracedLink:
    """The link of a traced connection: notes the answers that go out.

    Args:
        link: The link itself.
        peer: The connection.
        tracer: Where that is noted.
    """

    __slots__ = ("_link", "full", "hold", "send", "send_now", "uid")

    def __init__(self, link: Link, peer: TracedPeer, tracer: Tracer) -> None:
        self._link = link
        self.full = link.full
        self.hold = link.hold
        self.uid = link.uid
        self.send = _noting(link.send, peer, tracer)
        self.send_now = _noting(link.send_now, peer, tracer)

    @property
    def owner(self) -> Owner | None:
        """See `Link`."""
        return self._link.owner

    @owner.setter
    def owner(self, owner: Owner | None) -> None:
        self._link.owner = owner

    @property
    def known(self) -> bool:
        """See `Link`."""
        return self._link.known

    @known.setter
    def known(self, known: bool) -> None:
        self._link.known = known

    def close(self) -> None:
        """See `Link`."""
        self._link.close()


def _noting(send: Callable[[bytes], None], peer: TracedPeer, tracer: Tracer) -> Callable[[bytes], None]:
    """Return a function that sends as another does, and notes which request that answers, if any."""
    ended, note = peer.begun.pop, tracer.noted.append

    # All that it needs is at hand without an attribute: it is called once for each answer.
    def send_noted(data: bytes) -> None:
        begun = ended(_tag_of(data)[0], None)
        if begun is not None:
            note((peer, begun, monotonic_ns(), data[16:HEAD]))
        send(data)

    return send_noted


class TracedPeer(Peer):
    """A connection whose requests are noted as they come.

    Attributes:
        begun: When a request that is not answered came, in nanoseconds, and what it says, by its tag.
    """

    __slots__ = ("_taken_in", "begun", "tracer")

    def __init__(self, tracer: Tracer, server: Node, link: Link, process: Process, release: Release, hello: Hello):
        super().__init__(server, link, process, release, hello)
        self._taken_in = super()._take
        self.tracer = tracer
        self.begun: dict[int, Begun] = {}
        self.link = TracedLink(link, self, tracer)

    def _take(self, tag: int, payload: bytes) -> None:
        if tag > TAG_DYNAMIC:
            now = monotonic_ns()
            self.begun[tag] = now, payload if len(payload) <= KEPT else described(self, payload)
        self._taken_in(tag, payload)

    def forget(self) -> None:
        """It has ended: nothing of it is kept, and what it waited for is not answered."""
        now = monotonic_ns()
        self.tracer.noted += [(self, begun, now, b"") for begun in self.begun.values()]
        self.begun.clear()
        super().forget()


class Tracer:
    """The requests of the clients of a server, with their times.

    Attributes:
        noted: What has been noted since the last `drain`: the connection, the request with its time, when the answer
            was sent, and how that begins.
    """

    def __init__(self) -> None:
        self.noted: list[Noted] = []
        self._numbers: dict[tuple[TracedPeer, Said, bytes], int] = {}
        self._count = 0

    def peer(self, server: Node, link: Link, process: Process, release: Release, hello: Hello) -> Peer:
        """Return a connection that is traced."""
        return TracedPeer(self, server, link, process, release, hello)

    def drain(self) -> Traced:
        """Return the requests that have ended since the last time; see `ServerSession.trace`."""
        noted, numbers = self.noted, self._numbers
        count = len(noted)
        kinds: list[Kind] = []
        rows: list[tuple[int, int, int]] = []
        for peer, (begin, said), end, answer in noted[:count]:
            # Nearly all requests repeat an earlier one of their connection byte by byte, and so do their answers.
            name = peer, said, answer
            number = numbers.get(name)
            if number is None:
                if len(numbers) >= MAX_KNOWN:
                    numbers.clear()
                number = numbers[name] = self._count
                self._count += 1
                what = described(peer, said) if isinstance(said, bytes) else said
                kinds.append((peer.process.proc, what, status_of(peer, answer)))
            rows.append((number, begin, end))
        # The server adds at the end meanwhile.
        del noted[:count]
        return kinds, rows


def status_of(peer: Peer, answer: bytes) -> int | None:
    """Return the status of an answer; None where there was none."""
    if not answer:
        return None
    try:
        # The job info begins with another number.
        return min(0, decode_status(answer, peer.buffer_type))
    except PMIxError:
        # Its first bytes hold something else, or end in the middle of one.
        return 0


def described(peer: Peer, payload: bytes) -> Asked:
    """Return what a request asks: the operation, whom it concerns, and more for a person."""
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
            # Behind a library that does not know a group, its name stands beside the procs.
            groups = [info.value.data for info in infos if info.key == keys.GROUP_ID]
            procs = tuple([Proc.unchecked(str(group), RANK_WILDCARD) for group in groups]) or procs
        elif command == Command.GETNB:
            nspace, rank, _, key = decode_get(payload, peer.buffer_type, peer.release)
            procs, more = (Proc.unchecked(nspace, rank),), key or ""
        elif command in TOGETHER:
            fields = fields_of(peer, command, payload)
            procs, more = tuple(fields.get("procs", ())), fields.get("group") or ""
    except PMIxError:
        # The client is told.
        pass
    return name, procs, more
