"""Convert Python values to the C structures of PMIx and back.

The structures are declared in `native/cdef/pmix.h`, and the numbers of their types in `native/shim/types.h`. What
differs between releases of libpmix is in `native/shim/values.c`.

Structures are allocated with malloc and freed by the shim. Memory starts zeroed, and every piece is attached to its
parent before it is filled, so that all pieces can be freed together after a failure.
"""

from __future__ import annotations

import struct

from pypmix.engine.native import structs
from pypmix.engine.native._ffi import ffi, lib
from pypmix.standard import codes, structures, types
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.types import RANGES, DataArray, Info, Proc, Value, type_name
from pypmix.standard.values import inflate
from pypmix.wire.readers import REFUSED_ELEMENTS, REFUSED_VALUES, refused_element, refused_value, rule_of_library

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from pypmix.standard.releases import Release

    Put = Callable[[Any, Any, Any], None]
    Get = Callable[[Any, Any], Any]

NULL = ffi.NULL
_tuple = tuple.__new__

_BYTES = frozenset({codes.BYTE_OBJECT, codes.COMPRESSED_STRING, codes.COMPRESSED_BYTE_OBJECT, codes.REGEX})
_SIGNED = "?bh?i???q"
_UNSIGNED = "?BH?I???Q"


class PrecisionWarning(UserWarning):
    """libpmix sends floats as text with six decimals, which alters a value."""


def _format(kind: int) -> str:
    """Return the struct code of an integer type in native layout."""
    table = _SIGNED if RANGES[kind][0] < 0 else _UNSIGNED
    return table[lib.pypmix_size_of(kind)]


INTEGERS: dict[int, str] = {kind: _format(kind) for kind in RANGES if lib.pypmix_size_of(kind)}
"""The struct code of every type whose data is an int."""

PACKED: dict[int, str] = {**INTEGERS, codes.BOOL: "?", codes.FLOAT: "f", codes.DOUBLE: "d"}
"""The struct code of every type whose arrays hold plain numbers."""


def precision(kind: int, numbers: Sequence[float]) -> None:
    """Warn about the first number that libpmix would alter on its way to another process."""
    for number in numbers:
        sent = float(f"{number:f}")
        if kind == codes.FLOAT:
            number = struct.unpack("f", struct.pack("f", number))[0]
            sent = struct.unpack("f", struct.pack("f", sent))[0] if abs(sent) < 3.5e38 else sent
        if sent != number and number == number:
            import warnings

            warnings.warn(
                f"libpmix sends floats as text with six decimals, so {number!r} arrives as {sent!r} in other "
                "processes; put bytes or a string to keep it",
                PrecisionWarning,
                stacklevel=5,
            )
            return


def plain(value: Value) -> Value:
    """Return a value, with a compressed string inflated: releases from 5.0 on compress long strings."""
    if value[0] != codes.COMPRESSED_STRING:
        return value
    try:
        contents = inflate(value.data).rstrip(b"\0")
    except (ValueError, NotSupported):
        return value
    return Value.unchecked(codes.STRING, contents.decode("utf-8", "surrogateescape"))


class Marshal:
    """Builds and reads C structures for a library of one release.

    Args:
        release: The release of the library.
        rule: The rule of the types that may be sent; by default the library's. See `pypmix.wire.readers`.
    """

    def __init__(self, release: Release, rule: int | None = None) -> None:
        self.rule = rule = rule_of_library(release) if rule is None else rule
        self.refused = REFUSED_VALUES[rule]
        self._no_element = REFUSED_ELEMENTS[rule]

    def infos(self, items: Sequence[Info]) -> tuple[Any, int]:
        """Return an array of `pmix_info_t` for the infos, NULL for none."""
        if not items:
            return NULL, 0
        array = structs.alloc(codes.INFO, len(items), "pmix_info_t *")
        try:
            for n, info in enumerate(items):
                self.put_info(array[n], info)
        except BaseException:
            lib.pypmix_infos_free(array, len(items))
            raise
        return array, len(items)

    def procs(self, items: Sequence[Proc]) -> tuple[Any, int]:
        """Return an array of `pmix_proc_t` for the procs, NULL for none."""
        if not items:
            return NULL, 0
        array = structs.alloc(codes.PROC, len(items), "pmix_proc_t *")
        for n, proc in enumerate(items):
            structs.put_proc(array[n], proc)
        return array, len(items)

    def results(self, source: Any) -> tuple[Any, ...]:
        """Return the elements of a `pmix_data_array_t` of results, without unused entries."""
        kind, count = source.type, source.size
        if not count:
            return ()
        found = self.elements(kind, source.array, count)
        if kind == codes.PDATA:
            return tuple([item.replace(value=plain(item.value)) for item in found if item.value.type != codes.UNDEF])
        if kind == codes.INFO:
            packed = codes.COMPRESSED_STRING
            return tuple(
                [item if item[1][0] != packed else Info.unchecked(item[0], plain(item[1]), item[2]) for item in found]
            )
        return found

    def value(self, value: Value) -> Any:
        """Return a `pmix_value_t` in memory that Python owns; `clear` frees the memory that it points to."""
        made = ffi.new("pmix_value_t *")
        try:
            self.put_value(made, value)
        except BaseException:
            lib.pypmix_value_clear(made)
            raise
        return made

    def clear(self, made: Any) -> None:
        lib.pypmix_value_clear(made)

    def read(self, value: Any) -> Value:
        """Return the contents of a `pmix_value_t`.

        Raises:
            NotSupported: The type of the value has no form in Python.
        """
        kind = value.type
        data = value.data
        code = INTEGERS.get(kind)
        if code is not None:
            size = struct.calcsize(code)
            return _tuple(Value, (kind, struct.unpack_from(code, ffi.buffer(ffi.addressof(data), size))[0]))
        if kind == codes.STRING:
            return Value.unchecked(kind, structs.string(data.string))
        if kind in _BYTES:
            return Value.unchecked(kind, structs.get_object(data.bo))
        if kind == codes.BOOL:
            return Value.unchecked(kind, data.flag)
        if kind == codes.DOUBLE:
            return Value.unchecked(kind, data.dval)
        if kind == codes.FLOAT:
            return Value.unchecked(kind, data.fval)
        if kind in _INLINE:
            return Value.unchecked(kind, _ELEMENTS[kind][2](self, getattr(data, _INLINE[kind])))
        if kind == codes.UNDEF:
            return Value.unchecked(kind, None)
        element = _ELEMENTS.get(kind)
        if element is None:
            raise NotSupported(f"the library returned a {type_name(kind)}, which has no form in Python")
        if not data.ptr:
            raise PMIxError(f"the library returned a {type_name(kind)} without contents")
        return Value.unchecked(kind, element[2](self, ffi.cast(element[0], data.ptr)[0]))

    def put_value(self, target: Any, value: Value) -> None:
        kind, data = value
        if kind in self.refused:
            raise refused_value(kind, self.rule)
        target.type = kind
        union = target.data
        code = INTEGERS.get(kind)
        if code is not None:
            struct.pack_into(code, ffi.buffer(ffi.addressof(union), 8), 0, data)
        elif kind == codes.STRING:
            union.string = structs.copy_text(data)
        elif kind in _BYTES:
            if kind == codes.COMPRESSED_STRING:
                # The library inflates it before it sends it, and drops the whole commit if it cannot.
                inflate(data)
            structs.put_object(union.bo, data)
        elif kind == codes.BOOL:
            union.flag = data
        elif kind == codes.DOUBLE:
            precision(kind, (data,))
            union.dval = data
        elif kind == codes.FLOAT:
            precision(kind, (data,))
            union.fval = data
        elif kind in _INLINE:
            _ELEMENTS[kind][1](self, getattr(union, _INLINE[kind]), data)
        elif kind != codes.UNDEF:
            pointer, put, _get = _ELEMENTS[kind]
            union.ptr = structs.alloc(kind, 1, "void *")
            put(self, ffi.cast(pointer, union.ptr)[0], data)

    def put_info(self, target: Any, info: Info) -> None:
        structs.put_name(target.key, info[0])
        target.flags = info[2]
        self.put_value(target.value, info[1])

    def get_info(self, source: Any) -> Info:
        # Without calls of `Info.unchecked` and `get_name`: each upcall brings some infos.
        key = ffi.string(source.key).decode("utf-8", "surrogateescape")
        return _tuple(Info, (key, self.read(source.value), source.flags))

    def put_array(self, target: Any, data: DataArray) -> None:
        if data.type in self._no_element:
            raise refused_element(data.type, self.rule)
        self.fill(target, data.type, data.items)

    def get_array(self, source: Any) -> DataArray:
        return DataArray(source.type, self.elements(source.type, source.array, source.size))

    def fill(self, target: Any, kind: int, items: Sequence[Any]) -> None:
        """Fill a `pmix_data_array_t` with elements; a NULL follows strings, since some functions need it."""
        target.type = kind
        target.size = len(items)
        if items:
            target.array = structs.alloc(kind, len(items) + (kind == codes.STRING), "void *")
            self.put_elements(kind, target.array, items)

    def put_elements(self, kind: int, memory: Any, items: Sequence[Any]) -> None:
        """Write elements into an array that is large enough."""
        code = PACKED.get(kind)
        if code is not None:
            if kind == codes.DOUBLE or kind == codes.FLOAT:
                precision(kind, items)
            packed = struct.pack(f"{len(items)}{code}", *items)
            ffi.memmove(memory, packed, len(packed))
        elif kind == codes.STRING:
            strings = ffi.cast("char **", memory)
            for n, item in enumerate(items):
                if item is None:
                    # Some releases copy such an array without clearing the slots that they skip.
                    raise NotSupported("an array of strings cannot hold None in libpmix")
                strings[n] = structs.copy_text(item)
        elif kind == codes.PROC:
            procs = ffi.cast("pmix_proc_t *", memory)
            for n, item in enumerate(items):
                structs.put_proc(procs[n], item)
        else:
            pointer, put, _get = _ELEMENTS[kind]
            elements = ffi.cast(pointer, memory)
            for n, item in enumerate(items):
                put(self, elements[n], item)

    def elements(self, kind: int, memory: Any, count: int) -> tuple[Any, ...]:
        """Return the elements of an array."""
        if not count or not memory:
            return ()
        code = PACKED.get(kind)
        if code is not None:
            return struct.unpack(f"{count}{code}", ffi.buffer(memory, count * lib.pypmix_size_of(kind)))
        if kind == codes.STRING:
            strings = ffi.cast("char **", memory)
            return tuple([structs.string(strings[n]) for n in range(count)])
        if kind == codes.PROC:
            procs = ffi.cast("pmix_proc_t *", memory)
            return tuple([structs.get_proc(procs[n]) for n in range(count)])
        element = _ELEMENTS.get(kind)
        if element is None:
            raise NotSupported(f"the library returned an array of {type_name(kind)}, which has no form in Python")
        pointer, _put, get = element
        elements = ffi.cast(pointer, memory)
        return tuple([get(self, elements[n]) for n in range(count)])


def _alone(put: Callable[[Any, Any], None], get: Callable[[Any], Any]) -> tuple[Put, Get]:
    """Return the writer and the reader of a type that does not contain values."""
    return lambda _marshal, target, data: put(target, data), lambda _marshal, source: get(source)


def _record(record: type, layout: str) -> tuple[Put, Get]:
    """Return the writer and the reader of a structure for a record.

    The layout names the structure's fields in the record's order. A field is a number unless its form follows: string
    (s), name (n), list of strings (l), proc (p), time (t), bytes (b), one character (c), value (v); or `=`, the type of
    an array's elements, and the field with their number.
    """
    fields: tuple[str, ...] = record.__fields__  # type: ignore[attr-defined]
    plan = []
    for here, word in zip(fields, layout.split(), strict=True):
        there, _, form = word.partition(":")
        there, _, array = there.partition("=")
        kind, _, count = array.partition(",")
        plan.append((there, here, form, int(kind or 0), count))

    def put(marshal: Marshal, target: Any, data: Any) -> None:
        for there, here, form, kind, count in plan:
            item = getattr(data, here)
            if count:
                if item:
                    memory = structs.alloc(kind, len(item), "void *")
                    setattr(target, there, memory)
                    setattr(target, count, len(item))
                    marshal.put_elements(kind, memory, item)
            elif form == "s":
                setattr(target, there, structs.copy_text(item))
            elif form == "l":
                structs.fill_strings(target, there, item)
            elif form == "c":
                structs.put_separator(target, there, item)
            elif form:
                _PIECES[form][0](marshal, getattr(target, there), item)
            else:
                setattr(target, there, item)

    def get(marshal: Marshal, source: Any) -> Any:
        items: list[Any] = []
        for there, _here, form, kind, count in plan:
            item = getattr(source, there)
            if count:
                item = marshal.elements(kind, item, getattr(source, count))
            elif form == "s":
                item = structs.string(item)
            elif form == "l":
                item = structs.get_strings(item)
            elif form == "c":
                item = item.decode("latin-1").rstrip("\0")
            elif form:
                item = _PIECES[form][1](marshal, item)
            items.append(item)
        return record(*items)

    return put, get


def _put_regex2(_marshal: Any, target: Any, data: structures.Regex2) -> None:
    target.type = structs.copy_text(data.encoding)
    target.bytes = ffi.cast("uint8_t *", structs.copy_bytes(data.data))
    target.len = len(data.data)


def _get_regex2(_marshal: Any, source: Any) -> structures.Regex2:
    data = bytes(ffi.buffer(source.bytes, source.len)) if source.bytes else b""
    return structures.Regex2(structs.string(source.type), data)


_PIECES: dict[str, tuple[Put, Get]] = {
    "n": _alone(structs.put_name, structs.get_name),
    "p": _alone(structs.put_proc, structs.get_proc),
    "b": _alone(structs.put_object, structs.get_object),
    "t": _record(structures.Timeval, "tv_sec tv_usec"),
    "v": (Marshal.put_value, Marshal.read),
}

_INLINE = {codes.TIMEVAL: "tv", codes.ENVAR: "envar"}
"""The structures that are inside the value itself, and their fields in the union."""

_LAYOUTS: dict[int, tuple[str, type, str]] = {
    codes.PDATA: ("pdata", types.Pdata, "proc:p key:n value:v"),
    codes.APP: ("app", types.App, f"cmd:s argv:l env:l cwd:s maxprocs info={codes.INFO},ninfo"),
    codes.QUERY: ("query", types.Query, f"keys:l qualifiers={codes.INFO},nqual"),
    codes.ENVAR: ("envar", types.Envar, "envar:s value:s separator:c"),
    codes.COORD: ("coord", structures.Coord, f"view coord={codes.UINT32},dims"),
    codes.REGATTR: ("regattr", types.RegAttr, "name:s string:n type description:l"),
    codes.GEOMETRY: ("geometry", structures.Geometry, f"fabric uuid:s osname:s coordinates={codes.COORD},ncoords"),
    codes.PROC_INFO: ("proc_info", types.ProcInfo, "proc:p hostname:s executable_name:s pid state exit_code"),
    codes.DEVICE_DIST: ("device_distance", types.DeviceDistance, "uuid:s osname:s type mindist maxdist"),
    codes.ENDPOINT: ("endpoint", structures.Endpoint, "uuid:s osname:s endpt:b"),
    codes.DEVICE: ("device", structures.Device, "uuid:s osname:s type"),
    codes.RESOURCE_UNIT: ("resource_unit", structures.ResourceUnit, "type count"),
    codes.NODE_PID: ("node_pid", structures.NodePid, "hostname:s nodeid pid"),
    codes.PROC_STATS: (
        "proc_stats",
        structures.ProcStats,
        (
            "node:s proc:p pid cmd:s state time:t percent_cpu priority num_threads pss vsize rss peak_vsize processor "
            "sample_time:t"
        ),
    ),
    codes.NODE_STATS: (
        "node_stats",
        structures.NodeStats,
        (
            "node:s la la5 la15 total_mem free_mem buffers cached swap_cached swap_total swap_free mapped "
            f"sample_time:t diskstats={codes.DISK_STATS},ndiskstats netstats={codes.NET_STATS},nnetstats"
        ),
    ),
    codes.DISK_STATS: (
        "disk_stats",
        structures.DiskStats,
        (
            "disk:s num_reads_completed num_reads_merged num_sectors_read milliseconds_reading num_writes_completed "
            "num_writes_merged num_sectors_written milliseconds_writing num_ios_in_progress milliseconds_io "
            "weighted_milliseconds_io"
        ),
    ),
    codes.NET_STATS: (
        "net_stats",
        structures.NetStats,
        "net_interface:s num_bytes_recvd num_packets_recvd num_recv_errs num_bytes_sent num_packets_sent num_send_errs",
    ),
}

_ELEMENTS: dict[int, tuple[str, Put, Get]] = {
    codes.VALUE: ("pmix_value_t *", Marshal.put_value, Marshal.read),
    codes.INFO: ("pmix_info_t *", Marshal.put_info, Marshal.get_info),
    codes.DATA_ARRAY: ("pmix_data_array_t *", Marshal.put_array, Marshal.get_array),
    codes.PROC: ("pmix_proc_t *", *_PIECES["p"]),
    codes.PROC_NSPACE: ("pmix_nspace_t *", *_PIECES["n"]),
    codes.TIMEVAL: ("struct timeval *", *_PIECES["t"]),
    codes.PROC_CPUSET: ("pmix_cpuset_t *", *_alone(structs.put_cpuset, structs.get_cpuset)),
    codes.TOPO: ("pmix_topology_t *", *_alone(structs.put_topology, structs.get_topology)),
    codes.REGEX2: ("pmix_regex2_t *", _put_regex2, _get_regex2),
    **dict.fromkeys(_BYTES, ("pmix_byte_object_t *", *_PIECES["b"])),
    **{kind: (f"pmix_{name}_t *", *_record(record, layout)) for kind, (name, record, layout) in _LAYOUTS.items()},
}
"""For every type with a structure: the C pointer to it, the writer, and the reader."""
