"""The judgement of a job after the end of ranks: whether one has failed, and which one is the cause.

If a rank fails, others follow within moments: they miss it in a collective, and exit with errors. The rank that is
named, and whose code becomes the job's, should be the first one. So `judge` collects all ends that are known, and waits
for two kinds of ranks before it decides: ranks whose connection has ended, which the system reports as ended soon
(`DYING` polls), and ranks that had left shortly before the failed one, which may be the cause (`CAUSE` seconds). Then
the guiltiest rank is the culprit (`_guilt`): one that was killed by a signal before one with an exit code, and this
before one that exited without finalizing (`Rank.blame`); of equal ranks the one that left first.
"""

from __future__ import annotations

from pypmix.host.loop import vital
from pypmix.host.machine import POLL
from pypmix.host.rank import LOST_WITH, STARTED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob

CAUSE = 10.0
"""Seconds to wait for the end of a rank that failed ranks had missed."""

DYING = 10
"""The number of polls for the end of a rank whose connection has ended."""


class Judgement:
    """Ends a job, or records its failure, once the rank is known that failed first.

    Args:
        job: The job.

    Attributes:
        culprit: The rank whose end was judged to be the cause, whether or not it has ended the job; None before that.
        is_active: Whether the end of a rank is being judged; ends that arrive meanwhile belong to the same judgement.
    """

    def __init__(self, job: RunningJob) -> None:
        self.job = job
        self.host = job.host
        self.culprit: Rank | None = None
        self.is_active = False
        self._is_pending = False
        """Whether a judgement waits for the end of further ranks."""
        self._awaits_cause = False
        """Whether a wait with a limit has begun for the cause of a failure."""
        self._leaving: Rank | None = None
        """A rank that seems to end; the judgement waits for it."""
        self._suspect: Rank | None = None
        """The rank to blame when that wait began, if it matters."""

    def reset(self) -> None:
        """Forget the failure of a job that is started once more."""
        self.culprit = None
        self._awaits_cause = False

    @property
    def is_final(self) -> bool:
        """Whether no further end makes a difference."""
        job = self.job
        return job.outcome is not None or (job.terms.keep_going and job.partial is not None)

    def consider(self, ranks: Sequence[Rank]) -> None:
        """Judge the job after ranks have ended, unless that would wait for the same ranks as before.

        Thousands may end at once, and each judgement looks at all of them.
        """
        if self.is_final or not (self._is_pending or any(rank.blame for rank in ranks)):
            return
        if self._leaving is not None and self._leaving.leaves:
            suspect = self._suspect
            if suspect is None or all(_guilt(rank) <= _guilt(suspect) for rank in ranks):
                return
        self.judge(DYING)

    @vital
    def judge(self, chances: int) -> None:
        """End the job after a rank has failed, and name the rank that failed first.

        Args:
            chances: The polls left for ranks that seem to end; below 0 it waits for no further end.
        """
        is_outer = not self.is_active
        self.is_active = True
        try:
            self._find_culprit(chances)
        finally:
            if is_outer:
                self.is_active = False
        if is_outer:
            self.job.remove_ended_launches()

    def _find_culprit(self, chances: int) -> None:
        # A rank that requested an abort may have exited since, and a rank that died a moment ago may have taken others
        # with it: look at all of them before naming one.
        job = self.job
        self.host.loop.run_posted()
        for each in list(job.launches):
            each.collect()
        if job.outcome is not None or not any(other.blame for other in job.ended):
            return
        self._leaving = self._suspect = None
        dying = [other for other in job.ranks if other.alive and other.lost] if chances > 0 else []
        if dying:
            # The others have seen its connection end before the system reports its exit.
            self._is_pending = True
            self._wait_for(dying)
            self.host.loop.later(POLL, lambda: self.judge(chances - 1))
            return
        culprit = max(job.ended, key=_guilt)
        leaving = self._possible_causes(culprit) if chances >= 0 else []
        self._is_pending = bool(leaving)
        if leaving:
            # It missed a rank that has left and may be about to report a cause; the end of that rank is judged again.
            self._wait_for(leaving, culprit)
            if not self._awaits_cause:
                self._awaits_cause = True
                self.host.loop.later(CAUSE, lambda: self.judge(-1))
            return
        self.culprit = culprit
        code = culprit.exit_code or 1
        if job.terms.keep_going:
            is_lost = culprit.fate.startswith(LOST_WITH)
            is_reported = is_lost and self.host.report_loss(culprit.node, f"{culprit.end()}; the others go on")
            job.decide(code, f"{culprit.end()}; the others went on", is_reported=is_reported)
            return
        reason = culprit.end() + job.others_text(culprit)
        if job.partial is not None:
            # Some ranks were ended on request, which the others may not survive: the request decides.
            code, reason = job.partial.code, f"{job.partial.reason}; then {reason}"
        job.end(code, reason)

    def _possible_causes(self, culprit: Rank) -> list[Rank]:
        """Return the ranks that have left a moment before a failed rank, which may have missed them, and still run."""
        if culprit.signum or culprit.stage == STARTED:
            return []
        since = culprit.left - CAUSE
        return [rank for rank in self.job.ranks if since < rank.left < culprit.left and rank.leaves]

    def _wait_for(self, ranks: Sequence[Rank], suspect: Rank | None = None) -> None:
        # Of many ranks that end one after the other, in either direction, this one is among the last.
        self._leaving, self._suspect = ranks[len(ranks) // 2], suspect


def _guilt(rank: Rank) -> tuple[int, float]:
    """Return a key that is greater the more likely a rank is the cause of others' ends: the first that has left."""
    return rank.blame, -rank.left
