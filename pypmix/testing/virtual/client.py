"""The connection of a simulated rank, in place of `pypmix.engine.python.transport` with its socket and threads."""

from __future__ import annotations

from pypmix.standard.ops import Finalize, Put
from pypmix.testing.virtual.refusing import refused
from pypmix.testing.virtual.wires import End, Wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pypmix.engine.alarms import Alarm
    from pypmix.engine.base import Done
    from pypmix.engine.python.client import Call, Client
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Value
    from pypmix.testing.links import Gate
    from pypmix.testing.virtual.loop import VirtualLoop
    from pypmix.testing.virtual.simulation import Simulation


class VirtualConnection:
    """Drives the machine of a client in the loop of the simulation.

    Args:
        world: The simulation, for its clock and latencies.
        loop: The loop of the ranks.
        machine: The machine.
        gates: The link of the rank: to its server, and back.
        opened: Passes the server its end.
    """

    def __init__(
        self,
        world: Simulation,
        loop: VirtualLoop,
        machine: Client,
        gates: tuple[Gate, Gate],
        opened: Callable[[End], None],
    ) -> None:
        self._loop = loop
        self._machine = machine
        self._fd = loop.source(self._ready)
        self._arrived: list[bytes] = []
        self._timer: Alarm | None = None
        self._due: float | None = None
        self._shut = False
        machine.enter = self.enter
        up, down = gates
        self._gates = gates
        self._up = Wire(world, self._at_server)
        self._down = Wire(world, self._at_client)
        self._end = End(world, lambda data: down.add(lambda: self._down.send(data)))
        up.add(lambda: opened(self._end))

    # Calls by the session

    def open(self, call: Call) -> None:
        """Carry out the handshake that the machine has begun; virtual time advances meanwhile."""
        self._flush()
        if call.deadline is not None:
            self._loop.at(call.deadline, lambda: None)
        while call.outcome is None:
            self._loop.step()
            self._take()

    def run(self, op: Op[Any]) -> Any:
        """Carry out an operation that completes at once."""
        if isinstance(op, Finalize):
            # The block ended with an error, which is more helpful than a second one.
            self.close()
            return None
        call = self._machine.start(op, None, self._loop.time())
        self._finish_turn()
        if call.outcome is None:
            self._machine.abandon(call)
            raise refused("a call blocks", f" ({op.name})")
        result, error = call.outcome
        if error is not None:
            raise error
        return result

    def put(self, key: str, value: Value, scope: int) -> None:
        """See `ClientSession.put`."""
        self.run(Put.unchecked(key, value, scope))

    def submit(self, op: Op[Any], done: Done[Any]) -> None:
        """See `ClientSession.submit`."""
        self._machine.start(op, done, self._loop.time())
        self._finish_turn()
        self._deliver()

    def withdraw(self, done: Done[Any]) -> bool:
        """See `ClientSession.withdraw`."""
        withdrawn: list[bool] = []
        self.enter(lambda: withdrawn.append(self._machine.withdraw_done(done)))
        return withdrawn == [True]

    def enter(self, step: Callable[[], None]) -> None:
        """Take a step of the machine; its results are delivered in the loop."""
        self._machine.look(self._loop.time())
        step()
        self._finish_turn()
        if self._machine.finished:
            self._loop.ring(self._fd)

    def fileno(self) -> int:
        """See `ClientSession.fileno`."""
        return self._fd

    def attach(self) -> None:
        """Do nothing: the loop delivers all results."""

    def detach(self) -> None:
        """See `ClientSession.detach`."""
        self._deliver()

    def poll(self) -> None:
        """See `ClientSession.poll`."""
        self._take()
        self._deliver()

    def close(self) -> None:
        """Drop the connection."""
        self._machine.close()
        self._finish_turn()
        self._deliver()

    def forked(self) -> None:
        """Do nothing, as there are no descriptors."""

    # Calls by the simulation

    def end(self) -> None:
        """Handle the end of the process: its sent data arrives, and then the end of the connection."""
        self._hang_up()

    def cut(self) -> None:
        """Break the connection: data in transit is lost, and both ends see the end of the connection."""
        for gate in self._gates:
            gate.open()
        self._up.cut()
        self._down.cut()

    # Bytes and time

    def _ready(self) -> bool:
        due = self._machine.deadline
        return bool(self._arrived or self._machine.finished) or (due is not None and due <= self._loop.time())

    def _take(self) -> None:
        machine, now = self._machine, self._loop.time()
        if self._arrived and machine.closed is None:
            machine.intake.chunks.extend(self._arrived)
            self._arrived.clear()
            machine.take(now)
        self._arrived.clear()
        self._flush()
        machine.tick(now)
        self._finish_turn()

    def _finish_turn(self) -> None:
        self._flush()
        machine = self._machine
        if machine.half_closing or machine.closed is not None:
            machine.half_closing = False
            self._hang_up()
        self._arrange()

    def _flush(self) -> None:
        data = self._machine.out[0]
        if data:
            self._machine.out = b"", []
            if not self._shut:
                self._send(data)

    def _send(self, data: bytes) -> None:
        self._gates[0].add(lambda: self._up.send(data))

    def _hang_up(self) -> None:
        if not self._shut:
            self._shut = True
            self._send(b"")

    def _deliver(self) -> None:
        while self._machine.finished:
            self._machine.deliver()

    def _arrange(self) -> None:
        due = self._machine.deadline
        if due == self._due:
            return
        self._due = due
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if due is None else self._loop.at(due, self._on_time)

    def _on_time(self) -> None:
        self._due = self._timer = None
        self._loop.ring(self._fd)

    def _at_client(self, data: bytes) -> None:
        self._arrived.append(data)
        self._loop.ring(self._fd)

    def _at_server(self, data: bytes) -> None:
        self._end.arrive(data)
