"""Clients of the Python engine at a Python server, machine to machine: no sockets, processes or threads."""

from __future__ import annotations

from lib.server_world import GID, UID, Link, World
from pypmix.engine.python.client import Client, ServerInfo
from pypmix.engine.python.datastore import DataStore
from pypmix.standard.types import Proc
from pypmix.wire.additions import greeting
from pypmix.wire.handshake import Hello, native_credential

RELEASE = (7, 0, 0)


class LinkedClient:
    """One client's machine, and its connection to the server of a world.

    Args:
        world: The world.
        rank: Its rank in the world's job.
        adapts: Whether it knows that the server is of the Python engine.
    """

    def __init__(self, world: World, rank: int, *, adapts: bool = True) -> None:
        self.world = world
        self.proc = Proc("job", rank)
        self.link = Link()
        world.server.opened(self.link)
        self.machine = Client(
            self.proc, DataStore(self.proc, "n0", RELEASE), ServerInfo("server.0", RELEASE, 1, adapts=adapts)
        )
        hello = Hello(
            "native",
            native_credential(UID, GID),
            0,
            None,
            None,
            "job",
            rank,
            "7.0.0",
            "v41",
            1,
            "hash",
            (greeting("1"),),
        )
        opening = self.machine.connect(hello, None)
        while self.exchange():
            pass
        assert opening.outcome == (None, None)

    def exchange(self):
        """Carry what has been sent to the server and back; return False if there was nothing."""
        machine = self.machine
        sent, received = bytes(machine.unsent()), b"".join(self.link.out)
        self.link.out.clear()
        if sent:
            machine.out[1].append(len(sent))
            machine.sent()
            self.link.owner.received(sent)
        if received:
            machine.intake.chunks.append(received)
            machine.take(self.world.time)
        called = bool(machine.finished)
        while machine.finished:
            machine.deliver()
        return bool(sent or received or called)


class LinkedWorld(World):
    """A server, and one client for each of its procs."""

    def __init__(self, size: int = 2, *, adapts: bool = True) -> None:
        super().__init__(size)
        self.ranks = [LinkedClient(self, rank, adapts=adapts) for rank in range(size)]

    def run(self, *ops):
        """Let each client carry out its operation, all at once, and return the results.

        Args:
            ops: The operation of each rank; None for a rank without one.
        """
        calls = [rank.machine.start(op, None, self.time) for rank, op in zip(self.ranks, ops, strict=False) if op]
        while sum(rank.exchange() for rank in self.ranks):
            pass
        results = []
        for call in calls:
            assert call.outcome is not None, f"{call.op} has not ended"
            result, error = call.outcome
            if error is not None:
                raise error
            results.append(result)
        return results
