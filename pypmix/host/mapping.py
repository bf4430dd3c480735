"""Placing ranks on nodes and on their hardware: `--map-by` sets the places of ranks, `--rank-by` their order.

A node has slots, the number of ranks that it is meant to run. Applications are placed one after the other, in the slots
that the earlier ones have left. Ranks that exceed the slots are refused unless oversubscription is allowed; then the
slots are filled first, and the rest is dealt out over the nodes, up to each node's maximum.

On a node, ranks are dealt out to its objects of a kind, such as packages, and bound there (`pypmix.host.binding`).
"""

from __future__ import annotations

from pypmix.host.binding import NONE, Binding, Cpus, NoRoomError, level_of
from pypmix.standard.record import Record
from pypmix.standard.types import decimal
from pypmix.topology.machine import LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypmix.host.rankfile import Line
    from pypmix.topology.shape import Device

OF_NODES = ("slot", "node")
"""The mappings that count the slots of nodes, without regard to their hardware."""

RANKINGS = (*OF_NODES, "fill", "span")
OVERSUBSCRIPTION = ("oversubscribe", "nooversubscribe")
DEVICE = "device"
DEVICES = ("gpu",)
RANKFILE = "rankfile"
MAX_PER_NODE = 0xFFFF
MORE = "allow more ranks than slots with --oversubscribe, or ':oversubscribe' behind PMIX_MAPBY of a spawn"
FORMS = f"slot, node, {', '.join(LEVELS)}, device=gpu, or ppr:N: with one of these"
"""The forms of a mapping, for errors and helps."""
WORDS = (
    f"pe=N, hwtcpus, corecpus, {', '.join(OVERSUBSCRIPTION)}, span behind a level, ndev=N and shared behind a device"
)
"""The words that may follow one."""


class Room(Record):
    """The room on a node.

    Attributes:
        name: The node's name, for errors.
        slots: The number of ranks it is meant to run.
        most: The largest number that it accepts if it is oversubscribed; 0 for any number.
        used: The number of ranks that run there already.
        cpus: Its hardware; None if it is unknown.
        names: Its names, by which a rankfile names it.
    """

    name: str
    slots: int
    most: int = 0
    used: int = 0
    cpus: Cpus | None = None
    names: tuple[str, ...] = ()


class Place(Record):
    """The place of a rank.

    Attributes:
        rank: The rank.
        cpus: The CPUs that it is bound to; 0 if it is not bound.
        units: The CPUs of the units that it takes.
        devices: The devices that it is given.
    """

    rank: int
    cpus: int = 0
    units: int = 0
    devices: tuple[Device, ...] = ()

    @property
    def variables(self) -> tuple[tuple[str, str], ...]:
        """The environment variables that give it its devices."""
        found: dict[str, list[str]] = {}
        for device in self.devices:
            for name, text in device.variables:
                found.setdefault(name, []).append(text)
        return tuple([(name, ",".join(dict.fromkeys(texts))) for name, texts in found.items()])


class Spot(Record):
    """A place on a node before ranks are numbered.

    Attributes:
        node: The node's number.
        object: The number of the object on the node; 0 if ranks are not mapped to objects.
        cpus: The object's CPUs; -1 for the whole node.
        devices: The devices that a rank is given.
        bound: The CPUs that a rankfile gives it; 0 for none.
    """

    node: int
    object: int = 0
    cpus: int = -1
    devices: tuple[Device, ...] = ()
    bound: int = 0


class Mapping(Record):
    """The rules by which ranks are placed.

    Attributes:
        by: `slot` fills one node after the other, `node` deals out ranks one by one; a level of hardware fills the
            nodes as well, and deals out ranks to the objects of each; `device` gives each rank devices; `rankfile`
            follows `lines`. Empty for cores, and for slots without binding where ranks outnumber these.
        each: The number of ranks of an application on each object, for `ppr:N:`; 0 for as many as there are.
        rank_by: Whether consecutive ranks share a node (`slot`) or an object (`fill`), or are on different nodes
            (`node`) or objects (`span`); empty for what follows from `by`.
        crowded: Whether nodes may run more ranks than they have slots.
        span: Whether ranks are dealt out evenly over all nodes.
        devices: The number of devices of each rank.
        shared: Whether several ranks may have the same device.
        binding: The rules by which ranks are bound.
        lines: The lines of a rankfile, by rank.
    """

    by: str = ""
    each: int = 0
    rank_by: str = ""
    crowded: bool = False
    span: bool = False
    devices: int = 1
    shared: bool = False
    binding: Binding = Binding()
    lines: tuple[Line, ...] = ()

    @classmethod
    def read(cls, text: str, rank_by: str = "", crowded: bool = False, binding: Binding | None = None) -> Mapping:
        """Parse `slot`, `node`, a level, `device=gpu` or `ppr:N:` with one of these, and words like `:oversubscribe`.

        Args:
            text: The text.
            rank_by: See `Mapping`.
            crowded: Whether nodes may be oversubscribed if the text does not set it.
            binding: The rules of binding, which words of the text may change.

        Raises:
            ValueError: The text is not a mapping.
        """
        found = cls("", 0, rank_by, crowded, binding=binding or Binding())
        words = text.lower().split(":")
        if words[0] == "ppr":
            each = decimal(words[1], MAX_PER_NODE) if len(words) > 2 else None
            if not each:
                raise _unknown(text)
            found, words = found.replace(each=each), words[2:]
        by, *rest = words
        name, _, value = by.partition("=")
        if by in OF_NODES:
            found = found.replace(by=by)
        elif level_of(by):
            found = found.replace(by=level_of(by))
            if found.by == "hwthread":
                found = found.replace(binding=found.binding.replace(threads=True))
        elif name == DEVICE and value in DEVICES:
            found = found.replace(by=DEVICE)
        elif by or found.each or not rest:
            raise _unknown(text)
        if found.each and found.by == "slot":
            raise _unknown(text)
        for word in rest:
            found = found.with_word(word, text)
        if not by and (found.span or found.devices > 1 or found.shared):
            raise _unknown(text)
        return found

    def with_word(self, word: str, text: str) -> Mapping:
        """Return it with the change of one word behind the mapping."""
        name, equals, value = word.partition("=")
        number = decimal(value if equals else name, MAX_PER_NODE)
        if word in OVERSUBSCRIPTION:
            return self.replace(crowded=word == "oversubscribe")
        if name == "pe" and number:
            return self.replace(binding=self.binding.replace(width=number))
        if word == "hwtcpus":
            return self.replace(binding=self.binding.replace(threads=True))
        if word == "corecpus":
            return self.replace(binding=self.binding.replace(threads=False))
        if word == "span" and self.by in LEVELS and not self.each:
            return self.replace(span=True)
        if self.by == DEVICE and not self.each and number and name in ("ndev", value or name):
            return self.replace(devices=number)
        if self.by == DEVICE and word == "shared":
            return self.replace(shared=True)
        raise ValueError(f"a mapping may be followed by {WORDS}, not by {word!r:.80} as in {text!r:.80}")

    def settled(self) -> Mapping:
        """Return it with the mapping that follows from the binding if none was given."""
        level = self.binding.level
        if self.by or level not in LEVELS or self.binding.width > 1:
            return self
        return self.replace(by=level)

    @property
    def ranking(self) -> str:
        """The order in which ranks are numbered."""
        if self.rank_by:
            return self.rank_by
        if self.by == "node" and not self.each:
            return "node"
        if self.span:
            return "span"
        return "fill" if (self.by in LEVELS and not self.each) or not self.by else "slot"

    @property
    def level(self) -> str:
        """The level that ranks are bound to."""
        if self.binding.level:
            return self.binding.level
        if self.by in LEVELS and self.binding.width == 1:
            return self.by
        return "numa" if self.by in OF_NODES and self.binding.width == 1 else self.binding.unit

    @property
    def needs_hardware(self) -> bool:
        """Whether ranks cannot be placed without knowing the nodes' hardware."""
        return self.by in LEVELS or self.by in (DEVICE, RANKFILE) or self.binding.level not in ("", NONE)

    @property
    def ignores_hardware(self) -> bool:
        """Whether the nodes' hardware has no influence on the places of ranks."""
        unbound = self.binding.level == NONE and self.binding.width == 1 and not self.binding.cpus
        return unbound and not self.needs_hardware

    def policies(self, bound: bool) -> tuple[str, str, str]:
        """Return the texts of PMIX_MAPBY, PMIX_RANKBY and PMIX_BINDTO.

        Args:
            bound: Whether ranks are bound.
        """
        settled = self.settled()
        by = settled.by or ("core" if bound else "slot")
        text = f"BY{by.upper()}:{'' if self.crowded else 'NO'}OVERSUBSCRIBE"
        ranking = settled.ranking if settled.by or bound else "slot"
        binding = self.binding.replace(level=self.level) if bound else Binding(NONE)
        return text, ranking.upper(), binding.word


def _unknown(text: str) -> ValueError:
    return ValueError(f"ranks are mapped by {FORMS}, not by {text!r:.80}")


def place(rooms: Sequence[Room], sizes: Sequence[int], mapping: Mapping) -> list[tuple[Place, ...]]:
    """Return the places of the ranks of a job on each of the nodes, in the order of these.

    Ranks that are bound to a level, and mapped in no given way, are mapped to that level.

    Args:
        rooms: The nodes.
        sizes: The number of ranks of each application.
        mapping: The rules of the placement.

    Raises:
        ValueError: There is no room for them; the text contains a remedy.
    """
    mapping = mapping.settled()
    try:
        return _place(rooms, sizes, mapping)
    except NoRoomError:
        if mapping.binding.level or mapping.binding.width > 1:
            raise
    # Ranks outnumber cores: none is bound, and without a mapping to objects none is needed.
    free = mapping.replace(binding=mapping.binding.replace(level=NONE))
    return _place(rooms, sizes, free if free.by else free.replace(by="slot"))


def fill(rooms: Sequence[Room], mapping: Mapping) -> tuple[int, str]:
    """Return the number of ranks of an application that is alone and has no number, and its reason, for a person.

    Args:
        rooms: The nodes.
        mapping: The rules of the placement.
    """
    if mapping.by == RANKFILE:
        return len(mapping.lines), "one for each line of the rankfile"
    if mapping.by == DEVICE:
        groups = [len(_require_cpus(room).shape.gpus) // mapping.devices for room in rooms]
        each = mapping.each or 1
        return sum(groups) * each, f"{each} for each {'GPU' if mapping.devices == 1 else f'{mapping.devices} GPUs'}"
    if mapping.each and mapping.by in LEVELS:
        objects = [len(_require_cpus(room).objects(mapping.by, mapping.binding)) for room in rooms]
        return sum(objects) * mapping.each, f"{mapping.each} on each {mapping.by}"
    if mapping.each:
        return mapping.each * len(rooms), f"{mapping.each} on each node"
    return sum([room.slots for room in rooms]), "one for each slot"


def _place(rooms: Sequence[Room], sizes: Sequence[int], mapping: Mapping) -> list[tuple[Place, ...]]:
    # A placement may fail: it takes CPUs of a copy, which nodes on one machine share.
    loads = {id(room.cpus.load): dict(room.cpus.load) for room in rooms if room.cpus is not None}
    rooms = [
        room.replace(cpus=Cpus(room.name, room.cpus.shape, loads[id(room.cpus.load)])) if room.cpus else room
        for room in rooms
    ]
    used = [room.used for room in rooms]
    placed: list[list[Place]] = [[] for _ in rooms]
    rank = 0
    for size in sizes:
        found = _spots(rooms, used, size, mapping, rank)
        for spot in found if mapping.by == RANKFILE else _order(found, mapping.ranking):
            used[spot.node] += 1
            # The next application is mapped to the units that this one leaves.
            placed[spot.node].append(_bind(rooms[spot.node], rank, spot, mapping))
            rank += 1
    return [tuple(places) for places in placed]


def _bind(room: Room, rank: int, spot: Spot, mapping: Mapping) -> Place:
    if spot.bound:
        return Place(rank, spot.bound, spot.bound, spot.devices)
    level = mapping.level
    if room.cpus is None and mapping.binding.cpus:
        raise ValueError(f"the hardware of {room.name} is unknown: leave out --cpu-set")
    if level == NONE:
        limited = room.cpus is not None and mapping.binding.cpus
        return Place(rank, room.cpus.allowed(mapping.binding) if limited and room.cpus else 0, 0, spot.devices)
    if room.cpus is None:
        if mapping.needs_hardware or mapping.binding.width > 1:
            raise ValueError(f"the hardware of {room.name} is unknown: ranks there cannot be bound; add --bind-to none")
        return Place(rank, devices=spot.devices)
    near = room.cpus.allowed(mapping.binding) & spot.cpus
    if mapping.by == DEVICE and not mapping.binding.level and mapping.binding.width == 1:
        # All CPUs near its devices; it takes one of them.
        _, units = room.cpus.bind(near, level, mapping.binding.replace(overload=True))
        return Place(rank, near, units, spot.devices)
    bound, units = room.cpus.bind(near, level, mapping.binding)
    return Place(rank, bound, units, spot.devices)


# The spots of an application, in the order in which they are assigned


def _spots(rooms: Sequence[Room], used: list[int], size: int, mapping: Mapping, first: int) -> list[Spot]:
    if mapping.by == RANKFILE:
        return _of_file(rooms, size, mapping, first)
    if mapping.by == DEVICE:
        return _of_devices(rooms, used, size, mapping)
    if mapping.each and mapping.by in LEVELS:
        return _of_each_object(rooms, used, size, mapping)
    counts = _counts(rooms, used, size, mapping)
    if mapping.by in OF_NODES or not mapping.by:
        return [Spot(node) for node, count in enumerate(counts) for _ in range(count)]
    found = []
    for node, count in enumerate(counts):
        found += _of_objects(rooms[node], node, count, mapping) if count else []
    return found


def _of_objects(room: Room, node: int, count: int, mapping: Mapping) -> list[Spot]:
    """Return spots that are dealt out to the objects of a node, without those that are full while others are not."""
    cpus = _require_cpus(room)
    objects = cpus.objects(mapping.by, mapping.binding)
    binding = mapping.binding
    if binding.width > 1 and all(len(cpus.units(binding, each)) < binding.width for each in objects):
        raise ValueError(
            f"each {mapping.by} of {room.name} has fewer than {binding.width} {binding.unit}s: map by something larger"
        )
    left = [cpus.free(binding, each) for each in objects]
    found: list[Spot] = []
    while len(found) < count:
        turn = [place for place, room_left in enumerate(left) if room_left > 0]
        for place in (turn or range(len(objects)))[: count - len(found)]:
            found.append(Spot(node, place, objects[place]))
            left[place] -= 1
    return found


def _of_each_object(rooms: Sequence[Room], used: list[int], size: int, mapping: Mapping) -> list[Spot]:
    """Return spots for `ppr:N:` with a level."""
    found = []
    for node, room in enumerate(rooms):
        objects = _require_cpus(room).objects(mapping.by, mapping.binding)
        found += [Spot(node, place, cpus) for place, cpus in enumerate(objects) for _ in range(mapping.each)]
    if size > len(found):
        raise ValueError(
            f"{size} ranks do not fit on {_nodes(rooms)} with {mapping.each} on each {mapping.by}: {len(found)} do; "
            "run fewer, name more nodes, or map by slot or node"
        )
    found = found[:size]
    for node in range(len(rooms)):
        _check_slots(rooms[node], used[node], len([spot for spot in found if spot.node == node]), mapping)
    return found


def _of_devices(rooms: Sequence[Room], used: list[int], size: int, mapping: Mapping) -> list[Spot]:
    """Return spots that have devices of their own."""
    found: list[Spot] = []
    each = mapping.devices
    for node, room in enumerate(rooms):
        devices = _require_cpus(room).shape.gpus
        groups = [devices[place : place + each] for place in range(0, len(devices) // each * each, each)]
        spots = [Spot(node, place, _near(group), group) for place, group in enumerate(groups)]
        found += [spot for spot in spots for _ in range(mapping.each or 1)]
    if not found:
        count = "a GPU" if each == 1 else f"{each} GPUs"
        raise ValueError(f"none of {_nodes(rooms)} has {count} that its kernel shows: map ranks by something else")
    if size > len(found) and not mapping.shared:
        raise ValueError(
            f"there are GPUs for {len(found)} ranks, and not for {size}, on {_nodes(rooms)}; run fewer, or add "
            ":shared to --map-by device=gpu"
        )
    found = [found[place % len(found)] for place in range(size)]
    for node in range(len(rooms)):
        _check_slots(rooms[node], used[node], len([spot for spot in found if spot.node == node]), mapping)
    return found


def _near(devices: Sequence[Device]) -> int:
    """Return the CPUs near devices; all if they are near to none."""
    found = 0
    for device in devices:
        found |= device.cpus
    return found or -1


def _of_file(rooms: Sequence[Room], size: int, mapping: Mapping, first: int) -> list[Spot]:
    from pypmix.host.rankfile import cpus_of, find_node

    lines = {line.rank: line for line in mapping.lines}
    found = []
    for rank in range(first, first + size):
        if rank not in lines:
            raise ValueError(f"the rankfile has no line for rank {rank}: add one, or run {len(lines)} ranks")
        node = find_node(lines[rank], [(room.name, *room.names) for room in rooms])
        found.append(Spot(node, bound=cpus_of(lines[rank], _require_cpus(rooms[node]), mapping.binding)))
    return found


def _require_cpus(room: Room) -> Cpus:
    if room.cpus is None:
        raise ValueError(f"the hardware of {room.name} is unknown: map ranks by slot or node")
    return room.cpus


def _order(spots: list[Spot], ranking: str) -> list[Spot]:
    """Return spots in the order of ranks."""
    if ranking == "slot":
        return sorted(spots, key=lambda spot: spot.node)
    if ranking == "fill":
        return sorted(spots, key=lambda spot: (spot.node, spot.object))
    turns: dict[tuple[int, int], int] = {}
    keyed = []
    for spot in spots:
        where = (spot.node, spot.object if ranking == "span" else 0)
        turn = turns[where] = turns.get(where, -1) + 1
        keyed.append((turn, spot.node, spot.object if ranking == "span" else 0, spot))
    return [spot for *_, spot in sorted(keyed, key=lambda key: key[:3])]


# The number of ranks of an application on each node


def _counts(rooms: Sequence[Room], used: list[int], size: int, mapping: Mapping) -> list[int]:
    """Return the number of ranks of an application for each node."""
    free = [max(0, room.slots - taken) for room, taken in zip(rooms, used, strict=True)]
    if mapping.each:
        return _count_per_node(rooms, used, size, mapping)
    width = mapping.binding.width
    if width > 1 and not mapping.binding.overload:
        # Each rank takes several cores: a node runs as many as these suffice for.
        fitting = [room.slots if room.cpus is None else room.cpus.free(mapping.binding) for room in rooms]
        free = [min(pair) for pair in zip(free, fitting, strict=True)]
        if size > sum(free):
            raise ValueError(
                f"{size} ranks of {width} {mapping.binding.unit}s each do not fit on {_nodes(rooms)} with room for "
                f"{sum(free)}; run fewer, name more nodes, or add :overload-allowed to --bind-to"
            )
    if size > sum(free) and not mapping.crowded:
        raise ValueError(_too_few(rooms, used, size))
    counts = _dealt(free, size) if mapping.by == "node" or mapping.span else _filled(free, size)
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


def _count_per_node(rooms: Sequence[Room], used: list[int], size: int, mapping: Mapping) -> list[int]:
    most = mapping.each * len(rooms)
    if size > most:
        raise ValueError(
            f"{size} ranks do not fit on {_nodes(rooms)} with {mapping.each} on each: {most} do; "
            "run fewer, name more nodes, or map by slot or node"
        )
    counts = _filled([mapping.each] * len(rooms), size)
    for room, taken, count in zip(rooms, used, counts, strict=True):
        _check_slots(room, taken, count, mapping)
    return counts


def _check_slots(room: Room, used: int, count: int, mapping: Mapping) -> None:
    limit = room.slots if not mapping.crowded else room.most or used + count
    if used + count > limit:
        raise ValueError(
            f"{room.name} has {max(0, limit - used)} of its {limit} slots free, and {count} ranks are mapped to "
            f"it; map fewer per node, or {MORE}"
        )


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


def _too_few(rooms: Sequence[Room], used: Sequence[int], size: int) -> str:
    slots, taken = sum([room.slots for room in rooms]), sum(used)
    listed = ", ".join([f"{room.name}:{room.slots}" for room in rooms[:8]]) + (", ..." if len(rooms) > 8 else "")
    free = f"{slots} slot{'s' * (slots != 1)}" + (f", {taken} of them taken" if taken else "")
    return f"{size} ranks do not fit on {_nodes(rooms)} with {free} ({listed}); run fewer, give more slots, or {MORE}"


def _nodes(rooms: Sequence[Room]) -> str:
    return "1 node" if len(rooms) == 1 else f"{len(rooms)} nodes"
