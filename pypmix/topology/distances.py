"""The distances of a machine's devices from some of its CPUs, as libpmix computes them."""

from __future__ import annotations

from pypmix.standard.types import DeviceDistance
from pypmix.topology.devices import identify_gpu, is_second_name
from pypmix.topology.machine import GPU, NETWORK, OPENFABRICS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypmix.topology.machine import Machine, Object

# The values of `DeviceType`: every launcher computes distances, and the enums take longer to import than that.
KINDS = ((GPU, 0x2), (NETWORK, 0x4), (OPENFABRICS, 0x8))
"""The kinds of devices that have a distance, in the order of the answer, with the values of `DeviceType`."""

ALL = sum([type for _, type in KINDS])

_MAC_COLONS, _INFINIBAND_COLONS = 5, 19


def compute_distances(
    machine: Machine, cpus: int, hostname: str, types: int = ALL, names: Sequence[str] = ()
) -> tuple[DeviceDistance, ...]:
    """Return the distances of devices: the number of levels up to the object that they share with the CPUs.

    Args:
        machine: The machine.
        cpus: The CPUs.
        hostname: The node's name, which is part of the identifiers of GPUs.
        types: The kinds of devices (`DeviceType`).
        names: The devices' names or identifiers; empty for all.

    Raises:
        LookupError: Only the whole machine holds all of the CPUs.

    Example:
        >>> machine = read_machine()
        >>> for device in compute_distances(machine, machine.of_type("PU")[0].cpus, "node1"):
        ...     print(device.osname, device.mindist)
    """
    place = _smallest(machine, cpus)
    depth = len(machine.levels)
    wanted = [name.lower() for name in names]
    found = []
    for kind, type in KINDS:
        if not types & type:
            continue
        for device in machine.devices:
            if device.attributes.get("osdev_type") != str(kind):
                continue
            name = device.attributes.get("name", "")
            uuid = identify(device, kind, hostname)
            if not uuid or (wanted and not {name.lower(), uuid.lower()} & set(wanted)):
                continue
            shared = _common(place, device.place)
            distance = depth - shared.depth if shared.depth else place.depth + depth
            if not machine.cpus & cpus:
                raise LookupError("the machine has none of these CPUs")
            found.append(DeviceDistance(uuid, name, type, distance, distance))
    return tuple(found)


def identify(device: Object, kind: int, hostname: str) -> str:
    """Return the identifier of a device in PMIx; empty if it has none.

    Example:
        >>> for device in read_machine().devices:
        ...     kind = int(device.attributes["osdev_type"])
        ...     print(device.attributes["name"], identify(device, kind, "node1"))
    """
    infos = {name.lower(): text for name, text in device.infos}
    if kind == NETWORK:
        address = infos.get("address", "")
        family = {_MAC_COLONS: "ipv4", _INFINIBAND_COLONS: "ipv6"}.get(address.count(":"))
        return f"{family}://{address}" if family else ""
    if kind == OPENFABRICS:
        node, system = infos.get("nodeguid"), infos.get("sysimageguid")
        return f"fab://{node}::{system}" if node and system else ""
    name = device.attributes.get("name", "")
    return "" if is_second_name(name) else identify_gpu(hostname, name)


def _smallest(machine: Machine, cpus: int) -> Object:
    """Return the object that holds all of the CPUs and is the farthest from the machine, level by level."""
    found = None
    for level in machine.levels[1:]:
        below = next((each for each in level if not cpus & ~each.cpus), None)
        if below is None:
            break
        found = below
    if found is None:
        raise LookupError("only the whole machine holds all of these CPUs")
    return found


def _common(one: Object, other: Object) -> Object:
    above = set()
    each: Object | None = one
    while each is not None:
        above.add(each)
        each = each.parent
    each = other
    while each not in above:
        assert each is not None
        each = each.parent
    return each
