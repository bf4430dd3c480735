"""The C structures that hold no values: strings, procs, and the records whose fields are plain.

Memory is malloc's and starts zeroed; every piece is attached to its parent before it is filled, so that whatever has
been made when something fails can be freed as a whole.
"""

from __future__ import annotations

from pypmix.engine.native._ffi import ffi, lib
from pypmix.standard import codes, types
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.types import Proc
from pypmix.standard.values import type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    Put = Callable[[Any, Any, Any], None]
    Get = Callable[[Any, Any], Any]

NULL = ffi.NULL


def text(name: str) -> bytes:
    """Return a name or string as libpmix stores it."""
    return name.encode() if name.isascii() else name.encode("utf-8", "surrogateescape")


def string(pointer: Any) -> str | None:
    """Return a C string as Python has it, None for NULL."""
    if not pointer:
        return None
    return str(ffi.string(pointer).decode("utf-8", "surrogateescape"))


def alloc(kind: int, count: int, pointer: str) -> Any:
    memory = lib.pypmix_alloc(count, lib.pypmix_size_of(kind))
    if not memory:
        raise MemoryError(f"no memory for {count} elements of {type_name(kind)}")
    return ffi.cast(pointer, memory)


def copy_text(data: str | None) -> Any:
    if data is None:
        return NULL
    encoded = text(data)
    if b"\0" in encoded:
        raise ValueError(f"a C string cannot hold a NUL character: {data!r:.80}")
    return copy_bytes(encoded)


def fill_strings(target: Any, field: str, items: Sequence[str]) -> None:
    memory = lib.pypmix_alloc(len(items) + 1, ffi.sizeof("char *"))
    if not memory:
        raise MemoryError(f"no memory for {len(items)} strings")
    strings = ffi.cast("char **", memory)
    setattr(target, field, strings)
    for n, item in enumerate(items):
        strings[n] = copy_text(item)


def get_strings(strings: Any) -> tuple[str, ...]:
    found = []
    if strings:
        n = 0
        while strings[n]:
            found.append(string(strings[n]) or "")
            n += 1
    return tuple(found)


def put_name(target: Any, name: str) -> None:
    encoded = text(name)
    if len(encoded) >= len(target):
        raise ValueError(f"a name of {len(encoded)} bytes is longer than {len(target) - 1}: {name[:40]!r}...")
    ffi.memmove(target, encoded, len(encoded))


def get_name(source: Any) -> str:
    return str(ffi.string(source).decode("utf-8", "surrogateescape"))


def put_proc(target: Any, proc: Proc) -> None:
    put_name(target.nspace, proc[0])
    target.rank = proc[1]


def get_proc(source: Any) -> Proc:
    return Proc.unchecked(get_name(source.nspace), source.rank)


def copy_bytes(data: bytes) -> Any:
    copy = lib.pypmix_copy(data, len(data))
    if not copy:
        raise MemoryError(f"no memory for {len(data)} bytes")
    return copy


def put_object(target: Any, data: bytes) -> None:
    if data:
        target.bytes = copy_bytes(data)
        target.size = len(data)


def get_object(source: Any) -> bytes:
    return bytes(ffi.buffer(source.bytes, source.size)) if source.bytes and source.size else b""


def put_timeval(target: Any, data: types.Timeval) -> None:
    target.tv_sec = data.sec
    target.tv_usec = data.usec


def get_timeval(source: Any) -> types.Timeval:
    return types.Timeval(source.tv_sec, source.tv_usec)


def put_envar(target: Any, data: types.Envar) -> None:
    target.envar = copy_text(data.name)
    target.value = copy_text(data.value)
    separator = data.separator.encode("latin-1", "replace") or b"\0"
    if len(separator) != 1:
        raise ValueError(f"the separator of an environment variable is one character, not {data.separator!r}")
    target.separator = separator


def get_envar(source: Any) -> types.Envar:
    separator = source.separator.decode("latin-1").rstrip("\0")
    return types.Envar(string(source.envar), string(source.value), separator)


def record_layout(record: type, layout: str) -> tuple[Put, Get]:
    """Return writer and reader of a record for a structure of numbers, strings (s), procs (p), times (t), bytes (b).

    The layout names the structure's fields in the record's order, each with its letter unless it is a number.
    """
    fields: tuple[str, ...] = record.__fields__  # type: ignore[attr-defined]
    plan = []
    for here, word in zip(fields, layout.split(), strict=True):
        there, _, letter = word.partition(":")
        plan.append((there, here, letter))

    def put(_marshal: Any, target: Any, data: Any) -> None:
        for there, here, letter in plan:
            item = getattr(data, here)
            if letter == "s":
                setattr(target, there, copy_text(item))
            elif letter == "p":
                put_proc(getattr(target, there), item)
            elif letter == "t":
                put_timeval(getattr(target, there), item)
            elif letter == "b":
                put_object(getattr(target, there), item)
            else:
                setattr(target, there, item)

    def get(_marshal: Any, source: Any) -> Any:
        items: list[Any] = []
        for there, _here, letter in plan:
            item = getattr(source, there)
            if letter == "s":
                items.append(string(item))
            elif letter == "p":
                items.append(get_proc(item))
            elif letter == "t":
                items.append(get_timeval(item))
            elif letter == "b":
                items.append(get_object(item))
            else:
                items.append(item)
        return record(*items)

    return put, get


def plain_put(put: Callable[[Any, Any], None]) -> Put:
    return lambda _marshal, target, data: put(target, data)


def plain_get(get: Callable[[Any], Any]) -> Get:
    return lambda _marshal, source: get(source)


def put_regattr(_marshal: Any, target: Any, data: types.RegAttr) -> None:
    target.name = copy_text(data.name)
    put_name(target.string, data.key)
    target.type = data.type
    fill_strings(target, "description", data.description)


def get_regattr(_marshal: Any, source: Any) -> types.RegAttr:
    return types.RegAttr(string(source.name), get_name(source.string), source.type, get_strings(source.description))


def put_regex2(_marshal: Any, target: Any, data: types.Regex2) -> None:
    target.type = copy_text(data.encoding)
    target.bytes = ffi.cast("uint8_t *", copy_bytes(data.data))
    target.len = len(data.data)


def get_regex2(_marshal: Any, source: Any) -> types.Regex2:
    return types.Regex2(string(source.type), bytes(ffi.buffer(source.bytes, source.len)) if source.bytes else b"")


LOADS = (
    "la",
    "la5",
    "la15",
    "total_mem",
    "free_mem",
    "buffers",
    "cached",
    "swap_cached",
    "swap_total",
    "swap_free",
    "mapped",
)
"""The fields of node statistics that are floats in both worlds."""

_DISK = "disk:s num_reads_completed num_reads_merged num_sectors_read milliseconds_reading num_writes_completed \
num_writes_merged num_sectors_written milliseconds_writing num_ios_in_progress milliseconds_io \
weighted_milliseconds_io"
_NET = "net_interface:s num_bytes_recvd num_packets_recvd num_recv_errs num_bytes_sent num_packets_sent num_send_errs"

put_disk_stats, get_disk_stats = record_layout(types.DiskStats, _DISK)
put_net_stats, get_net_stats = record_layout(types.NetStats, _NET)


def put_cpuset(_marshal: Any, target: Any, data: types.Cpuset) -> None:
    if data.cpus is None:
        raise NotSupported("libpmix has no cpuset without CPUs to put")
    status = lib.pypmix_parse_cpuset(b"hwloc:" + text(data.cpus), ffi.addressof(target))
    if status:
        raise NotSupported(f"the library does not take the cpuset {data.cpus!r}", status=status)
    if data.cpus and get_cpuset(_marshal, target).cpus == "":
        # it takes any text, and has no CPUs then
        raise ValueError(f"{data.cpus!r} is no list of CPUs such as '0-3,8'")


def get_cpuset(_marshal: Any, source: Any) -> types.Cpuset:
    made = lib.pypmix_cpuset_text(ffi.addressof(source))
    found = string(made)
    lib.pypmix_release(made)
    return types.Cpuset(None if found is None else found.partition(":")[2])


def put_topology(_marshal: Any, target: Any, data: types.Topology) -> None:
    if data.xml is None:
        raise NotSupported("libpmix has no topology without contents to put")
    status = lib.pypmix_topology_load(text(data.xml), data.support, len(data.support), ffi.addressof(target))
    if status:
        raise NotSupported("the library does not take this topology: it is no XML of hwloc's, or of another release's")


def get_topology(_marshal: Any, source: Any) -> types.Topology:
    if not source.topology:
        return types.Topology(None)
    xml, support = ffi.new("char **"), ffi.new("pmix_byte_object_t *")
    status = lib.pypmix_topology_text(ffi.addressof(source), xml, support)
    if status:
        raise PMIxError("the library cannot tell what a topology holds", status=status)
    found = types.Topology(string(xml[0]), get_object(support))
    lib.pypmix_release(xml[0])
    lib.pypmix_release(support.bytes)
    return found


def put_geometry(_marshal: Any, target: Any, data: types.Geometry) -> None:
    target.fabric = data.fabric
    target.uuid = copy_text(data.uuid)
    target.osname = copy_text(data.osname)
    target.ncoords = len(data.coordinates)
    target.coordinates = alloc(codes.COORD, len(data.coordinates), "pmix_coord_t *")
    for n, coord in enumerate(data.coordinates):
        put_coord(_marshal, target.coordinates[n], coord)


def get_geometry(_marshal: Any, source: Any) -> types.Geometry:
    coordinates = tuple([get_coord(_marshal, source.coordinates[n]) for n in range(source.ncoords)])
    return types.Geometry(source.fabric, string(source.uuid), string(source.osname), coordinates)


def put_coord(_marshal: Any, target: Any, data: types.Coord) -> None:
    target.view = data.view
    target.dims = len(data.coords)
    target.coord = alloc(codes.UINT32, len(data.coords), "uint32_t *")
    for n, coordinate in enumerate(data.coords):
        target.coord[n] = coordinate


def get_coord(_marshal: Any, source: Any) -> types.Coord:
    return types.Coord(source.view, tuple([source.coord[n] for n in range(source.dims)]))


def put_node_stats(_marshal: Any, target: Any, data: types.NodeStats) -> None:
    for name in LOADS:
        setattr(target, name, getattr(data, name))
    target.node = copy_text(data.node)
    put_timeval(target.sample_time, data.sample_time)
    target.ndiskstats = len(data.diskstats)
    target.diskstats = alloc(codes.DISK_STATS, len(data.diskstats), "pmix_disk_stats_t *")
    for n, disk in enumerate(data.diskstats):
        put_disk_stats(_marshal, target.diskstats[n], disk)
    target.nnetstats = len(data.netstats)
    target.netstats = alloc(codes.NET_STATS, len(data.netstats), "pmix_net_stats_t *")
    for n, net in enumerate(data.netstats):
        put_net_stats(_marshal, target.netstats[n], net)


def get_node_stats(_marshal: Any, source: Any) -> types.NodeStats:
    return types.NodeStats(
        node=string(source.node),
        sample_time=get_timeval(source.sample_time),
        diskstats=tuple([get_disk_stats(_marshal, source.diskstats[n]) for n in range(source.ndiskstats)]),
        netstats=tuple([get_net_stats(_marshal, source.netstats[n]) for n in range(source.nnetstats)]),
        **{name: getattr(source, name) for name in LOADS},
    )
