"""The site of a host: the nodes on which it places and starts ranks.

`Site` has nodes of this process: this machine, or simulated nodes on it. `pypmix.host.session.Fleet` is the site of a
launcher whose nodes have daemons.
"""

from __future__ import annotations

import os
from contextlib import contextmanager

from pypmix.host import orphans
from pypmix.host.binding import NONE, Binding
from pypmix.host.job import NodeLayout, without_ranks
from pypmix.host.mapping import RANKFILE, Mapping, place
from pypmix.host.nodes import LocalNode, in_blocks, usable_cpus
from pypmix.host.placing import Target, placed, rooms_of
from pypmix.host.processes import LocalShare
from pypmix.topology.bitmaps import format_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from pypmix.host.job import Application, JobLayout
    from pypmix.host.loop import Loop
    from pypmix.host.machine import Machine
    from pypmix.host.mapping import Place, Room
    from pypmix.host.nodes import HostNode
    from pypmix.host.rank import Rank
    from pypmix.host.running import JobHost, Joint, Launch, RunningJob, Share
    from pypmix.standard.ops import Notification


class Site:
    """The nodes of a host in this process, which share the CPUs of this machine.

    Args:
        host: The host.
        machine: Its processes on this machine.
        mapping: The rules by which ranks are placed for a job that gives none; by default as even blocks, unbound.

    Attributes:
        complete: Whether all of its first nodes have joined.
        connections: The number of nodes whose daemons are connected with this process.
    """

    complete = True
    connections = 0

    def __init__(self, host: JobHost, machine: Machine, mapping: Mapping | None = None) -> None:
        self._host = host
        self._machine = machine
        self.mapping = mapping or Mapping(crowded=True, binding=Binding(NONE))

    @property
    def nodes(self) -> Sequence[HostNode]:
        """The nodes that ranks can be placed on."""
        return self._host.nodes

    @property
    def has_slots(self) -> bool:
        """Whether all that a placement needs is known of each node."""
        return True

    @property
    def room(self) -> int:
        """The number of CPUs, or slots, that no rank has yet."""
        return max(0, usable_cpus() - self._host.running)

    def notify_daemons(self, event: Notification) -> None:
        """Raise an event on the nodes of other processes: there are none."""

    @contextmanager
    def gathered_events(self) -> Iterator[None]:
        """Send the events that are raised meanwhile on other nodes together."""
        yield

    def place(self, sizes: Sequence[int], target: Target) -> list[tuple[HostNode, tuple[Place, ...]]]:
        """Place the ranks of a job on nodes, and return the nodes that hold ranks, each with their places.

        Each node has as many slots as make the blocks even.

        Args:
            sizes: The number of ranks of each of its applications.
            target: The placement that the job requests.

        Raises:
            OverflowError: There is no room for them.
        """
        size = sum(sizes)
        nodes = target.nodes or self.nodes
        mapping = target.mapping or self.mapping
        # A rankfile names nodes: all of them.
        blocks = [(node, ()) for node in nodes] if mapping.by == RANKFILE else in_blocks(size, nodes)
        if not mapping.crowded and size > self.room:
            raise OverflowError(f"{size} procs, and {self.room} CPUs without one")
        if not target.slots:
            mapping = mapping.replace(crowded=True)
        slots = [(node, self.count_ranks(node) + target.slots.get(node.hostname, len(ranks))) for node, ranks in blocks]
        return placed(sizes, slots, self.rooms(slots, target), mapping)

    def rooms(self, nodes: Sequence[tuple[HostNode, int]], target: Target) -> list[Room]:
        """Return the room on nodes that are given with their slots."""
        return rooms_of(nodes, target.slots, self._ranks(), target.mapping or self.mapping)

    def empty_rooms(self, target: Target) -> list[Room]:
        """Return the room that the nodes for a job have without other jobs."""
        nodes = [(node, node.slots) for node in target.nodes or self.nodes if node.slots]
        return rooms_of(nodes, target.slots, (), target.mapping or self.mapping)

    def fits(self, sizes: Sequence[int], target: Target) -> bool:
        """Return True if a job would fit on the nodes without other jobs."""
        try:
            place(self.empty_rooms(target), sizes, target.mapping or self.mapping)
        except ValueError:
            return False
        return True

    def count_ranks(self, node: HostNode) -> int:
        """Return the number of ranks that a node has, those of jobs that are being started too."""
        return sum([rank.node is node for rank in self._ranks()])

    def _ranks(self) -> list[Rank]:
        return [rank for job in self._host.jobs.values() for rank in job.ranks if not rank.over]

    def spared(self, target: Target, spares: int) -> Target:
        """Return the nodes for a job without the last ones, which are kept for ranks of lost nodes.

        Raises:
            OverflowError: There are not more nodes than spares.
        """
        if not spares:
            return target
        nodes = [node for node in target.nodes or self.nodes if node.slots != 0]
        if len(nodes) <= spares:
            raise OverflowError(f"of {len(nodes)} nodes {spares} are spares: none is left for ranks")
        return target.replace(nodes=tuple(nodes[:-spares]))

    def find_homes(self, job: RunningJob, ranks: Sequence[int]) -> tuple[JobLayout, dict[int, HostNode]]:
        """Find nodes without ranks of the job for ranks whose node was lost: those with the fewest ranks first.

        Returns:
            The new description of the job, and the nodes of the ranks.

        Raises:
            OverflowError: There is no room for them.
        """
        taken = {node.number for node in job.job.nodes}
        free = [node for node in self.nodes if node.slots and node.number not in taken]
        if not free:
            raise OverflowError("all nodes have ranks of its job")
        free.sort(key=lambda node: node.running)
        mapping = job.mapping or self.mapping
        if mapping.lines or mapping.each:
            # Each names places that are lost.
            mapping = Mapping(binding=mapping.binding)
        chosen = self.place([len(ranks)], Target(tuple(free), mapping=mapping))
        kept = [without_ranks(node, ranks) for node in job.job.nodes]
        found = [node for node in kept if node.ranks]
        moved = [(node, tuple([each.replace(rank=ranks[each.rank]) for each in places])) for node, places in chosen]
        homes = {each.rank: node for node, places in moved for each in places}
        return job.job.replace(nodes=(*found, *self.describe(moved, False))), homes

    def describe(self, nodes: Iterable[tuple[HostNode, tuple[Place, ...]]], crowded: bool) -> tuple[NodeLayout, ...]:
        """Return the descriptions of nodes for a further job, whose ranks have the lowest free numbers on each node.

        Args:
            nodes: The nodes and the places of the ranks.
            crowded: Whether nodes without slots have more ranks than CPUs.
        """
        taken = _taken_numbers([job.job for job in self._host.jobs.values()])
        return tuple([_describe_node(node, places, taken.get(node.number, ()), crowded) for node, places in nodes])

    def program(self, app: Application) -> str:
        """Return the path of the program of an application."""
        return self._machine.program(app)

    def settle(self, apps: tuple[Application, ...], wdir: str) -> tuple[Application, ...]:
        """Return the applications of a job with the folder that they run in, if this process starts them."""
        return self._machine.settle(apps, wdir)

    def share(self, launch: Launch, node: HostNode, ranks: list[Rank]) -> Share:
        """Make the share of a launch on a node."""
        assert isinstance(node, LocalNode)
        return LocalShare(launch, node, ranks)

    def warm_up(self, apps: Sequence[Application], programs: Sequence[str]) -> None:
        """Start the fork servers of the first job, which import while the servers open."""
        machine = self._machine
        if machine.forks is not None:
            machine.forks.watch(self._host.loop, self._host.fork_server_ended)
            for app, program in zip(apps, programs, strict=True):
                machine.forks.prepare(app, program, machine.env, machine.wdir or os.sep, machine.tmpdir)

    def open(self) -> Joint | None:
        """Wait until all nodes have joined, or until the host is to end; return the crossing of their servers, if any.

        Raises:
            PMIxError: A node cannot join.
            OSError: The launcher cannot listen at its address.
        """
        return None

    def adopt(self) -> None:
        """Become the parent of all processes that the jobs leave behind."""
        orphans.adopt()

    def end_strays(self, loop: Loop) -> None:
        """End the processes that have left the jobs' process groups."""
        self._machine.end_strays(loop, self._host.patience)

    def refresh(self, done: Callable[[], None]) -> None:
        """Collect the pending operations of nodes that other processes serve, and call a function then."""
        done()

    def move(self, job: RunningJob, done: Callable[[], None]) -> None:
        """Inform the servers that ranks of a job have other nodes; call `done` then. Nodes here are never lost."""
        raise NotImplementedError

    def lose(self, name: str, reason: str) -> bool:
        """Lose a node that a daemon serves; return True if there are such nodes."""
        return False

    def away(self, going: bool) -> None:
        """Report to other processes that this process stops itself, or is back."""

    def close(self) -> None:
        """Dismiss the processes that serve other nodes."""


def first_free(used: Iterable[tuple[int, int]], size: int) -> int:
    """Return the lowest number from which on so many are free.

    Jobs that overlap may follow each other without an end: numbers of finished ones are used again.

    Args:
        used: The numbers that are not free: the first, and the one after the last, of each job.
        size: How many are needed.
    """
    first = 0
    for begin, end in sorted(used):
        if begin - first >= size:
            break
        first = max(first, end)
    return first


def _taken_numbers(jobs: Iterable[JobLayout]) -> dict[int | None, list[tuple[int, int]]]:
    """Return the node ranks that jobs have, by node: ranks of a node are numbered through all jobs that run there."""
    taken: dict[int | None, list[tuple[int, int]]] = {}
    for node in [node for job in jobs for node in job.nodes]:
        first = node.first or 0
        taken.setdefault(node.number, []).append((first, first + len(node.ranks)))
    return taken


def _describe_node(
    node: HostNode, places: tuple[Place, ...], used: Iterable[tuple[int, int]], crowded: bool
) -> NodeLayout:
    """Return the description of a node, on which the numbers that are in use begin and end at `used`."""
    ranks = tuple([each.rank for each in places])
    first = first_free(used, len(ranks))
    if node.slots is not None:
        # Slots beyond the number of CPUs do not keep ranks from waiting for each other.
        most = min(node.slots, node.cpus or node.slots)
        crowded = node.running + len(ranks) > most
    cpus = tuple([format_list(each.cpus) for each in places]) if any(each.cpus for each in places) else ()
    variables = tuple([each.variables for each in places]) if any(each.variables for each in places) else ()
    devices = tuple([tuple([device.name for device in each.devices if device.name]) for each in places])
    return NodeLayout(
        *(node.hostname, ranks, node.number, first, node.running, crowded, cpus, variables),
        devices if any(devices) else (),
    )
