"""Output of procs, pulled by clients and tools, and input to procs."""

from __future__ import annotations

from pypmix.standard.ops.core import Op
from pypmix.standard.record import Record
from pypmix.standard.types import RANK_WILDCARD, Info, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

STDIN = 1
STDOUT = 2
STDERR = 4
DIAG = 8


class Output(Record):
    """A piece of a proc's output.

    Attributes:
        source: The proc that wrote it.
        channel: An `IOFChannel`.
        data: The bytes; empty at the end of the channel.
        infos: Its infos.

    Example:
        >>> with me.output(me.job) as pieces:
        ...     for piece in pieces:
        ...         if piece.channel == IOFChannel.STDERR:
        ...             print(piece.source, len(piece.data), piece.text, end="")
    """

    source: Proc
    channel: int
    data: bytes
    infos: tuple[Info, ...] = ()

    @property
    def text(self) -> str:
        """The bytes as UTF-8; invalid bytes, such as a character split between two pieces, become U+FFFD."""
        return self.data.decode("utf-8", "replace")


def names_proc(procs: tuple[Proc, ...] | frozenset[Proc], proc: Proc) -> bool:
    """Return True if the procs include a proc, by name or by wildcard; an empty nspace means all nspaces."""
    nspace, rank = proc
    return (
        proc in procs
        or Proc.unchecked(nspace, RANK_WILDCARD) in procs
        or Proc.unchecked("", RANK_WILDCARD) in procs
        or Proc.unchecked("", rank) in procs
    )


def _channels(channels: object, allowed: int) -> None:
    if not isinstance(channels, int) or channels <= 0 or channels & ~allowed:
        raise ValueError(f"{channels!r} is not a sum of IOFChannel values")


class IOFPull(Op[int]):
    """`PMIx_IOF_pull`: call a function with the output of procs; returns an id. Also an upcall.

    The engine calls `handler` in its thread, so it must neither block nor raise. A rank may be `Rank.WILDCARD`. As an
    upcall it has no handler: it requests the host to deliver the output to the server.
    Understood directives: `attrs.IOF_CACHE_SIZE`, `attrs.IOF_DROP_OLDEST`, `attrs.IOF_DROP_NEWEST`,
    `attrs.IOF_TAG_OUTPUT`, `attrs.IOF_TIMESTAMP_OUTPUT`,
    `attrs.IOF_XML_OUTPUT`.

    Attributes:
        ended: Called once like `handler` when the session has ended, so that no further output can arrive: with None if
            it was closed, with the error if the server was lost. Not called after a deregistration.
    """

    procs: tuple[Proc, ...]
    channels: int
    directives: tuple[Info, ...] = ()
    handler: Callable[[Output], None] | None = None
    ended: Callable[[BaseException | None], None] | None = None

    def __validate__(self) -> None:
        super().__validate__()
        if not self.procs:
            raise ValueError("there are no procs to pull the output of")
        _channels(self.channels, STDOUT | STDERR | DIAG)


class IOFDeregister(Op[None]):
    """`PMIx_IOF_deregister`: stop a pull. Also an upcall."""

    id: int
    directives: tuple[Info, ...] = ()


class IOFPush(Op[None]):
    """`PMIx_IOF_push`: send bytes to the standard input of procs; empty bytes close it. Also an upcall.

    Understood directives: `attrs.IOF_PUSH_STDIN`, `attrs.IOF_COMPLETE`.
    """

    procs: tuple[Proc, ...]
    data: bytes = b""
    directives: tuple[Info, ...] = ()

    def __validate__(self) -> None:
        super().__validate__()
        if not isinstance(self.data, bytes):
            raise TypeError(f"input is bytes, not {type(self.data).__name__}")
