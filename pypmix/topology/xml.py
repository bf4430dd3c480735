"""hwloc's XML of a machine, which libraries of hwloc 2 and 3 read: written and parsed."""

from __future__ import annotations

from pypmix.topology.bitmaps import format_mask, parse_mask
from pypmix.topology.machine import DEVICES, MACHINE, MISC, Machine, Object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE topology SYSTEM "hwloc2.dtd">\n<topology version="2.0">\n'
SUPPORT = ("discovery.pu", "discovery.numa", "discovery.numa_memory", "custom.exported_support")

MAX_OBJECTS = 1 << 20
"""The largest number of objects in a text that is read."""
MAX_DEPTH = 64

_SETS = {
    "cpuset": "cpus",
    "complete_cpuset": "complete_cpus",
    "nodeset": "nodes",
    "complete_nodeset": "complete_nodes",
}
_KEPT = frozenset({*_SETS, "type", "os_index", "gp_index", "allowed_cpuset", "allowed_nodeset", "online_cpuset"})
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "\n": "&#10;", "\t": "&#9;", "\r": "&#13;"}

_OLD_TYPES = {"Socket": "Package", "NUMANode": "NUMANode"}
_OLD_CACHES = "Cache"


def write_xml(machine: Machine) -> str:
    """Return the XML of a machine.

    Example:
        >>> text = write_xml(read_machine())
    """
    parts = [HEAD]
    numbers = [0]
    _write(machine, machine.root, "  ", numbers, parts)
    parts += [f'  <support name="{name}"/>\n' for name in SUPPORT]
    parts.append("</topology>\n")
    return "".join(parts)


def _write(machine: Machine, item: Object, margin: str, numbers: list[int], parts: list[str]) -> None:
    numbers[0] += 1
    number = f' os_index="{item.number}"' if item.number is not None else ""
    parts.append(f'{margin}<object type="{item.type}"{number}')
    if item.type not in DEVICES and item.type != MISC:
        parts.append(f' cpuset="{format_mask(item.cpus)}" complete_cpuset="{format_mask(item.complete_cpus)}"')
        if item.type == MACHINE:
            parts.append(f' allowed_cpuset="{format_mask(machine.allowed_cpus)}"')
        parts.append(f' nodeset="{format_mask(item.nodes)}" complete_nodeset="{format_mask(item.complete_nodes)}"')
        if item.type == MACHINE:
            parts.append(f' allowed_nodeset="{format_mask(machine.allowed_nodes)}"')
    parts.append(f' gp_index="{numbers[0]}"')
    parts += [f' {name}="{_escape(text)}"' for name, text in item.attributes.items()]
    inner = (*item.memory, *item.children, *item.devices, *item.others)
    if not inner and not item.pages and not item.infos:
        parts.append("/>\n")
        return
    parts.append(">\n")
    parts += [f'{margin}  <page_type size="{size}" count="{count}"/>\n' for size, count in item.pages]
    parts += [f'{margin}  <info name="{_escape(name)}" value="{_escape(text)}"/>\n' for name, text in item.infos]
    for child in inner:
        _write(machine, child, margin + "  ", numbers, parts)
    parts.append(f"{margin}</object>\n")


def _escape(text: str) -> str:
    if text.isalnum():
        return text
    # What XML cannot contain is left out, as hwloc does.
    return "".join([_ESCAPES.get(c, c) for c in text if c >= " " or c in "\n\t\r"])


def read_xml(text: str | bytes) -> Machine:
    """Parse hwloc's XML, of its releases 1 to 3.

    Raises:
        ValueError: It is not the XML of a machine.

    Example:
        >>> machine = read_xml(write_xml(read_machine()))
    """
    from xml.parsers.expat import ExpatError, ParserCreate

    reader = _Reader()
    parser = ParserCreate("UTF-8")
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.EntityDeclHandler = reader.refuse
    try:
        parser.Parse(text, True)
    except ExpatError as error:
        raise ValueError(f"this is not the XML of a machine: {error}") from None
    return reader.machine()


class _Reader:
    """The handlers of a parser: they build the tree of objects."""

    def __init__(self) -> None:
        self._root: Object | None = None
        self._path: list[Object | None] = []
        self._objects = 0
        self._allowed: tuple[int, int] | None = None

    def refuse(self, *_about: Any) -> None:
        raise ValueError("the XML of a machine declares no entities")

    def start(self, name: str, attributes: dict[str, str]) -> None:
        within = self._path[-1] if self._path else None
        made = None
        if name == "object":
            made = self._make(attributes, within)
        elif name == "info" and within is not None:
            within.infos.append((attributes.get("name", ""), attributes.get("value", "")))
        elif name == "page_type" and within is not None:
            within.pages.append((_number(attributes.get("size", "0")), _number(attributes.get("count", "0"))))
        elif not self._path and name not in ("topology", "root"):
            raise ValueError(f"this is not the XML of a machine, but of a {name:.80}")
        if len(self._path) > MAX_DEPTH:
            raise ValueError(f"the XML of a machine has at most {MAX_DEPTH} levels")
        self._path.append(made if made is not None else within)

    def end(self, _name: str) -> None:
        self._path.pop()

    def _make(self, attributes: dict[str, str], within: Object | None) -> Object:
        self._objects += 1
        if self._objects > MAX_OBJECTS:
            raise ValueError(f"the XML of a machine has at most {MAX_OBJECTS} objects")
        type = attributes.get("type", "")
        if type == _OLD_CACHES:
            type = f"L{_number(attributes.get('depth', '0'))}{'i' if attributes.get('cache_type') == '2' else ''}Cache"
        made = Object(_OLD_TYPES.get(type, type))
        if "os_index" in attributes:
            made.number = _number(attributes["os_index"])
        for name, field in _SETS.items():
            if name in attributes:
                setattr(made, field, parse_mask(attributes[name]))
        made.attributes = {name: text for name, text in attributes.items() if name not in _KEPT}
        if within is not None:
            within.add(made)
        elif self._root is not None or made.type != MACHINE:
            raise ValueError(f"the outermost object is the machine, not a {made.type:.80}")
        else:
            self._root = made
            self._allowed = tuple([parse_mask(attributes[name]) if name in attributes else -1 for name in _ALLOWED])  # type: ignore[assignment]
        return made

    def machine(self) -> Machine:
        """Return the machine that was read."""
        if self._root is None or self._allowed is None:
            raise ValueError("the XML holds no machine")
        if not self._root.cpus:
            raise ValueError("the machine in the XML has no CPUs")
        found = Machine(self._root)
        found.allowed_cpus, found.allowed_nodes = (
            sets & own for sets, own in zip(self._allowed, (self._root.cpus, self._root.nodes), strict=True)
        )
        return found


_ALLOWED = ("allowed_cpuset", "allowed_nodeset")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r:.80} is not a number") from None
