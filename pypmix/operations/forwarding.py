# Made from pypmix/aio/operations by native/blocking.py: change it there.
"""Output of procs, and input for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pypmix.arguments import OUTPUT, flag, number_of, proc_tuple
from pypmix.job import Job, read
from pypmix.operations.base import Asks
from pypmix.operations.spawning import SpawnedJob
from pypmix.operations.streams import Stream
from pypmix.standard import keys, statuses
from pypmix.standard.errors import NotInitialized, PMIxError
from pypmix.standard.ops import Get, IOFDeregister, IOFPull, IOFPush, Output
from pypmix.standard.ops.forwarding import STDERR, STDOUT
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.standard.values import infos

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType
    from typing import Self

    from pypmix.arguments import Infos, Procs
    from pypmix.engine.base import ClientSession
    from pypmix.mailbox import Mailbox
    from pypmix.standard.enums import IOFChannel
    from pypmix.standard.types import Info
    from pypmix.waits import Port

MAX_INPUT = 4096
"""Bytes of input that one message carries: with more, PRRTE 3 writes beyond its buffer."""


class OutputStream(Stream[Output]):
    """The output of procs, piece by piece; `output` of a client makes one.

    Iterating ends when all of the procs have closed all of the channels, as far as the server tells, and for a job
    that the client has spawned at its end.

    Example:
        >>> job = me.spawn(["./worker"], n=4)
        >>> with me.output(job, IOFChannel.STDOUT, buffer=4096) as pieces:
        ...     for piece in pieces:
        ...         print(piece.source.rank, piece.text, end="")
        ...     print(pieces.dropped, "pieces lost")
    """

    _name = "output"

    def __init__(self, port: Port, procs: Procs, channels: IOFChannel, buffer: int, info: Infos) -> None:
        super().__init__(port, buffer)
        # A whole job is its wildcard.
        self._procs = (Proc(procs.nspace, RANK_WILDCARD),) if isinstance(procs, Job) else _named(procs)
        self._job = procs if isinstance(procs, SpawnedJob) else None
        self._channels = number_of(channels, "IOFChannel", "STDOUT")
        self._info = infos(info)
        self._id = -1
        self._open: set[tuple[Proc, int]] = set()
        # Refuses invalid arguments here, and not when the stream is opened.
        self._op = IOFPull(self._procs, self._channels, self._info, self._put, self._stopped)

    @property
    def id(self) -> int:
        """The number that the engine knows the pull by, -1 before it is open."""
        return self._id

    def _begin(self, box: Mailbox[Output]) -> None:
        self._open = open_channels(self._port.session, self._procs, self._channels)
        self._id = self._port.run(self._op, IOFDeregister)
        job = self._job
        if job is not None and job.ends is not None and job.ends.follow(job.nspace, self._job_ended):
            self._job_ended()

    def _job_ended(self) -> None:
        """End after the output that the server has kept: it arrives before the answer to the request of this method.

        The event of the end may have overtaken it: the server raised it before this pull, and it is handed on after.
        """
        box, job = self._box, self._job
        if box is None or job is None:
            return
        try:
            self._port.session.submit(_ROUND_TRIP, lambda _result, _error: box.end())
        except PMIxError:
            # The client is closed: nothing more comes.
            box.end()

    def close(self) -> None:
        """Stop pulling; buffered output can still be read. May be called twice.

        Example:
            >>> pieces = me.output(me.job).open()
            >>> pieces.close()
            >>> unread = b"".join([piece.data for piece in pieces])
        """
        job = self._job
        self._closed = self._box is not None
        if self._box is not None and job is not None and job.ends is not None:
            job.ends.leave(job.nspace, self._job_ended)
        if self._box is not None:
            self._box.end()
        if self._id >= 0:
            self._leave()

    def _finish(self) -> None:
        number, self._id = self._id, -1
        if number >= 0:
            self._port.run(IOFDeregister(number))

    def _put(self, piece: Output) -> None:
        box = self._box
        if box is None:
            return
        box.put(piece)
        key = piece.source, piece.channel
        if not piece.data and key in self._open:
            self._open.discard(key)
            if not self._open:
                box.end()

    def _stopped(self, error: BaseException | None) -> None:
        self._id = -1
        if self._box is not None:
            self._box.end(error)


_ROUND_TRIP = Get(Proc.unchecked("pypmix.nothing", 0), "pypmix.nothing", (flag(keys.IMMEDIATE),))
"""A request that every server answers at once, without its host.

It asks for a proc of an unknown job. A proc of a job on the node will not do: if that has never opened a client,
libpmix 5.0's server reads memory that it has not mapped yet (`pmix_gds_shmem2_fetch`) and crashes.
"""


def open_channels(session: ClientSession, procs: Iterable[Proc], channels: int) -> set[tuple[Proc, int]]:
    """Return the channels whose ends end the output of these procs; none if that cannot be known.

    The diagnostic channel has no end.
    """
    found: set[tuple[Proc, int]] = set()
    for nspace, rank in procs:
        ranks: Iterable[int] = (rank,)
        if rank == RANK_WILDCARD:
            try:
                ranks = range(int(read(session, Proc.unchecked(nspace, rank), keys.JOB_SIZE)))
            except PMIxError:
                return set()
        found.update(
            [(Proc.unchecked(nspace, one), bit) for one in ranks for bit in (STDOUT, STDERR) if channels & bit]
        )
    return found


def _named(procs: Procs) -> tuple[Proc, ...]:
    """Return the procs of a call one by one, since PRRTE 3 finds no procs for a wildcard of input."""
    if procs is None:
        raise TypeError("output and input need procs: a Proc, a Job, or several Procs")
    return proc_tuple(procs)


def _push_ops(
    procs: tuple[Proc, ...], data: bytes | bytearray | memoryview | str, directives: tuple[Info, ...]
) -> list[IOFPush]:
    """Return the pushes that carry the data; a string as UTF-8."""
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogateescape")
    elif not isinstance(data, bytes | bytearray | memoryview):
        raise TypeError(f"input is bytes or str, not {type(data).__name__}")
    whole = bytes(data)
    pieces = [whole[start : start + MAX_INPUT] for start in range(0, len(whole), MAX_INPUT)]
    return [IOFPush(procs, piece, directives) for piece in pieces]


def _push(port: Port, op: IOFPush) -> None:
    try:
        port.run(op)
    except PMIxError as error:
        # The end of an input may be answered with the status that says so.
        if op.data or error.code != statuses.ERR_IOF_COMPLETE:
            raise


class InputWriter:
    """The standard input of procs; `input` of a client makes one. Leaving its context closes that input.

    Example:
        >>> with me.input(me.job[0]) as stdin:
        ...     stdin.write("a line\\n")
        >>> stdin.closed
        True
    """

    def __init__(self, port: Port, procs: tuple[Proc, ...], info: Infos) -> None:
        self._port = port
        self._procs = procs
        self._info = infos(info)
        self._closed = False
        IOFPush(procs, b"", self._info)

    @property
    def closed(self) -> bool:
        """Whether the input has been closed from here."""
        return self._closed

    def write(self, data: bytes | bytearray | memoryview | str) -> int:
        """`PMIx_IOF_push`: send bytes, or a string as UTF-8, and wait until the host has taken them.

        Returns:
            The number of bytes sent, which is all of them.

        Raises:
            NotInitialized: The input is closed.
            NotSupported: The server's host takes no input.

        Example:
            >>> with me.input(me.job) as stdin:
            ...     sent = stdin.write(b"\\x00\\x01")
        """
        ops = _push_ops(self._procs, data, self._info)
        if self._closed:
            raise NotInitialized("the input is closed", operation="input")
        for op in ops:
            _push(self._port, op)
        return sum([len(op.data) for op in ops])

    def close(self) -> None:
        """End the input: its readers see the end of their file. May be called twice.

        Example:
            >>> stdin = me.input(me.job[0])
            >>> stdin.write("the only line\\n")
            >>> stdin.close()
        """
        if not self._closed:
            self._closed = True
            _push(self._port, IOFPush(self._procs, b"", self._info))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class Forwarding(Asks):
    """Output forwarding: pull, push and deregister."""

    def output(
        self,
        procs: Procs,
        channels: IOFChannel = OUTPUT,
        *,
        buffer: int = 1024,
        info: Infos = None,
    ) -> OutputStream:
        """`PMIx_IOF_pull`: a stream of the output of procs, to be used as a context manager and iterated.

        Each piece is an `Output`: `source`, `channel` (an `IOFChannel`) and `data`, of which `text` is the same as a
        string; one without data is the end of that channel. Pieces are whatever the procs wrote at a time, not lines.

        Args:
            procs: A proc, a job, or several procs; a rank may be `Rank.WILDCARD`.
            channels: `IOFChannel.STDOUT`, `STDERR`, `DIAG`, or a sum of these.
            buffer: How many pieces are kept for a slow reader; of more than that the oldest are dropped and counted.
            info: Further infos or a mapping, such as `attrs.IOF_TAG_OUTPUT`.

        Returns:
            The stream; it pulls when it is entered, and then gets also what was written a while before and is still
            kept by the server.

        Raises:
            NotSupported: The server's host forwards no output.
            Unreachable: The caller is a singleton.

        Example:
            >>> with me.output(me.job, IOFChannel.STDERR) as pieces:
            ...     for piece in pieces:
            ...         print(piece.source, piece.text, end="")

        PMIx Standard: "Tools and Debuggers", `PMIx_IOF_pull`.
        """
        return OutputStream(self._port, self._procs(procs), channels, buffer, info)

    def input(self, procs: Procs, *, info: Infos = None) -> InputWriter:
        """`PMIx_IOF_push`: the standard input of procs, to be written to; leaving its context closes it.

        Args:
            procs: A proc, a job, or several procs.
            info: Infos or a mapping for each push.

        Example:
            >>> with me.input(me.job[0]) as stdin:
            ...     stdin.write("a line\\n")

        PMIx Standard: "Tools and Debuggers", `PMIx_IOF_push`.
        """
        return InputWriter(self._port, _named(self._procs(procs)), info)

    def _push_input(
        self, procs: Procs, data: bytes | bytearray | memoryview | str = b"", *, info: Infos = None
    ) -> None:
        """Give bytes, or a string as UTF-8, to the standard input of procs; no bytes at all end it."""
        found, directives = _named(self._procs(procs)), infos(info)
        for op in _push_ops(found, data, directives) or [IOFPush(found, b"", directives)]:
            _push(self._port, op)

    def _iof_deregister(self, stream: OutputStream) -> None:
        stream.close()
