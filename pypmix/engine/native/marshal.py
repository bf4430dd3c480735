"""Python values into the C structures of PMIx and back.

Structures are made of malloc's memory and freed by the shim. Memory starts zeroed and every piece is attached to its
parent before it is filled, so that whatever has been made when something fails can be freed as a whole.
"""

from __future__ import annotations

import struct

from pypmix.engine.native import structs
from pypmix.engine.native._ffi import ffi, lib
from pypmix.engine.native.kinds import unknown_element, unknown_value
from pypmix.standard import codes, types
from pypmix.standard.errors import NotSupported, PMIxError
from pypmix.standard.releases import Release, release_text
from pypmix.standard.types import DataArray, Info, Proc, Value
from pypmix.standard.values import RANGES, inflate, type_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from pypmix.engine.native.structs import Get, Put

NULL = ffi.NULL

_BYTES = frozenset({codes.BYTE_OBJECT, codes.COMPRESSED_STRING, codes.COMPRESSED_BYTE_OBJECT, codes.REGEX})
_SIGNED = "?bh?i???q"
_UNSIGNED = "?BH?I???Q"


class PrecisionWarning(UserWarning):
    """libpmix sends floats as text with six decimals, and a value does not survive that."""


def _format(kind: int) -> str:
    """Return the struct code of an integer type in native layout."""
    table = _SIGNED if RANGES[kind][0] < 0 else _UNSIGNED
    return table[lib.pypmix_size_of(kind)]


INTEGERS: dict[int, str] = {kind: _format(kind) for kind in RANGES if lib.pypmix_size_of(kind)}
"""The struct code of every type whose data is an int."""

PACKED: dict[int, str] = {**INTEGERS, codes.BOOL: "?", codes.FLOAT: "f", codes.DOUBLE: "d"}
"""The struct code of every type that an array holds as plain numbers."""


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
    """Return a value as it was given: releases from 5.0 on compress a long string by themselves."""
    if value[0] != codes.COMPRESSED_STRING:
        return value
    try:
        contents = inflate(value.data).rstrip(b"\0")
    except (ValueError, NotSupported):
        return value
    return Value.unchecked(codes.STRING, contents.decode("utf-8", "surrogateescape"))


class Marshal:
    """Builds and reads C structures for a library of one release."""

    def __init__(self, release: Release) -> None:
        self._release = release
        self.refused = unknown_value(release)
        self._no_element = unknown_element(release)

    def infos(self, given: Sequence[Info]) -> tuple[Any, int]:
        """Return an array of `pmix_info_t` for the infos, NULL for none."""
        if not given:
            return NULL, 0
        array = structs.alloc(codes.INFO, len(given), "pmix_info_t *")
        try:
            for n, info in enumerate(given):
                self._put_info(array[n], info)
        except BaseException:
            lib.pypmix_infos_free(array, len(given))
            raise
        return array, len(given)

    def procs(self, given: Sequence[Proc]) -> tuple[Any, int]:
        """Return an array of `pmix_proc_t` for the procs, NULL for none."""
        if not given:
            return NULL, 0
        array = structs.alloc(codes.PROC, len(given), "pmix_proc_t *")
        for n, proc in enumerate(given):
            structs.put_proc(array[n], proc)
        return array, len(given)

    def results(self, source: Any) -> tuple[Any, ...]:
        """Return what a `pmix_data_array_t` of results holds, without entries that nobody has filled."""
        kind, count = source.type, source.size
        if not count:
            return ()
        found = self._get_array(source).items
        if kind == codes.PDATA:
            return tuple([item.replace(value=plain(item.value)) for item in found if item.value.type != codes.UNDEF])
        if kind == codes.INFO:
            return tuple([Info.unchecked(item[0], plain(item[1]), item[2]) for item in found])
        return found

    def value(self, value: Value) -> Any:
        """Return a `pmix_value_t` in memory that Python owns; `clear` frees what it points to."""
        made = ffi.new("pmix_value_t *")
        try:
            self._put_value(made, value)
        except BaseException:
            lib.pypmix_value_clear(made)
            raise
        return made

    def clear(self, made: Any) -> None:
        lib.pypmix_value_clear(made)

    def read(self, value: Any) -> Value:
        """Return what a `pmix_value_t` holds.

        Raises:
            NotSupported: It holds a type that Python knows no form of.
        """
        kind = value.type
        data = value.data
        code = INTEGERS.get(kind)
        if code is not None:
            size = struct.calcsize(code)
            return Value.unchecked(kind, struct.unpack_from(code, ffi.buffer(ffi.addressof(data), size))[0])
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
        if kind == codes.TIMEVAL:
            return Value.unchecked(kind, structs.get_timeval(data.tv))
        if kind == codes.ENVAR:
            return Value.unchecked(kind, structs.get_envar(data.envar))
        if kind == codes.UNDEF:
            return Value.unchecked(kind, None)
        element = _ELEMENTS.get(kind)
        if element is None:
            raise NotSupported(f"the library returned a {type_name(kind)}, which has no form in Python")
        if not data.ptr:
            raise PMIxError(f"the library returned a {type_name(kind)} without contents")
        return Value.unchecked(kind, element[2](self, ffi.cast(element[0], data.ptr)[0]))

    def _put_value(self, target: Any, value: Value) -> None:
        kind, data = value
        self.check(kind)
        target.type = kind
        union = target.data
        code = INTEGERS.get(kind)
        if code is not None:
            struct.pack_into(code, ffi.buffer(ffi.addressof(union), 8), 0, data)
        elif kind == codes.STRING:
            union.string = structs.copy_text(data)
        elif kind in _BYTES:
            if kind == codes.COMPRESSED_STRING:
                # the library inflates it on its way, and drops the whole commit where it cannot
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
        elif kind == codes.TIMEVAL:
            structs.put_timeval(union.tv, data)
        elif kind == codes.ENVAR:
            structs.put_envar(union.envar, data)
        elif kind != codes.UNDEF:
            pointer, put, _get = _ELEMENTS[kind]
            union.ptr = structs.alloc(kind, 1, "void *")
            put(self, ffi.cast(pointer, union.ptr)[0], data)

    def _put_info(self, target: Any, info: Info) -> None:
        structs.put_name(target.key, info[0])
        target.flags = info[2]
        self._put_value(target.value, info[1])

    def _get_info(self, source: Any) -> Info:
        return Info.unchecked(structs.get_name(source.key), self.read(source.value), source.flags)

    def _put_array(self, target: Any, data: DataArray) -> None:
        if data.type in self._no_element:
            raise self._unknown(f"an array of {type_name(data.type)}")
        self.fill(target, data.type, data.items)

    def fill(self, target: Any, kind: int, items: Sequence[Any]) -> None:
        """Make a `pmix_data_array_t` of elements; strings have a NULL behind them, as some functions want it."""
        target.type = kind
        target.size = len(items)
        if not items:
            return
        target.array = structs.alloc(kind, len(items) + (kind == codes.STRING), "void *")
        code = PACKED.get(kind)
        if code is not None:
            if kind == codes.DOUBLE or kind == codes.FLOAT:
                precision(kind, items)
            packed = struct.pack(f"{len(items)}{code}", *items)
            ffi.memmove(target.array, packed, len(packed))
        elif kind == codes.STRING:
            strings = ffi.cast("char **", target.array)
            for n, item in enumerate(items):
                if item is None:
                    # some releases copy such an array without clearing the slots that they skip
                    raise NotSupported("an array of strings cannot hold None in libpmix")
                strings[n] = structs.copy_text(item)
        else:
            pointer, put, _get = _ELEMENTS[kind]
            elements = ffi.cast(pointer, target.array)
            for n, item in enumerate(items):
                put(self, elements[n], item)

    def _get_array(self, source: Any) -> DataArray:
        kind, count = source.type, source.size
        if not count or not source.array:
            return DataArray(kind, ())
        code = PACKED.get(kind)
        if code is not None:
            size = count * lib.pypmix_size_of(kind)
            return DataArray(kind, struct.unpack(f"{count}{code}", ffi.buffer(source.array, size)))
        if kind == codes.STRING:
            strings = ffi.cast("char **", source.array)
            return DataArray(kind, tuple([structs.string(strings[n]) for n in range(count)]))
        element = _ELEMENTS.get(kind)
        if element is None:
            raise NotSupported(f"the library returned an array of {type_name(kind)}, which has no form in Python")
        pointer, _put, get = element
        elements = ffi.cast(pointer, source.array)
        return DataArray(kind, tuple([get(self, elements[n]) for n in range(count)]))

    def _put_pdata(self, target: Any, data: types.Pdata) -> None:
        structs.put_proc(target.proc, data.proc)
        structs.put_name(target.key, data.key)
        self._put_value(target.value, data.value)

    def _get_pdata(self, source: Any) -> types.Pdata:
        return types.Pdata(structs.get_proc(source.proc), structs.get_name(source.key), self.read(source.value))

    def _put_app(self, target: Any, data: types.App) -> None:
        target.cmd = structs.copy_text(data.cmd)
        # a list without a string is a mistake to some releases, so it is none
        if data.argv:
            structs.fill_strings(target, "argv", data.argv)
        if data.env:
            structs.fill_strings(target, "env", data.env)
        target.cwd = structs.copy_text(data.cwd)
        target.maxprocs = data.maxprocs
        target.info, target.ninfo = self.infos(data.info)

    def _get_app(self, source: Any) -> types.App:
        return types.App(
            structs.string(source.cmd),
            structs.get_strings(source.argv),
            structs.get_strings(source.env),
            structs.string(source.cwd),
            source.maxprocs,
            tuple([self._get_info(source.info[n]) for n in range(source.ninfo)]),
        )

    def _put_query(self, target: Any, data: types.Query) -> None:
        structs.fill_strings(target, "keys", data.keys)
        target.qualifiers, target.nqual = self.infos(data.qualifiers)

    def _get_query(self, source: Any) -> types.Query:
        qualifiers = tuple([self._get_info(source.qualifiers[n]) for n in range(source.nqual)])
        return types.Query(structs.get_strings(source.keys), qualifiers)

    def check(self, kind: int) -> None:
        """Raise `NotSupported` if the library takes no value of this type."""
        if kind in self.refused:
            raise self._unknown(f"a {type_name(kind)} as a value")

    def _unknown(self, what: str) -> NotSupported:
        return NotSupported(f"libpmix {release_text(self._release)} does not take {what}")


_ELEMENTS: dict[int, tuple[str, Put, Get]] = {
    codes.VALUE: ("pmix_value_t *", Marshal._put_value, Marshal.read),
    codes.PROC: ("pmix_proc_t *", structs.plain_put(structs.put_proc), structs.plain_get(structs.get_proc)),
    codes.APP: ("pmix_app_t *", Marshal._put_app, Marshal._get_app),
    codes.INFO: ("pmix_info_t *", Marshal._put_info, Marshal._get_info),
    codes.PDATA: ("pmix_pdata_t *", Marshal._put_pdata, Marshal._get_pdata),
    codes.QUERY: ("pmix_query_t *", Marshal._put_query, Marshal._get_query),
    codes.DATA_ARRAY: ("pmix_data_array_t *", Marshal._put_array, Marshal._get_array),
    codes.TIMEVAL: ("struct timeval *", structs.plain_put(structs.put_timeval), structs.plain_get(structs.get_timeval)),
    codes.ENVAR: ("pmix_envar_t *", structs.plain_put(structs.put_envar), structs.plain_get(structs.get_envar)),
    codes.COORD: ("pmix_coord_t *", structs.put_coord, structs.get_coord),
    codes.REGATTR: ("pmix_regattr_t *", structs.put_regattr, structs.get_regattr),
    codes.PROC_CPUSET: ("pmix_cpuset_t *", structs.put_cpuset, structs.get_cpuset),
    codes.TOPO: ("pmix_topology_t *", structs.put_topology, structs.get_topology),
    codes.GEOMETRY: ("pmix_geometry_t *", structs.put_geometry, structs.get_geometry),
    codes.PROC_NSPACE: ("pmix_nspace_t *", structs.plain_put(structs.put_name), structs.plain_get(structs.get_name)),
    codes.REGEX2: ("pmix_regex2_t *", structs.put_regex2, structs.get_regex2),
    codes.NODE_STATS: ("pmix_node_stats_t *", structs.put_node_stats, structs.get_node_stats),
    codes.DISK_STATS: ("pmix_disk_stats_t *", structs.put_disk_stats, structs.get_disk_stats),
    codes.NET_STATS: ("pmix_net_stats_t *", structs.put_net_stats, structs.get_net_stats),
    **{
        kind: ("pmix_byte_object_t *", structs.plain_put(structs.put_object), structs.plain_get(structs.get_object))
        for kind in _BYTES
    },
    codes.PROC_INFO: (
        "pmix_proc_info_t *",
        *structs.record_layout(types.ProcInfo, "proc:p hostname:s executable_name:s pid state exit_code"),
    ),
    codes.DEVICE_DIST: (
        "pmix_device_distance_t *",
        *structs.record_layout(types.DeviceDistance, "uuid:s osname:s type mindist maxdist"),
    ),
    codes.ENDPOINT: ("pmix_endpoint_t *", *structs.record_layout(types.Endpoint, "uuid:s osname:s endpt:b")),
    codes.DEVICE: ("pmix_device_t *", *structs.record_layout(types.Device, "uuid:s osname:s type")),
    codes.RESOURCE_UNIT: ("pmix_resource_unit_t *", *structs.record_layout(types.ResourceUnit, "type count")),
    codes.NODE_PID: ("pmix_node_pid_t *", *structs.record_layout(types.NodePid, "hostname:s nodeid pid")),
    codes.PROC_STATS: (
        "pmix_proc_stats_t *",
        *structs.record_layout(
            types.ProcStats,
            "node:s proc:p pid cmd:s state time:t percent_cpu priority num_threads pss vsize rss peak_vsize processor "
            "sample_time:t",
        ),
    ),
}
"""For every type with a structure: the C pointer to it, the writer, and the reader."""
