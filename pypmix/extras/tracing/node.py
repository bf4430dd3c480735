"""The part of a trace on one node: the requests of the server's clients, and its upcalls."""

from __future__ import annotations

import json
import time

from pypmix.host.exchange.codec import broken
from pypmix.standard import statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from pypmix.engine.base import Kind, OnUpcall, Traced, Upcall
    from pypmix.server import Server
    from pypmix.standard.ops import Op

    UpcallTimes = tuple[Kind, int, int]
    Batch = tuple[Traced, Sequence[UpcallTimes], int]

EVERY = 0.5
"""Seconds between two collections of the entries."""

PIECE = 4096
"""The entries of one message to the launcher."""

ROW = 3
"""The numbers of a row: the kind of the request, when it was received, and when its answer was sent."""


class NodeTrace:
    """Collects the requests and upcalls of a server.

    Attributes:
        period: The seconds between two collections of the entries.
        ahead: Nanoseconds by which the wall clock, which the nodes share, is ahead of the monotonic clock.
    """

    period = EVERY

    def __init__(self) -> None:
        self.ahead = min([(time.time_ns() - time.monotonic_ns()) for _ in range(5)])
        self._upcalls: list[UpcallTimes] = []
        self._drain: Callable[[], Traced] | None = None

    def wrap(self, on_upcall: OnUpcall) -> OnUpcall:
        """Return a function that traces upcalls and calls `on_upcall`."""

        def trace(upcall: Upcall) -> None:
            traced = TracedUpcall(upcall, self._upcalls)
            try:
                on_upcall(traced)
            except Exception:
                traced.record(statuses.ERROR)
                raise

        return trace

    def attend(self, server: Server) -> None:
        """Trace the requests of an open server's clients, if its engine supports that."""
        self._drain = server.session.trace()

    def take(self) -> Batch:
        """Remove and return the finished requests and upcalls."""
        count = len(self._upcalls)
        upcalls = self._upcalls[:count]
        # Other threads may append meanwhile.
        del self._upcalls[:count]
        return ([], []) if self._drain is None else self._drain(), upcalls, self.ahead

    def take_messages(self) -> Iterator[bytes]:
        """Remove the finished requests and upcalls, and return them as messages."""
        return pieces(self.take())


class TracedUpcall:
    """An upcall whose answer is recorded; see `pypmix.engine.base.Upcall`."""

    __slots__ = ("_begin", "_upcall", "_upcalls", "gid", "op", "requestor", "uid")

    def __init__(self, upcall: Upcall, upcalls: list[UpcallTimes]) -> None:
        self.op: Op[object] = upcall.op
        self.requestor: Proc | None = upcall.requestor
        self.uid = upcall.uid
        self.gid = upcall.gid
        self._upcall = upcall
        self._upcalls = upcalls
        self._begin = time.monotonic_ns()

    def reply(self, result: object = None) -> None:
        """Answer with a result."""
        self.record(statuses.SUCCESS)
        self._upcall.reply(result)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        self.record(error.code if isinstance(error, PMIxError) else statuses.ERROR)
        self._upcall.fail(error)

    def record(self, status: int) -> None:
        """Record the status of its answer."""
        op = self.op
        procs = getattr(op, "procs", ())
        subject = op.name, procs if isinstance(procs, tuple) else (), str(getattr(op, "group", ""))
        self._upcalls.append(((self.requestor, subject, status), self._begin, time.monotonic_ns()))


def pieces(batch: Batch) -> Iterator[bytes]:
    """Encode a batch as messages, in order; an empty batch needs no message."""
    (kinds, rows), upcalls, ahead = batch
    for start in range(0, max(len(rows) // ROW, len(kinds), len(upcalls)), PIECE):
        end = start + PIECE
        some = kinds[start:end], rows[ROW * start : ROW * end], upcalls[start:end], ahead
        yield json.dumps(some, separators=(",", ":")).encode()


def unpack(data: bytes) -> Batch:
    """Decode a message.

    Raises:
        RemoteProtocolError: It is malformed.
    """
    try:
        kinds, rows, upcalls, ahead = json.loads(data)
        numbers = [*map(int, rows)]
        if len(numbers) % ROW:
            raise ValueError("an incomplete row")
        requests = [_check_kind(*each) for each in kinds], numbers
        return requests, [(_check_kind(*kind), int(begin), int(end)) for kind, begin, end in upcalls], int(ahead)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise broken(f"a trace: {error}") from None


def _check_kind(proc: Any, subject: Any, status: Any) -> Kind:
    name, procs, more = subject
    checked = str(name), tuple([Proc(*each) for each in procs]), str(more)
    return None if proc is None else Proc(*proc), checked, None if status is None else int(status)
