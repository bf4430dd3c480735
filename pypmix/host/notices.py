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

RAISED = frozenset(
    (
        *ENDS,
        EventCode.ERR_PROC_ABORTED,
        Status.ERR_PROC_ABORTED_BY_SIG,
        Status.ERR_EXIT_NONZERO_TERM,
        Status.ERR_PROC_TERM_WO_SYNC,
        EventCode.EVENT_JOB_START,
        EventCode.LAUNCH_COMPLETE,
        EventCode.EVENT_JOB_END,
    )
)
"""All codes of these events."""

OF_JOB: dict[int, int] = {
    Status.ERR_PROC_ABORTED_BY_SIG: Status.ERR_JOB_ABORTED_BY_SIG,
    Status.ERR_EXIT_NONZERO_TERM: Status.ERR_JOB_NON_ZERO_TERM,
    Status.ERR_PROC_TERM_WO_SYNC: Status.ERR_JOB_TERM_WO_SYNC,
}
"""How a job has ended that ended as one of its procs did."""


def proc_status(signum: int, code: int, unsynced: bool) -> int:
    """Return the status that says how a process has ended.

    Args:
        signum: The signal that ended it; 0 for none.
        code: What it exited with.
        unsynced: Whether it was a client that had not finalized.
    """
    if signum:
        return Status.ERR_PROC_ABORTED_BY_SIG
    if code:
        return Status.ERR_EXIT_NONZERO_TERM
    return Status.ERR_PROC_TERM_WO_SYNC if unsynced else Status.SUCCESS


def status_of(rank: Rank) -> int:
    """Return the status that says how a rank has ended."""
    return proc_status(rank.signum, rank.code or 0, bool(rank.blame))


def exit_code_of(rank: Rank) -> int:
    """Return the exit code of a rank as a shell has it."""
    return 128 + rank.signum if rank.signum else rank.code or 0


class Notices:
    """Raises the events of a host.

    Args:
        source: Returns the server's own proc.
        notify: Raises an event for all of the session.
        asked: Keeps the codes that somebody wants to hear of.
    """

    def __init__(
        self, source: Callable[[], Proc], notify: Callable[[Notification], None], asked: set[int] | None = None
    ) -> None:
        self._source = source
        self._notify = notify
        self.asked: set[int] = set() if asked is None else asked

    def add(self, wanted: Iterable[int]) -> None:
        """Somebody wants to hear of these codes; those that are not raised here are not kept.

        A server of libpmix does not tell: with one, all are wanted.
        """
        self.asked.update(RAISED.intersection(wanted))

    def remove(self, unwanted: Iterable[int]) -> None:
        """Nobody wants to hear of these codes any more."""
        self.asked.difference_update(unwanted)

    def started(self, nspace: str, told: bool) -> None:
        """All ranks of a spawned job have been started.

        Args:
            nspace: The job.
            told: Whether somebody hears of it in any case.
        """
        for code in (EventCode.EVENT_JOB_START, EventCode.LAUNCH_COMPLETE):
            if told or code in self.asked:
                self._raise(code, Proc.unchecked(nspace, RANK_WILDCARD), ())

    def rank_ended(self, proc: Proc, code: int, status: int, failed: bool, told: bool) -> None:
        """A rank has ended.

        Args:
            proc: The rank.
            code: Its exit code as a shell has it.
            status: How it ended; see `proc_status`.
            failed: Whether that is a failure, which is told in any case.
            told: Whether somebody hears of its end in any case.
        """
        details = (attrs.EXIT_CODE(code), attrs.PROC_TERM_STATUS(status))
        if failed:
            self._raise(EventCode.ERR_PROC_ABORTED, proc, details)
            if status in self.asked:
                self._raise(status, proc, details)
        for end in ENDS:
            if told or end in self.asked:
                self._raise(end, proc, details, cached=told or failed)

    def job_ended(self, nspace: str, code: int, status: int, told: bool) -> None:
        """A job has ended.

        Args:
            nspace: The job.
            code: Its exit code.
            status: How it ended.
            told: Whether somebody hears of it in any case.
        """
        if told or EventCode.EVENT_JOB_END in self.asked:
            details = (attrs.EXIT_CODE(code), attrs.JOB_TERM_STATUS(status))
            self._raise(EventCode.EVENT_JOB_END, Proc.unchecked(nspace, RANK_WILDCARD), details)

    def _raise(self, code: int, affected: Proc, details: tuple[Info, ...], *, cached: bool = True) -> None:
        infos = (attrs.EVENT_AFFECTED_PROC(affected), *details, attrs.EVENT_NON_DEFAULT(True))
        if not cached:
            infos = (*infos, attrs.EVENT_DO_NOT_CACHE(True))
        self._notify(Notification(code, self._source(), Range.SESSION, infos))


class LocalNotices(Notices):
    """Those of a `LocalHost`, as the terms of its jobs say."""

    def __init__(self, host: LocalHost) -> None:
        super().__init__(lambda: host.server.proc, host.notify)
        if host.native:
            self.add(RAISED)
        host.at_rank_end.append(self._rank_ended)
        host.at_job_end.append(self._job_ended)

    def job_started(self, job: RunningJob) -> None:
        """All ranks of a spawned job have been started."""
        self.started(job.nspace, job.terms.tell_job)

    def _rank_ended(self, job: RunningJob, rank: Rank) -> None:
        failed = bool(rank.blame) or (rank.excused and bool(rank.signum or rank.code))
        told = job.terms.tell_ranks or (job.terms.tell_failures and failed)
        self.rank_ended(rank.proc, exit_code_of(rank), status_of(rank), failed, told)

    def _job_ended(self, job: RunningJob) -> None:
        outcome = job.outcome or job.partial
        code = outcome.code if outcome is not None else 0
        terms = job.terms
        if job.unlaunched is None and (code or not terms.silent):
            self.job_ended(job.nspace, code, job_status(job, code), terms.tell_end or terms.tell_job)


def job_status(job: RunningJob, code: int) -> int:
    """Return the status that says how a job has ended."""
    if not code:
        return Status.SUCCESS
    if code == TIMED_OUT and job.outcome is not None:
        return Status.ERR_TIMEOUT
    blamed = [rank for rank in job.ranks if rank.blame and exit_code_of(rank) == code]
    return OF_JOB[status_of(blamed[0])] if blamed else Status.ERR_JOB_ABORTED


def _register(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, RegisterEvents)
    host.part(LocalNotices).add(op.codes)
    upcall.reply()


def _deregister(host: LocalHost, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, DeregisterEvents)
    # One node's server says that its own clients do not want them any more, and those of others may.
    if len(host.nodes) == 1:
        host.part(LocalNotices).remove(op.codes)
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
