"""The host of a simulation, which does the work of `pypmix run` with servers, nodes and ranks on virtual time."""

from __future__ import annotations

import os
import signal
import time
from functools import partial

from pypmix.engine.common import Pending
from pypmix.host.crossings import Crossings
from pypmix.host.exchange.inprocess import Hub
from pypmix.host.job import Application
from pypmix.host.loop import Turns
from pypmix.host.machine import Machine
from pypmix.host.nodes import LocalNode, check_nodes
from pypmix.host.running import Share
from pypmix.host.serving import ServingManager
from pypmix.host.sites import Site
from pypmix.host.terms import GRACE, Terms
from pypmix.standard.errors import NotSupported
from pypmix.standard.limits import Limits
from pypmix.testing.virtual.server import VirtualServer
from pypmix.testing.virtual.wires import SHORT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any, NoReturn

    from pypmix.engine.alarms import Alarm
    from pypmix.host.exchange.inprocess import VirtualTime
    from pypmix.host.nodes import HostNode
    from pypmix.host.rank import Rank
    from pypmix.host.running import Launch, RunningJob
    from pypmix.testing.links import Links

SPACE = "virtual"
"""The beginning of the nspaces of a simulation, which are the same in each run."""

ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGKILL)
"""Signals that end a rank: it has no handlers."""

STOPPING = (signal.SIGSTOP, signal.SIGTSTP)


class HostCalls:
    """The loop of the host; see `pypmix.host.loop.HostLoop`."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock
        self._posted: list[Callable[[], None]] = []

    def watch(self, _fd: int, _events: int, _callback: Callable[[], None]) -> None:
        """Do nothing, as there are no descriptors."""

    def unwatch(self, _fd: int) -> None:
        """Do nothing, as there are no descriptors."""

    def later(self, delay: float, callback: Callable[[], None]) -> Alarm:
        """Call `callback` after `delay` virtual seconds."""
        return self._clock.later(delay, callback)

    def post(self, callback: Callable[[], None]) -> None:
        """Call `callback` soon."""
        self._posted.append(callback)
        self._clock.later(0.0, self._next)

    soon = post

    def run_posted(self) -> None:
        """Make all posted calls."""
        for _ in range(len(self._posted)):
            self._next()

    def _next(self) -> None:
        if self._posted:
            self._posted.pop(0)()


class VirtualNode(LocalNode):
    """A simulated node.

    Args:
        host: The host of the node.
        number: Its number.
        hostname: Its name.
        tmpdir: The folder in the environment of its ranks.

    Attributes:
        lost: Whether it is lost, with its server.
    """

    def __init__(self, host: VirtualHost, number: int, hostname: str, tmpdir: str) -> None:
        self._host = host
        self.lost = False
        super().__init__(number, hostname, tmpdir, host.machine)
        upcall = partial(host.upcall, self)
        self.attach(VirtualServer(host.clock, upcall, f"{SPACE}@0", tmpdir, hostname, number))

    @property
    def here(self) -> bool:
        """Whether its ranks are processes of this machine: no."""
        return False

    def remove_folder(self, job: int) -> None:
        """Do nothing, as the node has no folder."""


class VirtualShare(Share):
    """The ranks of a launch on a simulated node, as tasks."""

    def start(self, _apps: Sequence[Application], _programs: Sequence[str]) -> None:
        """Start the ranks."""
        host, server = self.host, self.node.server
        assert isinstance(host, VirtualHost)
        for rank in self.ranks:
            server.register_client(rank.proc)
            rank.alive = True
            self.launch.count(self.node, 1)
            host.on_start(rank, server.client_env(rank.proc))
        self.launch.share_started()

    def signal(self, ranks: Sequence[Rank], signum: int, handled: bool = False) -> None:
        """Apply the effect of a signal to ranks."""
        host = self.host
        assert isinstance(host, VirtualHost)
        for rank in ranks:
            if signum in ENDING:
                host.on_end(rank, signum)
            elif signum in STOPPING or signum == signal.SIGCONT:
                host.on_stop(rank, signum != signal.SIGCONT)

    def sweep(self) -> None:
        """Do nothing, as tasks leave no processes behind."""
        self.launch.share_over(self)


class VirtualSite(Site):
    """The simulated nodes."""

    def share(self, launch: Launch, node: HostNode, ranks: list[Rank]) -> Share:
        """Return the share of a launch on a node."""
        return VirtualShare(launch, node, ranks)


class VirtualHost(ServingManager):
    """Runs one job on virtual time.

    Args:
        clock: The clock.
        nodes: The number of nodes; each has a server.
        pace: Returns a latency below a maximum.
        on_start: Starts a rank with an environment.
        on_end: Ends a rank by a signal.
        on_stop: Suspends or resumes a rank.
    """

    def __init__(
        self,
        clock: VirtualTime,
        nodes: int,
        pace: Callable[[float], float],
        on_start: Callable[[Rank, dict[str, str]], None],
        on_end: Callable[[Rank, int], None],
        on_stop: Callable[[Rank, bool], None],
    ) -> None:
        check_nodes(nodes, "python")
        self.clock = clock
        self.on_start, self.on_end, self.on_stop = on_start, on_end, on_stop
        tmpdir = os.path.join("/tmp", "pypmix-virtual")
        super().__init__(HostCalls(clock), machine=Machine({}, tmpdir), space=SPACE, grace=GRACE, limits=Limits())
        self.turns = Turns(self.loop.post)
        self.site = VirtualSite(self, self.machine)
        names = [f"node{number}" for number in range(nodes)]
        self.nodes = self.here = tuple([VirtualNode(self, *each, f"{tmpdir}/{each[1]}") for each in enumerate(names)])
        self._pace = pace
        self.hub: Hub | None = None

    def open(self, ranks: int, links: Links) -> RunningJob:
        """Open the servers and start the job."""
        if len(self.nodes) > 1:
            self.hub = Hub(clock=self.clock, delay=lambda _one, _other: self._pace(SHORT), between=links.between)
            self._crossings = Crossings(self, hub=self.hub)
            # The servers connect before the job starts.
            self.clock.run(self.clock.now + 1.0)
        for node in self.nodes:
            node.server.open()
        job = self.make((Application((SPACE,), ranks),), Terms(keep_going=True), None)
        job.programs = [SPACE]
        self.begin(job)
        return job

    def add(self, *_terms: Any, **_more: Any) -> NoReturn:
        """Refuse to start a further job."""
        raise NotSupported(
            "a job cannot be spawned on virtual time", operation="spawn", hint="test it on real processes (time='real')"
        )

    def broke(self, error: Exception) -> None:
        """End the simulation because of an internal error."""
        raise error

    def pending(self) -> list[Pending]:
        """Return the pending operations, with times for people."""
        ahead = time.monotonic() - self.clock.now
        return [item.replace(since=item.since + ahead) for item in super().pending()]

    def lose(self, node: VirtualNode) -> None:
        """Lose a node with its server, after its ranks have ended."""
        node.lost = True
        if self.hub is not None:
            self.hub.lose(node.hostname)

    def close(self) -> None:
        """Close the servers."""
        if self._crossings is not None:
            self._crossings.close()
        for node in self.nodes:
            node.server.close()
