"""The one serializer of the messages between servers.

A message is a byte for its kind and fields, each of them four bytes of length and then its bytes. A field contains
bytes, a text, a number, procs, infos or further fields. Each kind of message is declared once, as a `Field` with a
separate type, which writes and reads it. Bytes that do not parse raise `RemoteProtocolError`. The values that are read
take memory in proportion to the length of their message. Procs are sent as spans of ranks, and lists may be compressed,
so the procs and values of a whole message are counted (`counted`).
"""

from __future__ import annotations

import struct
import threading
import zlib
from functools import lru_cache
from operator import methodcaller

from pypmix.data import DataBuffer
from pypmix.host.exchange.carrier import MAX_MESSAGE
from pypmix.host.exchange.limits import DEFLATE_BYTES
from pypmix.standard import codes
from pypmix.standard._typing import Generic, TypeVar
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.jobinfo import JobInfo
from pypmix.standard.ops import Lookup, Publish, Unpublish
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_NSLEN, RANK_UNDEF, DataArray, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from pypmix.standard.ops import Op

    Groups = tuple[tuple[str, tuple[Proc, ...]], ...]
    """Groups, or connections, by their names, with their members."""

T = TypeVar("T")
R = TypeVar("R", bound=Record)

MAX_SECONDS = 2.0**31
MAX_PROCS = 1 << 20
"""The most procs that a message may name, and the most values of its lists."""

SAME_PROCS = 1 << 10
"""The procs that are written and read once for many messages that name one of them."""

PROC_BYTES = 25 + MAX_NSLEN
"""The most bytes of one proc: the kind, two lengths, the bounds of its rank, and the nspace."""

FEW_BOUNDS = 6
"""The bounds of three ranks that do not follow each other."""

REQUEST, ANSWER, REFUSED, TELL, ASIDE = range(1, 6)
"""The kinds of messages; `ASIDE` messages pass the held messages of their sender."""

SEVERAL, BASED = 12, 13
"""Several messages as one, and a message with the basis that the receiver needs before it (`Outbox.rebase`)."""

_KINDS = [bytes((kind,)) for kind in range(256)]
LENGTH = struct.Struct("!I")
"""The length before each field of a message."""

_pack_length, _unpack_length = LENGTH.pack, LENGTH.unpack_from

_NUMBERED = struct.Struct("!BIq")
"""The beginning of a request or an answer: its kind, and its number as a field."""

_HEAD = struct.Struct("!BIqI")
"""The same, and the length of the next field."""

_HEAD_SIZE = _HEAD.size


def broken(detail: str) -> RemoteProtocolError:
    """Return the error for bytes that do not parse."""
    return RemoteProtocolError(detail, operation="exchange")


def pack(kind: int, *fields: bytes) -> bytes:
    """Return a message."""
    parts = [_KINDS[kind]]
    for field in fields:
        parts += (_pack_length(len(field)), field)
    return b"".join(parts)


def framed(data: bytes) -> bytes:
    """Return a field in the form that it has in a message."""
    return _pack_length(len(data)) + data


def unpack(message: bytes) -> tuple[int, list[bytes]]:
    """Return the kind of a message and its fields.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    if not message:
        raise broken("a message is empty")
    size = len(message)
    pos = 1
    fields = []
    while pos < size:
        start = pos + 4
        if start > size:
            raise broken("a message ends within the length of a field")
        pos = start + _unpack_length(message, start - 4)[0]
        if pos > size:
            raise broken(f"a field reaches {pos - size} bytes beyond its message")
        fields.append(message[start:pos])
    return message[0], fields


def expect(fields: list[bytes], count: int) -> list[bytes]:
    """Return the fields if their number is right.

    Raises:
        RemoteProtocolError: It is not.
    """
    if len(fields) != count:
        raise broken(f"a message has {len(fields)} fields where {count} are expected")
    return fields


class _Count(threading.local):
    """The procs and values of lists that the message of a thread may still have; None while no message is read."""

    left: int | None = None


_count = _Count()


def counted(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Return a function that reads a message, or a part of one, and adds its procs and values to the whole count."""

    def counting(data: bytes) -> T:
        if _count.left is not None:
            return read(data)
        _count.left = MAX_PROCS
        try:
            return read(data)
        finally:
            _count.left = None

    return counting


def _take(number: int) -> None:
    """Count procs, or values of a list.

    Raises:
        RemoteProtocolError: The message has too many.
    """
    left = MAX_PROCS if _count.left is None else _count.left
    if number > left:
        raise broken(f"a message has more than {MAX_PROCS} procs or values")
    if _count.left is not None:
        _count.left = left - number


class Field(Generic[T]):
    """Writes and reads values of one type; `read` raises `RemoteProtocolError` for other bytes."""

    __slots__ = ("read", "write")

    def __init__(self, write: Callable[[T], bytes], read: Callable[[bytes], T]) -> None:
        self.write = write
        self.read = read


def many(field: Field[T]) -> Field[tuple[T, ...]]:
    """Return the field of any number of values."""

    def read(data: bytes) -> tuple[T, ...]:
        values = unpack(data)[1]
        _take(len(values))
        return tuple(map(field.read, values))

    return Field(lambda values: pack(0, *map(field.write, values)), counted(read))


def at_least_one(field: Field[T]) -> Field[tuple[T, ...]]:
    """Return the field of any number of values, at least one."""
    any_number = many(field)

    def read(data: bytes) -> tuple[T, ...]:
        values = any_number.read(data)
        if not values:
            raise broken("a list is empty and needs a value")
        return values

    return Field(any_number.write, read)


def deflated(data: bytes) -> bytes:
    """Return long, repetitive data in a shorter form."""
    return zlib.compress(data, 1)


def inflated(data: bytes) -> bytes:
    """Return the argument of `deflated`.

    Raises:
        RemoteProtocolError: It does not parse, or is longer than a message may be.
    """
    inflater = zlib.decompressobj()
    try:
        found = inflater.decompress(data, MAX_MESSAGE)
    except zlib.error as error:
        raise broken(str(error)) from None
    if not inflater.eof or inflater.unused_data:
        raise broken("a compressed field is cut off, or longer than a message")
    return found


def compressed(field: Field[T]) -> Field[T]:
    """Return the field of a value that is compressed if it is long."""

    def write(value: T) -> bytes:
        data = field.write(value)
        return pack(1, deflated(data)) if len(data) >= DEFLATE_BYTES else pack(0, data)

    def read(data: bytes) -> T:
        is_deflated, fields = unpack(data)
        (found,) = expect(fields, 1)
        return field.read(inflated(found) if is_deflated else found)

    return Field(write, read)


def optional(field: Field[T]) -> Field[T | None]:
    """Return the field of a value that may be None."""
    any_number = many(field)

    def read(data: bytes) -> T | None:
        values = any_number.read(data)
        if len(values) > 1:
            raise broken(f"an optional field has {len(values)} values instead of one")
        return values[0] if values else None

    return Field(lambda value: any_number.write(() if value is None else (value,)), read)


def message(*fields: Field[Any]) -> Field[Any]:
    """Return the field of a tuple with one value for each of these."""

    def write(values: tuple[Any, ...]) -> bytes:
        return pack(0, *[field.write(value) for field, value in zip(fields, values, strict=True)])

    def read(data: bytes) -> tuple[Any, ...]:
        found = expect(unpack(data)[1], len(fields))
        return tuple([field.read(value) for field, value in zip(fields, found, strict=True)])

    return Field(write, counted(read))


def record(make: Callable[..., R], *fields: Field[Any]) -> Field[R]:
    """Return the field of a record with one value for each of these, in their order."""
    names: tuple[str, ...] = make.__match_args__  # type: ignore[attr-defined]
    inner = message(*fields)

    def read(data: bytes) -> R:
        try:
            found: R = make(*inner.read(data))
        except (TypeError, ValueError, OverflowError) as error:
            raise broken(str(error)) from None
        return found

    return Field(lambda value: inner.write(tuple([getattr(value, name) for name in names])), read)


def _fixed(format: str) -> Field[Any]:
    """Return the field of a number of a fixed length."""
    layout = struct.Struct(format)

    def read(data: bytes) -> Any:
        if len(data) != layout.size:
            raise broken(f"a number has {len(data)} bytes instead of {layout.size}")
        return layout.unpack(data)[0]

    return Field(layout.pack, read)


NUMBER: Field[int] = _fixed("!q")


def within(low: int, high: int) -> Field[int]:
    """Return the field of a number in a range, both ends included."""

    def read(data: bytes) -> int:
        number = NUMBER.read(data)
        if not low <= number <= high:
            raise broken(f"{number} is not a number from {low} to {high}")
        return number

    return Field(NUMBER.write, read)


STATUS = within(-(1 << 31), (1 << 31) - 1)
"""A status, or the code of an event."""

RANGE = within(0, 255)
SECONDS: Field[float] = _fixed("!d")


def _to_limit(field: bytes) -> float:
    seconds = SECONDS.read(field)
    if not 0 < seconds < MAX_SECONDS:
        raise broken(f"a time limit is above 0 and below {MAX_SECONDS:.0f} seconds, not {seconds}")
    return seconds


def _to_name(field: bytes) -> str:
    if not field:
        raise broken("a name is empty")
    return TEXT.read(field)


def _to_flag(field: bytes) -> bool:
    if field not in (b"\0", b"\1"):
        raise broken(f"a flag is a byte of 0 or 1, not {field!r:.20}")
    return field == b"\1"


BYTES: Field[bytes] = Field(lambda data: data, lambda data: data)
FLAG: Field[bool] = Field(lambda on: b"\1" if on else b"\0", _to_flag)
LIMIT: Field[float] = Field(SECONDS.write, _to_limit)
TEXT: Field[str] = Field(
    methodcaller("encode", "utf-8", "surrogateescape"), methodcaller("decode", "utf-8", "surrogateescape")
)
NAME: Field[str] = Field(TEXT.write, _to_name)
TEXTS = many(TEXT)
NAMES = many(NAME)


@lru_cache(maxsize=1024)
def framed_text(text: str) -> bytes:
    """Return a text in the form that it has in a message; names of servers and operations are repeated often."""
    return framed(TEXT.write(text))


def read_numbered(message: bytes, count: int) -> tuple[Any, ...]:
    """Return the number of a request or an answer, and its other fields, one or two.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    size = len(message)
    if size >= _HEAD_SIZE:
        _, eight, number, first = _HEAD.unpack_from(message)
        end = _HEAD_SIZE + first
        if eight == 8 and count == 1 and end == size:
            return number, message[_HEAD_SIZE:]
        if eight == 8 and count == 2 and end + 4 <= size and end + 4 + _unpack_length(message, end)[0] == size:
            return number, message[_HEAD_SIZE:end], message[end + 4 :]
    text, *parts = expect(unpack(message)[1], count + 1)
    return NUMBER.read(text), *parts


def pack_request_message(number: int, topic: str, data: bytes) -> bytes:
    """Return the message of a request."""
    return _NUMBERED.pack(REQUEST, 8, number) + framed_text(topic) + _pack_length(len(data)) + data


def pack_answer(number: int, data: bytes) -> bytes:
    """Return the message of an answer."""
    return _HEAD.pack(ANSWER, 8, number, len(data)) + data


def _write_ranks(ranks: Iterable[int]) -> bytes:
    """Return the start of each run of consecutive ranks, and the rank after it.

    Ranks that are dealt out to nodes in turn have the same distance: for these, the rank after the last one comes
    first, and after the first rank the distance and a zero.
    """
    bounds: list[int] = []
    for rank in ranks:
        if bounds and bounds[-1] == rank:
            bounds[-1] = rank + 1
        else:
            bounds += (rank, rank + 1)
    if len(bounds) >= FEW_BOUNDS:
        bounds = _dealt(bounds)
    return struct.pack(f"!{len(bounds)}Q", *bounds)


def _dealt(bounds: list[int]) -> list[int]:
    """Return bounds with single ranks of the same distance as one run, if three or more follow each other."""
    found: list[int] = []
    at = 0
    while at < len(bounds):
        low = last = bounds[at]
        end = at + 2
        step = bounds[end] - low if end < len(bounds) else 0
        while step > 1 and bounds[end - 1] == last + 1 and bounds[end : end + 2] == [last + step, last + step + 1]:
            last += step
            end += 2
        if end - at >= FEW_BOUNDS:
            found += (last + 1, low, step, 0)
        else:
            end = at + 2
            found += bounds[at:end]
        at = end
    return found


def _read_ranks(data: bytes) -> Sequence[int]:
    if len(data) % 16:
        raise broken(f"spans of ranks have {len(data)} bytes, which are not pairs of bounds")
    bounds = struct.unpack(f"!{len(data) // 8}Q", data)
    spans: list[range] = []
    pairs = zip(bounds[::2], bounds[1::2], strict=True)
    for low, high in pairs:
        if low <= high:
            spans.append(range(low, high))
            continue
        step, end = next(pairs, (0, 1))
        if not step or end:
            raise broken("a span of ranks ends before it begins")
        spans.append(range(high, low, step))
    if not all(span and span.stop <= RANK_UNDEF + 1 for span in spans):
        raise broken("a span of ranks is empty, or has ranks that are too large")
    _take(sum(map(len, spans)))
    return spans[0] if len(spans) == 1 else [rank for span in spans for rank in span]


RANKS: Field[Sequence[int]] = Field(_write_ranks, counted(lambda data: tuple(_read_ranks(data))))


def _write_procs(procs: Iterable[Proc]) -> bytes:
    """Return procs in their order: for each run of procs of one nspace its name and their ranks."""
    runs: list[tuple[str, list[int]]] = []
    for nspace, rank in procs:
        if not runs or runs[-1][0] != nspace:
            runs.append((nspace, []))
        runs[-1][1].append(rank)
    return pack(0, *[field for nspace, ranks in runs for field in (TEXT.write(nspace), _write_ranks(ranks))])


def _read_procs(data: bytes) -> tuple[Proc, ...]:
    found: list[Proc] = []
    for name, spans in _pairs(data):
        nspace = TEXT.read(name)
        try:
            Proc(nspace, 0)
        except ValueError as error:
            raise broken(str(error)) from None
        found += Proc.unchecked_ranks(nspace, _read_ranks(spans))
    return tuple(found)


def _pairs(data: bytes) -> Iterable[tuple[bytes, bytes]]:
    fields = unpack(data)[1]
    if len(fields) % 2:
        raise broken("a name is not followed by its ranks")
    return zip(fields[::2], fields[1::2], strict=True)


def _one(procs: tuple[Proc, ...]) -> Proc:
    if len(procs) != 1:
        raise broken(f"a field has {len(procs)} procs instead of one")
    return procs[0]


def _read_proc(data: bytes) -> Proc:
    if len(data) > PROC_BYTES:
        # What is read is kept for later messages.
        raise broken(f"a proc has {len(data)} bytes, more than {PROC_BYTES}")
    return _one(_read_procs(data))


PROCS: Field[tuple[Proc, ...]] = Field(_write_procs, counted(_read_procs))
# Each message about a rank names it: its outputs, its stages, its end.
PROC: Field[Proc] = Field(
    lru_cache(SAME_PROCS)(lambda proc: _write_procs((proc,))),
    lru_cache(SAME_PROCS)(_read_proc),
)

_LONG = 8
"""From so many procs on an array is sent as runs: the members of a group of thousands take some 50 bytes."""

_IN_RUNS = b"\xff"
"""The first byte of infos with such arrays; no buffer begins with it."""

_PLACE = struct.Struct("!I")
_NO_PROCS = Value.unchecked(codes.DATA_ARRAY, DataArray(codes.PROC, ()))


def _has_many(info: Info) -> bool:
    data = info.value.data
    return type(data) is DataArray and data.type == codes.PROC and len(data.items) >= _LONG


def _write_infos(infos: Iterable[Info]) -> bytes:
    """Return infos as a buffer; if there are long arrays of procs, each of these follows with its place.

    An array stays in the buffer if it is shorter there, or if others would refuse all of them for their number:
    clients decide on the infos of events.
    """
    infos = list(infos)
    if not infos:
        return b""
    runs: list[bytes] = []
    left = MAX_PROCS
    for place, info in enumerate(infos):
        items = info.value.data.items if _has_many(info) else ()
        if not 0 < len(items) <= left:
            continue
        packed = PROCS.write(items)
        # In a buffer each has its nspace, with two bytes about its length, and its rank.
        if len(packed) <= sum([len(proc[0]) + 3 for proc in items]):
            left -= len(items)
            runs += (_PLACE.pack(place), packed)
            infos[place] = Info.unchecked(info.key, _NO_PROCS, info.flags)
    data = DataBuffer().pack(codes.INFO, *infos).bytes()
    return _IN_RUNS + pack(0, data, *runs) if runs else data


def _read_infos(data: bytes) -> tuple[Info, ...]:
    if not data:
        return ()
    fields = unpack(data[1:])[1] if data.startswith(_IN_RUNS) else [data]
    if len(fields) % 2 == 0:
        raise broken("infos have no buffer, or an array without its procs")
    buffer = DataBuffer(fields[0])
    infos: list[Info] = list(buffer.unpack(codes.INFO)) if buffer.more() else []
    if buffer.more() or not all(info.key for info in infos):
        raise broken("an info has no key")
    for where, runs in zip(fields[1::2], fields[2::2], strict=True):
        place = _PLACE.unpack(where)[0] if len(where) == _PLACE.size else len(infos)
        if place >= len(infos) or infos[place].value != _NO_PROCS:
            raise broken("procs are for an info that has no array for them")
        items = PROCS.read(runs)
        if not items:
            raise broken("an array of procs is empty")
        value = Value.unchecked(codes.DATA_ARRAY, DataArray(codes.PROC, items))
        infos[place] = Info.unchecked(infos[place].key, value, infos[place].flags)
    return tuple(infos)


INFOS: Field[tuple[Info, ...]] = Field(_write_infos, counted(_read_infos))


def _write_servers(places: Mapping[int, str]) -> bytes:
    by_server: dict[str, list[int]] = {}
    for rank in sorted(places):
        by_server.setdefault(places[rank], []).append(rank)
    return pack(
        0, *[field for name in sorted(by_server) for field in (TEXT.write(name), _write_ranks(by_server[name]))]
    )


def _read_servers(data: bytes) -> dict[int, str]:
    places: dict[int, str] = {}
    for name, spans in _pairs(data):
        places.update(dict.fromkeys(_read_ranks(spans), _to_name(name)))
    return places


# The messages of the servers, but for those of collectives, which `kinds` declares.

PLACES: Field[tuple[str, dict[int, str]]] = message(NAME, Field(_write_servers, counted(_read_servers)))
"""A job's nspace, and the server of each of its ranks."""

FORGOTTEN: Field[tuple[str]] = message(NAME)
"""A job that a server has left."""

CODES: Field[tuple[int, ...]] = many(STATUS)
"""Codes of events."""

MODEX: Field[tuple[Proc, str, float]] = message(PROC, TEXT, LIMIT)
"""The proc whose committed data is requested, the key that has to be present, and how long that may take."""

GROUPS: Field[Groups] = many(message(TEXT, PROCS))
SIGNATURE: Field[tuple[str, str, tuple[Proc, ...]]] = message(TEXT, TEXT, PROCS)
"""The signature of an allgather of procs: an operation, its subject, and the procs, sorted."""

EVENT: Field[tuple[int, int, Proc, tuple[Info, ...]]] = message(STATUS, RANGE, PROC, INFOS)
"""The code of an event, its range, its source, its infos."""

JOB: Field[JobInfo] = record(JobInfo, NAME, INFOS, many(INFOS), many(INFOS), many(INFOS), many(message(NUMBER, INFOS)))


_KEYS = many(TEXT)
_REQUESTS: dict[str, Field[Any]] = {
    "publish": record(Publish, INFOS, NUMBER, NUMBER, INFOS),
    "lookup": record(Lookup, _KEYS, INFOS),
    "unpublish": record(Unpublish, _KEYS, INFOS),
}
_REQUEST: Field[tuple[str, Proc, int, int, bytes]] = message(TEXT, PROC, NUMBER, NUMBER, BYTES)


def pack_request(op: Op[Any], requestor: Proc, uid: int, gid: int) -> bytes:
    """Return a request to the directory."""
    return _REQUEST.write((op.name, requestor, uid, gid, _REQUESTS[op.name].write(op)))


def unpack_request(data: bytes) -> tuple[Op[Any], Proc, int, int]:
    """Return a request to the directory, and the requestor with its user and group id.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    name, requestor, uid, gid, body = _REQUEST.read(data)
    if name not in _REQUESTS:
        raise broken(f"servers do not forward the operation {name!r:.80}")
    return _REQUESTS[name].read(body), requestor, uid, gid


def pack_found(result: object) -> bytes:
    """Return the directory's answer: the data of a lookup, or nothing."""
    return DataBuffer().pack(codes.PDATA, *(result if isinstance(result, tuple) else ())).bytes()


def unpack_found(data: bytes) -> tuple[Any, ...]:
    """Return the data of a lookup.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    return tuple(DataBuffer(data).unpack(codes.PDATA))
