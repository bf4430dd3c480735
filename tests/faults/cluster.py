"""A whole session on virtual time: real servers, real crossings and exchanges, and the real machines of all clients.

There are no sockets, threads or clocks, and nothing that stands for a part of the package: a process is the machine of
a client with the agent of its groups, a node the machine of a server with its crossing, and what lies between them are
wires that take their time. What is sent over one wire arrives in order, or not at all once it is cut; what is sent over
different ones arrives in any order.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from pypmix.engine.groups import talk
from pypmix.engine.python.client import Client
from pypmix.engine.python.client import ServerInfo as Described
from pypmix.engine.python.datastore import DataStore
from pypmix.engine.python.server import Server
from pypmix.host.exchange import Crossing, Exchange, Hub
from pypmix.standard import attrs, keys, ops
from pypmix.standard.codes import PROC
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Notification
from pypmix.standard.ops.events import RANGE_SESSION
from pypmix.standard.types import DataArray, Info, Proc, Value
from pypmix.testing.virtual.wires import SHORT, End, Wire
from pypmix.wire.additions import greeting
from pypmix.wire.handshake import Hello, native_credential

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

UID, GID = 1000, 100
RELEASE = (7, 0, 0)
CREDENTIAL = native_credential(UID, GID)
PROC_ABORTED = -7
AFFECTED = "pmix.evproc"
AFFECTED_SEVERAL = "pmix.evaffected"
MARK = (Info(keys.EVENT_NON_DEFAULT, Value(1, True)),)

MANY = 100
"""From how many processes on a session does not wait for the end of each."""

LONG = 0.5
"""Seconds that a process takes at most to react."""


class Ticket:
    """An operation of a process, and what has come of it."""

    __slots__ = ("at", "error", "op", "over", "result", "then")

    def __init__(self, op: Any, then: Callable[[Ticket], None] | None) -> None:
        self.op = op
        self.then = then
        self.over = False
        self.at = 0.0
        self.result: Any = None
        self.error: BaseException | None = None

    @property
    def status(self) -> int:
        """0, or the status of the error."""
        return 0 if self.error is None else getattr(self.error, "code", -1)

    def __repr__(self) -> str:
        return f"{type(self.op).__name__}: {(self.error or self.result) if self.over else 'under way'}"


class Process:
    """A process with its client.

    Attributes:
        tickets: All that it has started.
        heard: What its handlers were called with, and whether it had begun to make a group of that name by then.
        changes: What its watches have told, by group.
        alive: Whether it lives.
        linked: Whether it has its server.
        reacts: Returns what its handlers answer to an event: a status, with or without results.
    """

    def __init__(self, world: Cluster, proc: Proc, node: Node) -> None:
        self.world = world
        self.proc = proc
        self.node = node
        self.alive = self.linked = True
        self.called: set[str] = set()
        self.tickets: list[Ticket] = []
        self.heard: list[tuple[Notification, bool]] = []
        self.changes: dict[str, list[Any]] = defaultdict(list)
        self.reacts: Callable[[Notification], Any] = lambda event: 0
        self.invited: Callable[[Notification], None] = lambda event: None
        self.ready: list[Callable[[], None]] | None = []
        """What waits until it has connected."""
        self._tick: float | None = None
        machine = self.machine = Client(proc, DataStore(proc, node.name, RELEASE), node.described)
        machine.enter = self._step
        self._up = Wire(world, self._at_server)
        self._down = Wire(world, self._at_client)
        self._link = End(world, self._down.send, UID)
        node.server.opened(self._link)
        hello = Hello("native", CREDENTIAL, 0, None, None, *proc, "7.0.0", "v41", 1, "hash", (greeting("1"),))
        self.opening = machine.connect(hello, None)
        self._after()

    # What the program does

    def start(self, op: Any, then: Callable[[Ticket], None] | None = None) -> Ticket:
        """Start an operation; `then` is called some time after it has ended."""
        ticket = Ticket(op, then)
        self.tickets.append(ticket)
        if isinstance(op, ops.GroupConstruct):
            self.called.add(op.group)
        if self.ready is not None:
            self.ready.append(lambda: self._submit(ticket))
        else:
            self._submit(ticket)
        return ticket

    def _submit(self, ticket: Ticket) -> None:
        def done(result: Any, error: BaseException | None) -> None:
            assert not ticket.over, f"{ticket.op} of {self.proc} has ended twice"
            ticket.over, ticket.result, ticket.error, ticket.at = True, result, error, self.world.now
            if self.world.log is not None:
                self.world.log.append(f"{self.world.now:.3f} {self.proc} = {ticket}")
            if ticket.then is not None:
                self.world.later(self.world.pace(SHORT), self._react, ticket)

        if not self.alive:
            return
        if self.world.log is not None:
            self.world.log.append(f"{self.world.now:.3f} {self.proc} . {ticket.op}")
        try:
            self.machine.start(ticket.op, done, self.world.now)
        except PMIxError as error:
            done(None, error)
        self._after()

    def _react(self, ticket: Ticket) -> None:
        if self.alive and ticket.then is not None:
            ticket.then(ticket)

    def listen(self, *codes: int) -> None:
        """Register a handler."""
        self.start(ops.RegisterEventHandler(self._handle, codes))

    def _handle(self, delivery: Any) -> None:
        event = delivery.notification
        self.heard.append((event, talk.found(event.infos, keys.GROUP_ID, str) in self.called))
        if self.world.log is not None:
            self.world.log.append(f"{self.world.now:.3f} {self.proc} < {event.code} of {event.source} {event.infos}")
        answer = self.reacts(event)
        status, results = answer if isinstance(answer, tuple) else (answer, ())
        self.world.later(self.world.pace(LONG), self._answer, delivery, status, results)
        self.invited(event)

    def _answer(self, delivery: Any, status: int, results: tuple[Info, ...]) -> None:
        if self.alive:
            delivery.done(status, results)

    def state(self, name: str) -> Any:
        """Return how a group stands that it is in."""
        return None if self.machine.groups is None else self.machine.groups.state(name)

    # How it ends

    def die(self) -> None:
        """It ends; what it has sent before arrives, and its host hears of its end by another way."""
        if self.alive:
            self.world.note(self, "dies")
            self.alive = self.linked = False
            self._up.end()
            self.world.later(self.world.pace(SHORT), self.node.ended, self.proc)

    def cut(self) -> None:
        """It loses its server, and ends some time later."""
        if self.linked:
            self.world.note(self, "loses its server")
            self.linked = False
            self._up.cut()
            self._down.cut()
            self.world.later(self.world.pace(LONG), self.die)

    # Its transport

    def _step(self, step: Callable[[], None]) -> None:
        self.machine.look(self.world.now)
        step()
        self._after()

    def _after(self) -> None:
        machine = self.machine
        data = machine.out[0]
        if data:
            machine.out = b"", []
            if self.linked:
                self._up.send(data)
        while machine.finished:
            call = machine.finished.pop(0)
            if call.done is not None and self.alive:
                call.done(*call.outcome)
        if self.ready is not None and self.opening.outcome is not None:
            waiting, self.ready = self.ready, None
            for call in waiting:
                call()
        due = machine.deadline
        if due is not None and (self._tick is None or due < self._tick):
            self._tick = due
            self.world.later(due - self.world.now, self._ticks, due)

    def _ticks(self, due: float) -> None:
        if self._tick == due:
            self._tick = None
        if self.alive:
            self.machine.tick(self.world.now)
            self._after()

    def _at_client(self, data: bytes) -> None:
        if self.alive:
            self.machine.intake.chunks.append(data)
            self.machine.take(self.world.now)
            self._after()

    def _at_server(self, data: bytes) -> None:
        if self.node.alive:
            self._link.arrive(data)


class Asked:
    """An upcall, answered once; it comes a moment after its server has made it, as on another thread."""

    __slots__ = ("_answer", "gid", "node", "op", "requestor", "uid")

    def __init__(self, node: Node, op: Any, answer: Any, process: Any) -> None:
        self.node = node
        self.op = op
        self.requestor = process.proc if process else None
        self.uid, self.gid = UID, GID
        self._answer = answer

    def reply(self, result: Any = None) -> None:
        self._done(result, None)

    def fail(self, error: BaseException) -> None:
        assert isinstance(error, PMIxError), error
        self._done(None, error)

    def _done(self, result: Any, error: BaseException | None) -> None:
        answer, self._answer = self._answer, None
        assert answer is not None, f"{self.op} was answered twice"
        self.node.calls(answer, result, error)


class Node:
    """A node: a server with its crossing, and a host that tells of the ends of its processes."""

    def __init__(self, world: Cluster, number: int) -> None:
        self.world = world
        self.number = number
        self.name = f"n{number:02}"
        self.proc = Proc(f"server-{self.name}", 0)
        self.described = Described(f"{self.proc.nspace}.0", RELEASE, adapts=True)
        self.alive = True
        self.jobs: list[str] = []
        self.logged: list[str] = []
        self.server = Server(self, self, self.proc)
        clock = world.hub.clock
        self.exchange = Exchange(world.hub.carrier(self.name), later=clock.later, now=clock.time)
        self.crossing = Crossing(self, self.exchange, gone=self._gone)
        self._buried: list[Proc] = []

    # The clock and the host, as the machine of the server sees them

    def now(self) -> float:
        return self.world.now

    def call_later(self, delay: float, function: Callable[[], None]) -> Any:
        return self.world.hub.clock.later(delay, lambda: self.calls(function))

    def calls(self, function: Callable[..., None], *args: Any) -> None:
        """Make a call, unless the server is lost."""
        if self.alive:
            function(*args)

    def log(self, text: str) -> None:
        self.logged.append(text)

    def upcall(self, op: Any, answer: Any, process: Any = None) -> None:
        self.world.later(0, self.calls, self._answer, Asked(self, op, answer, process))

    def _answer(self, asked: Asked) -> None:
        op = asked.op
        if isinstance(op, ops.ClientConnected):
            self.crossing.connected(op.proc)
        elif isinstance(op, ops.ClientFinalized):
            self.crossing.finalized(op.proc)
        elif isinstance(op, ops.ClientLost):
            self.crossing.departed(op.proc)
        elif self.crossing.answer(asked):
            return
        else:
            asked.fail(NotSupported("no"))
            return
        asked.reply()

    def ended(self, proc: Proc) -> None:
        """A process has ended, as its host sees it."""
        if self.alive:
            self.server.deregister_client(proc)
            self.crossing.departed(proc)

    def _gone(self, proc: Proc) -> None:
        """A proc of any server has ended: all hosts tell their clients, of several at once if they can."""
        if not self._buried:
            self.world.later(0, self.calls, self._remove_server)
        self._buried.append(proc)

    def _remove_server(self) -> None:
        gone, self._buried = tuple(dict.fromkeys(self._buried)), []
        affected = Info(AFFECTED, Value(PROC, gone[0]))
        if len(gone) > 1:
            affected = attrs.EVENT_AFFECTED_PROCS(DataArray(PROC, gone))
        self.server.events.notify(Notification(PROC_ABORTED, self.proc, RANGE_SESSION, (affected, *MARK)))

    # What the crossing calls of a session

    def register_nspace(self, job: JobInfo, local: Iterable[int] | None = None) -> None:
        self.server.register_nspace(job, local)

    def deregister_nspace(self, nspace: str) -> None:
        self.server.deregister_nspace(nspace)

    def notify(self, event: Notification) -> None:
        self.server.events.notify(event)

    def groups(self) -> tuple[tuple[str, tuple[Proc, ...]], ...]:
        groups = self.server.store.groups
        return tuple([(key.partition("\0")[0], members) for key, members in groups.items()])

    def define_process_set(self, name: str, members: tuple[Proc, ...], *, elsewhere: bool = False) -> None:
        self.server.psets.define(name, members, elsewhere)

    def delete_process_set(self, name: str) -> None:
        self.server.psets.delete(name)

    def dmodex_request(self, proc: Proc, done: Any, *, key: str = "", timeout: float = 0.0) -> None:
        def answer(data: Any, error: Any) -> None:
            self.world.later(0, self.calls, done, data, error)

        self.server.modex.sharing.request(proc, answer, key, timeout)


class Cluster:
    """Nodes, and processes on them.

    Args:
        servers: How many nodes.
        jobs: Of each job, on the node of which number each rank is.
        paces: Of what is the most that something may take, what it takes; these are gone through in turn.
        logs: Whether to note what happens, for people.

    Attributes:
        processes: All processes, dead ones as well.
    """

    def __init__(
        self, servers: int, jobs: Mapping[str, Sequence[int]], paces: Sequence[float], *, logs: bool = False
    ) -> None:
        self.log: list[str] | None = [] if logs else None
        self._paces = tuple(paces)
        self._pace = 0
        self.hub = Hub(delay=lambda _one, _other: self.pace(SHORT))
        self.nodes = [Node(self, number) for number in range(servers)]
        self.severed: set[frozenset[int]] = set()
        """Which nodes have no link any more with which others."""
        for node in self.nodes:
            node.exchange.start()
        self.run(1)
        self.processes: dict[Proc, Process] = {}
        self.losses: dict[str, int] = defaultdict(int)
        for nspace, places in jobs.items():
            self._register(nspace, places)
        self.run(1)
        for nspace, places in jobs.items():
            for rank, number in enumerate(places):
                proc = Proc(nspace, rank)
                self.processes[proc] = Process(self, proc, self.nodes[number])
        self.procs = list(self.processes)
        self.run(1)

    def _register(self, nspace: str, places: Sequence[int]) -> None:
        job = JobInfo(nspace, (attrs.JOB_SIZE(len(places)),))
        names = {rank: self.nodes[number].name for rank, number in enumerate(places)}
        local: dict[int, list[int]] = defaultdict(list)
        for rank, number in enumerate(places):
            local[number].append(rank)
        for number, ranks in local.items():
            node = self.nodes[number]
            node.jobs.append(nspace)
            node.crossing.register(job, names)
            node.register_nspace(job, ranks)
            for rank in ranks:
                node.server.register_client(Proc(nspace, rank), UID, GID)

    def __getitem__(self, number: int) -> Process:
        return self.processes[self.procs[number % len(self.procs)]]

    # The clock

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return self.hub.clock.now

    def later(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        """Have a function called."""
        self.hub.clock.later(seconds, (lambda: function(*args)) if args else function)

    def run(self, seconds: float) -> None:
        """Let time go on."""
        self.hub.run(self.hub.clock.now + seconds)

    def pace(self, most: float) -> float:
        """Return how long something takes."""
        self._pace += 1
        return most * self._paces[self._pace % len(self._paces)]

    def note(self, who: object, what: str) -> None:
        """Note something, for people."""
        if self.log is not None:
            proc = getattr(who, "proc", who)
            self.log.append(f"{self.now:.3f} {proc} {what}")

    # Losses

    def kill(self, process: Process) -> None:
        """A process dies."""
        self.losses["processes"] += process.alive
        process.die()

    def cut(self, process: Process) -> None:
        """A process loses its server."""
        self.losses["client links"] += process.linked
        process.cut()

    def lose(self, number: int) -> None:
        """A node is lost, with all of its processes."""
        node = self.nodes[number % len(self.nodes)]
        if node.alive and sum(each.alive for each in self.nodes) > 1:
            self.losses["servers"] += 1
            self.note(node, "is lost")
            node.alive = False
            for process in self.processes.values():
                if process.node is node:
                    process.alive = process.linked = False
            self.hub.lose(node.name)

    def sever(self, one: int, other: int) -> None:
        """Two nodes lose their link."""
        first, second = self.nodes[one % len(self.nodes)], self.nodes[other % len(self.nodes)]
        if first is not second and first.alive and second.alive:
            pair = frozenset((first.number, second.number))
            self.losses["server links"] += pair not in self.severed
            self.severed.add(pair)
            self.note(first, f"loses its link with {second.proc}")
            self.hub.part(first.name, second.name)

    # What there is to see

    @property
    def living(self) -> list[Process]:
        """The processes that live, and have their servers."""
        return [process for process in self.processes.values() if process.linked]

    def close(self) -> None:
        """All processes end, and all jobs are forgotten; where it is many, both at once."""
        if len(self.procs) < MANY:
            for process in self.living:
                process.die()
            self.run(30)
        for node in self.nodes:
            if node.alive:
                for nspace in node.jobs:
                    node.server.deregister_nspace(nspace)
                    node.crossing.deregister(nspace)
        self.run(120)
