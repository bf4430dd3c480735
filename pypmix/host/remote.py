"""Proxies of the nodes that daemons serve, for their launcher, and the ranks that it has started there.

The launcher's manager treats such a node as a local one: it registers jobs, starts and signals ranks, feeds and reads
them, and answers the requests of their servers. This module turns that into messages (`pypmix.host.orders`). Servers
complete collectives with each other.

Order. A job is described to all nodes; a node that cannot run it (no such program) reports so before any rank starts.
Then the nodes get the order to start their ranks, and answer with the pids. The output of a rank arrives before its
end, and its end before the end of all processes that it left behind (`OVER`). All of this happens on the launcher's
loop; messages between two servers stay in order.

Output has a window: a daemon continues to read its ranks only while the launcher has passed on most of the data that it
was sent.
"""

from __future__ import annotations

import os
import signal
import time

from pypmix.arguments import proc_tuple
from pypmix.engine.common import Pending
from pypmix.engine.times import UNREACHED_WARNING_SECONDS
from pypmix.host import orders
from pypmix.host.exchange import Forwarded
from pypmix.host.feeding import Input
from pypmix.host.launch import is_missing
from pypmix.host.loop import vital
from pypmix.host.nodes import HostNode
from pypmix.host.orders import FINE
from pypmix.host.rank import LOST_WITH
from pypmix.host.running import Share
from pypmix.host.serving import LIVES
from pypmix.standard.errors import PMIxError, RemoteProtocolError
from pypmix.standard.ops import IOFPull, Op, Spawn, ToolConnected
from pypmix.standard.types import RANK_WILDCARD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.arguments import Procs
    from pypmix.host.exchange import Exchange
    from pypmix.host.exchange.codec import Field
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.job import Application
    from pypmix.host.orders import Fault
    from pypmix.host.output import Sink, Stream
    from pypmix.host.placing import Node
    from pypmix.host.rank import Rank
    from pypmix.host.running import Launch, RunningJob
    from pypmix.host.serving import ServingManager
    from pypmix.standard.ops import Notification, Output
    from pypmix.standard.types import Proc
    from pypmix.topology.shape import Shape

    OnDone = Callable[[bytes, PMIxError | None], None]

TRY_INTERFACE = "is there a route between them, and no firewall? `--interface` chooses another network"

ACKNOWLEDGED = 1 << 16
"""Bytes of passed-on output after which the daemon gets an acknowledgement."""


class RelayedUpcall(Forwarded):
    """An upcall of a daemon's server, with results of any kind."""

    def reply(self, result: object = None) -> None:
        try:
            data = orders.VALUE.write(result)
        except TypeError as error:
            self.fail(error)
        else:
            self._answer(data, None)


class RemoteNode(HostNode):
    """A node that a daemon serves.

    Args:
        host: The launcher.
        number: Its place among the nodes (PMIX_NODEID).
        node: The roster's description of it.

    Attributes:
        known: The roster's description of it.
        lost: Why it is lost, or has left; empty while it is in the session.
        leaves: The reason that its daemon sent before it left unasked; empty if it sent none.
        unreached: The servers that its daemon has not reached: name, address, reason, and for how many seconds.
        abandon: Counts the node as lost, for the given reason.
        launches: The number of orders to start ranks there, by job.
        shares: The shares of which something is left there, or is to be started.
    """

    def __init__(self, host: ServingManager, number: int, node: Node) -> None:
        super().__init__(number, node.name, host.machine.tmpdir, node.slots or 0)
        self.cpus = node.cpus
        self._counts_cpus = node.slots is None
        self.names = tuple(dict.fromkeys((*self.names, *node.addresses)))
        self.most = node.most
        self.known = node
        self._shape: Shape | None = None
        self.lost = ""
        self.leaves = ""
        self._at_idle: Callable[[], None] | None = None
        self._host = host
        self._exchange: Exchange | None = None
        self._described: dict[str, Fault | None] = {}
        self.launches: dict[str, int] = {}
        self.shares: dict[RemoteShare, None] = {}
        self._awaited: dict[str, Callable[[Fault], None]] = {}
        self._pending: list[Pending] = []
        self.abandon: Callable[[str], object] = self.lose
        self.unreached: tuple[tuple[str, str, str, float], ...] = ()
        self._probing = self._mute = False
        self._silent = 0
        self._answered = time.monotonic()

    def open(self, exchange: Exchange, abandon: Callable[[str], object]) -> None:
        """Take part in the exchange with its daemon.

        Args:
            exchange: The exchange.
            abandon: Counts the node as lost, for the given reason, whatever its daemon does.
        """
        self._exchange = exchange
        self.abandon = abandon

    def find_shape(self, *, devices: bool = False) -> Shape | None:
        """Return its usable hardware, as its daemon has reported it; None if it is unknown."""
        return self._shape

    def has_cpus(self, cpus: int, shape: Shape | None) -> None:
        """Record its number of CPUs, which is also the number of slots if none was given, and its usable hardware."""
        self.cpus = cpus
        self._shape = shape
        if self._counts_cpus:
            self.slots = cpus

    # Messages

    def ask(self, topic: str, data: bytes, done: OnDone, timeout: float = 0.0) -> None:
        """Send the daemon a request; `done` is called on the host's loop."""
        assert self._exchange is not None

        def receive(reply: bytes | None, error: PMIxError | None) -> None:
            self._host.loop.post(lambda: done(reply or b"", error))

        self._exchange.request(self.hostname, topic, data, receive, timeout=timeout)

    def tell(self, topic: str, data: bytes) -> None:
        """Send the daemon a message that it does not answer."""
        if self._exchange is not None and not self.lost:
            self._exchange.tell(self.hostname, topic, data)

    # Orders of the host

    def register(self, job: RunningJob, _ranks: Sequence[int]) -> None:
        """Describe a job to the daemon."""
        nspace = job.nspace
        self._described[nspace] = None

        def described(data: bytes, error: PMIxError | None) -> None:
            fault = _read(orders.FAULT, data, error, self.hostname)
            if nspace in self._described:
                self._described[nspace] = fault
                awaited = self._awaited.pop(nspace, None)
                if awaited is not None:
                    awaited(fault)

        if not job.order:
            # All daemons get the same.
            terms = job.terms
            job.order = orders.DESCRIBE.write((job.job, job.number, terms.merged, terms.stdin, terms.indexed))
        self.ask(orders.DESCRIBE_JOB, job.order, described)

    def when_described(self, nspace: str, done: Callable[[Fault], None]) -> None:
        """Call a function with the daemon's answer to the description of a job."""
        fault = self._described.get(nspace)
        if fault is None:
            self._awaited[nspace] = done
        else:
            done(fault)

    def deregister(self, nspace: str) -> None:
        """Order the daemon to forget a job."""
        self._described.pop(nspace, None)
        for share in [share for share in self.shares if share.launch.job.nspace == nspace]:
            # Its launch was never started.
            del self.shares[share]
        self.launches.pop(nspace, None)
        self._awaited.pop(nspace, None)
        self.tell(orders.FORGET_JOB, orders.NAMED.write((nspace,)))

    def deregister_client(self, proc: Proc) -> None:
        """Do nothing: the node's server was the first to know that the rank has ended."""

    def define_process_set(self, name: str, members: Procs) -> None:
        """Define a process set."""
        self.tell(orders.DEFINE, orders.PSET.write((name, proc_tuple(members))))

    def delete_process_set(self, name: str) -> None:
        """Delete a process set."""
        self.tell(orders.DELETE, orders.NAMED.write((name,)))

    def notify(self, event: Notification) -> None:
        """Raise an event for the clients of the server."""
        self.tell(orders.RAISE, orders.EVENTS.write((event,)))

    def deliver_output(self, output: Output) -> None:
        """Send the server the output of a proc."""
        self.tell(orders.DELIVER, orders.PIECE.write((output.source, output.channel, output.data)))

    def pending(self) -> list[Pending]:
        """Return the pending operations of the server, as of the last `refresh`."""
        return self._pending

    def refresh(self, done: Callable[[], None], timeout: float) -> None:
        """Collect the pending operations of the server, and call a function then."""

        def receive(data: bytes, error: PMIxError | None) -> None:
            now = time.monotonic()
            try:
                found = orders.PENDING.read(data) if error is None else ()
            except RemoteProtocolError:
                found = ()
            self._mute = error is not None
            if not self._mute:
                self._answered = now
            self._pending = [
                Pending(operation, label, arrived, missing, now - max(0.0, age))
                for operation, label, arrived, missing, age in found
            ]
            done()

        self.ask(orders.ASK_PENDING, b"", receive, timeout)

    def probe(self, done: Callable[[], None]) -> int:
        """Probe the daemon's loop, unless a probe is pending.

        Args:
            done: See `ask_reach`.

        Returns:
            The number of times in a row that the last probe was found unanswered.
        """
        if self._probing:
            self._silent += 1
            return self._silent
        self.ask_reach(done)
        return 0

    def ask_reach(self, done: Callable[[], None]) -> None:
        """Ask the daemon which servers it has not reached, unless a probe is pending, whose answer contains them.

        Args:
            done: Called with the answer, which has set `unreached`.
        """
        if self._probing:
            return
        self._probing = True

        def receive_answer(data: bytes, error: PMIxError | None) -> None:
            self._probing = False
            self._silent = 0
            if error is not None:
                return
            self._mute, self._answered = False, time.monotonic()
            try:
                self.unreached = orders.UNREACHED.read(data)
            except RemoteProtocolError:
                self.unreached = ()
            done()

        self.ask(orders.PROBE, b"", receive_answer)

    def troubles(self) -> list[str]:
        """Return the node's troubles, a line each: no answer of its daemon, servers that it does not reach."""
        lines = []
        if self._silent or self._mute:
            seconds = time.monotonic() - self._answered
            lines.append(f"node {self}: its daemon has not answered for {seconds:.1f} s")
        for name, where, reason, seconds in self.unreached:
            if seconds > UNREACHED_WARNING_SECONDS:
                lines.append(f"{apart(self.hostname, name, where, reason)} for {seconds:.0f} s; {TRY_INTERFACE}")
        return lines

    # Requests and reports of the daemon, on the loop

    def answer_upcall(self, data: bytes, answer: OnAnswer) -> None:
        """Handle a request that the daemon's server cannot answer.

        Raises:
            RemoteProtocolError: It does not parse.
        """
        packed, requestor, uid, gid = orders.UPCALL.read(data)
        op = orders.VALUE.read(packed)
        if not isinstance(op, Op):
            raise RemoteProtocolError(f"a {type(op).__name__} is not what a server asks", operation="exchange")
        if isinstance(op, IOFPull | Spawn | ToolConnected):
            self._host.listeners[self] = None
        self._host.upcall(self, RelayedUpcall(self.hostname, op, requestor, uid, gid, answer))

    def lived(self, data: bytes) -> None:
        """Record that a client has connected, has finalized, or has lost its connection."""
        kind, proc = orders.STAGE.read(data)
        if kind >= len(LIVES):
            raise RemoteProtocolError(f"{kind} is not an event in the life of a client", operation="exchange")
        self._host.note(self, LIVES[kind](proc))

    def wrote(self, data: bytes) -> None:
        """Pass on a piece of a rank's output."""
        proc, kind, piece = orders.PIECE.read(data)
        rank = self._rank(proc)
        stream = None if rank is None else rank.streams.get(kind)
        if stream is None or stream.ended:
            self._acknowledge(len(piece))
        elif piece:
            stream.take(piece)
            self._hand_on(stream, len(piece))
        elif rank is not None and not rank.life:
            # Otherwise it may be the end of a former process's.
            stream.close()

    def _hand_on(self, stream: Stream, size: int) -> None:
        if stream.resumed is None and not stream.paused():
            self._acknowledge(size)
            return
        former = stream.resumed

        def resumed() -> None:
            stream.resumed = None
            if former is not None:
                former()
            self._acknowledge(size)

        stream.resumed = resumed

    def _acknowledge(self, size: int) -> None:
        self._unacknowledged += size
        if self._unacknowledged >= ACKNOWLEDGED:
            self.tell(orders.TAKEN, orders.COUNT.write((self._unacknowledged,)))
            self._unacknowledged = 0

    _unacknowledged = 0

    def record_rank_ends(self, data: bytes) -> None:
        """Record the ends of ranks, which the daemon has reported together."""
        ended: dict[str, dict[Rank, None]] = {}
        for proc, code, signum, dumped, is_closed in orders.ENDS.read(data):
            rank = self._rank(proc)
            if rank is not None and rank.alive:
                for stream in rank.streams.values() if is_closed else ():
                    stream.close()
                rank.code, rank.signum, rank.dumped = code, signum, dumped
                ended.setdefault(proc.nspace, {})[rank] = None
        with self._host.site.gathered_events():
            for nspace, ranks in ended.items():
                # The node may be lost while the ends of another job are judged.
                if alive := [rank for rank in ranks if rank.alive]:
                    self._host.jobs[nspace].ranks_ended(alive)

    def will_leave(self, data: bytes) -> None:
        """Record the reason for which its daemon leaves unasked."""
        (why,) = orders.REASON.read(data)
        self.leaves = f"its daemon has left: {why}"

    def was_reached(self, data: bytes) -> None:
        """Record a signal that a resource manager has sent to all processes there."""
        self._host.record_reached(self, orders.COUNT.read(data)[0])

    def record_job_end(self, data: bytes) -> None:
        """Record that nothing is left here of a job's ranks, nor of the processes that they left behind."""
        nspace, launches = orders.LAUNCHES.read(data)
        job = self._host.jobs.get(nspace)
        for share in list(self.shares):
            # The order to start ranks again may have passed this report.
            if share.launch.job is job and 0 < share.order <= launches:
                share.finish()
        self.check_idle()

    def when_idle(self, done: Callable[[], None]) -> None:
        """Call a function as soon as nothing is left here of any job's ranks, perhaps at once."""
        self._at_idle = done
        self.check_idle()

    def check_idle(self) -> None:
        """Call the waiting function, if any, if nothing is left here of any job's ranks."""
        if self._at_idle is not None and not self.shares:
            done, self._at_idle = self._at_idle, None
            done()

    def _rank(self, proc: Proc) -> Rank | None:
        found = self._host.find(proc)
        return found[1] if found is not None and found[1].node is self else None

    def ends_a_job(self) -> bool:
        """Return True if the loss of the node ends a job, since ranks of it run here, or the job is being started."""
        described = [self._host.jobs.get(nspace) for nspace in self._awaited]
        if any(job is not None and job.job.parent is None for job in described):
            return True
        jobs = [share.launch.job for share in self.shares if any(rank.alive for rank in share.ranks)]
        return any(job.outcome is None and not job.terms.keep_going for job in jobs)

    def dismiss(self) -> None:
        """Order the daemon to leave: nothing is left of any job's ranks here."""
        self.tell(orders.LEAVE, b"")
        self.lose("it has left the session")

    def lose(self, reason: str) -> None:
        """Mark the node as lost, and its ranks with it."""
        if self.lost:
            return
        self.lost = reason
        self._host.listeners.pop(self, None)
        awaited, self._awaited = self._awaited, {}
        fault = (0, "", f"node {self} is lost: {reason}")
        self._described = {nspace: known or fault for nspace, known in self._described.items()}
        for done in awaited.values():
            done(fault)
        for share in list(self.shares):
            share.lose(reason)
        self.check_idle()


class RemoteInput(Input):
    """The standard input of a rank on another node: the daemon feeds it.

    Args:
        node: The node.
        proc: The rank.
    """

    def __init__(self, node: RemoteNode, proc: Proc) -> None:
        self._node = node
        self._proc = proc
        self._early: list[tuple[bytes, Callable[[], None]]] | None = []
        self._over = False
        self.held = 0

    @property
    def closed(self) -> bool:
        """Whether it accepts no further data."""
        return self._over

    def open(self) -> None:
        """Send the data of a rank that has been started."""
        early, self._early = self._early or [], None
        for data, done in early:
            self._send(data, done)

    def write(self, data: bytes, done: Callable[[], None] = lambda: None) -> None:
        """Give data to the rank; no data ends its input."""
        if self._over:
            done()
            return
        self._over = not data
        self.held += len(data)
        if self._early is not None:
            self._early.append((data, done))
        else:
            self._send(data, done)

    def _send(self, data: bytes, done: Callable[[], None]) -> None:
        def acknowledge(_answer: bytes, error: PMIxError | None) -> None:
            self.held -= len(data)
            if error is not None:
                self._over = True
            done()

        self._node.ask(orders.PUSH, orders.INPUT.write((self._proc, data)), acknowledge)

    def close(self) -> None:
        """End the input at once."""
        self._over = True
        early, self._early = self._early or [], None
        for _, done in early:
            done()


class RemoteShare(Share):
    """The ranks of a launch on a node that a daemon serves, which has a share of its own for them.

    Args:
        starter: The launch.
        node: The node.
        ranks: Its ranks there.

    Attributes:
        order: The number of the order to start them, among the job's orders to the node; 0 before it is sent.
    """

    node: RemoteNode

    def __init__(self, starter: Launch, node: RemoteNode, ranks: list[Rank]) -> None:
        super().__init__(starter, node, ranks)
        node.shares[self] = None
        self.order = 0
        self._is_busy = False
        """Whether the daemon was ordered to start the ranks and has not reported that nothing is left of them."""
        for rank in ranks:
            if starter.terms.stdin in (RANK_WILDCARD, rank.proc.rank):
                rank.input = RemoteInput(node, rank.proc)
            starter.connect_outputs(rank, _from_elsewhere)

    def prepare(self) -> None:
        """Wait until the daemon has the description of the job, and has found its programs."""
        self.node.when_described(self.launch.job.nspace, self._described)

    @vital
    def _described(self, fault: Fault) -> None:
        refused = fault != FINE
        self.launch.share_prepared(self._failure(fault, _text(fault, self.node.hostname)) if refused else None)

    def start(self, _apps: Sequence[Application], _programs: Sequence[str]) -> None:
        """Order the daemon to start the ranks, which run the applications of the description."""
        self._is_busy = True
        for rank in self.ranks:
            # Later messages to them follow this order.
            rank.alive = True
        self.launch.count(self.node, len(self.ranks))
        nspace, numbers = self.launch.job.nspace, [rank.proc.rank for rank in self.ranks]
        self.order = self.node.launches[nspace] = self.node.launches.get(nspace, 0) + 1
        order = nspace, numbers, self.ranks[0].life
        self.node.ask(orders.START_RANKS, orders.START.write(order), self._started)
        for rank in self.ranks:
            if isinstance(rank.input, RemoteInput):
                rank.input.open()

    @vital
    def _started(self, data: bytes, error: PMIxError | None) -> None:
        """Record the pids of the ranks that the daemon has started; the ranks of a lost node end."""
        try:
            pids, fault, reason = orders.STARTED.read(data) if error is None else ((), FINE, "")
        except RemoteProtocolError as problem:
            pids, fault, reason = (), FINE, str(problem)
        if error is not None:
            self._lose_ranks(error.detail)
        by_rank = dict(pids)
        for rank in self.ranks:
            rank.pid = by_rank.get(rank.proc.rank, 0)
            if rank.alive and not rank.pid:
                rank.alive = False
                self.launch.count(self.node, -1)
                if rank.input is not None:
                    rank.input.close()
        if not by_rank:
            self.finish()
        self.launch.share_started(self._failure(fault, f"{reason} on {self.node}") if reason else None)
        self.node.check_idle()

    def _failure(self, fault: Fault, reason: str) -> tuple[OSError, str, bool]:
        """Return the arguments of `Launch.failed`."""
        number, text, path = fault
        error = OSError(number, text, path or None) if number else OSError(reason)
        names = {os.path.basename(app.program or app.argv[0]) for app in self.launch.job.job.apps}
        return error, reason, os.path.basename(error.filename or "") in names or is_missing(error)

    def signal(self, ranks: Sequence[Rank], signum: int, handled: bool = False) -> None:
        numbers = [rank.proc.rank for rank in ranks]
        signal_ = self.launch.job.nspace, numbers, signum, handled
        self.node.tell(orders.SEND_SIGNAL, orders.SIGNAL.write(signal_))

    def finish(self) -> None:
        """Record that nothing is left of the ranks: the daemon has reported it, or is lost."""
        self._is_busy = False
        if not any(rank.alive for rank in self.ranks):
            # A daemon that leaves unasked does not report the ends of its ranks: they are lost with their node.
            self.node.shares.pop(self, None)
        self.launch.share_over(self)

    def sweep(self) -> None:
        """Wait for the daemon's report that nothing is left, unless it has started nothing."""
        if not self._is_busy:
            self.finish()

    def give_up(self) -> None:
        """Stop waiting for the node, which has not reported the end of processes killed there."""
        reason = "it has not reported that its ranks have ended"
        if self.host.give_up_node(self.node, reason):
            self.node.abandon(reason)
        else:
            self._end_ranks("was killed and does not end")
            self.finish()

    def lose(self, reason: str) -> None:
        """End the ranks with their node."""
        self._lose_ranks(reason)
        self._is_busy = False
        if not self.launch.unstarted:
            self.finish()

    def _lose_ranks(self, reason: str) -> None:
        self._end_ranks(f"{LOST_WITH} {self.node}: {reason}")

    def _end_ranks(self, fate: str) -> None:
        alive = [rank for rank in self.ranks if rank.alive]
        for rank in alive:
            rank.signum = signal.SIGKILL
            rank.fate = fate
        if alive:
            self.launch.job.ranks_ended(alive)


def apart(node: str, other: str, address: str, reason: str) -> str:
    """Return a text about two nodes that do not reach each other."""
    return f"{node} has not reached {other} at {address}{f' ({reason})' if reason else ''}"


def _from_elsewhere(_kind: int, _sink: Sink | None) -> int:
    """Return -1: the daemon sends the output."""
    return -1


def _read(field: Field[Fault], data: bytes, error: PMIxError | None, node: str) -> Fault:
    """Return a daemon's answer, or the error instead of it."""
    if error is None:
        try:
            return field.read(data)
        except RemoteProtocolError as problem:
            error = problem
    return 0, "", f"node {node}: {error.detail}"


def _text(fault: Fault, node: str) -> str:
    """Return a text with the reason why a node cannot run a job."""
    number, text, path = fault
    if not number:
        return path
    return f"{text} on {node}: {path}" if path else f"{text} on {node}"
