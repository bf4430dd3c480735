"""Placing ranks on nodes: `--map-by` sets the number of ranks of an application on each node, `--rank-by` their order.

A node has slots, the number of ranks that it is meant to run. Applications are placed one after the other, in the slots
that the earlier ones have left. Ranks that exceed the slots are refused unless oversubscription is allowed; then the
slots are filled first, and the rest is dealt out over the nodes, up to each node's maximum.
"""

from __future__ import annotations

from pypmix.standard.record import Record
from pypmix.standard.types import decimal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

RANKINGS = ("slot", "node")
OVERSUBSCRIPTION = ("oversubscribe", "nooversubscribe")
MAX_PER_NODE = 0xFFFF
MORE = "allow more ranks than slots with --oversubscribe, or ':oversubscribe' behind PMIX_MAPBY of a spawn"


class Room(Record):
    """The room on a node.

    Attributes:
        name: The node's name, for errors.
        slots: The number of ranks it is meant to run.
        most: The largest number that it accepts if it is oversubscribed; 0 for any number.
        used: The number of ranks that run there already.
    """

    name: str
    slots: int
    most: int = 0
    used: int = 0


class Mapping(Record):
    """The rules by which ranks are placed.

    Attributes:
        by: `slot` fills one node after the other, `node` deals out ranks one by one; empty for `each` of every node.
        each: The number of ranks of an application on each node, for `ppr:N:node`; 0 for as many as there are.
        rank_by: Whether consecutive ranks share a node (`slot`) or are on different ones (`node`).
        crowded: Whether nodes may run more ranks than they have slots.
    """

    by: str = "slot"
    each: int = 0
    rank_by: str = ""
    crowded: bool = False

    @classmethod
    def read(cls, text: str, rank_by: str = "", crowded: bool = False) -> Mapping:
        """Parse `slot`, `node` or `ppr:N:node`, optionally followed by `:oversubscribe` or `:nooversubscribe`.

        Args:
            text: The text.
            rank_by: See `Mapping`.
            crowded: Whether nodes may be oversubscribed if the text does not set it.

        Raises:
            ValueError: The text is not a mapping.
        """
        words = text.lower().split(":")
        said = [word for word in words if word in OVERSUBSCRIPTION]
        words = [word for word in words if word not in OVERSUBSCRIPTION]
        crowded = said[-1] == "oversubscribe" if said else crowded
        if said and words in ([], [""]):
            words = ["slot"]
        if words in (["slot"], ["node"]):
            return cls(words[0], 0, rank_by, crowded)
        if len(words) == 3 and words[0] == "ppr" and words[2] == "node":
            each = decimal(words[1], MAX_PER_NODE)
            if each:
                return cls("", each, rank_by, crowded)
        raise ValueError(f"ranks are mapped by slot, node or ppr:N:node, not by {text!r:.80}")

    @property
    def deals(self) -> bool:
        """Whether consecutive ranks are on different nodes: by default, like the mapping."""
        return (self.rank_by or self.by) == "node"


def place(rooms: Sequence[Room], sizes: Sequence[int], mapping: Mapping) -> list[tuple[int, ...]]:
    """Return the ranks of a job on each of the nodes, in the order of these.

    Args:
        rooms: The nodes.
        sizes: The number of ranks of each application.
        mapping: The rules of the placement.

    Raises:
        ValueError: There is no room for them; the text contains a remedy.
    """
    used = [room.used for room in rooms]
    placed: list[list[int]] = [[] for _ in rooms]
    first = 0
    for size in sizes:
        counts = _counts(rooms, used, size, mapping)
        for node, rank in zip(_order(counts, mapping.deals), range(first, first + size), strict=True):
            placed[node].append(rank)
        used = [before + more for before, more in zip(used, counts, strict=True)]
        first += size
    return [tuple(ranks) for ranks in placed]


def _counts(rooms: Sequence[Room], used: list[int], size: int, mapping: Mapping) -> list[int]:
    """Return the number of ranks of an application for each node."""
    free = [max(0, room.slots - taken) for room, taken in zip(rooms, used, strict=True)]
    if mapping.each:
        return _each(rooms, used, size, mapping)
    if size > sum(free) and not mapping.crowded:
        raise ValueError(_too_few(rooms, used, size))
    counts = _dealt(free, size) if mapping.by == "node" else _filled(free, size)
    rest = size - sum(counts)
    if rest:
        # The room of each above its slots; a node without a limit accepts all of the rest.
        above = [
            max(0, room.most - max(room.slots, taken)) if room.most else rest
            for room, taken in zip(rooms, used, strict=True)
        ]
        if sum(above) < rest:
            raise ValueError(
                f"there is no room for {size} ranks: the nodes take {sum(above) + sum(free)} more at most (max_slots); "
                "run fewer, name more nodes, or raise max_slots"
            )
        counts = [count + more for count, more in zip(counts, _dealt(above, rest), strict=True)]
    return counts


def _each(rooms: Sequence[Room], used: list[int], size: int, mapping: Mapping) -> list[int]:
    most = mapping.each * len(rooms)
    if size > most:
        raise ValueError(
            f"{size} ranks do not fit on {_nodes(rooms)} with {mapping.each} on each: {most} do; "
            "run fewer, name more nodes, or map by slot or node"
        )
    counts = _filled([mapping.each] * len(rooms), size)
    for room, taken, count in zip(rooms, used, counts, strict=True):
        limit = room.slots if not mapping.crowded else room.most or taken + count
        if taken + count > limit:
            raise ValueError(
                f"{room.name} has {max(0, limit - taken)} of its {limit} slots free, and {count} ranks are mapped to "
                f"it; map fewer per node, or {MORE}"
            )
    return counts


def _filled(free: Sequence[int], size: int) -> list[int]:
    counts = []
    for room in free:
        count = min(room, size)
        counts.append(count)
        size -= count
    return counts


def _dealt(free: Sequence[int], size: int) -> list[int]:
    """Return the number for each node if ranks are dealt to the nodes that have room, one each, repeatedly."""
    counts = [0] * len(free)
    while size:
        open_nodes = [node for node, room in enumerate(free) if counts[node] < room]
        if not open_nodes:
            break
        # As many whole rounds as all of them have room for, or else a partial round.
        rounds = min(size // len(open_nodes), min([free[node] - counts[node] for node in open_nodes]))
        taking = open_nodes if rounds else open_nodes[:size]
        for node in taking:
            counts[node] += rounds or 1
        size -= len(taking) * (rounds or 1)
    return counts


def _order(counts: Sequence[int], deals: bool) -> list[int]:
    """Return the node of each rank."""
    if not deals:
        return [node for node, count in enumerate(counts) for _ in range(count)]
    return [node for turn in range(max(counts, default=0)) for node, count in enumerate(counts) if count > turn]


def _too_few(rooms: Sequence[Room], used: Sequence[int], size: int) -> str:
    slots, taken = sum([room.slots for room in rooms]), sum(used)
    listed = ", ".join([f"{room.name}:{room.slots}" for room in rooms[:8]]) + (", ..." if len(rooms) > 8 else "")
    free = f"{slots} slots" + (f", {taken} of them taken" if taken else "")
    return f"{size} ranks do not fit on {_nodes(rooms)} with {free} ({listed}); run fewer, give more slots, or {MORE}"


def _nodes(rooms: Sequence[Room]) -> str:
    return "1 node" if len(rooms) == 1 else f"{len(rooms)} nodes"
