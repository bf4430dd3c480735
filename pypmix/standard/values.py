"""Python values to PMIx values and back: types inferred or explicit, ranges checked, nothing altered."""

from __future__ import annotations

import struct

from pypmix.standard import codes, types
from pypmix.standard.errors import NotSupported
from pypmix.standard.types import DataArray, Info, Proc, Value, check_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    Infos = Mapping[Any, object] | Iterable[Info] | None

NAMES: dict[int, str] = {number: name for name, number in vars(codes).items() if name.isupper() and name[0] != "_"}

RANGES: dict[int, tuple[int, int]] = {
    codes.BYTE: (0, 2**8 - 1),
    codes.SIZE: (0, 2**64 - 1),
    codes.PID: (-(2**31), 2**31 - 1),
    codes.INT: (-(2**31), 2**31 - 1),
    codes.INT8: (-(2**7), 2**7 - 1),
    codes.INT16: (-(2**15), 2**15 - 1),
    codes.INT32: (-(2**31), 2**31 - 1),
    codes.INT64: (-(2**63), 2**63 - 1),
    codes.UINT: (0, 2**32 - 1),
    codes.UINT8: (0, 2**8 - 1),
    codes.UINT16: (0, 2**16 - 1),
    codes.UINT32: (0, 2**32 - 1),
    codes.UINT64: (0, 2**64 - 1),
    codes.TIME: (-(2**63), 2**63 - 1),
    codes.STATUS: (-(2**31), 2**31 - 1),
    codes.PERSIST: (0, 2**8 - 1),
    codes.POINTER: (0, 2**64 - 1),
    codes.SCOPE: (0, 2**8 - 1),
    codes.DATA_RANGE: (0, 2**8 - 1),
    codes.COMMAND: (0, 2**8 - 1),
    codes.INFO_DIRECTIVES: (0, 2**32 - 1),
    codes.DATA_TYPE: (0, 2**16 - 1),
    codes.PROC_STATE: (0, 2**8 - 1),
    codes.PROC_RANK: (0, 2**32 - 1),
    codes.ALLOC_DIRECTIVE: (0, 2**8 - 1),
    codes.IOF_CHANNEL: (0, 2**16 - 1),
    codes.JOB_STATE: (0, 2**8 - 1),
    codes.LINK_STATE: (0, 2**8 - 1),
    codes.DEVTYPE: (0, 2**64 - 1),
    codes.LOCTYPE: (0, 2**16 - 1),
    codes.STOR_MEDIUM: (0, 2**64 - 1),
    codes.STOR_ACCESS: (0, 2**64 - 1),
    codes.STOR_PERSIST: (0, 2**64 - 1),
    codes.STOR_ACCESS_TYPE: (0, 2**16 - 1),
    codes.RESBLOCK_DIRECTIVE: (0, 2**8 - 1),
    codes.ALLOC_INHERIT: (0, 2**8 - 1),
}
"""Least and greatest value of every type whose data is an int."""

ENUMS: dict[int, str] = {
    codes.STATUS: "Status",
    codes.PERSIST: "Persist",
    codes.SCOPE: "Scope",
    codes.DATA_RANGE: "Range",
    codes.INFO_DIRECTIVES: "InfoFlags",
    codes.DATA_TYPE: "DataType",
    codes.PROC_STATE: "ProcState",
    codes.ALLOC_DIRECTIVE: "AllocDirective",
    codes.IOF_CHANNEL: "IOFChannel",
    codes.JOB_STATE: "JobState",
    codes.LINK_STATE: "LinkState",
    codes.DEVTYPE: "DeviceType",
    codes.LOCTYPE: "Locality",
    codes.STOR_MEDIUM: "StorageMedium",
    codes.STOR_ACCESS: "StorageAccess",
    codes.STOR_PERSIST: "StoragePersistence",
    codes.STOR_ACCESS_TYPE: "StorageAccessType",
    codes.RESBLOCK_DIRECTIVE: "ResBlockDirective",
    codes.ALLOC_INHERIT: "AllocInheritance",
}
"""The enum that a value of the type becomes in Python."""

RECORDS: dict[int, type] = {
    codes.TIMEVAL: types.Timeval,
    codes.PROC: Proc,
    codes.APP: types.App,
    codes.INFO: Info,
    codes.PDATA: types.Pdata,
    codes.BUFFER: types.Buffer,
    codes.KVAL: types.KeyValue,
    codes.PROC_INFO: types.ProcInfo,
    codes.QUERY: types.Query,
    codes.ENVAR: types.Envar,
    codes.COORD: types.Coord,
    codes.REGATTR: types.RegAttr,
    codes.PROC_CPUSET: types.Cpuset,
    codes.GEOMETRY: types.Geometry,
    codes.DEVICE_DIST: types.DeviceDistance,
    codes.ENDPOINT: types.Endpoint,
    codes.TOPO: types.Topology,
    codes.DEVICE: types.Device,
    codes.RESOURCE_UNIT: types.ResourceUnit,
    codes.NODE_PID: types.NodePid,
    codes.REGEX2: types.Regex2,
    codes.PROC_STATS: types.ProcStats,
    codes.DISK_STATS: types.DiskStats,
    codes.NET_STATS: types.NetStats,
    codes.NODE_STATS: types.NodeStats,
}
"""The class of every type whose data is a record."""

_BYTES = frozenset(
    {
        codes.BYTE_OBJECT,
        codes.COMPRESSED_STRING,
        codes.COMPRESSED_BYTE_OBJECT,
        codes.DATA_BUFFER,
        codes.REGEX,
    }
)
_FLOAT_MAX = struct.unpack("f", b"\xff\xff\x7f\x7f")[0]
_BY_CLASS = {cls: number for number, cls in RECORDS.items()}
_BY_ENUM = {name: number for number, name in ENUMS.items()} | {"EventCode": codes.STATUS}

INFLATE_LIMIT = 64 << 20
"""The most bytes that a compressed value may grow to."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4 = b"\x04\x22\x4d\x18"


_JUST_PROCS = {Proc}


def type_name(number: int) -> str:
    """Return the Standard's name of a data type without `PMIX_`, or `type 104` for an unknown one."""
    return NAMES.get(number, f"type {int(number)}")


def check(type: int, data: object, element: int | None = None) -> Any:
    """Return `data` in the form that values of this type hold.

    Args:
        type: A `DataType`.
        data: A Python value.
        element: For arrays, the type of the elements; inferred from the first one if None.

    Raises:
        TypeError: The data is of another kind than the type holds.
        OverflowError: The data is out of the type's range.
    """
    bounds = RANGES.get(type)
    if bounds is not None:
        return _integer(type, data, bounds)
    if type == codes.STRING or type == codes.PROC_NSPACE:
        return _string(type, data)
    if type == codes.BOOL:
        if not isinstance(data, bool):
            raise _mismatch(type, data)
        return data
    if type in _BYTES:
        if not isinstance(data, bytes | bytearray | memoryview):
            raise _mismatch(type, data)
        return bytes(data)
    if type == codes.FLOAT or type == codes.DOUBLE:
        return _floating(type, data)
    record = RECORDS.get(type)
    if record is not None:
        if not isinstance(data, record):
            raise _mismatch(type, data)
        return data
    if type == codes.DATA_ARRAY:
        return _array(data, element)
    if type == codes.VALUE:
        return from_python(data)
    if type == codes.UNDEF:
        if data is not None:
            raise _mismatch(type, data)
        return None
    raise TypeError(f"{type_name(type)} is not a data type that pypmix knows")


def _mismatch(type: int, data: object) -> TypeError:
    return TypeError(f"{type_name(type)} cannot hold a {data.__class__.__name__}: {data!r:.80}")


def _integer(type: int, data: object, bounds: tuple[int, int]) -> int:
    if isinstance(data, bool) or not hasattr(data, "__index__"):
        raise _mismatch(type, data)
    number = int(data.__index__())
    if not bounds[0] <= number <= bounds[1]:
        raise OverflowError(f"{number} is out of range for {type_name(type)} ({bounds[0]} to {bounds[1]})")
    return number


def _string(type: int, data: object) -> str | None:
    if data is None and type == codes.STRING:
        return None
    if not isinstance(data, str):
        raise _mismatch(type, data)
    if type == codes.PROC_NSPACE:
        return check_name(data, types.MAX_NSLEN, "an nspace")
    if "\0" in data:
        raise ValueError(f"STRING cannot hold a NUL character, put bytes instead: {data!r:.80}")
    try:
        data.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise ValueError(f"STRING cannot hold a lone surrogate: {data!r:.80}") from error
    return str(data)


def _floating(type: int, data: object) -> float:
    if isinstance(data, bool) or not isinstance(data, int | float):
        raise _mismatch(type, data)
    number = float(data)
    if type == codes.FLOAT and abs(number) != float("inf") and abs(number) > _FLOAT_MAX:
        raise OverflowError(f"{number} is out of range for FLOAT")
    return number


def _array(data: object, element: int | None) -> DataArray:
    if isinstance(data, DataArray):
        if element is not None and data.type not in (element, codes.UNDEF):
            raise TypeError(f"an array of {type_name(element)} is wanted, not of {type_name(data.type)}")
        if data.type == codes.PROC and isinstance(data.items, tuple) and {*map(type, data.items)} == _JUST_PROCS:
            # Procs are sound, and groups have many of them.
            return data
        return DataArray(int(data.type), tuple([check(data.type, item) for item in data.items]))
    if isinstance(data, dict):
        data = infos(data)
    if not isinstance(data, list | tuple) or isinstance(data, Proc | Value | Info):
        raise _mismatch(codes.DATA_ARRAY, data)
    if element is None:
        if not data:
            raise TypeError("the element type of an empty array cannot be inferred: use array(DataType.X, [])")
        element = from_python(data[0]).type
    items = []
    for item in data:
        if isinstance(item, Value) and element != codes.VALUE:
            if item.type != element:
                raise TypeError(f"an array of {type_name(element)} cannot hold a {type_name(item.type)}")
            item = item.data
        items.append(check(element, item))
    return DataArray(int(element), tuple(items))


def from_python(data: object) -> Value:
    """Return the typed value of a Python object.

    `bool` becomes BOOL, `int` INT64, `float` DOUBLE, `str` STRING, `bytes` BYTE_OBJECT, a list or tuple a DATA_ARRAY
    of the first element's type, a dict a DATA_ARRAY of INFO; members of pypmix's enums and its records keep their own
    types. A C peer that reads another integer type needs an explicit one, such as `uint32(7)`.

    Raises:
        TypeError: No PMIx type holds such an object; the message lists what can be put.
        OverflowError: An int is beyond 64 bits, or beyond INT64 with no explicit type.
    """
    if isinstance(data, Value):
        return data
    make = Value.unchecked
    cls = data.__class__
    if cls is str:
        return make(codes.STRING, _string(codes.STRING, data))
    if cls is bool:
        return make(codes.BOOL, data)
    if cls is int:
        low, high = RANGES[codes.INT64]
        if not low <= data <= high:  # type: ignore[operator]
            hint = "; use uint64(...)" if 0 <= data < 2**64 else ""  # type: ignore[operator]
            raise OverflowError(f"{data} is out of range for INT64, the type of a plain int{hint}")
        return make(codes.INT64, data)
    if isinstance(data, bytes | bytearray | memoryview):
        return make(codes.BYTE_OBJECT, bytes(data))
    if cls is float:
        return make(codes.DOUBLE, data)
    number = _BY_CLASS.get(cls)
    if number is not None:
        return make(number, data)
    if isinstance(data, DataArray | list | tuple | dict):
        return make(codes.DATA_ARRAY, _array(data, None))
    if isinstance(data, int):
        number = _BY_ENUM.get(cls.__name__) if cls.__module__ == "pypmix.standard.enums" else None
        if number is not None:
            return make(number, check(number, data))
        return from_python(True if isinstance(data, bool) else int(data))
    if isinstance(data, float):
        return make(codes.DOUBLE, float(data))
    if isinstance(data, str):
        return make(codes.STRING, _string(codes.STRING, str(data)))
    raise TypeError(
        f"a {cls.__name__} has no PMIx type: put bool, int, float, str, bytes, a list or dict of these, a Proc or "
        f"another record of pypmix, or an explicit form such as uint32(7)"
    )


def to_python(value: Value) -> Any:
    """Return the plain Python object of a typed value.

    Integers, strings, bytes and records come as they are, enumerations as members of pypmix's enums, arrays as lists,
    compressed strings and bytes inflated.

    Raises:
        ValueError: A compressed value is damaged, or inflates beyond `INFLATE_LIMIT`.
    """
    return _plain(value[0], value[1])


def _plain(type: int, data: Any) -> Any:
    if type == codes.DATA_ARRAY:
        kind = data.type
        if kind in ENUMS or kind in (codes.VALUE, codes.DATA_ARRAY, codes.COMPRESSED_STRING):
            return [_plain(kind, item) for item in data.items]
        return list(data.items)
    enum = ENUMS.get(type)
    if enum is not None:
        from pypmix.standard import enums

        return getattr(enums, enum)(data)
    if type == codes.VALUE:
        return _plain(data[0], data[1])
    if type == codes.COMPRESSED_STRING:
        return inflate(data).rstrip(b"\0").decode("utf-8", "surrogateescape")
    if type == codes.COMPRESSED_BYTE_OBJECT:
        return inflate(data)
    return data


def inflate(data: bytes) -> bytes:
    """Return the contents of a compressed value: its length in the host's byte order, then a stream.

    The stream is zlib's up to libpmix 6, and may be zstd's or lz4's from 7 on, which its first bytes tell.

    Raises:
        ValueError: The stream is damaged, or its length is not the one announced or beyond `INFLATE_LIMIT`.
        NotSupported: There is no library here that reads it.
    """
    if len(data) < 4:
        raise ValueError("a compressed value lacks its length")
    size = int(struct.unpack_from("=I", data)[0])
    if size > INFLATE_LIMIT:
        raise ValueError(f"a compressed value claims {size} bytes; the limit is {INFLATE_LIMIT}")
    stream, failures = _decompressor(data[4:8], size)
    try:
        contents: bytes = stream.decompress(data[4:], size + 1)
    except failures as error:
        raise ValueError(f"a compressed value is damaged: {error}") from error
    if len(contents) != size or not stream.eof:
        raise ValueError(f"a compressed value announces {size} bytes and holds {len(contents)}")
    return contents


def _decompressor(magic: bytes, size: int) -> tuple[Any, Any]:
    """Return what reads a stream that begins with these bytes, and what it raises at damaged ones."""
    try:
        if magic == _ZSTD:
            try:
                from compression import zstd
            except ImportError:
                from backports import zstd
            # A frame names the memory that reading it takes. Streams whose length was not known name up to 8 MiB.
            window = {zstd.DecompressionParameter.window_log_max: max(23, size.bit_length())}
            return zstd.ZstdDecompressor(options=window), zstd.ZstdError
        if magic == _LZ4:
            from lz4 import frame

            return frame.LZ4FrameDecompressor(), RuntimeError
    except ImportError:
        name, package = ("zstd", "backports.zstd") if magic == _ZSTD else ("lz4", "lz4")
        raise NotSupported(
            f"this value is compressed with {name}, which this Python cannot read",
            hint=f"install the package {package}, as `pip install 'pypmix[compression]'` does",
        ) from None
    import zlib

    return zlib.decompressobj(), zlib.error


def info(key: object, value: object, flags: int = 0) -> Info:
    """Return the info that carries `value` under `key`.

    An attribute as key fixes the value's type; so does the key string of a known attribute. Other values are typed as
    `from_python` does.

    Args:
        key: An attribute (`attrs.TIMEOUT`) or a string of at most 511 bytes.
        value: A Python object or an explicit `Value`.
        flags: A sum of `InfoFlags`.
    """
    from pypmix.standard.attr import Attr

    attr: Any = key
    if not isinstance(key, Attr):
        if not isinstance(key, str):
            raise TypeError(f"a key must be an attribute or a str, not {type(key).__name__}")
        if not key.startswith("pmix") or isinstance(value, Value):
            return Info(key, from_python(value), flags)
        from pypmix.standard.attrs import by_key

        attr = by_key(key)
        if attr is None:
            return Info(key, from_python(value), flags)
    return Info(attr.key, attr.value(value), flags)


def infos(given: Mapping[Any, object] | Iterable[Info] | None) -> tuple[Info, ...]:
    """Return what a call was given as info: infos, or a mapping of keys to values, as a tuple of infos."""
    if not given:
        return ()
    if isinstance(given, Info):
        return (given,)
    if hasattr(given, "items"):
        return tuple([info(key, value) for key, value in given.items()])
    found = tuple(given)
    for item in found:
        if not isinstance(item, Info):
            raise TypeError(f"infos must be made by an attribute or by info(), not {type(item).__name__}")
    return found


def typed(type: int, data: object) -> Value:
    """Return `data` as a value of an explicit `DataType`; see `Value`."""
    return Value(type, data)


def array(element: int, items: Iterable[object]) -> Value:
    """Return a DATA_ARRAY of an explicit element type, which may be empty.

    Args:
        element: The `DataType` of the elements.
        items: Python values of that type.
    """
    return Value.unchecked(codes.DATA_ARRAY, _array(list(items), int(element)))


def _maker(number: int, called: str = "") -> Callable[[Any], Value]:
    name = type_name(number)

    def make(data: Any) -> Value:
        return Value.unchecked(number, check(number, data))

    make.__name__ = make.__qualname__ = called or name.lower()
    if number in RANGES:
        low, high = RANGES[number]
        make.__doc__ = f"Return a PMIX_{name} value, an int from {low} to {high}."
    else:
        make.__doc__ = f"Return a PMIX_{name} value."
    return make


byte = _maker(codes.BYTE)
size = _maker(codes.SIZE)
pid = _maker(codes.PID)
cint = _maker(codes.INT, "cint")
cuint = _maker(codes.UINT, "cuint")
int8 = _maker(codes.INT8)
int16 = _maker(codes.INT16)
int32 = _maker(codes.INT32)
int64 = _maker(codes.INT64)
uint8 = _maker(codes.UINT8)
uint16 = _maker(codes.UINT16)
uint32 = _maker(codes.UINT32)
uint64 = _maker(codes.UINT64)
float32 = _maker(codes.FLOAT, "float32")
double = _maker(codes.DOUBLE)
timestamp = _maker(codes.TIME, "timestamp")
