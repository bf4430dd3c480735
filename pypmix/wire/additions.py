"""What pypmix's own clients and servers tell each other beyond OpenPMIx's protocol.

A client says in its handshake that it is pypmix, only where the environment says that the server is; a server adds
nothing for anybody else. Natives ignore what follows the fields that they know, and would still never see it.
"""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.types import Info, Value
from pypmix.wire.codec import Packer, Unpacker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.standard.types import Proc

VERSION = "pypmix.version"

MAX_MISSING = 4096
"""How many procs an answer names at the most."""

MAX_CONNECTED = 1 << 20
"""How many procs a connection has at the most."""


def greeting(version: str) -> Info:
    """Return the info of a handshake that says: this is pypmix, of that version."""
    return Info(VERSION, Value(codes.STRING, version))


def greeted(infos: Iterable[Info]) -> bool:
    """Tell whether a handshake came from pypmix."""
    return any(info.key == VERSION and info.value.type == codes.STRING for info in infos)


def encode_late(buffer_type: int, status: int, missing: Sequence[Proc]) -> bytes:
    """Return the answer to a collective that has failed, with those who had not come."""
    packer = Packer(buffer_type).pack(codes.STATUS, status).pack(codes.SIZE, min(len(missing), MAX_MISSING))
    return packer.pack(codes.PROC, *missing[:MAX_MISSING]).bytes() if missing else packer.bytes()


def decode_late(data: bytes, buffer_type: int) -> tuple[Proc, ...] | None:
    """Return who had not come to a collective that has failed; None if the answer does not say.

    Raises:
        RemoteProtocolError: The answer does not parse.
    """
    unpacker = Unpacker(data, buffer_type)
    unpacker.skip(codes.STATUS)
    if not unpacker.more():
        return None
    return tuple(unpacker.unpack(codes.PROC, MAX_MISSING)) if unpacker.one(codes.SIZE) else ()


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
