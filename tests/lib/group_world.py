"""A world of processes for the state machines of groups: many ports, one relay of events, one virtual clock.

Everything runs in one thread, in the order of the clock; whoever makes the world decides how long each thing takes.
What one process sends to another one arrives in order; what comes from different ones does not have to.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from pypmix.engine.chain import Delivery, Handlers
from pypmix.engine.groups.agent import Agent
from pypmix.engine.groups.foreign import support_of
from pypmix.engine.groups.standing import Attempt
from pypmix.engine.groups.talk import SAYS, found, listed, proc, size, text
from pypmix.standard import keys, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import (
    GroupConstruct,
    GroupDestruct,
    GroupResults,
    JobControl,
    Notification,
    NotifyEvent,
    RegisterEventHandler,
)
from pypmix.standard.ops.events import RANGE_PROC_LOCAL, is_set, matches_any
from pypmix.standard.ops.publishing import RANGE_CUSTOM, RANGE_SESSION
from pypmix.standard.types import Info, Proc, Value

ATTEMPT = Attempt()
"""An attempt to form a group."""

WORK = {
    "admitting": ("_admissions",),
    "election": ("_under_way", "_early"),
    "entering": ("_entries",),
    "inviting": ("_under_way",),
    "joining": ("_open",),
    "standing": ("_groups", "_expected", "_watching"),
}
"""Where each part of an agent keeps what it has not ended yet."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    Delay = Callable[[float], float]
    Answer = tuple[int, tuple[Info, ...]]

NSPACE = "job"
SERVER = Proc("host", 0)


def is_idle(name: str, part: Any) -> bool:
    """Return whether a part of an agent has nothing left to do."""
    return not any(getattr(part, attribute) for attribute in WORK.get(name, ()))


class Timer:
    """A call that is due at some time."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.cancelled = False

    def cancel(self) -> None:
        if not self.cancelled:
            self.cancelled = True
            self.process.world.timers.discard(self)


class Ticket:
    """An operation that was started, and what has come of it."""

    def __init__(self, op: Any) -> None:
        self.op = op
        self.over = False
        self.result: Any = None
        self.error: BaseException | None = None
        self.at: float | None = None

    @property
    def status(self) -> int:
        """0, or the status of the error."""
        assert self.over, f"{self.op} has not ended"
        return 0 if self.error is None else getattr(self.error, "code", -1)

    def __repr__(self) -> str:
        return f"{type(self.op).__name__}: {(self.error or self.result) if self.over else 'under way'}"


class World:
    """Processes with their agents, and what is between them.

    Args:
        procs: Who there is, or how many ranks of `NSPACE`.
        delay: Returns how long the next message, call or answer takes, given how long it may at most.
        adapts: Whether the server is one of ours: it keeps a record of groups and tells of failed leaders.
        release: The release of the server.
        deaths_in_order: Whether the news of a death comes after all that the dead has sent.
    """

    def __init__(
        self,
        procs: int | Iterable[Proc],
        *,
        delay: Delay = lambda most: most,
        adapts: bool = False,
        release: tuple[int, int, int] = (7, 0, 0),
        deaths_in_order: bool = True,
    ) -> None:
        self.now = 0.0
        self.delay = delay
        self.adapts = adapts
        self.release = release
        self.deaths_in_order = deaths_in_order
        self.log: list[str] = []
        self.timers: set[Timer] = set()
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._last: dict[tuple[Proc, Proc], float] = {}
        self._groups: dict[str, tuple[tuple[Proc, ...], Proc | None]] = {}
        self._cut: dict[Proc, float] = {}
        """From when on what a process that has died has sent is lost."""
        self._next_context_id = 0
        self.destructed: list[str] = []
        self.constructs = True
        if isinstance(procs, int):
            procs = [Proc(NSPACE, rank) for rank in range(procs)]
        self.processes = {each: Process(self, each) for each in procs}

    def __getitem__(self, rank: int | Proc) -> Process:
        return self.processes[Proc(NSPACE, rank) if type(rank) is int else rank]

    @property
    def living(self) -> list[Process]:
        return [process for process in self.processes.values() if not process.dead]

    # The clock

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Have a function called after a time."""
        self._count += 1
        heappush(self._due, (self.now + seconds, self._count, call))

    def run(self, until: float = float("inf"), steps: int = 100_000) -> None:
        """Let things happen until a time, or until nothing is left to happen."""
        while self._due and self._due[0][0] <= until:
            steps -= 1
            assert steps > 0, "it never comes to rest: " + "; ".join(self.log[-40:])
            self.step()
        if until != float("inf"):
            self.now = until

    def step(self) -> None:
        """Let the next thing happen."""
        self.now, _, call = heappop(self._due)
        call()

    # What is between the processes

    def carry(self, source: Proc, to: Proc, call: Callable[[], None], most: float = 0.01) -> None:
        """Have something arrive at a process, after what it was sent by the same one before."""
        at = max(self.now + self.delay(most), self._last.get((source, to), 0.0))
        self._last[source, to] = at
        self.after(at - self.now, call)

    def relay(self, source: Proc, op: NotifyEvent) -> None:
        """Bring an event to all others that are in its range."""
        self._note(source, op)
        event = Notification(int(op.code), source, int(op.range), op.infos)
        targets = listed(op.infos, keys.EVENT_CUSTOM_RANGE)
        self.log.append(f"{self.now:.3f} {source.rank} > {_shown(event, targets)}")
        for each, process in self.processes.items():
            wanted = matches_any(each, targets) if op.range == RANGE_CUSTOM else op.range == RANGE_SESSION
            if each != source and wanted:
                self.carry(source, each, self._arrival(process, event, self.now))

    def _arrival(self, process: Process, event: Notification, sent: float) -> Callable[[], None]:
        def arrives() -> None:
            if sent < self._cut.get(event.source, float("inf")):
                process.arrives(event)

        return arrives

    def kill(self, rank: int | Proc, *, lose: float = 0.0) -> None:
        """End a process, and tell all others.

        Args:
            rank: Which.
            lose: Of how many last seconds what it has sent never arrives, where it has not yet.
        """
        victim = self[rank]
        if victim.dead:
            return
        victim.dead = True
        self.log.append(f"{self.now:.3f} {victim.proc.rank} dies")
        if lose:
            self._cut[victim.proc] = self.now - lose
        infos = (proc(keys.EVENT_AFFECTED_PROC, victim.proc),)
        event = Notification(statuses.PROC_TERMINATED, SERVER, RANGE_SESSION, infos)
        groups = [(name, members) for name, (members, leader) in self._groups.items() if leader == victim.proc]
        for each, process in self.processes.items():
            if process.dead:
                continue
            if self.deaths_in_order:
                key = SERVER, each
                self._last[key] = max(self._last.get(key, 0.0), self._last.get((victim.proc, each), 0.0))
            self.carry(SERVER, each, lambda process=process: process.arrives(event))
        for name, members in groups if self.adapts else ():
            infos = text(keys.GROUP_ID, name), proc(keys.EVENT_AFFECTED_PROC, victim.proc)
            told = Notification(statuses.GROUP_LEADER_FAILED, SERVER, RANGE_CUSTOM, infos)
            for each in members:
                process = self.processes[each]
                self.carry(SERVER, each, lambda process=process, told=told: process.arrives(told))

    def _note(self, source: Proc, op: NotifyEvent) -> None:
        """Keep the record that a server of ours keeps."""
        name = found(op.infos, keys.GROUP_ID, str)
        if name is None:
            return
        members, leader = self._groups.get(name, ((), None))
        if op.code == statuses.GROUP_CONSTRUCT_COMPLETE:
            self._groups[name] = listed(op.infos, keys.GROUP_MEMBERSHIP), source
        elif op.code == statuses.GROUP_LEADER_SELECTED and members:
            self._groups[name] = members, found(op.infos, keys.GROUP_LEADER, Proc)
        elif op.code == statuses.GROUP_LEFT and members:
            self._groups[name] = tuple(each for each in members if each != source), leader

    def asked(self, process: Process, op: Any, done: Callable[[Any, BaseException | None], None]) -> None:
        """Answer an operation that is the engine's own."""
        self.log.append(f"{self.now:.3f} {process.proc.rank} ? {type(op).__name__}")
        result: Any = None
        error: BaseException | None = None
        if isinstance(op, NotifyEvent):
            self.relay(process.proc, op)
        elif isinstance(op, JobControl):
            self._next_context_id += 1
            result = (size(keys.GROUP_CONTEXT_ID, self._next_context_id),)
        elif isinstance(op, GroupConstruct) and op.procs == (process.proc,) and self.constructs:
            self._next_context_id += 1
            result = GroupResults(op.procs, self._next_context_id)
        elif isinstance(op, GroupDestruct):
            self.destructed.append(op.group)
        else:
            error = PMIxError("this world has none", status=statuses.ERR_NOT_SUPPORTED)
        self.carry(SERVER, process.proc, lambda: None if process.dead else done(result, error))

    # What there is to see

    def idle(self) -> list[str]:
        """Return what is left in the agents of the living, for whoever expects nothing."""
        left = [f"{process.proc.rank}: {what}" for process in self.living for what in process.under_way()]
        left += [f"{len(self.timers)} timers"] if any(not timer.process.dead for timer in self.timers) else []
        return left


class Process:
    """A process: a `Port` for its agent, and a program with handlers."""

    def __init__(self, world: World, proc: Proc) -> None:
        self.world = world
        self.proc = proc
        self.server_release = world.release
        self.support = support_of(world.adapts)
        self.recorded = False
        self.dead = False
        self.seen: list[Notification] = []
        """What its handlers were called with."""
        self._told: set[int] = set()
        self._cached: list[Notification] = []
        self._calls: list[tuple[Callable[[Any], None], object]] = []
        self.handlers = Handlers(proc, SERVER.nspace, lambda step: step(), self.tell, lambda handler: None)
        self._agent: Agent | None = None

    # The program

    @property
    def agent(self) -> Agent:
        if self._agent is None:
            self._agent = Agent(self)
        return self._agent

    def start(self, op: Any) -> Ticket:
        """Start an operation of groups now."""
        ticket = Ticket(op)

        def done(result: Any, error: BaseException | None) -> None:
            assert not ticket.over, f"{op} has ended twice"
            ticket.over, ticket.result, ticket.error, ticket.at = True, result, error, self.world.now
            self.world.log.append(f"{self.world.now:.3f} {self.proc.rank} = {ticket}")

        self.world.log.append(f"{self.world.now:.3f} {self.proc.rank} . {op}")
        self.agent.start(op, done)
        return ticket

    def notify(self, op: NotifyEvent) -> None:
        """Raise an event, as the program does."""
        self.submit(op, lambda result, error: None)

    def on(
        self,
        codes: int | tuple[int, ...],
        react: Callable[[Notification], Answer | int | None] | None = None,
        *,
        within: float = 0.01,
        never: bool = False,
    ) -> None:
        """Register a handler.

        Args:
            codes: For what.
            react: Called with each event; returns a status, with or without results, or nothing.
            within: How many seconds it takes at most until it has answered.
            never: Whether it never answers.
        """
        codes = (codes,) if isinstance(codes, int) else codes
        if any(code == -159 for code in codes):
            self.agent.expect((statuses.GROUP_INVITED,))

        def handler(delivery: Delivery) -> None:
            self.seen.append(delivery.notification)
            answer = react(delivery.notification) if react is not None else None
            status, results = answer if isinstance(answer, tuple) else (answer or statuses.EVENT_ACTION_COMPLETE, ())
            if never:
                return

            def answers() -> None:
                if not self.dead:
                    delivery.done(status, results)

            self.world.after(self.world.delay(within), answers)

        added = self.handlers.add(RegisterEventHandler(handler, tuple(codes)))
        self.handlers.activate(added)
        for code in codes:
            self._know(code)

    def events(self, code: int) -> list[Notification]:
        """Return what its handlers were called with under a code."""
        return [event for event in self.seen if event.code == code]

    def state(self, name: str) -> Any:
        """Return how a group stands that it is in."""
        return self.agent.standing.state(name)

    def under_way(self) -> list[str]:
        """Return which parts of its agent have something left to do."""
        parts = self._agent._parts if self._agent is not None else {}
        return [name for name, part in parts.items() if not is_idle(name, part)]

    # The port

    def enter(self, step: Callable[[], None]) -> None:
        step()

    def tell(self, function: Callable[[Any], None], argument: object) -> None:
        self._calls.append((function, argument))
        self.world.after(self.world.delay(0.001), self._make_call)

    def _make_call(self) -> None:
        function, argument = self._calls.pop(0)
        if not self.dead:
            function(argument)

    def watch(self, code: int, watcher: Callable[[Notification], None]) -> None:
        self.handlers.watch(code, watcher)
        self._know(code)

    def _know(self, code: int) -> None:
        """The server is told of a code, and brings what it has kept."""
        if code in self._told:
            return
        self._told.add(code)
        kept = [event for event in self._cached if event.code == code]
        self._cached = [event for event in self._cached if event.code != code]
        for event in kept:
            self.world.carry(SERVER, self.proc, lambda event=event: self.arrives(event))

    def arrives(self, event: Notification) -> None:
        """The server brings an event."""
        if self.dead:
            return
        if event.code in self._told:
            self.world.log.append(f"{self.world.now:.3f} {self.proc.rank} < {_shown(event, ())}")
            self.handlers.start_chain(event, True)
        elif not is_set(event.infos, keys.EVENT_DO_NOT_CACHE):
            self._cached.append(event)

    def submit(self, op: Any, done: Callable[[Any, BaseException | None], None]) -> None:
        if isinstance(op, NotifyEvent):
            targets = listed(op.infos, keys.EVENT_CUSTOM_RANGE)
            if op.range != RANGE_CUSTOM or matches_any(self.proc, targets):
                self.handlers.start_chain(Notification(int(op.code), self.proc, int(op.range), op.infos), False)
            if op.range == RANGE_PROC_LOCAL:
                done(None, None)
                return
        if not self.dead:
            self.world.asked(self, op, done)

    def later(self, seconds: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self)
        self.world.timers.add(timer)

        def due() -> None:
            if not timer.cancelled:
                timer.cancel()
                if not self.dead:
                    call()

        self.world.after(seconds, due)
        return timer

    def fetch(self, proc: Proc, key: str) -> Value | None:
        if key != "pmix.job.size":
            return None
        ranks = [each for each in self.world.processes if each.nspace == proc.nspace]
        return size(key, len(ranks)).value if ranks else None


def _shown(event: Notification, targets: tuple[Proc, ...]) -> str:
    says = found(event.infos, SAYS, str)
    to = "," + "".join(str(each.rank) for each in targets) if targets else ""
    extra = "".join(
        f" {info.key.rpartition('.')[2]}={info.value.data}"
        for info in event.infos
        if info.key.startswith("pypmix") and info.key != SAYS
    )
    return f"{says or event.code}{to} of {event.source.rank}{extra}"
