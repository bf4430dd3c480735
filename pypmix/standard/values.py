"""Python values to PMIx values and back: types inferred or explicit, ranges checked, nothing altered."""

from __future__ import annotations

import sys

from pypmix.standard import codes
from pypmix.standard.errors import NotSupported
from pypmix.standard.types import ENUMS, RANGES, Value, check, checked_array, type_name
from pypmix.standard.types import from_python as from_python
from pypmix.standard.types import info as info
from pypmix.standard.types import infos as infos

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.standard.types import Infos as Infos

INFLATE_LIMIT = 64 << 20
"""The most bytes of a decompressed value."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_LZ4 = b"\x04\x22\x4d\x18"


def to_python(value: Value) -> Any:
    """Return the plain Python object of a typed value.

    Integers, strings, bytes and records are returned unchanged, enumerations as members of pypmix's enums, arrays as
    lists, compressed strings and bytes decompressed. An array of infos becomes a dict; with a key of the Standard, or a
    repeated key, it becomes a list of infos.

    Raises:
        ValueError: A compressed value is damaged, or decompresses to more than `INFLATE_LIMIT`.
    """
    type, data = value
    return data if type in _AS_THEY_ARE else _plain(type, data)


def to_answer(value: Value) -> Any:
    """Return the plain Python object of an answer to a query, in which an empty array is a table: a list."""
    found = to_python(value)
    return [] if found == {} else found


_RESERVED = ("pmix", "PMIX", "PMIx", "pypmix.")
"""The prefixes of keys of the Standard, and of keys that only servers of pypmix answer."""

_AS_THEY_ARE = frozenset({*RANGES, codes.STRING, codes.BOOL, codes.DOUBLE, codes.BYTE_OBJECT, codes.PROC} - {*ENUMS})
"""The types whose data is returned to Python programs unchanged."""


def _plain(type: int, data: Any) -> Any:
    if type == codes.DATA_ARRAY:
        kind = data.type
        if kind == codes.INFO:
            items = list(data.items)
            # Tables of the Standard have a key in each row, and stay lists for any number of rows.
            if any(item[0].startswith(_RESERVED) for item in items) or len({item[0] for item in items}) < len(items):
                return items
            return {item[0]: to_python(item[1]) for item in items}
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

    The stream is zlib's up to libpmix 6, and may be zstd's or lz4's from 7 on; its first bytes show the format.

    Raises:
        ValueError: The stream is damaged, or its length differs from the announced one or exceeds `INFLATE_LIMIT`.
        NotSupported: The library for this format is not installed.
    """
    if len(data) < 4:
        raise ValueError("a compressed value lacks its length")
    size = int.from_bytes(data[:4], sys.byteorder)
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
    """Return the decompressor for a stream with these first bytes, and its exception for damaged streams."""
    try:
        if magic == _ZSTD:
            try:
                from compression import zstd
            except ImportError:
                from backports import zstd
            # A frame names the memory for its decompression. Streams of unknown length name up to 8 MiB.
            window = {zstd.DecompressionParameter.window_log_max: max(23, size.bit_length())}
            return zstd.ZstdDecompressor(options=window), zstd.ZstdError
        if magic == _LZ4:
            from lz4 import frame

            return frame.LZ4FrameDecompressor(), RuntimeError
    except ImportError:
        name, package = ("zstd", "backports.zstd") if magic == _ZSTD else ("lz4", "lz4")
        raise NotSupported(
            f"this value is compressed with {name}, which this Python cannot read",
            hint=f"install the package {package}, as `pip install 'pypmix-hpc[compression]'` does",
        ) from None
    import zlib

    return zlib.decompressobj(), zlib.error


def typed(data_type: int, data: object) -> Value:
    """Return `data` as a value of an explicit `DataType`; see `Value`.

    Example:
        >>> typed(DataType.UINT8, 255)
        uint8(255)
        >>> typed(DataType.UINT8, 255) == uint8(255)
        True
    """
    return Value(data_type, data)


def array(element: int, items: Iterable[object]) -> Value:
    """Return a DATA_ARRAY of an explicit element type, which may be empty.

    Args:
        element: The `DataType` of the elements.
        items: Python values of that type.

    Example:
        >>> me.put("acme.ports", array(DataType.UINT16, [7000, 7001]))
    """
    return Value.unchecked(codes.DATA_ARRAY, checked_array(list(items), int(element)))


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
