"""The additions of pypmix's own clients and servers to OpenPMIx's protocol.

A client says in its handshake that it is pypmix, only where the environment says that the server is; a server adds
nothing for anybody else. Natives ignore what follows the fields that they know, and would still never see it.
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

SOCKET_VARIABLE = "PYPMIX_SERVER_SOCKET"
"""Where servers of this engine leave their address once more, a space, and the path of their Unix-domain socket."""

VERSION = "pypmix.version"

WITHDRAW = 200
"""The command by which a client gives up waiting for a collective, and names the tag of its request."""

MAX_MISSING = 4096
"""The most procs that an answer names."""

MAX_REASON = 1024
"""The most characters that an answer has to say why something failed."""

REASON = b"\xffpypmix.why\xff"
"""Stands between the status of a failure and the words for it, where a native has a number or nothing."""

MAX_CONNECTED = 1 << 20
"""The most procs of a connection."""


def greeting(version: str) -> Info:
    """Return the info of a handshake that says: this is pypmix, of that version."""
    return Info(VERSION, Value(codes.STRING, version))


def greeted(infos: Iterable[Info]) -> bool:
    """Tell whether a handshake came from pypmix."""
    return any(info.key == VERSION and info.value.type == codes.STRING for info in infos)


def encode_late(buffer_type: int, status: int, missing: Sequence[Proc] | None, reason: str = "") -> bytes:
    """Return the answer to what has failed: why, in words, and who had not come to a collective, as far as is known."""
    packer = Packer(buffer_type).pack(codes.STATUS, status)
    if reason:
        packer.pack_raw(REASON).pack(codes.STRING, _readable(reason))
    if missing is not None:
        packer.pack(codes.SIZE, min(len(missing), MAX_MISSING))
    return packer.pack(codes.PROC, *missing[:MAX_MISSING]).bytes() if missing else packer.bytes()


def split_reason(data: bytes, buffer_type: int) -> tuple[bytes, str]:
    """Return an answer without the words that say why something failed, and those words.

    Raises:
        RemoteProtocolError: The words do not parse.
    """
    # A status has some bytes at the most, and the other first bytes of a success do not matter here.
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
    """Return a text without what only a terminal understands, of a length that people read."""
    shown = text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 4]} ..."
    return "".join([c if c.isprintable() or c in "\n\t" else "\ufffd" for c in shown])


def decode_late(data: bytes, buffer_type: int) -> tuple[Proc, ...] | None:
    """Return who had not come to a collective that has failed; None if the answer does not say.

    Raises:
        RemoteProtocolError: The answer does not parse.
    """
    unpacker = Unpacker(split_reason(data, buffer_type)[0], buffer_type)
    unpacker.skip(codes.STATUS)
    if not unpacker.more():
        return None
    return tuple(unpacker.unpack(codes.PROC, MAX_MISSING)) if unpacker.one(codes.SIZE) else ()


def encode_withdrawal(buffer_type: int, tag: int) -> bytes:
    """Return the message by which a client gives up waiting for a collective."""
    return Packer(buffer_type).pack(codes.COMMAND, WITHDRAW).pack(codes.UINT32, tag).bytes()


def decode_withdrawal(data: bytes, buffer_type: int) -> int:
    """Return the tag of the request that a client gives up.

    Raises:
        RemoteProtocolError: The message does not parse.
    """
    unpacker = Unpacker(data, buffer_type)
    unpacker.skip(codes.COMMAND)
    return int(unpacker.one(codes.UINT32))


def encode_participants(buffer_type: int, procs: Sequence[Proc]) -> bytes:
    """Return the answer to a fence that has succeeded, with the procs that took part; none are the expected ones."""
    packer = Packer(buffer_type).pack(codes.STATUS, statuses.SUCCESS).pack(codes.SIZE, len(procs))
    return packer.pack(codes.PROC, *procs).bytes() if procs else packer.bytes()


def decode_participants(data: bytes, buffer_type: int) -> frozenset[Proc] | None:
    """Return the procs that took part in a fence; none if they are the expected ones, and None if the answer is silent.

    Raises:
        RemoteProtocolError: The answer does not parse.
    """
    unpacker = Unpacker(data, buffer_type)
    unpacker.skip(codes.STATUS)
    return frozenset(unpacker.counted(codes.PROC)) if unpacker.more() else None


def encode_connected(buffer_type: int, nspace: str, procs: Sequence[Proc]) -> bytes:
    """Return what a connect has made, as the first object of its answer: one of no nspace, which nothing else is."""
    packer = Packer(buffer_type).pack(codes.STRING, "").pack(codes.STRING, nspace)
    return packer.pack(codes.SIZE, len(procs)).pack(codes.PROC, *procs).bytes()


def decode_connected(unpacker: Unpacker) -> tuple[str, tuple[Proc, ...]]:
    """Return the nspace of a connection and its procs by rank, from behind the empty nspace.

    Raises:
        RemoteProtocolError: It does not parse, or names nothing.
    """
    nspace, procs = unpacker.one(codes.STRING), unpacker.counted(codes.PROC)
    if not nspace or not procs or len(procs) > MAX_CONNECTED:
        raise RemoteProtocolError("a connection has a name and procs", operation="unpack")
    return nspace, procs
