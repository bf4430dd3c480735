"""The nodes that somebody else names, and where ranks go on them."""

from __future__ import annotations

from pypmix.host.naming import check_name
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def by_slot(size: int, nodes: Sequence[HostNode]) -> list[tuple[HostNode, tuple[int, ...]]]:
    """Place ranks on nodes, as many on each as it has free slots; return those that hold any with their ranks.

    What is left over, once all slots are taken, goes in even shares to all nodes that have slots.
    """
    usable = [node for node in nodes if node.slots]
    if not usable:
        raise OverflowError("no node has a slot")
    counts = []
    left = size
    for node in usable:
        counts.append(min(left, max(0, (node.slots or 0) - node.running)))
        left -= counts[-1]
    each, more = divmod(left, len(usable))
    found = []
    first = 0
    for number, (node, count) in enumerate(zip(usable, counts, strict=True)):
        end = first + count + each + (number < more)
        if end > first:
            found.append((node, tuple(range(first, end))))
        first = end
    return found
