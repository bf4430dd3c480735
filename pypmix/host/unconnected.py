"""The ranks that exited without calling `PMIx_Init` in a job whose other ranks called it: one line for a person.

Such a rank is usually an MPI program whose MPI library does not find this launcher, so that it ran as a job of one. A
job of which no rank connects, such as `hostname`, gets no line.
"""

from __future__ import annotations

from pypmix.host.outcome import listed
from pypmix.host.rank import STARTED
from pypmix.standard.logtext import get_logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pypmix.engine.base import Cancellable
    from pypmix.host.manager import Manager
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob

_log = get_logger("pypmix.host")

PAUSE = 1.0
"""Seconds in which further ranks may exit that the line then names, too; it is written earlier if the job ends."""


def is_unconnected(job: RunningJob, rank: Rank) -> bool:
    """Return True if a rank of several has exited with 0, unasked, without having called `PMIx_Init`."""
    return rank.code == 0 and rank.stage == STARTED and not rank.excused and len(job.ranks) > 1 and job.outcome is None


class UnconnectedRanks:
    """Writes the line about each job of a host.

    Args:
        host: The host.
    """

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._exited: dict[RunningJob, list[Rank]] = {}
        self._timers: dict[RunningJob, Cancellable] = {}
        self._reported: set[RunningJob] = set()
        host.at_job_end.append(self._job_ended)
        # It is called on an engine's thread.
        host.at_connection.append(lambda job: host.loop.post(lambda: self._connected(job)))

    def add(self, job: RunningJob, rank: Rank) -> None:
        """Record a rank that has exited."""
        if job in self._reported:
            return
        exited = self._exited.setdefault(job, [])
        exited.append(rank)
        # Ranks that connect after the first exit report themselves.
        if len(exited) == 1 and any(each.stage != STARTED for each in job.ranks):
            self._report_soon(job)

    def _connected(self, job: RunningJob) -> None:
        if job in self._exited:
            self._report_soon(job)

    def _report_soon(self, job: RunningJob) -> None:
        if job not in self._timers:
            self._timers[job] = self._host.loop.later(PAUSE, lambda: self._report(job))

    def _job_ended(self, job: RunningJob) -> None:
        timer = self._timers.pop(job, None)
        if timer is not None:
            timer.cancel()
        if any(rank.stage != STARTED for rank in job.ranks):
            self._report(job)
        self._exited.pop(job, None)
        self._reported.discard(job)

    def _report(self, job: RunningJob) -> None:
        self._reported.add(job)
        ranks = self._exited.pop(job, [])
        if not ranks:
            return
        _log.warning(
            "%s exited with code 0 without calling PMIx_Init or PMI_Init, which other ranks of %s called: if it is an "
            "MPI program, its MPI library does not find pypmix, and `ldd` shows which library it is",
            listed([str(rank) for rank in ranks]),
            job,
        )
