"""The part of a trace that is noted where a server runs: the requests of its clients, and its upcalls."""

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

    Asking = tuple[Kind, int, int]
    Batch = tuple[Traced, Sequence[Asking], int]

EVERY = 0.5
"""Seconds after which what was noted is taken, again and again."""

PIECE = 4096
"""Entries of one message to the launcher."""

ROW = 3
"""The numbers of a row: which kind of request it is, when it came, and when its answer was sent."""


class NodeTrace:
    """The requests and upcalls of a server, as they come.

    Attributes:
        ahead: Nanoseconds by which the wall clock, which is what several nodes share, is ahead of the monotonic one.
    """

    def __init__(self) -> None:
        self.ahead = min([(time.time_ns() - time.monotonic_ns()) for _ in range(5)])
        self._upcalls: list[Asking] = []
        self._drain: Callable[[], Traced] | None = None

    def wrap(self, on_upcall: OnUpcall) -> OnUpcall:
        """Return what the server is to call instead of `on_upcall`."""

        def traced(upcall: Upcall) -> None:
            noted = TracedUpcall(upcall, self._upcalls)
            try:
                on_upcall(noted)
            except Exception:
                noted.ended(statuses.ERROR)
                raise

        return traced

    def attend(self, server: Server) -> None:
        """The server is open: note what its clients ask from now on, where its engine can tell."""
        self._drain = server.session.trace()

    def take(self) -> Batch:
        """Return the requests and the upcalls that have ended since the last time."""
        count = len(self._upcalls)
        upcalls = self._upcalls[:count]
        # Others are added meanwhile, at the end.
        del self._upcalls[:count]
        return ([], []) if self._drain is None else self._drain(), upcalls, self.ahead


class TracedUpcall:
    """An upcall whose answer is noted; see `pypmix.engine.base.Upcall`."""

    __slots__ = ("_begin", "_noted", "_upcall", "gid", "op", "requestor", "uid")

    def __init__(self, upcall: Upcall, noted: list[Asking]) -> None:
        self.op: Op[object] = upcall.op
        self.requestor: Proc | None = upcall.requestor
        self.uid = upcall.uid
        self.gid = upcall.gid
        self._upcall = upcall
        self._noted = noted
        self._begin = time.monotonic_ns()

    def reply(self, result: object = None) -> None:
        """Answer with a result."""
        self.ended(statuses.SUCCESS)
        self._upcall.reply(result)

    def fail(self, error: BaseException) -> None:
        """Answer with an error."""
        self.ended(error.code if isinstance(error, PMIxError) else statuses.ERROR)
        self._upcall.fail(error)

    def ended(self, status: int) -> None:
        """It has been answered."""
        op = self.op
        procs = getattr(op, "procs", ())
        what = op.name, procs if isinstance(procs, tuple) else (), str(getattr(op, "group", ""))
        self._noted.append(((self.requestor, what, status), self._begin, time.monotonic_ns()))


def pieces(batch: Batch) -> Iterator[bytes]:
    """Yield what was taken as messages, in their order; none where there is nothing."""
    (kinds, rows), upcalls, ahead = batch
    for start in range(0, max(len(rows) // ROW, len(kinds), len(upcalls)), PIECE):
        end = start + PIECE
        some = kinds[start:end], rows[ROW * start : ROW * end], upcalls[start:end], ahead
        yield json.dumps(some, separators=(",", ":")).encode()


def unpacked(data: bytes) -> Batch:
    """Return what a message holds.

    Raises:
        RemoteProtocolError: It does not parse.
    """
    try:
        kinds, rows, upcalls, ahead = json.loads(data)
        numbers = [*map(int, rows)]
        if len(numbers) % ROW:
            raise ValueError("a row that is not whole")
        requests = [_kind(*each) for each in kinds], numbers
        return requests, [(_kind(*kind), int(begin), int(end)) for kind, begin, end in upcalls], int(ahead)
    except (ValueError, TypeError, LookupError, OverflowError, RecursionError) as error:
        raise broken(f"a trace: {error}") from None


def _kind(proc: Any, asked: Any, status: Any) -> Kind:
    name, procs, more = asked
    what = str(name), tuple([Proc(*each) for each in procs]), str(more)
    return None if proc is None else Proc(*proc), what, None if status is None else int(status)
