"""The dicts of the official binding for structures such as `PMIX_PROC_INFO` and `PMIX_ENVAR`."""

from __future__ import annotations

from array import array

from pypmix.compat.scalars import (
    from_bytes,
    from_proc,
    from_text,
    listed,
    member,
    optional,
    refused,
    to_bytes,
    to_int,
    to_key,
    to_proc,
    to_text,
    whole,
)
from pypmix.standard import codes, statuses, structures, types
from pypmix.standard.errors import PMIxError
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, TypeVar

    R = TypeVar("R", bound=Record)

HWLOC = "hwloc"

MOST_CPUS = 1 << 16
"""The maximum number of cpus in a list, so that a typing error in a range does not fill the memory."""


Form = tuple["Callable[[object], Any]", "Callable[[Any], Any]"]
"""Pairs of functions that convert a member of a dict to a field and back."""

_TEXT: Form = (optional, from_text)
_BYTES: Form = (to_bytes, from_bytes)


def _number(type: int) -> Form:
    return lambda given: to_int(type, given), int


def _separator(value: object) -> str:
    if isinstance(value, int) and 0 <= value < 128:
        value = chr(value)
    text = to_text(value)
    if len(text) != 1 or ord(text) > 127:
        raise refused(f"a separator is one character of ASCII, not {text!r:.80}")
    return text


_NAMED = {"uuid": _TEXT, "osname": _TEXT}

LAYOUTS: dict[type[Record], dict[str, Form]] = {
    structures.Timeval: {"sec": _number(codes.INT64), "usec": _number(codes.INT64)},
    types.ProcInfo: {
        "proc": (to_proc, from_proc),
        "hostname": _TEXT,
        "executable": _TEXT,
        "pid": _number(codes.PID),
        "state": _number(codes.PROC_STATE),
        "exitcode": _number(codes.INT),
    },
    types.Envar: {"envar": _TEXT, "value": _TEXT, "separator": (_separator, str)},
    types.DeviceDistance: {
        **_NAMED,
        "type": _number(codes.DEVTYPE),
        "mindist": _number(codes.UINT16),
        "maxdist": _number(codes.UINT16),
    },
    structures.Endpoint: {**_NAMED, "endpt": _BYTES},
    structures.Device: {**_NAMED, "type": _number(codes.DEVTYPE)},
    structures.ResourceUnit: {"type": _number(codes.DEVTYPE), "count": _number(codes.SIZE)},
    structures.NodePid: {"hostname": _TEXT, "nodeid": _number(codes.UINT32), "pid": _number(codes.PID)},
}
"""The members of the dicts of plain records, in the order of their fields."""

_DEFAULTS: dict[type[Record], dict[str, Any]] = {
    types.DeviceDistance: {"type": 0},
    structures.Endpoint: {"endpt": None},
    structures.ResourceUnit: {"type": 0, "count": 0},
}
"""The members that may be missing."""


def to_record(cls: type[R], value: object) -> R:
    """Return the record of a class in `LAYOUTS` from a dict."""
    if cls in _DEFAULTS and isinstance(value, dict):
        value = _DEFAULTS[cls] | value
    return cls(*[take(member(value, name)) for name, (take, _) in LAYOUTS[cls].items()])


def from_record(record: Record) -> dict[str, Any]:
    """Return the dict of a record of a class in `LAYOUTS`."""
    layout = LAYOUTS[type(record)]
    return {name: give(data) for (name, (_, give)), data in zip(layout.items(), record.astuple(), strict=True)}


def to_units(value: object) -> tuple[structures.ResourceUnit, ...]:
    """Return the resource units of a list of dicts; empty for None."""
    return tuple([to_record(structures.ResourceUnit, each) for each in listed(value, "resource units")])


def to_coord(value: object) -> structures.Coord:
    """Return coordinates from a dict."""
    view = to_int(codes.UINT32, value.get("view", 0) if isinstance(value, dict) else member(value, "view"))
    found = member(value, "coord", "coords")
    if isinstance(found, list | tuple):
        numbers = [to_int(codes.UINT32, each) for each in found]
    else:
        data = to_bytes(found)
        if len(data) % 4:
            raise refused(f"coordinates have four bytes each, and {len(data)} bytes are not a whole number of them")
        numbers = array("I", data).tolist()
    dims = value.get("dims", len(numbers)) if isinstance(value, dict) else len(numbers)
    if to_int(codes.SIZE, dims) > len(numbers):
        raise refused(f"{dims} dimensions, and only {len(numbers)} coordinates")
    return structures.Coord(view, tuple(numbers[:dims]))


def from_coord(coord: structures.Coord) -> dict[str, Any]:
    """Return the dict of coordinates."""
    return {"view": int(coord.view), "coord": array("I", coord.coords).tobytes(), "dims": len(coord.coords)}


def to_geometry(value: object) -> structures.Geometry:
    """Return a device's coordinates from a dict."""
    value = {"coords": None} | value if isinstance(value, dict) else value
    coords = member(value, "coordinates", "coords")
    return structures.Geometry(
        to_int(codes.SIZE, member(value, "fabric")),
        optional(member(value, "uuid")),
        optional(member(value, "osname")),
        tuple([to_coord(each) for each in listed(coords, "coordinates")]),
    )


def from_geometry(geometry: structures.Geometry) -> dict[str, Any]:
    """Return the dict of a device's coordinates."""
    coords = [from_coord(each) for each in geometry.coordinates]
    named = {"fabric": geometry.fabric, "uuid": from_text(geometry.uuid), "osname": from_text(geometry.osname)}
    return {**named, "ncoords": len(coords), "coords": coords}


def to_regattr(value: object) -> types.RegAttr:
    """Return the registered attribute of `{'name', 'key', 'type', 'description'}`; the appendix also has `info`."""
    value = {"description": None} | value if isinstance(value, dict) else value
    return types.RegAttr(
        optional(member(value, "name")),
        to_key(member(value, "key", "string")),
        to_int(codes.DATA_TYPE, member(value, "type")),
        tuple([whole(to_text(line)) for line in listed(member(value, "description"), "strings")]),
    )


def from_regattr(regattr: types.RegAttr) -> dict[str, Any]:
    """Return the dict of a registered attribute."""
    about: dict[str, Any] = {"name": from_text(regattr.name), "key": regattr.key, "type": int(regattr.type), "info": []}
    return {**about, "description": [from_text(line) for line in regattr.description]}


def cpus_of(ranges: str) -> list[int]:
    """Return the numbers of a list of ranges such as `0-3,8`."""
    cpus: list[int] = []
    for part in filter(None, [word.strip() for word in ranges.split(",")]):
        first, _, last = part.partition("-")
        try:
            low, high = int(first), int(last or first)
        except ValueError as error:
            raise refused(f"{part!r:.40} is not a range of cpus") from error
        if not 0 <= low <= high or high - low >= MOST_CPUS or len(cpus) > MOST_CPUS:
            raise refused(f"{part!r:.40} is not a range of cpus")
        cpus.extend(range(low, high + 1))
    return cpus


def ranges_of(cpus: Iterable[int]) -> str:
    """Return the shortest list of ranges of some numbers."""
    spans: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if spans and spans[-1][1] == cpu - 1:
            spans[-1][1] = cpu
        else:
            spans.append([cpu, cpu])
    return ",".join([f"{low}-{high}" if high > low else f"{low}" for low, high in spans])


def to_cpuset(value: object) -> structures.Cpuset:
    """Return the binding of `{'source': 'hwloc', 'cpus': ...}`: numbers, ranges, or a string of ranges."""
    value = {"source": HWLOC} | value if isinstance(value, dict) else value
    source = to_text(member(value, "source"))
    cpus = member(value, "cpus")
    if not source and not cpus:
        return structures.Cpuset(None)
    if source != HWLOC:
        raise refused(f"cpus are counted as hwloc does, not as {source!r:.40}", statuses.ERR_NOT_SUPPORTED)
    if isinstance(cpus, list | tuple):
        cpus = ",".join([str(each) if isinstance(each, int) else to_text(each) for each in cpus])
    return structures.Cpuset(ranges_of(cpus_of(to_text(cpus))))


def from_cpuset(cpuset: structures.Cpuset) -> dict[str, Any]:
    """Return the dict of a binding; the binding of a process that is not bound has neither source nor cpus."""
    if cpuset.cpus is None:
        return {"source": "", "cpus": []}
    try:
        return {"source": HWLOC, "cpus": cpus_of(cpuset.cpus)}
    except PMIxError:
        return {"source": HWLOC, "cpus": cpuset.cpus}  # a peer's text is returned also if it is malformed


def to_topology(value: object) -> structures.Topology:
    """Return the topology of `{'source': 'hwloc', 'topology': XML}`."""
    value = {"source": HWLOC, "support": b""} | value if isinstance(value, dict) else value
    source = to_text(member(value, "source"))
    if not source.startswith(HWLOC):
        raise refused(f"topologies are hwloc's, not {source!r:.40}", statuses.ERR_NOT_SUPPORTED)
    return structures.Topology(optional(member(value, "topology")), to_bytes(member(value, "support")))


def from_topology(topology: structures.Topology) -> dict[str, Any]:
    """Return the dict of a topology."""
    return {"source": HWLOC, "topology": from_text(topology.xml), "support": topology.support}


def to_regex2(value: object) -> structures.Regex2:
    """Return the encoded list of `{'type', 'bytes', 'len'}`."""
    encoding = optional(member(value, "type"))
    if encoding is None:
        raise refused("an encoded list names its encoding")
    data = to_bytes(member(value, "bytes"))
    length = value.get("len") if isinstance(value, dict) else None
    return structures.Regex2(encoding, data[:length] if isinstance(length, int) and 0 <= length < len(data) else data)


def from_regex2(regex2: structures.Regex2) -> dict[str, Any]:
    """Return the dict of an encoded list."""
    return {"type": from_text(regex2.encoding), "bytes": regex2.data, "len": len(regex2.data)}
