"""An event loop on the clock of a `World`, in which its processes run programs of `pypmix.aio`.

Whatever a program waits for, an event, an answer or a time, comes from the world, so that nothing takes real time and
a run is the same each time.
"""

from __future__ import annotations

import asyncio
import os
import selectors
from typing import Any

import pytest

from lib.group_world import Process, Ticket, World
from pypmix import aio, clientbase
from pypmix.engine.common import EngineInfo
from pypmix.engine.groups.agent import PARTS
from pypmix.standard.ops import DeregisterEventHandler, RegisterEventHandler

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class _Clock(selectors.DefaultSelector):
    """Goes on in the world where the loop would sleep."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.step: Callable[[], None]
        self.idle: Callable[[], None]

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if ready or (timeout is not None and timeout <= 0):
            return ready
        world = self.world
        until = float("inf") if timeout is None else world.now + timeout
        if world._due and world._due[0][0] <= until:
            self.step()
        elif timeout is not None:
            world.now = until
        else:
            self.idle()
        return []


class Loop(asyncio.SelectorEventLoop):
    """The event loop of all programs of a world; it stops when nothing is left to happen."""

    def __init__(self, world: World) -> None:
        self._clock = _Clock(world)
        super().__init__(self._clock)
        self._clock.idle = self.stop
        self._clock.step = lambda: self._turn.set_result(None)
        self._clock_resolution = 1e-9
        self._turn: asyncio.Future[None] = self.create_future()
        self._world = self.create_task(self._go_on())

    async def _go_on(self) -> None:
        """Let things happen, in a task, as a client's events come to its program."""
        while True:
            await self._turn
            self._turn = self.create_future()
            self._clock.world.step()

    def time(self) -> float:
        return self._clock.world.now


class Session:
    """The session of one process of a world."""

    singleton = False
    server = "host.0 7.0.0"

    def __init__(self, process: Process) -> None:
        self.process = process
        self.proc = process.proc
        self.info = EngineInfo("world", "1.0")
        self._pipe = os.pipe()
        self.closed = False

    def submit(self, op: Any, done: Callable[..., None]) -> None:
        process = self.process
        if isinstance(op, RegisterEventHandler):
            added = process.handlers.add(op)
            process.handlers.activate(added)
            for code in op.codes:
                process._know(code)
            done(added.id, None)
        elif isinstance(op, DeregisterEventHandler):
            process.handlers.remove(op.id)
            done(None, None)
        elif type(op) in PARTS:
            process.agent.start(op, self._later(done))
        else:
            process.submit(op, self._later(done))

    def _later(self, done: Callable[..., None]) -> Callable[..., None]:
        def ended(result: object, error: BaseException | None) -> None:
            done(result, error)
            self._wake()

        return ended

    def _wake(self) -> None:
        if not self.closed:
            os.write(self._pipe[1], b".")

    def run(self, op: Any) -> None:
        """Finalize."""

    def group_state(self, name: str) -> Any:
        return self.process.state(name)

    def fetch_local(self, proc: Any, key: str) -> Any:
        return self.process.fetch(proc, key)

    def fileno(self) -> int:
        return self._pipe[0]

    def poll(self) -> None:
        os.read(self._pipe[0], 1000)

    def attach(self) -> None: ...

    def detach(self) -> None: ...

    def supports(self, feature: str) -> bool:
        return False

    def close(self) -> None:
        self.closed = True
        for fd in self._pipe:
            os.close(fd)


class Programs:
    """The programs of a world's processes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.loop = Loop(world)
        self.clients: dict[Process, aio.Client] = {}
        self.tasks: list[tuple[Process, asyncio.Task[Any]]] = []
        self._patch = pytest.MonkeyPatch()
        for module in ("pypmix.recipes.joinrequests", "pypmix.aio.recipes.admission"):
            self._patch.setattr(f"{module}.monotonic", self.loop.time)

    def start(self, process: Process, program: Callable[[aio.Client], Coroutine[Any, Any, Any]]) -> Ticket:
        """Have a process run a program; it ends with the process."""
        ticket = Ticket(program)

        async def run() -> None:
            try:
                ticket.result = await program(await self._client(process))
            except Exception as error:
                ticket.error = error
            ticket.over, ticket.at = True, self.world.now
            self.world.log.append(f"{self.world.now:.3f} {process.proc.rank} = {ticket.error or ticket.result}")

        self.tasks.append((process, self.loop.create_task(run())))
        return ticket

    async def _client(self, process: Process) -> aio.Client:
        found = self.clients.get(process)
        if found is None:
            found = self.clients[process] = aio.Client()
            self._patch.setattr(clientbase, "open_client", lambda *_: Session(process))
            await found.open()
        return found

    def run(self, until: float = float("inf")) -> None:
        """Let things happen until a time, or until nothing is left to happen."""
        if until != float("inf"):
            self.loop.call_at(until, self.loop.stop)
        self.loop.run_forever()

    def close(self) -> None:
        """End all that still runs."""
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.world._due.clear()
        self.loop.call_soon(self.loop.call_soon, self.loop.stop)
        self.loop.run_forever()
        for client in self.clients.values():
            client._port.session.close()
        self.loop.close()
        self._patch.undo()
