"""The handshake that opens a connection: one message of the client, one short reply of the server.

Its header is in the host's byte order; the numbers in its body are in network order and its strings end with NUL.
"""

from __future__ import annotations

import struct

from pypmix.standard import codes
from pypmix.standard.errors import LocalProtocolError, RemoteProtocolError
from pypmix.standard.record import Record
from pypmix.standard.releases import NEWEST
from pypmix.standard.types import Info, check_name
from pypmix.wire.codec import Packer, Unpacker
from pypmix.wire.decode import context_of

FLAG_CLIENT = 0
FLAG_LEGACY_TOOL = 1
FLAG_LEGACY_LAUNCHER = 2
FLAG_TOOL_NEEDS_ID = 3
FLAG_TOOL_GIVEN_ID = 4
FLAG_TOOL_CLIENT = 5
FLAG_LAUNCHER_NEEDS_ID = 6
FLAG_LAUNCHER_GIVEN_ID = 7
FLAG_LAUNCHER_CLIENT = 8
FLAG_SINGLETON = 9
FLAG_SCHEDULER = 10

BUFFER_NON_DESC = 1
BUFFER_FULLY_DESC = 2

MAX_HELLO = 131072
"""The most bytes that servers accept as a handshake."""

MAX_HELLO_WORK = 10_000
"""The most that decoding the infos of a handshake may cost, in the units of `decode.MAX_WORK`."""


_HEADER = struct.Struct("=iIII")
_CREDENTIAL = struct.Struct("=II")
_REPLY = struct.Struct("!iI")
_NAMED = frozenset(
    {
        FLAG_CLIENT,
        FLAG_TOOL_GIVEN_ID,
        FLAG_TOOL_CLIENT,
        FLAG_LAUNCHER_GIVEN_ID,
        FLAG_LAUNCHER_CLIENT,
        FLAG_SINGLETON,
        FLAG_SCHEDULER,
    }
)
"""The flags whose senders include their nspace and rank."""

_ENDS_EARLY = "2.0"
"""Clients of this line end their message after the version; the server assumes these two."""
_EARLY_BFROPS = "v20"
_EARLY_GDS = "ds12,hash"


class Hello(Record):
    """The first message of a client, which describes it.

    Attributes:
        psec: Its security module: `native`, `none`, `munge`.
        credential: The credential made by that module.
        flag: The kind of process, as a `FLAG_` number.
        uid: User id; only of tools, launchers, schedulers and singletons.
        gid: Group id, likewise.
        nspace: Its nspace; None to request an identifier.
        rank: Its rank, likewise.
        version: The release that it claims, such as `5.0.11rc1`.
        bfrops: The encoding that it speaks, such as `v41`.
        buffer_type: 1 for plain buffers, 2 for described ones.
        gds: The data store that it requests, such as `hash`.
        infos: Further infos; releases before 6.0 send none.
        blob: The encoded infos, if the reader was asked not to decode them.
    """

    psec: str
    credential: bytes
    flag: int
    uid: int | None
    gid: int | None
    nspace: str | None
    rank: int | None
    version: str
    bfrops: str
    buffer_type: int
    gds: str
    infos: tuple[Info, ...] = ()
    blob: bytes = b""

    def complete(self) -> Hello:
        """Return the hello with its infos decoded.

        Raises:
            RemoteProtocolError: The infos are malformed.
        """
        if not self.blob:
            return self
        context = context_of(NEWEST, len(self.blob), MAX_HELLO_WORK)
        found = Unpacker(self.blob, self.buffer_type, NEWEST, context).counted(codes.INFO)
        return self.replace(infos=found, blob=b"")


def native_credential(uid: int, gid: int) -> bytes:
    """Return the credential of the `native` module: the user's and the group's id, in the host's byte order."""
    return _CREDENTIAL.pack(uid, gid)


def parse_native_credential(credential: bytes) -> tuple[int, int]:
    """Return the user's and the group's id that a `native` credential claims.

    Raises:
        RemoteProtocolError: The credential does not have the length of two ids.
    """
    if len(credential) != _CREDENTIAL.size:
        raise RemoteProtocolError(f"a native credential has 8 bytes, not {len(credential)}", operation="handshake")
    uid, gid = _CREDENTIAL.unpack(credential)
    return uid, gid


def _text(value: str | None, what: str) -> bytes:
    return check_name(value, 255, what).encode("utf-8", "surrogateescape") + b"\0"  # type: ignore[arg-type]


def _number(value: int | None, what: str) -> bytes:
    if value is None:
        raise TypeError(f"a hello of this kind needs {what}")
    if not 0 <= value <= 0xFFFFFFFF:
        raise OverflowError(f"{what} lies between 0 and {0xFFFFFFFF}, not {value}")
    return value.to_bytes(4, "big")


def encode_hello(hello: Hello) -> bytes:
    """Return the whole first message of a client.

    Raises:
        LocalProtocolError: The flag is unknown, or the message is longer than servers accept.
    """
    if not FLAG_CLIENT <= hello.flag <= FLAG_SCHEDULER:
        raise LocalProtocolError(f"{hello.flag} is not a kind of process that may connect")
    if hello.buffer_type not in (BUFFER_NON_DESC, BUFFER_FULLY_DESC):
        raise ValueError(f"a buffer type is 1 or 2, not {hello.buffer_type}")
    parts = [
        _text(hello.psec, "a security module"),
        len(hello.credential).to_bytes(4, "big"),
        hello.credential,
        bytes((hello.flag,)),
    ]
    if hello.flag != FLAG_CLIENT:
        parts += (_number(hello.uid, "a uid"), _number(hello.gid, "a gid"))
    if hello.flag in _NAMED:
        parts += (_text(hello.nspace, "an nspace"), _number(hello.rank, "a rank"))
    parts.append(_text(hello.version, "a version"))
    if not _ends_early(hello.version):
        parts += (
            _text(hello.bfrops, "an encoding"),
            bytes((hello.buffer_type,)),
            _text(hello.gds, "a data store"),
        )
        if hello.infos:
            packer = Packer(hello.buffer_type)
            parts.append(packer.counted(codes.INFO, hello.infos).bytes())
    body = b"".join(parts)
    if len(body) > MAX_HELLO:
        raise LocalProtocolError(f"a handshake of {len(body)} bytes is longer than servers accept, {MAX_HELLO}")
    return _HEADER.pack(-1, 0xFFFFFFFF, len(body), 0) + body


def _ends_early(version: str) -> bool:
    return version == _ENDS_EARLY or version.startswith(_ENDS_EARLY + ".")


class HelloReader:
    """Collects the first message of a client.

    Args:
        limit: The longest body to accept, in bytes.
        infos: Whether to decode the infos; a server checks the credential first.
    """

    __slots__ = ("_buffer", "_error", "_infos", "_limit", "rest")

    def __init__(self, limit: int = MAX_HELLO, *, infos: bool = True) -> None:
        self._limit = limit
        self._infos = infos
        self._buffer = bytearray()
        self._error = ""
        self.rest = b""

    def feed(self, data: bytes) -> Hello | None:
        """Add received bytes; return the hello when it is complete, None before.

        Further bytes are kept in `rest`.

        Raises:
            RemoteProtocolError: This is not a handshake, or it is beyond the limit. Every later call raises again.
        """
        if self._error:
            raise RemoteProtocolError(self._error, operation="handshake")
        try:
            return self._feed(data)
        except RemoteProtocolError as error:
            self._error = error.detail
            self._buffer.clear()
            raise

    def _feed(self, data: bytes) -> Hello | None:
        held = self._buffer
        held += data
        if len(held) < _HEADER.size:
            return None
        pindex, tag, size, _ = _HEADER.unpack_from(held)
        if pindex != -1 or tag != 0xFFFFFFFF:
            raise _broken("these bytes are not a handshake of PMIx")
        if size > self._limit:
            raise _broken(f"a handshake of {size} bytes is announced; the limit is {self._limit}")
        end = _HEADER.size + size
        if len(held) < end:
            return None
        body = bytes(held[_HEADER.size : end])
        self.rest = bytes(held[end:])
        held.clear()
        hello = _parse(body)
        return hello.complete() if self._infos else hello


def _broken(text: str) -> RemoteProtocolError:
    return RemoteProtocolError(text, operation="handshake")


class _Body:
    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def raw(self, size: int) -> bytes:
        start = self._position
        if size > len(self._data) - start:
            raise _broken("the handshake ends in the middle of a field")
        self._position = start + size
        return self._data[start : start + size]

    def number(self) -> int:
        return int.from_bytes(self.raw(4), "big")

    def text(self) -> str:
        end = self._data.find(0, self._position)
        if end < 0:
            raise _broken("the handshake ends in the middle of a string")
        found = self.raw(end - self._position)
        self._position = end + 1
        if len(found) > 255:
            raise _broken(f"the handshake has a string of {len(found)} bytes; the limit is 255")
        return found.decode("utf-8", "surrogateescape")

    def remainder(self) -> bytes:
        return self._data[self._position :]


def _parse(data: bytes) -> Hello:
    body = _Body(data)
    psec = body.text()
    credential = body.raw(body.number())
    flag = body.raw(1)[0]
    if flag > FLAG_SCHEDULER:
        raise _broken(f"the handshake has an unknown kind of process, {flag}")
    uid = gid = rank = None
    nspace = None
    if flag != FLAG_CLIENT:
        uid, gid = body.number(), body.number()
    if flag in _NAMED:
        nspace, rank = body.text(), body.number()
    version = body.text()
    if _ends_early(version):
        early = (_EARLY_BFROPS, BUFFER_NON_DESC, _EARLY_GDS)
        return Hello(psec, credential, flag, uid, gid, nspace, rank, version, *early)
    bfrops = body.text()
    buffer_type = body.raw(1)[0]
    if buffer_type not in (BUFFER_NON_DESC, BUFFER_FULLY_DESC):
        raise _broken(f"the handshake has an unknown buffer type, {buffer_type}")
    gds = body.text()
    blob = body.remainder()
    if blob == b"\0":
        # Clients of 4.2 count one byte too many.
        blob = b""
    return Hello(psec, credential, flag, uid, gid, nspace, rank, version, bfrops, buffer_type, gds, (), blob)


def encode_reply(status: int, pindex: int | None) -> bytes:
    """Return a server's answer to a simple client.

    Args:
        status: 0, or the status of the refusal.
        pindex: The index of the client; None for the status only, as for a refusal.
    """
    return status.to_bytes(4, "big", signed=True) + (b"" if pindex is None else _number(pindex, "an index"))


class ReplyReader:
    """Collects the server's answer to a hello."""

    __slots__ = ("_held", "rest")

    def __init__(self) -> None:
        self._held = b""
        self.rest = b""

    def feed(self, data: bytes) -> tuple[int, int] | None:
        """Add received bytes; return (status, index) when the answer is complete, None before.

        A status other than 0 ends the answer; the index is then 0. Further bytes are kept in `rest`.
        """
        held = self._held + data
        if len(held) >= 4:
            status = int.from_bytes(held[:4], "big", signed=True)
            if status:
                self._held, self.rest = b"", held[4:]
                return status, 0
            if len(held) >= 8:
                self._held, self.rest = b"", held[8:]
                _, pindex = _REPLY.unpack_from(held)
                return status, pindex
        self._held = held
        return None
