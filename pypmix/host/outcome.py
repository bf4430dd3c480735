"""The outcome of a job: a number for the shell and words for a person."""

from __future__ import annotations

import time

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pypmix.engine.common import Pending
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Proc

TIMED_OUT = 124
"""The exit code of a job that ran out of time, as that of timeout(1)."""

CANNOT_EXECUTE = 126
NOT_FOUND = 127

SHOWN = 16
"""The number of procs that a message names; of further ones it gives the number."""


class Outcome(Record):
    """The end of a job.

    Args:
        code: The exit code: 0 if all ranks exited with 0, otherwise the code of the rank or cause that ended the
            job, and 128 + n for signal n.
        reason: The reason if the job was ended early; else empty.
        is_reported: Whether the launcher printed the reason while the job ran.

    Example:
        >>> outcome = LocalHost([Application(("false",))], timeout=60).run()
        >>> outcome.code, bool(outcome.reason)
        (1, True)
    """

    code: int
    reason: str = ""
    is_reported: bool = False


class JobsOutcome:
    """The outcome of several jobs, of which the first failure that counts decides.

    Attributes:
        decided: The failure that ends the jobs, or the reason for which they are ended; None for none.
    """

    def __init__(self) -> None:
        self.decided: Outcome | None = None
        self._partial: Outcome | None = None

    @property
    def final(self) -> Outcome:
        """The outcome, once all jobs are finished."""
        return self.decided or self._partial or Outcome(0)

    def decide(self, code: int, reason: str) -> None:
        """Record the reason for which all jobs are ended, unless a failure has been recorded."""
        self.decided = self.decided or Outcome(code, reason)

    def add_failed(self, job: RunningJob) -> None:
        """Record the outcome of a job that has failed; a spawned job that could not be started does not count."""
        if self.decided is None and job.terms.counted and not (job.job.parent is not None and job.unlaunched):
            self.decided = job.outcome

    def add_finished(self, job: RunningJob) -> None:
        """Record the failures of a job that were not to end it."""
        if self._partial is None and job.terms.counted:
            self._partial = job.partial

    def correct(self, former: Outcome, outcome: Outcome) -> None:
        """Replace an outcome: the request that ended a job arrived after the end of the rank that sent it."""
        if self.decided is former:
            self.decided = outcome


def exit_code(status: int) -> int:
    """Return the exit code of an abort with a status: its low byte, and never 0, since an abort is not a success."""
    return status & 0xFF or 1


def signal_text(signum: int) -> str:
    """Return a signal in the usual form, `signal 11 (SIGSEGV)`."""
    # Not at the top: a fork server, each page of which costs its ranks time, does not use it, nor the next one.
    import signal

    try:
        return f"signal {signum} ({signal.Signals(signum).name})"
    except ValueError:
        return f"signal {signum}"


def listed(items: Sequence[str]) -> str:
    """Return items as a list in a sentence, shortened."""
    more = len(items) - SHOWN
    return ", ".join(items[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def pending_text(pending: Sequence[Pending], name_of: Callable[[Proc], str], job: str = "") -> list[str]:
    """Return one line for each collective or request that has not ended: the missing procs, and since when.

    Args:
        pending: The operations.
        name_of: Returns the name of a proc for a person.
        job: The nspace of the only job that the reader has, which need not be named; empty if there are several.
    """
    from pypmix.standard.logtext import printable

    now = time.monotonic()
    lines: list[str] = []
    for item in pending:
        operation = printable(item.operation)
        label = item.label.replace(f"procs of {job}", "ranks") if job else item.label
        name = operation + (f" {printable(label)}" if label else "")
        missing = listed([name_of(proc) for proc in item.missing])
        asking = listed([name_of(proc) for proc in item.arrived])
        if not item.missing:
            line = f"{operation}: {asking} has waited {now - item.since:.1f} s for the host's answer"
        elif item.operation == "get":
            line = f"{name}: {asking} has waited {now - item.since:.1f} s for {missing}"
        else:
            arrived, size = len(item.arrived), len(item.arrived) + len(item.missing)
            line = f"{name}: {arrived} of {size} arrived, first {now - item.since:.1f} s ago; missing: {missing}"
        lines.append(line)
    return lines
