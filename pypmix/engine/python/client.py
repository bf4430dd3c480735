"""The client's side of the protocol as a state machine: no sockets, threads or clocks.

Theory of operation
-------------------
The inputs are operations (`start`), received bytes (`intake.chunks`, then `take`) and the time (`tick`). The outputs
are bytes to send (`out`), ended calls (`Call.outcome`; `finished` if a function is to be called) and the next moment to
look at the clock (`deadline`). The transport serialises all of it under its lock: no two threads are in here at a time,
and nothing waits.

A `Call` is one running operation. `OPERATIONS` has three functions for each kind of operation: to begin it (`start`),
to read the bytes of its answer (`read`) and to apply the answer (`act`). The operations that every rank uses are in
this module; the others are in `clientside`, a module for each module of `standard.ops`, imported at its first use. They
use only the public methods of `Client`: `ask` or `request` to send, and `end`, `fail`, `refuse` or `settle` to end a
call.

- Connecting: `connect` (handshake, then the request for the job info) or `begin` (the job info alone, for tools, which
  have another handshake). Until the handshake has ended, all bytes belong to it.
- Open: an answer belongs to the call of its tag. A message whose tag belongs to no call goes to the listener of the
  tag, or is dropped: it is the late answer to a call that was given up.
- Finalizing: `Finalize` sends a fence first if it was asked for ("barrier"), then the finalize request ("leave"), and
  waits a moment for the server to close its end ("part").
- Closed (`closed` is set): by `Finalize`, `close`, the loss of the server, bytes that break the protocol, or `give_up`.
  All running operations have ended with an error then, and `at_loss` has been called.

Faults: if `read` finds the bytes invalid, the server is at fault, and the connection is closed with a
`RemoteProtocolError`. If `act`, a listener, a timer or a step of the groups raises, pypmix is at fault: the exception
is logged with its traceback and ends that operation with an internal error that says so. Other operations continue.

An exception of a signal handler can occur between any two steps of Python code. So that no reply is lost, each
change that matters is one assignment or one call of a C function, and `resume` repeats a step that was interrupted.
"""

from __future__ import annotations

import sys

from pypmix.engine.common import CONTINUED, SLURM, TIMED_OUT, TIMEOUT_GRACE, suggest_key
from pypmix.engine.faults import fault, struck
from pypmix.engine.python import datastore
from pypmix.engine.python.datastore import PLAIN, DataStore, GetDirectives, is_true, seconds
from pypmix.lazy import load
from pypmix.standard import codes, keys, statuses, types
from pypmix.standard.errors import (
    SUCCESSES,
    LocalProtocolError,
    LostConnection,
    NotFound,
    NotInitialized,
    NotSupported,
    PMIxError,
    RemoteProtocolError,
    Unreachable,
    answered_error_for,
    error_for,
)
from pypmix.standard.ops import (
    DELETES,
    FENCE_PARTICIPANTS,
    RESERVED_PREFIX,
    SCOPE_GLOBAL,
    SCOPE_INTERNAL,
    SCOPE_LOCAL,
    SCOPE_REMOTE,
    Abort,
    Commit,
    Fence,
    Finalize,
    Get,
    Op,
    Put,
)
from pypmix.standard.ops.core import COLLECT, collecting
from pypmix.standard.record import Record
from pypmix.standard.releases import release_text
from pypmix.standard.types import Info, Proc, Value
from pypmix.wire.additions import decode_late, decode_participants, encode_withdrawal, split_reason
from pypmix.wire.codec import PLAIN as PLAIN_BUFFER
from pypmix.wire.codec import Unpacker, encode_kval, kvals
from pypmix.wire.frames import LONGEST, MAX_MESSAGE, MAX_SKIPPED, TAG_DATA_DELETE, FrameReader, frame, tags
from pypmix.wire.frequent import (
    PLAIN_SUCCESS,
    Command,
    decode_status,
    encode_bare,
    encode_commit,
    encode_fence,
    encode_get,
    read_get_object,
)
from pypmix.wire.readers import rule_for, rule_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any, ClassVar

    from pypmix.engine.base import Done
    from pypmix.engine.python.clientside.groups import GroupPort
    from pypmix.standard.releases import Release
    from pypmix.wire.handshake import Hello, ReplyReader

    Outcome = tuple[Any, BaseException | None]
    Collective = tuple[type, frozenset[Proc], bool]
    JobValues = tuple[str, list[tuple[str, Value]], dict[int, bytes]]
    Ended = tuple[int, frozenset[Proc] | None]
    Got = tuple[int, list[tuple[Proc, list[tuple[str, Value]], RemoteProtocolError | None]]]
    Start = Callable[["Client", "Call", Any], None]
    Read = Callable[["Client", "Call", bytes], Any]
    Act = Callable[["Client", "Call", Any, Any], None]


ENGINE = "python"
_ENDED_WELL: Ended = statuses.SUCCESS, None
_STOP = keys.DEBUG_STOP_IN_INIT.encode()

DELETION = (7,)
"""The first release of servers that delete keys."""


CORE = Op.__module__

TOPICS = frozenset(
    {"connecting", "control", "events", "fabric", "forwarding", "groups", "publishing", "queries", "spawning"}
)
"""The modules of `pypmix.standard.ops`, and of `clientside`, that are imported when they are needed."""


UNOFFERED = "the server's host does not offer it"

FINALIZE_WAIT = 2.0
"""Seconds that the server's answer to a finalize is waited for; natives take the same."""

PART_WAIT = 0.25
"""Seconds that the server gets to close its end after a finalize.

Until it has seen the end of a connection, a server may take its client for a lost participant of the next fence: a
client that opens again at once would be left out.
"""

CLOSE_PAUSE = 0.002
"""Seconds between a libpmix server's answer to a finalize and the end of our side of the connection.

Before libpmix 7 such a server records on its host's thread that its client has finalized, and may send the answer
before that. A connection that ends in between counts as lost: every later fence of the job waits for one proc fewer,
and ends before all procs have joined. A client in C needs longer than this pause to close.
"""

WITHDRAW_WAIT = 5.0
"""Seconds that a server of this engine gets to report the end of a collective that the caller gives up.

Until then the others may count the caller in.
"""

COLLECTIVES = frozenset(("Fence", "Connect", "Disconnect", "GroupConstruct", "GroupDestruct"))
"""The operations that a caller can withdraw from."""

MAX_ANSWERS = 256
"""The most answers that are kept for the next calls of collectives that were given up."""

_COLLECTS = (COLLECT,)
_IMMEDIATE = Info.unchecked(keys.IMMEDIATE, Value.unchecked(codes.BOOL, True), 0)
_REMOTE = Info.unchecked(keys.DATA_SCOPE, Value.unchecked(codes.SCOPE, SCOPE_REMOTE), 0)
_SCOPE_NAMES = {1: "LOCAL", 2: "REMOTE", 3: "GLOBAL", 4: "INTERNAL"}


class Open(Op[None]):
    """The handshake and the request for the job info."""


class _TransportCall(Op[None]):
    """A call by which the transport delivers something, such as an event."""


_TRANSPORT_CALL = _TransportCall()


def _status(client: Client, call: Call, payload: bytes) -> int:
    return decode_status(payload, client.buffer_type)


def _settle(client: Client, call: Call, op: Op[Any], status: int) -> None:
    client.settle(call, status)


class Operation:
    """The functions that carry out one kind of operation.

    Attributes:
        start: Begins it: sends its request, or ends the call at once.
        read: Returns the decoded answer, and has no effect.
        act: Applies the decoded answer.
    """

    __slots__ = ("act", "read", "start")

    def __init__(self, start: Start, read: Read | None = None, act: Act | None = None) -> None:
        self.start = start
        self.read: Read = read or _status
        self.act: Act = act or _settle


class ServerInfo(Record):
    """The server, as the environment describes it.

    Attributes:
        name: Its `nspace.rank`.
        release: Its release.
        buffer_type: The kind of buffer that it wants, 1 plain or 2 described.
        shared_store: Whether native clients of its node leave their data in shared memory that only they can read
            (the stores ds12 and ds21 of 4.x).
        tool: Whether this process is a tool there that the server's host has not launched.
        adapts: Whether it is a server of this engine, which knows groups and their addresses.
    """

    name: str
    release: Release
    buffer_type: int = 1
    shared_store: bool = False
    tool: bool = False
    adapts: bool = False


class Call:
    """One running operation.

    Attributes:
        op: The operation.
        done: Called when it has ended; None if a thread waits for `outcome` instead.
        outcome: Its result and its error, once it has ended.
        deadline: When to give up, on the clock of the caller; None for never.
        inside: Called at the end at once, inside of the machine, if the machine itself has started the operation.
        reason: The reason of the failure, as the server's host gives it.
        guided: Whether another event of the machine may end it instead of an answer to its request.
        participants: The procs of a collective as the request names them.
        answer: The answer to a collective that was given up before it arrived.
        repeat: The request of a call that waits for the answer to an earlier call of the same collective.
    """

    __slots__ = (
        "answer",
        "deadline",
        "done",
        "failure",
        "followers",
        "get_directives",
        "guided",
        "infos",
        "inside",
        "op",
        "outcome",
        "participants",
        "phase",
        "reason",
        "repeat",
        "sent",
        "tag",
        "tried",
    )

    def __init__(self, op: Op[Any], done: Done[Any] | None) -> None:
        self.op = op
        self.done = done
        self.outcome: Outcome | None = None
        self.deadline: float | None = None
        self.inside: Done[Any] | None = None
        self.guided = False
        self.tag = 0
        self.get_directives = PLAIN
        self.infos: tuple[Info, ...] = ()
        self.tried = False
        self.phase = ""
        self.reason = ""
        self.participants: tuple[Proc, ...] = ()
        self.answer = b""
        self.repeat = b""
        self.failure: PMIxError | None = None
        self.sent: Iterable[tuple[int, dict[str, bytes]]] = ()
        self.followers: tuple[Call, ...] = ()

    @property
    def because(self) -> str:
        """The reason, for the end of a sentence; empty if it has none."""
        return f": {self.reason}" if self.reason else ""


class _Intake:
    """The bytes from the first message that is not complete or not handled, and how far they have been read.

    `handled` has an entry for each handled message: to append to a list can be a part of one call of C functions.
    """

    __slots__ = ("chunks", "fed", "handled", "reader")

    def __init__(self, reader: FrameReader) -> None:
        self.chunks: list[bytes] = []
        self.fed = 0
        self.handled: list[object] = []
        self.reader = reader


class ClientTimer:
    """A call that is due at a time of the machine's clock."""

    __slots__ = ("_timers", "call", "due")

    def __init__(self, timers: list[ClientTimer], due: float, call: Callable[[], None]) -> None:
        self._timers = timers
        self.due = due
        self.call = call
        timers.append(self)

    def run(self) -> None:
        """Make the call, once."""
        if self in self._timers:
            self._timers.remove(self)
            self.call()

    def cancel(self) -> None:
        """Cancel the call."""
        if self in self._timers:
            self._timers.remove(self)


class Client:
    """The state machine of one client.

    Args:
        proc: The client itself.
        store: The values that it has without a request.
        server: Its server; None for a singleton.
    """

    _calls: dict[int, Call]
    _given_up: dict[Collective, list[Call]]

    def __init__(self, proc: Proc, store: DataStore, server: ServerInfo | None) -> None:
        self.proc = proc
        self._whole_job = (Proc.unchecked(proc[0], types.RANK_WILDCARD),)
        self.store = store
        self.server = server
        self.release: Release = server.release if server else (0, 0, 0)
        self.engine = f"{ENGINE} {release_text(self.release)}" if server else ENGINE
        self.buffer_type = server.buffer_type if server else 1
        self.adapts = server is not None and server.adapts
        """Whether the server is one of this engine."""
        self.slurm = server is not None and proc[0].startswith(SLURM)
        """Whether Slurm's plugin is the server's host; see `pypmix.engine.slurm`."""
        self.out: tuple[bytes, list[int]] = (b"", [])
        """The bytes to send, and the lengths of their beginnings that the transport has sent already."""
        self.intake = _Intake(self._reader())
        self.finished: list[Call] = []
        """Ended calls whose `done` the transport is to call."""
        self.collected = False
        self.closed: Callable[[], PMIxError] | None = None
        """Makes the error of further operations, once there can be none; the transport closes the socket."""
        self._calls, self._given_up = {}, {}
        self._timed: list[Call] = []
        self._gets: dict[Proc, Call] = {}
        self._fences: dict[bool, bytes] = {}
        """The requests of fences with all of the job, without and with their data."""
        self._tags = tags()
        self._pindex = 0
        self.half_closing = False
        """Whether the transport is to end its sending side now."""
        self._opening: Call | None = None
        self._finalizing: Call | None = None
        self.finalizing = False
        self.now = 0.0
        self.listeners: dict[int, Callable[[bytes], None]] = {}
        """The takers of messages that answer no request, by tag; see `effect` for how not to take one twice."""
        self.at_resume: list[Callable[[], None]] = []
        """Called first when an exception of a signal handler may have cut a listener short."""
        self.at_loss: list[Callable[[], None]] = []
        """Called when there can be no further operations."""
        self.topics: dict[str, object] = {}
        """The state of the modules of `clientside`, each under its own name."""
        self.groups: GroupPort | None = None
        """The groups of this process, made at its first operation on groups."""
        self.timers: list[ClientTimer] = []
        self.enter: Callable[[Callable[[], None]], None] = lambda step: step()
        """Takes a step of this machine from any thread that is not in it already; the transport sets it."""
        self.misdirected = False
        """Whether the job info arrived in the form of another data store; another connection helps."""
        self._may_stop = False

    read: Callable[[Callable[[str], Any], str], Any] = staticmethod(lambda function, argument: function(argument))
    """Calls a function without an effect on this machine, from any thread; the transport sets it."""

    _reply_reader: ReplyReader
    """Reads the answer to the handshake."""

    _rule = -1
    """Not known yet."""

    @property
    def rule(self) -> int:
        """The rule for values that the server can decode; see `pypmix.wire.readers`."""
        if self._rule < 0:
            own = self.server is None or self.adapts
            self._rule = rule_for(self.release) if own else rule_of(self.release)
        return self._rule

    # Requests of the caller

    def connect(self, hello: Hello, deadline: float | None) -> Call:
        """Begin the handshake; the call ends when the job info is here."""
        from pypmix.wire.handshake import ReplyReader, encode_hello

        self._reply_reader = ReplyReader()
        call = self._opening = Call(Open(), None)
        self._set_deadline(call, deadline)
        self._push(encode_hello(hello))
        if self.adapts:
            # A server of this engine keeps messages that arrive before its answer: one exchange is enough.
            self.request(call, encode_bare(Command.REQ, self.buffer_type))
        return call

    def begin(self, rest: bytes, deadline: float | None) -> Call:
        """Ask for the job info after a handshake that was done elsewhere; the call ends when it has arrived.

        Args:
            rest: The bytes received after the handshake.
            deadline: When to give up.
        """
        call = Call(Open(), None)
        self._set_deadline(call, deadline)
        self.request(call, encode_bare(Command.REQ, self.buffer_type))
        if rest:
            self.intake.chunks.append(rest)
        return call

    def start(self, op: Op[Any], done: Done[Any] | None, now: float) -> Call:
        """Begin an operation.

        Raises:
            PMIxError: The client is closed.
            LocalProtocolError: The operation cannot be expressed to this server.
        """
        if self.closed is not None:
            raise self.named(self.closed(), op)
        if self.finalizing:
            raise self.named(NotInitialized("the client is being finalized"), op)
        call = Call(op, done)
        self.now = now
        if self.slurm and type(op).__module__ != CORE and self._refused_by_slurm(call):
            return call
        groups = self.groups
        if groups is not None and type(op) in groups.names and not groups.translate(call):
            return call
        operation = OPERATIONS.get(type(op)) or _import_operation(op, self)
        try:
            operation.start(self, call, call.op)
        except (RemoteProtocolError, NotSupported) as error:
            # Values of a proc from the server are unpacked only at their first use, and values that the server's
            # release cannot decode are not sent.
            self.fail(call, error)
        return call

    def abandon(self, call: Call) -> None:
        """The caller no longer waits for a call: its reply will be read and dropped, or kept for its next call."""
        self.withdraw(call)
        self._note_given_up(call)
        call.done = None
        if call.outcome is None:
            call.outcome = None, None
        if call in self._timed:
            self._timed.remove(call)

    def withdraw(self, call: Call) -> bool:
        """Ask a server of this engine no longer to count the caller in a collective; return False if it cannot.

        The call ends with the answer: a timeout, or the collective's end if that was first.
        """
        if not self.adapts or call.outcome is not None or self.closed is not None:
            return False
        if not call.tag or type(call.op).__name__ not in COLLECTIVES or call.phase == "withdrawn":
            return False
        call.phase = "withdrawn"
        if self.groups is not None and hasattr(call.op, "group"):
            self.groups.abandon(call.op)
        self.send(encode_withdrawal(self.buffer_type, call.tag))
        return True

    def withdraw_done(self, done: Done[Any]) -> bool:
        """Withdraw the call whose end `done` is to be called with: its caller no longer waits."""
        for call in [*self._everyone(), *(self.groups.outside() if self.groups is not None else ())]:
            if call.done == done:
                if not self.adapts or type(call.op).__name__ in CONTINUED:
                    self.abandon(call)
                    return False
                return self.withdraw(call)
        return False

    # A foreign server counts callers and not who they are, and cannot withdraw one. A second call of the same procs
    # would count for a participant that has not arrived, so the next call takes over the call that was given up.
    # A server of this engine withdraws a caller unless the others have counted it in. The next call waits until the
    # server has said which: a timeout, and the call is made, or the answer, which the others have got too.
    # `_given_up` has these calls by kind and procs, oldest first, until they are taken over or have failed.

    def contribute(self, call: Call, procs: tuple[Proc, ...], payload: bytes) -> None:
        """Send the request of a collective, or wait for the answer to a call of it that this process gave up."""
        call.participants = procs
        if self._given_up:
            signature = _collective(call)
            left = self._given_up.get(signature)
            if left:
                earlier = left.pop(0)
                if not left:
                    del self._given_up[signature]
                if earlier.answer:
                    self._handle_answer(call, earlier.answer)
                else:
                    call.repeat = payload
                    call.tag = earlier.tag
                    self._calls[call.tag] = call
                return
        self.request(call, payload)

    def _note_given_up(self, call: Call) -> None:
        """Remember that the server may count the caller in a collective that is given up here."""
        if self.closed is not None or call.outcome is not None:
            return
        if call.guided and self.groups is not None and not self.adapts:
            self.groups.abandon(call.op)
        elif call.participants and self._calls.get(call.tag) is call:
            self._given_up.setdefault(_collective(call), []).append(call)

    def give_up_inside(self, op: Op[Any]) -> None:
        """Give up an operation that `begin_inside` has started."""
        for call in list(self._calls.values()):
            if call.op is op:
                call.inside = None
                self.abandon(call)

    def _keep_answer(self, call: Call, payload: bytes) -> None:
        """Keep a success for the next call of a collective: the others have got the same answer, with this caller."""
        signature = _collective(call)
        left = self._given_up.get(signature, [])
        if call not in left:
            return
        if self.status(payload) in SUCCESSES and sum(map(len, self._given_up.values())) <= MAX_ANSWERS:
            call.answer = payload
            return
        left.remove(call)
        if not left:
            del self._given_up[signature]

    def tell(self, function: Callable[[Any], None], argument: object) -> None:
        """Let the transport call a function like `done`: without its lock, and in the right thread."""
        self.finished.append(_make_transport_call(function, argument))

    def effect(self, function: Callable[[Any], object], argument: object) -> None:
        """Call a C function that is the only effect of a message that a listener has got.

        The message is marked as handled in the same step, so that no exception of a signal handler can cause it to be
        handled twice, or not at all.
        """
        self.intake.handled.extend(map(function, (argument,)))

    def deliver(self) -> None:
        """Call the first function in `finished`, if there is one; for the transport, outside of its lock."""
        finished = self.finished
        if not finished:
            return
        # It stays in the list until it was called: a signal handler may raise after any call of a function, `pop` too.
        call = finished[0]
        done, call.done = call.done, None
        if done is not None:
            assert call.outcome is not None
            try:
                done(*call.outcome)
            except Exception:
                # A fault of the program's callback must not end the operation of the thread that reads.
                sys.excepthook(*sys.exc_info())
        if finished and finished[0] is call:
            finished.pop(0)

    def pass_on(self, function: Callable[[Any], None], argument: object) -> None:
        """Do the same as `tell`, if that is the only effect of a message; see `effect`."""
        self.effect(self.finished.append, _make_transport_call(function, argument))

    def waiting(self) -> bool:
        """Return True if a function has to be called when something arrives."""
        if self.listeners:
            return True
        for call in self._everyone():
            if call.outcome is None and (call.done is not None or call.inside is not None):
                return True
        return False

    def quiet(self, listens: bool) -> bool:
        """Return True if the connection needs no attention: open, without calls, timers, listeners and unsent bytes.

        Args:
            listens: Whether something waits for messages to the listeners already.
        """
        under_way = self._calls or self._opening or self._finalizing or self.out[0]
        ends = self.closed or self.half_closing
        return not (under_way or self._timed or self.timers or ends or (self.listeners and not listens))

    @property
    def deadline(self) -> float | None:
        """When to call `tick` for calls that no thread waits for, None for never; waiters know their own time."""
        if not self._timed and not self.timers:
            return None
        times = [call.deadline for call in self._timed if call.done and call.deadline is not None]
        return min(times + [timer.due for timer in self.timers], default=None)

    def look(self, now: float) -> None:
        """Look at the clock, before a step that does not bring the time with it."""
        self.now = now

    def begin_inside(self, op: Op[Any], inside: Done[Any], start: Start | None = None) -> None:
        """Begin an operation for the machine itself, in a step of it; errors go to `inside`, called in a step too.

        Args:
            op: The operation.
            inside: Called at the end.
            start: How it begins, if not as when it is asked for from outside.
        """
        call = Call(op, None)
        call.inside = inside
        try:
            if self.closed is not None:
                raise self.closed()
            begin = start or (OPERATIONS.get(type(op)) or _import_operation(op, self)).start
            begin(self, call, op)
        except PMIxError as error:
            self.fail(call, error)

    def grouped(self) -> GroupPort:
        """Return the groups of this process, which has a server."""
        if self.groups is None:
            self.groups = load("pypmix.engine.python.clientside.groups", "GroupPort")(self)
        return self.groups

    def later(self, seconds: float, call: Callable[[], None]) -> ClientTimer:
        """Schedule a call of a function in a step of the machine after some seconds."""
        return ClientTimer(self.timers, self.now + seconds, call)

    # Events

    def take(self, now: float) -> None:
        """Deal with the chunks that have been appended to `intake.chunks`; an empty one is the end of the stream."""
        self.now = now
        intake = self.intake
        if self._opening is not None:
            self._take_opening(intake)
            return
        chunks, handled = intake.chunks, intake.handled
        try:
            while intake.fed < len(chunks):
                chunk = chunks[intake.fed]
                if not chunk:
                    self.handle_disconnect("the server closed the connection")
                    return
                for tag, payload in intake.reader.feed(chunk):
                    number = len(handled)
                    self._dispatch(tag, payload)
                    if len(handled) == number:
                        handled.append(None)
                intake.fed += 1
        except RemoteProtocolError as error:
            self._broken(error)
            return
        if not intake.reader.held and self.intake is intake:
            self.intake = _Intake(intake.reader)

    def resume(self) -> None:
        """Repeat the step of `take` that an exception of a signal handler has interrupted."""
        for call in self._everyone():
            if call.outcome is not None and (call.done is not None or call.inside is not None):
                self.end(call)
        for step in list(self.at_resume):
            self._guarded("to go on after a signal", step)
        old = self.intake
        if self._opening is not None or self.closed is not None or not old.chunks:
            return
        new = _Intake(self._reader())
        new.chunks = old.chunks
        handled = new.handled = old.handled
        try:
            frames = []
            for chunk in old.chunks:
                if chunk:
                    frames += new.reader.feed(chunk)
            for tag, payload in frames[len(handled) :]:
                number = len(handled)
                self._dispatch(tag, payload)
                if len(handled) == number:
                    handled.append(None)
        except RemoteProtocolError as error:
            self._broken(error)
            return
        new.fed = len(new.chunks)
        self.intake = new if new.reader.held else _Intake(new.reader)
        if not all(old.chunks):
            self.handle_disconnect("the server closed the connection")

    def tick(self, now: float) -> None:
        """Give up the calls whose time limits have passed."""
        self.now = now
        for call in list(self._timed):
            if call.deadline is not None and now >= call.deadline:
                self._timed.remove(call)
                self._guarded("a time limit", self._expire, call)
        for timer in [each for each in self.timers if now >= each.due]:
            self._guarded("a timer", timer.run)

    def handle_disconnect(self, reason: str) -> None:
        """The connection has ended."""
        if self._finalizing is not None:
            self._finalized(self._finalizing)
        else:
            self._shut(reason, lambda: LostConnection(reason))

    def give_up(self, what: str, error: BaseException) -> None:
        """End because `what` drives this machine has failed."""
        if self.closed is not None:
            return
        failure = fault(what, error)
        self._shut(failure.detail, lambda: LostConnection(failure.detail, hint=failure.hint))

    def close(self) -> None:
        """End without a message to the server."""
        self._shut(
            "the client was closed",
            lambda: NotInitialized("the client is closed", hint="open a new one"),
        )

    def sent(self) -> None:
        """Note that the transport has sent something."""
        data, sent = self.out
        if sum(sent) >= len(data):
            self.out = b"", []

    def unsent(self) -> memoryview:
        """Return the bytes still to be sent."""
        data, sent = self.out
        return memoryview(data)[sum(sent) :]

    def _everyone(self) -> list[Call]:
        calls = list(self._calls.values())
        for call in self._calls.values():
            calls += call.followers
        calls += filter(None, (self._opening, self._finalizing))
        return calls

    # Calls of the operations

    def ask(self, call: Call, command: int, *, unbound: bool = False, **fields: Any) -> None:
        """Send a request; without a server, or if the server has no such command, the call ends with an error.

        Args:
            call: The call.
            command: The command of the request.
            unbound: Whether the operation's own timeout is handled elsewhere.
            fields: The fields of the request.
        """
        if self.server is None:
            self.alone(call)
            return
        try:
            payload = self.encode(command, **fields)
        except NotSupported as error:
            self.fail(call, error)
            return
        self.request(call, payload)
        if not unbound:
            self.limit(call, timeout_of(call.op))

    def encode(self, command: int, **fields: Any) -> bytes:
        """Return a request; raise `NotSupported` if a server of this release has no such command."""
        from pypmix.wire.messages import request_layout

        return request_layout(command, self.release).encode(self.buffer_type, self.rule, **fields)

    def decode(self, command: int, payload: bytes) -> dict[str, Any]:
        """Return the fields of an answer."""
        from pypmix.wire.messages import reply_layout

        return reply_layout(command, self.release).decode(payload, self.buffer_type, self.release)

    def status(self, payload: bytes) -> int:
        """Return the status of an answer."""
        return decode_status(payload, self.buffer_type)

    def request(self, call: Call, payload: bytes) -> None:
        """Send a request; its answer belongs to the call."""
        old = call.tag
        most = MAX_SKIPPED if self.adapts else MAX_MESSAGE if self.release >= (6, 0, 0) else LONGEST
        if len(payload) > most:
            raise LocalProtocolError(
                f"a message of {len(payload)} bytes is longer than this server accepts, {most}" + _largest(call),
                operation=call.op.name,
                engine=self.engine,
                procs=self._procs_of(call.op),
                job=self.job,
                hint="put less before each commit" if isinstance(call.op, Commit) else "",
            )
        tag = self._free_tag() if self._calls else next(self._tags)
        message = frame(self._pindex, tag, payload)
        self._calls[tag] = call
        if self.out[0]:
            self._push(message)
        else:
            self.out = message, []
        call.tag = tag
        if old:
            self._calls.pop(old, None)

    def send(self, payload: bytes, tag: int = 0) -> None:
        """Send a message, and ignore an answer."""
        self._push(frame(self._pindex, tag or self._free_tag(), payload))

    def _reader(self) -> FrameReader:
        """Return the reader of the server's frames; it has no limit for servers of this engine, which have a limit."""
        return FrameReader(LONGEST if self.adapts else MAX_MESSAGE)

    def _free_tag(self) -> int:
        for tag in self._tags:
            if tag not in self._calls:
                break
        return tag

    def _push(self, data: bytes) -> None:
        old, sent = self.out
        left = len(old) - sum(sent)
        self.out = (data if not left else old[len(old) - left :] + data), []

    def end(self, call: Call, result: object = None, error: BaseException | None = None) -> None:
        """End a call, with a result or an error."""
        if call.outcome is None:
            call.outcome = result, error
        if call.done is not None:
            self.finished.append(call)
        if call in self._timed:
            self._timed.remove(call)
        if call.inside is not None:
            inside, call.inside = call.inside, None
            self._guarded(f"what follows {call.op.name}", inside, *call.outcome)

    def fail(self, call: Call, error: PMIxError) -> None:
        """End a call with an error, to which the operation and its procs are added."""
        self.end(call, error=self.named(error, call.op))

    def refuse(self, call: Call, status: int, detail: str = "", hint: str = "") -> None:
        """End a call with the error of a status."""
        self.end(call, error=self.error(call, status, detail, hint))

    def settle(self, call: Call, status: int, result: object = None, failures: Mapping[int, str] | None = None) -> None:
        """End a call by the status of its answer: with the result, or with an error.

        Args:
            call: The call.
            status: The status.
            result: The result.
            failures: The meanings of statuses for this operation, for the error.
        """
        if status in SUCCESSES:
            self.end(call, result)
        else:
            self.refuse(call, status, failures.get(status, "") if failures else "")

    def alone(self, call: Call) -> None:
        """End a call that needs other procs in a singleton, which has none."""
        error = Unreachable("this process is a singleton: no server launched it, so there are no other procs")
        error.hint = "start it with a launcher, such as `pypmix run`"
        self.fail(call, error)

    def limit(self, call: Call, seconds: float) -> None:
        """Give up when a server has not answered in the time that it was given, and a moment more; 0 sets no limit."""
        if seconds:
            self._set_deadline(call, self.now + seconds + TIMEOUT_GRACE)

    def learn(self, objects: Iterable[JobValues]) -> tuple[str, ...]:
        """Store job info from an answer, as `read_jobs` returns it; return the nspaces."""
        found = []
        for nspace, pairs, procs in objects:
            self.store.add_job_values(nspace, pairs, self.buffer_type, self.release, procs)
            found.append(nspace)
        return tuple(found)

    def read_jobs(self, objects: Iterable[bytes]) -> list[JobValues]:
        """Return the job info that an answer brings of other jobs; the caller's own it holds already."""
        found = []
        for item in objects:
            unpacker = Unpacker(item, self.buffer_type, self.release)
            nspace = unpacker.one(codes.STRING)
            if nspace and nspace != self.proc.nspace:
                found.append(self.job_values(nspace, item, unpacker.position))
        return found

    def job_values(self, nspace: str, data: bytes, pos: int = 0) -> JobValues:
        """Return the values of a job from a server's message, for `learn`."""
        procs: dict[int, bytes] = {}
        return nspace, kvals(data, pos, self.buffer_type, self.release, procs=procs), procs

    # Inside

    def _set_deadline(self, call: Call, deadline: float | None) -> None:
        if deadline is not None:
            call.deadline = deadline
            self._timed.append(call)

    def _guarded(self, what: str, step: Callable[..., object], *arguments: object) -> None:
        """Take a step that belongs to no waiting caller: a fault in it is logged and ends no operation."""
        try:
            step(*arguments)
        except Exception as error:
            if struck(error):
                raise
            fault(what, error)

    def _failed(self, call: Call, error: Exception) -> None:
        """End a call, and the calls that wait for the same answer, because its answer could not be applied here."""
        failure = fault(f"the answer to {call.op.name}", error)
        for each in (call, *call.followers):
            if each.outcome is None and each.tag in (0, call.tag):
                own = PMIxError(failure.detail, hint=failure.hint)
                own.__cause__ = error
                self.end(each, error=self.named(own, each.op))
        call.followers = ()
        self._gets = {proc: get for proc, get in self._gets.items() if get is not call}

    def _dispatch(self, tag: int, payload: bytes) -> None:
        call = self._calls.get(tag)
        if call is None or call.tag != tag:
            # Late replies, and messages without a request, are ignored.
            listener = self.listeners.get(tag)
            if listener is None and tag == TAG_DATA_DELETE:
                listener = self._deleted
            if listener is not None:
                try:
                    listener(payload)
                except RemoteProtocolError:
                    raise
                except Exception as error:
                    if struck(error):
                        raise
                    fault("an event or a piece of output", error)
            return
        if not payload:
            self.refuse(call, statuses.ERR_LOST_CONNECTION, "the server answered nothing")
        elif self._given_up and call.participants and call.outcome is not None:
            self._keep_answer(call, payload)
        else:
            self._handle_answer(call, payload)
        if call.tag == tag:
            self._calls.pop(tag, None)

    def _handle_answer(self, call: Call, payload: bytes) -> None:
        """Read an answer, then act on it: a failure to read is the server's fault, a failure to act is ours."""
        operation = OPERATIONS[type(call.op)]
        try:
            try:
                if payload[:2] != PLAIN_SUCCESS and self.adapts:
                    payload, call.reason = split_reason(payload, self.buffer_type)
                reply = operation.read(self, call, payload)
            except (ValueError, OverflowError) as error:
                if struck(error):
                    raise
                raise RemoteProtocolError(f"the answer to {call.op.name} makes no sense: {error}") from error
            operation.act(self, call, call.op, reply)
        except RemoteProtocolError:
            # Values of procs from the server stay packed until they are needed.
            raise
        except Exception as error:
            if struck(error):
                raise
            self._failed(call, error)

    def _broken(self, error: RemoteProtocolError) -> None:
        detail = error.detail
        self._shut(
            f"the server broke the protocol: {detail}",
            lambda: LostConnection(f"the connection was closed because the server broke the protocol: {detail}"),
            lambda: RemoteProtocolError(detail, hint="the connection is closed now"),
        )

    def _shut(
        self,
        reason: str,
        closed: Callable[[], PMIxError],
        pending: Callable[[], PMIxError] | None = None,
    ) -> None:
        if self.closed is None:
            self.closed = closed
        for call in self._everyone():
            if call.outcome is None:
                if _ends_by_loss(call):
                    self.end(call, error=call.failure)
                else:
                    error = pending() if pending else LostConnection(f"{reason} while this was under way")
                    self.fail(call, error)
        self._calls.clear()
        self._given_up.clear()
        self._gets.clear()
        self._timed.clear()
        self.listeners.clear()
        self.out = b"", []
        while self.at_loss:
            self._guarded("to end with the connection", self.at_loss.pop(0))

    def _expire(self, call: Call) -> None:
        op = call.op
        if isinstance(op, Finalize):
            if call.phase == "barrier":
                call.failure = self.error(
                    call, statuses.ERR_TIMEOUT, f"no answer to the barrier within {timeout_of(op)} s"
                )
                self._leave(call)
            elif call.phase == "pause":
                self._part(call)
            else:
                # Natives leave as well when the server does not answer in time.
                self._finalized(call)
        elif isinstance(op, Open):
            detail = "the server accepted the connection and did not finish the handshake in time"
            hint = "is it alive? `attrs.TIMEOUT` sets how long to wait for it"
            self.fail(call, Unreachable(detail, hint=hint))
        elif self.withdraw(call):
            self._wait(call, WITHDRAW_WAIT)
        else:
            detail = f"no answer of the server within {timeout_of(op, keys.SPAWN_TIMEOUT) or timeout_of(op)} s"
            hint = _CONTINUES if call.repeat and not self.adapts else ""
            error = self.error(call, statuses.ERR_TIMEOUT, detail, hint)
            self._note_given_up(call)
            self.end(call, error=error)

    @property
    def job(self) -> str:
        """The nspace of this process's job, for texts; empty if it has none."""
        return "" if self.server is not None and self.server.tool else self.proc[0]

    def named(self, error: PMIxError, op: Op[Any]) -> PMIxError:
        """Return an error with its operation, engine, job and procs filled in."""
        error.operation = op.name
        error.engine = self.engine
        error.job = self.job
        error.procs = error.procs or self._procs_of(op)
        return error

    def _procs_of(self, op: Op[Any]) -> tuple[Proc, ...]:
        if isinstance(op, Get):
            return (op.proc,)
        if isinstance(op, Fence):
            return op.procs or self._whole_job
        return getattr(op, "procs", ()) or getattr(op, "targets", ()) or (self.proc,)

    def error(self, call: Call, status: int, detail: str = "", hint: str = "") -> PMIxError:
        """Return the error of a status, with the reason from the server's host or the meaning for this operation."""
        kind = error_for(status)
        return self.named(kind(call.reason or detail or "the server refused it", status=status, hint=hint), call.op)

    def _refused_by_slurm(self, call: Call) -> bool:
        from pypmix.engine.slurm import refusal

        error = refusal(call.op)
        if error is not None:
            self.fail(call, error)
        return error is not None

    # The handshake

    def _take_opening(self, intake: _Intake) -> None:
        call = self._opening
        assert call is not None
        for chunk in intake.chunks[intake.fed :]:
            intake.fed += 1
            if not chunk:
                self._refused(call)
                return
            try:
                answer = self._reply_reader.feed(chunk)
            except RemoteProtocolError as error:
                self._broken(error)
                return
            if answer is None:
                continue
            status, pindex = answer
            if status:
                self._refused(call, status)
                return
            self._pindex = pindex
            self._opening = None
            rest = [self._reply_reader.rest] if self._reply_reader.rest else []
            left = intake.chunks[intake.fed :]
            self.intake = _Intake(intake.reader)
            self.intake.chunks += rest + left
            if not self.adapts:
                # Servers up to 6.x keep one data store per nspace: the last client to connect decides the form of
                # the answer, so this request must follow the handshake at once.
                self.request(call, encode_bare(Command.REQ, self.buffer_type))
            self.take(self.now)
            return

    def _refused(self, call: Call, status: int = 0) -> None:
        if status == statuses.ERR_READY_FOR_HANDSHAKE:
            detail = "the server asks for a security exchange that this engine does not have"
        elif status:
            detail = f"the server refused the handshake with status {status}"
        else:
            detail = (
                "the server closed the connection during the handshake, which is how it refuses a client: "
                f"{self.proc} is not registered there (or is by another user), or it lacks what was asked for"
            )
        import os

        from pypmix.engine.peeruid import UNKNOWN_USER, unclear

        hint = (
            "check PMIX_NAMESPACE, PMIX_RANK, PMIX_SERVER_URI* and PMIX_SECURITY_MODE, and the user: this process "
            f"calls itself user {os.geteuid()}"
            + (" in a user namespace that does not know all users" if unclear() != UNKNOWN_USER else "")
            + ", and has to be of the user for whom it was launched"
        )
        error = Unreachable(detail, hint=hint)
        self.fail(call, error)
        self._opening = None
        self._shut(detail, lambda: Unreachable(detail, hint=hint))

    def _read_job(self, call: Call, payload: bytes) -> JobValues | int:
        # Nearly no job info has this key, and then the info about this process can stay packed.
        self._may_stop = _STOP in payload
        unpacker = Unpacker(payload, self.buffer_type, self.release)
        try:
            nspace = unpacker.one(codes.STRING)
        except RemoteProtocolError:
            return self.status(payload)
        if not nspace:
            raise RemoteProtocolError("job info names no nspace")
        return self.job_values(nspace, payload, unpacker.position)

    def _opened(self, call: Call, op: Op[Any], job: JobValues | int) -> None:
        if isinstance(job, int):
            self.refuse(call, job, "the server has no job info for this nspace")
        elif any(key.startswith("PMIX_GDS_SHMEM") for key, _ in job[1]):
            # Somebody of this nspace connected in between and took the server's choice of store with them.
            self.misdirected = True
            detail = "the server describes its job info in shared memory"
            self.fail(call, RemoteProtocolError(detail, hint="set PMIX_MCA_gds=hash for the server"))
        else:
            self.learn([job])
            self.end(call)

    def is_to_stop(self) -> bool:
        """Return True if the launcher wants this process to stop in PMIx_Init for a debugger."""
        for proc in (self.proc, *self._whole_job) if self._may_stop else ():
            value = self.store.find(proc, keys.DEBUG_STOP_IN_INIT, PLAIN)
            if value is not None:
                kind, data = value
                if kind == codes.PROC_RANK:
                    return data in (self.proc[1], types.RANK_WILDCARD)
                if kind == codes.DATA_ARRAY:
                    return self.proc in data.items
                return is_true(value)
        return False

    # Put, commit

    def put(self, key: str, value: Value, scope: int) -> bool:
        """Keep an own value for the next commit, without a call; return False if that needs one, or fails."""
        if scope in DELETES or self.closed is not None or self.finalizing:
            return False
        packed = b""
        if not self._is_private(key, scope):
            try:
                packed = encode_kval(self.buffer_type, key, value, self.rule)
            except NotSupported:
                return False
        self.store.put(key, value, scope, packed)
        return True

    def _put(self, call: Call, op: Put) -> None:
        private = self._is_private(op.key, op.scope)
        if op.scope in DELETES:
            self._delete(call, op, private)
            return
        packed = b"" if private else encode_kval(self.buffer_type, op.key, op.value, self.rule)
        self.store.put(op.key, op.value, op.scope, packed)
        self.end(call)

    def _is_private(self, key: str, scope: int) -> bool:
        """Return True if no commit has this value."""
        return self.server is None or scope == SCOPE_INTERNAL or key.startswith(RESERVED_PREFIX)

    def _delete(self, call: Call, op: Put, private: bool) -> None:
        shared = not private and DELETES[op.scope] != SCOPE_INTERNAL
        if shared and self.release < DELETION:
            detail = f"a server of release {release_text(self.release)} does not delete keys: this needs 7.0"
            self.fail(call, NotSupported(detail))
            return
        packed = encode_kval(self.buffer_type, op.key, op.value, self.rule) if shared else b""
        self.store.delete(op.key, op.scope, packed)
        self.end(call)

    def _deleted(self, payload: bytes) -> None:
        """Drop a key that a proc of this node has deleted, which this process may have read."""
        unpacker = Unpacker(payload, self.buffer_type, self.release)
        proc = unpacker.one(codes.PROC)
        unpacker.one(codes.SCOPE)
        key = unpacker.one(codes.STRING)
        self.store.drop(proc, key or "")

    def _commit(self, call: Call, op: Commit) -> None:
        if self.server is None:
            self.end(call)
            return
        call.sent = parts = self.store.unsent()
        if self.adapts and len(parts) > 1:
            *before, (local, here), (remote, elsewhere) = parts
            if [local, remote] == _BOTH and here == elsewhere:
                # A value is kept once for readers of this node and of others; natives want it twice.
                parts = [*before, (SCOPE_GLOBAL, here)]
        blocks = [(scope, b"".join(values.values())) for scope, values in parts]
        self.request(call, encode_commit(self.buffer_type, blocks))

    def _committed(self, call: Call, op: Commit, status: int) -> None:
        if status in SUCCESSES:
            self.store.delivered(call.sent)
        elif status == statuses.ERR_OUT_OF_RESOURCE:
            call.reason = (call.reason or "it is more than the server takes") + _largest(call)
        self.settle(call, status)

    # Fence

    def _fence(self, call: Call, op: Fence) -> None:
        if self.server is None:
            if all(proc in (self.proc, *self._whole_job) for proc in op.procs):
                self.end(call)
            else:
                self.alone(call)
            return
        if op.procs or op.directives or self.slurm:
            self._fence_some(call, op)
            return
        # A fence with all of the job, which every rank of a job does again and again: its request is always the same.
        collects = op.collect
        payload = self._fences.get(collects)
        if payload is None:
            infos = _COLLECTS if collects else ()
            payload = self._fences[collects] = encode_fence(self.buffer_type, self._whole_job, infos, self.rule)
        if collects:
            call.infos = _COLLECTS
        if self._given_up:
            self.contribute(call, self._whole_job, payload)
        else:
            call.participants = self._whole_job
            self.request(call, payload)

    def _fence_some(self, call: Call, op: Fence) -> None:
        """Fence with procs that are named, or with directives."""
        if op.procs and all(proc[0] != self.proc[0] for proc in op.procs) and self._refused_fence(call, op.procs):
            return
        infos = op.directives
        procs = self._procs_of(op)
        if self.slurm:
            from pypmix.engine.slurm import fence_procs

            try:
                procs = fence_procs(self.proc, procs, self.store.lookup)
            except NotSupported as error:
                self.fail(call, error)
                return
        if self.slurm or op.collect:
            # Without data, Slurm's fence ends before all procs have joined.
            infos = collecting(infos)
        if infos and not self.adapts:
            infos = tuple([info for info in infos if info.key != FENCE_PARTICIPANTS])
        call.infos = infos
        self.limit(call, timeout_of(op))
        self.contribute(call, procs, encode_fence(self.buffer_type, procs, infos, self.rule))

    def _refused_fence(self, call: Call, procs: tuple[Proc, ...]) -> bool:
        """End a fence that cannot be sent, such as a fence of a group that the caller has left."""
        from pypmix.engine.groups.addresses import check_fence

        def exists(name: str) -> bool:
            if self.groups is not None and self.groups.is_member(name):
                return True
            return self.store.lookup(Proc.unchecked(name, types.RANK_WILDCARD), keys.JOB_SIZE) is not None

        try:
            check_fence(self.proc, procs, exists)
        except NotFound as error:
            self.fail(call, error)
            return True
        return False

    def _fenced(self, call: Call, op: Fence, reply: Ended) -> None:
        if reply[0] in SUCCESSES:
            infos = call.infos
            if infos and (infos is _COLLECTS or _collects(infos)):
                self.collected = True
                self.store.renew(op.procs)
            self.end(call, reply[1])
        else:
            self.miss(call, reply, _FENCE_FAILURES.get(reply[0], ""))

    def read_missing(self, call: Call, payload: bytes) -> Ended:
        """Return the status of the answer to a collective, and the missing procs if it has failed."""
        if payload == PLAIN_SUCCESS and self.buffer_type == PLAIN_BUFFER:
            return _ENDED_WELL
        status = decode_status(payload, self.buffer_type)
        if status in SUCCESSES:
            return status, None
        missing = decode_late(payload, self.buffer_type)
        return status, None if missing is None else frozenset(missing)

    def _read_fence(self, call: Call, payload: bytes) -> Ended:
        """Return the status of the answer to a fence, and its participants, or the missing procs if it has failed."""
        if payload == PLAIN_SUCCESS and self.buffer_type == PLAIN_BUFFER:
            return _ENDED_WELL
        reply = self.read_missing(call, payload)
        if reply is not _ENDED_WELL and reply[0] in SUCCESSES and self.adapts:
            return reply[0], decode_participants(payload, self.buffer_type)
        return reply

    def miss(self, call: Call, reply: Ended, detail: str) -> None:
        """End a collective that failed; the error names the missing procs."""
        if reply[0] == statuses.ERR_TIMEOUT and call.repeat and call.phase != "withdrawn":
            # The server has forgotten the earlier call with this answer: its limit has passed, or it was withdrawn.
            payload, call.repeat = call.repeat, b""
            self.request(call, payload)
            return
        kind = answered_error_for(reply[0])
        text = call.reason or detail or "the server refused it"
        self.end(call, error=self.named(kind(text, status=reply[0], missing=reply[1]), call.op))

    # Get

    def _get(self, call: Call, op: Get) -> None:
        directives = call.get_directives = GetDirectives(op.directives) if op.directives else PLAIN
        proc = op.proc if op.proc[0] else Proc.unchecked(self.proc[0], op.proc[1])
        own = proc == self.proc
        # The sets and groups of a proc change, so that they are not kept.
        changing = op.key in datastore.CHANGING and self.server is not None and not directives.optional
        # A scope asks for a part of a peer's data, and the values here do not show their scope.
        if not changing and (own or not (directives.refresh or directives.scoped)):
            value = self.store.find(proc, op.key, directives)
            if value is not None:
                self.end(call, value)
                return
        if own and directives.scoped:
            other = self.store.outside_scope(op.key, directives.scope)
            if other:
                detail = f"{op.key!r} was put with scope {other}, not {_SCOPE_NAMES[directives.scope]}"
                self.fail(call, NotFound(detail, status=statuses.ERR_EXISTS_OUTSIDE_SCOPE))
                return
        if directives.optional or self.server is None:
            self._fail_missing(call, op)
            return
        self.limit(call, directives.timeout)
        call.infos = op.directives
        rank = proc[1]
        if op.key.startswith(RESERVED_PREFIX):
            if self.release < (5, 0, 0) and proc[0] != self.proc[0]:
                # 4.x servers know the values of other jobs as a whole only.
                rank = types.RANK_WILDCARD
            elif not directives.immediate:
                # Keys of the Standard are there from the start or never, so the get does not wait for them.
                call.infos = (*call.infos, _IMMEDIATE)
        elif call.infos == ():
            first = self._gets.get(proc)
            if first is not None and first.outcome is None:
                # The reply contains all values of the proc.
                first.followers += (call,)
                return
            self._gets[proc] = call
        self._ask(call, op, Proc.unchecked(proc[0], rank))

    def _ask(self, call: Call, op: Get, proc: Proc) -> None:
        self.request(call, encode_get(self.buffer_type, proc[0], proc[1], call.infos, op.key, self.rule))

    def read_get(self, call: Call, payload: bytes) -> Got:
        """Return the status of the answer to a get, and the values of each proc as far as they parse, and why not."""
        reply = self.decode(Command.GETNB, payload)
        objects = reply["objects"] if reply["status"] in SUCCESSES else ()
        return reply["status"], [read_get_object(item, self.buffer_type, self.release) for item in objects]

    def _got(self, call: Call, op: Get, reply: Got) -> None:
        directives = call.get_directives
        status, objects = reply
        proc = op.proc if op.proc[0] else Proc.unchecked(self.proc[0], op.proc[1])
        value: Value | None = None
        trouble: RemoteProtocolError | None = None
        changing = op.key in datastore.CHANGING
        if status in SUCCESSES:
            if directives.refresh and objects:
                self.store.forget(proc)
            for source, values, error in objects:
                if error is not None and source == proc:
                    # A rank's unreadable data does not affect that of others; the reply as such is whole.
                    trouble = error
                if directives.scoped or changing:
                    value = next((found for key, found in values if key == op.key), value)
                self.store.fetched(source, [pair for pair in values if pair[0] != op.key] if changing else values)
            # A value that is here may be the old value that the refresh has to replace.
            stale = directives.refresh and not objects
            if not directives.scoped and not changing and (call.tried or not stale):
                value = self.store.find(proc, op.key, directives)
        if value is not None:
            self.end(call, value)
        elif trouble is not None:
            self.refuse(call, trouble.code, trouble.detail)
        elif call.outcome is None and self._ask_again(call, op, proc, status):
            return
        else:
            self._get_failed(call, op, status)
        if self._gets.get(proc) is call:
            del self._gets[proc]
        for follower in call.followers:
            self._follow(follower, proc)
        call.followers = ()

    def _follow(self, call: Call, proc: Proc) -> None:
        op = call.op
        if call.outcome is not None or call.tag or not isinstance(op, Get):
            return
        value = self.store.find(proc, op.key, call.get_directives)
        if value is not None:
            self.end(call, value)
        else:
            self._ask(call, op, proc)

    def _ask_again(self, call: Call, op: Get, proc: Proc, status: int) -> bool:
        """Repeat a request if the server is known to answer the first one badly."""
        directives = call.get_directives
        assert self.server is not None
        if call.tried:
            return False
        if directives.refresh and status in SUCCESSES:
            # The server has nothing newer of a proc of this node, and then sends nothing.
            call.tried = True
            call.infos = tuple([info for info in call.infos if info.key != keys.GET_REFRESH_CACHE])
        elif (
            self.server.shared_store
            and not directives.scope
            and (status == statuses.ERR_NOT_FOUND or status in SUCCESSES)
            and not op.key.startswith(RESERVED_PREFIX)
        ):
            # Native peers of this node have left their data in shared memory; the server also has the values that
            # they put with REMOTE or GLOBAL.
            call.tried = True
            call.infos = (*call.infos, _REMOTE)
        else:
            return False
        self._ask(call, op, proc)
        return True

    def _get_failed(self, call: Call, op: Get, status: int) -> None:
        if status in SUCCESSES or status == statuses.ERR_NOT_FOUND:
            self._fail_missing(call, op)
        elif status == statuses.ERR_TIMEOUT:
            waited = (
                f"within {call.get_directives.timeout} s"
                if call.get_directives.timeout
                else "before the server gave up"
            )
            self.refuse(
                call,
                status,
                f"{op.key!r} did not come {waited} ({self._circumstances(call)})",
                suggest_key(op.key, self.store.keys_of(op.proc))
                or "has the proc put and committed it? `timeout=` is the time to wait, 0 not to wait",
            )
        else:
            self.refuse(call, status, f"the server could not answer for {op.key!r}")

    def _fail_missing(self, call: Call, op: Get) -> None:
        hint = ""
        job = Proc.unchecked(op.proc[0] or self.proc[0], types.RANK_WILDCARD)
        if op.proc[1] != types.RANK_WILDCARD and self.store.find(job, op.key, PLAIN) is not None:
            hint = "this is a value of the job: ask for it with Rank.WILDCARD"
        elif self.server is None:
            hint = "this process is a singleton and knows only what it has put itself"
        elif call.get_directives.optional:
            hint = "`attrs.OPTIONAL` forbids to ask the server"
        elif not op.key.startswith(RESERVED_PREFIX) and not self.collected:
            hint = "has the proc committed it, and has there been a fence with collect=True?"
        detail = f"{op.key!r} was not found ({self._circumstances(call)})" + call.because
        if not op.key.startswith(RESERVED_PREFIX):
            hint = "; ".join(filter(None, (suggest_key(op.key, self.store.keys_of(op.proc)), hint)))
        self.fail(call, NotFound(detail, hint=hint))

    def _circumstances(self, call: Call) -> str:
        scope = _SCOPE_NAMES.get(call.get_directives.scope, "any")
        return f"scope {scope}, {'after' if self.collected else 'without'} a collecting fence"

    # Abort, finalize

    def _abort(self, call: Call, op: Abort) -> None:
        self.ask(call, Command.ABORT, unbound=True, code=op.code, message=op.message or None, procs=op.procs)

    def _finalize(self, call: Call, op: Finalize) -> None:
        self.finalizing = True
        if self.server is None:
            self._finalized(call)
        elif any(info.key == keys.EMBED_BARRIER and is_true(info.value) for info in op.directives):
            call.phase = "barrier"
            self.limit(call, timeout_of(op))
            infos = _COLLECTS if self.slurm else ()
            self.contribute(call, self._whole_job, encode_fence(self.buffer_type, self._whole_job, infos, self.rule))
        else:
            self._leave(call)

    def _leave(self, call: Call) -> None:
        call.phase = "leave"
        self._wait(call, FINALIZE_WAIT)
        self.request(call, encode_bare(Command.FINALIZE, self.buffer_type))

    def _continue_finalize(self, call: Call, op: Finalize, status: int) -> None:
        if call.phase != "barrier":
            self._finalizing = call
            if self.server is None or self.adapts:
                self._part(call)
            else:
                call.phase = "pause"
                self._wait(call, CLOSE_PAUSE)
            return
        if status not in SUCCESSES:
            call.failure = self.error(call, status, "the barrier before it failed")
        self._leave(call)

    def _wait(self, call: Call, limit: float) -> None:
        if call not in self._timed:
            self._timed.append(call)
        call.deadline = self.now + limit

    def _part(self, call: Call) -> None:
        call.phase = "part"
        self._wait(call, PART_WAIT)
        self.half_closing = True

    def _finalized(self, call: Call) -> None:
        self.end(call, error=call.failure)
        self._shut(
            "the client was finalized",
            lambda: NotInitialized("the client is finalized", hint="open a new one"),
        )

    CORE_OPERATIONS: ClassVar[dict[type, Operation]] = {
        Open: Operation(lambda client, call, op: None, _read_job, _opened),
        Put: Operation(_put),
        Commit: Operation(_commit, act=_committed),
        Fence: Operation(_fence, _read_fence, _fenced),
        Get: Operation(_get, read_get, _got),
        Abort: Operation(_abort),
        Finalize: Operation(_finalize, act=_continue_finalize),
    }
    """The operations that every rank uses."""


def _make_transport_call(function: Callable[[Any], None], argument: object) -> Call:
    """Return a call by which the transport calls a function."""
    call = Call(_TRANSPORT_CALL, lambda result, _error: function(result))
    call.outcome = argument, None
    return call


def _largest(call: Call) -> str:
    """Return the largest value of a commit, for the end of a sentence; empty for other calls."""
    sizes = {key: len(packed) for _, values in call.sent for key, packed in values.items()}
    if not sizes:
        return ""
    key = max(sizes, key=sizes.__getitem__)
    return f"; the largest value of this commit is that of {key!r}, {sizes[key]} bytes"


def timeout_of(op: Op[Any], directive: str = keys.TIMEOUT) -> int:
    for key, value, _ in getattr(op, "directives", ()):
        if key == directive:
            return seconds(value)
    return 0


def _collects(infos: tuple[Info, ...]) -> bool:
    """Return True if a fence with these infos collects data."""
    return any(key == keys.COLLECT_DATA and is_true(value) for key, value, _ in infos)


def _ends_by_loss(call: Call) -> bool:
    """Return True if the server may close without an answer: it ends the job, or has finalized this client."""
    return isinstance(call.op, Abort) or (isinstance(call.op, Finalize) and call.phase in ("leave", "part"))


def _collective(call: Call) -> Collective:
    """Return the kind and the procs by which a server counts the callers of a collective."""
    # The barrier of a `Finalize` is a fence.
    kind = Fence if isinstance(call.op, Finalize) else type(call.op)
    # An answer without the participants is not an answer to a call that needs them.
    return kind, frozenset(call.participants), any(info.key == FENCE_PARTICIPANTS for info in call.infos)


_CONTINUES = (
    "this process gave up an earlier call of the same procs, which this server cannot withdraw and still counts; the "
    "call waited for its answer: name other procs, without the one that does not call"
)

_BOTH = [SCOPE_LOCAL, SCOPE_REMOTE]

_FENCE_FAILURES = {
    statuses.ERR_TIMEOUT: TIMED_OUT,
    statuses.ERR_NOT_FOUND: "the server does not know all of the procs",
    statuses.ERR_BAD_PARAM: "the server does not take these procs: is the caller one of them?",
    statuses.ERR_PARTIAL_SUCCESS: "it ended without some of the procs",
    statuses.ERR_LOST_CONNECTION: "a participant has lost its connection to its server",
}


def _import_operation(op: Op[Any], client: Client) -> Operation:
    """Import the module of an operation that not every rank uses."""
    topic = type(op).__module__.rpartition(".")[2]
    if topic in TOPICS:
        OPERATIONS.update(load(f"pypmix.engine.python.clientside.{topic}", "OPERATIONS"))
    operation = OPERATIONS.get(type(op))
    if operation is None:
        raise client.named(NotSupported(f"this engine has no {op.name}"), op)
    return operation


def exchange(
    command: int,
    fields: Callable[[Any], dict[str, Any]],
    result: Callable[[dict[str, Any]], Any] = lambda reply: None,
    failures: Mapping[int, str] | None = None,
) -> Operation:
    """Return an operation of one request and one answer.

    Args:
        command: The command of the request.
        fields: Returns the request's fields.
        result: Returns the operation's result from the fields of the answer.
        failures: The meanings of statuses, in words.
    """
    meant = {statuses.ERR_NOT_SUPPORTED: UNOFFERED, **(failures or {})}

    def start(client: Client, call: Call, op: Any) -> None:
        client.ask(call, command, **fields(op))

    def read(client: Client, call: Call, payload: bytes) -> tuple[int, Any]:
        reply = client.decode(command, payload)
        return reply["status"], result(reply) if reply["status"] in SUCCESSES else None

    def act(client: Client, call: Call, op: Any, reply: tuple[int, Any]) -> None:
        client.settle(call, reply[0], reply[1], meant)

    return Operation(start, read, act)


OPERATIONS = dict(Client.CORE_OPERATIONS)
"""The ways of all kinds of operations; `_import_operation` adds those of `clientside`."""
