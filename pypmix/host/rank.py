"""A rank of a running job: its process, how far it has come, and how it ended."""

from __future__ import annotations

from pypmix.host.outcome import signal_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.output import Stream
    from pypmix.standard.types import Proc

STARTED, CONNECTED, FINALIZED = "started", "connected", "finalized"


class Rank:
    """A process of the job, from its start until the end of the job."""

    __slots__ = ("alive", "code", "dumped", "excused", "pid", "pidfd", "proc", "signum", "stage", "streams")

    def __init__(self, proc: Proc) -> None:
        self.proc = proc
        self.alive = False
        self.pid = 0
        self.pidfd = -1
        self.stage = STARTED
        self.streams: list[Stream] = []
        self.code: int | None = None
        self.signum = 0
        self.dumped = False
        self.excused = False

    @property
    def blame(self) -> int:
        """0 for an end in order, and more the likelier it is the cause of others' ends."""
        if self.alive or not self.pid or self.excused:
            return 0
        if self.signum:
            return 3
        if self.code:
            return 2
        return 1 if self.stage == CONNECTED else 0

    def __str__(self) -> str:
        return f"rank {self.proc.rank} (pid {self.pid})"

    def end(self) -> str:
        """Say how it ended."""
        if self.signum:
            return f"{self} was killed by {signal_text(self.signum)}" + (", core dumped" if self.dumped else "")
        return f"{self} exited with code {self.code}" + (" without calling finalize" if self.stage == CONNECTED else "")
