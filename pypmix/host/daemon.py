"""The daemon of a node: its PMIx server, and the ranks that a remote launcher runs there.

The daemon is a manager of its share of each job: it starts, signals, feeds and reads the ranks of its node, and
completes collectives together with the servers of the other nodes. It decides nothing: the exits of ranks, their
output, and all other requests of its server go to the launcher, whose orders it carries out (`pypmix.host.orders`).

States. It reads one line on its standard input, opens its server, reports on its standard output that it is ready
(`pypmix.host.firstlines` has both lines), and dials the launcher. The launcher sends it the addresses of the daemons
that joined earlier; later ones dial it. It leaves if its standard input ends, if the launcher orders it or is lost to
the exchange, and on SIGTERM: ranks get SIGTERM, and SIGKILL after the grace, and so do processes that left their
process groups. If the daemon itself is killed, its guard does that. A daemon that a relay has started
(`pypmix.host.rosters.tree`) leaves if the relay sends anything, and continues if its standard input ends without data,
once it has met the launcher.

Threads. Requests of the server arrive on its engine's thread, and so do messages of other servers by TCP, since most
of them are the answers; all else is on the loop.
"""

from __future__ import annotations

import errno
import gc
import json
import os
import signal
import socket
import sys
import time
from functools import partial

from pypmix._version import __version__
from pypmix.host import launch, orders, orphans
from pypmix.host.addresses import listening_address
from pypmix.host.crossings import Exchanging
from pypmix.host.exchange import Crossing, Exchange, TCPCarrier
from pypmix.host.exchange.coordinator import ContextIds
from pypmix.host.extensions import load_extension
from pypmix.host.firstlines import Orders, read_orders
from pypmix.host.folders import temporary_folder
from pypmix.host.hardware import this_shape
from pypmix.host.loop import READ, Loop
from pypmix.host.machine import Machine
from pypmix.host.nodes import LocalNode, usable_cpus
from pypmix.host.orders import FINE, Inbox
from pypmix.host.output import Sink
from pypmix.host.processsets import ProcessSets
from pypmix.host.running import RunningJob
from pypmix.host.serving import DEBUG_EVENTS, ENDING, LIVES, ServingManager
from pypmix.host.signals import LOOK, PASSED_ON, outlive
from pypmix.host.terms import Terms
from pypmix.server import Server
from pypmix.standard.errors import LostConnection, NotFound, PMIxError
from pypmix.standard.limits import Limits
from pypmix.standard.logtext import get_logger, printable_lines
from pypmix.standard.ops import (
    ComputeDistances,
    Heartbeat,
    JobControl,
    Notification,
    NotifyEvent,
    Output,
    ProcessMonitor,
    QueryInfo,
)
from pypmix.standard.statuses import DEBUGGER_RELEASE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pypmix.arguments import Procs
    from pypmix.engine.base import OnUpcall, Upcall
    from pypmix.host.exchange.kinds import OnAnswer
    from pypmix.host.feeding import Input
    from pypmix.host.job import JobLayout
    from pypmix.host.nodes import HostNode
    from pypmix.host.orders import Fault
    from pypmix.host.output import Stream
    from pypmix.host.preload import Came
    from pypmix.host.rank import Rank
    from pypmix.standard.types import Proc

    Address = tuple[str, int]

MAX_LINE = 4 << 20
"""The longest first line, in bytes."""

WINDOW = 1 << 20
"""Bytes of output that may be on their way to the launcher: ranks that write faster than it passes on block."""

REPORT_SECONDS = 5.0
"""Seconds that the launcher has for a report."""

REACH = 300.0
"""Seconds to reach the launcher; it has exited if its patience is shorter and it cannot end our standard input."""

LINGER = 1.0
"""Seconds for which the last messages are sent."""

_log = get_logger("pypmix.node")


class Uplink(Sink):
    """The destination of the output of ranks: the streams' taps send it to the launcher; this only pauses streams.

    Nothing is written to a descriptor of this process.
    """

    def __init__(self) -> None:
        self.terminal = False
        self.outstanding = 0
        self._paused: list[Callable[[], None]] = []

    @property
    def empty(self) -> bool:
        """Whether all output has been passed on: none is kept here."""
        return True

    def write(self, _stream: Stream | None, _data: bytes | bytearray) -> None:
        """Do nothing: the tap has sent it."""

    def is_open(self, _stream: Stream) -> bool:
        """Return False: only the launcher knows of open lines."""
        return False

    def pause(self, resume: Callable[[], None]) -> bool:
        """Return True if too much output is on its way: the caller stops writing until `resume` is called."""
        if self.outstanding <= WINDOW:
            return False
        self._paused.append(resume)
        return True

    def acknowledge(self, size: int) -> None:
        """Count bytes that the launcher has passed on, and resume streams."""
        self.outstanding = max(0, self.outstanding - size)
        if self.outstanding <= WINDOW // 2:
            paused, self._paused = self._paused, []
            for resume in paused:
                resume()

    def abandon(self) -> None:
        """Do nothing: nothing is kept here."""


class OrderedProcessSets(ProcessSets):
    """The process sets of a node: the launcher orders their definition."""

    def define(self, name: str, members: Procs, *, job: str = "") -> None:
        """Do nothing: the launcher defines the sets of a job on all nodes."""


class Daemon(ServingManager):
    """The manager of a node's share of the jobs of a launcher.

    Args:
        settings: The launcher's first line.
        env: The environment of this process.

    Raises:
        OSError: It cannot listen at that address.
    """

    def __init__(self, settings: Orders, env: Mapping[str, str]) -> None:
        loop = Loop()
        super().__init__(
            loop,
            machine=_machine(settings, env),
            space=settings.session,
            grace=settings.grace,
            limits=Limits.of(env),
        )
        self.loop: Loop
        self.psets = OrderedProcessSets(self)
        self._launcher = settings.launcher[0]
        self._addresses = settings.launcher[1]
        self._carrier = _carrier(settings)
        self._connection = _connection(settings)
        self._exchange = Exchange(self._carrier)
        self._inbox = Inbox(self._exchange, loop, {self._launcher: self._launcher})
        self._trace = load_extension("node-trace")() if settings.trace else None

        self._node = node = LocalNode(settings.number, settings.node, self.machine.tmpdir, self.machine)
        server = Server(
            self._on_upcall(node),
            engine="python",
            nspace=f"{settings.session}@0",
            tmpdir=node.tmpdir,
            tool_support=True,
            hostname=node.hostname,
            rank=node.number,
            limits=self.limits,
        )
        node.attach(server)
        self.nodes = self.here = (self._node,)
        self._uplink = Uplink()
        self._placed: set[str] = set()
        """The jobs that the launcher has described; used on the exchange's thread."""
        self._launches: dict[str, int] = {}
        """The number of orders to start ranks, by job."""
        self._ends: list[tuple[Proc, int | None, int, bool, bool]] = []
        """The ends of ranks that are to be reported."""
        self._leaving = False
        self._relayed = settings.relayed
        self._has_met = False
        self._listening = False
        self.at_rank_end.append(self._tell_rank_end)
        if settings.warm is not None:
            self.machine.forks = load_extension("warm-start")(settings.warm)
            self.machine.forks.watch(loop, self.fork_server_ended)

    # Its life

    def open(self) -> None:
        """Open the server.

        Raises:
            OSError: The folder cannot be made.
            PMIxError: The server cannot be opened.
        """
        node = self._node
        self.open_folder()
        orphans.adopt()
        node.server.open()
        if self._trace is not None:
            self._trace.attend(self._node.server)
        loop = self._node.server.session.loop()
        if loop is not None:
            self._exchange.live_on(loop)
        crossing = Crossing(self._node.server, self._exchange, launcher=self._launcher)
        self._crossing = crossing
        self._crossings = Exchanging(self, crossing)
        self.next_context_id = ContextIds(f"{self._exchange.name} host").take
        for topic, handler in (
            (orders.START_RANKS, self._start),
            (orders.PUSH, self._push),
            (orders.ASK_PENDING, self._tell_pending),
            (orders.PROBE, self._tell_unreached),
        ):
            self._inbox.handle(topic, handler)
        self._exchange.handle(orders.DESCRIBE_JOB, self._place)
        for topic, listener in (
            (orders.SEND_SIGNAL, self._signal),
            (orders.LEAVE, lambda _launcher, _data: self.leave("the launcher needs this node no more")),
            (orders.FORGET_JOB, self._forget),
            (orders.RAISE, self._raise),
            (orders.DELIVER, lambda _launcher, data: node.deliver_output(Output(*orders.PIECE.read(data)))),
            (orders.DEFINE, lambda _launcher, data: node.define_process_set(*orders.PSET.read(data))),
            (orders.DELETE, lambda _launcher, data: node.delete_process_set(*orders.NAMED.read(data))),
            (orders.TAKEN, lambda _launcher, data: self._uplink.acknowledge(*orders.COUNT.read(data))),
        ):
            self._inbox.hear(topic, listener)
        self._exchange.watch(self._changed)

    def run(self) -> None:
        """Take part until the launcher is lost or orders the end; nothing is left here when this returns."""
        try:
            self._exchange.start()
            if self._connection is not None:
                self._carrier.attach(self._connection, self._launcher)
            else:
                self._carrier.meet(self._launcher, self._addresses)
            self.loop.watch(0, READ, self._input)
            self._listening = True
            self.loop.later(REACH, self._check_meeting)
            self._tell_trace(repeat=True)
            self.loop.run(lambda: self._leaving and not any(job.launches for job in self.jobs.values()))
        finally:
            self._close()

    def leave(self, reason: str, report: str = "") -> None:
        """End all ranks, and then the daemon; on the loop.

        Args:
            reason: The reason, for the log.
            report: The reason to send to the launcher; empty if it is lost, or has ordered the end.
        """
        if self._leaving:
            return
        self._leaving = True
        if report:
            self._tell(orders.LEAVES, orders.REASON.write((report,)))
        self._unheard()
        # No other process may end them if the launcher is lost.
        self.forget_reached()
        if any(job.running for job in self.jobs.values()):
            _log.info("%s: %s; ranks are ended", self._node, reason)
        for job in list(self.jobs.values()):
            if job.launches:
                job.end(128 + signal.SIGTERM, reason)

    def signalled(self, signum: int) -> None:
        """Act on a signal: pass it on to the ranks unless it was sent to all processes; on the loop."""
        if self.is_sent_to_all(signum):
            # Ranks may take their time to end, and need their server: the sender kills the rest.
            self._tell_reached(signum)
        elif signum == signal.SIGTERM:
            self.leave("SIGTERM", "it was sent SIGTERM")
        else:
            self.pass_on(signum, handled=signum == signal.SIGUSR1)
            if signum == signal.SIGUSR1:
                self.report()

    def _tell_reached(self, signum: int) -> None:
        self._tell(orders.REACHED, orders.COUNT.write((signum,)))

    def report(self) -> None:
        """Write the launcher's report of pending operations on all nodes to standard error; on the loop."""

        def write_report(data: bytes | None, error: PMIxError | None) -> None:
            try:
                text = str(error) if data is None or error is not None else orders.REPORTED.read(data)[0]
                os.write(2, f"pypmix node {self._node}: {printable_lines(text)}\n".encode())
            except (PMIxError, OSError) as problem:
                _log.error("%s: a report cannot be written: %s", self._node, problem)

        self._exchange.request(self._launcher, orders.REPORT, b"", write_report, timeout=REPORT_SECONDS)

    def _input(self) -> None:
        try:
            data = os.read(0, 1 << 16)
        except OSError:
            data = b""
        if data:
            self.leave("the launcher has ended the session")
        elif self._relayed and self._has_met:
            self._unheard()
        else:
            self.leave("the launcher has gone", "what had started it has ended")

    def _unheard(self) -> None:
        """Stop reading standard input."""
        if self._listening:
            self._listening = False
            self.loop.unwatch(0)

    def _check_meeting(self) -> None:
        if not self._has_met:
            self.leave("the launcher is not reached")

    def _changed(self, name: str, here: bool) -> None:
        """Handle a server that has joined or was lost; on the exchange's thread."""
        if name != self._launcher:
            return
        self._has_met = True
        if not here:
            self._inbox.post(lambda: self.leave("the connection with the launcher has ended"))

    def _close(self) -> None:
        self.machine.end_strays(self.loop, self.patience)
        for job in self.jobs.values():
            job.close()
        if self.machine.forks is not None:
            self.machine.forks.close()
        self._tell_trace()
        self._exchange.close()
        self._node.server.close()
        self.close_folder()

    @property
    def ending(self) -> bool:
        """Whether all jobs are being ended."""
        return self._leaving

    # Messages

    def _tell(self, topic: str, data: bytes) -> None:
        self._exchange.tell(self._launcher, topic, data)

    def _tell_soon(self, topic: str, data: bytes) -> None:
        """Send the launcher a message together with messages that follow at once."""
        self._exchange.soon(self._exchange.outbox.buffer, self._launcher, topic, lambda: data)

    # Orders

    def _place(self, sender: str, data: bytes, answer: OnAnswer) -> None:
        """Record the places of a described job's procs, before any later message that needs them."""
        self._inbox.find_peer(sender)
        description = orders.DESCRIBE.read(data)
        described, number, *_ = description
        places = {rank: node.hostname for node in described.nodes for rank in node.ranks}

        def describe() -> None:
            self._inbox.carry_out(sender, lambda _launcher: self._describe(description, answer), answer)

        if described.nspace in self._placed:
            # Ranks of a lost node are started again on another one.
            self._crossing.move(described, places, describe)
            return
        self._placed.add(described.nspace)
        self._crossing.place(described, places, number)
        describe()

    def _describe(self, description: tuple[JobLayout, int, bool, int | None, bool], answer: OnAnswer) -> None:
        described, number, merged, stdin, indexed = description
        # A node that has left and joined again has the same name, and none of its former ranks.
        own = [node.ranks for node in described.nodes if node.number == self._node.number]
        ranks = own[0] if own else ()
        # Nothing is decided here: a rank that fails ends no other.
        # Output goes through pipes even for a single rank: the roster owns this process's output.
        terms = Terms(
            merged=merged, kept=True, stdin=stdin, pushed=True, forwarded=True, keep_going=True, indexed=indexed
        )
        former = self.jobs.get(described.nspace)
        if former is not None and (former.ranks or not ranks):
            answer(orders.FAULT.write(FINE), None)
            return
        if former is not None:
            # It gets its first ranks here.
            del self.jobs[described.nspace]
            self._node.deregister(described.nspace)
        mark = "" if number == 1 else str(number)
        folder = self._node.folder(number)
        files: dict[str, str] = {}
        apps = described.apps
        if ranks and any(app.preload for app in apps):
            from pypmix.host.preload import files_of, moved

            files, apps = files_of(apps), moved(apps, folder)
        apps = self.machine.settle(apps, described.wdir)
        job = RunningJob(
            self,
            described.replace(tmpdir=folder, apps=apps),
            number,
            terms,
            dict.fromkeys(ranks, self._node),
            mark,
        )
        self._last = max(self._last, number)
        if files:
            self._fetch(job, list(files), answer)
            return
        fault = self._prepare(job)
        if fault == FINE:
            self.register(job)
        answer(orders.FAULT.write(fault), None)

    def _prepare(self, job: RunningJob) -> Fault:
        """Find the programs of a job, and make its folder; return the fault if that fails."""
        try:
            if job.ranks:
                job.programs = [self.site.program(app) for app in job.job.apps]
                # Each server may need a connection with each other one.
                self.make_room(len(job.ranks), len(self._exchange.members))
            if job.number > 1:
                os.makedirs(job.job.tmpdir, 0o700, exist_ok=True)
        except OSError as error:
            return _fault(error)
        return FINE

    def _fetch(self, job: RunningJob, names: list[str], answer: OnAnswer) -> None:
        """Fetch the files of a job, whose programs may be among them."""

        def ask(name: str, offset: int, done: Came) -> None:
            def receive(data: bytes | None, error: PMIxError | None) -> None:
                try:
                    piece = None if data is None else orders.FETCHED.read(data)
                except PMIxError as problem:
                    piece, error = None, problem
                self._inbox.post(lambda: done(piece, error))

            if self._leaving:
                done(None, PMIxError("the node leaves the session"))
            else:
                wanted = orders.FETCH.write((job.nspace, name, offset))
                self._exchange.request(self._launcher, orders.FETCH_FILE, wanted, receive)

        def done(error: Exception | None) -> None:
            if isinstance(error, OSError):
                fault = _fault(error)
            else:
                fault = self._prepare(job) if error is None else (0, "", f"{self._node}: {error}")
            answer(orders.FAULT.write(fault), None)

        try:
            if job.number > 1:
                os.mkdir(job.job.tmpdir, 0o700)
            self.register(job)
        except OSError as error:
            done(error)
        else:
            from pypmix.host.preload import Arrival

            Arrival(names, job.job.tmpdir, ask, done).begin()

    def _start(self, _launcher: str, data: bytes, answer: OnAnswer) -> None:
        nspace, numbers, life = orders.START.read(data)
        job = self.jobs.get(nspace)
        if job is None or self._leaving or any(job.rank(number) is None for number in numbers):
            raise NotFound(f"{self._node} does not run ranks of {nspace}", operation="exchange")
        self._launches[nspace] = self._launches.get(nspace, 0) + 1
        begun = job.relaunch(numbers, life) if life else job.launch(numbers)
        begun.start(job.job.apps, job.programs)
        pids = tuple([(rank.proc.rank, rank.pid) for rank in begun.ranks if rank.pid])
        fault, reason = (0, "", ""), ""
        if job.unlaunched is not None:
            fault, reason = _fault(job.unlaunched), job.outcome.reason if job.outcome else str(job.unlaunched)
        answer(orders.STARTED.write((pids, fault, reason)), None)

    def _push(self, _launcher: str, data: bytes, answer: OnAnswer) -> None:
        proc, piece = orders.INPUT.read(data)
        found = self.find(proc)
        stdin: Input | None = None if found is None else found[1].input
        if stdin is None:
            raise NotFound(f"{proc} reads nothing here", operation="iof_push", procs=(proc,))
        stdin.write(piece, lambda: answer(b"", None))

    def _tell_pending(self, _launcher: str, _data: bytes, answer: OnAnswer) -> None:
        now = time.monotonic()
        found = [
            (item.operation, item.label, item.arrived, item.missing, max(0.0, now - item.since))
            for item in self.pending()
        ]
        answer(orders.PENDING.write(tuple(found)), None)

    def _tell_unreached(self, _launcher: str, _data: bytes, answer: OnAnswer) -> None:
        """Report unreached servers; the answer shows that this loop runs: the carrier's thread answers in any case."""
        answer(orders.UNREACHED.write(self._carrier.unreached), None)

    def _signal(self, _launcher: str, data: bytes) -> None:
        nspace, numbers, signum, handled = orders.SIGNAL.read(data)
        job = self.jobs.get(nspace)
        if job is not None and 0 < signum < signal.NSIG:
            chosen = [job.rank(number) for number in numbers]
            job.send(signum, [rank for rank in chosen if rank is not None], handled=handled)

    def _raise(self, _launcher: str, data: bytes) -> None:
        for event in orders.EVENTS.read(data):
            super().notify(event)

    def _forget(self, _launcher: str, data: bytes) -> None:
        (nspace,) = orders.NAMED.read(data)
        self._exchange.soon(self._placed.discard, nspace)
        job = self.jobs.get(nspace)
        if job is not None and not job.launches:
            self._launches.pop(nspace, None)
            job.close()
            self.forget(job)
        elif job is None:
            # It could not be run here.
            self._crossing.deregister(nspace)

    # Differences from other managers: its observations go to the launcher

    def sink(self, number: int) -> Uplink:
        """Return the sink that pauses streams if the launcher does not keep up."""
        return self._uplink

    def delivery(self, proc: Proc, channel: int, also: int = 0) -> Callable[[bytes], None]:
        """Return a function that sends a piece of a rank's output to the launcher."""

        def deliver(data: bytes) -> None:
            if data:
                self._tell_output(proc, channel, data)
            elif (found := self.find(proc)) is not None and found[1].alive:
                # Most outputs end because their rank does, which is known in a moment, and reported with these ends.
                rank = found[1]
                self.loop.later(ENDING, lambda: self._tell_output(proc, channel, b"") if rank.alive else None)

        return deliver

    def _tell_output(self, proc: Proc, channel: int, data: bytes) -> None:
        self._uplink.outstanding += len(data)
        tell = self._tell if data else self._tell_soon
        tell(orders.WROTE, orders.PIECE.write((proc, channel, data)))

    def _tell_rank_end(self, _job: RunningJob, rank: Rank) -> None:
        is_closed = all(stream.ended for stream in rank.streams.values())
        for kind, stream in () if is_closed else rank.streams.items():
            if stream.ended:
                self._tell_output(rank.proc, kind, b"")
            else:
                # Processes that the rank has left behind may still write.
                stream.tap = partial(self._tell_output, rank.proc, kind)
        # Ranks that this daemon ends as it leaves are lost with their node: their end was not requested.
        if not self._leaving:
            if rank.blame and self.is_sent_to_all(signal.SIGTERM):
                # The launcher must not end the other ranks for it, which were sent the same signal.
                self._tell_reached(signal.SIGTERM)
            if not self._ends:
                # Ranks that end together are reported together.
                self.loop.soon(self._tell_ends)
            self._ends.append((rank.proc, rank.code, rank.signum, rank.dumped, is_closed))

    def _tell_ends(self) -> None:
        ends, self._ends = self._ends, []
        if ends:
            self._tell_soon(orders.ENDED, orders.ENDS.write(tuple(ends)))

    def rank_ended(self, job: RunningJob, rank: Rank) -> None:
        """Report the end of a rank to the launcher, which raises its events."""
        super(ServingManager, self).rank_ended(job, rank)

    def rank_replaced(self, job: RunningJob, former: Rank, rank: Rank) -> None:
        """Do nothing: the launcher starts ranks again."""

    def job_over(self, job: RunningJob) -> None:
        """Report that nothing of the ranks here is left; the launcher orders when to forget the job."""
        job.finish_output()
        self._tell_trace()
        self._tell_ends()
        self._tell(orders.OVER, orders.LAUNCHES.write((job.nspace, self._launches.get(job.nspace, 0))))
        self.machine.end_strays_of(job.nspace, self.loop, self.grace, lambda: bool(job.launches))

    def _tell_trace(self, repeat: bool = False) -> None:
        """Send the launcher the latest entries for its trace, if it writes one."""
        if self._trace is None:
            return
        for message in self._trace.take_messages():
            self._tell(orders.TRACED, message)
        if repeat:
            self.loop.later(self._trace.period, lambda: self._tell_trace(repeat=True))

    def notify(self, event: Notification) -> None:
        """Raise an event of this node's monitors, on all nodes."""
        super().notify(event)
        self._crossing.raised(event)

    def _on_upcall(self, node: LocalNode) -> OnUpcall:
        asked: OnUpcall = partial(self._receive_upcall, node)
        return asked if self._trace is None else self._trace.wrap(asked)

    def _receive_upcall(self, node: LocalNode, upcall: Upcall) -> None:
        """Handle an upcall of the server; on its engine's thread."""
        op = upcall.op
        if isinstance(op, LIVES):
            self.note(node, op)
            self._tell(orders.LIFE, orders.STAGE.write((LIVES.index(type(op)), op.proc)))
        self.upcall(node, upcall)

    def upcall(self, node: HostNode, upcall: Upcall) -> None:
        """Answer requests about this node here, and collectives with the other servers; relay all other requests."""
        op = upcall.op
        if isinstance(op, NotifyEvent) and op.code in DEBUG_EVENTS:
            self._relay_debug_event(upcall, op.code)
            return
        if self._crossing.answer(upcall):
            return
        if isinstance(op, LIVES):
            upcall.reply()
        elif _is_of_this_node(op):
            super().upcall(node, upcall)
        else:
            self._relay(upcall)

    def _relay_debug_event(self, upcall: Upcall, code: int) -> None:
        """Report an event about stopped ranks to the launcher; a release reaches the clients of all nodes too."""
        self._relay(upcall)
        if code == DEBUGGER_RELEASE:
            assert isinstance(upcall.op, NotifyEvent) and upcall.requestor is not None
            self._crossing.raised(Notification(code, upcall.requestor, upcall.op.range, upcall.op.infos))

    def _relay(self, upcall: Upcall) -> None:
        """Request the answer of the launcher; carry out the orders that precede its answer first."""

        def answer(data: bytes | None, error: PMIxError | None) -> None:
            try:
                result = None if error is not None or data is None else orders.VALUE.read(data)
            except PMIxError as problem:
                error = problem
            if error is not None:
                upcall.fail(error)
            else:
                upcall.reply(result)

        def receive(data: bytes | None, error: PMIxError | None) -> None:
            self._inbox.post(lambda: answer(data, error))

        packed = orders.VALUE.write(upcall.op), upcall.requestor, upcall.uid, upcall.gid
        try:
            self._exchange.request(self._launcher, orders.ASK, orders.UPCALL.write(packed), receive)
        except RuntimeError:
            upcall.fail(LostConnection("the node's daemon leaves", operation=upcall.op.name))


def _machine(settings: Orders, env: Mapping[str, str]) -> Machine:
    """Return the machine of a daemon, with the environment and the folder of its ranks."""
    inherited = {**launch.inherited_environment(env), **dict(settings.env)}
    # A shell that ssh starts does not have the virtual environment in which `pypmix run` was called.
    inherited["PATH"] = launch.with_python(inherited.get("PATH", os.defpath))
    label = "".join([c if c.isascii() and c.isalnum() else "-" for c in settings.node.partition(".")[0]])
    folder = settings.folder or temporary_folder(inherited)
    return Machine(inherited, os.path.join(folder, f"pypmix-{label}-{os.getpid()}-{os.urandom(3).hex()}"))


def _connection(settings: Orders) -> socket.socket | None:
    if settings.connection < 0:
        return None
    # Not for child processes.
    os.set_inheritable(settings.connection, False)
    return socket.socket(fileno=settings.connection)


def _carrier(settings: Orders) -> TCPCarrier:
    dials = settings.connection < 0
    return TCPCarrier(
        settings.node,
        settings.secret,
        listen=(listening_address(settings.interface, settings.launcher[1]), 0) if dials else None,
        introducer=settings.launcher[0],
        keep_alive=settings.keep_alive,
        encrypt=settings.encrypt,
        # The launcher reports a lost node, once for all.
        quiet=True,
    )


def _is_of_this_node(op: object) -> bool:
    if isinstance(op, JobControl):
        from pypmix.host.control import ABOUT_FILES

        return bool(op.directives) and all(info.key in ABOUT_FILES for info in op.directives)
    if isinstance(op, QueryInfo):
        from pypmix.host.queries import OF_THE_NODE

        return OF_THE_NODE.issuperset([key for query in op.queries for key in query.keys])
    return isinstance(op, ComputeDistances | Heartbeat | ProcessMonitor)


def _fault(error: OSError) -> Fault:
    """Return an error of the system in its transmitted form."""
    return error.errno or errno.EIO, error.strerror or str(error), os.fsdecode(error.filename or "")


def main() -> int:
    """Run the daemon of a node: read the launcher's line on standard input, and serve until that ends."""
    outlive()
    line = bytearray()
    while not line.endswith(b"\n") and len(line) <= MAX_LINE:
        # Read one byte at a time: later data is for another reader.
        piece = os.read(0, 1)
        if not piece:
            break
        line += piece
    try:
        given = read_orders(bytes(line))
        if given.wdir and os.path.isdir(given.wdir):
            os.chdir(given.wdir)
        daemon = Daemon(given, os.environ)
        _take_signals(daemon)
        daemon.open()
    except (ValueError, OSError, PMIxError) as error:
        _say({"error": str(error), "version": __version__})
        return 1
    hostname = socket.gethostname()
    shape = this_shape(devices=True)
    ready = {"ready": given.node, "pid": os.getpid(), "cpus": usable_cpus(), "hostname": hostname}
    _say({**ready, "version": __version__, "shape": "" if shape is None else shape.write()})
    # Objects that exist by now stay: exclude them from garbage collection.
    gc.freeze()
    gc.enable()
    daemon.run()
    return 0


def _take_signals(daemon: Daemon) -> None:
    """Act on signals; ignore signals of a terminal, which the launcher passes on."""

    def act(signum: int, _frame: object) -> None:
        daemon.loop.post(lambda: look(signum))

    def look(signum: int) -> None:
        # By then it is known if ranks were sent it too.
        daemon.loop.later(LOOK, lambda: daemon.signalled(signum))

    signal.set_wakeup_fd(daemon.loop.wake_fd, warn_on_full_buffer=False)
    for signum in (signal.SIGTERM, *PASSED_ON):
        signal.signal(signum, act)
    for signum in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP, signal.SIGTSTP):
        # Not ignored: ranks would inherit that.
        signal.signal(signum, lambda *_: None)


def _say(what: Mapping[str, object]) -> None:
    try:
        # A shell's start-up files may have printed something that does not end with a newline.
        sys.stdout.write(f"\n{json.dumps(what)}\n")
        sys.stdout.flush()
    except OSError:
        # The launcher has exited; the end of standard input shows it too.
        return
