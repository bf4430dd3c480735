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
from pypmix.host.nodes import LocalNode, check_nodes
from pypmix.host.running import Launch
from pypmix.host.serving import ServingManager
from pypmix.host.terms import Terms
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
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.testing.links import Links

SPACE = "virtual"
"""The beginning of the nspaces of a simulation, which are the same in each run."""

GRACE = 5.0

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

        def server(node: LocalNode) -> VirtualServer:
            return VirtualServer(host.clock, partial(host.upcall, node), f"{SPACE}@0", tmpdir, hostname, number)

        super().__init__(number, hostname, tmpdir, server)

    @property
    def here(self) -> bool:
        """Whether its ranks are processes of this machine: no."""
        return False

    def signal(self, ranks: Sequence[Any], signum: int, handled: bool = False) -> None:
        """Apply the effect of a signal to ranks."""
        for rank in ranks:
            if signum in ENDING:
                self._host.ends(rank, signum)
            elif signum in STOPPING or signum == signal.SIGCONT:
                self._host.stops(rank, signum != signal.SIGCONT)

    def remove_folder(self, job: int) -> None:
        """Do nothing, as the node has no folder."""


class VirtualLaunch(Launch):
    """The launch of the ranks, as tasks."""

    def start(self, apps: Sequence[Application], programs: Sequence[str], limits: tuple[int, int] | None) -> None:
        """Start the ranks."""
        host = self.host
        assert isinstance(host, VirtualHost)
        for rank in self.ranks:
            server = rank.node.server
            server.register_client(rank.proc)
            rank.alive = True
            self._running += 1
            self.job.running += 1
            rank.node.running += 1
            host.starts(rank, server.client_env(rank.proc))
        self.unstarted = False
        self.job.started()

    def _last_ended(self) -> None:
        # Tasks leave no processes behind.
        if not self.unstarted and not self._swept:
            self._swept = True
            self.host.loop.later(0.0, self._all_over)

    def _all_over(self) -> None:
        self.over = True
        self.job.launch_over(self)


class VirtualHost(ServingManager):
    """Runs one job on virtual time.

    Args:
        clock: The clock.
        nodes: The number of nodes; each has a server.
        pace: Returns a latency below a maximum.
        starts: Starts a rank with an environment.
        ends: Ends a rank by a signal.
        stops: Suspends or resumes a rank.
    """

    def __init__(
        self,
        clock: VirtualTime,
        nodes: int,
        pace: Callable[[float], float],
        starts: Callable[[Rank, dict[str, str]], None],
        ends: Callable[[Rank, int], None],
        stops: Callable[[Rank, bool], None],
    ) -> None:
        check_nodes(nodes, "python")
        self.clock = clock
        self.starts, self.ends, self.stops = starts, ends, stops
        tmpdir = os.path.join("/tmp", "pypmix-virtual")
        super().__init__(HostCalls(clock), env={}, tmpdir=tmpdir, space=SPACE, grace=GRACE, limits=Limits())
        self.turns = Turns(self.loop.post)
        names = [f"node{number}" for number in range(nodes)]
        self.nodes = self.here = tuple([VirtualNode(self, *each, f"{tmpdir}/{each[1]}") for each in enumerate(names)])
        self._pace = pace
        self.hub: Hub | None = None

    def open(self, ranks: int, links: Links) -> RunningJob:
        """Open the servers and start the job."""
        if len(self.nodes) > 1:
            self.hub = Hub(clock=self.clock, delay=lambda _one, _other: self._pace(SHORT), between=links.between)
            self._crossings = Crossings(self, hub=self.hub, now=self.clock.time)
            # The servers connect before the job starts.
            self.clock.run(self.clock.now + 1.0)
        for node in self.nodes:
            node.server.open()
        job = self.make((Application((SPACE,), ranks),), Terms(keep_going=True), None)
        self.begin(job, [SPACE])
        return job

    def launch_of(self, job: RunningJob, ranks: list[Rank], terms: Terms, held: bool) -> Launch:
        """Return the launch of the ranks of a job."""
        return VirtualLaunch(job, ranks, terms, held)

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
