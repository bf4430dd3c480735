"""A host that answers as it was recorded: what a user has seen becomes a test."""

from __future__ import annotations

import threading

from pypmix.host.recording.normal import COLLECTIVES, Normal
from pypmix.host.recording.read import Recording, Unreadable, read
from pypmix.standard.errors import NotFound, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from pypmix.engine.base import Upcall
    from pypmix.host.recording.read import Entry
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc


class Replay:
    """Answers upcalls as a recording says; to be given to a `Server` as its `on_upcall`.

    An upcall is matched by its operation, requestor and content, less what differs from run to run (`Normal`), with
    the first of that kind that is left, and answered at once; one that was never answered is not answered. What is not
    in the recording fails with `NotFound` and is kept in `unmatched`.

    Args:
        recording: What was recorded.
        server: The name of the server whose part to take; None for all of them.
        normal: What differs from run to run.

    Attributes:
        unmatched: What was asked and is not in the recording, with who asked.
    """

    def __init__(self, recording: Recording, server: str | None = None, normal: Normal | None = None) -> None:
        self._normal = normal or Normal()
        self._lock = threading.Lock()
        self._left = [
            (self._kind(entry.op, entry.requestor), entry)
            for entry in recording.entries
            if server is None or entry.server == server
        ]
        self.unmatched: list[tuple[Op[object], Proc | None]] = []

    def __call__(self, upcall: Upcall) -> None:
        kind = self._kind(upcall.op, upcall.requestor)
        with self._lock:
            number = next((number for number, (other, _) in enumerate(self._left) if other == kind), None)
            if number is None:
                self.unmatched.append((upcall.op, upcall.requestor))
            else:
                _, entry = self._left.pop(number)
        if number is None:
            upcall.fail(NotFound("the recording has no such upcall, or no more", operation=upcall.op.name))
        elif entry.answer is None:
            return
        elif entry.answer.error is not None:
            upcall.fail(entry.answer.error)
        elif isinstance(entry.answer.result, Unreadable):
            upcall.fail(PMIxError(f"the host had answered {entry.answer.result.shown}", operation=upcall.op.name))
        else:
            upcall.reply(entry.answer.result)

    @property
    def left(self) -> tuple[Entry, ...]:
        """The recorded upcalls that have not come."""
        with self._lock:
            return tuple([entry for _, entry in self._left])

    def report(self) -> list[str]:
        """Return a line for each upcall that was asked and not recorded, or recorded and not asked; none is a match."""
        with self._lock:
            asked = [f"asked, not recorded: {_shown(op, proc)}" for op, proc in self.unmatched]
            return asked + [f"recorded, not asked: {_shown(entry.op, entry.requestor)}" for _, entry in self._left]

    def _kind(self, op: Op[object], requestor: Proc | None) -> tuple[Op[object], Proc | None]:
        requestor = None if isinstance(op, COLLECTIVES) else self._normal.part(requestor)
        return self._normal(op), requestor


def _shown(op: Op[object], requestor: Proc | None) -> str:
    return f"{op.name} of {requestor}: {op!r}" if requestor else f"{op.name}: {op!r}"


def replay(path: str | os.PathLike[str], server: str | None = None, normal: Normal | None = None) -> Replay:
    """Return a host that answers as a file says; see `Replay`.

    Args:
        path: What a `Recorder` has written.
        server: The name of the server whose part to take; None for all of them.
        normal: What differs from run to run.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a recording.
    """
    return Replay(read(path), server, normal)
