"""Bytes to typed data: one function per data type, found by its number.

Each takes the bytes, a position, and a context (the nesting depth in its low byte, the writer's rule for arrays
without a type above), and returns the data, in the form of `pypmix.standard.values.check`, with the position after it.
Malformed data raises `RemoteProtocolError`; reading past the end raises `IndexError`, which the caller of a decoder
turns into that error.

Every element of an array takes at least one byte of the message, and its object at most `MAX_FACTOR` times its bytes;
pointers, any number of which takes one byte, are few and shared. So a message of `n` bytes costs at most
`MAX_FACTOR * n` bytes of memory. A server, whose single thread serves all clients, also limits the work: a `Metered`
context is charged for all decoded values, and ends the decode when the charge exceeds `MAX_WORK`.
"""

from __future__ import annotations

import struct

from pypmix.standard import codes, statuses, types
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import MAX_KEYLEN, MAX_NSLEN, RANGES, RANK_UNDEF, DataArray, Info, Proc, Value, type_name
from pypmix.wire.encode import (
    BYTES,
    KEY,
    LEFT_OUT,
    ONE_BYTE,
    OPAQUE,
    SIGNED,
    STRINGS,
    STRUCTURES,
    UINT16_AS_INT16,
    UNSIGNED,
    keep,
)
from pypmix.wire.readers import TYPELESS_BARE, TYPELESS_MIXED, TYPELESS_SIZED, rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

    from pypmix.standard import structures
    from pypmix.standard.releases import Release

    Decoder = Callable[[bytes, int, int], tuple[Any, int]]
    Many = Callable[[bytes, int, int, int], tuple[list[Any], int]]

MAX_DEPTH = 64
"""The most levels of nested values."""

MAX_FACTOR = 48
"""The most bytes of memory that a decode takes for each byte of a message, besides copies of it."""

MAX_WORK = 1_000_000
"""The most that the decode of one request may cost a server, in units of about 100 ns: some 250,000 numbers, 125,000
procs, 100,000 infos or 40,000 keys."""

METERED_FROM = 1 << 16
"""Shorter messages cannot cost much more than `MAX_WORK`, and are not metered."""

RULE_SHIFT = 8
_DEPTH_MASK = (1 << RULE_SHIFT) - 1
_TYPES = 128
_MAX_TEXT_OF_FLOAT = 400
_POINTERS_MOST = 256

_new = tuple.__new__


class UnknownType(RemoteProtocolError):
    """A data type of unknown length; `position` is where its data starts."""

    default_status = statuses.ERR_UNKNOWN_DATA_TYPE


class TooMuch(RemoteProtocolError):
    """A message would take more work than allowed."""

    default_status = statuses.ERR_OUT_OF_RESOURCE


class Metered(int):
    """A context that is charged for the decoded values of a message.

    Attributes:
        left: The remaining units, as a list of one number, which contexts of all depths share.
    """

    left: list[int]

    def __add__(self, depth: int) -> Metered:
        deeper = Metered(int(self) + depth)
        deeper.left = self.left
        return deeper

    def charge(self, type: int, count: int) -> None:
        """Pay for so many values of a type.

        Raises:
            TooMuch: The message has cost too much.
        """
        self.pay(_PRICES[type] * count >> 4)

    def pay(self, units: int) -> None:
        """Pay units of `MAX_WORK`; see `charge`."""
        left = self.left
        left[0] -= units
        if left[0] < 0:
            raise TooMuch("a message has too many values", operation="unpack")


def context_of(release: Release, size: int = 0, work: int = MAX_WORK) -> int:
    """Return the context for a message of a writer of some release.

    Args:
        release: The writer's release.
        size: The length of a message whose work is to be limited; 0 for no limit.
        work: The most that its decode may cost.
    """
    context = rule_for(release) << RULE_SHIFT
    if size <= METERED_FROM and work == MAX_WORK:
        return context
    metered = Metered(context)
    metered.left = [work]
    return metered


def broken(text: str) -> RemoteProtocolError:
    """Return the error for malformed bytes."""
    return RemoteProtocolError(text, operation="unpack")


def flex(data: bytes, pos: int) -> tuple[int, int]:
    """Decode an unsigned integer of at most 64 bits."""
    byte = data[pos]
    pos += 1
    if byte < 128:
        return byte, pos
    number = byte & 127
    byte = data[pos]
    if byte < 128:
        return number | byte << 7, pos + 1
    shift = 7
    while True:
        byte = data[pos]
        pos += 1
        if shift == 56:
            return number | byte << 56, pos
        number |= (byte & 127) << shift
        if byte < 128:
            return number, pos
        shift += 7


def zigzag(data: bytes, pos: int) -> tuple[int, int]:
    """Decode a signed integer of at most 64 bits."""
    number = data[pos]
    if number < 128:
        # Nearly all; a call is saved for each.
        return (~(number >> 1) if number & 1 else number >> 1), pos + 1
    number, pos = flex(data, pos)
    return (~(number >> 1) if number & 1 else number >> 1), pos


def count_of(data: bytes, pos: int) -> tuple[int, int]:
    """Decode the number of elements that follow, as an INT32; each takes at least one byte."""
    number, pos = flex(data, pos)
    if number & 1 or number >> 1 > len(data) - pos:
        raise _too_many(~(number >> 1) if number & 1 else number >> 1, data, pos)
    return number >> 1, pos


def size_of(data: bytes, pos: int) -> tuple[int, int]:
    """Decode the number of elements that follow, as a SIZE; each takes at least one byte."""
    number, pos = flex(data, pos)
    if number > len(data) - pos:
        raise _too_many(number, data, pos)
    return number, pos


def _too_many(number: int, data: bytes, pos: int) -> RemoteProtocolError:
    return broken(f"{number} items are announced where {len(data) - pos} bytes follow")


def tag_of(data: bytes, pos: int) -> tuple[int, int]:
    """Decode the number of a known data type."""
    number, pos = flex(data, pos)
    if number >= _TYPES:
        raise UnknownType(f"the data type {number} is not known", operation="unpack")
    return number, pos


def _beyond(type: int, number: int) -> RemoteProtocolError:
    return broken(f"{number} is out of range for {type_name(type)}")


def _unsigned(type: int) -> Decoder:
    top = RANGES[type][1]

    def decode(data: bytes, pos: int, context: int) -> tuple[int, int]:
        byte = data[pos]
        if byte < 128:
            return byte, pos + 1
        number, pos = flex(data, pos)
        if number > top:
            raise _beyond(type, number)
        return number, pos

    return decode


def _signed(type: int) -> Decoder:
    low, high = RANGES[type]

    def decode(data: bytes, pos: int, context: int) -> tuple[int, int]:
        number = data[pos]
        if number < 128:
            return (~(number >> 1) if number & 1 else number >> 1), pos + 1
        number, pos = zigzag(data, pos)
        if not low <= number <= high:
            raise _beyond(type, number)
        return number, pos

    return decode


def _byte(data: bytes, pos: int, context: int) -> tuple[int, int]:
    return data[pos], pos + 1


def _int8(data: bytes, pos: int, context: int) -> tuple[int, int]:
    byte = data[pos]
    return byte - 256 if byte > 127 else byte, pos + 1


def _nothing(data: bytes, pos: int, context: int) -> tuple[None, int]:
    return None, pos


def _bool(data: bytes, pos: int, context: int) -> tuple[bool, int]:
    return data[pos] != 0, pos + 1


def _extent(data: bytes, pos: int) -> tuple[int, int]:
    """Decode the length of a string; return its first position and its end, with its NUL."""
    size = data[pos]
    pos += 1
    if size > 127:
        size, pos = flex(data, pos - 1)
    if size & 1:
        raise broken(f"a string has a length of {~(size >> 1)}")
    return pos, pos + (size >> 1)


def _string(data: bytes, pos: int, context: int) -> tuple[str | None, int]:
    start, end = _extent(data, pos)
    if start == end:
        return None, end
    if end > len(data):
        raise _bad_string(data, end)
    found = data[start : end - 1].decode("utf-8", "surrogateescape")
    if data[end - 1] or "\0" in found:
        raise _bad_string(data, end)
    return found, end


def _bad_string(data: bytes, end: int) -> RemoteProtocolError:
    if end > len(data):
        return broken(f"a string reaches {end - len(data)} bytes beyond the message")
    return broken("a string does not end with its only NUL")


def _text(data: bytes, pos: int) -> tuple[str, int]:
    found, pos = _string(data, pos, 0)
    if found is None:
        raise broken("a string is missing")
    return found, pos


_KEYS: dict[bytes, str] = {}


def _learn(raw: bytes, data: bytes, end: int) -> str:
    """Return a new key or nspace, and remember it if it is short."""
    if not raw:
        raise broken("a name is missing")
    if end > len(data) or raw.find(0) != len(raw) - 1:
        raise _bad_string(data, end)
    if len(raw) - 1 > MAX_KEYLEN:
        raise broken(f"a key of {len(raw) - 1} bytes is longer than {MAX_KEYLEN}")
    key = raw[:-1].decode("utf-8", "surrogateescape")
    if len(raw) <= 64:
        keep(_KEYS, 4096, raw, key)
    return key


def key(data: bytes, pos: int) -> tuple[str, int]:
    """Decode a key; a known key costs one lookup."""
    size = data[pos]
    if size > 127 or size & 1:
        start, end = _extent(data, pos)
    else:
        start = pos + 1
        end = start + (size >> 1)
    raw = data[start:end]
    # A truncated key may happen to equal another key.
    if end > len(data):
        raise _bad_string(data, end)
    return _KEYS.get(raw) or _learn(raw, data, end), end


def _nspace(data: bytes, pos: int, context: int) -> tuple[str, int]:
    found, end = key(data, pos)
    if end - pos > MAX_NSLEN and len(found.encode("utf-8", "surrogateescape")) > MAX_NSLEN:
        raise broken(f"an nspace of {len(found)} characters is longer than {MAX_NSLEN}")
    return found, end


def _uint(data: bytes, pos: int, context: int) -> tuple[int, int]:
    # Natives send it as an INT of the same bits.
    number, pos = _int(data, pos, context)
    return number & 0xFFFFFFFF, pos


def _pid(data: bytes, pos: int, context: int) -> tuple[int, int]:
    found, pos = _pids(data, pos, 1, context)
    return found[0], pos


def _pids(data: bytes, pos: int, count: int, context: int) -> tuple[list[int], int]:
    found: list[int] = []
    if not count:
        return found, pos
    tag, pos = tag_of(data, pos)
    if tag not in _PID_TAGS:
        raise broken(f"a pid cannot be a {type_name(tag)}")
    decode = DECODERS[tag]
    low, high = RANGES[codes.PID]
    for _ in range(count):
        number, pos = decode(data, pos, context)
        if number > high and tag in (codes.UINT32, codes.UINT):
            number -= 1 << 32
        if not low <= number <= high:
            raise _beyond(codes.PID, number)
        found.append(number)
    return found, pos


_PID_TAGS = frozenset(range(codes.INT, codes.UINT64 + 1))


def _time(data: bytes, pos: int, context: int) -> tuple[int, int]:
    number, pos = flex(data, pos)
    return number - (1 << 64) if number >> 63 else number, pos


def _double(data: bytes, pos: int, context: int) -> tuple[float, int]:
    shown, pos = _string(data, pos, context)
    if shown is None:
        return 0.0, pos
    if len(shown) > _MAX_TEXT_OF_FLOAT or "_" in shown or not shown.isascii():
        raise broken(f"{shown[:40]!r} is not a number")
    try:
        return float(shown), pos
    except ValueError:
        raise broken(f"{shown[:40]!r} is not a number") from None


_FLOAT = struct.Struct("f")


def _float(data: bytes, pos: int, context: int) -> tuple[float, int]:
    number, pos = _double(data, pos, context)
    try:
        (number,) = _FLOAT.unpack(_FLOAT.pack(number))
    except OverflowError:
        number = float("inf") if number > 0 else -float("inf")
    return number, pos


def _deeper(context: int) -> int:
    if context & _DEPTH_MASK >= MAX_DEPTH:
        raise broken(f"values are nested more than {MAX_DEPTH} deep")
    return context + 1


def value_at(data: bytes, pos: int, context: int) -> tuple[Value, int]:
    """Decode a type and the data of that type."""
    type = data[pos]
    pos += 1
    if type > 127:
        type, pos = tag_of(data, pos - 1)
    if not type:
        return _UNDEF, pos
    held, pos = DECODERS[type](data, pos, context)
    return _new(Value, (type, held)), pos


_UNDEF = Value.unchecked(codes.UNDEF, None)
"""Shared, as it takes one byte in a message."""


def _value(data: bytes, pos: int, context: int) -> tuple[Value, int]:
    return value_at(data, pos, _deeper(context))


def _proc(data: bytes, pos: int, context: int) -> tuple[Proc, int]:
    found, pos = procs(data, pos, 1, context)
    return found[0], pos


def procs(data: bytes, pos: int, count: int, context: int) -> tuple[list[Proc], int]:
    """Decode procs, one after the other."""
    found: list[Proc] = []
    known = _KEYS
    for _ in range(count):
        size = data[pos]
        if size > 127 or size & 1:
            nspace, pos = _nspace(data, pos, context)
        else:
            start = pos + 1
            pos = start + (size >> 1)
            raw = data[start:pos]
            nspace = known.get(raw) or _learn(raw, data, pos)
        rank = data[pos]
        pos += 1
        if rank > 127:
            rank, pos = flex(data, pos - 1)
            if rank > RANK_UNDEF:
                raise _beyond(codes.PROC_RANK, rank)
        found.append(_new(Proc, (nspace, rank)))
    return found, pos


_VALUES: dict[int, Value] = {}
"""Values whose data is one byte, by that byte and their type."""

_INFOS: dict[bytes, Info] = {}
"""Infos whose value is one byte, by their bytes: most infos of most messages."""


def infos(data: bytes, pos: int, count: int, context: int) -> tuple[list[Info], int]:
    """Decode infos, one after the other."""
    found: list[Info] = []
    known = _KEYS
    single = _SINGLE
    held: Any
    for _ in range(count):
        size = data[pos]
        if size > 127 or size & 1:
            name, end = key(data, pos)
            start = 0
        else:
            start = pos + 1
            end = start + (size >> 1)
            if single[data[end + 1]]:
                info = _INFOS.get(data[start : end + 3])
                if info is not None:
                    found.append(info)
                    pos = end + 3
                    continue
            raw = data[start:end]
            name = known.get(raw) or _learn(raw, data, end)
        flags = data[end]
        pos = end + 1
        if flags > 127:
            flags, pos = _flags(data, end, context)
        type = data[pos]
        pos += 1
        if type > 127:
            type, pos = tag_of(data, pos - 1)
        if type == 3:
            size = data[pos]
            if size > 127 or size < 2 or size & 1:
                held, pos = _string(data, pos, context)
            else:
                start = pos + 1
                pos = start + (size >> 1)
                held = data[start : pos - 1].decode("utf-8", "surrogateescape")
                if data[pos - 1] or "\0" in held:
                    raise _bad_string(data, pos)
            found.append(_new(Info, (name, _new(Value, (type, held)), flags)))
        elif single[type] and data[pos] < single[type]:
            info = _new(Info, (name, _value_of(type, data[pos]), flags))
            pos += 1
            if start and pos == end + 3 and size <= 128:
                keep(_INFOS, 4096, data[start:pos], info)
            found.append(info)
        else:
            held, pos = DECODERS[type](data, pos, context)
            found.append(_new(Info, (name, _new(Value, (type, held)), flags)))
    return found, pos


def _value_of(type: int, byte: int) -> Value:
    number = type << 8 | byte
    value = _VALUES.get(number)
    if value is None:
        held, _ = DECODERS[type](BYTES[byte], 0, 0)
        _VALUES[number] = value = Value.unchecked(type, held)
    return value


def _info(data: bytes, pos: int, context: int) -> tuple[Info, int]:
    found, pos = infos(data, pos, 1, _deeper(context))
    return found[0], pos


def _pdata(data: bytes, pos: int, context: int) -> tuple[types.Pdata, int]:
    proc, pos = _proc(data, pos, context)
    name, pos = key(data, pos)
    value, pos = value_at(data, pos, _deeper(context))
    return types.Pdata(proc, name, value), pos


def _kval(data: bytes, pos: int, context: int) -> tuple[types.KeyValue, int]:
    name, pos = key(data, pos)
    value, pos = value_at(data, pos, _deeper(context))
    return types.KeyValue(name, value), pos


def _strings(data: bytes, pos: int, context: int) -> tuple[tuple[str, ...], int]:
    count, pos = count_of(data, pos)
    if context.__class__ is Metered:
        context.charge(codes.STRING, count)
    found = []
    for _ in range(count):
        item, pos = _text(data, pos)
        found.append(item)
    return tuple(found), pos


def raw(data: bytes, pos: int, context: int) -> tuple[bytes, int]:
    """Decode a length and as many bytes."""
    size = data[pos]
    pos += 1
    if size > 127:
        size, pos = flex(data, pos - 1)
    end = pos + size
    if end > len(data):
        raise broken(f"{size} bytes are announced where {len(data) - pos} follow")
    return data[pos:end], end


def _buffer(data: bytes, pos: int, context: int) -> tuple[structures.Buffer, int]:
    from pypmix.standard.structures import Buffer

    kind = data[pos]
    if kind not in (1, 2):
        raise broken(f"a buffer has an unknown kind, {kind}")
    held, pos = raw(data, pos + 1, context)
    return Buffer(kind, held), pos


def _pointer(data: bytes, pos: int, context: int) -> tuple[int, int]:
    _ = data[pos]
    return 0, pos + 1


def _pointers(data: bytes, pos: int, count: int, context: int) -> tuple[list[int], int]:
    if not count:
        return [], pos
    # Natives send one mark for any number of pointers.
    if count > _POINTERS_MOST:
        raise broken(f"{count} pointers are announced; the limit is {_POINTERS_MOST}")
    _ = data[pos]
    return [0] * count, pos + 1


def _proc_info(data: bytes, pos: int, context: int) -> tuple[types.ProcInfo, int]:
    proc, pos = _proc(data, pos, context)
    hostname, pos = _string(data, pos, context)
    executable, pos = _string(data, pos, context)
    pid, pos = _pid(data, pos, context)
    return types.ProcInfo(proc, hostname, executable, pid, data[pos]), pos + 1


def _array(data: bytes, pos: int, context: int) -> tuple[DataArray, int]:
    found, pos = _strict_array(data, pos, context)
    # Writers of 6.x send a size, which is 0, after an empty array's missing type, but nothing after a missing array.
    if found.type == codes.UNDEF and context >> RULE_SHIFT == TYPELESS_MIXED and data[pos : pos + 1] == b"\0":
        pos += 1
    return found, pos


def _strict_array(data: bytes, pos: int, context: int) -> tuple[DataArray, int]:
    context = _deeper(context)
    type, pos = tag_of(data, pos)
    if type == codes.UNDEF:
        if context >> RULE_SHIFT == TYPELESS_SIZED:
            _, pos = flex(data, pos)
        return _empty(type), pos
    count, pos = flex(data, pos)
    if not count:
        return _empty(type), pos
    if type == codes.POINTER:
        found, pos = _pointers(data, pos, count, context)
        return DataArray(type, _nulls(count)), pos
    found, pos = many(type, data, pos, count, context)
    return DataArray(type, tuple(found)), pos


_EMPTY: dict[int, DataArray] = {}
"""Empty arrays by the type of their elements: shared, for they take a byte or two in a message."""

_NULLS: dict[int, tuple[int, ...]] = {}
"""Null pointers by their number: shared, because any number of them takes one byte in a message."""


def _empty(type: int) -> DataArray:
    found = _EMPTY.get(type)
    return _EMPTY.setdefault(type, DataArray(type, ())) if found is None else found


def _nulls(count: int) -> tuple[int, ...]:
    return _NULLS.get(count) or _NULLS.setdefault(count, (0,) * count)


def _arrays(data: bytes, pos: int, count: int, context: int) -> tuple[list[DataArray], int]:
    found: list[DataArray] = []
    for _ in range(count):
        item, pos = _strict_array(data, pos, context)
        found.append(item)
    return found, pos


def many(type: int, data: bytes, pos: int, count: int, context: int) -> tuple[list[Any], int]:
    """Decode `count` values of one type, one after the other."""
    if type == codes.POINTER:
        return _pointers(data, pos, count, context)
    if count > len(data) - pos:
        raise _too_many(count, data, pos)
    if context.__class__ is Metered:
        context.pay(_IN_ARRAYS[type] * count >> 4)
    at_once = _MANY.get(type)
    if at_once is not None:
        return at_once(data, pos, count, context)
    decode = DECODERS[type]
    found: list[Any] = []
    for _ in range(count):
        item, pos = decode(data, pos, context)
        found.append(item)
    return found, pos


def _bytes(data: bytes, pos: int, count: int, context: int) -> tuple[list[int], int]:
    return list(data[pos : pos + count]), pos + count


def _envar(data: bytes, pos: int, context: int) -> tuple[types.Envar, int]:
    name, pos = _string(data, pos, context)
    value, pos = _string(data, pos, context)
    separator = data[pos]
    return types.Envar(name, value, chr(separator) if separator else ""), pos + 1


def _regex(data: bytes, pos: int, context: int) -> tuple[bytes, int]:
    from pypmix.wire.regex import extent

    end = extent(data, pos)
    found = data[pos:end]
    return found if found.startswith(b"blob:\0") else found[:-1], end


_SUPPORT_SIZES = (32, 31, 29, 27)
"""The numbers of flags of hwloc: 2.4 and later, 2.1, 2.0, 1.11."""


def _topology(data: bytes, pos: int, context: int) -> tuple[structures.Topology, int]:
    from pypmix.standard.structures import Topology

    xml, pos = _string(data, pos, context)
    if xml is None or context >> RULE_SHIFT == TYPELESS_BARE:
        return Topology(xml), pos
    # Before 7 the flags follow, as many as the writer's hwloc has; nothing says how many.
    for size in _SUPPORT_SIZES:
        flags = data[pos : pos + size]
        if len(flags) == size and max(flags) <= 1:
            return Topology(xml, flags), pos + size
    raise broken("the support flags of a topology are missing")


def _structure(made: Callable[..., Any], fields: Iterable[int | tuple[int]]) -> Decoder:
    decoders = [
        _counted(*field) if isinstance(field, tuple) else _FIELDS.get(field) or _uncharged(field) for field in fields
    ]

    def decode(data: bytes, pos: int, context: int) -> tuple[Any, int]:
        values: list[Any] = []
        for decode in decoders:
            item, pos = decode(data, pos, context)
            values.append(item)
        return made(*values), pos

    return decode


def _counted(type: int) -> Decoder:
    def decode(data: bytes, pos: int, context: int) -> tuple[tuple[Any, ...], int]:
        count, pos = size_of(data, pos)
        # Only infos may contain values that contain such a structure.
        values, pos = many(type, data, pos, count, _deeper(context) if type == codes.INFO else context)
        return tuple(values), pos

    return decode


def _uint16_as_int16(data: bytes, pos: int, context: int) -> tuple[int, int]:
    number, pos = DECODERS[codes.INT16](data, pos, context)
    return number & 0xFFFF, pos


_FIELDS: dict[int, Decoder] = {
    STRINGS: _strings,
    KEY: lambda data, pos, _context: key(data, pos),
    LEFT_OUT: lambda _data, pos, _context: (0.0, pos),
    UINT16_AS_INT16: _uint16_as_int16,
}


def _unknown(type: int) -> Decoder:
    def decode(data: bytes, pos: int, context: int) -> tuple[Any, int]:
        raise UnknownType(f"the data type {type} is not known", operation="unpack")

    return decode


_flags = _unsigned(codes.INFO_DIRECTIVES)
_int = _signed(codes.INT)

_MANY: dict[int, Many] = {
    codes.INFO: infos,
    codes.PROC: procs,
    codes.BYTE: _bytes,
    codes.UINT8: _bytes,
    codes.PID: _pids,
    codes.DATA_ARRAY: _arrays,
}

_SINGLE = [0] * 256
"""The first bytes below which the data of a type is that one byte; 0 if it never is."""

for _type in (*UNSIGNED, *SIGNED, codes.UINT):
    _SINGLE[_type] = 128
for _type in (*ONE_BYTE, codes.BOOL, codes.INT8):
    _SINGLE[_type] = 256

_AT_HAND: dict[int, Decoder] = {
    **dict.fromkeys(ONE_BYTE, _byte),
    **dict.fromkeys(OPAQUE, raw),
    codes.UNDEF: _nothing,
    codes.BOOL: _bool,
    codes.INT8: _int8,
    codes.STRING: _string,
    codes.UINT: _uint,
    codes.PID: _pid,
    codes.FLOAT: _float,
    codes.DOUBLE: _double,
    codes.TIME: _time,
    codes.VALUE: _value,
    codes.PROC: _proc,
    codes.INFO: _info,
    codes.PDATA: _pdata,
    codes.BUFFER: _buffer,
    codes.KVAL: _kval,
    codes.POINTER: _pointer,
    codes.PROC_INFO: _proc_info,
    codes.DATA_ARRAY: _array,
    codes.ENVAR: _envar,
    codes.REGEX: _regex,
    codes.TOPO: _topology,
    codes.PROC_NSPACE: _nspace,
}
"""Decoders that need not be made; without the charge for their values."""

_PRICES = [320] * _TYPES
"""The cost of a value of a type without that of its arrays' contents, in sixteenths of a unit of `MAX_WORK`."""

for _type in (*UNSIGNED, *SIGNED, *OPAQUE, *ONE_BYTE, codes.STRING, codes.PID, codes.TIME, codes.VALUE):
    _PRICES[_type] = 64
for _type in (codes.BOOL, codes.INT8, codes.POINTER, codes.UNDEF):
    _PRICES[_type] = 32
for _type in (codes.BYTE, codes.UINT8):
    _PRICES[_type] = 2
for _type in (codes.INFO, codes.FLOAT, codes.DOUBLE, codes.TIMEVAL, codes.PROC_NSPACE, codes.ENVAR, codes.DEVICE):
    _PRICES[_type] = 160
# Their nspaces are looked up, too.
_PRICES[codes.PROC] = 128
for _type in (codes.APP, codes.PDATA, codes.PROC_INFO, codes.DISK_STATS, codes.NET_STATS):
    _PRICES[_type] = 480
for _type in (codes.PROC_STATS, codes.NODE_STATS):
    _PRICES[_type] = 1600


_IN_ARRAYS = list(_PRICES)
"""The cost of a value in an array: less, if its decoder charges for it everywhere."""

_CHARGING = frozenset(
    [type for type, price in enumerate(_PRICES) if price >= 160 and type != codes.DATA_ARRAY] + [codes.VALUE]
)
"""The types whose decoder charges for a value everywhere."""

for _type in _CHARGING:
    if _type not in _MANY:
        _IN_ARRAYS[_type] = 16


def _uncharged(type: int) -> Decoder:
    """Return the decoder of a data type that does not charge for its value."""
    decode = _AT_HAND.get(type)
    if decode is None:
        if type in UNSIGNED:
            decode = _unsigned(type)
        elif type in SIGNED:
            decode = _signed(type)
        elif type in STRUCTURES:
            record = types.record_of(type)
            assert record is not None
            decode = _structure(record, STRUCTURES[type])
        else:
            decode = _unknown(type)
        _AT_HAND[type] = decode
    return decode


def decoder_of(type: int) -> Decoder:
    """Return the decoder of a data type, and put it in the table."""
    decode = _uncharged(type)
    if type in _CHARGING:
        decode = _priced(type, decode)
    DECODERS[type] = decode
    return decode


def _priced(type: int, decode: Decoder) -> Decoder:
    def priced(data: bytes, pos: int, context: int) -> tuple[Any, int]:
        if context.__class__ is Metered:
            context.charge(type, 1)
        return decode(data, pos, context)

    return priced


# A process uses few of the types: a decoder is made when it is used first.
DECODERS: list[Decoder] = [
    lambda data, pos, context, type=type: decoder_of(type)(data, pos, context)  # type: ignore[misc]
    for type in range(_TYPES)
]
"""The decoder of every data type, by its number."""

for _type, _decoder in _AT_HAND.items():
    if _type not in _CHARGING:
        DECODERS[_type] = _decoder
