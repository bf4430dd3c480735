"""A host that gives recorded answers, so that a user's recording becomes a test."""

from __future__ import annotations

import threading

from pypmix.recording.compare import COLLECTIVES, Normal
from pypmix.recording.record import Recording, Unreadable, read
from pypmix.standard.errors import NotFound, PMIxError

TYPE_CHECKING = False
if TYPE_CHECKING:
    import os

    from pypmix.engine.base import Upcall
    from pypmix.recording.record import Entry
    from pypmix.standard.ops import Op
    from pypmix.standard.types import Proc


class Replay:
    """Answers upcalls with the answers of a recording; to be passed to a `Server` as its `on_upcall`.

    An upcall is matched by its operation, requestor and content, without the parts that vary from run to run
    (`Normal`), with the first recorded upcall of that kind that was not used yet. It is answered at once, or not at all
    if the recorded upcall was never answered. An upcall that is not in the recording fails with `NotFound` and is added
    to `unmatched`.

    Args:
        recording: The recording.
        server: The name of the server whose upcalls to use; None for all servers.
        normal: Removes the parts that vary from run to run.

    Attributes:
        unmatched: The upcalls that are not in the recording, with their requestors.
    """

    def __init__(self, recording: Recording, server: str | None = None, normal: Normal | None = None) -> None:
        self._normal = normal or Normal()
        self._lock = threading.Lock()
        self._unused = [
            (self._kind(entry.op, entry.requestor), entry)
            for entry in recording.entries
            if server is None or entry.server == server
        ]
        self.unmatched: list[tuple[Op[object], Proc | None]] = []

    def __call__(self, upcall: Upcall) -> None:
        kind = self._kind(upcall.op, upcall.requestor)
        with self._lock:
            number = next((number for number, (other, _) in enumerate(self._unused) if other == kind), None)
            if number is None:
                self.unmatched.append((upcall.op, upcall.requestor))
            else:
                _, entry = self._unused.pop(number)
        if number is None:
            upcall.fail(NotFound("the recording has no further upcall of this kind", operation=upcall.op.name))
        elif entry.answer is None:
            return
        elif entry.answer.error is not None:
            upcall.fail(entry.answer.error)
        elif isinstance(entry.answer.result, Unreadable):
            shown = entry.answer.result.shown
            upcall.fail(PMIxError(f"the recorded answer has an invalid type: {shown}", operation=upcall.op.name))
        else:
            upcall.reply(entry.answer.result)

    @property
    def left(self) -> tuple[Entry, ...]:
        """The recorded upcalls that were not used yet."""
        with self._lock:
            return tuple([entry for _, entry in self._unused])

    def report(self) -> list[str]:
        """Return a line for each difference: an upcall only of this run, or only of the recording."""
        with self._lock:
            new = [f"asked, not recorded: {_shown(op, proc)}" for op, proc in self.unmatched]
            return new + [f"recorded, not asked: {_shown(entry.op, entry.requestor)}" for _, entry in self._unused]

    def _kind(self, op: Op[object], requestor: Proc | None) -> tuple[Op[object], Proc | None]:
        requestor = None if isinstance(op, COLLECTIVES) else self._normal.part(requestor)
        return self._normal(op), requestor


def _shown(op: Op[object], requestor: Proc | None) -> str:
    return f"{op.name} of {requestor}: {op!r}" if requestor else f"{op.name}: {op!r}"


def replay(path: str | os.PathLike[str], server: str | None = None, normal: Normal | None = None) -> Replay:
    """Return a host that gives the answers of a recording; see `Replay`.

    Args:
        path: The file of a `Recorder`.
        server: The name of the server whose upcalls to use; None for all servers.
        normal: Removes the parts that vary from run to run.

    Raises:
        OSError: The file cannot be read.
        ValueError: It is not a recording.
    """
    return Replay(read(path), server, normal)
