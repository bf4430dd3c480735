"""The kinds of messages that exchanges send each other, and the parts of them that more than one kind has."""

from __future__ import annotations

from pypmix.host.exchange import fields
from pypmix.host.exchange.errors import make
from pypmix.host.exchange.rounds import Gathered
from pypmix.standard import statuses
from pypmix.standard.errors import LostConnection, PMIxError

CONTRIBUTE = 1
GATHERED = 2
FAILED = 3
CANCEL = 4
REQUEST = 5
ANSWER = 6
REFUSED = 7
TELL = 8

MAX_DETAIL = 4096
"""How much of an error's text travels."""


def pack_gathered(gathered: Gathered) -> bytes:
    """Return the result of an allgather as bytes."""
    parts = []
    for name, data in gathered.blobs.items():
        parts += [fields.text(name), fields.number(gathered.statuses[name]), data]
    return fields.pack(0, fields.texts(gathered.absent), *parts)


def unpack_gathered(body: bytes) -> Gathered:
    """Return the result of an allgather.

    Raises:
        RemoteProtocolError: It is none.
    """
    _, parts = fields.unpack(body)
    if len(parts) % 3 != 1:
        raise fields.broken(f"a result has {len(parts)} fields")
    absent = fields.to_texts(parts.pop(0))
    names = list(map(fields.to_text, parts[::3]))
    statuses = map(fields.to_number, parts[1::3])
    return Gathered(dict(zip(names, parts[2::3], strict=True)), dict(zip(names, statuses, strict=True)), absent)


def pack_error(kind: int, number: int, error: PMIxError) -> bytes:
    """Return the message that something has failed."""
    servers: tuple[str, ...] = getattr(error, "servers", ())
    detail = fields.text(error.detail[:MAX_DETAIL])
    return fields.pack(kind, fields.number(number), fields.number(error.code), detail, fields.texts(servers))


def unpack_error(parts: list[bytes], operation: str) -> tuple[int, PMIxError]:
    """Return the number of what has failed, and the error.

    Raises:
        RemoteProtocolError: It is no such message.
    """
    number, status, detail, servers = fields.expect(parts, 4)
    error = make(fields.to_number(status), fields.to_text(detail), fields.to_texts(servers), operation)
    return fields.to_number(number), error


def checked(data: bytes, timeout: float = 0.0) -> bytes:
    """Return data as bytes; raise where an argument is none that can be carried."""
    if not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"what is exchanged is bytes, not {type(data).__name__}")
    if not timeout >= 0:
        raise ValueError(f"a time limit is a number of seconds, 0 for none, not {timeout!r}")
    return bytes(data)


def left(operation: str) -> LostConnection:
    """Return the error of what an exchange is asked, or has under way, when it has been closed."""
    return LostConnection("this server has left the exchange", operation=operation)


def as_error(error: BaseException, operation: str) -> PMIxError:
    """Return the error that can be told to others."""
    if isinstance(error, PMIxError):
        return error
    return PMIxError(f"{type(error).__name__}: {error}", status=statuses.ERROR, operation=operation)
