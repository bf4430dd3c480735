"""The events that a host raises: procs that end and fail, jobs that start and end; and what others want to hear of.

They go to all of the session: its jobs come from each other by spawns, which connect them, and tools belong to none.
They never go to default handlers, since libraries take what these get for a failure of their own job. What every proc
does in the end is told only where somebody has asked, for most programs never do; a failure is told in any case, since
who is to hear of it may ask later.
"""

from __future__ import annotations

from pypmix.host.outcome import TIMED_OUT
from pypmix.standard import attrs
from pypmix.standard.enums import EventCode, Range, Status
from pypmix.standard.ops import DeregisterEvents, Notification, NotifyEvent, RegisterEvents
from pypmix.standard.types import RANK_WILDCARD, Proc

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.base import Upcall
    from pypmix.host.local import LocalHost
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Info

ENDS = (EventCode.PROC_TERMINATED, EventCode.EVENT_PROC_TERMINATED)
"""The same news under its older and its newer code; each is raised where somebody has asked for it."""


def status_of(rank: Rank) -> int:
    """Return the status that says how a rank has ended."""
    if rank.signum:
        return Status.ERR_PROC_ABORTED_BY_SIG
    if rank.code:
        return Status.ERR_EXIT_NONZERO_TERM
    return Status.ERR_PROC_TERM_WO_SYNC if rank.blame else Status.SUCCESS


def exit_code_of(rank: Rank) -> int:
    """Return the exit code of a rank as a shell has it."""
    return 128 + rank.signum if rank.signum else rank.code or 0


class Notices:
    """Raises a host's events."""

    def __init__(self, host: LocalHost) -> None:
        self._host = host
        self._asked: set[int] = set()
        host.at_rank_end.append(self._rank_ended)
        host.at_job_end.append(self._job_ended)

    def add(self, wanted: Iterable[int]) -> None:
        """Somebody wants to hear of these codes."""
        self._asked.update(wanted)

    def remove(self, unwanted: Iterable[int]) -> None:
        """Nobody wants to hear of these codes any more."""
        self._asked.difference_update(unwanted)

    def job_started(self, job: RunningJob) -> None:
        """All ranks of a spawned job have been started."""
        for code in (EventCode.EVENT_JOB_START, EventCode.LAUNCH_COMPLETE):
            if job.terms.tell_job or code in self._asked:
                self._raise(code, _whole(job), ())

    def _rank_ended(self, job: RunningJob, rank: Rank) -> None:
        failed = bool(rank.blame) or (rank.excused and bool(rank.signum or rank.code))
        told = job.terms.tell_ranks or (job.terms.tell_failures and failed)
        status = status_of(rank)
        details = (attrs.EXIT_CODE(exit_code_of(rank)), attrs.PROC_TERM_STATUS(status))
        if failed:
            self._raise(EventCode.ERR_PROC_ABORTED, rank.proc, details)
            if status in self._asked:
                self._raise(status, rank.proc, details)
        for code in ENDS:
            if told or code in self._asked:
                self._raise(code, rank.proc, details, cached=told or failed)

    def _job_ended(self, job: RunningJob) -> None:
        outcome = job.outcome or job.partial
        code = outcome.code if outcome is not None else 0
        terms = job.terms
        if job.unlaunched is not None or (terms.silent and not code):
            return
        if terms.tell_end or terms.tell_job or EventCode.EVENT_JOB_END in self._asked:
            details = (attrs.EXIT_CODE(code), attrs.JOB_TERM_STATUS(job_status(job, code)))
            self._raise(EventCode.EVENT_JOB_END, _whole(job), details)

    def _raise(self, code: int, affected: Proc, details: tuple[Info, ...], *, cached: bool = True) -> None:
        infos = (attrs.EVENT_AFFECTED_PROC(affected), *details, attrs.EVENT_NON_DEFAULT(True))
        if not cached:
            infos = (*infos, attrs.EVENT_DO_NOT_CACHE(True))
        self._host.notify(Notification(code, self._host.server.proc, Range.SESSION, infos))


def _whole(job: RunningJob) -> Proc:
    return Proc.unchecked(job.nspace, RANK_WILDCARD)


def job_status(job: RunningJob, code: int) -> int:
    """Return the status that says how a job has ended."""
    if not code:
        return Status.SUCCESS
    if code == TIMED_OUT and job.outcome is not None:
        return Status.ERR_TIMEOUT
    blamed = [rank for rank in job.ranks if rank.blame and exit_code_of(rank) == code]
    if not blamed:
        return Status.ERR_JOB_ABORTED
    if blamed[0].signum:
        return Status.ERR_JOB_ABORTED_BY_SIG
    return Status.ERR_JOB_NON_ZERO_TERM if blamed[0].code else Status.ERR_JOB_TERM_WO_SYNC


def _register(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, RegisterEvents)
    host.part(Notices).add(op.codes)
    upcall.reply()


def _deregister(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, DeregisterEvents)
    # One node's server says that its own clients do not want them any more, and those of others may.
    if len(host.nodes) == 1:
        host.part(Notices).remove(op.codes)
    upcall.reply()


def _notify(_host: LocalHost, upcall: Upcall) -> None:
    # The server has told its clients, and there is no other server that this host could tell.
    assert isinstance(upcall.op, NotifyEvent)
    upcall.reply()


ANSWERS: dict[type, Callable[[LocalHost, Upcall], None]] = {
    RegisterEvents: _register,
    DeregisterEvents: _deregister,
    NotifyEvent: _notify,
}
