"""The answer of a server to the handshake of a tool, a launcher or a scheduler.

Unlike a client, a tool may have no name yet, and it does not know whom it has reached.
"""

from __future__ import annotations

from pypmix.standard.errors import RemoteProtocolError
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_NSLEN, Proc
from pypmix.wire.handshake import FLAG_LAUNCHER_NEEDS_ID, FLAG_TOOL_NEEDS_ID

NEEDS_ID = frozenset({FLAG_TOOL_NEEDS_ID, FLAG_LAUNCHER_NEEDS_ID})
"""The flags whose senders ask for a name."""

_NAME = MAX_NSLEN + 1
"""Bytes of an nspace in an answer: the longest one, and a NUL."""


class ToolReply(Record):
    """A server's answer to a tool that it welcomes.

    Attributes:
        proc: The tool's name, where it asked for one.
        server: The server's own name.
        verdict: What became of the tool's credential, 0 where it was good.
    """

    proc: Proc | None
    server: Proc
    verdict: int = 0


def encode_tool_reply(reply: ToolReply) -> bytes:
    """Return a server's answer to a tool, launcher or scheduler; a refusal is that of `encode_reply`."""
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
        flag: The kind of process that the hello named; it decides what the answer holds.
    """

    __slots__ = ("_held", "_named", "rest")

    def __init__(self, flag: int) -> None:
        self._named = flag in NEEDS_ID
        self._held = b""
        self.rest = b""

    def feed(self, data: bytes) -> ToolReply | int | None:
        """Take what a socket delivered; return the answer, or the status of a refusal; None before it is complete.

        What follows is left in `rest`.

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
