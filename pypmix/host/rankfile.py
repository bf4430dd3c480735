"""Rankfiles in Open MPI's format: a line such as `rank 0=n1 slot=0:0-3` gives each rank its node and cores."""

from __future__ import annotations

import re

from pypmix.standard.record import Record
from pypmix.topology.bitmaps import numbers, parse_list

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.host.binding import Binding, Cpus

_LINE = re.compile(r"rank\s+(\d{1,9})\s*=\s*(\S+)\s+slots?\s*=\s*(\S+)", re.IGNORECASE)
_RELATIVE = re.compile(r"\+n(\d{1,6})", re.IGNORECASE)
ALL = "*"


class Line(Record):
    """A line of a rankfile.

    Args:
        rank: The rank.
        node: The node's name, or `+n0` for the first node of the job, and so on.
        slot: The cores, as a list, or `P:` and a list of the cores of package P; several of these with `;` between.
    """

    rank: int
    node: str
    slot: str


def read_rankfile(lines: Iterable[str], path: str) -> tuple[Line, ...]:
    """Parse the lines of a rankfile; `#` begins a comment.

    Raises:
        ValueError: One of them is not a line of a rankfile, or a rank is there twice.
    """
    found: dict[int, Line] = {}
    for number, text in enumerate(lines, 1):
        words = text.partition("#")[0].strip()
        if not words:
            continue
        matched = _LINE.fullmatch(words)
        if matched is None:
            raise ValueError(f"line {number} of {path:.200} is not like `rank 0=n1 slot=0:0-3`: {words!r:.80}")
        line = Line(int(matched.group(1)), matched.group(2), matched.group(3))
        if line.rank in found:
            raise ValueError(f"line {number} of {path:.200} gives rank {line.rank} a second place")
        try:
            for part in line.slot.split(";"):
                _parse(part)
        except ValueError as error:
            raise ValueError(f"line {number} of {path:.200} cannot be understood: {error}") from None
        found[line.rank] = line
    if not found:
        raise ValueError(f"the rankfile {path:.200} gives no rank a place")
    missing = next((rank for rank in range(len(found)) if rank not in found), None)
    if missing is not None:
        raise ValueError(f"the rankfile {path:.200} has no line for rank {missing}")
    return tuple([found[rank] for rank in sorted(found)])


def _parse(part: str) -> tuple[int | None, int]:
    """Return the package, None for all, and the cores of a part of `slot=`; -1 for all of them."""
    package, colon, cores = part.partition(":") if ":" in part else ("", "", part)
    if colon and not package.isdecimal():
        raise ValueError(f"a package is a number, not {package!r:.80}")
    found = -1 if cores == ALL else parse_list(cores)
    if not found:
        raise ValueError(f"{part!r:.80} names no core")
    return int(package) if colon else None, found


def find_node(line: Line, names: Sequence[tuple[str, ...]]) -> int:
    """Return the number of the node of a line.

    Args:
        line: The line.
        names: The names of each node.

    Raises:
        ValueError: The job has no such node.
    """
    relative = _RELATIVE.fullmatch(line.node)
    if relative is not None and int(relative.group(1)) < len(names):
        return int(relative.group(1))
    for number, known in enumerate(names):
        if line.node in known:
            return number
    others = ", ".join([known[0] for known in names])
    raise ValueError(f"the rankfile places rank {line.rank} on {line.node}, and the job has the nodes {others:.200}")


def cpus_of(line: Line, cpus: Cpus, binding: Binding) -> int:
    """Return the CPUs of a line on its node.

    Raises:
        ValueError: The node does not have them, or ranks may not use them.
    """
    found = 0
    for part in line.slot.split(";"):
        package, cores = _parse(part)
        units = [(index, own) for index, own in cpus.shape.objects(binding.unit) if own & cpus.allowed(binding)]
        if package is not None:
            inside = dict(cpus.shape.objects("package")).get(package, 0)
            # The cores of a package are counted from its first one.
            units = [(place, own) for place, (_, own) in enumerate([each for each in units if each[1] & inside])]
        known = dict(units)
        wanted = list(known) if cores == -1 else list(numbers(cores))
        if not wanted or any(each not in known for each in wanted):
            raise ValueError(
                f"the rankfile gives rank {line.rank} the {binding.unit}s {part} of {cpus.name}, which has, or lets "
                f"ranks use, {len(known)} of them{'' if package is None else ' there'}"
            )
        for each in wanted:
            found |= known[each]
    return found
