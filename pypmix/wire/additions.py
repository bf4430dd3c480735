"""The additions of pypmix's own clients and servers to OpenPMIx's protocol.

A client identifies itself as pypmix in its handshake only if the environment names a server of pypmix, and a server
adds nothing for other clients. Native peers would ignore additional fields, but never receive any.
"""

from __future__ import annotations

from pypmix.standard import codes, statuses
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import Info, Value
from pypmix.wire.codec import Packer, Unpacker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.standard.types import Proc

VERSION = "pypmix.version"

WITHDRAW = 200
"""The command with which a client withdraws from a collective, with the tag of its request."""

MAX_MISSING = 4096
"""The most procs that an answer names."""

MAX_REASON = 1024
"""The most characters of the reason in an answer."""

REASON = b"\xffpypmix.why\xff"
"""The separator between the status of a failure and its reason, in the place of a number in native answers."""

MAX_CONNECTED = 1 << 20
"""The most procs of a connection."""


def greeting(version: str) -> Info:
    """Return the info with which a handshake identifies pypmix and its version."""
    return Info(VERSION, Value(codes.STRING, version))


def greeted(infos: Iterable[Info]) -> bool:
    """Return True if the infos of a handshake identify pypmix."""
    return any(info.key == VERSION and info.value.type == codes.STRING for info in infos)


def encode_late(buffer_type: int, status: int, missing: Sequence[Proc] | None, reason: str = "") -> bytes:
    """Encode the answer to a failed request, with the reason and, for a collective, the known missing procs."""
    packer = Packer(buffer_type).pack(codes.STATUS, status)
    if reason:
        packer.pack_raw(REASON).pack(codes.STRING, _readable(reason))
    if missing is not None:
        packer.pack(codes.SIZE, min(len(missing), MAX_MISSING))
    return packer.pack(codes.PROC, *missing[:MAX_MISSING]).bytes() if missing else packer.bytes()


def split_reason(data: bytes, buffer_type: int) -> tuple[bytes, str]:
    """Split an answer into the answer without its reason, and the reason.

    Raises:
        RemoteProtocolError: The reason is malformed.
    """
    # A status has only a few bytes, and the answer to a successful request has no reason.
    at = data.find(REASON, 0, 32)
    if at < 0:
        return data, ""
    start = Unpacker(data, buffer_type)
    start.skip(codes.STATUS)
    if start.position != at:
        return data, ""
    unpacker = Unpacker(data[at + len(REASON) :], buffer_type)
    reason = unpacker.one(codes.STRING) or ""
    return data[:at] + unpacker.rest(), _readable(reason)


def _readable(text: str) -> str:
    """Return a text without control characters, shortened for people."""
    shown = text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 4]} ..."
    return "".join([c if c.isprintable() or c in "\n\t" else "\ufffd" for c in shown])


def decode_late(data: bytes, buffer_type: int) -> tuple[Proc, ...] | None:
    """Return the missing procs of a failed collective; None if the answer does not contain them.

    Raises:
        RemoteProtocolError: The answer is malformed.
    """
    unpacker = Unpacker(split_reason(data, buffer_type)[0], buffer_type)
    unpacker.skip(codes.STATUS)
    if not unpacker.more():
        return None
    return tuple(unpacker.unpack(codes.PROC, MAX_MISSING)) if unpacker.one(codes.SIZE) else ()


def encode_withdrawal(buffer_type: int, tag: int) -> bytes:
    """Encode the message with which a client withdraws from a collective."""
    return Packer(buffer_type).pack(codes.COMMAND, WITHDRAW).pack(codes.UINT32, tag).bytes()


def decode_withdrawal(data: bytes, buffer_type: int) -> int:
    """Return the tag of the request that a client withdraws.

    Raises:
        RemoteProtocolError: The message is malformed.
    """
    unpacker = Unpacker(data, buffer_type)
    unpacker.skip(codes.COMMAND)
    return int(unpacker.one(codes.UINT32))


def encode_participants(buffer_type: int, procs: Sequence[Proc]) -> bytes:
    """Encode the answer to a successful fence, with the procs that took part; none for exactly the expected procs."""
    packer = Packer(buffer_type).pack(codes.STATUS, statuses.SUCCESS).pack(codes.SIZE, len(procs))
    return packer.pack(codes.PROC, *procs).bytes() if procs else packer.bytes()


def decode_participants(data: bytes, buffer_type: int) -> frozenset[Proc] | None:
    """Return the procs that took part in a fence; empty for the expected procs, None if the answer has no such field.

    Raises:
        RemoteProtocolError: The answer is malformed.
    """
    unpacker = Unpacker(data, buffer_type)
    unpacker.skip(codes.STATUS)
    return frozenset(unpacker.counted(codes.PROC)) if unpacker.more() else None


def encode_connected(buffer_type: int, nspace: str, procs: Sequence[Proc]) -> bytes:
    """Encode the connection of a connect as the first object of its answer, marked by an empty nspace."""
    packer = Packer(buffer_type).pack(codes.STRING, "").pack(codes.STRING, nspace)
    return packer.pack(codes.SIZE, len(procs)).pack(codes.PROC, *procs).bytes()


def decode_connected(unpacker: Unpacker) -> tuple[str, tuple[Proc, ...]]:
    """Decode the nspace of a connection and its procs in rank order; the empty nspace must be read already.

    Raises:
        RemoteProtocolError: It is malformed, or has no name or procs.
    """
    nspace, procs = unpacker.one(codes.STRING), unpacker.counted(codes.PROC)
    if not nspace or not procs or len(procs) > MAX_CONNECTED:
        raise RemoteProtocolError("a connection has a name and procs", operation="unpack")
    return nspace, procs
