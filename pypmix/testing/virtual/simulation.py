"""A simulation: ranks as tasks with clients of the Python engine, servers and a host, on one clock."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
from random import Random
from typing import Any

from pypmix.engine import select
from pypmix.engine.python.session import open_client
from pypmix.host.exchange.inprocess import VirtualTime
from pypmix.host.report import unfinished
from pypmix.standard.errors import EngineUnavailable, Unreachable
from pypmix.steps import forget_job_steps
from pypmix.testing.cluster import Cluster, format_ranks, no_rank
from pypmix.testing.links import Links
from pypmix.testing.virtual.client import VirtualConnection
from pypmix.testing.virtual.host import VirtualHost, VirtualNode
from pypmix.testing.virtual.loop import VirtualLoop
from pypmix.testing.virtual.refusing import OWNER, refusing
from pypmix.testing.virtual.server import VirtualServer
from pypmix.testing.virtual.wires import SHORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence
    from contextvars import Context

    from pypmix.engine.base import ClientSession
    from pypmix.engine.python.client import Client
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Info
    from pypmix.testing.links import Link

    Main = Callable[["VirtualCluster"], Awaitable[object]]

DAY = 86400.0
"""The default limit of a simulation, in virtual seconds."""

CLEANING = 60.0
"""Virtual seconds that remaining tasks of ranks have to finish."""


class RanksFailed(Exception):
    """Ranks of a simulation have failed.

    Attributes:
        pmix_failures: The ranks of each failure, as text for a person, and the failure: an exception or a text.
    """

    def __init__(self, failures: Sequence[tuple[str, BaseException | str]]) -> None:
        self.pmix_failures = tuple(failures)
        where, first = self.pmix_failures[0]
        shown = first if isinstance(first, str) else f"{type(first).__name__}: {first}"
        more = f" (and {len(self.pmix_failures) - 1} more)" if len(self.pmix_failures) > 1 else ""
        super().__init__(f"{where}: {shown}{more}")
        for where, each in self.pmix_failures:
            self.add_note(f"{where}: {each if isinstance(each, str) else f'{type(each).__name__}: {each}'}")


class _SimulationEnd(BaseException):
    """Ends the loop of a simulation, or a rank that has killed itself."""


class VirtualRank:
    """A rank: its tasks and its connections.

    Attributes:
        proc: The host's object for the rank.
        expected: Whether the test has ended it.
        alive: Whether it runs.
        reported: Whether its end was reported to the host.
        result: The result of its program.
        error: The exception that has ended its program.
    """

    def __init__(self, rank: Rank, env: Mapping[str, str], loop: VirtualLoop) -> None:
        self.rank = rank
        self.env = env
        self.alive = True
        self.expected = self.reported = False
        self.result: object = None
        self.error: BaseException | None = None
        self.connections: list[VirtualConnection] = []
        self.tasks: list[asyncio.Task[Any]] = []
        self._loop = loop
        self._still = self._cleaning = False
        self._held: list[tuple[Context, Callable[..., object], tuple[Any, ...]]] = []

    @property
    def number(self) -> int:
        """Its rank."""
        return self.rank.proc.rank

    def step(self, context: Context, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        """Make a call of one of its tasks, unless it has ended or is suspended."""
        if self._cleaning or (self.alive and not self._still):
            callback(*args)
        else:
            # The calls of an ended rank are kept, too: `clean` lets its tasks finish.
            self._held.append((context, callback, args))

    def stop(self, still: bool) -> None:
        """Suspend the rank, or resume it."""
        self._still = still
        held, self._held = self._held, []
        for context, callback, args in held:
            self._loop.call_soon(callback, *args, context=context)

    def end(self) -> None:
        """End the rank: make no further calls, and close its connections."""
        self.alive = False
        for connection in self.connections:
            connection.end()

    def clean(self) -> list[asyncio.Task[Any]]:
        """Return its remaining tasks, and let them finish."""
        self._cleaning, self._still = True, False
        self.stop(False)
        for connection in self.connections:
            connection.close()
        left = [task for task in self.tasks if not task.done()]
        for task in left:
            task.cancel()
        return left

    def stacks(self) -> str:
        """Return the stacks of its tasks."""
        return "\n".join([_stack(task) for task in self.tasks if not task.done()])


def _stack(task: asyncio.Task[Any]) -> str:
    lines: list[str] = []
    own = os.path.dirname(os.path.dirname(__file__))
    coro: Any = task.get_coro()
    while coro is not None:
        frame = getattr(coro, "cr_frame", None) or getattr(coro, "gi_frame", None)
        if frame is not None and not frame.f_code.co_filename.startswith(own):
            # The most recent call comes first, as in other stacks of ranks.
            lines.insert(0, f'  File "{frame.f_code.co_filename}", line {frame.f_lineno} in {frame.f_code.co_name}')
        coro = getattr(coro, "cr_await", None) or getattr(coro, "gi_yieldfrom", None)
    return "\n".join(lines)


class VirtualCluster(Cluster):
    """The ranks, nodes and links of a simulation, for one of the ranks."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation

    async def meet(self) -> None:
        """Wait until all ranks have called this."""
        await self._simulation.meet()

    def kill(self, rank: int) -> None:
        """Kill a rank. Its unfinished test does not count as a failure."""
        self._simulation.kill(self._simulation.rank(rank))

    def stop(self, rank: int) -> None:
        """Suspend a rank. For its server it is merely slow."""
        self._simulation.rank(rank).stop(True)

    def resume(self, rank: int) -> None:
        """Resume a suspended rank."""
        self._simulation.rank(rank).stop(False)

    def lose(self, node: int | str) -> None:
        """Lose a node, with its server and all of its ranks."""
        self._simulation.lose(node)

    def now(self) -> float:
        """Return the virtual time in seconds."""
        return self._simulation.clock.now

    def _act(self, verb: str, link: Link, seconds: float = 0.0) -> None:
        self._simulation.links.act(verb, link, seconds)


class Simulation:
    """Ranks that run one program on virtual time.

    Args:
        main: The program: a coroutine function with the cluster as its argument.
        ranks: The number of ranks.
        nodes: The number of nodes.
        seed: Determines the latency of each message.
        timeout: The limit in virtual seconds.
    """

    def __init__(self, main: Main, ranks: int, nodes: int, seed: int, timeout: float) -> None:
        self.clock = VirtualTime()
        self._main = main
        self._timeout = timeout
        self._random = Random(seed)
        self._loop = VirtualLoop(self.clock, self._stuck, self._timed_out)
        self._ranks: dict[int, VirtualRank] = {}
        self._size = ranks
        self._late_text = ""
        self._cleaning = False
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._meeting: asyncio.Future[None] = self._loop.create_future()
        self._met = 0
        self.host = VirtualHost(self.clock, nodes, self.pace, self._start, self._end_rank, self._stops)
        names = [node.hostname for node in self.host.nodes]
        self.links = Links(self.later, names, ranks, self._cut, self._part)
        self._job: RunningJob | None = None

    # The clock and the latencies

    def later(self, seconds: float, function: Callable[..., None], *args: Any) -> None:
        """Schedule a call after some virtual seconds."""
        self.clock.later(seconds, (lambda: function(*args)) if args else function)

    def pace(self, most: float) -> float:
        """Return a latency of at most so many seconds."""
        return most * self._random.random()

    # Ranks

    def rank(self, number: int) -> VirtualRank:
        """Return a rank.

        Raises:
            ValueError: The rank does not exist.
        """
        found = self._ranks.get(number)
        if found is None:
            raise no_rank(number, self._size)
        return found

    async def meet(self) -> None:
        """Wait until all ranks have called this, without sending messages."""
        self._met += 1
        if self._met == self._size:
            self._meeting.set_result(None)
        await asyncio.shield(self._meeting)

    def kill(self, rank: VirtualRank) -> None:
        """Kill a rank for the test."""
        rank.expected = True
        self._end(rank, signum=signal.SIGKILL)
        if OWNER.get(None) is rank:
            raise _SimulationEnd

    def lose(self, node: int | str) -> None:
        """Lose a node."""
        for each in self.host.nodes:
            if node in (each.number, each.hostname) and isinstance(each, VirtualNode):
                there = [rank for rank in self._ranks.values() if rank.rank.node is each]
                for rank in there:
                    rank.expected = True
                    self._end(rank, signum=signal.SIGKILL)
                self.host.lose(each)
                if OWNER.get(None) in there:
                    raise _SimulationEnd
                return
        names = ", ".join([each.hostname for each in self.host.nodes])
        raise ValueError(f"{node!r:.80} is not a node: the nodes are {names:.200}")

    def _start(self, rank: Rank, env: dict[str, str]) -> None:
        made = VirtualRank(rank, env, self._loop)
        self._ranks[made.number] = made
        context = contextvars.copy_context()
        context.run(OWNER.set, made)
        context.run(self._loop.create_task, self._life(made), context=context)

    async def _life(self, rank: VirtualRank) -> None:
        __tracebackhide__ = True
        main = asyncio.current_task()
        code = 0
        try:
            rank.result = await self._main(VirtualCluster(self))
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            if rank.alive and not self._cleaning:
                code = 1
                rank.error = error
        left = [task for task in rank.tasks if task is not main and not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        self._end(rank, code=code)

    def _end(self, rank: VirtualRank, code: int | None = None, signum: int = 0) -> None:
        if rank.alive:
            rank.end()
            # The data that it has sent arrives first.
            self.later(SHORT, self._report_end, rank, code, signum)

    def _report_end(self, rank: VirtualRank, code: int | None, signum: int) -> None:
        rank.rank.code, rank.rank.signum = code, signum
        assert self._job is not None
        self._job.ranks_ended([rank.rank])
        rank.reported = True
        if all(each.reported for each in self._ranks.values()) and not self._done.done():
            self._done.set_result(None)

    def _end_rank(self, rank: Rank, signum: int) -> None:
        self._end(self._ranks[rank.proc.rank], signum=signum)

    def _stops(self, rank: Rank, still: bool) -> None:
        self._ranks[rank.proc.rank].stop(still)

    # Links

    def _cut(self, number: int) -> None:
        for connection in self.rank(number).connections:
            connection.cut()

    def _part(self, one: str, other: str) -> None:
        if self.host.hub is not None:
            self.host.hub.part(one, other)

    # Clients

    def _open_client(
        self, engine: str | None, env: Mapping[str, str] | None, directives: tuple[Info, ...]
    ) -> ClientSession | None:
        rank = OWNER.get(None)
        if not isinstance(rank, VirtualRank) or rank.rank.proc.rank not in self._ranks:
            return None
        if engine == "native":
            raise EngineUnavailable("the native engine cannot run on virtual time", operation="open")
        node = rank.rank.node

        def dial(machine: Client) -> VirtualConnection:
            if not rank.alive or isinstance(node, VirtualNode) and node.lost:
                raise Unreachable(f"the server of {node.hostname} is lost", operation="open")
            server = node.server
            assert isinstance(server, VirtualServer)
            made = VirtualConnection(self, self._loop, machine, self.links.gates(rank.number), server.opened)
            rank.connections.append(made)
            return made

        return open_client({**rank.env, **(env or {})}, directives, dial=dial, now=self.clock.time)

    # From the beginning to the end

    def run(self) -> list[object]:
        """Run the program; see `simulate`."""
        before = select.opener
        self._loop.set_task_factory(self._task)
        select.opener = self._open_client
        try:
            with refusing():
                try:
                    self._job = self.host.open(self._size, self.links)
                    self._loop.limit = self.clock.now + self._timeout
                    self._loop.run_until_complete(self._done)
                except _SimulationEnd:
                    pass
                finally:
                    self._clean()
                    if self._job is not None:
                        # The next simulation has a job of the same name.
                        forget_job_steps(self._job.nspace)
        finally:
            select.opener = before
        failures = self._failures()
        if failures:
            raise RanksFailed(failures)
        return [self._ranks[number].result for number in range(self._size)]

    def _task(self, loop: Any, coro: Any, **more: Any) -> asyncio.Task[Any]:
        context = more.get("context")
        owner = OWNER.get(None) if context is None else context.get(OWNER)
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **more)
        if isinstance(owner, VirtualRank):
            owner.tasks.append(task)
        return task

    def _stuck(self) -> None:
        self._give_up("all ranks wait, and nothing is on its way to any of them")

    def _timed_out(self) -> None:
        self._give_up(f"the job did not end within {self._timeout:g} virtual s and was ended")

    def _give_up(self, why: str) -> None:
        if not self._cleaning:
            self._late_text = "\n  ".join([why, *unfinished(self.host)])
            for rank in self._ranks.values():
                if not rank.reported and not rank.expected:
                    rank.error = rank.error or Waits(rank.stacks())
        raise _SimulationEnd

    def _clean(self) -> None:
        self._cleaning = True
        left = [task for rank in self._ranks.values() for task in rank.clean()]
        self._loop.limit = self.clock.now + CLEANING
        try:
            if left:
                self._loop.run_until_complete(asyncio.wait(left))
        except _SimulationEnd:
            # Some tasks ignore their cancellation; they no longer run.
            pass
        for task in left:
            if task.done() and not task.cancelled():
                task.exception()
        self.host.close()
        self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        self._loop.close()

    def _reason(self) -> str:
        """Return why the host has ended ranks."""
        outcome = None if self._job is None else self._job.final_outcome
        return "" if outcome is None else outcome.reason

    def _failures(self) -> list[tuple[str, BaseException | str]]:
        """Return the failures with their ranks; equal ones once."""
        equal: dict[object, tuple[list[int], BaseException | str]] = {}
        for number, rank in self._ranks.items():
            found: BaseException | str | None = rank.error
            if isinstance(found, Waits):
                found = str(found)
            elif found is None and not rank.expected and rank.rank.signum:
                found = f"{rank.rank.end()}: {self._reason()}".removesuffix(": ")
            if found is not None:
                equal.setdefault(found if isinstance(found, str) else _place(found), ([], found))[0].append(number)
        late = [(format_ranks(range(self._size), self._size), self._late_text)] if self._late_text else []
        return [*late, *[(format_ranks(ranks, self._size), found) for ranks, found in equal.values()]]


class Waits(Exception):
    """A rank waits forever; the text is its stacks."""


def _place(error: BaseException) -> object:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = None if trace is None else (trace.tb_frame.f_code.co_filename, trace.tb_lineno)
    return type(error), str(error), where


def simulate(main: Main, *, ranks: int = 2, nodes: int = 1, seed: int = 0, timeout: float = DAY) -> list[object]:
    """Run a program on several ranks on virtual time: a time limit of an hour passes at once.

    All ranks are tasks of one event loop in this process, each with a client of the Python engine, and so are the
    servers and the host of `pypmix run`. When all of them wait, the clock advances to the next event. The seed
    determines the latency of each message, up to 10 ms, and thus the whole run: the same seed gives the same run.

    Args:
        main: A coroutine function, which runs on each rank with the rank's `Cluster` as its argument. Clients that it
            opens (`pypmix.aio.Client()`) are clients of the rank.
        ranks: The number of ranks.
        nodes: The number of nodes, each with a server.
        seed: The seed.
        timeout: The limit in virtual seconds.

    Returns:
        The result of each rank; None for a rank that the test has killed.

    Raises:
        RanksFailed: The program has failed on a rank, or ranks wait forever.
        TypeError: `main` is not a coroutine function.
        ValueError: The number of ranks or nodes is less than 1, or too large for a host.
    """
    if not asyncio.iscoroutinefunction(main):
        raise TypeError(
            f"{getattr(main, '__name__', main)!r:.80} is not a coroutine function (`async def`): on virtual time a "
            "call that blocks would stop all ranks"
        )
    if type(ranks) is not int or ranks < 1:
        raise ValueError(f"a simulation has at least 1 rank, not {ranks!r:.80}")
    return Simulation(main, ranks, nodes, seed, timeout).run()
