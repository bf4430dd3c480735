"""The hardware of this node, and what its ranks are told of it and of their places on it."""

from __future__ import annotations

import os
from functools import cache

from pypmix.standard import attrs, codes, keys
from pypmix.standard.types import DataArray
from pypmix.topology.bitmaps import bitmap, parse_list
from pypmix.topology.files import Files
from pypmix.topology.kernel import read_machine
from pypmix.topology.machine import PACKAGE
from pypmix.topology.shape import Shape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.job import JobLayout, NodeLayout
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.types import Info
    from pypmix.topology.machine import Machine


ADDRESS_SECONDS = 1.0
"""The time that the kernel has to list the addresses of this machine."""


@cache
def this_machine() -> Machine | None:
    """Return the machine that this process runs on, within its control group; None if the kernel does not show it.

    It is read once: it takes milliseconds, and the control group of a resource manager's step stays as it is.
    """
    try:
        return read_machine()
    except OSError:
        return None


@cache
def this_shape(devices: bool) -> Shape | None:
    """Return the hardware that ranks here may use; None if the kernel does not show it.

    They stay within the CPUs that this process was started on: a resource manager may have bound it.

    Args:
        devices: Whether it has the GPUs as well; without them a few of the kernel's files are read, before ranks start.
    """
    try:
        machine = this_machine() if devices else read_machine(devices=False, details=False)
    except OSError:
        machine = None
    if machine is None:
        return None
    return Shape.of(machine, bitmap(os.sched_getaffinity(0)), Files())


def resources() -> tuple[Info, ...]:
    """Return the infos about this node that all its clients get: libpmix reads the machine from them."""
    machine = this_machine()
    if machine is None:
        return ()
    from pypmix.topology.xml import write_xml

    return (attrs.HWLOC_XML_V2(write_xml(machine)),)


def aliases(hostname: str) -> str:
    """Return the other names of this node, separated by commas; empty if it has none, as a simulated node."""
    system = os.uname().nodename
    if hostname != system:
        return ""
    names = ["localhost", system.partition(".")[0], *_addresses()]
    return ",".join([each for each in dict.fromkeys(names) if each != hostname])


@cache
def _addresses() -> tuple[str, ...]:
    """Return the addresses of this machine, with loopback first; none if the kernel does not list them in time.

    They are read once: each interface costs a call of the kernel, which may wait for a change of the network.
    """
    from threading import Thread

    from pypmix.host.addresses import all_addresses, is_loopback

    found: list[str] = []

    def read() -> None:
        try:
            found.extend(sorted(all_addresses(), key=is_loopback, reverse=True))
        except OSError:
            # A kernel that does not list its interfaces, as in some sandboxes.
            return

    reader = Thread(target=read, name="pypmix-addresses", daemon=True)
    reader.start()
    reader.join(ADDRESS_SECONDS)
    return () if reader.is_alive() else tuple(found)


def described(info: JobInfo, job: JobLayout, hostname: str) -> JobInfo:
    """Return the job info for the clients of this node: with the node's memory and names, and its ranks' places.

    Args:
        info: The job info for all nodes.
        job: The job.
        hostname: The node's name.
    """
    machine = this_machine()
    node = next((each for each in job.nodes if each.hostname == hostname), None)
    if machine is None or node is None or not node.ranks:
        return info
    more = [attrs.AVAIL_PHYS_MEMORY(machine.memory_size())]
    names = aliases(hostname)
    if names:
        more.append(attrs.HOSTNAME_ALIASES(names))
    nodes = tuple([(*infos, *more) if _is_about(infos, hostname) else infos for infos in info.nodes])
    places = _places(machine, node, hostname)
    procs = tuple([(rank, (*infos, *places[rank]) if rank in places else infos) for rank, infos in info.procs])
    return info.replace(nodes=nodes, procs=procs)


def _is_about(infos: tuple[Info, ...], hostname: str) -> bool:
    return any(info.key == keys.HOSTNAME and info.value.data == hostname for info in infos)


def _places(machine: Machine, node: NodeLayout, hostname: str) -> dict[int, list[Info]]:
    """Return the infos about the places of the bound ranks of this node."""
    from pypmix.topology.locality import format_locality

    shared: dict[str, tuple[Info, ...]] = {}
    packages = machine.of_type(PACKAGE)
    on_package: dict[int, int] = {}
    found: dict[int, list[Info]] = {}
    for rank, text in zip(node.ranks, node.cpus, strict=False):
        if not text:
            continue
        cpus = parse_list(text)
        if text not in shared:
            locality = attrs.LOCALITY_STRING(format_locality(machine, cpus) or "")
            shared[text] = locality, *_distances(machine, cpus, hostname)
        infos = [*shared[text]]
        package = next((place for place, each in enumerate(packages) if not cpus & ~each.cpus), None)
        if package is not None:
            infos.append(attrs.PACKAGE_RANK(on_package.get(package, 0)))
            on_package[package] = on_package.get(package, 0) + 1
        found[rank] = infos
    return found


def _distances(machine: Machine, cpus: int, hostname: str) -> tuple[Info, ...]:
    """Return the distances of this node's devices from some of its CPUs; nothing if it has no such devices."""
    if not machine.devices:
        return ()
    from pypmix.topology.distances import compute_distances

    try:
        found = compute_distances(machine, cpus, hostname)
    except LookupError:
        return ()
    return (attrs.DEVICE_DISTANCES(DataArray(codes.DEVICE_DIST, found)),) if found else ()
