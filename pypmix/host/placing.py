"""The nodes that somebody else names, and where ranks go on them."""

from __future__ import annotations

from pypmix.host.mapping import Room, place
from pypmix.host.naming import check_name
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from collections.abc import Mapping as Numbers

    from pypmix.host.mapping import Mapping
    from pypmix.host.nodes import HostNode

    Obtained = Callable[["Sequence[Node]", str], None]
    Obtain = Callable[["Wanted", Obtained], None]


class Node(Record):
    """A node as a roster knows it.

    Args:
        name: Its name, which no other node of the session has; ranks are told it as PMIX_HOSTNAME.
        slots: How many ranks it is for; 0 for none, None for as many as it has CPUs, which its daemon says.
        addresses: Other names of it, by which a spawn may mean it too.
        cpus: How many CPUs it has; 0 where its daemon is to say.
        most: How many ranks it takes at most where it is oversubscribed; 0 for any number.
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
    """The nodes that a job is placed on, and how.

    Args:
        nodes: The nodes; all of the host where there are none.
        slots: How many slots of a node the job takes at most, by the node's name; all that are free without an entry.
        mapping: How ranks are placed; as the host places them where that is None.
    """

    nodes: tuple[HostNode, ...] = ()
    slots: Numbers[str, int] = {}
    mapping: Mapping | None = None


class Wanted(Record):
    """Nodes that a roster is asked for, while a session runs.

    Args:
        hosts: Their names, and how many slots each has, 0 where that was not said; empty where any will do.
        nodes: How many; 0 where that was not said.
        cpus: How many CPUs they have together; 0 where that was not said.
    """

    hosts: tuple[tuple[str, int], ...] = ()
    nodes: int = 0
    cpus: int = 0


ANYWHERE = Target()


def placed(
    sizes: Sequence[int], nodes: Sequence[tuple[HostNode, int]], limits: Numbers[str, int], mapping: Mapping
) -> list[tuple[HostNode, tuple[int, ...]]]:
    """Place the ranks of a job; return the nodes that hold any with their ranks.

    Args:
        sizes: The number of ranks of each of its applications.
        nodes: The nodes with their slots, those that are taken too.
        limits: How many slots of a node the job takes at most, by the node's name.
        mapping: How ranks are placed.

    Raises:
        OverflowError: There is no room for them; the text says what to try.
    """
    rooms = []
    for node, slots in nodes:
        limit = limits.get(node.hostname, slots)
        rooms.append(Room(node.hostname, min(slots, node.running + limit), node.most, node.running))
    if not rooms:
        raise OverflowError("no node has a slot")
    try:
        found = place(rooms, sizes, mapping)
    except ValueError as error:
        raise OverflowError(str(error)) from None
    return [(node, ranks) for (node, _), ranks in zip(nodes, found, strict=True) if ranks]
