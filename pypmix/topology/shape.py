"""The shape of a node's usable hardware, short enough for a message: what a launcher needs to place and bind ranks."""

from __future__ import annotations

from pypmix.standard.record import Record
from pypmix.topology.bitmaps import format_list, parse_list
from pypmix.topology.machine import LEVELS, PCI

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.topology.files import Files
    from pypmix.topology.machine import Machine

    Objects = tuple[tuple[int, int], ...]

BOOT = "/proc/sys/kernel/random/boot_id"

MAX_OBJECTS = 1 << 16


class Device(Record):
    """A device that a rank can be given.

    Args:
        cpus: The CPUs near it; empty if all are as near.
        variables: The environment variables that give it to a rank; values of several devices are joined by commas.
        name: The name that its node's system has for it; empty if it has none.
    """

    cpus: int
    variables: tuple[tuple[str, str], ...]
    name: str = ""


class Shape(Record):
    """The usable hardware of a node.

    Args:
        cpus: The CPUs that ranks may use.
        levels: The objects of each kind that have such CPUs: their indexes on the machine, and their usable CPUs.
        gpus: Its GPUs.
        machine: A text that only nodes on one machine share; empty if it is unknown.
    """

    cpus: int
    levels: dict[str, Objects]
    gpus: tuple[Device, ...] = ()
    machine: str = ""

    @classmethod
    def of(cls, machine: Machine, usable: int, files: Files | None = None) -> Shape:
        """Return the shape of a machine.

        Args:
            machine: The machine.
            usable: The CPUs that a process there and its children may use.
            files: The kernel's files, if it is this machine.
        """
        cpus = machine.cpus & usable or machine.cpus
        levels: dict[str, Objects] = {}
        for name, type in LEVELS.items():
            objects = [
                (place, each.cpus & cpus) for place, each in enumerate(machine.of_type(type)) if each.cpus & cpus
            ]
            if objects:
                levels[name] = tuple(objects)
        devices: list[Device] = []
        if any(each.type == PCI for each in machine.root.below()):
            from pypmix.topology.devices import gpus, variables

            found = gpus(machine, files)
            devices = [Device(gpu.cpus & cpus, tuple(variables([gpu])), gpu.system) for gpu in found]
        return cls(cpus, levels, tuple(devices), files.read(BOOT).strip() if files else "")

    def objects(self, level: str) -> Objects:
        """Return the objects of a level: indexes and CPUs; empty if the machine has none."""
        return self.levels.get(level, ())

    def write(self) -> str:
        """Return it as a short text."""
        parts: dict[str, str] = {}
        last = ""
        for name, objects in self.levels.items():
            text = ";".join([f"{index}:{format_list(cpus)}" for index, cpus in objects])
            # Each core mostly has caches of its own.
            parts[name] = "=" if text == last else text
            last = text
        import json

        devices = [[format_list(each.cpus), each.name, *map(list, each.variables)] for each in self.gpus]
        return json.dumps([format_list(self.cpus), parts, devices, self.machine])

    @classmethod
    def read(cls, text: str) -> Shape:
        """Parse the text of `write`.

        Raises:
            ValueError: It does not parse.
        """
        import json

        try:
            cpus, parts, devices, machine = json.loads(text)
            levels: dict[str, Objects] = {}
            last = ""
            for name, listed in parts.items():
                last = last if listed == "=" else listed
                if name not in LEVELS or last.count(";") >= MAX_OBJECTS:
                    raise ValueError(f"a level {name!r:.80}")
                pairs = [each.partition(":") for each in last.split(";")]
                levels[name] = tuple([(int(index), parse_list(near)) for index, _, near in pairs])
            found = [
                Device(parse_list(near), tuple([(str(key), str(value)) for key, value in given]), str(name))
                for near, name, *given in devices
            ]
            return cls(parse_list(cpus), levels, tuple(found), str(machine))
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"this does not describe a node's hardware: {error}") from None

    def describe(self, cpus: int) -> str:
        """Return a text about some of its CPUs for a person, such as `package[0][core:0-3]`."""
        parts = []
        for package, inside in self.objects("package") or ((-1, self.cpus),):
            part = cpus & inside
            if not part:
                continue
            cores = [index for index, own in self.objects("core") if own & part]
            whole = all(not own & ~part for _, own in self.objects("core") if own & part)
            name, indexes = ("core", cores) if cores and whole else ("hwt", _threads(self, part))
            listed = format_list(sum([1 << index for index in indexes]))
            parts.append(f"package[{package}][{name}:{listed}]" if package >= 0 else f"[{name}:{listed}]")
        return " ".join(parts)


def _threads(shape: Shape, cpus: int) -> list[int]:
    return [index for index, own in shape.objects("hwthread") if own & cpus]
