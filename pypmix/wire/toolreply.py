"""The answer of a server to the handshake of a tool, a launcher or a scheduler.

Unlike a client, a tool may have no name yet, and does not know the server.
"""

from __future__ import annotations

from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_NSLEN, Proc
from pypmix.wire.handshake import FLAG_LAUNCHER_NEEDS_ID, FLAG_TOOL_NEEDS_ID

NEEDS_ID = frozenset({FLAG_TOOL_NEEDS_ID, FLAG_LAUNCHER_NEEDS_ID})
"""The flags whose senders request a name."""

_NAME = MAX_NSLEN + 1
"""The bytes of an nspace in an answer: the longest nspace, and a NUL."""


class ToolReply(Record):
    """A server's answer to a tool that it accepts.

    Attributes:
        proc: The tool's name, if it requested one.
        server: The server's name.
        verdict: The status of the tool's credential; 0 if it is valid.
    """

    proc: Proc | None
    server: Proc
    verdict: int = 0


def encode_tool_reply(reply: ToolReply) -> bytes:
    """Return a server's answer to a tool, launcher or scheduler; for a refusal see `encode_reply`."""
    names = (reply.server,) if reply.proc is None else (reply.proc, reply.server)
    parts = [b"\0\0\0\0"]
    for proc in names:
        nspace = proc.nspace.encode("utf-8", "surrogateescape")
        parts += (nspace.ljust(_NAME, b"\0"), proc.rank.to_bytes(4, "big"))
    parts.append(reply.verdict.to_bytes(4, "big", signed=True))
    return b"".join(parts)


class ToolReplyReader:
    """Collects the server's answer to the hello of a tool.

    Args:
        flag: The kind of process in the hello, which determines the parts of the answer.
    """

    __slots__ = ("_held", "_named", "rest")

    def __init__(self, flag: int) -> None:
        self._named = flag in NEEDS_ID
        self._held = b""
        self.rest = b""

    def feed(self, data: bytes) -> ToolReply | int | None:
        """Add received bytes; return the answer, or the status of a refusal; None before it is complete.

        Further bytes are kept in `rest`.

        Raises:
            RemoteProtocolError: A name in it is invalid.
        """
        held = self._held = self._held + data
        if len(held) < 4:
            return None
        status = int.from_bytes(held[:4], "big", signed=True)
        if status:
            self.rest = held[4:]
            return status
        size = 4 + (2 if self._named else 1) * (_NAME + 4) + 4
        if len(held) < size:
            return None
        self.rest = held[size:]
        proc = _proc(held, 4) if self._named else None
        return ToolReply(proc, _proc(held, size - _NAME - 8), int.from_bytes(held[size - 4 : size], "big", signed=True))


def _proc(data: bytes, start: int) -> Proc:
    nspace = data[start : start + _NAME].partition(b"\0")[0].decode("utf-8", "surrogateescape")
    try:
        if not nspace:
            raise ValueError("it is empty")
        return Proc(nspace, int.from_bytes(data[start + _NAME : start + _NAME + 4], "big"))
    except (ValueError, OverflowError) as error:
        detail = f"the answer to the handshake holds an invalid name: {error}"
        raise RemoteProtocolError(detail, operation="handshake") from None
