"""Typed data to bytes: one function per data type, found by its number.

Each takes the `append` of a list of pieces, the data in the form of `pypmix.standard.values.check`, and the rule of the
reader (`pypmix.wire.readers`): data that the reader cannot decode is refused with `NotSupported`.
"""

from __future__ import annotations

import struct

from pypmix.standard import codes
from pypmix.standard._typing import TypeVar
from pypmix.standard.types import MAX_KEYLEN, MAX_NSLEN, RANGES, RANK_UNDEF, type_name
from pypmix.wire.readers import (
    REFUSED_ELEMENTS,
    REFUSED_VALUES,
    TYPELESS,
    TYPELESS_BARE,
    TYPELESS_SIZED,
    refused_element,
    refused_value,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from pypmix.standard.record import Record
    from pypmix.standard.types import Info, Proc, Value

    Add = Callable[[bytes], object]
    Encoder = Callable[[Add, Any, int], None]

K = TypeVar("K")
V = TypeVar("V")

UNSIGNED = (
    codes.SIZE,
    codes.UINT16,
    codes.UINT32,
    codes.UINT64,
    codes.INFO_DIRECTIVES,
    codes.PROC_RANK,
    codes.DATA_TYPE,
    codes.IOF_CHANNEL,
    codes.LOCTYPE,
    codes.STOR_ACCESS_TYPE,
    codes.DEVTYPE,
    codes.STOR_MEDIUM,
    codes.STOR_ACCESS,
    codes.STOR_PERSIST,
)
"""Seven bits to a byte."""

SIGNED = (codes.INT, codes.INT16, codes.INT32, codes.INT64, codes.STATUS)
"""The sign moved to the lowest bit, then as unsigned ones."""

ONE_BYTE = (
    codes.BYTE,
    codes.UINT8,
    codes.PERSIST,
    codes.SCOPE,
    codes.DATA_RANGE,
    codes.COMMAND,
    codes.PROC_STATE,
    codes.ALLOC_DIRECTIVE,
    codes.JOB_STATE,
    codes.LINK_STATE,
    codes.RESBLOCK_DIRECTIVE,
    codes.ALLOC_INHERIT,
)
"""A byte as it is."""

OPAQUE = (codes.BYTE_OBJECT, codes.COMPRESSED_STRING, codes.COMPRESSED_BYTE_OBJECT, codes.DATA_BUFFER)
"""A length and as many bytes."""

STRINGS, KEY, LEFT_OUT, UINT16_AS_INT16 = 128, 129, 130, 131
"""Fields that are not simply a value of a type: a number of strings and the strings, a key, a field that natives do not
send, and a field that they store as UINT16 and send as INT16. No data type has such a number.
"""

STRUCTURES: dict[int, tuple[int | tuple[int], ...]] = {
    codes.TIMEVAL: (codes.INT64, codes.INT64),
    codes.APP: (codes.STRING, STRINGS, STRINGS, codes.STRING, codes.INT, (codes.INFO,)),
    codes.QUERY: (STRINGS, (codes.INFO,)),
    codes.COORD: (codes.UINT8, (codes.UINT32,)),
    codes.REGATTR: (codes.STRING, KEY, codes.DATA_TYPE, STRINGS),
    codes.PROC_CPUSET: (codes.STRING,),
    codes.GEOMETRY: (codes.SIZE, codes.STRING, codes.STRING, (codes.COORD,)),
    codes.DEVICE: (codes.STRING, codes.STRING, codes.UINT64),
    codes.DEVICE_DIST: (codes.STRING, codes.STRING, codes.UINT64, codes.UINT16, codes.UINT16),
    codes.ENDPOINT: (codes.STRING, codes.STRING, codes.BYTE_OBJECT),
    codes.RESOURCE_UNIT: (codes.UINT64, codes.SIZE),
    codes.NODE_PID: (codes.STRING, codes.UINT32, codes.PID),
    codes.REGEX2: (codes.STRING, codes.BYTE_OBJECT),
    codes.PROC_STATS: (
        *(codes.STRING, codes.PROC, codes.PID, codes.STRING, codes.UINT8, codes.TIMEVAL),
        *(LEFT_OUT, codes.INT32, UINT16_AS_INT16, codes.FLOAT, codes.FLOAT, codes.FLOAT),
        *(LEFT_OUT, UINT16_AS_INT16, codes.TIMEVAL),
    ),
    codes.DISK_STATS: (codes.STRING, *[codes.UINT64] * 11),
    codes.NET_STATS: (codes.STRING, *[codes.UINT64] * 6),
    codes.NODE_STATS: (codes.STRING, *[codes.FLOAT] * 11, codes.TIMEVAL, (codes.DISK_STATS,), (codes.NET_STATS,)),
}
"""The structures that are the values of their fields, one after the other, in the record's order.

A tuple stands for an array: a size and so many values of that type.
"""

_TYPES = 128

BYTES: tuple[bytes, ...] = tuple([bytes((number,)) for number in range(256)])


def keep(memo: dict[K, V], most: int, key: K, value: V) -> None:
    """Keep the result of a pure function in a memo; a full memo is cleared, so that a peer cannot fill the memory.

    Args:
        memo: The results.
        most: Their largest number.
        key: The arguments of the function.
        value: The result.
    """
    # The same values and bytes are encoded and decoded again and again. Results never become invalid, so that all
    # sessions share a memo. It is a plain dict, as CPython calls the `get` of a subclass more slowly. Threads may use
    # it at the same time; at worst they compute a result twice.
    if len(memo) >= most:
        memo.clear()
    memo[key] = value


def flex(number: int) -> bytes:
    """Return an unsigned integer of at most 64 bits: seven bits to a byte, the ninth byte whole."""
    if number < 128:
        return BYTES[number]
    if number < 16384:
        return bytes((number & 127 | 128, number >> 7))
    out = bytearray()
    while number > 127 and len(out) < 8:
        out.append(number & 127 | 128)
        number >>= 7
    out.append(number)
    return bytes(out)


def zigzag(number: int) -> bytes:
    """Return a signed integer of at most 64 bits: its sign moved to the lowest bit, then `flex`."""
    return flex(number << 1 if number >= 0 else ~(number << 1))


def _beyond(type: int, number: int) -> OverflowError:
    low, high = RANGES[type]
    return OverflowError(f"{number} is out of range for {type_name(type)} ({low} to {high})")


def _unsigned(type: int) -> Encoder:
    top = RANGES[type][1]

    def encode(add: Add, number: int, rule: int) -> None:
        if 0 <= number < 128:
            add(BYTES[number])
        elif 0 <= number <= top:
            add(flex(number))
        else:
            raise _beyond(type, number)

    return encode


def _signed(type: int) -> Encoder:
    low, high = RANGES[type]

    def encode(add: Add, number: int, rule: int) -> None:
        if 0 <= number < 64:
            add(BYTES[number << 1])
        elif low <= number <= high:
            add(zigzag(number))
        else:
            raise _beyond(type, number)

    return encode


def _single(type: int) -> Encoder:
    low, high = RANGES[type]

    def encode(add: Add, number: int, rule: int) -> None:
        if not low <= number <= high:
            raise _beyond(type, number)
        add(BYTES[number & 255])

    return encode


def _nothing(add: Add, data: None, rule: int) -> None:
    if data is not None:
        raise TypeError(f"UNDEF holds nothing, not {data!r:.80}")


def _bool(add: Add, data: bool, rule: int) -> None:
    add(b"\1" if data else b"\0")


def text(data: str) -> bytes:
    """Encode a string: its length with the NUL, its bytes, the NUL."""
    if "\0" in data:
        raise ValueError(f"STRING cannot hold a NUL character: {data!r:.80}")
    raw = data.encode("utf-8", "surrogateescape")
    size = len(raw) + 1
    if size < 64:
        return BYTES[size << 1] + raw + b"\0"
    if size > 0x7FFFFFFF:
        raise OverflowError(f"a string of {size - 1} bytes is longer than the wire can carry")
    return flex(size << 1) + raw + b"\0"


def _string(add: Add, data: str | None, rule: int) -> None:
    add(b"\0" if data is None else text(data))


_KEYS: dict[str, bytes] = {}


def key_bytes(key: str) -> bytes:
    """Encode a key; a known key costs one lookup."""
    found = _KEYS.get(key)
    if found is None:
        found = text(key)
        if len(found) > MAX_KEYLEN:
            size = len(key.encode("utf-8", "surrogateescape"))
            if size > MAX_KEYLEN:
                raise ValueError(f"a key of {size} bytes is longer than {MAX_KEYLEN}: {key[:40]!r}...")
        elif len(found) <= 64:
            keep(_KEYS, 4096, str(key), found)
    return found


def _nspace(add: Add, data: str, rule: int) -> None:
    if len(data) > MAX_NSLEN:
        raise ValueError(f"an nspace of {len(data)} characters is longer than {MAX_NSLEN}: {data[:40]!r}...")
    add(key_bytes(data))


def _uint(add: Add, number: int, rule: int) -> None:
    if not 0 <= number <= 0xFFFFFFFF:
        raise _beyond(codes.UINT, number)
    # Natives send it as an INT of the same bits.
    add(zigzag(number if number < 1 << 31 else number - (1 << 32)))


def _pid(add: Add, number: int, rule: int) -> None:
    _pids(add, (number,), rule)


def _pids(add: Add, numbers: Iterable[int], rule: int) -> None:
    low, high = RANGES[codes.PID]
    # The type of the numbers is sent once, before all of them.
    tag = b"\x0e"
    for number in numbers:
        if not low <= number <= high:
            raise _beyond(codes.PID, number)
        add(tag + flex(number & 0xFFFFFFFF))
        tag = b""


def _time(add: Add, number: int, rule: int) -> None:
    low, high = RANGES[codes.TIME]
    if not low <= number <= high:
        raise _beyond(codes.TIME, number)
    add(flex(number & 0xFFFFFFFFFFFFFFFF))


_INFINITY = float("inf")
"""The bound that only NaN does not satisfy."""


def _double(add: Add, number: float, rule: int) -> None:
    # Natives write six decimals and read anything that strtod takes, so more digits where six would lose some.
    shown = "nan" if not number <= _INFINITY else f"{number:f}"
    if float(shown) != number and shown != "nan":
        shown = repr(float(number))
    add(text(shown))


_FLOAT = struct.Struct("f")


def _float(add: Add, number: float, rule: int) -> None:
    if not number <= _INFINITY:
        add(text("nan"))
        return
    wanted = _FLOAT.pack(number)
    (number,) = _FLOAT.unpack(wanted)
    shown = f"{number:f}"
    digits = 6
    while _FLOAT.pack(float(shown)) != wanted:
        shown = f"{number:.{digits}g}"
        digits += 1
    add(text(shown))


def _value(add: Add, data: Value, rule: int) -> None:
    type, held = data
    if type in REFUSED_VALUES[rule]:
        raise refused_value(type, rule)
    add(BYTES[type] if type < 128 else flex(type))
    ENCODERS[type](add, held, rule)


def _proc(add: Add, data: Proc, rule: int) -> None:
    nspace, rank = data
    add(_KEYS.get(nspace) or key_bytes(nspace))
    if 0 <= rank < 128:
        add(BYTES[rank])
    elif 0 <= rank <= RANK_UNDEF:
        add(flex(rank))
    else:
        raise _beyond(codes.PROC_RANK, rank)


_PLAIN: tuple[bytes, ...] = tuple([b"\0" + BYTES[number] for number in range(_TYPES)])


def infos(add: Add, items: Iterable[Info], rule: int) -> None:
    """Encode infos, one after the other."""
    known = _KEYS
    plain = _PLAIN
    refused = REFUSED_VALUES[rule]
    for key, (type, data), flags in items:
        if type in refused:
            raise refused_value(type, rule)
        add(known.get(key) or key_bytes(key))
        if flags:
            _flags(add, flags, rule)
            add(BYTES[type])
        else:
            add(plain[type])
        ENCODERS[type](add, data, rule)


def _info(add: Add, data: Info, rule: int) -> None:
    infos(add, (data,), rule)


def _pdata(add: Add, data: Any, rule: int) -> None:
    _proc(add, data.proc, rule)
    add(key_bytes(data.key))
    _value(add, data.value, rule)


def _kval(add: Add, data: Any, rule: int) -> None:
    add(key_bytes(data.key))
    _value(add, data.value, rule)


def _strings(add: Add, strings: Sequence[str], rule: int) -> None:
    add(zigzag(len(strings)))
    for item in strings:
        add(text(item))


def _raw(add: Add, data: bytes, rule: int) -> None:
    if not isinstance(data, bytes):
        raise TypeError(f"bytes are expected, not {data.__class__.__name__}")
    size = len(data)
    add(BYTES[size] if size < 128 else flex(size))
    add(data)


def _buffer(add: Add, data: Any, rule: int) -> None:
    add(BYTES[data.kind])
    _raw(add, data.data, rule)


def _pointer(add: Add, data: int, rule: int) -> None:
    add(b"\1")


def _proc_info(add: Add, data: Any, rule: int) -> None:
    _proc(add, data.proc, rule)
    _string(add, data.hostname, rule)
    _string(add, data.executable, rule)
    _pid(add, data.pid, rule)
    _state(add, data.state, rule)


def _array(add: Add, data: Any, rule: int) -> None:
    type, items = data.type, data.items
    if type == codes.UNDEF:
        add(b"\0\0" if rule & TYPELESS == TYPELESS_SIZED else b"\0")
        return
    if type in REFUSED_ELEMENTS[rule]:
        raise refused_element(type, rule)
    add(flex(type))
    add(flex(len(items)))
    many(add, type, items, rule)


_RUNS: dict[int, tuple[tuple[Proc, ...], bytes]] = {}
"""The last long lists of procs and their encodings, by the identity of the list."""

_RUN = range(8, 4096)


def _procs(add: Add, procs: tuple[Proc, ...], rule: int) -> None:
    """Encode procs, one after the other; the encodings of long lists, such as groups, are kept."""
    known = _RUNS.get(id(procs))
    if known is not None and known[0] is procs:
        add(known[1])
        return
    parts: list[bytes] = []
    for proc in procs:
        _proc(parts.append, proc, rule)
    packed = b"".join(parts)
    keep(_RUNS, 32, id(procs), (procs, packed))
    add(packed)


def many(add: Add, type: int, items: Iterable[Any], rule: int) -> None:
    """Encode values of one type, one after the other."""
    if type == codes.INFO:
        infos(add, items, rule)
    elif type == codes.PROC and isinstance(items, tuple) and len(items) in _RUN:
        _procs(add, items, rule)
    elif type == codes.POINTER:
        # Natives send one mark for any number of pointers.
        for _ in items:
            add(b"\1")
            break
    elif type == codes.PID:
        _pids(add, items, rule)
    else:
        encode = ENCODERS[type]
        for item in items:
            encode(add, item, rule)


def _envar(add: Add, data: Any, rule: int) -> None:
    _string(add, data.name, rule)
    _string(add, data.value, rule)
    separator = data.separator.encode("latin-1")
    if len(separator) > 1:
        raise ValueError(f"a separator is one character, not {data.separator!r}")
    add(separator or b"\0")


def _regex(add: Add, data: bytes, rule: int) -> None:
    from pypmix.wire.regex import packed

    add(packed(data))


def _topology(add: Add, data: Any, rule: int) -> None:
    _string(add, data.xml, rule)
    if data.xml is None or rule & TYPELESS == TYPELESS_BARE:
        return
    if not data.support:
        raise ValueError("releases before 7 expect the support flags of hwloc behind a topology's XML")
    add(data.support)


def _structure(fields: Iterable[int | tuple[int]]) -> Encoder:
    encoders = [
        _counted(*field) if isinstance(field, tuple) else _FIELDS.get(field) or encoder_of(field) for field in fields
    ]

    def encode(add: Add, data: Record, rule: int) -> None:
        for encode, item in zip(encoders, data.astuple(), strict=True):
            encode(add, item, rule)

    return encode


def _counted(type: int) -> Encoder:
    def encode(add: Add, items: Sequence[Any], rule: int) -> None:
        add(flex(len(items)))
        many(add, type, items, rule)

    return encode


def _key(add: Add, data: str, rule: int) -> None:
    add(key_bytes(data))


def _left_out(add: Add, data: object, rule: int) -> None:
    return


def _uint16_as_int16(add: Add, number: int, rule: int) -> None:
    ENCODERS[codes.INT16](add, number - 65536 if 32767 < number < 65536 else number, rule)


_FIELDS: dict[int, Encoder] = {STRINGS: _strings, KEY: _key, LEFT_OUT: _left_out, UINT16_AS_INT16: _uint16_as_int16}


def _refused(type: int) -> Encoder:
    def encode(add: Add, data: Any, rule: int) -> None:
        raise TypeError(f"{type_name(type)} is not a data type that pypmix can send")

    return encode


_flags = _unsigned(codes.INFO_DIRECTIVES)
_state = _single(codes.PROC_STATE)


def _made(type: int) -> Encoder:
    if type in UNSIGNED:
        return _unsigned(type)
    if type in SIGNED:
        return _signed(type)
    if type in ONE_BYTE or type == codes.INT8:
        return _single(type)
    fields = STRUCTURES.get(type)
    return _refused(type) if fields is None else _structure(fields)


def encoder_of(type: int) -> Encoder:
    """Return the encoder of a data type, and put it in the table."""
    encode = _AT_HAND.get(type)
    if encode is None:
        encode = _AT_HAND[type] = _made(type)
    ENCODERS[type] = encode
    return encode


_AT_HAND: dict[int, Encoder] = {
    **dict.fromkeys(OPAQUE, _raw),
    codes.UNDEF: _nothing,
    codes.BOOL: _bool,
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

# A process uses few of the types: an encoder is made when it is used first.
ENCODERS: list[Encoder] = [
    _AT_HAND.get(type) or (lambda add, data, rule, type=type: encoder_of(type)(add, data, rule))  # type: ignore[misc]
    for type in range(_TYPES)
]
"""The encoder of every data type, by its number."""
