"""Packed buffers: top-level packs of typed values, one after the other.

A pack is the number of its values and the values; a described buffer names the types of both before them.
"""

from __future__ import annotations

from pypmix.standard import codes, keys
from pypmix.standard.releases import NEWEST
from pypmix.standard.types import RANK_UNDEF, record_of, type_name
from pypmix.wire import decode, encode
from pypmix.wire.decode import RULE_SHIFT, UnknownType, broken
from pypmix.wire.encode import BYTES, ENCODERS
from pypmix.wire.readers import IS_UNKNOWN, marks_of, rule_for

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any, Self

    from pypmix.standard.errors import RemoteProtocolError
    from pypmix.standard.releases import Release
    from pypmix.standard.types import Value
    from pypmix.wire.readers import Reader

PLAIN = 1
DESCRIBED = 2

_DESCRIBED_COUNT = codes.INT32
_DECODERS = decode.DECODERS


def one_of(type: int, buffer_type: int) -> bytes:
    """Return the header of a pack with a single value of a type."""
    return _ONE[buffer_type][type]


_ONE: dict[int, list[bytes]] = {
    PLAIN: [b"\2"] * 128,
    DESCRIBED: [b"\x09\2" + BYTES[type] for type in range(128)],
}


def _mistake(type: int, values: Iterable[Any], error: Exception) -> TypeError | None:
    """Return a better error than `error` for values that cannot be encoded; None if `error` is clear."""
    wanted = record_of(type)
    if wanted is not None:
        for value in values:
            if not isinstance(value, wanted):
                return TypeError(f"{type_name(type)} cannot hold a {value.__class__.__name__}: {value!r:.80}")
    if isinstance(error, AttributeError | IndexError | KeyError):
        return TypeError(f"{type_name(type)} cannot hold {values!r:.80}: {error}")
    return None


class Packer:
    """Packs values into a buffer.

    Args:
        buffer_type: 1 for a plain buffer, 2 for a described one.
        reader: The reader's release, or its rule; see `pypmix.wire.readers`.
    """

    __slots__ = ("_described", "_ones", "_parts", "_rule", "buffer_type")

    def __init__(self, buffer_type: int = PLAIN, reader: Reader = NEWEST) -> None:
        if buffer_type not in _ONE:
            raise ValueError(f"a buffer type is 1 or 2, not {buffer_type!r}")
        self.buffer_type = buffer_type
        self._parts: list[bytes] = []
        self._ones = _ONE[buffer_type]
        self._described = buffer_type == DESCRIBED
        self._rule = reader if reader.__class__ is int else rule_for(reader)

    def pack(self, type: int, *values: Any) -> Self:
        """Append one pack of values.

        Args:
            type: A `DataType`.
            values: Data in the form of `pypmix.standard.values.check`.

        Raises:
            TypeError: A value is of another kind than the type holds.
            NotSupported: The reader cannot decode it.
            OverflowError: A value is out of the type's range.
        """
        parts = self._parts
        mark = len(parts)
        try:
            if len(values) == 1:
                parts.append(self._ones[type])
                ENCODERS[type](parts.append, values[0], self._rule)
            else:
                described = self._described
                parts.append(BYTES[_DESCRIBED_COUNT] if described else b"")
                parts.append(encode.zigzag(len(values)))
                parts.append(encode.flex(type) if described else b"")
                encode.many(parts.append, type, values, self._rule)
        except Exception as error:
            del parts[mark:]
            mistake = _mistake(type, values, error)
            if mistake is None:
                raise
            raise mistake from error
        return self

    def counted(self, type: int, values: Sequence[Any]) -> Self:
        """Append a SIZE and, unless it is 0, a pack of the values."""
        self.pack(codes.SIZE, len(values))
        if values:
            self.pack(type, *values)
        return self

    def pack_raw(self, data: bytes) -> Self:
        """Append packs that were made for the same type of buffer."""
        self._parts.append(data)
        return self

    def bytes(self) -> bytes:
        """Return the buffer's contents."""
        return b"".join(self._parts)


class Unpacker:
    """Unpacks a buffer, one pack after the other.

    Args:
        data: The buffer's contents.
        buffer_type: 1 for a plain buffer, 2 for a described one.
        release: The writer's release, which determines the form of arrays without a type.
        context: The context for decoders; by default one for the release, without a limit of work.
        position: The position of the first pack.
    """

    __slots__ = ("_context", "_data", "_described", "_position", "buffer_type")

    def __init__(
        self,
        data: bytes,
        buffer_type: int = PLAIN,
        release: Release = NEWEST,
        context: int | None = None,
        position: int = 0,
    ) -> None:
        if buffer_type not in _ONE:
            raise ValueError(f"a buffer type is 1 or 2, not {buffer_type!r}")
        self.buffer_type = buffer_type
        self._data = bytes(data)
        self._position = position
        self._described = buffer_type == DESCRIBED
        self._context = rule_for(release) << RULE_SHIFT if context is None else context

    @property
    def position(self) -> int:
        """The number of bytes that have been read."""
        return self._position

    @position.setter
    def position(self, position: int) -> None:
        self._position = position

    def more(self) -> bool:
        """Return True if more bytes follow."""
        return self._position < len(self._data)

    def rest(self) -> bytes:
        """Read all remaining bytes."""
        start = self._position
        self._position = len(self._data)
        return self._data[start:]

    def _head(self, type: int) -> tuple[int, int]:
        """Read the header of a pack; return the number of its values and their position."""
        data = self._data
        pos = self._position
        if self._described:
            tag, pos = decode.flex(data, pos)
            if tag != _DESCRIBED_COUNT:
                raise broken(f"a described pack starts with INT32, not with {type_name(tag)}")
        count, pos = decode.zigzag(data, pos)
        if self._described:
            tag, pos = decode.flex(data, pos)
            if tag != type:
                raise broken(f"{type_name(type)} is expected, {type_name(tag)} came")
        if not 0 <= count <= 0x7FFFFFFF:
            raise broken(f"{count} values are announced")
        return count, pos

    def unpack(self, type: int, limit: int | None = None) -> list[Any]:
        """Read one pack of values.

        Args:
            type: A `DataType`.
            limit: The most values to accept; None for as many as the buffer can hold.

        Raises:
            RemoteProtocolError: The next pack is not one.
        """
        data = self._data
        try:
            count = data[self._position]
            if count < 128 and not count & 1 and not self._described:
                count, pos = count >> 1, self._position + 1
            else:
                count, pos = self._head(type)
            if limit is not None and count > limit:
                raise broken(f"{count} values of {type_name(type)} came where {limit} may")
            found, self._position = decode.many(type, data, pos, count, self._context)
        except IndexError:
            raise self._cut(type) from None
        return found

    def one(self, type: int) -> Any:
        """Read a pack of one value and return that value."""
        data = self._data
        pos = self._position
        try:
            if not self._described and data[pos] == 2:
                pos += 1
            else:
                count, pos = self._head(type)
                if count != 1:
                    raise broken(f"{count} values of {type_name(type)} came where one is expected")
            found, self._position = _DECODERS[type](data, pos, self._context)
        except IndexError:
            raise self._cut(type) from None
        return found

    def announced(self) -> int:
        """Read a SIZE: the number of packs of one value that follow."""
        count: int = self.one(codes.SIZE)
        if count > len(self._data) - self._position:
            raise broken(f"{count} packs are announced where {len(self._data) - self._position} bytes follow")
        if isinstance(self._context, decode.Metered):
            self._context.pay(15 * count)
        return count

    def counted(self, type: int) -> tuple[Any, ...]:
        """Read a SIZE and, unless it is 0, a pack of so many values."""
        count = self.one(codes.SIZE)
        if not count:
            return ()
        found = self.unpack(type, count)
        if len(found) != count:
            raise broken(f"{count} values of {type_name(type)} are announced, {len(found)} came")
        return tuple(found)

    def raw(self, type: int) -> bytes:
        """Read one pack and return its exact bytes.

        The end of a value of an unknown type cannot be found; the value is assumed to extend to the end of the buffer.
        """
        start = self._position
        try:
            self.unpack(type)
        except UnknownType:
            self._position = len(self._data)
        return self._data[start : self._position]

    def skip(self, type: int) -> None:
        """Skip one pack."""
        self.unpack(type)

    def _cut(self, type: int) -> RemoteProtocolError:
        return broken(f"the message ends in the middle of {type_name(type)}")


def kvals(
    data: bytes,
    pos: int,
    buffer_type: int,
    release: Release = NEWEST,
    entries: list[tuple[str, Value]] | None = None,
    procs: dict[int, bytes] | None = None,
) -> list[tuple[str, Value]]:
    """Read packs of KVAL from `pos` to the end.

    Args:
        data: The bytes.
        pos: The position of the first pack.
        buffer_type: 1 for a plain buffer, 2 for a described one.
        release: The writer's release.
        entries: Receives the values, even if a later one cannot be read.
        procs: Receives the packed infos of each proc of job info, by rank, in place of its PROC_BLOB.

    Raises:
        RemoteProtocolError: A pack is not a KVAL. The error names the key if only the value cannot be read.
    """
    if entries is None:
        entries = []
    context = rule_for(release) << RULE_SHIFT
    head = one_of(codes.KVAL, buffer_type)
    skip = len(head)
    size = len(data)
    unpacker: Unpacker | None = None
    key = ""
    try:
        while pos < size:
            if procs is not None and (pos := _proc_blobs(data, pos, buffer_type, procs)) == size:
                break
            if data.startswith(head, pos):
                key, pos = decode.key(data, pos + skip)
                value, pos = decode.value_at(data, pos, context)
                entries.append((key, value))
            else:
                if unpacker is None:
                    unpacker = Unpacker(data, buffer_type, release)
                unpacker.position = pos
                entries += [(item.key, item.value) for item in unpacker.unpack(codes.KVAL)]
                pos = unpacker.position
    except IndexError:
        raise broken("the message ends in the middle of KVAL") from None
    except UnknownType as error:
        error.detail = f"the value of {key!r} cannot be read: {error.detail}"
        raise
    return entries


def _proc_blobs(data: bytes, pos: int, buffer_type: int, procs: dict[int, bytes]) -> int:
    """Split off the plain PROC_BLOBs at a position, unread, by rank; return the position of the first other pack."""
    # A job of ten thousand procs has as many of them, and a client needs few.
    head = one_of(codes.KVAL, buffer_type) + encode.key_bytes(keys.PROC_BLOB) + BYTES[codes.BYTE_OBJECT]
    before = one_of(codes.PROC_RANK, buffer_type)
    skip, inner = len(head), len(before)
    while data.startswith(head, pos):
        start = pos + skip
        size = data[start]
        start += 1
        if size > 127:
            size, start = decode.flex(data, start - 1)
        end = start + size
        if end > len(data) or not data.startswith(before, start):
            break
        start += inner
        rank = data[start]
        start += 1
        if rank > 127:
            rank, start = decode.flex(data, start - 1)
        if start > end or rank > RANK_UNDEF or rank in procs:
            break
        procs[rank] = data[start:end]
        pos = end
    return pos


def split_kvals(
    data: bytes,
    buffer_type: int,
    release: Release = NEWEST,
    context: int | None = None,
    marks: list[int] | None = None,
) -> list[tuple[str, bytes]]:
    """Return the key and the exact bytes of each pack of KVAL, so that values can be passed on unchanged.

    The end of a value of an unknown type cannot be found; the value is assumed to be the last.

    Args:
        data: The packs.
        buffer_type: 1 for a plain buffer, 2 for a described one.
        release: The writer's release.
        context: The context for decoders; by default one for the release, without a limit of work.
        marks: Receives the marks of each value; see `pypmix.wire.readers`.

    Raises:
        RemoteProtocolError: A pack is not a KVAL, or does not contain exactly one.
    """
    found: list[tuple[str, bytes]] = []
    if context is None:
        context = rule_for(release) << RULE_SHIFT
    metered = context if isinstance(context, decode.Metered) else None
    head = one_of(codes.KVAL, buffer_type)
    skip = len(head)
    size = len(data)
    pos = 0
    try:
        while pos < size:
            start = pos
            if not data.startswith(head, pos):
                raise broken("the next pack does not hold one KVAL")
            key, pos = decode.key(data, pos + skip)
            if metered is not None:
                # In addition to the cost of the value.
                metered.pay(15)
            try:
                type = data[pos]
                if type > 127:
                    type, _ = decode.tag_of(data, pos)
                held, pos = _DECODERS[type](data, pos + 1, context)
                if marks is not None:
                    marks.append(marks_of(type, held))
            except UnknownType:
                pos = size
                if marks is not None:
                    marks.append(IS_UNKNOWN)
            found.append((key, data[start:pos]))
    except IndexError:
        raise broken("the message ends in the middle of KVAL") from None
    return found


def split_kval(data: bytes, buffer_type: int, release: Release = NEWEST) -> tuple[str, int]:
    """Return the key and the marks of a single pack of KVAL.

    Args:
        data: The pack.
        buffer_type: 1 for a plain buffer, 2 for a described one.
        release: The writer's release.

    Raises:
        RemoteProtocolError: It is not a single KVAL, or is malformed; see `split_kvals`.
    """
    head = one_of(codes.KVAL, buffer_type)
    if not data.startswith(head):
        raise broken("the next pack does not hold one KVAL")
    try:
        key, pos = decode.key(data, len(head))
        type = data[pos]
        if type > 127:
            type, _ = decode.tag_of(data, pos)
        held, pos = _DECODERS[type](data, pos + 1, rule_for(release) << RULE_SHIFT)
    except UnknownType:
        return key, IS_UNKNOWN
    except IndexError:
        raise broken("the message ends in the middle of KVAL") from None
    if pos != len(data):
        raise broken(f"{len(data) - pos} bytes follow a KVAL")
    return key, marks_of(type, held)


def encode_kval(buffer_type: int, key: str, value: Value, reader: Reader = NEWEST) -> bytes:
    """Return one pack of a KVAL.

    Raises:
        NotSupported: The reader cannot decode the value.
    """
    parts = [_ONE[buffer_type][codes.KVAL], encode.key_bytes(key)]
    try:
        ENCODERS[codes.VALUE](parts.append, value, reader if reader.__class__ is int else rule_for(reader))
    except Exception as error:
        mistake = _mistake(codes.VALUE, (value,), error)
        if mistake is None:
            raise
        raise mistake from error
    return b"".join(parts)
