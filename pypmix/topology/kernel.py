"""Reads the machine that a process runs on from the files of the Linux kernel, within its control group's cpuset.

Files of CPUs that share hardware are read once for each piece of hardware, since a large machine has tens of thousands.
"""

from __future__ import annotations

import os

from pypmix.topology.bitmaps import bitmap, numbers
from pypmix.topology.files import Files
from pypmix.topology.machine import CORE, DIE, GROUP, MACHINE, NUMA, PACKAGE, PU, Machine, Object

CPUS = "/sys/devices/system/cpu"
NODES = "/sys/devices/system/node"
HUGE_PAGES = "hugepages"

_ORDER = (PACKAGE, DIE, GROUP, "L5Cache", "L4Cache", "L3Cache", "L2Cache", "L1Cache", CORE, PU)
"""The order of objects with equal CPUs, from the outermost one."""
_RANK = {type: place for place, type in enumerate(_ORDER)}

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_CACHE_TYPES = {"Unified": "0", "Data": "1"}

_KINDS = (
    (PACKAGE, ("package_cpus_list", "core_siblings_list"), "physical_package_id"),
    (DIE, ("die_cpus_list",), "die_id"),
    (GROUP, ("cluster_cpus_list",), ""),
    (CORE, ("core_cpus_list", "thread_siblings_list"), "core_id"),
)
"""The kinds of objects that a CPU belongs to: the files of their CPUs, newest name first, and of their numbers."""

CLUSTER_KIND = "103"
"""The kind of a group of cores that the kernel calls a cluster."""
MEMORY_KIND = "1001"
"""The kind of a group of CPUs that share only a NUMA node."""


def read_machine(files: Files | None = None, *, devices: bool = True, details: bool = True) -> Machine:
    """Read this machine.

    Args:
        files: The kernel's files; by default this machine's.
        devices: Whether to read its PCI devices as well.
        details: Whether to read the properties of its caches and the size of its memory as well.

    Raises:
        OSError: The kernel's files of CPUs cannot be read.

    Example:
        >>> machine = read_machine(devices=False)
        >>> print(len(machine.of_type("Core")), "cores,", len(machine.numa), "NUMA nodes")
    """
    files = files or Files()
    online = files.set(f"{CPUS}/online") or bitmap(
        [int(name[3:]) for name in files.names(CPUS) if name[:3] == "cpu" and name[3:].isdecimal()]
    )
    if not online:
        raise OSError(2, "the kernel shows no CPUs", files.root + CPUS)
    nodes = files.set(f"{NODES}/online")
    cpus, memory = allowed(files)
    usable = online & cpus or online
    root = Object(MACHINE, 0, online, nodes)
    _nest(root, _objects(files, online, details))
    _add_memory(files, root, details)
    _restrict(root, usable, memory)
    _set_nodes(root)
    _describe(files, root)
    found = Machine(root)
    if devices:
        from pypmix.topology.devices import add_devices

        add_devices(files, found)
    return found


# The CPUs


def allowed(files: Files) -> tuple[int, int]:
    """Return the CPUs and the NUMA nodes of this process's control group; -1 for all."""
    for folder, effective in _cpuset_folders(files):
        while True:
            cpus = files.set(f"{folder}/cpuset.{'cpus.effective' if effective else 'effective_cpus'}")
            cpus = cpus or files.set(f"{folder}/cpuset.cpus")
            if cpus:
                nodes = files.set(f"{folder}/cpuset.{'mems.effective' if effective else 'effective_mems'}")
                return cpus, nodes or files.set(f"{folder}/cpuset.mems") or -1
            above = os.path.dirname(folder)
            # Inside a container the path may begin above its root.
            if not above.startswith("/sys/fs/cgroup"):
                break
            folder = above
    return -1, -1


def _cpuset_folders(files: Files) -> list[tuple[str, bool]]:
    """Return the folders of this process's cpuset, and whether each is of control groups' second version."""
    found = []
    for line in files.read("/proc/self/cgroup").splitlines():
        number, _, rest = line.partition(":")
        kinds, _, path = rest.partition(":")
        path = "" if path == "/" else path
        if "cpuset" in kinds.split(","):
            found.append((f"/sys/fs/cgroup/cpuset{path}", False))
        elif number == "0":
            found += [(f"/sys/fs/cgroup{path}", True), (f"/sys/fs/cgroup/unified{path}", True)]
    return found


def _objects(files: Files, online: int, details: bool) -> list[Object]:
    """Return the packages, dies, clusters, caches, cores and hardware threads."""
    found: list[Object] = []
    seen: dict[str, int] = {}
    """The CPUs whose hardware of a kind has been read."""
    caches: list[str] = []
    for cpu in numbers(online):
        folder = f"{CPUS}/cpu{cpu}"
        if not found:
            caches = _data_caches(files, cpu)
        for type, sets, name in _KINDS:
            if not seen.get(type, 0) >> cpu & 1:
                cpus = next(filter(None, (files.set(f"{folder}/topology/{each}") for each in sets)), 0) & online
                if not cpus and type in (DIE, GROUP):
                    # A kernel that does not know of them.
                    seen[type] = online
                    continue
                cpus = cpus or 1 << cpu
                seen[type] = seen.get(type, 0) | cpus
                found.append(_made(type, _identity(files, f"{folder}/topology/{name}" if name else ""), cpus))
        for index in caches:
            if not seen.get(index, 0) >> cpu & 1:
                cpus = files.set(f"{folder}/cache/{index}/shared_cpu_list") & online or 1 << cpu
                seen[index] = seen.get(index, 0) | cpus
                cache = _cache(files, f"{folder}/cache/{index}", cpus, details)
                found += [cache] if cache is not None else []
        found.append(Object(PU, cpu, 1 << cpu))
    return found


def _identity(files: Files, path: str) -> int | None:
    number = files.number(path) if path else None
    return None if number is None or number < 0 else number


def _made(type: str, number: int | None, cpus: int) -> Object:
    made = Object(type, number, cpus)
    if type == GROUP:
        made.attributes = {"kind": CLUSTER_KIND, "subkind": "0"}
    return made


def _data_caches(files: Files, cpu: int) -> list[str]:
    """Return the names of a CPU's caches that hold data."""
    folder = f"{CPUS}/cpu{cpu}/cache"
    names = sorted([name for name in files.names(folder) if name.startswith("index")])
    return [name for name in names if files.read(f"{folder}/{name}/type") in _CACHE_TYPES]


def _cache(files: Files, folder: str, cpus: int, details: bool) -> Object | None:
    level = files.number(f"{folder}/level")
    if level is None:
        return None
    if not details:
        return Object(f"L{level}Cache", None, cpus)
    made = Object(f"L{level}Cache", files.number(f"{folder}/id"), cpus)
    size = files.read(f"{folder}/size")
    number, unit = (size[:-1], size[-1:]) if size[-1:] in _UNITS else (size, "")
    made.attributes = {
        "cache_size": str(int(number) * _UNITS.get(unit, 1)) if number.isdecimal() else "0",
        "depth": str(level),
        "cache_linesize": str(files.number(f"{folder}/coherency_line_size") or 0),
        "cache_associativity": str(files.number(f"{folder}/ways_of_associativity") or 0),
        "cache_type": _CACHE_TYPES.get(files.read(f"{folder}/type"), "0"),
    }
    return made


def _nest(root: Object, objects: list[Object]) -> None:
    """Put each object into the smallest one that holds all of its CPUs."""
    objects.sort(key=lambda each: (-each.cpus.bit_count(), _RANK.get(each.type, len(_ORDER))))
    for each in objects:
        outer = root
        while True:
            for inner in outer.children:
                if inner.cpus & each.cpus:
                    break
            else:
                inner = None
            if inner is None or each.cpus & ~inner.cpus:
                break
            outer = inner
        same = outer is not root and outer.cpus == each.cpus
        # A die or a cluster of the same CPUs as the object around it adds nothing, nor does an object that overlaps.
        if (inner is not None and inner.cpus & each.cpus) or (same and each.type in (DIE, GROUP)):
            continue
        outer.add(each)
    _tidy(root)


def _tidy(item: Object) -> None:
    """Order children by their first CPUs, and drop groups around a single object of the same CPUs."""
    for child in list(item.children):
        if child.type == GROUP and len(child.children) == 1 and child.children[0].cpus == child.cpus:
            item.children[item.children.index(child)] = child.children[0]
            child.children[0].parent = item
    item.children.sort(key=lambda child: child.cpus & -child.cpus)
    for child in item.children:
        _tidy(child)


# Its memory


def _add_memory(files: Files, root: Object, details: bool) -> None:
    """Attach the NUMA nodes to the outermost objects of the same CPUs, below the machine if it has one of these."""
    for number in numbers(root.nodes):
        folder = f"{NODES}/node{number}"
        cpus = files.set(f"{folder}/cpulist") or _initiators(files, folder)
        node = Object(NUMA, number, cpus & root.cpus, 1 << number)
        if details:
            node.attributes = {"local_memory": str(_memory(files, folder))}
            node.pages = _pages(files, folder, int(node.attributes["local_memory"]))
        _attach(root, node)
    if not root.nodes:
        # A kernel without support of NUMA.
        node = Object(NUMA, 0, root.cpus, 1)
        root.nodes = root.complete_nodes = 1
        if details:
            node.attributes = {"local_memory": str(_total(files.read("/proc/meminfo")))}
        _attach(root, node)


def _attach(root: Object, node: Object) -> None:
    if not node.cpus:
        root.add(node)
        return
    outer = root
    while True:
        inner = next((child for child in outer.children if not node.cpus & ~child.cpus), None)
        if inner is None or (outer is not root and outer.cpus == node.cpus):
            break
        outer = inner
        if outer.cpus == node.cpus:
            break
    if outer.cpus != node.cpus:
        group = Object(GROUP, None, node.cpus, node.nodes)
        group.attributes = {"kind": MEMORY_KIND, "subkind": "0"}
        inside = [child for child in outer.children if not child.cpus & ~node.cpus]
        if not inside or bitmap_of(inside) != node.cpus:
            # CPUs of several objects that it does not hold as a whole.
            outer.add(node)
            return
        outer.children = [child for child in outer.children if child not in inside]
        for child in inside:
            group.add(child)
        outer.add(group)
        outer.children.sort(key=lambda child: child.cpus & -child.cpus)
        outer = group
    outer.add(node)


def bitmap_of(objects: list[Object]) -> int:
    """Return all CPUs of objects."""
    found = 0
    for each in objects:
        found |= each.cpus
    return found


def _initiators(files: Files, folder: str) -> int:
    """Return the CPUs of the nodes that a NUMA node without CPUs is near to."""
    found = 0
    for name in files.names(f"{folder}/access0/initiators"):
        if name[:4] == "node" and name[4:].isdecimal():
            found |= files.set(f"{NODES}/{name}/cpulist")
    return found


def _memory(files: Files, folder: str) -> int:
    return _total(files.read(f"{folder}/meminfo"))


def _total(meminfo: str) -> int:
    for line in meminfo.splitlines():
        if "MemTotal:" in line:
            words = line.split()
            return int(words[words.index("MemTotal:") + 1]) << 10
    return 0


def _pages(files: Files, folder: str, memory: int) -> list[tuple[int, int]]:
    """Return the sizes of a NUMA node's pages and their numbers: ordinary ones are what the others leave."""
    sizes = [name for name in files.names(f"{folder}/{HUGE_PAGES}") if name.startswith("hugepages-")]
    found = []
    for name in sizes:
        size = name[len("hugepages-") :].removesuffix("kB")
        if size.isdecimal():
            found.append((int(size) << 10, files.number(f"{folder}/{HUGE_PAGES}/{name}/nr_hugepages") or 0))
    page = os.sysconf("SC_PAGESIZE")
    rest = memory - sum([size * count for size, count in found])
    return [(page, max(0, rest) // page), *sorted(found)]


def _restrict(root: Object, cpus: int, nodes: int) -> None:
    """Take out of the machine what may not be used; objects without CPUs stay if they have memory."""

    def keep(item: Object) -> bool:
        item.complete_cpus, item.cpus = item.cpus, item.cpus & cpus
        item.memory = [node for node in item.memory if node.nodes & nodes]
        for node in item.memory:
            node.complete_cpus, node.cpus = node.cpus, node.cpus & cpus
        item.children = [child for child in item.children if keep(child)]
        return bool(item.cpus or item.memory or any(not child.cpus for child in item.children))

    keep(root)


def _set_nodes(root: Object) -> None:
    """Give each object the NUMA nodes in it, or else those around it."""

    def visit(item: Object, around: int) -> int:
        inside = 0
        for node in item.memory:
            inside |= node.nodes
        for child in item.children:
            inside |= visit(child, inside or around)
        item.nodes = item.complete_nodes = inside or around
        return inside

    every = root.nodes
    visit(root, root.nodes)
    root.complete_nodes = every


def _describe(files: Files, root: Object) -> None:
    system = os.uname()
    root.infos = [
        ("Backend", "Linux"),
        ("OSName", system.sysname),
        ("OSRelease", system.release),
        ("OSVersion", system.version),
        ("HostName", system.nodename),
        ("Architecture", system.machine),
    ]
