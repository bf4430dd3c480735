"""Locality strings, such as `SK0:L30:CR0-1:HT0-3:NM0`: the hardware that a process may run on.

Each part is a kind of hardware and the indexes of its objects, from the outermost level to the innermost one; NUMA
nodes, which have no level, come last.
"""

from __future__ import annotations

from pypmix.topology.bitmaps import format_list, parse_list
from pypmix.topology.machine import CORE, L1, L2, L3, NUMA, PACKAGE, PU

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.standard.enums import Locality
    from pypmix.topology.machine import Machine

SOURCE = "hwloc"
"""The name before the colon of a cpuset string."""

CODES = {PACKAGE: "SK", L3: "L3", L2: "L2", L1: "L1", CORE: "CR", PU: "HT", NUMA: "NM"}

SHARED = {
    "HT": "SHARE_HWTHREAD",
    "CR": "SHARE_CORE",
    "L1": "SHARE_L1CACHE",
    "L2": "SHARE_L2CACHE",
    "L3": "SHARE_L3CACHE",
    "SK": "SHARE_PACKAGE",
    "NM": "SHARE_NUMA",
}
"""The names in `Locality`, which launchers do not load."""


def format_locality(machine: Machine, cpus: int) -> str | None:
    """Return the locality string of a process that is bound to CPUs of a machine.

    Args:
        machine: The machine.
        cpus: The CPUs; -1 if the process is not bound.

    Returns:
        None if it is not bound, or to none of the machine's CPUs.

    Example:
        >>> machine = read_machine()
        >>> where = format_locality(machine, machine.of_type("PU")[0].cpus)
    """
    if cpus == -1:
        return None
    parts = []
    levels = [(level[0].type, level) for level in machine.levels[1:]]
    for type, objects in (*levels, (NUMA, machine.numa)):
        if type not in CODES:
            continue
        indexes = 0
        for index, each in enumerate(objects):
            if each.cpus & cpus:
                indexes |= 1 << index
        if indexes:
            parts.append(f"{CODES[type]}{format_list(indexes)}")
    return ":".join(parts) or None


def read_locality(text: str) -> dict[str, int]:
    """Parse a locality string, with or without `hwloc:` before it.

    Returns:
        The indexes of the objects of each kind, by its code.

    Raises:
        ValueError: It is not a locality string of hwloc.

    Example:
        >>> read_locality("hwloc:SK0:CR0-1")
        {'SK': 1, 'CR': 3}
    """
    words = text[len(SOURCE) + 1 :] if text[: len(SOURCE) + 1].lower() == f"{SOURCE}:" else text
    if words[:2].upper() not in SHARED and words == text:
        raise ValueError(f"a locality is written as SK0:CR0-1:HT0-3, not as {text!r:.80}")
    found: dict[str, int] = {}
    for word in words.split(":"):
        if word:
            try:
                indexes = parse_list(word[2:])
            except ValueError:
                indexes = 0
            found.setdefault(word[:2], indexes)
    return found


def relative_locality(one: str, other: str) -> Locality:
    """Return the hardware that two processes on one node share, by their locality strings.

    Raises:
        ValueError: One of them is not a locality string of hwloc.

    Example:
        >>> relative_locality("SK0:CR0", "SK0:CR1") == Locality.SHARE_NODE | Locality.SHARE_PACKAGE
        True
    """
    from pypmix.standard.enums import Locality

    mine, others = read_locality(one), read_locality(other)
    found = Locality.SHARE_NODE
    for code, indexes in mine.items():
        if indexes & others.get(code, 0):
            if code not in SHARED:
                raise ValueError(f"{code} in {one!r:.80} is not a kind of hardware")
            found |= Locality[SHARED[code]]
    return found


def format_cpuset(cpus: int) -> str:
    """Return a set of CPUs as libpmix writes it: `hwloc:0-3,8`.

    Example:
        >>> format_cpuset(parse_list("0-3,8"))
        'hwloc:0-3,8'
    """
    return f"{SOURCE}:{format_list(cpus)}"


def parse_cpuset(text: str) -> int:
    """Return the CPUs of a text such as `hwloc:0-3,8`.

    Raises:
        ValueError: It is not one of hwloc.

    Example:
        >>> format_list(parse_cpuset("hwloc:0-3,8"))
        '0-3,8'
    """
    source, colon, cpus = text.partition(":")
    if not colon or source[: len(SOURCE)].lower() != SOURCE:
        raise ValueError(f"a cpuset is written as hwloc:0-3, not as {text!r:.80}")
    return parse_list(cpus)
