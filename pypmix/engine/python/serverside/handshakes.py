"""Handshakes: new connections, from the moment when they are accepted until they are admitted or closed.

A `Handshake` is a connection that has not been admitted. It sends a hello (`greeted`); its credential is checked, by
munge's daemon if need be; the host is asked (`ClientConnected`); and `admit` makes it a `Peer`. A hello of a tool goes
to the topic of tools, which asks the host and admits it as well. A handshake may take `HANDSHAKE_SECONDS`.
Messages of a client before it is admitted are kept, up to `MAX_EARLY` bytes.
"""

from __future__ import annotations

from pypmix.engine.admission import Admission
from pypmix.engine.common import MUNGE
from pypmix.engine.peeruid import UNKNOWN_USER
from pypmix.engine.python.node import Peer, status_of
from pypmix.engine.times import HANDSHAKE_SECONDS
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, PMIxError, RemoteProtocolError
from pypmix.standard.ops import ClientConnected
from pypmix.standard.releases import parse_release, release_text
from pypmix.standard.types import Proc
from pypmix.wire.handshake import FLAG_CLIENT, HelloReader, encode_reply, native_credential, parse_native_credential

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.engine.collective.machine import Timer
    from pypmix.engine.python.node import Link, Node
    from pypmix.engine.python.processes import Process
    from pypmix.standard.releases import Release
    from pypmix.wire.handshake import Hello

    GreetTool = Callable[["Handshake", Hello, Release], None]

BFROPS = frozenset({"v4", "v41", "v51", "v61"})
"""The encodings that are equal byte by byte in everything that is used here."""

FLOOR = (4, 1, 0)
"""The oldest release whose clients use one of these encodings."""

STATUS_READERS = (((5, 0, 9), (6, 0, 0)), ((6, 1, 0), (1 << 16, 0, 0)))
"""Releases, from and before, whose clients apply the status of a refusal.

Other clients continue as if they were admitted, and may wait for ever; for them the connection is closed.
"""

MAX_HANDSHAKES = 1024
"""Bound of the connections in their handshakes; the oldest one is closed first."""

MAX_EARLY = 1 << 16
"""Bytes that a connection may send before it is admitted."""


class Handshake:
    """A connection that has not sent its hello, or that the host has not accepted yet."""

    __slots__ = ("_handshakes", "deadline", "early", "link", "paused", "reader", "uid")

    def __init__(self, handshakes: Handshakes, link: Link, deadline: float, uid: int | None) -> None:
        self._handshakes = handshakes
        self.link = link
        self.deadline = deadline
        self.uid = uid
        self.paused = False
        self.reader: HelloReader | None = HelloReader(infos=False)
        self.early = b""

    def received(self, data: bytes) -> None:
        if self.reader is None or self.paused:
            self.early += data
            if len(self.early) > MAX_EARLY:
                self._handshakes.refuse(self, "it went on before it was accepted")
            return
        try:
            hello = self.reader.feed(data)
        except RemoteProtocolError as error:
            self._handshakes.refuse(self, error.detail)
            return
        if hello is not None:
            self.early = self.reader.rest
            self.reader = None
            self._handshakes.greeted(self, hello)

    def release(self) -> None:
        """Listen to it now, after its user was made to wait."""
        self.paused = False
        early, self.early = self.early, b""
        if early and self.link.owner is self:
            self.received(early)

    def drained(self) -> None:
        """Do nothing: no data waits here."""

    def handle_disconnect(self, reason: str = "") -> None:
        self._handshakes.incomplete.pop(self, None)
        self.link.owner = None


class Handshakes:
    """The connections of a server that are not admitted yet.

    Args:
        server: The server.
        security: The security modules of which clients may use one, and `unchecked`.
        expected: Returns True if processes of a user are expected.
        greet_tool: Handles the hello of a peer that is not a client.

    Attributes:
        incomplete: The connections that have not sent their hello.
    """

    def __init__(
        self, server: Node, security: tuple[str, ...], expected: Callable[[int], bool], greet_tool: GreetTool
    ) -> None:
        self.security = security
        self.admission = Admission(server.clock.now, expected, security)
        self.incomplete: dict[Handshake, None] = {}
        self._server = server
        self._greet_tool = greet_tool
        self._timer: Timer | None = None
        self._pindex = 0
        self._make: Callable[[Node, Link, Process, Release, Hello], Peer] = Peer

    def trace(self, make: Callable[[Node, Link, Process, Release, Hello], Peer]) -> None:
        """Use a function that makes traced connections for all connections admitted from now on."""
        self._make = make

    def opened(self, link: Link) -> None:
        """Begin the handshake of a new connection, or refuse it."""
        uid = link.uid()
        if not self.admission.welcome(uid):
            if self._is_closed(link, uid):
                link.close()
                return
            if uid is None or uid == UNKNOWN_USER:
                self._server.log("a connection", "is turned away: the kernel does not tell whose it is")
            else:
                self._server.log(f"user {uid}", "is turned away: no process of that user is expected")
            self.admission.refused(uid)
            link.close()
            return
        while len(self.incomplete) >= MAX_HANDSHAKES:
            self.refuse(next(iter(self.incomplete)), "too many connections wait for their handshake")
        handshake = Handshake(self, link, self._server.clock.now() + HANDSHAKE_SECONDS, uid)
        link.owner = handshake
        self.incomplete[handshake] = None
        delay = self.admission.delay(uid)
        if delay:
            handshake.paused = True
            self._server.clock.call_later(delay, handshake.release)
        if self._timer is None:
            self._timer = self._server.clock.call_later(HANDSHAKE_SECONDS, self._expire)

    @staticmethod
    def _is_closed(link: Link, uid: int | None) -> bool:
        """Return True if the other end has closed already, like a rank whose job was aborted meanwhile."""
        return uid == UNKNOWN_USER and link.is_closed()

    def _expire(self) -> None:
        self._timer = None
        now = self._server.clock.now()
        for handshake in list(self.incomplete):
            if handshake.deadline > now:
                delay = handshake.deadline - now
                self._timer = self._server.clock.call_later(delay, self._expire)
                return
            self.refuse(handshake, f"its handshake was not complete after {HANDSHAKE_SECONDS:g} s")

    def close(self) -> None:
        """Close all connections that are not admitted."""
        for handshake in list(self.incomplete):
            self._dismiss(handshake)

    def _dismiss(self, handshake: Handshake) -> None:
        self.incomplete.pop(handshake, None)
        handshake.link.owner = None
        handshake.link.close()

    def refuse(self, handshake: Handshake, reason: str, subject: object = "a connection", status: int = 0) -> None:
        """Refuse a connection, with a status if there is one."""
        self._server.log(subject, f"refused: {reason}")
        self.admission.refused(handshake.uid)
        if status:
            handshake.link.send(encode_reply(status, None))
        self._dismiss(handshake)

    def refuse_because(self, handshake: Handshake, error: BaseException, subject: object, release: Release) -> None:
        """Refuse a connection, in the way that its release understands."""
        if self._is_closed(handshake.link, handshake.link.uid()):
            self._dismiss(handshake)
            return
        reason = error.detail if isinstance(error, PMIxError) else str(error)
        self.refuse(handshake, reason, subject, _refusal_status(error, release))

    def greeted(self, handshake: Handshake, hello: Hello) -> None:
        """Handle the hello of a connection, after its credential was checked by munge's daemon if necessary."""
        if hello.psec != MUNGE or MUNGE not in self.security:
            self._introduced(handshake, hello)
            return

        def proven(ids: tuple[int, int] | None, error: BaseException | None) -> None:
            if handshake.link.owner is not handshake:
                return
            if ids is None:
                detail = error.detail if isinstance(error, PMIxError) else str(error)
                self.refuse(handshake, detail, f"{hello.nspace}:{hello.rank}"[:300])
            else:
                self._introduced(handshake, hello.replace(credential=native_credential(*ids)))

        self._server.host.authenticate(hello.credential, proven)

    def _introduced(self, handshake: Handshake, hello: Hello) -> None:
        """Admit a connection after its hello, whose credential has the user and the group."""
        self.incomplete.pop(handshake, None)
        try:
            release = parse_release(hello.version)
        except ValueError:
            release = (0, 0, 0)
        if hello.flag != FLAG_CLIENT:
            self._greet_tool(handshake, hello, release)
            return
        try:
            owner = handshake.link.uid()
            process = self._identify(hello, release, owner)
            self.admission.check(owner, hello.psec, process.uid, True)
            peers, limits = self._server.peers(process), self._server.limits
            if len(peers) >= limits.connections:
                raise limits.reached("connections", f"{process.proc} has {len(peers)} connections")
            hello = hello.complete()
        except PMIxError as error:
            self.refuse_because(handshake, error, f"{hello.nspace}:{hello.rank}"[:300], release)
            return
        pid = next((info.value.data for info in hello.infos if info.key == keys.PROC_PID), None)

        def answer(_result: None, error: BaseException | None) -> None:
            if handshake.link.owner is not handshake:
                return
            if not process.registered or self._server.store.get(process.namespace.name) is not process.namespace:
                error = NotFound("it is not expected any more")
            if error is not None:
                self.refuse(handshake, f"the host refused it: {error}", process.proc, _refusal_status(error, release))
                return
            self.admit(handshake, process, release, hello)

        pid = pid if isinstance(pid, int) else None
        op = ClientConnected(process.proc, pid, release_text(release), hello.infos)
        self._server.host.upcall(op, answer, process)

    def _identify(self, hello: Hello, release: Release, owner: int | None) -> Process:
        """Return the process of a client, if its credential is accepted and it can be served."""
        uid, gid = self.credential(hello, release)
        process = self._server.store.process(Proc.unchecked(hello.nspace or "", hello.rank or 0))
        if not process.registered:
            raise NotFound("no such process is expected")
        vouched = self.admission.is_vouched(owner, hello.psec, process.uid)
        if not vouched and (uid, gid) != (process.uid, process.gid):
            detail = f"it is of user {uid} and group {gid}, expected are {process.uid} and {process.gid}"
            raise PMIxError(detail, status=statuses.ERR_INVALID_CRED)
        return process

    def credential(self, hello: Hello, release: Release) -> tuple[int, int]:
        """Return the user and group in a connection's hello, if its kind can be served."""
        if release < FLOOR or hello.bfrops not in BFROPS:
            detail = f"release {hello.version!r} with encoding {hello.bfrops!r} is not served"
            raise PMIxError(detail, status=statuses.ERR_NOT_SUPPORTED)
        if hello.gds != "hash":
            raise PMIxError(
                f"it wants the data store {hello.gds!r}, only hash is served", status=statuses.ERR_NOT_SUPPORTED
            )
        self.admission.check_module(hello.psec)
        try:
            return parse_native_credential(hello.credential)
        except RemoteProtocolError as error:
            raise PMIxError(error.detail, status=statuses.ERR_INVALID_CRED) from None

    def admit(
        self, handshake: Handshake, process: Process, release: Release, hello: Hello, reply: bytes | None = None
    ) -> None:
        """Make a connection a peer of a proc, and send `reply`, by default the answer that clients get."""
        link = handshake.link
        peer = self._make(self._server, link, process, release, hello)
        link.owner = peer
        link.is_client = True
        self._server.joined(peer)
        self._pindex = (self._pindex + 1) & 0x7FFFFFFF
        link.send(encode_reply(statuses.SUCCESS, self._pindex) if reply is None else reply)
        if handshake.early:
            peer.received(handshake.early)


def _refusal_status(error: BaseException, release: Release) -> int:
    """Return the status that reports a refusal to a client, 0 if its release ignores the status."""
    return status_of(error) if any(floor <= release < end for floor, end in STATUS_READERS) else 0
