"""Binding ranks to the CPUs of their node: `--bind-to`, `PE=n`, `--cpu-set`.

A rank takes a unit, a core or a hardware thread, or several of them (`PE=n`); it is bound to these, or to a larger
object that holds them. An object is full when its units are taken.
"""

from __future__ import annotations

from pypmix.standard.record import Record
from pypmix.topology.bitmaps import format_list, numbers, parse_list
from pypmix.topology.machine import LEVELS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.topology.shape import Shape

NONE = "none"
SYNONYMS = {
    "l1": "l1cache",
    "l2": "l2cache",
    "l3": "l3cache",
    "socket": "package",
    "pu": "hwthread",
    "thread": "hwthread",
}
"""Other names of levels."""
OVERLOAD = ("overload-allowed", "overload")
NO_OVERLOAD = ("no-overload", "if-supported")
UNITS = ("core", "hwthread")


def level_of(word: str) -> str:
    """Return the level that a word names; empty if it names none."""
    name = SYNONYMS.get(word, word)
    return name if name in LEVELS else ""


class Binding(Record):
    """The rules by which ranks are bound.

    Attributes:
        level: The kind of object that a rank is bound to; `none` for no binding; empty for the one that follows from
            the mapping, and for no binding if there are too few.
        overload: Whether more ranks than an object has units may be bound to it.
        width: The number of units of each rank.
        threads: Whether units are hardware threads instead of cores.
        cpus: The CPUs of each node that ranks may use, as a list; empty for all.
    """

    level: str = ""
    overload: bool = False
    width: int = 1
    threads: bool = False
    cpus: str = ""

    def read(self, text: str) -> Binding:
        """Return it with the level of a text: `none`, or a level with or without `:overload-allowed`.

        Raises:
            ValueError: The text is not a binding.
        """
        word, *rest = text.lower().split(":")
        level = NONE if word == NONE else level_of(word)
        if not level or any(each not in (*OVERLOAD, *NO_OVERLOAD) for each in rest):
            raise ValueError(
                f"ranks are bound to none, {', '.join(LEVELS)}, with or without :overload-allowed, not to {text!r:.80}"
            )
        return self.replace(level=level, overload=any(each in OVERLOAD for each in rest))

    @property
    def unit(self) -> str:
        """The kind of unit that ranks take."""
        return "hwthread" if self.threads or self.level == "hwthread" else "core"

    @property
    def word(self) -> str:
        """Its text in PMIX_BINDTO."""
        return self.level.upper() + (":OVERLOAD-ALLOWED" if self.overload else "")


class NoRoomError(ValueError):
    """There are too few units for the ranks; the text contains a remedy."""


class Cpus:
    """The CPUs of a node, and how many ranks have taken each.

    Args:
        name: The node's name, for errors.
        shape: Its hardware.
        load: The number of ranks that have taken each CPU; nodes that are on one machine share it.
    """

    def __init__(self, name: str, shape: Shape, load: dict[int, int] | None = None) -> None:
        self.name = name
        self.shape = shape
        self.load = {} if load is None else load

    def take(self, cpus: int) -> None:
        """Count a rank that has taken CPUs."""
        for cpu in numbers(cpus):
            self.load[cpu] = self.load.get(cpu, 0) + 1

    def _load_of(self, unit: int) -> int:
        return max([self.load.get(cpu, 0) for cpu in numbers(unit)])

    def allowed(self, binding: Binding) -> int:
        """Return the CPUs that ranks may use.

        Raises:
            ValueError: The node has none of those that the binding names.
        """
        if not binding.cpus:
            return self.shape.cpus
        found = parse_list(binding.cpus) & self.shape.cpus
        if not found:
            raise ValueError(
                f"{self.name} has none of the CPUs {binding.cpus:.80} that --cpu-set names; "
                f"ranks may use {format_list(self.shape.cpus)} there"
            )
        return found

    def units(self, binding: Binding, within: int = -1) -> list[int]:
        """Return the CPUs of each unit within some CPUs."""
        allowed = self.allowed(binding) & within
        unit = next((each for each in (binding.unit, *UNITS) if self.shape.objects(each)), "")
        whole = self.shape.objects(unit) if unit else tuple([(cpu, 1 << cpu) for cpu in numbers(self.shape.cpus)])
        return [cpus & allowed for _, cpus in whole if cpus & allowed]

    def free(self, binding: Binding, within: int = -1) -> int:
        """Return how many more ranks some CPUs have units for."""
        return len([unit for unit in self.units(binding, within) if not self._load_of(unit)]) // binding.width

    def objects(self, level: str, binding: Binding) -> list[int]:
        """Return the CPUs of the objects of a level that ranks may use.

        Raises:
            ValueError: The node has no such objects.
        """
        allowed = self.allowed(binding)
        found = [cpus & allowed for _, cpus in self.shape.objects(level) if cpus & allowed]
        if not found:
            raise ValueError(f"{self.name} has no {level}: map by, or bind to, one of {', '.join(self.shape.levels)}")
        return found

    def bind(self, place: int, level: str, binding: Binding) -> tuple[int, int]:
        """Take units for a rank, and return the CPUs to bind it to, and those of its units.

        Args:
            place: The CPUs of the object that it is mapped to.
            level: The level to bind to.
            binding: The rules.

        Raises:
            NoRoomError: All units are taken.
            ValueError: The node has no such objects.
        """
        pool = self.units(binding, place)
        if level == binding.unit:
            chosen = self._choose(pool, binding)
            bound = units = self._join(chosen)
        else:
            objects = [cpus for cpus in self.objects(level, binding) if cpus & place]
            inside = [(cpus, [unit for unit in self.units(binding, cpus) if unit & place]) for cpus in objects]
            with_room = [pair for pair in inside if self._free_of(pair[1]) >= binding.width]
            if not with_room and not binding.overload:
                raise NoRoomError(self._full(place, binding))
            if with_room:
                bound, pool = with_room[0]
            else:
                bound, pool = min(inside, key=lambda pair: sum([self._load_of(unit) for unit in pair[1]]))
            units = self._join(self._choose(pool, binding))
        self.take(units)
        return bound, units

    def _free_of(self, pool: list[int]) -> int:
        return len([unit for unit in pool if not self._load_of(unit)])

    def _choose(self, pool: list[int], binding: Binding) -> list[int]:
        """Return the first units that are free, or those with the fewest ranks if these may be shared."""
        loads = [self._load_of(unit) for unit in pool]
        order = sorted(range(len(pool)), key=loads.__getitem__)[: binding.width]
        if len(order) < binding.width or (not binding.overload and any(loads[each] for each in order)):
            raise NoRoomError(self._full(self._join(pool), binding))
        return [pool[each] for each in sorted(order)]

    def _full(self, place: int, binding: Binding) -> str:
        units = len(self.units(binding, place))
        each = f", {binding.width} for each rank" if binding.width > 1 else ""
        return (
            f"there are too few {binding.unit}s on {self.name} to bind ranks to: {units} in "
            f"{self.shape.describe(place) or 'no package'}{each}; run fewer ranks there, or add :overload-allowed to "
            "--bind-to, or --bind-to none"
        )

    @staticmethod
    def _join(units: list[int]) -> int:
        found = 0
        for unit in units:
            found |= unit
        return found
