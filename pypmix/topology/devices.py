"""The devices of a machine: read from the kernel's files, and the GPUs by the names that their libraries know."""

from __future__ import annotations

from pypmix.standard.record import Record
from pypmix.topology.machine import (
    BLOCK,
    BRIDGE,
    COPROCESSOR,
    GPU,
    NETWORK,
    OPENFABRICS,
    OS_DEVICE,
    PCI,
    Machine,
    Object,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.topology.files import Files

BUS = "/sys/bus/pci/devices"

_CLASSES = {"net": NETWORK, "infiniband": OPENFABRICS, "block": BLOCK, "drm": GPU}
_IMPORTANT = (0x01, 0x02, 0x03, 0x0B, 0x12)
"""The classes of PCI devices that programs use: storage, networks, displays, processors, accelerators."""
_IMPORTANT_KINDS = (0x0C04, 0x0C06, 0x0502)
_BRIDGE_KIND = 0x0604

NVIDIA, AMD, INTEL = 0x10DE, 0x1002, 0x8086
_DISPLAY, _ACCELERATOR = 0x03, 0x12

VARIABLES = {NVIDIA: "CUDA_VISIBLE_DEVICES", AMD: "ROCR_VISIBLE_DEVICES", INTEL: "ZE_AFFINITY_MASK"}
"""The variables by which the libraries of a vendor's GPUs are given some of them."""

ORDER = {NVIDIA: ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")}
"""The variables that make a library number GPUs by their addresses, as here."""

_KNOWN_BY = {NVIDIA: ("NVIDIAUUID", "GPU-"), AMD: ("AMDUUID", "GPU-")}


def _is_address(name: str) -> bool:
    """Return True for the address of a PCI device, such as `0000:3b:00.0`."""
    domain, _, rest = name.partition(":")
    bus, _, rest = rest.partition(":")
    slot, _, function = rest.partition(".")
    sizes = len(domain) >= 4 and len(bus) == len(slot) == 2 and len(function) == 1
    return sizes and function in "01234567" and not (domain + bus + slot).strip("0123456789abcdef")


def add_devices(files: Files, machine: Machine) -> None:
    """Attach the PCI devices that programs use to a machine, with the operating system's devices on them."""
    made = _pci_devices(files)
    systems = _system_devices(files, made)
    for device in systems:
        if device.parent is None:
            machine.root.add(device)
    _hang(files, machine, made)
    machine.renew()


def _pci_devices(files: Files) -> dict[str, tuple[Object, list[str]]]:
    """Return the PCI devices and bridges by address, each with the addresses of the bridges above it."""
    found = {}
    for name in sorted(files.names(BUS)):
        if not _is_address(name):
            continue
        folder = f"{BUS}/{name}"
        kind = (files.number(f"{folder}/class") or 0) >> 8
        above = [part for part in files.real(folder).split("/") if _is_address(part)][:-1]
        if kind == _BRIDGE_KIND:
            found[name] = _bridge(files, folder, name, kind), above
        elif kind >> 8 in _IMPORTANT or kind in _IMPORTANT_KINDS:
            made = Object(PCI)
            made.attributes = _pci(files, folder, name, kind)
            found[name] = made, above
    return found


def _pci(files: Files, folder: str, name: str, kind: int) -> dict[str, str]:
    vendor, device, subvendor, subdevice, revision = [
        files.number(f"{folder}/{each}") or 0
        for each in ("vendor", "device", "subsystem_vendor", "subsystem_device", "revision")
    ]
    return {
        "pci_busid": name,
        "pci_type": f"{kind:04x} [{vendor:04x}:{device:04x}] [{subvendor:04x}:{subdevice:04x}] {revision:02x}",
        "pci_link_speed": "0.000000",
    }


def _bridge(files: Files, folder: str, name: str, kind: int) -> Object:
    made = Object(BRIDGE)
    first, last = [files.number(f"{folder}/{each}_bus_number") or 0 for each in ("secondary", "subordinate")]
    domain = name.partition(":")[0]
    made.attributes = {
        "bridge_type": "1-1",
        "depth": "0",
        "bridge_pci": f"{domain}:[{first:02x}-{last:02x}]",
        **_pci(files, folder, name, kind),
    }
    return made


def _hang(files: Files, machine: Machine, made: dict[str, tuple[Object, list[str]]]) -> None:
    """Attach devices to their bridges, and these to a host bridge at the CPUs that are near."""
    hosts: dict[str, Object] = {}
    used = {name for name, (each, _) in made.items() if each.type == PCI}
    used |= {bridge for name in used for bridge in made[name][1]}
    for name in sorted(used & made.keys()):
        each, above = made[name]
        outer = next((made[bridge][0] for bridge in reversed(above) if bridge in made), None)
        if each.type == BRIDGE:
            each.attributes["depth"] = str(len(above) + 1)
        if outer is not None:
            outer.add(each)
            continue
        top = above[0] if above else name
        bus = top[: top.rindex(":")]
        if bus not in hosts:
            hosts[bus] = Object(BRIDGE)
            _attach(machine, hosts[bus], files.set(f"{BUS}/{name}/local_cpulist") & machine.cpus)
        hosts[bus].add(each)
    for bus, host in hosts.items():
        domain, _, first = bus.rpartition(":")
        buses = [each.attributes["bridge_pci"].rstrip("]") for each in host.devices if each.type == BRIDGE]
        below = [int(text.rpartition("-")[2], 16) for text in buses]
        host.attributes = {
            "bridge_type": "0-1",
            "depth": "0",
            "bridge_pci": f"{domain}:[{first}-{max(*below, int(first, 16), 0):02x}]",
        }


def _attach(machine: Machine, host: Object, cpus: int) -> None:
    """Attach a host bridge to the outermost of the smallest objects that hold the CPUs."""
    found = machine.root
    while cpus and found.cpus != cpus:
        inner = next((child for child in found.children if not cpus & ~child.cpus), None)
        if inner is None:
            break
        found = inner
    found.add(host)


def _system_devices(files: Files, made: dict[str, tuple[Object, list[str]]]) -> list[Object]:
    """Return the operating system's devices; those on a PCI device are attached to it."""
    found = []
    for folder, kind in _CLASSES.items():
        for name in sorted(files.names(f"/sys/class/{folder}")):
            path = f"/sys/class/{folder}/{name}"
            real = files.real(path)
            if not real or "/virtual/" in real or not _is_whole(files, path, folder, name):
                continue
            device = Object(OS_DEVICE)
            device.attributes = {"name": name, "osdev_type": str(kind)}
            device.infos = _infos(files, path, kind)
            address = next((part for part in reversed(real.split("/")) if _is_address(part)), "")
            if address in made:
                made[address][0].add(device)
            found.append(device)
    return found


def _is_whole(files: Files, path: str, folder: str, name: str) -> bool:
    """Return True unless a name is that of a part of a device: a partition, or a connector of a display."""
    if folder == "drm":
        return "-" not in name and name != "version"
    return folder != "block" or not files.read(f"{path}/partition")


def _infos(files: Files, path: str, kind: int) -> list[tuple[str, str]]:
    names = {
        NETWORK: (("Address", "address"),),
        OPENFABRICS: (("NodeGUID", "node_guid"), ("SysImageGUID", "sys_image_guid")),
    }.get(kind, ())
    return [(name, text) for name, file in names if (text := files.read(f"{path}/{file}"))]


class Gpu(Record):
    """A GPU.

    Args:
        vendor: The number of its vendor.
        name: The name by which its vendor's libraries know it: an identifier, or its number by PCI address.
        cpus: The CPUs near it.
        address: Its PCI address.
        system: The name that the system has for it, as prterun chooses it; empty if it has none.
    """

    vendor: int
    name: str
    cpus: int
    address: str
    system: str = ""


def gpus(machine: Machine, files: Files | None = None) -> list[Gpu]:
    """Return the GPUs of a machine by their PCI addresses, those of one vendor: the one with the most.

    Args:
        machine: The machine.
        files: The kernel's files, in which NVIDIA's driver has the identifiers; None for another machine.
    """
    by_vendor: dict[int, list[Object]] = {}
    for each in machine.root.below():
        if each.type == PCI:
            kind, vendor = _kind_and_vendor(each)
            # Intel's processors have one that computes little, as the first device of their first bus.
            if vendor in VARIABLES and kind >> 8 in (_DISPLAY, _ACCELERATOR):
                by_vendor.setdefault(vendor, []).append(each)
    if not by_vendor:
        return []
    vendor = max(by_vendor, key=lambda number: (len(by_vendor[number]), number != INTEL))
    found = []
    for number, each in enumerate(sorted(by_vendor[vendor], key=lambda device: device.attributes["pci_busid"])):
        address = each.attributes["pci_busid"]
        name = _identifier(each, vendor) or (_of_driver(files, address) if vendor == NVIDIA and files else "")
        found.append(Gpu(vendor, name or str(number), each.place.cpus, address, _system_name(each, vendor)))
    return found


def _kind_and_vendor(device: Object) -> tuple[int, int]:
    words = device.attributes.get("pci_type", "").split()
    try:
        return int(words[0], 16), int(words[1].strip("[]").partition(":")[0], 16)
    except (IndexError, ValueError):
        return 0, 0


def _identifier(device: Object, vendor: int) -> str:
    """Return a GPU's identifier from what hwloc has found out; empty if it has not."""
    wanted, prefix = _KNOWN_BY.get(vendor, ("", ""))
    for each in device.devices:
        if each.attributes.get("osdev_type") in (str(GPU), str(COPROCESSOR)):
            for name, text in each.infos:
                if name == wanted and text:
                    return text if text.startswith(prefix) else prefix + text
    return ""


def _system_name(device: Object, vendor: int) -> str:
    """Return the system's name for a GPU, of a device with its identifier if there is one; empty if it has none."""
    wanted, _ = _KNOWN_BY.get(vendor, ("", ""))
    found = [
        (wanted not in dict(each.infos), name)
        for each in device.devices
        if each.attributes.get("osdev_type") == str(GPU) and not is_second_name(name := each.attributes.get("name", ""))
    ]
    return min(found, key=lambda each: each[0])[1] if found else ""


def is_second_name(name: str) -> bool:
    """Return True for the name under which the kernel shows a GPU a second time."""
    return name.lower().startswith("card")


def identify_gpu(hostname: str, name: str) -> str:
    """Return the identifier of a GPU in PMIx.

    Args:
        hostname: The node's name.
        name: The name of the system's device.
    """
    return f"gpu://{hostname}::{name}"


def _of_driver(files: Files, address: str) -> str:
    """Return the identifier of a GPU from NVIDIA's driver; empty if it is not loaded."""
    for line in files.read(f"/proc/driver/nvidia/gpus/{address}/information").splitlines():
        name, _, text = line.partition(":")
        if name.strip() == "GPU UUID":
            return text.strip()
    return ""


def variables(chosen: list[Gpu]) -> list[tuple[str, str]]:
    """Return the variables that give a process some GPUs of one vendor."""
    if not chosen:
        return []
    vendor = chosen[0].vendor
    found = [(VARIABLES[vendor], ",".join([gpu.name for gpu in chosen]))]
    if vendor in ORDER and any(gpu.name.isdecimal() for gpu in chosen):
        found.append(ORDER[vendor])
    return found
