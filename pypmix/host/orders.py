"""The messages between a launcher and the daemons of its nodes, each declared once.

The launcher requests a daemon to describe a job (`DESCRIBE`) and, once all daemons have answered, to start its ranks
(`START`); it sends signals, events, process sets, output that clients there read, and the names of jobs to forget. A
daemon relays the requests that its server cannot answer (`UPCALL`), and reports the output of its ranks, their stages
and their ends. Bytes that do not parse raise `RemoteProtocolError`.
"""

from __future__ import annotations

import json

from pypmix.host.exchange.codec import (
    BYTES,
    FLAG,
    NAME,
    NUMBER,
    PROC,
    PROCS,
    RANKS,
    SECONDS,
    TEXT,
    TEXTS,
    Field,
    broken,
    compressed,
    many,
    message,
    optional,
    record,
)
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.asjson import from_json, to_json
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.logtext import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from pypmix.host.exchange import Exchange
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.loop import Loop
    from pypmix.standard.ops import Notification
    from pypmix.standard.types import Proc

    Fault = tuple[int, str, str]

PROTOCOL = 10
"""The version of the messages of launchers and daemons; both must have the same."""


def _read_value(data: bytes) -> Any:
    try:
        return from_json(json.loads(data))
    except (ValueError, RecursionError) as error:
        raise broken(str(error)) from None


VALUE: Field[Any] = Field(lambda value: json.dumps(to_json(value)).encode(), _read_value)
"""An operation, a result of one, or an event."""

_PAIRS: Field[tuple[tuple[str, str], ...]] = many(message(TEXT, TEXT))
_APP: Field[Application] = record(Application, TEXTS, NUMBER, _PAIRS, TEXT, TEXT, TEXTS, TEXT, _PAIRS)
_NODE: Field[NodeLayout] = record(
    NodeLayout,
    NAME,
    RANKS,
    optional(NUMBER),
    optional(NUMBER),
    optional(NUMBER),
    FLAG,
    TEXTS,
    many(_PAIRS),
    many(TEXTS),
)
JOB: Field[JobLayout] = record(
    JobLayout,
    *(NAME, many(_APP), many(_NODE), NUMBER, TEXT, TEXT, optional(PROC), NUMBER, NUMBER, TEXT, TEXTS),
    *(_PAIRS, optional(PROC), TEXTS, NUMBER),
)

# Requests of the launcher, with their answers.

DESCRIBE_JOB = "pypmix.node.describe"
DESCRIBE: Field[tuple[JobLayout, int, bool, int | None, bool]] = compressed(
    message(JOB, NUMBER, FLAG, optional(NUMBER), FLAG)
)
"""A job, its number, whether both outputs are one, the rank that reads its input, whether argv[0] has the rank."""

FAULT: Field[Fault] = message(NUMBER, TEXT, TEXT)
"""An error of the system, its text and its file; 0 for none."""
FINE: Fault = (0, "", "")

START_RANKS = "pypmix.node.start"
START: Field[tuple[str, Sequence[int], int]] = message(NAME, RANKS, NUMBER)
"""Ranks of a job to start, and how often they were started before."""
STARTED: Field[tuple[tuple[tuple[int, int], ...], tuple[int, str, str], str]] = message(
    many(message(NUMBER, NUMBER)), FAULT, TEXT
)
"""The pids of ranks that were started, the error if others were not, and its text for a person."""

PUSH = "pypmix.node.input"
INPUT: Field[tuple[Proc, bytes]] = message(PROC, BYTES)
"""Input of a rank; empty data ends it. Answered once the rank's pipe has accepted it."""

ASK_PENDING = "pypmix.node.pending"
PENDING: Field[tuple[tuple[str, str, tuple[Proc, ...], tuple[Proc, ...], float], ...]] = many(
    message(TEXT, TEXT, PROCS, PROCS, SECONDS)
)
"""Pending operations: operation, label, arrived and missing procs, and for how many seconds."""

PROBE = "pypmix.node.probe"
UNREACHED: Field[tuple[tuple[str, str, str, float], ...]] = many(message(NAME, TEXT, TEXT, SECONDS))
"""The answer of a daemon's loop: the servers that it has not reached, address, reason, and for how many seconds."""

# Messages of the launcher without an answer.

SEND_SIGNAL = "pypmix.node.signal"
SIGNAL: Field[tuple[str, Sequence[int], int, bool]] = message(NAME, RANKS, NUMBER, FLAG)
"""A signal for ranks of a job; the flag restricts it to ranks that have a handler for it."""
LEAVE = "pypmix.node.leave"
FORGET_JOB = "pypmix.node.forget"
NAMED: Field[tuple[str]] = message(NAME)
RAISE = "pypmix.node.notify"
EVENTS: Field[tuple[Notification, ...]] = many(VALUE)
"""Events for the clients of the server."""
DELIVER = "pypmix.node.deliver"
PIECE: Field[tuple[Proc, int, bytes]] = message(PROC, NUMBER, BYTES)
"""Output of a rank, by channel; empty data is its end."""
DEFINE = "pypmix.node.pset"
PSET: Field[tuple[str, tuple[Proc, ...]]] = message(NAME, PROCS)
DELETE = "pypmix.node.unpset"
TAKEN = "pypmix.node.taken"
COUNT: Field[tuple[int]] = message(NUMBER)
"""A number of bytes of output that have been passed on."""

# Requests and reports of a daemon.

REPORT = "pypmix.node.report"
REPORTED: Field[tuple[str]] = message(TEXT)
"""A report of all pending operations on all nodes, and of the state of each rank, for a person at a daemon's node."""
ASK = "pypmix.node.upcall"
UPCALL: Field[tuple[bytes, Proc | None, int | None, int | None]] = message(
    BYTES, optional(PROC), optional(NUMBER), optional(NUMBER)
)
"""An upcall, its requestor, and the requestor's user and group; the answer is a `VALUE`."""
LIFE = "pypmix.node.life"
STAGE: Field[tuple[int, Proc]] = message(NUMBER, PROC)
"""The place in `serving.LIVES` of what has happened to a client, and the client."""
FETCH_FILE = "pypmix.node.file"
FETCH: Field[tuple[str, str, int]] = message(NAME, TEXT, NUMBER)
"""A piece of a file of a job: the job, the file's name, and the offset of the piece."""
FETCHED: Field[tuple[int, int, int, bytes]] = message(NUMBER, NUMBER, NUMBER, BYTES)
"""The file's permissions, its size, its modification time, and the piece; empty data is its end."""
ENDED = "pypmix.node.ended"
ENDS: Field[tuple[tuple[Proc, int | None, int, bool, bool], ...]] = many(
    message(PROC, optional(NUMBER), NUMBER, FLAG, FLAG)
)
"""Ranks that have ended: the rank, its exit code, the signal that has ended it, whether it left a core, and whether no
process writes its output any longer."""
WROTE = "pypmix.node.wrote"
TRACED = "pypmix.node.traced"
"""Requests and upcalls for the trace of the run."""
LEAVES = "pypmix.node.leaves"
REASON: Field[tuple[str]] = message(TEXT)
"""The reason why a daemon leaves unasked."""
REACHED = "pypmix.node.reached"
"""A signal that a resource manager has sent to all processes of the node's step, a `COUNT`."""
OVER = "pypmix.node.over"
LAUNCHES: Field[tuple[str, int]] = message(NAME, NUMBER)
"""A job of which nothing is left on a node, and the number of orders to start ranks of it there so far."""


P = TypeVar("P")


class Inbox(Generic[P]):
    """The messages that a launcher or a daemon receives, each of which it acts on in its loop.

    Args:
        exchange: The exchange by which they arrive.
        loop: The loop.
        peers: The servers that may send these messages, by name.
    """

    def __init__(self, exchange: Exchange, loop: Loop, peers: Mapping[str, P]) -> None:
        self._exchange = exchange
        self._loop = loop
        self._peers = peers

    def find_peer(self, sender: str) -> P:
        """Return the sender of a message.

        Raises:
            NotFound: It may not send these messages.
        """
        peer = self._peers.get(sender)
        if peer is None:
            raise NotFound(f"{sender} is not a server that may send such messages", operation="exchange")
        return peer

    def post(self, call: Callable[[], None]) -> None:
        """Schedule a call on the loop; from any thread, and ignored if the loop has closed."""
        try:
            self._loop.post(call)
        except (OSError, RuntimeError):
            return

    def handle(self, topic: str, handler: Callable[[P, bytes, OnAnswer], None]) -> None:
        """Answer the requests of a topic by a handler; an error that it raises is an answer, too."""

        def receive(sender: str, data: bytes, answer: OnAnswer) -> None:
            self.carry_out(sender, lambda peer: handler(peer, data, answer), answer)

        self._exchange.handle(topic, receive)

    def carry_out(self, sender: str, request: Callable[[P], None], answer: OnAnswer) -> None:
        """Schedule a request, an error of which is its answer.

        Raises:
            NotFound: Its sender may not make it.
        """
        peer = self.find_peer(sender)

        def guarded() -> None:
            try:
                request(peer)
            except PMIxError as error:
                answer(None, error)

        self.post(guarded)

    def hear(self, topic: str, listener: Callable[[P, bytes], None]) -> None:
        """Pass the messages of a topic, which have no answer, to a listener; an error that it raises is logged."""

        def receive(sender: str, data: bytes) -> None:
            peer = self.find_peer(sender)

            def guarded() -> None:
                try:
                    listener(peer, data)
                except PMIxError as error:
                    get_logger("pypmix.node").error("a message of %s (%s) failed: %s", sender, topic, error)

            self.post(guarded)

        self._exchange.hear(topic, receive)
