"""What pypmix's own clients and servers tell each other beyond OpenPMIx's protocol.

A client says in its handshake that it is pypmix, only where the environment says that the server is; a server adds
nothing for anybody else. Natives ignore what follows the fields that they know, and would still never see it.
"""

from __future__ import annotations

from pypmix.standard import codes
from pypmix.standard.types import Info, Value
from pypmix.wire.codec import Packer, Unpacker

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pypmix.standard.types import Proc

VERSION = "pypmix.version"

MAX_MISSING = 4096
"""How many procs an answer names at the most."""


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
