"""The messages of an exchange as bytes: a kind, and fields of bytes with their lengths."""

from __future__ import annotations

import struct

from pypmix.standard.errors import RemoteProtocolError

_LENGTH = struct.Struct("!I")
_NUMBER = struct.Struct("!q")


def pack(kind: int, *fields: bytes) -> bytes:
    """Return a message."""
    parts = [bytes((kind,))]
    for field in fields:
        parts.append(_LENGTH.pack(len(field)))
        parts.append(field)
    return b"".join(parts)


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
            raise broken("a message ends in the middle of a length")
        pos = start + _LENGTH.unpack_from(message, start - 4)[0]
        if pos > size:
            raise broken(f"a field reaches {pos - size} bytes beyond its message")
        fields.append(message[start:pos])
    return message[0], fields


def number(value: int) -> bytes:
    """Return a whole number as a field."""
    return _NUMBER.pack(value)


def to_number(field: bytes) -> int:
    """Return the whole number of a field.

    Raises:
        RemoteProtocolError: It has none.
    """
    if len(field) != 8:
        raise broken(f"a number has {len(field)} bytes")
    return int(_NUMBER.unpack(field)[0])


def text(value: str) -> bytes:
    """Return a text as a field."""
    return value.encode("utf-8", "surrogateescape")


def to_text(field: bytes) -> str:
    """Return the text of a field.

    Raises:
        RemoteProtocolError: It has none.
    """
    try:
        return field.decode("utf-8", "surrogateescape")
    except UnicodeDecodeError:
        raise broken("a text is no UTF-8") from None


def texts(values: tuple[str, ...]) -> bytes:
    """Return several texts as one field."""
    return pack(0, *map(text, values))


def to_texts(field: bytes) -> tuple[str, ...]:
    """Return the texts of a field.

    Raises:
        RemoteProtocolError: It has none.
    """
    return tuple([to_text(item) for item in unpack(field)[1]])


def expect(fields: list[bytes], count: int) -> list[bytes]:
    """Return the fields if there are so many.

    Raises:
        RemoteProtocolError: There are not.
    """
    if len(fields) != count:
        raise broken(f"a message has {len(fields)} fields where {count} are expected")
    return fields


def broken(detail: str) -> RemoteProtocolError:
    """Return the error for bytes that do not parse."""
    return RemoteProtocolError(detail, operation="exchange")
