"""A server as its topics see it: its data, the connections of its procs, and the ports between topics.

`Node` is the base of `Server`. Fences, modex and each topic below `serverside/` know this module and nothing above it;
`server.py` alone imports the topics. A topic uses another topic through a port: a `Protocol` of the needed methods.
"""

from __future__ import annotations

from pypmix.engine.collective.machine import Collectives
from pypmix.engine.python.serverdata import Store
from pypmix.engine.times import CHARGED_SECONDS, TURN_SECONDS
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError, RemoteProtocolError
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.logtext import Limit, printable
from pypmix.standard.types import Proc
from pypmix.wire.additions import encode_late, greeted
from pypmix.wire.frames import HEADER, LONGEST, MAX_MESSAGE, FrameReader, frame
from pypmix.wire.messages import encode_status, request_layout
from pypmix.wire.readers import mark_of, rule_for, rule_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Protocol

    from pypmix.engine.base import Done, R
    from pypmix.engine.collective.machine import Clock, Membership, Said
    from pypmix.engine.common import Pending
    from pypmix.engine.python.modex import Modex
    from pypmix.engine.python.processes import Namespace, Process
    from pypmix.engine.python.serverside.connecting import Connecting
    from pypmix.engine.python.serverside.events import Events
    from pypmix.engine.python.serverside.forwarding import Forwarding
    from pypmix.engine.python.serverside.groups import Groups
    from pypmix.engine.python.serverside.tools import Tools
    from pypmix.standard.limits import Limits
    from pypmix.standard.ops import Op
    from pypmix.standard.releases import Release
    from pypmix.wire.handshake import Hello

    class Owner(Protocol):
        """The receiver of the data and the end of a connection."""

        def received(self, data: bytes) -> None: ...

        def drained(self) -> None:
            """Handle that a full connection has sent its waiting data."""

        def handle_disconnect(self, reason: str = "") -> None:
            """Handle the end of the connection, closed by the other side or for a fault; no further call follows."""

    class Link(Protocol):
        """One connection, as the machine sees it."""

        owner: Owner | None

        def send(self, data: bytes) -> None:
            """Send without blocking, now or at the end of this turn; must not call the machine."""

        def close(self) -> None:
            """Close after what was sent; `handle_disconnect` is not called."""

        def send_now(self, data: bytes) -> None:
            """Send at once if nothing is before it, or like `send`; must not call the machine either."""

        def hold(self, paused: bool) -> None:
            """Deliver no further data of the other side, nor its end, or continue to deliver."""

        def full(self) -> bool:
            """Return True if so much data waits for the other side that more should not be sent.

            The owner's `drained` is then called when that is over.
            """

        is_client: bool
        """Whether it belongs to a client: such connections have precedence over unnamed ones."""

        def uid(self) -> int | None:
            """Return the user at the other end from the kernel, `UNKNOWN_USER` if it does not know the connection.

            None is returned for all connections if the kernel does not report users at all.
            """

        def is_closed(self) -> bool:
            """Return True if the other end has closed it: the kernel does not report its user then."""

    class Host(Protocol):
        """The host's side."""

        def upcall(self, op: Op[R], answer: Done[R], process: Process | Applicant | None = None) -> None:
            """Ask the host on behalf of a proc; `answer` is called once, on the machine's thread, now or later."""

        def authenticate(self, credential: bytes, answer: Done[tuple[int, int]]) -> None:
            """Find the user and group of a munge credential; `answer` is called as for an upcall."""

        def log(self, text: str) -> None:
            """Log a message for the operator of the server."""

    Call = tuple["Peer", int]
    Form = tuple[int, Release]
    Handler = Callable[["Peer", int, bytes], None]

TURN = 32
"""Messages of one connection that are handled before others have their turn."""

PIECE = 1 << 16
"""Bytes of an unfinished message that a connection may always hold."""

TELLING = (7, 0, 0)
"""The first release whose clients return the final status of a commit to their caller."""

OLD_READERS = (6, 0, 0)
"""The first release whose clients refuse messages above a limit."""

MAX_FORMS = 256
"""Of how many releases clients are known at a time."""

NAMELESS = Proc("pypmix-server", 0)

_unpack_header = HEADER.unpack_from


class Plan:
    """A decoded request to fence, which many procs send in the same bytes.

    Attributes:
        payload: Its bytes.
        membership: The participants.
        collect: Whether it asks for the others' data.
        timeout: Its time limit in seconds, 0 for none.
        contribution: The procs and the directives, if the host is asked; None otherwise.
        valid: Whether the decoded request is still correct.
    """

    __slots__ = ("collect", "contribution", "membership", "payload", "timeout", "valid")

    def __init__(
        self, payload: bytes, membership: Membership[Process, Call], collect: bool, timeout: float, contribution: Said
    ) -> None:
        self.payload = payload
        self.membership = membership
        self.collect = collect
        self.timeout = timeout
        self.contribution = contribution if membership.asks else None
        self.valid = True

    def forgotten(self) -> None:
        """Mark the plan as no longer correct."""
        self.valid = False


class Peer:
    """One connection of a proc of this node; a proc and its own children may have several.

    Attributes:
        backlog: Messages that have arrived and wait for their turn.
        rule: The rule for values that it can decode; see `pypmix.wire.readers`.
        unfit: The mark of packed values that it cannot decode; 0 for none.
        most: The longest message that it accepts.
        denied: The status of a refused commit that its fence is to end with.
        pypmix: Whether its client runs pypmix without a library.
        is_own_engine: Whether its client is known to run pypmix; on a library, its requests show that.
        participants: The participants of the last fence of each group, if it has asked for them.
        plan: The last fence of procs of this server alone, which it is likely to repeat byte by byte.
        waiting: The number of its gets that wait.
        sent: The number `written` of each proc with much data when its values were last sent.
    """

    __slots__ = (
        "_now",
        "_pending",
        "backlog",
        "buffer_type",
        "bundle",
        "denied",
        "finalized",
        "form",
        "is_own_engine",
        "link",
        "most",
        "open",
        "participants",
        "plan",
        "process",
        "pypmix",
        "reader",
        "release",
        "rule",
        "sent",
        "server",
        "unfit",
        "waiting",
    )

    def __init__(self, server: Node, link: Link, process: Process, release: Release, hello: Hello) -> None:
        self.server = server
        self._now = server.clock.now
        self.link = link
        self.process = process
        self.release = release
        self.buffer_type = hello.buffer_type
        self.pypmix = self.is_own_engine = greeted(hello.infos)
        self.rule = rule_for(release) if self.pypmix else rule_of(release, client=True)
        self.unfit = mark_of(self.rule)
        self.form = server.form(self.buffer_type, release)
        self.reader = FrameReader(server.limits.message, skips=True)
        self._pending = 0
        self.denied = 0
        # Not a deque, which takes as much memory as the rest of a connection that has nothing to wait.
        self.backlog: list[tuple[int, bytes]] = []
        self.most = LONGEST if self.pypmix or release < OLD_READERS else MAX_MESSAGE
        self.open = True
        self.finalized = False
        self.plan: Plan | None = None
        self.participants: dict[str, tuple[Proc, ...]] = {}
        self.bundle: Membership[Process, Call] | None = None
        self.waiting = 0
        self.sent: dict[Proc, int] = {}

    def received(self, data: bytes) -> None:
        """Handle received bytes, and count the time of that against the turn of the proc."""
        began = self._now()
        reader = self.reader
        size = len(data)
        if size >= 16 and not reader.held and not self.backlog and self.process.spent <= TURN_SECONDS:
            _, tag, length, _ = _unpack_header(data)
            if length + 16 == size and not reader.left:
                # Nearly always the data is exactly one message.
                self._take(tag, data[16:])
            else:
                self._read(data)
        else:
            self._read(data)
        took = self._now() - began
        if took > CHARGED_SECONDS:
            self.server.charge(self.process, took)

    def _read(self, data: bytes) -> None:
        """Handle bytes that are not exactly one message, or that have to wait for a turn."""
        try:
            messages = self.reader.feed(data)
        except RemoteProtocolError as error:
            self.server.drop(self, error.detail)
            return
        pending = self.reader.pending
        if pending != self._pending and not self._account(pending):
            return
        is_crowded = self.process.spent > TURN_SECONDS
        if len(messages) > TURN or self.backlog or (is_crowded and messages):
            self.backlog += messages
            self.server.busy(self)
            return
        self.handle(messages)
        if self.backlog:
            self.server.busy(self)

    def drained(self) -> None:
        """Continue with its waiting requests, now that it has read its answers."""
        if self.backlog:
            self.server.busy(self)

    def count_request(self, operation: str) -> None:
        """Count a request that has to wait, until `waiting` is decremented.

        Raises:
            OutOfResources: Too many requests of the connection wait already.
        """
        limits = self.server.limits
        if self.waiting >= limits.requests:
            raise limits.reached("requests", f"{self.waiting} requests wait already", operation)
        self.waiting += 1

    def _account(self, pending: int) -> bool:
        """Count the bytes of an unfinished message; end the connection if its proc has too many of them."""
        process, limits = self.process, self.server.limits
        process.unfinished += pending - self._pending
        self._pending = pending
        if process.unfinished <= max(limits.unfinished, limits.message) or pending <= PIECE:
            return True
        what = f"{process.unfinished} bytes of unfinished messages of its proc are held"
        self.server.drop(self, limits.reached("unfinished", what).detail)
        return False

    def forget(self) -> None:
        """Forget the data of the connection, which has ended."""
        self.process.unfinished -= self._pending
        self._pending = 0
        self.denied = 0
        self.backlog.clear()
        self.reader = FrameReader()
        self.participants = {}
        self.plan = self.bundle = None

    def handle(self, messages: Sequence[tuple[int, bytes]]) -> None:
        """Handle messages for the time of a turn, as long as the client reads its answers.

        The remaining messages stay at the beginning of `backlog`.
        """
        now = self.server.clock.now
        end = now() + TURN_SECONDS
        left = len(messages)
        for tag, payload in messages:
            self._take(tag, payload)
            if not self.open:
                return
            left -= 1
            if left and (now() > end or self.link.full()):
                self.backlog[:0] = messages[-left:]
                return

    def _take(self, tag: int, payload: bytes) -> None:
        plan = self.plan
        if plan is None or payload != plan.payload or not plan.valid:
            self.server.request(self, tag, payload)
            return
        # Most of a job's messages repeat its last fence byte by byte.
        server = self.server
        try:
            server.collectives.join(
                plan.membership, self.process, (self, tag), plan.collect, plan.timeout, plan.contribution
            )
        except PMIxError as error:
            self.status(tag, error.code)
        except Exception as error:
            server.failed(self, "its fence", error)
            self.status(tag, statuses.ERROR)

    def handle_disconnect(self, reason: str = "") -> None:
        self.server.handle_disconnect(self, reason)

    def send(self, tag: int, payload: bytes) -> None:
        if self.open:
            if len(payload) > self.most:
                # A reader would end its connection if it were sent so much.
                text = f"an answer of {len(payload)} bytes is not sent: it takes {self.most} at the most"
                self.server.log(self.process.proc, text)
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
        """Answer before this turn's messages to others are sent: a process that they wake takes a processor."""
        if self.open:
            self.link.send_now(frame(0, tag, encode_status(self.buffer_type, status)))


class Applicant:
    """A tool that the host is asked about: the name that it has chosen, and its user."""

    __slots__ = ("gid", "proc", "uid")

    def __init__(self, proc: Proc | None, uid: int, gid: int) -> None:
        self.proc = proc
        self.uid = uid
        self.gid = gid


class Node:
    """The part of a server that its topics see; `Server` is the rest.

    Args:
        clock: The clock.
        host: The host, which answers upcalls.
        proc: The server's own name.
        limits: The limits of one peer.
    """

    def __init__(self, clock: Clock, host: Host, proc: Proc = NAMELESS, limits: Limits = DEFAULTS) -> None:
        self.clock = clock
        self.host = host
        self.proc = proc
        self.limits = limits
        self.store = Store()
        self.collectives: Collectives[Process, Call] = Collectives(clock, limits)
        self._peers: dict[Process, list[Peer]] = {}
        self._forms: dict[Form, Form] = {}
        self._lines = Limit(clock=clock.now)

    def peers(self, process: Process) -> list[Peer]:
        """Return the connections of a proc."""
        return self._peers.get(process, [])

    def everyone(self) -> Iterator[Peer]:
        """Return all connections."""
        for peers in self._peers.values():
            yield from peers

    def joined(self, peer: Peer) -> None:
        """Add a complete connection of a proc."""
        process = peer.process
        peers = self._peers.setdefault(process, [])
        if all(other.finalized for other in peers):
            process.opened += 1
        peers.append(peer)
        process.left = False
        self.collectives.readmit(process)

    def form(self, buffer_type: int, release: Release) -> Form:
        """Return the packing of a client's messages, as one object for all clients with the same packing."""
        if len(self._forms) >= MAX_FORMS:
            self._forms.clear()
        form = buffer_type, release
        return self._forms.setdefault(form, form)

    def log(self, subject: object, text: str, more: str = "") -> None:
        """Log a message to the host, unless it was logged just now; all but its first word may come from a peer."""
        line = printable(f"{subject} {text}")
        note = self._lines.take(text.partition(" ")[0], line)
        if note is not None:
            self.host.log(line + note + more)

    # `Server` carries these out.

    def request(self, peer: Peer, tag: int, payload: bytes) -> None:
        """Carry out a request, or answer it with the status of its refusal."""
        raise NotImplementedError

    def charge(self, process: Process, seconds: float) -> None:
        """Count time against the turn of a proc, which all of its connections share."""
        raise NotImplementedError

    def busy(self, peer: Peer) -> None:
        """Hold a connection that has sent too much at once; it has turns among the others'."""
        raise NotImplementedError

    def drop(self, peer: Peer, reason: str) -> None:
        """End a connection whose bytes can no longer be parsed, as if it had been lost."""
        raise NotImplementedError

    def handle_disconnect(self, peer: Peer, reason: str = "") -> None:
        """Handle the end of a connection; `reason` is given if this side has ended it."""
        raise NotImplementedError

    def withdraw(self, peer: Peer, tag: int) -> bool:
        """Withdraw a client from the collective that a request has called; return False if that is too late."""
        raise NotImplementedError

    def failed(self, peer: Peer, what: str, error: Exception) -> None:
        """Log that something of a client failed because of a fault of this server; its connection stays."""
        raise NotImplementedError

    def deregister_nspace(self, nspace: str) -> None:
        """Forget an nspace."""
        raise NotImplementedError

    @property
    def events(self) -> Events:
        """The topic of events."""
        raise NotImplementedError

    modex: Modex
    """The values that procs have committed."""

    @property
    def groups(self) -> Groups:
        """The topic of groups."""
        raise NotImplementedError

    @property
    def connecting(self) -> Connecting:
        """The topic of connects."""
        raise NotImplementedError

    @property
    def forwarding(self) -> Forwarding:
        """The topic of output and input."""
        raise NotImplementedError

    @property
    def tools(self) -> Tools:
        """The topic of tools."""
        raise NotImplementedError


class Topic:
    """Base of all topics. Its methods do nothing; a topic overrides the methods that it needs.

    Attributes:
        server: The machine.
        handlers: The handler of each command, called with the peer that sent it, its tag and the message. A
            `PMIxError` that it raises is answered with its status.
    """

    def __init__(self, server: Node) -> None:
        self.server = server
        self.handlers: dict[int, Handler] = {}

    def disconnected(self, peer: Peer) -> None:
        """Handle the end of a connection; nothing can be sent to it any longer."""

    def handle_departure(self, process: Process, failed: bool) -> None:
        """Handle the departure of a proc, which has finalized or was lost: it no longer takes part in anything."""

    def handle_withdrawal(self, process: Process, call: Call) -> None:
        """Handle a caller that no longer waits for a call, which may still count."""

    def deregistered(self, namespace: Namespace) -> None:
        """Forget the data of an nspace that is removed."""

    def pending(self) -> list[Pending]:
        """Return the pending operations of this topic."""
        return []


def label_of_group(group: str) -> object:
    """Return the label by which the kept events about a group of this name are found."""
    return keys.GROUP_ID, group


def fields_of(peer: Peer, command: int, payload: bytes) -> dict[str, Any]:
    """Return the fields of a request."""
    return request_layout(command, peer.release).decode(payload, peer.buffer_type, peer.release)


def made(make: Callable[..., Any], *fields: object) -> Any:
    """Return the operation that a client asks for.

    Raises:
        PMIxError: It is not valid (`ERR_BAD_PARAM`).
    """
    try:
        return make(*fields)
    except (TypeError, ValueError) as error:
        raise PMIxError(str(error), status=statuses.ERR_BAD_PARAM) from None


def refuse(peer: Peer, tag: int, error: BaseException | None) -> None:
    """Answer with the host's status; pypmix's own clients also get the reason of an error."""
    answer_failure(peer, tag, status_of(error), None, reason_of(error))


def answer_failure(peer: Peer, tag: int, status: int, absent: tuple[Proc, ...] | None, reason: str = "") -> None:
    """Answer a client with a failure; only pypmix's own clients get the procs that caused it, and the reason."""
    if (absent is not None or reason) and peer.pypmix:
        peer.send(tag, encode_late(peer.buffer_type, status, absent, reason))
    else:
        peer.status(tag, status)


def reason_of(error: BaseException | None) -> str:
    """Return the text of a host's error for its client; empty unless it is a `PMIxError`."""
    return error.detail if isinstance(error, PMIxError) else ""


def status_of(error: BaseException | None) -> int:
    """Return the status that reports the end of a request to a client."""
    if error is None:
        return statuses.SUCCESS
    return (error.code if isinstance(error, PMIxError) else statuses.ERROR) or statuses.ERROR
