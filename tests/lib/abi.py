"""PMIx's C structures for the differential tests, filled from and read back as pypmix's data."""

from __future__ import annotations

import ctypes as c
from typing import Any

from pypmix.standard import codes, structures, types
from pypmix.standard.types import DataArray, Info, Proc, Value


class CProc(c.Structure):
    _fields_ = [("nspace", c.c_char * 256), ("rank", c.c_uint32)]


class CValue(c.Structure):
    _fields_ = [("type", c.c_uint16), ("data", c.c_uint64 * 3)]


class CInfo(c.Structure):
    _fields_ = [("key", c.c_char * 512), ("flags", c.c_uint32), ("value", CValue)]


class CPdata(c.Structure):
    _fields_ = [("proc", CProc), ("key", c.c_char * 512), ("value", CValue)]


class CArray(c.Structure):
    _fields_ = [("type", c.c_uint16), ("size", c.c_size_t), ("array", c.c_void_p)]


class CBytes(c.Structure):
    _fields_ = [("bytes", c.c_void_p), ("size", c.c_size_t)]


class CTimeval(c.Structure):
    _fields_ = [("sec", c.c_int64), ("usec", c.c_int64)]


class CEnvar(c.Structure):
    _fields_ = [("name", c.c_void_p), ("value", c.c_void_p), ("separator", c.c_char)]


class CQuery(c.Structure):
    _fields_ = [("keys", c.c_void_p), ("qualifiers", c.c_void_p), ("nqual", c.c_size_t)]


class CApp(c.Structure):
    _fields_ = [
        ("cmd", c.c_void_p),
        ("argv", c.c_void_p),
        ("env", c.c_void_p),
        ("cwd", c.c_void_p),
        ("maxprocs", c.c_int),
        ("info", c.c_void_p),
        ("ninfo", c.c_size_t),
    ]


class CProcInfo(c.Structure):
    _fields_ = [
        ("proc", CProc),
        ("hostname", c.c_void_p),
        ("executable", c.c_void_p),
        ("pid", c.c_int),
        ("exit_code", c.c_int),
        ("state", c.c_uint8),
    ]


class CCoord(c.Structure):
    _fields_ = [("view", c.c_uint8), ("coord", c.c_void_p), ("dims", c.c_size_t)]


class CRegAttr(c.Structure):
    _fields_ = [
        ("name", c.c_void_p),
        ("key", c.c_char * 512),
        ("type", c.c_uint16),
        ("description", c.c_void_p),
    ]


class CPair(c.Structure):
    """`pmix_cpuset_t` and `pmix_topology_t`: a source and hwloc's own."""

    _fields_ = [("source", c.c_void_p), ("held", c.c_void_p)]


class CGeometry(c.Structure):
    _fields_ = [
        ("fabric", c.c_size_t),
        ("uuid", c.c_void_p),
        ("osname", c.c_void_p),
        ("coordinates", c.c_void_p),
        ("ncoords", c.c_size_t),
    ]


class CDistance(c.Structure):
    _fields_ = [
        ("uuid", c.c_void_p),
        ("osname", c.c_void_p),
        ("type", c.c_uint64),
        ("mindist", c.c_uint16),
        ("maxdist", c.c_uint16),
    ]


class CEndpoint(c.Structure):
    _fields_ = [("uuid", c.c_void_p), ("osname", c.c_void_p), ("endpoint", CBytes)]


class CDataBuffer(c.Structure):
    _fields_ = [
        ("base", c.c_void_p),
        ("pack", c.c_void_p),
        ("unpack", c.c_void_p),
        ("allocated", c.c_size_t),
        ("used", c.c_size_t),
    ]


class CProcStats(c.Structure):
    _fields_ = [
        ("node", c.c_void_p),
        ("proc", CProc),
        ("pid", c.c_int),
        ("cmd", c.c_void_p),
        ("state", c.c_uint8),
        ("time", CTimeval),
        ("percent_cpu", c.c_float),
        ("priority", c.c_int32),
        ("num_threads", c.c_uint16),
        ("pss", c.c_float),
        ("vsize", c.c_float),
        ("rss", c.c_float),
        ("peak_vsize", c.c_float),
        ("processor", c.c_uint16),
        ("sample_time", CTimeval),
    ]


def _record_fields(record: type) -> tuple[str, ...]:
    return tuple(record.__fields__)  # type: ignore[attr-defined]


class CDisk(c.Structure):
    _fields_ = [(n, c.c_uint64 if i else c.c_void_p) for i, n in enumerate(_record_fields(structures.DiskStats))]


class CNet(c.Structure):
    _fields_ = [(n, c.c_uint64 if i else c.c_void_p) for i, n in enumerate(_record_fields(structures.NetStats))]


class CNodeStats(c.Structure):
    _fields_ = [
        ("node", c.c_void_p),
        *[(n, c.c_float) for n in _record_fields(structures.NodeStats)[1:12]],
        ("sample_time", CTimeval),
        ("disks", c.c_void_p),
        ("ndisks", c.c_size_t),
        ("nets", c.c_void_p),
        ("nnets", c.c_size_t),
    ]


class CNspace(c.Structure):
    _fields_ = [("text", c.c_char * 256)]


class CPointer(c.Structure):
    _fields_ = [("address", c.c_void_p)]


SCALARS: dict[int, Any] = {
    codes.BOOL: c.c_bool,
    codes.BYTE: c.c_uint8,
    codes.SIZE: c.c_size_t,
    codes.PID: c.c_int,
    codes.INT: c.c_int,
    codes.INT8: c.c_int8,
    codes.INT16: c.c_int16,
    codes.INT32: c.c_int32,
    codes.INT64: c.c_int64,
    codes.UINT: c.c_uint,
    codes.UINT8: c.c_uint8,
    codes.UINT16: c.c_uint16,
    codes.UINT32: c.c_uint32,
    codes.UINT64: c.c_uint64,
    codes.FLOAT: c.c_float,
    codes.DOUBLE: c.c_double,
    codes.TIME: c.c_int64,
    codes.STATUS: c.c_int,
    codes.PERSIST: c.c_uint8,
    codes.SCOPE: c.c_uint8,
    codes.DATA_RANGE: c.c_uint8,
    codes.COMMAND: c.c_uint8,
    codes.INFO_DIRECTIVES: c.c_uint32,
    codes.DATA_TYPE: c.c_uint16,
    codes.PROC_STATE: c.c_uint8,
    codes.PROC_RANK: c.c_uint32,
    codes.ALLOC_DIRECTIVE: c.c_uint8,
    codes.IOF_CHANNEL: c.c_uint16,
    codes.JOB_STATE: c.c_uint8,
    codes.LINK_STATE: c.c_uint8,
    codes.DEVTYPE: c.c_uint64,
    codes.LOCTYPE: c.c_uint16,
    codes.STOR_MEDIUM: c.c_uint64,
    codes.STOR_ACCESS: c.c_uint64,
    codes.STOR_PERSIST: c.c_uint64,
    codes.STOR_ACCESS_TYPE: c.c_uint16,
    codes.POINTER: c.c_void_p,
}

STRUCTS: dict[int, Any] = {
    codes.STRING: CPointer,
    codes.REGEX: CPointer,
    codes.TIMEVAL: CTimeval,
    codes.VALUE: CValue,
    codes.PROC: CProc,
    codes.APP: CApp,
    codes.INFO: CInfo,
    codes.PDATA: CPdata,
    codes.BYTE_OBJECT: CBytes,
    codes.COMPRESSED_STRING: CBytes,
    codes.COMPRESSED_BYTE_OBJECT: CBytes,
    codes.PROC_INFO: CProcInfo,
    codes.DATA_ARRAY: CArray,
    codes.QUERY: CQuery,
    codes.ENVAR: CEnvar,
    codes.COORD: CCoord,
    codes.REGATTR: CRegAttr,
    codes.PROC_CPUSET: CPair,
    codes.GEOMETRY: CGeometry,
    codes.DEVICE_DIST: CDistance,
    codes.ENDPOINT: CEndpoint,
    codes.TOPO: CPair,
    codes.PROC_NSPACE: CNspace,
    codes.PROC_STATS: CProcStats,
    codes.DISK_STATS: CDisk,
    codes.NET_STATS: CNet,
    codes.NODE_STATS: CNodeStats,
    codes.DATA_BUFFER: CDataBuffer,
}

SIZES = {
    CProc: 260,
    CValue: 32,
    CInfo: 552,
    CPdata: 808,
    CApp: 56,
    CQuery: 24,
    CRegAttr: 536,
    CArray: 24,
    CBytes: 16,
    CDataBuffer: 40,
    CEnvar: 24,
    CCoord: 24,
    CPair: 16,
    CGeometry: 40,
    CEndpoint: 32,
    CDistance: 32,
    CProcInfo: 296,
}
"""The sizes that every release of the library has."""

IN_PLACE = {
    codes.STRING,
    codes.TIMEVAL,
    codes.BYTE_OBJECT,
    codes.COMPRESSED_STRING,
    codes.COMPRESSED_BYTE_OBJECT,
    codes.ENVAR,
}
"""Structured types that a value holds itself; it points to the others."""


def encoded(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


class Memory:
    """C structures made from pypmix's data; they live as long as this."""

    def __init__(self, hwloc: Any) -> None:
        self._kept: list[Any] = []
        self._hwloc = hwloc

    def _raw(self, data: bytes | None) -> int | None:
        if data is None:
            return None
        buffer = c.create_string_buffer(data, len(data) + 1)
        self._kept.append(buffer)
        return c.addressof(buffer)

    def _text(self, text: str | None) -> int | None:
        return self._raw(encoded(text))

    def _argv(self, given: tuple[str, ...]) -> int | None:
        if not given:
            return None
        array = (c.c_void_p * (len(given) + 1))(*[self._text(item) for item in given], None)
        self._kept.append(array)
        return c.addressof(array)

    def block(self, type: int, items: Any) -> int | None:
        """Return the address of an array of a type's structures."""
        if not items:
            return None
        kind = SCALARS.get(type) or STRUCTS[type]
        array = (kind * len(items))()
        self._kept.append(array)
        for index, item in enumerate(items):
            if type in SCALARS:
                array[index] = item
            else:
                self.fill(array[index], type, item)
        return c.addressof(array)

    def fill(self, made: Any, type: int, data: Any) -> None:
        """Fill a type's structure."""
        if type == codes.STRING:
            made.address = self._text(data)
        elif type == codes.REGEX:
            made.address = self._raw(data)
        elif type == codes.TIMEVAL:
            made.sec, made.usec = data.sec, data.usec
        elif type == codes.VALUE:
            self.value(made, data)
        elif type == codes.PROC:
            made.nspace, made.rank = encoded(data.nspace), data.rank
        elif type == codes.INFO:
            made.key, made.flags = encoded(data.key), data.flags
            self.value(made.value, data.value)
        elif type == codes.PDATA:
            self.fill(made.proc, codes.PROC, data.proc)
            made.key = encoded(data.key)
            self.value(made.value, data.value)
        elif type in (codes.BYTE_OBJECT, codes.COMPRESSED_STRING, codes.COMPRESSED_BYTE_OBJECT):
            made.bytes, made.size = self._raw(data) if data else None, len(data)
        elif type == codes.DATA_BUFFER:
            made.base = made.unpack = self._raw(data) if data else None
            made.pack = made.base + len(data) if data else None
            made.used = made.allocated = len(data)
        elif type == codes.PROC_INFO:
            self.fill(made.proc, codes.PROC, data.proc)
            made.hostname, made.executable = self._text(data.hostname), self._text(data.executable)
            made.pid, made.state = data.pid, data.state
        elif type == codes.DATA_ARRAY:
            made.type, made.size, made.array = data.type, len(data.items), None
            if data.items:
                made.array = self.block(data.type, data.items)
        elif type == codes.QUERY:
            made.keys, made.nqual = self._argv(data.keys), len(data.qualifiers)
            made.qualifiers = self.block(codes.INFO, data.qualifiers)
        elif type == codes.APP:
            made.cmd, made.cwd, made.maxprocs = self._text(data.cmd), self._text(data.cwd), data.maxprocs
            made.argv, made.env = self._argv(data.argv), self._argv(data.env)
            made.info, made.ninfo = self.block(codes.INFO, data.info), len(data.info)
        elif type == codes.ENVAR:
            made.name, made.value = self._text(data.name), self._text(data.value)
            made.separator = data.separator.encode("latin-1") or b"\0"
        elif type == codes.COORD:
            made.view, made.dims = data.view, len(data.coords)
            made.coord = self.block(codes.UINT32, data.coords)
        elif type == codes.REGATTR:
            made.name, made.key, made.type = self._text(data.name), encoded(data.key), data.type
            made.description = self._argv(data.description)
        elif type == codes.PROC_CPUSET:
            made.source, made.held = self._raw(b"hwloc"), None
            if data.cpus is not None:
                made.held = self._hwloc.hwloc_bitmap_alloc()
                self._hwloc.hwloc_bitmap_list_sscanf(c.c_void_p(made.held), encoded(data.cpus))
        elif type == codes.GEOMETRY:
            made.fabric, made.uuid, made.osname = data.fabric, self._text(data.uuid), self._text(data.osname)
            made.coordinates, made.ncoords = self.block(codes.COORD, data.coordinates), len(data.coordinates)
        elif type == codes.DEVICE_DIST:
            made.uuid, made.osname, made.type = self._text(data.uuid), self._text(data.osname), data.type
            made.mindist, made.maxdist = data.mindist, data.maxdist
        elif type == codes.ENDPOINT:
            made.uuid, made.osname = self._text(data.uuid), self._text(data.osname)
            self.fill(made.endpoint, codes.BYTE_OBJECT, data.endpoint)
        elif type == codes.PROC_NSPACE:
            made.text = encoded(data)
        elif type == codes.PROC_STATS:
            made.node, made.cmd, made.state = self._text(data.node), self._text(data.cmd), data.state
            self.fill(made.proc, codes.PROC, data.proc)
            self.fill(made.time, codes.TIMEVAL, data.time)
            self.fill(made.sample_time, codes.TIMEVAL, data.sample_time)
            for name in ("pid", "priority", "num_threads", "pss", "vsize", "rss", "processor"):
                setattr(made, name, getattr(data, name))
        elif type in (codes.DISK_STATS, codes.NET_STATS):
            first, *counters = _record_fields(data.__class__)
            setattr(made, first, self._text(getattr(data, first)))
            for name in counters:
                setattr(made, name, getattr(data, name))
        else:
            assert type == codes.NODE_STATS, type
            made.node = self._text(data.node)
            for name in _record_fields(structures.NodeStats)[1:12]:
                setattr(made, name, getattr(data, name))
            self.fill(made.sample_time, codes.TIMEVAL, data.sample_time)

    def value(self, made: CValue, data: Value) -> None:
        type, held = data
        made.type = type
        where = c.addressof(made) + CValue.data.offset
        if type == codes.UNDEF:
            return
        if type in SCALARS:
            SCALARS[type].from_address(where).value = held
        elif type in IN_PLACE:
            self.fill(STRUCTS[type].from_address(where), type, held)
        else:
            c.c_void_p.from_address(where).value = self.block(type, [held])


class Reader:
    """Reads C structures that the library made."""

    def __init__(self, hwloc: Any) -> None:
        self._hwloc = hwloc

    def text(self, address: int | None) -> str | None:
        return None if not address else c.string_at(address).decode("utf-8", "surrogateescape")

    def raw(self, made: CBytes) -> bytes:
        return c.string_at(made.bytes, made.size) if made.size else b""

    def argv(self, address: int | None) -> tuple[str, ...]:
        found: list[str] = []
        while address:
            item = self.text(c.c_void_p.from_address(address + 8 * len(found)).value)
            if item is None:
                break
            found.append(item)
        return tuple(found)

    def block(self, type: int, address: int | None, count: int) -> tuple[Any, ...]:
        if not count:
            return ()
        assert address
        kind = SCALARS.get(type) or STRUCTS[type]
        array = (kind * count).from_address(address)
        if type == codes.POINTER:
            return (0,) * count
        return tuple([array[i] if type in SCALARS else self.read(array[i], type) for i in range(count)])

    def read(self, made: Any, type: int) -> Any:
        text = self.text
        if type == codes.STRING:
            return text(made.address)
        if type == codes.REGEX:
            return c.string_at(made.address)
        if type == codes.TIMEVAL:
            return structures.Timeval(made.sec, made.usec)
        if type == codes.VALUE:
            return self.value(made)
        if type == codes.PROC:
            return Proc(made.nspace.decode("utf-8", "surrogateescape"), made.rank)
        if type == codes.INFO:
            return Info(made.key.decode("utf-8", "surrogateescape"), self.value(made.value), made.flags)
        if type == codes.PDATA:
            key = made.key.decode("utf-8", "surrogateescape")
            return types.Pdata(self.read(made.proc, codes.PROC), key, self.value(made.value))
        if type in (codes.BYTE_OBJECT, codes.COMPRESSED_STRING, codes.COMPRESSED_BYTE_OBJECT):
            return self.raw(made)
        if type == codes.DATA_BUFFER:
            return c.string_at(made.base, made.used) if made.used else b""
        if type == codes.PROC_INFO:
            proc = self.read(made.proc, codes.PROC)
            return types.ProcInfo(proc, text(made.hostname), text(made.executable), made.pid, made.state)
        if type == codes.DATA_ARRAY:
            return DataArray(made.type, self.block(made.type, made.array, made.size if made.type else 0))
        if type == codes.QUERY:
            return types.Query(self.argv(made.keys), self.block(codes.INFO, made.qualifiers, made.nqual))
        if type == codes.APP:
            info = self.block(codes.INFO, made.info, made.ninfo)
            return types.App(
                text(made.cmd), self.argv(made.argv), self.argv(made.env), text(made.cwd), made.maxprocs, info
            )
        if type == codes.ENVAR:
            return types.Envar(text(made.name), text(made.value), made.separator.decode("latin-1").rstrip("\0"))
        if type == codes.COORD:
            return structures.Coord(made.view, self.block(codes.UINT32, made.coord, made.dims))
        if type == codes.REGATTR:
            key = made.key.decode("utf-8", "surrogateescape")
            return types.RegAttr(text(made.name), key, made.type, self.argv(made.description))
        if type == codes.PROC_CPUSET:
            shown = c.c_void_p()
            if made.held:
                self._hwloc.hwloc_bitmap_list_asprintf(c.byref(shown), c.c_void_p(made.held))
            return structures.Cpuset(text(shown.value))
        if type == codes.GEOMETRY:
            coordinates = self.block(codes.COORD, made.coordinates, made.ncoords)
            return structures.Geometry(made.fabric, text(made.uuid), text(made.osname), coordinates)
        if type == codes.DEVICE_DIST:
            return types.DeviceDistance(text(made.uuid), text(made.osname), made.type, made.mindist, made.maxdist)
        if type == codes.ENDPOINT:
            return structures.Endpoint(text(made.uuid), text(made.osname), self.raw(made.endpoint))
        if type == codes.PROC_NSPACE:
            return made.text.decode("utf-8", "surrogateescape")
        if type == codes.PROC_STATS:
            values = {name: getattr(made, name) for name in _record_fields(structures.ProcStats)}
            values |= {
                "node": text(made.node),
                "cmd": text(made.cmd),
                "proc": self.read(made.proc, codes.PROC),
            }
            values["time"] = self.read(made.time, codes.TIMEVAL)
            values["sample_time"] = self.read(made.sample_time, codes.TIMEVAL)
            return structures.ProcStats(**values)
        if type in (codes.DISK_STATS, codes.NET_STATS):
            record = structures.DiskStats if type == codes.DISK_STATS else structures.NetStats
            first, *counters = _record_fields(record)
            return record(text(getattr(made, first)), *[getattr(made, name) for name in counters])  # type: ignore[operator]
        assert type == codes.NODE_STATS, type
        loads = [getattr(made, name) for name in _record_fields(structures.NodeStats)[1:12]]
        return structures.NodeStats(text(made.node), *loads, self.read(made.sample_time, codes.TIMEVAL))

    def value(self, made: CValue) -> Value:
        type = made.type
        where = c.addressof(made) + CValue.data.offset
        if type == codes.UNDEF:
            return Value.unchecked(type, None)
        if type == codes.POINTER:
            return Value.unchecked(type, 0)
        if type in SCALARS:
            return Value.unchecked(type, SCALARS[type].from_address(where).value)
        if type in IN_PLACE:
            return Value.unchecked(type, self.read(STRUCTS[type].from_address(where), type))
        address = c.c_void_p.from_address(where).value
        assert address
        return Value.unchecked(type, self.read(STRUCTS[type].from_address(address), type))
