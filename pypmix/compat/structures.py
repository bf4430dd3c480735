"""The dicts of the official binding that stand for structures, such as `PMIX_PROC_INFO` and `PMIX_ENVAR`."""

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
from pypmix.standard import codes, statuses, types
from pypmix.standard.errors import PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

HWLOC = "hwloc"

MOST_CPUS = 1 << 16
"""The cpus that a list of them may name, so that a typing error in a range does not fill the memory."""


def to_timeval(given: object) -> types.Timeval:
    """Return a time of seconds and microseconds from a dict."""
    return types.Timeval(to_int(codes.INT64, member(given, "sec")), to_int(codes.INT64, member(given, "usec")))


def to_proc_info(given: object) -> types.ProcInfo:
    """Return what is known of a process from a dict."""
    return types.ProcInfo(
        to_proc(member(given, "proc")),
        optional(member(given, "hostname")),
        optional(member(given, "executable")),
        to_int(codes.PID, member(given, "pid")),
        to_int(codes.PROC_STATE, member(given, "state")),
        to_int(codes.INT, member(given, "exitcode")),
    )


def from_proc_info(found: types.ProcInfo) -> dict[str, Any]:
    """Return the dict of what is known of a process."""
    return {
        "proc": from_proc(found.proc),
        "hostname": from_text(found.hostname),
        "executable": from_text(found.executable),
        "pid": found.pid,
        "exitcode": found.exit_code,
        "state": int(found.state),
    }


def to_envar(given: object) -> types.Envar:
    """Return a change to an environment variable from a dict."""
    separator = member(given, "separator")
    if isinstance(separator, int) and 0 <= separator < 128:
        separator = chr(separator)
    text = to_text(separator)
    if len(text) != 1 or ord(text) > 127:
        raise refused(f"a separator is one character of ASCII, not {text!r:.80}")
    return types.Envar(optional(member(given, "envar")), optional(member(given, "value")), text)


def from_envar(found: types.Envar) -> dict[str, Any]:
    """Return the dict of a change to an environment variable."""
    return {"envar": from_text(found.name), "value": from_text(found.value), "separator": found.separator}


def to_coord(given: object) -> types.Coord:
    """Return coordinates from a dict."""
    view = to_int(codes.UINT32, given.get("view", 0) if isinstance(given, dict) else member(given, "view"))
    found = member(given, "coord", "coords")
    if isinstance(found, list | tuple):
        numbers = [to_int(codes.UINT32, each) for each in found]
    else:
        data = to_bytes(found)
        if len(data) % 4:
            raise refused(f"coordinates have four bytes each, and {len(data)} bytes are not a whole number of them")
        numbers = array("I", data).tolist()
    dims = given.get("dims", len(numbers)) if isinstance(given, dict) else len(numbers)
    if to_int(codes.SIZE, dims) > len(numbers):
        raise refused(f"{dims} dimensions, and only {len(numbers)} coordinates")
    return types.Coord(view, tuple(numbers[:dims]))


def from_coord(found: types.Coord) -> dict[str, Any]:
    """Return the dict of coordinates."""
    return {"view": int(found.view), "coord": array("I", found.coords).tobytes(), "dims": len(found.coords)}


def to_geometry(given: object) -> types.Geometry:
    """Return a device's coordinates from a dict."""
    given = {"coords": None} | given if isinstance(given, dict) else given
    coords = member(given, "coordinates", "coords")
    return types.Geometry(
        to_int(codes.SIZE, member(given, "fabric")),
        optional(member(given, "uuid")),
        optional(member(given, "osname")),
        tuple([to_coord(each) for each in listed(coords, "coordinates")]),
    )


def from_geometry(found: types.Geometry) -> dict[str, Any]:
    """Return the dict of a device's coordinates."""
    coords = [from_coord(each) for each in found.coordinates]
    named = {"fabric": found.fabric, "uuid": from_text(found.uuid), "osname": from_text(found.osname)}
    return {**named, "ncoords": len(coords), "coords": coords}


def to_distance(given: object) -> types.DeviceDistance:
    """Return a device's distance from a dict."""
    given = {"type": 0} | given if isinstance(given, dict) else given
    return types.DeviceDistance(
        optional(member(given, "uuid")),
        optional(member(given, "osname")),
        to_int(codes.DEVTYPE, member(given, "type")),
        to_int(codes.UINT16, member(given, "mindist")),
        to_int(codes.UINT16, member(given, "maxdist")),
    )


def from_distance(found: types.DeviceDistance) -> dict[str, Any]:
    """Return the dict of a device's distance."""
    named = {"uuid": from_text(found.uuid), "osname": from_text(found.osname), "type": int(found.type)}
    return {**named, "mindist": found.mindist, "maxdist": found.maxdist}


def to_endpoint(given: object) -> types.Endpoint:
    """Return an endpoint from a dict."""
    given = {"endpt": None} | given if isinstance(given, dict) else given
    names = optional(member(given, "uuid")), optional(member(given, "osname"))
    return types.Endpoint(*names, to_bytes(member(given, "endpt")))


def from_endpoint(found: types.Endpoint) -> dict[str, Any]:
    """Return the dict of an endpoint."""
    named = {"uuid": from_text(found.uuid), "osname": from_text(found.osname)}
    return {**named, "endpt": from_bytes(found.endpoint)}


def to_device(given: object) -> types.Device:
    """Return a device from a dict."""
    names = optional(member(given, "uuid")), optional(member(given, "osname"))
    return types.Device(*names, to_int(codes.DEVTYPE, member(given, "type")))


def from_device(found: types.Device) -> dict[str, Any]:
    """Return the dict of a device."""
    return {"uuid": from_text(found.uuid), "osname": from_text(found.osname), "type": int(found.type)}


def to_unit(given: object) -> types.ResourceUnit:
    """Return the resource unit of `{'type': ..., 'count': ...}`."""
    given = {"type": 0, "count": 0} | given if isinstance(given, dict) else given
    return types.ResourceUnit(to_int(codes.DEVTYPE, member(given, "type")), to_int(codes.SIZE, member(given, "count")))


def from_unit(found: types.ResourceUnit) -> dict[str, Any]:
    """Return the dict of a resource unit."""
    return {"type": int(found.type), "count": found.count}


def to_units(given: object) -> tuple[types.ResourceUnit, ...]:
    """Return the resource units of a list of dicts; none for None."""
    return tuple([to_unit(each) for each in listed(given, "resource units")])


def from_units(found: Iterable[types.ResourceUnit]) -> list[dict[str, Any]]:
    """Return the list of dicts of resource units."""
    return [from_unit(each) for each in found]


def to_node_pid(given: object) -> types.NodePid:
    """Return a process id and its node from a dict."""
    return types.NodePid(
        optional(member(given, "hostname")),
        to_int(codes.UINT32, member(given, "nodeid")),
        to_int(codes.PID, member(given, "pid")),
    )


def from_node_pid(found: types.NodePid) -> dict[str, Any]:
    """Return the dict of a process id and its node."""
    return {"hostname": from_text(found.hostname), "nodeid": found.nodeid, "pid": found.pid}


def to_regattr(given: object) -> types.RegAttr:
    """Return a registered attribute of `{'name', 'key', 'type', 'description'}`; the appendix has `info` as well."""
    given = {"description": None} | given if isinstance(given, dict) else given
    return types.RegAttr(
        optional(member(given, "name")),
        to_key(member(given, "key", "string")),
        to_int(codes.DATA_TYPE, member(given, "type")),
        tuple([whole(to_text(line)) for line in listed(member(given, "description"), "strings")]),
    )


def from_regattr(found: types.RegAttr) -> dict[str, Any]:
    """Return the dict of a registered attribute."""
    about: dict[str, Any] = {"name": from_text(found.name), "key": found.key, "type": int(found.type), "info": []}
    return {**about, "description": [from_text(line) for line in found.description]}


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


def to_cpuset(given: object) -> types.Cpuset:
    """Return the binding of `{'source': 'hwloc', 'cpus': ...}`: numbers, ranges, or a string of ranges."""
    given = {"source": HWLOC} | given if isinstance(given, dict) else given
    source = to_text(member(given, "source"))
    cpus = member(given, "cpus")
    if not source and not cpus:
        return types.Cpuset(None)
    if source != HWLOC:
        raise refused(f"cpus are counted as hwloc does, not as {source!r:.40}", statuses.ERR_NOT_SUPPORTED)
    if isinstance(cpus, list | tuple):
        cpus = ",".join([str(each) if isinstance(each, int) else to_text(each) for each in cpus])
    return types.Cpuset(ranges_of(cpus_of(to_text(cpus))))


def from_cpuset(found: types.Cpuset) -> dict[str, Any]:
    """Return the dict of a binding; the binding of a process that is not bound has neither source nor cpus."""
    if found.cpus is None:
        return {"source": "", "cpus": []}
    try:
        return {"source": HWLOC, "cpus": cpus_of(found.cpus)}
    except PMIxError:
        return {"source": HWLOC, "cpus": found.cpus}  # what a peer sends is shown, whatever it is


def to_topology(given: object) -> types.Topology:
    """Return the topology of `{'source': 'hwloc', 'topology': XML}`."""
    given = {"source": HWLOC, "support": b""} | given if isinstance(given, dict) else given
    source = to_text(member(given, "source"))
    if not source.startswith(HWLOC):
        raise refused(f"topologies are hwloc's, not {source!r:.40}", statuses.ERR_NOT_SUPPORTED)
    return types.Topology(optional(member(given, "topology")), to_bytes(member(given, "support")))


def from_topology(found: types.Topology) -> dict[str, Any]:
    """Return the dict of a topology."""
    return {"source": HWLOC, "topology": from_text(found.xml), "support": found.support}


def to_regex2(given: object) -> types.Regex2:
    """Return the encoded list of `{'type', 'bytes', 'len'}`."""
    encoding = optional(member(given, "type"))
    if encoding is None:
        raise refused("an encoded list names its encoding")
    data = to_bytes(member(given, "bytes"))
    length = given.get("len") if isinstance(given, dict) else None
    return types.Regex2(encoding, data[:length] if isinstance(length, int) and 0 <= length < len(data) else data)


def from_regex2(found: types.Regex2) -> dict[str, Any]:
    """Return the dict of an encoded list."""
    return {"type": from_text(found.encoding), "bytes": found.data, "len": len(found.data)}
