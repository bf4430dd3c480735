"""The arguments and results of fabrics and distances."""

from __future__ import annotations

from pypmix.answers import Fabric
from pypmix.standard import attrs, keys
from pypmix.standard.ops import ComputeDistances, FabricUpdate
from pypmix.standard.types import Cpuset, Info, Topology
from pypmix.standard.values import infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.requests import Infos


def fabric_of(found: Iterable[Info], index: int | None = None) -> Fabric:
    """Return a fabric; its index is among the infos of a registration."""
    found = tuple(found)
    told = next((info.value.data for info in found if info.key == keys.FABRIC_INDEX), None)
    return Fabric(told if isinstance(told, int) else index or 0, found)


def update_op(fabric: Fabric | int) -> FabricUpdate:
    return FabricUpdate(fabric.index if isinstance(fabric, Fabric) else fabric)


def distances_op(
    cpuset: Cpuset | str | None, topology: Topology | None, devices: int | None, info: Infos
) -> ComputeDistances:
    if cpuset is None:
        cpuset = _own_binding()
    if isinstance(cpuset, str):
        cpuset = Cpuset(cpuset)
    directives = infos(info)
    if devices is not None:
        directives += (attrs.DEVICE_TYPE(int(devices)),)
    return ComputeDistances(Topology(None) if topology is None else topology, cpuset, directives)


def _own_binding() -> str:
    """Return the cores on which this process may run, as hwloc writes lists."""
    from os import sched_getaffinity

    cores = sorted(sched_getaffinity(0))
    parts: list[list[int]] = []
    for core in cores:
        if parts and parts[-1][1] == core - 1:
            parts[-1][1] = core
        else:
            parts.append([core, core])
    return ",".join([f"{first}-{last}" if last > first else f"{first}" for first, last in parts])
