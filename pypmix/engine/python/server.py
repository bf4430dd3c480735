"""The server of one node as a state machine: messages and answers of the host go in, messages and upcalls go out.

It reads no socket and no clock, so that it runs over TCP as well as over a simulated network on virtual time. All its
methods belong to one thread.
"""

from __future__ import annotations

import os
from collections import Counter, deque

from pypmix.engine.base import MUNGE, NATIVE, UNCHECKED, Pending, ignore
from pypmix.engine.collective.machine import Collectives
from pypmix.engine.faults import traced
from pypmix.engine.peeruid import NOBODY
from pypmix.engine.python.fences import Fences
from pypmix.engine.python.modex import REFRESH_CACHE, Modex
from pypmix.engine.python.serverdata import Store
from pypmix.engine.python.serverside.admission import Admission
from pypmix.engine.python.serverside.topic import Topics, refuse, status_of
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotFound, PMIxError, RemoteProtocolError
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.logtext import Limit, indented, printable
from pypmix.standard.ops import (
    ClientAborted,
    ClientConnected,
    ClientFinalized,
    ClientLost,
)
from pypmix.standard.releases import parse_release, release_text
from pypmix.standard.types import Proc
from pypmix.wire.additions import greeted
from pypmix.wire.codec import PLAIN
from pypmix.wire.frames import HEADER, MAX_MESSAGE, TAG_DYNAMIC, FrameReader, frame
from pypmix.wire.handshake import FLAG_CLIENT, HelloReader, encode_reply, native_credential, parse_native_credential
from pypmix.wire.messages import (
    Command,
    encode_status,
    peek_command,
    request_layout,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any, Protocol

    from pypmix.engine.base import Done, R
    from pypmix.engine.collective.machine import Clock, Roster, Timer
    from pypmix.engine.python.fences import Plan
    from pypmix.engine.python.serverdata import Process
    from pypmix.engine.python.serverside.events import Events
    from pypmix.engine.python.serverside.forwarding import Forwarding
    from pypmix.engine.python.serverside.groups import Groups, Repeated
    from pypmix.engine.python.serverside.tools import Applicant, Tools
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.limits import Limits
    from pypmix.standard.ops import Op
    from pypmix.standard.releases import Release
    from pypmix.wire.handshake import Hello

    class Owner(Protocol):
        """Who is told what happens on a connection."""

        def received(self, data: bytes) -> None: ...

        def drained(self) -> None:
            """A connection that was full has taken what waited for it."""

        def lost(self, reason: str = "") -> None:
            """The other side has closed the connection, or it had to be ended. Nothing more comes after that."""

    class Link(Protocol):
        """One connection, as the machine sees it."""

        owner: Owner | None

        def send(self, data: bytes) -> None:
            """Send without blocking, now or at the end of this turn; must not call the machine."""

        def close(self) -> None:
            """Close after what was sent; `lost` is not called."""

        def send_now(self, data: bytes) -> None:
            """Send at once if nothing is before it, or like `send`; must not call the machine either."""

        def hold(self, held: bool) -> None:
            """Deliver nothing more that the other side sends, its end neither, or go on."""

        def full(self) -> bool:
            """Tell whether so much waits for the other side that it is better not given more.

            Then its owner is told by `drained` when it is not any more.
            """

        known: bool
        """Whether it is a client's: those come before connections without a name."""

        def uid(self) -> int | None:
            """Return the user at the other end as the kernel has it, `NOBODY` where it does not say.

            None is for all connections where the kernel does not tell it of any.
            """

    class Host(Protocol):
        """The host's side."""

        def upcall(self, op: Op[R], answer: Done[R], process: Process | Applicant | None = None) -> None:
            """Ask the host on behalf of a proc; `answer` is called once, on the machine's thread, now or later."""

        def authenticate(self, credential: bytes, answer: Done[tuple[int, int]]) -> None:
            """Find out whose a munge credential is; `answer` is called like that of an upcall."""

        def log(self, text: str) -> None:
            """Note something that a person who runs the server should know."""

    Ticket = tuple["Peer", int]
    Form = tuple[int, Release]

BFROPS = frozenset({"v4", "v41", "v51", "v61"})
"""The encodings that are the same bytes in all that is used here."""

FLOOR = (4, 1, 0)
"""The oldest release whose clients speak one of them."""

HEEDING = (((5, 0, 9), (6, 0, 0)), ((6, 1, 0), (1 << 16, 0, 0)))
"""Releases, from and before, whose clients heed the status of a refusal.

The others go on as if they were welcome, and may wait for ever; they understand a connection that closes.
"""

HANDSHAKE_SECONDS = 5.0
MAX_STRANGERS = 1024
"""How many connections may be without a name at a time; the oldest one goes first."""

MAX_EARLY = 1 << 16

PIECE = 1 << 16
"""Bytes of an unfinished message that a connection may always hold."""

LINGER_SECONDS = 2.0
"""How long the connection of a process that has ended may still deliver what it sent."""

TURN = 32
"""Messages of one connection that are dealt with before others have their turn."""

TELLING = (7, 0, 0)
"""The first release whose clients tell their caller the status that a commit has ended with."""

OLD_READERS = (6, 0, 0)
"""The first release whose clients refuse messages above a limit."""

MAX_FORMS = 256
"""Of how many releases clients are known at a time."""

_NAMELESS = Proc("pypmix-server", 0)


_unpack_header = HEADER.unpack_from


class Stranger:
    """A connection that has not said who it is, or whose acceptance the host still considers."""

    __slots__ = ("deadline", "early", "held", "link", "reader", "server", "uid")

    def __init__(self, server: Server, link: Link, deadline: float, uid: int | None) -> None:
        self.server = server
        self.link = link
        self.deadline = deadline
        self.uid = uid
        self.held = False
        self.reader: HelloReader | None = HelloReader(infos=False)
        self.early = b""

    def received(self, data: bytes) -> None:
        if self.reader is None or self.held:
            self.early += data
            if len(self.early) > MAX_EARLY:
                self.server.refuse(self, "it went on before it was accepted")
            return
        try:
            hello = self.reader.feed(data)
        except RemoteProtocolError as error:
            self.server.refuse(self, error.detail)
            return
        if hello is not None:
            self.early = self.reader.rest
            self.reader = None
            self.server.greeted(self, hello)

    def release(self) -> None:
        """Listen to it now, after its user was made to wait."""
        self.held = False
        early, self.early = self.early, b""
        if early and self.link.owner is self:
            self.received(early)

    def drained(self) -> None:
        """Nobody has waited for that."""

    def lost(self, reason: str = "") -> None:
        self.server.strangers.pop(self, None)
        self.link.owner = None


class Peer:
    """One connection of a proc of this node; a proc and its own children may have several.

    Attributes:
        backlog: Messages that have come and wait for their turn.
        most: How long a message it takes.
        denied: The status of a refused commit that its fence is to end with.
        plan: The last fence of procs of this server alone, which it is likely to repeat byte by byte.
    """

    __slots__ = (
        "_pending",
        "backlog",
        "buffer_type",
        "bundle",
        "denied",
        "finalized",
        "form",
        "link",
        "most",
        "open",
        "plan",
        "process",
        "pypmix",
        "reader",
        "release",
        "server",
        "waiting",
    )

    def __init__(self, server: Server, link: Link, process: Process, release: Release, hello: Hello) -> None:
        self.server = server
        self.link = link
        self.process = process
        self.release = release
        self.buffer_type = hello.buffer_type
        self.pypmix = greeted(hello.infos)
        self.form = server.form(self.buffer_type, release)
        self.reader = FrameReader(server.limits.message, skips=True)
        self._pending = 0
        self.denied = 0
        self.backlog: deque[tuple[int, bytes]] = deque()
        self.most = MAX_MESSAGE if self.pypmix or release >= OLD_READERS else 0xFFFFFFFF
        self.open = True
        self.finalized = False
        self.plan: Plan | None = None
        self.bundle: Roster[Process, Ticket] | None = None
        self.waiting = 0

    def received(self, data: bytes) -> None:
        reader = self.reader
        size = len(data)
        messages: Sequence[tuple[int, bytes]] = ()
        if size >= 16 and not reader.held and not self.backlog:
            _, tag, length, _ = _unpack_header(data)
            if length + 16 == size and not reader.skipping:
                messages = ((tag, data[16:]),)
        if not messages:
            try:
                messages = reader.feed(data)
            except RemoteProtocolError as error:
                self.server.drop(self, error.detail)
                return
            if reader.pending != self._pending and not self._account(reader.pending):
                return
            if len(messages) > TURN or self.backlog:
                self.backlog += messages
                self.server.busy(self)
                return
        self.handle(messages)
        if self.backlog:
            self.server.busy(self)

    def drained(self) -> None:
        """It has taken its answers: go on with what it has asked for since."""
        if self.backlog:
            self.server.busy(self)

    def _account(self, pending: int) -> bool:
        """Count what this connection has sent a part of; end it where its proc has sent too much of that."""
        process, limits = self.process, self.server.limits
        process.unfinished += pending - self._pending
        self._pending = pending
        if process.unfinished <= max(limits.unfinished, limits.message) or pending <= PIECE:
            return True
        what = f"{process.unfinished} bytes of unfinished messages of its proc are held"
        self.server.drop(self, limits.reached("unfinished", what).detail)
        return False

    def forget(self) -> None:
        """It has ended: nothing of it is kept."""
        self.process.unfinished -= self._pending
        self._pending = 0
        self.denied = 0
        self.backlog.clear()
        self.reader = FrameReader()
        self.plan = self.bundle = None

    def handle(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Deal with messages, as long as the answers are taken; what is left comes first in `backlog`."""
        server = self.server
        left = len(messages)
        for tag, payload in messages:
            # Most of a job's messages repeat its last fence byte by byte.
            plan = self.plan
            if plan is not None and payload == plan.payload and plan.valid:
                try:
                    server.collectives.join(plan.roster, self.process, (self, tag), plan.collect, plan.timeout)
                except PMIxError as error:
                    self.status(tag, error.code)
                except Exception as error:
                    server.failed(self, "its fence", error)
                    self.status(tag, statuses.ERROR)
            else:
                server.request(self, tag, payload)
                if not self.open:
                    return
            left -= 1
            if left and self.link.full():
                self.backlog.extendleft(reversed(messages[-left:]))
                return

    def lost(self, reason: str = "") -> None:
        self.server.lost(self, reason)

    def send(self, tag: int, payload: bytes) -> None:
        if self.open:
            if len(payload) > self.most:
                self.server.withhold(self, len(payload))
                payload = encode_status(self.buffer_type, statuses.ERR_OUT_OF_RESOURCE)
            self.link.send(frame(0, tag, payload))

    def deny(self, tag: int, error: PMIxError) -> None:
        """Refuse a commit: libpmix up to 6 drops the status that a commit ends with, so that its next fence has it."""
        refuse(self, tag, error)
        if not self.pypmix and self.release < TELLING and error.code == statuses.ERR_OUT_OF_RESOURCE:
            self.denied = error.code

    def status(self, tag: int, status: int) -> None:
        self.send(tag, encode_status(self.buffer_type, status))

    def status_now(self, tag: int, status: int) -> None:
        """Answer ahead of what this turn sends to others: whom that wakes takes the processors."""
        if self.open:
            self.link.send_now(frame(0, tag, encode_status(self.buffer_type, status)))


class Server:
    """The machine.

    Args:
        clock: Where time comes from.
        host: Who answers upcalls.
        proc: The server's own name.
        security: The security modules of which clients may use one, of `native` and `munge`; with `unchecked`, clients
            are believed of which the kernel cannot tell whose they are.
        limits: What one peer may take.

    Attributes:
        departing: Whether all are just being told that a proc takes part in nothing any more, and how often: what the
            host answers is better not heard in the middle of that.
        repeated: The last request that others are likely to repeat byte by byte, because all of a group send it.
    """

    def __init__(
        self,
        clock: Clock,
        host: Host,
        proc: Proc = _NAMELESS,
        security: tuple[str, ...] = (NATIVE,),
        limits: Limits = DEFAULTS,
    ) -> None:
        self.security = security
        self.limits = limits
        self.clock = clock
        self.host = host
        self.proc = proc
        self.store = Store()
        self.fences = Fences(self)
        self.collectives: Collectives[Process, Ticket] = Collectives(clock, limits)
        self.admission = Admission(clock, lambda uid: uid == os.geteuid() or self._users[uid] > 0, security)
        self._users: Counter[int] = Counter()
        self.strangers: dict[Stranger, None] = {}
        self._strangers_timer: Timer | None = None
        self._peers: dict[Process, list[Peer]] = {}
        self._busy: dict[Peer, None] = {}
        self._next_turn: Timer | None = None
        self.modex = Modex(clock, self.store, self.everyone, host, limits)
        self._lines = Limit(clock=clock.now)
        self._pindex = 0
        self._handlers: dict[int, Callable[[Peer, int, bytes], None]] = {
            Command.REQ: self._job_info,
            Command.ABORT: self._abort,
            Command.COMMIT: self.modex.commit,
            Command.FENCENB: self.fences.fence,
            Command.GETNB: self.modex.get,
            Command.FINALIZE: self._finalize,
            REFRESH_CACHE: self.modex.refresh_cache,
        }
        self._forms: dict[Form, Form] = {}
        self.departing = 0
        self.repeated: Repeated | None = None
        self.topics = Topics(self)

    @property
    def events(self) -> Events:
        """The topic of events."""
        topic: Events = self.topics.named("events")
        return topic

    @property
    def forwarding(self) -> Forwarding:
        """The topic of output and input."""
        topic: Forwarding = self.topics.named("forwarding")
        return topic

    @property
    def groups(self) -> Groups:
        """The topic of groups."""
        topic: Groups = self.topics.named("groups")
        return topic

    @property
    def tools(self) -> Tools:
        """The topic of tools."""
        topic: Tools = self.topics.named("tools")
        return topic

    # What the host registers.

    def register_nspace(self, job: JobInfo, local: Iterable[int] | None = None) -> None:
        """See `ServerSession.register_nspace`."""
        namespace = self.store.add(job, local)
        try:
            namespace.pack(1, (7, 0, 0))
        except BaseException:
            self.store.remove(job.nspace)
            raise
        self.modex.sharing.registered(namespace)

    def deregister_nspace(self, nspace: str) -> None:
        """See `ServerSession.deregister_nspace`."""
        namespace = self.store.remove(nspace)
        if namespace is None:
            return
        for peer in self.everyone():
            peer.plan = peer.bundle = None
        for process in namespace.processes.values():
            if not process.local:
                continue
            if process.registered:
                process.registered = False
                self._users[process.uid] -= 1
            for peer in self._peers.get(process, [])[:]:
                self._disconnect(peer)
            if not process.left:
                self._depart(process, lost=True)
            else:
                self.collectives.ended(process)
            self.collectives.back(process)
        self.modex.forsake(namespace)
        for topic in self.topics:
            topic.deregistered(namespace)

    def register_client(self, proc: Proc, uid: int, gid: int) -> None:
        """See `ServerSession.register_client`."""
        process = self.store.process(proc)
        if not process.local:
            raise PMIxError(f"{proc} is not of this server", status=statuses.ERR_BAD_PARAM, operation="register_client")
        if process.registered:
            self._users[process.uid] -= 1
        self._users[uid] += 1
        process.registered = True
        process.uid = uid
        process.gid = gid
        process.left = False
        self.collectives.back(process)

    def deregister_client(self, proc: Proc) -> None:
        """See `ServerSession.deregister_client`."""
        process = self.store.process(proc)
        if not process.local:
            return
        if process.registered:
            self._users[process.uid] -= 1
        process.registered = False
        if process.left:
            self.collectives.ended(process)
        peers = self._peers.get(process)
        if not peers:
            if not process.left:
                self._depart(process, lost=True)
            return

        # The process has ended, but what it sent before may still be on its way: its own finalize, for one.
        def linger() -> None:
            if not process.registered:
                for peer in self._peers.get(process, [])[:]:
                    peer.lost()

        self.clock.call_later(LINGER_SECONDS, linger)

    def pending(self) -> list[Pending]:
        """See `ServerSession.pending`."""
        found = self.collectives.pending() + self.modex.pending()
        for topic in self.topics:
            found += topic.pending()
        return sorted(found, key=lambda entry: entry.since)

    def close(self) -> None:
        """Close all connections; nobody is answered any more."""
        self.modex.sharing.close()
        for stranger in list(self.strangers):
            self._dismiss(stranger)
        for peer in list(self.everyone()):
            self._disconnect(peer)

    # Connections.

    def peers(self, process: Process) -> list[Peer]:
        """Return the connections of a proc."""
        return self._peers.get(process, [])

    def everyone(self) -> Iterator[Peer]:
        """Return all connections."""
        for peers in self._peers.values():
            yield from peers

    def opened(self, link: Link) -> None:
        """Somebody has connected."""
        uid = link.uid()
        if not self.admission.welcome(uid):
            if uid is None or uid == NOBODY:
                self._log("a connection", "is turned away: the kernel does not tell whose it is")
            else:
                self._log(f"user {uid}", "is turned away: no process of that user is expected")
            self.admission.refused(uid)
            link.close()
            return
        while len(self.strangers) >= MAX_STRANGERS:
            self.refuse(next(iter(self.strangers)), "too many connections wait for their handshake")
        stranger = Stranger(self, link, self.clock.now() + HANDSHAKE_SECONDS, uid)
        link.owner = stranger
        self.strangers[stranger] = None
        delay = self.admission.delay(uid)
        if delay:
            stranger.held = True
            self.clock.call_later(delay, stranger.release)
        if self._strangers_timer is None:
            self._strangers_timer = self.clock.call_later(HANDSHAKE_SECONDS, self._expire_strangers)

    def _expire_strangers(self) -> None:
        self._strangers_timer = None
        now = self.clock.now()
        for stranger in list(self.strangers):
            if stranger.deadline > now:
                delay = stranger.deadline - now
                self._strangers_timer = self.clock.call_later(delay, self._expire_strangers)
                return
            self.refuse(stranger, f"its handshake was not complete after {HANDSHAKE_SECONDS:g} s")

    def _dismiss(self, stranger: Stranger) -> None:
        self.strangers.pop(stranger, None)
        stranger.link.owner = None
        stranger.link.close()

    def refuse(self, stranger: Stranger, reason: str, who: object = "a connection", status: int = 0) -> None:
        """End a connection that is no client's, with a status if there is one."""
        self._log(who, f"refused: {reason}")
        self.admission.refused(stranger.uid)
        if status:
            stranger.link.send(encode_reply(status, None))
        self._dismiss(stranger)

    def refuse_because(self, stranger: Stranger, error: BaseException, who: object, release: Release) -> None:
        """End a connection that may not be what it wants to be, in the way that its release understands."""
        reason = error.detail if isinstance(error, PMIxError) else str(error)
        self.refuse(stranger, reason, who, _heeded(error, release))

    def greeted(self, stranger: Stranger, hello: Hello) -> None:
        """A connection has said who it is; where its credential has to be checked elsewhere, that comes first."""
        if hello.psec != MUNGE or MUNGE not in self.security:
            self._introduced(stranger, hello)
            return

        def proven(ids: tuple[int, int] | None, error: BaseException | None) -> None:
            if stranger.link.owner is not stranger:
                return
            if ids is None:
                detail = error.detail if isinstance(error, PMIxError) else str(error)
                self.refuse(stranger, detail, f"{hello.nspace}:{hello.rank}"[:300])
            else:
                self._introduced(stranger, hello.replace(credential=native_credential(*ids)))

        self.host.authenticate(hello.credential, proven)

    def _introduced(self, stranger: Stranger, hello: Hello) -> None:
        """A connection has said who it is, and its credential holds the user and the group."""
        self.strangers.pop(stranger, None)
        try:
            release = parse_release(hello.version)
        except ValueError:
            release = (0, 0, 0)
        if hello.flag != FLAG_CLIENT:
            self.tools.greeted(stranger, hello, release)
            return
        try:
            process = self._identify(hello, release)
            self.admission.check(stranger.link.uid(), hello.psec, process.uid, True)
            if len(self.peers(process)) >= self.limits.connections:
                raise self.limits.reached("connections", f"{process.proc} has {len(self.peers(process))} connections")
            hello = hello.complete()
        except PMIxError as error:
            self.refuse_because(stranger, error, f"{hello.nspace}:{hello.rank}"[:300], release)
            return
        pid = next((info.value.data for info in hello.infos if info.key == keys.PROC_PID), None)

        def answer(_result: None, error: BaseException | None) -> None:
            if stranger.link.owner is not stranger:
                return
            if not process.registered or self.store.get(process.namespace.name) is not process.namespace:
                error = NotFound("it is not expected any more")
            if error is not None:
                self.refuse(stranger, f"the host refused it: {error}", process.proc, _heeded(error, release))
                return
            self.admit(stranger, process, release, hello)

        pid = pid if isinstance(pid, int) else None
        op = ClientConnected(process.proc, pid, release_text(release), hello.infos)
        self.host.upcall(op, answer, process)

    def _identify(self, hello: Hello, release: Release) -> Process:
        """Return who a client is, if it may be that and can be served."""
        uid, gid = self.credential(hello, release)
        process = self.store.process(Proc.unchecked(hello.nspace or "", hello.rank or 0))
        if not process.registered:
            raise NotFound("no such process is expected")
        if (uid, gid) != (process.uid, process.gid):
            detail = f"it is of user {uid} and group {gid}, expected are {process.uid} and {process.gid}"
            raise PMIxError(detail, status=statuses.ERR_INVALID_CRED)
        return process

    def credential(self, hello: Hello, release: Release) -> tuple[int, int]:
        """Return whose process a connection says to be, if its kind can be served."""
        if release < FLOOR or hello.bfrops not in BFROPS:
            detail = f"release {hello.version!r} with encoding {hello.bfrops!r} is not served"
            raise PMIxError(detail, status=statuses.ERR_NOT_SUPPORTED)
        if hello.gds != "hash":
            raise PMIxError(
                f"it wants the data store {hello.gds!r}, only hash is served", status=statuses.ERR_NOT_SUPPORTED
            )
        if hello.psec not in self.security or hello.psec == UNCHECKED:
            modules = ", ".join([name for name in self.security if name != UNCHECKED])
            detail = f"it uses the security module {hello.psec!r}, only {modules} is taken"
            raise PMIxError(detail, status=statuses.ERR_INVALID_CRED)
        try:
            return parse_native_credential(hello.credential)
        except RemoteProtocolError as error:
            raise PMIxError(error.detail, status=statuses.ERR_INVALID_CRED) from None

    def admit(
        self, stranger: Stranger, process: Process, release: Release, hello: Hello, reply: bytes | None = None
    ) -> None:
        """Make a connection one of a proc's, and say so: by the answer that clients get if there is no other."""
        link = stranger.link
        peer = Peer(self, link, process, release, hello)
        link.owner = peer
        link.known = True
        peers = self._peers.setdefault(process, [])
        if all(other.finalized for other in peers):
            process.opened += 1
        peers.append(peer)
        process.left = False
        self.collectives.back(process)
        self._pindex = (self._pindex + 1) & 0x7FFFFFFF
        link.send(encode_reply(statuses.SUCCESS, self._pindex) if reply is None else reply)
        if stranger.early:
            peer.received(stranger.early)

    def busy(self, peer: Peer) -> None:
        """A connection has sent more than others can be made to wait for: it has turns among theirs."""
        self._busy[peer] = None
        peer.link.hold(True)
        if self._next_turn is None:
            self._next_turn = self.clock.call_later(0.0, self._turns)

    def _turns(self) -> None:
        """Let each of those who have sent a lot have a turn."""
        self._next_turn = None
        for peer in list(self._busy):
            self._turn(peer)
        if self._busy:
            self._next_turn = self.clock.call_later(0.0, self._turns)

    def _turn(self, peer: Peer) -> None:
        backlog = peer.backlog
        if peer.link.full():
            # It is to take its answers first; it stays held until it has.
            self._busy.pop(peer, None)
            return
        try:
            peer.handle([backlog.popleft() for _ in range(min(TURN, len(backlog)))])
        except Exception as error:
            # It must not end the turns of the others.
            if peer.open:
                self.drop(peer, f"there is a fault here: {error!r}")
        if not peer.backlog:
            self._busy.pop(peer, None)
            if peer.open:
                peer.link.hold(False)

    def withhold(self, peer: Peer, size: int) -> None:
        """A reader would end its connection if it were sent so much."""
        self._log(peer.process.proc, f"an answer of {size} bytes is not sent: it takes {peer.most} at the most")

    def drop(self, peer: Peer, reason: str) -> None:
        """End a connection that cannot be understood any more, as if it had been lost."""
        peer.link.close()
        self.lost(peer, reason)

    def lost(self, peer: Peer, reason: str = "") -> None:
        """A connection has ended, for a reason if it was ended on this side."""
        if reason:
            self._log(peer.process.proc, f"dropped: {reason}")
        self._disconnect(peer)
        process = peer.process
        if peer.finalized:
            return
        if any(not other.finalized for other in self.peers(process)):
            self.collectives.withdraw(process, lambda ticket: ticket[0] is peer)
            return
        self._depart(process, lost=True)
        self.host.upcall(ClientLost(process.proc), ignore, process)

    def form(self, buffer_type: int, release: Release) -> Form:
        """Return how some clients pack what they send, as one object for all that pack it the same way."""
        if len(self._forms) >= MAX_FORMS:
            self._forms.clear()
        form = buffer_type, release
        return self._forms.setdefault(form, form)

    def _disconnect(self, peer: Peer) -> None:
        if not peer.open:
            return
        peer.open = False
        peer.forget()
        self._busy.pop(peer, None)
        peer.link.owner = None
        peer.link.close()
        peers = self._peers[peer.process]
        peers.remove(peer)
        if not peers:
            del self._peers[peer.process]
        self.modex.forget(peer)
        for topic in self.topics:
            topic.disconnected(peer)

    def _depart(self, process: Process, lost: bool) -> None:
        """A proc takes part in nothing any more, and commits nothing any more."""
        process.left = True
        self.departing += 1
        try:
            self.collectives.leave(process, lost)
            self.modex.forsake(process)
            for topic in self.topics:
                topic.departed(process, lost)
        finally:
            self.departing -= 1

    # Requests.

    def request(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Carry out a request, or answer it with the status that says why not."""
        if tag <= TAG_DYNAMIC:
            listener = self.topics.listener(tag)
            if listener is not None and not peer.finalized:
                try:
                    listener(peer, payload)
                except Exception as error:
                    self.failed(peer, f"what it sent with tag {tag}", error)
            return
        command = -1
        try:
            if not payload and tag in peer.reader.skipped:
                length = peer.reader.skipped.pop(tag)
                raise self.limits.reached("committed", f"a message of {length} bytes cannot be taken in")
            repeated = self.repeated
            if repeated is not None and payload == repeated.payload and repeated.join(peer, tag):
                return
            # Nearly all requests begin like this; a call is saved for each.
            plain = payload[:1] == b"\2" and peer.buffer_type == PLAIN and len(payload) > 1
            command = payload[1] if plain else peek_command(payload, peer.buffer_type)
            handler = self._handlers.get(command)
            if handler is None:
                handler = self.topics.handler(command)
                if handler is None:
                    raise PMIxError(f"command {command} is not served", status=statuses.ERR_NOT_SUPPORTED)
                self._handlers[command] = handler
            if peer.finalized:
                raise PMIxError("it has finalized already", status=statuses.ERR_INIT)
            handler(peer, tag, payload)
            return
        except RemoteProtocolError as error:
            self._log(peer.process.proc, f"request {command} does not parse: {error.detail}")
            status = error.code
        except PMIxError as error:
            if error.code == statuses.ERR_OUT_OF_RESOURCE:
                self._log(peer.process.proc, f"request {command} is refused: {error.detail}")
            if command == Command.COMMIT or not payload:
                peer.deny(tag, error)
                return
            status = error.code
        except Exception as error:
            self.failed(peer, f"request {command}", error)
            status = statuses.ERROR
        if command != Command.DEREGEVENTS:
            peer.status(tag, status or statuses.ERROR)

    def failed(self, peer: Peer, what: str, error: Exception) -> None:
        """Log that something of a client failed because of a fault of this server; its connection stays."""
        self._log(peer.process.proc, f"{what} failed because of a fault here:", indented(traced(error)))

    def _decode(self, peer: Peer, command: int, payload: bytes) -> dict[str, Any]:
        return request_layout(command, peer.release).decode(payload, peer.buffer_type, peer.release)

    def _job_info(self, peer: Peer, tag: int, payload: bytes) -> None:
        peer.send(tag, peer.process.namespace.pack(peer.buffer_type, peer.release).reply)

    def _abort(self, peer: Peer, tag: int, payload: bytes) -> None:
        fields = self._decode(peer, Command.ABORT, payload)
        procs = tuple(self.store.ungrouped(fields["procs"]))
        op = ClientAborted(peer.process.proc, fields["code"], fields["message"] or "", procs)
        self.host.upcall(op, lambda _result, error: refuse(peer, tag, error), peer.process)

    def _finalize(self, peer: Peer, tag: int, payload: bytes) -> None:
        process = peer.process
        peer.finalized = True
        peer.plan = None
        if all(other.finalized for other in self._peers[process]):
            self._depart(process, lost=False)
            if not process.registered:
                self.collectives.ended(process)
        op = ClientFinalized(process.proc)
        self.host.upcall(op, lambda _result, error: refuse(peer, tag, error), process)

    def _log(self, who: object, text: str, more: str = "") -> None:
        """Tell the host, unless it has just been told; all but the first word of the text may be a peer's."""
        line = printable(f"{who} {text}")
        note = self._lines.take(text.partition(" ")[0], line)
        if note is not None:
            self.host.log(line + note + more)


def _heeded(error: BaseException, release: Release) -> int:
    """Return the status that tells a client of a refusal, 0 where it would not heed one."""
    return status_of(error) if any(floor <= release < end for floor, end in HEEDING) else 0
