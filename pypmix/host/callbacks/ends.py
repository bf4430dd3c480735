"""The ends of jobs on hosts with an exchange: a job ends with its ranks on all hosts, and all hosts raise the event."""

from __future__ import annotations

import time

from pypmix.host.exchange.codec import CODES, FLAG, NAME, NUMBER, SECONDS, at_least_one, record
from pypmix.host.notices import RAISED, Notices, job_status
from pypmix.standard.enums import Status
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from pypmix.host.exchange import Crossing, Exchange
    from pypmix.host.manager import Manager
    from pypmix.host.running import RunningJob
    from pypmix.standard.ops import Notification

ENDED = "pypmix.ended"
ASKED = "pypmix.asked"

MAX_JOBS = 4096
"""The limit of jobs whose parts have ended on some hosts but not on all; the oldest is forgotten."""


class End(Record):
    """The end of a host's part of a job.

    Args:
        nspace: The job.
        nodes: The hosts that run a part of the job.
        launched: True if any of the processes was started.
        told: True if the event of the job's end is raised even if no client has registered for it.
        code: The exit code; 0 for a part that has not failed.
        status: The status of the end.
        when: The time of the failure, in seconds since 1970; the first failure determines the end of the job.
    """

    nspace: str
    nodes: tuple[str, ...]
    launched: bool = True
    told: bool = False
    code: int = 0
    status: int = Status.SUCCESS
    when: float = 0.0


END = record(End, NAME, at_least_one(NAME), FLAG, FLAG, NUMBER, NUMBER, SECONDS)


class SharedNotices(Notices):
    """The events of a host that has an exchange.

    A job ends when all hosts that run a part of it have ended their parts, or are lost; each of them raises the event.

    Args:
        host: The host.
        exchange: The connection with the other hosts.
        crossing: Sends events to the other hosts.
    """

    def __init__(self, host: Manager, exchange: Exchange, crossing: Crossing) -> None:
        super().__init__(host)
        self._exchange = exchange
        self._crossing = crossing
        self._elsewhere: set[int] = set()
        self._waiting: dict[str, dict[str, End]] = {}
        exchange.hear(ENDED, self._receive_end)
        exchange.hear(ASKED, self._receive_registrations)
        exchange.watch(self._changed)

    # The ends of jobs

    def _job_ended(self, job: RunningJob) -> None:
        nodes = tuple([node.hostname for node in job.job.nodes if node.ranks])
        outcome, terms = job.final_outcome, job.terms
        code = outcome.code if outcome is not None else 0
        told = terms.tell_end or terms.tell_job
        launched = job.unlaunched is None and bool(code or not terms.silent)
        part = End(job.nspace, nodes, launched, told, code, job_status(job, code), job.failed_at)
        self._exchange.broadcast(ENDED, END.write(part))
        self._add(self._exchange.name, part)

    def _add(self, name: str, part: End) -> None:
        parts = self._waiting.setdefault(part.nspace, {})
        parts[name] = part
        if len(self._waiting) > MAX_JOBS:
            del self._waiting[next(iter(self._waiting))]
        self._settle(part.nspace)

    def _settle(self, nspace: str) -> None:
        """Raise the event of a job's end if all hosts that run a part of it have ended their parts, or are lost."""
        parts = self._waiting[nspace]
        nodes = next(iter(parts.values())).nodes
        lost = [name for name in nodes if name not in parts and name in self._exchange.gone]
        if not all(name in parts or name in lost for name in nodes):
            return
        del self._waiting[nspace]
        aborted = End(nspace, nodes, True, False, 1, Status.ERR_JOB_ABORTED, time.time())
        ended = [parts[name] for name in sorted(parts)] + [aborted] * bool(lost)
        if any(part.launched for part in ended):
            # If several parts failed, the first failure counts, which is the same on all hosts.
            end = min([part for part in ended if part.when], key=lambda part: part.when, default=ended[0])
            self._tell_end(nspace, end.code, end.status, any(part.told for part in ended))

    def _settle_all(self) -> None:
        for nspace in list(self._waiting):
            self._settle(nspace)

    def _changed(self, name: str, here: bool) -> None:
        if here and self.requested:
            self._send_registrations(name)
        elif not here:
            self._host.soon(self._settle_all)

    def _receive_end(self, sender: str, data: bytes) -> None:
        part = END.read(data)
        self._host.soon(lambda: self._add(sender, part))

    # The codes that clients have registered for; on any thread

    def add(self, codes: Iterable[int]) -> None:
        """Add codes that a client here has registered for, and report them to the other hosts."""
        before = len(self.requested)
        super().add(codes)
        if len(self.requested) > before:
            for name in self._exchange.members:
                if name != self._exchange.name:
                    self._send_registrations(name)

    def remove(self, codes: Iterable[int]) -> None:
        """Remove codes that no client here is registered for, unless clients of other hosts may be."""
        super().remove(set(codes) - self._elsewhere)

    def _send_registrations(self, name: str) -> None:
        self._exchange.tell(name, ASKED, CODES.write(tuple(sorted(self.requested))))

    def _receive_registrations(self, _sender: str, data: bytes) -> None:
        codes = CODES.read(data)
        self._elsewhere.update(RAISED.intersection(codes))
        self.add(codes)

    def _spread(self, event: Notification) -> None:
        super()._spread(event)
        self._crossing.raised(event)
