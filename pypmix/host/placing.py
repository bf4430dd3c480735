"""The nodes of rosters and requests, and the placement of ranks on them."""

from __future__ import annotations

from pypmix.host.binding import Cpus
from pypmix.host.mapping import DEVICE, Room, place
from pypmix.host.naming import check_name
from pypmix.standard.record import Record
from pypmix.topology.bitmaps import parse_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Mapping as Numbers

    from pypmix.host.job import NodeLayout
    from pypmix.host.mapping import Mapping, Place
    from pypmix.host.nodes import HostNode
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob

    Obtained = Callable[["Sequence[Node]", str], None]
    Obtain = Callable[["NodeRequest", Obtained], None]


class Node(Record):
    """A node in a roster.

    Args:
        name: Its name, unique in the session; ranks get it as PMIX_HOSTNAME.
        slots: The number of ranks it is for; 0 for none, None for its number of CPUs, which its daemon reports.
        addresses: Other names of it, which a spawn may use too.
        cpus: Its number of CPUs; 0 if its daemon is to report it.
        most: The largest number of ranks that it accepts if it is oversubscribed; 0 for any number.
    """

    name: str
    slots: int | None = 1
    addresses: tuple[str, ...] = ()
    cpus: int = 0
    most: int = 0

    def __validate__(self) -> None:
        if "," in check_name(self.name) or self.name.startswith("!"):
            raise ValueError(f"{self.name!r:.80} cannot name a node")
        for what, number in (("slots", self.slots or 0), ("cpus", self.cpus), ("most", self.most)):
            if type(number) is not int or number < 0:
                raise ValueError(f"the {what} of node {self.name} are a number, 0 at least, not {number!r:.80}")


class Target(Record):
    """The nodes for a job, and the rules of its placement.

    Args:
        nodes: The nodes; empty for all of the host.
        slots: The largest number of slots of a node for the job, by the node's name; by default all free ones.
        mapping: The rules of the placement; None for the host's.
        places: The places of all ranks, for a job that is placed already; empty if it is to be placed.
    """

    nodes: tuple[HostNode, ...] = ()
    slots: Numbers[str, int] = {}
    mapping: Mapping | None = None
    places: tuple[tuple[HostNode, tuple[Place, ...]], ...] = ()


class NodeRequest(Record):
    """Nodes that are requested from a roster, while a session runs.

    Args:
        hosts: Their names, and the slots of each, 0 if not given; empty for any nodes.
        nodes: Their number; 0 if not given.
        cpus: The number of CPUs that they have together; 0 if not given.
    """

    hosts: tuple[tuple[str, int], ...] = ()
    nodes: int = 0
    cpus: int = 0


ANYWHERE = Target()


def rooms_of(
    nodes: Sequence[tuple[HostNode, int]],
    limits: Numbers[str, int],
    ranks: Sequence[Rank],
    mapping: Mapping,
) -> list[Room]:
    """Return the room on nodes, in their order.

    Args:
        nodes: The nodes with their slots, including taken ones.
        limits: The largest number of slots of a node for the job, by the node's name.
        ranks: The ranks that run already, or are about to.
        mapping: The rules of the placement.
    """
    loads: dict[object, dict[int, int]] = {}
    used: dict[HostNode, int] = {}

    def cpus_of(node: HostNode) -> Cpus | None:
        shape = None if mapping.ignores_hardware else node.find_shape(devices=mapping.by == DEVICE)
        if shape is None:
            return None
        # Simulated nodes, and containers, are on one machine.
        return Cpus(node.hostname, shape, loads.setdefault(shape.machine or node, {}))

    for rank in ranks:
        used[rank.node] = used.get(rank.node, 0) + 1
        if rank.units and (cpus := cpus_of(rank.node)) is not None:
            cpus.take(rank.units)
    rooms = []
    for node, slots in nodes:
        taken = used.get(node, 0)
        slots = min(slots, taken + limits.get(node.hostname, slots))
        rooms.append(Room(node.hostname, slots, node.most, taken, cpus_of(node), node.names))
    return rooms


def placed(
    sizes: Sequence[int], nodes: Sequence[tuple[HostNode, int]], rooms: Sequence[Room], mapping: Mapping
) -> list[tuple[HostNode, tuple[Place, ...]]]:
    """Place the ranks of a job; return the nodes that hold any with the places of their ranks.

    Args:
        sizes: The number of ranks of each of its applications.
        nodes: The nodes with their slots, including taken ones.
        rooms: The room on them.
        mapping: The rules of the placement.

    Raises:
        OverflowError: There is no room for them; the text contains a remedy.
    """
    if not rooms:
        raise OverflowError("no node has a slot")
    try:
        found = place(rooms, sizes, mapping)
    except ValueError as error:
        raise OverflowError(str(error)) from None
    return [(node, places) for (node, _), places in zip(nodes, found, strict=True) if places]


def describe_places(job: RunningJob) -> list[str]:
    """Return the lines that show a job's nodes with their ranks, or the CPUs that each rank is bound to."""
    lines = []
    by, ranked, bound = job.job.policies
    if job.terms.maps:
        lines.append(f"job {job.number}: ranks are mapped {by}, ranked {ranked}, bound to {bound}")
    for node in job.job.nodes:
        if job.terms.maps:
            lines.append(f"{node.hostname}: {len(node.ranks)} rank{'s' if len(node.ranks) != 1 else ''}")
        for number in sorted(node.ranks):
            lines.append(_describe_place(job, node, number))
    return lines


def _describe_place(job: RunningJob, node: NodeLayout, number: int) -> str:
    """Return the line about one rank."""
    rank = job.rank(number)
    shape = None if rank is None else rank.node.find_shape()
    cpus = node.cpus_of(number)
    if not cpus or shape is None:
        where = "not bound"
    else:
        where = f"{shape.describe(parse_list(cpus))}, CPUs {cpus}".lstrip(" ,")
    given = "".join([f", {name}={text}" for name, text in node.variables_of(number)])
    return f"{'  ' if job.terms.maps else ''}rank {number} on {node.hostname}: {where}{given}"
