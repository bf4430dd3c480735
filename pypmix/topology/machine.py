"""A machine as a tree of objects, and the levels of that tree, in hwloc's order."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MACHINE, PACKAGE, DIE, GROUP, CORE, PU, NUMA = "Machine", "Package", "Die", "Group", "Core", "PU", "NUMANode"
BRIDGE, PCI, OS_DEVICE, MISC = "Bridge", "PCIDev", "OSDev", "Misc"
L1, L2, L3, L4, L5 = "L1Cache", "L2Cache", "L3Cache", "L4Cache", "L5Cache"
"""The types of objects, by their names in XML."""

MEMORY = frozenset({NUMA, "MemCache"})
DEVICES = frozenset({BRIDGE, PCI, OS_DEVICE})

LEVELS = {
    "hwthread": PU,
    "core": CORE,
    "l1cache": L1,
    "l2cache": L2,
    "l3cache": L3,
    "numa": NUMA,
    "package": PACKAGE,
}
"""The kinds of hardware that ranks are mapped to and bound to, from the smallest."""

BLOCK, GPU, NETWORK, OPENFABRICS, DMA, COPROCESSOR = range(6)
"""The kinds of devices of the operating system, as XML numbers them."""


class Object:
    """An object of a machine: a package, a cache, a core, a NUMA node, a device.

    Attributes:
        type: Its type.
        number: The operating system's number; None if it has none.
        cpus: Its CPUs.
        nodes: The NUMA nodes near it.
        complete_cpus: Its CPUs with those that may not be used.
        complete_nodes: The same for NUMA nodes.
        attributes: Its further attributes, under their names in XML.
        infos: Pairs of a name and a text.
        pages: The sizes of its memory pages and their numbers, of a NUMA node.
        parent: The object around it; None for the machine.
        children: The objects in it that have CPUs.
        memory: The NUMA nodes, and their caches, that are attached to it.
        devices: The bridges and devices that are attached to it.
        others: Objects that people have added.
        depth: Its level; -1 for objects without one.
        index: Its number among the objects of its level.

    Example:
        >>> core = Object("Core", 0, cpus=0b11, nodes=0b1)
        >>> core.add(Object("PU", 0, cpus=0b01))
        >>> core.children[0].place.parent is core
        True
    """

    __slots__ = (
        "attributes",
        "children",
        "complete_cpus",
        "complete_nodes",
        "cpus",
        "depth",
        "devices",
        "index",
        "infos",
        "memory",
        "nodes",
        "number",
        "others",
        "pages",
        "parent",
        "type",
    )

    def __init__(self, type: str, number: int | None = None, cpus: int = 0, nodes: int = 0) -> None:
        self.type = type
        self.number = number
        self.cpus = self.complete_cpus = cpus
        self.nodes = self.complete_nodes = nodes
        self.attributes: dict[str, str] = {}
        self.infos: list[tuple[str, str]] = []
        self.pages: list[tuple[int, int]] = []
        self.parent: Object | None = None
        self.children: list[Object] = []
        self.memory: list[Object] = []
        self.devices: list[Object] = []
        self.others: list[Object] = []
        self.depth = -1
        self.index = 0

    def add(self, child: Object) -> None:
        """Append an object to its kind of children.

        Example:
            >>> core = Object("Core", 0, cpus=0b11)
            >>> core.add(Object("PU", 0, cpus=0b01))
        """
        child.parent = self
        if child.type in MEMORY:
            self.memory.append(child)
        elif child.type in DEVICES:
            self.devices.append(child)
        elif child.type == MISC:
            self.others.append(child)
        else:
            self.children.append(child)

    def below(self) -> Iterator[Object]:
        """Iterate over it and all objects below it, in the order of XML.

        Example:
            >>> for each in read_machine().root.below():
            ...     print(each.type, each.number, format_list(each.cpus))
        """
        waiting = [self]
        while waiting:
            found = waiting.pop()
            yield found
            waiting += reversed((*found.memory, *found.children, *found.devices, *found.others))

    @property
    def place(self) -> Object:
        """The nearest object with CPUs: itself, or the one that a device is attached to."""
        found = self
        while found.parent is not None and (found.type in DEVICES or found.type == MISC):
            found = found.parent
        return found

    def __repr__(self) -> str:
        return f"<{self.type} {self.number if self.index == self.number else f'{self.index} ({self.number})'}>"


class Machine:
    """A machine.

    Attributes:
        root: The machine's object.
        levels: The objects of each level, from the machine to the hardware threads.
        numa: The NUMA nodes.
        devices: The devices of the operating system.
        allowed_cpus: The CPUs that may be used.
        allowed_nodes: The NUMA nodes that may be used.

    Example:
        >>> machine = read_machine()
        >>> print(format_list(machine.cpus), [level[0].type for level in machine.levels])
    """

    def __init__(self, root: Object) -> None:
        self.root = root
        self.levels: list[list[Object]] = []
        self.numa: list[Object] = []
        self.devices: list[Object] = []
        self.allowed_cpus = root.cpus
        self.allowed_nodes = root.nodes
        self.renew()

    def __repr__(self) -> str:
        cores = sum(1 for each in self.root.below() if each.type == CORE)
        return f"<Machine of {cores} cores, {len(self.numa)} NUMA nodes and {len(self.devices)} devices>"

    def renew(self) -> None:
        """Find the levels and the indexes after a change of the tree.

        Example:
            >>> machine = read_machine()
            >>> machine.root.add(Object("Misc"))
            >>> machine.renew()
        """
        self.levels = _levels(self.root)
        for depth, level in enumerate(self.levels):
            for index, each in enumerate(level):
                each.depth, each.index = depth, index
        every = list(self.root.below())
        # As hwloc numbers them, by their numbers in the system.
        self.numa = sorted([each for each in every if each.type == NUMA], key=lambda each: each.number or 0)
        self.devices = [each for each in every if each.type == OS_DEVICE]
        for objects in (self.numa, self.devices):
            for index, each in enumerate(objects):
                each.index = index

    @property
    def cpus(self) -> int:
        """All CPUs that may be used."""
        return self.root.cpus

    def of_type(self, type: str) -> list[Object]:
        """Return the objects of a type, in order; those of the first level that has any.

        Example:
            >>> cores = read_machine().of_type("Core")
        """
        if type == NUMA:
            return self.numa
        return next((level for level in self.levels if level[0].type == type), [])

    def memory_size(self) -> int:
        """Return the size of its memory in bytes.

        Example:
            >>> size = read_machine().memory_size() >> 30
        """
        return sum([int(each.attributes.get("local_memory", 0)) for each in self.numa])


def _levels(root: Object) -> list[list[Object]]:
    """Return the objects with CPUs by level: a level holds objects of one type, and an object is above its children."""
    found = [[root]]
    rest = list(root.children)
    while rest:
        kinds = [_kind_of(each) for each in rest]
        top = kinds[0]
        for each, kind in zip(rest, kinds, strict=True):
            if kind != top and _contains_kind(each, top):
                top = kind
        taken: list[Object] = []
        below: list[Object] = []
        for each, kind in zip(rest, kinds, strict=True):
            if kind == top:
                taken.append(each)
                below += each.children
            else:
                below.append(each)
        found.append(taken)
        rest = below
    return found


def _kind_of(item: Object) -> tuple[str, str | None]:
    """Return the kind of an object: groups of different depths are on different levels."""
    return item.type, item.attributes.get("depth") if item.type == GROUP else None


def _contains_kind(outer: Object, kind: tuple[str, str | None]) -> bool:
    """Return True if an object of a kind is somewhere below one."""
    return any(_kind_of(child) == kind or _contains_kind(child, kind) for child in outer.children)
