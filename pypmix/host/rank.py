"""A rank of a running job: its process, its stage, and its end."""

from __future__ import annotations

import math

from pypmix.host.outcome import signal_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.host.extensions import ForkServer
    from pypmix.host.feeding import Input
    from pypmix.host.nodes import HostNode
    from pypmix.host.output import Stream
    from pypmix.host.pmi.registration import Registration
    from pypmix.standard.types import Proc


STARTED, CONNECTED, FINALIZED = "started", "connected", "finalized"

LOST_WITH = "was lost with node"
"""The beginning of the fate of a rank that was lost with its node."""


class Rank:
    """A process of a job, from its start until the end of the job.

    Attributes:
        proc: Its name in PMIx.
        label: Its name for a person.
        node: The node that it runs on.
        alive: Whether this host has started it and it has not ended.
        over: Whether it has ended.
        forked: The fork server that is its parent; None if this process is.
        pid: Its pid, 0 if this host has not started it. The pid is kept until the job is finished, so that no other
            process gets it or the process group.
        stage: Its stage in PMIx.
        lost: Whether its connection has ended without a finalize: it may be about to end itself.
        left: When it finalized, lost its connection or ended, by `time.monotonic`; infinite before that.
        life: How often it was started before, with the same name (PMIX_REINCARNATION).
        streams: The streams that read its output, by `IOFChannel`.
        input: The writer of its standard input; None if this host does not feed it.
        code: Its exit code; None while it runs, and if a signal ended it.
        signum: The signal that ended it.
        excused: Its end was requested, and does not count as a failure.
        fate: How it ended, for a person, if it has neither a code nor a signal of its end; else empty.
        killer: The proc that ended it by job control, for a person; else empty.
        units: The CPUs that it takes, of those it is bound to; 0 if it is not bound.
    """

    __slots__ = (
        "alive",
        "code",
        "dumped",
        "excused",
        "fate",
        "forked",
        "input",
        "killer",
        "label",
        "left",
        "life",
        "lost",
        "node",
        "over",
        "pid",
        "pidfd",
        "pmi",
        "proc",
        "signum",
        "stage",
        "streams",
        "units",
    )

    def __init__(self, proc: Proc, label: str, node: HostNode) -> None:
        self.proc = proc
        self.label = label
        self.node = node
        self.forked: ForkServer | None = None
        self.alive = False
        self.over = False
        self.pid = 0
        self.pidfd = -1
        self.pmi: Registration | None = None
        self.stage = STARTED
        self.lost = False
        self.left = math.inf
        self.life = 0
        self.streams: dict[int, Stream] = {}
        self.input: Input | None = None
        self.code: int | None = None
        self.signum = 0
        self.dumped = False
        self.excused = False
        self.fate = ""
        self.killer = ""
        self.units = 0

    @property
    def blame(self) -> int:
        """0 for an end in order, and more the likelier it is the cause of others' ends."""
        if not self.over or self.excused:
            return 0
        if self.signum:
            return 3
        if self.code:
            return 2
        return 1 if self.stage == CONNECTED else 0

    @property
    def leaves(self) -> bool:
        """Whether it has left its job's servers and has not ended: others have missed it, and it may show the cause."""
        return self.alive and (self.lost or self.stage == FINALIZED)

    @property
    def exit_code(self) -> int:
        """Its exit code in the form of a shell."""
        return 128 + self.signum if self.signum else self.code or 0

    def __str__(self) -> str:
        where = "" if self.node.here else f" on {self.node}"
        return f"{self.label} (pid {self.pid}{where})" if self.pid else f"{self.label}{where}"

    def end(self) -> str:
        """Return a text about its end."""
        again = f", after {self.life} restart{'s' if self.life > 1 else ''}" if self.life else ""
        return self._end() + again

    def _end(self) -> str:
        if self.fate:
            return f"{self} {self.fate}"
        if self.signum:
            wish = f", as {self.killer} had asked" if self.killer else ""
            return f"{self} was killed by {signal_text(self.signum)}{wish}" + (", core dumped" if self.dumped else "")
        return f"{self} exited with code {self.code}" + (" without calling finalize" if self.stage == CONNECTED else "")
