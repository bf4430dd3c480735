"""Kernel files of made-up machines, for the reader of `pypmix.topology` and for hwloc's own (`HWLOC_FSROOT`)."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pypmix.topology.bitmaps import format_list
from pypmix.topology.files import Files
from pypmix.topology.kernel import read_machine
from pypmix.topology.machine import Machine


class Layout(NamedTuple):
    """A machine: how many of each part are in the next larger one.

    Hardware threads are numbered as on most machines: the first threads of all cores, and then the second ones.
    """

    packages: int = 2
    numa: int = 1
    """NUMA nodes in a package."""
    dies: int = 1
    l3: int = 1
    """L3 caches in a package."""
    cores: int = 4
    """Cores in a package."""
    threads: int = 2
    l2: int = 1
    """Cores that share an L2 cache."""
    allowed: str = ""
    """The CPUs of the control group; empty for all."""
    gpus: tuple[int, ...] = ()
    """For each GPU of NVIDIA's the NUMA node that it is near; each has a network interface beside it."""
    identified: bool = True
    """Whether NVIDIA's driver shows the identifiers of GPUs."""

    @property
    def all_cores(self) -> int:
        return self.packages * self.cores

    def cpus_of(self, cores: range) -> int:
        found = 0
        for core in cores:
            for thread in range(self.threads):
                found |= 1 << core + thread * self.all_cores
        return found

    def part(self, core: int, size: int) -> int:
        """Return the CPUs of the group of so many consecutive cores that a core is in."""
        first = core - core % size
        return self.cpus_of(range(first, first + size))


def write_files(layout: Layout, root: Path) -> Files:
    """Write the kernel's files of a machine into a folder."""
    cpus = root / "sys/devices/system/cpu"
    every = format_list((1 << layout.all_cores * layout.threads) - 1)
    _write(cpus, online=every, possible=every, present=every)
    for core in range(layout.all_cores):
        for thread in range(layout.threads):
            _write_cpu(layout, cpus, core, core + thread * layout.all_cores)
    _write_nodes(layout, root / "sys/devices/system/node")
    group = root / "sys/fs/cgroup/job"
    _write(group.parent, **{"cgroup.controllers": "cpuset cpu"})
    _write(group, **{"cpuset.cpus.effective": layout.allowed or every, "cgroup.controllers": "cpuset cpu"})
    _write(root / "proc/self", cgroup="0::/job\n")
    _write(root / "proc", meminfo=f"MemTotal: {1 << 20} kB", mounts="cgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n")
    _write_gpus(layout, root)
    return Files(str(root))


def machine(layout: Layout, root: Path) -> Machine:
    """Return the machine that the reader makes of the files."""
    return read_machine(write_files(layout, root))


def _mask(bits: int) -> str:
    """Return a set as the kernel writes masks."""
    words = max(1, (bits.bit_length() + 31) // 32)
    return ",".join([f"{bits >> 32 * word & 0xFFFFFFFF:08x}" for word in reversed(range(words))])


def _write(folder: Path, **texts: str | int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts.items():
        (folder / name).write_text(f"{text}\n")


def _write_cpu(layout: Layout, cpus: Path, core: int, cpu: int) -> None:
    package = layout.part(core, layout.cores)
    die = layout.part(core, layout.cores // layout.dies)
    own = layout.part(core, 1)
    sets = {"package_cpus": package, "core_siblings": package, "die_cpus": die, "core_cpus": own}
    sets["thread_siblings"] = own
    texts: dict[str, str | int] = {}
    for name, bits in sets.items():
        texts |= {name: _mask(bits), f"{name}_list": format_list(bits)}
    _write(
        cpus / f"cpu{cpu}/topology",
        physical_package_id=core // layout.cores,
        die_id=core % layout.cores // (layout.cores // layout.dies),
        core_id=core % layout.cores,
        **texts,
    )
    caches = (
        (1, "Data", "48K", own),
        (1, "Instruction", "32K", own),
        (2, "Unified", "2048K", layout.part(core, layout.l2)),
        (3, "Unified", "32M", layout.part(core, layout.cores // layout.l3)),
    )
    for index, (level, type, size, bits) in enumerate(caches):
        _write(
            cpus / f"cpu{cpu}/cache/index{index}",
            level=level,
            type=type,
            size=size.replace("32M", "32768K"),
            coherency_line_size=64,
            ways_of_associativity=8,
            number_of_sets=64,
            physical_line_partition=1,
            shared_cpu_list=format_list(bits),
            shared_cpu_map=_mask(bits),
        )


def _write_nodes(layout: Layout, nodes: Path) -> None:
    count = layout.packages * layout.numa
    _write(nodes, online=format_list((1 << count) - 1), possible=format_list((1 << count) - 1))
    size = layout.cores // layout.numa
    for number in range(count):
        bits = layout.cpus_of(range(number * size, (number + 1) * size))
        distances = " ".join(["10" if other == number else "20" for other in range(count)])
        _write(
            nodes / f"node{number}",
            cpumap=_mask(bits),
            cpulist=format_list(bits),
            meminfo=f"Node {number} MemTotal:       {16 << 20} kB",
            distance=distances,
        )


def _write_gpus(layout: Layout, root: Path) -> None:
    buses = root / "sys/bus/pci/devices"
    buses.mkdir(parents=True)
    size = layout.cores // layout.numa
    for number, node in enumerate(layout.gpus):
        bridge, address = f"{number:04x}:00:01.0", f"{number:04x}:01:00.0"
        top = root / f"sys/devices/pci{number:04x}:00/{bridge}"
        near = format_list(layout.cpus_of(range(node * size, (node + 1) * size)))
        common = {"vendor": "0x10de", "device": "0x2330", "subsystem_vendor": "0x10de", "subsystem_device": "0x16c1"}
        common |= {"revision": "0xa1", "local_cpulist": near, "numa_node": str(node)}
        _write(top, **{"class": "0x060400", "secondary_bus_number": "1", "subordinate_bus_number": "1"}, **common)
        _write(top / address, **{"class": "0x030200"}, **common)
        for name, folder in ((bridge, top), (address, top / address)):
            (buses / name).symlink_to(folder)
        _write(top / address / f"drm/renderD{128 + number}", dev="226:128")
        _write(top / address / f"net/ib{number}", address=f"02:00:00:00:00:{number:02x}")
        for kind, device in (("drm", f"renderD{128 + number}"), ("net", f"ib{number}")):
            (root / f"sys/class/{kind}").mkdir(parents=True, exist_ok=True)
            (root / f"sys/class/{kind}/{device}").symlink_to(top / address / kind / device)
        if layout.identified:
            text = f"Model: \t\t H100\nGPU UUID: \t GPU-{number:08x}-0000\n"
            _write(root / f"proc/driver/nvidia/gpus/{address}", information=text)
