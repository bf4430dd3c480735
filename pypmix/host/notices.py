"""The events that a host raises: procs that end and fail, jobs that start and end; and the codes that clients want.

They are sent to all of the session: its jobs come from each other by spawns, which connect them, and tools are outside
of jobs. They are never sent to default handlers, since libraries treat each event there as a failure of their job.
A failure is raised in any case, since a client may register for it later.

By the Standard, the end of a proc that ends well is raised if its spawn requests it (`NOTIFY_PROC_TERMINATION`), and
other launchers do the same. In addition, clients that run pypmix receive it if they have registered for it: not
programs on libpmix, which react to the event in their own library, some while they finalize, and not through servers of
libpmix, which cannot distinguish the two.
"""

from __future__ import annotations

from pypmix.host.outcome import TIMED_OUT
from pypmix.host.rank import STARTED
from pypmix.standard import attrs, codes
from pypmix.standard.enums import EventCode, Range, Status
from pypmix.standard.ops import DeregisterEvents, Notification, NotifyEvent, RegisterEvents
from pypmix.standard.ops.events import OWN_CLIENTS
from pypmix.standard.types import RANK_WILDCARD, Info, Proc, Value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.engine.base import Upcall
    from pypmix.host.manager import Manager
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob

ENDS = (EventCode.PROC_TERMINATED, EventCode.EVENT_PROC_TERMINATED)
"""Two codes of the same event, an older and a newer one; each is raised if a client has registered for it."""

RAISED = frozenset(
    (
        *ENDS,
        EventCode.ERR_PROC_ABORTED,
        EventCode.ERR_PROC_RESTART,
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
"""The status of a job that has ended like one of its procs, by the status of the proc."""


def proc_status(rank: Rank) -> int:
    """Return the status of the end of a rank."""
    if rank.signum:
        return Status.ERR_PROC_ABORTED_BY_SIG
    if rank.code:
        return Status.ERR_EXIT_NONZERO_TERM
    return Status.ERR_PROC_TERM_WO_SYNC if rank.blame else Status.SUCCESS


def job_status(job: RunningJob, code: int) -> int:
    """Return the status of the end of a job."""
    if job.unlaunched is not None:
        return Status.ERR_JOB_FAILED_TO_LAUNCH
    if not code:
        return Status.SUCCESS
    if code == TIMED_OUT and job.outcome is not None:
        return Status.ERR_TIMEOUT
    culprit = job.judgement.culprit
    if culprit is None or (culprit.exit_code or 1) != code:
        return Status.ERR_JOB_ABORTED
    return OF_JOB[proc_status(culprit)]


class Notices:
    """Raises the events of a host, according to the terms of its jobs.

    Attributes:
        requested: The codes that clients want, limited to the codes that are raised here.
    """

    def __init__(self, host: Manager) -> None:
        self._host = host
        # A server of libpmix does not report the codes that its clients want.
        self.requested: set[int] = set(RAISED if host.native else ())
        host.at_rank_end.append(self._rank_ended)
        host.at_job_end.append(self._job_ended)
        self._replacements: set[Rank] = set()
        """The ranks that were started again and have not connected."""
        self._awaits_connections = False

    def add(self, event_codes: Iterable[int]) -> None:
        """Record that a client wants events of these codes."""
        self.requested.update(RAISED.intersection(event_codes))

    def remove(self, unwanted: Iterable[int]) -> None:
        """Record that the clients of a server no longer want events of these codes."""
        # Clients of the other nodes may.
        if len(self._host.nodes) == 1:
            self.requested.difference_update(unwanted)

    def job_started(self, job: RunningJob) -> None:
        """Raise the start of a spawned job, whose ranks have all been started."""
        for code in (EventCode.EVENT_JOB_START, EventCode.LAUNCH_COMPLETE):
            if job.terms.tell_job or code in self.requested:
                self._host.notify(self._event(code, Proc.unchecked(job.nspace, RANK_WILDCARD), ()))

    def await_replacement(self, rank: Rank) -> None:
        """Raise `ERR_PROC_RESTART` once a rank that is started again has connected: then others can wait for it."""
        if not self._awaits_connections:
            self._awaits_connections = True
            self._host.at_connection.append(self._connected)
        self._replacements.add(rank)

    def _connected(self, _job: RunningJob) -> None:
        # On an engine's thread.
        self._host.soon(self._report_replacements)

    def _report_replacements(self) -> None:
        for rank in [rank for rank in self._replacements if rank.stage != STARTED or rank.over]:
            self._replacements.discard(rank)
            if not rank.over:
                details = (attrs.REINCARNATION(rank.life),)
                self._spread(self._event(EventCode.ERR_PROC_RESTART, rank.proc, details, cached=False))

    def _rank_ended(self, job: RunningJob, rank: Rank) -> None:
        self._replacements.discard(rank)
        if rank.fate:
            # It is lost with its node, and each of the other servers raises that itself.
            return
        failed = bool(rank.blame) or (rank.excused and bool(rank.signum or rank.code))
        told = job.terms.tell_ranks or (job.terms.tell_failures and failed)
        status = proc_status(rank)
        details = (attrs.EXIT_CODE(rank.exit_code), attrs.PROC_TERM_STATUS(status))
        # A process that is started in its place, and those that connect later, would take it for a later failure.
        cached = not failed or rank.life >= job.terms.restarts
        if failed:
            self._spread(self._event(EventCode.ERR_PROC_ABORTED, rank.proc, details, cached=cached))
            if status in self.requested:
                self._spread(self._event(status, rank.proc, details, cached=cached))
        for end in ENDS:
            if told or (failed and end in self.requested):
                self._spread(self._event(end, rank.proc, details, cached=cached))
            elif end in self.requested and not self._host.native:
                own = Info(OWN_CLIENTS, Value(codes.BOOL, True))
                self._spread(self._event(end, rank.proc, (*details, own), cached=False))

    def _job_ended(self, job: RunningJob) -> None:
        outcome = job.final_outcome
        code = outcome.code if outcome is not None else 0
        terms = job.terms
        if job.unlaunched is None and (code or not terms.silent):
            self._tell_end(job.nspace, code, job_status(job, code), terms.tell_end or terms.tell_job)

    def _tell_end(self, nspace: str, code: int, status: int, required: bool) -> None:
        """Raise the end of a job, if `required` or if a client wants it."""
        if required or EventCode.EVENT_JOB_END in self.requested:
            details = (attrs.EXIT_CODE(code), attrs.JOB_TERM_STATUS(status))
            self._host.notify(self._event(EventCode.EVENT_JOB_END, Proc.unchecked(nspace, RANK_WILDCARD), details))

    def _spread(self, event: Notification) -> None:
        """Raise an event for all of the session."""
        self._host.notify(event)

    def _event(self, code: int, affected: Proc, details: tuple[Info, ...], *, cached: bool = True) -> Notification:
        infos = (attrs.EVENT_AFFECTED_PROC(affected), *details, attrs.EVENT_NON_DEFAULT(True))
        if not cached:
            infos = (*infos, attrs.EVENT_DO_NOT_CACHE(True))
        return Notification(code, self._host.server.proc, Range.SESSION, infos)


def _register(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, RegisterEvents)
    host.part(Notices).add(op.codes)
    upcall.reply()


def _deregister(host: Manager, upcall: Upcall) -> None:
    op = upcall.op
    assert isinstance(op, DeregisterEvents)
    host.part(Notices).remove(op.codes)
    upcall.reply()


def _notify(_host: Manager, upcall: Upcall) -> None:
    # The server has passed it to its clients, and this host has no other server to inform.
    assert isinstance(upcall.op, NotifyEvent)
    upcall.reply()


ANSWERS: dict[type, Callable[[Manager, Upcall], None]] = {
    RegisterEvents: _register,
    DeregisterEvents: _deregister,
    NotifyEvent: _notify,
}
