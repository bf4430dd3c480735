"""What a pairing of a server and a client lacks, and failures that are expected: each names what must be observed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from pypmix import LostConnection, PartialSuccess, PMIxError

if TYPE_CHECKING:
    from lib.job import Job


CONSEQUENCES = (PartialSuccess, LostConnection)
"""What ranks of a job may raise because another one has raised what was expected, and has left."""


class Error(NamedTuple):
    """An error that must be observed.

    Args:
        raises: Its class.
        match: A regular expression that its text contains.
        status: Its status, of a PMIx error.
    """

    raises: type[BaseException]
    match: str = ""
    status: int | None = None

    def __str__(self) -> str:
        parts = [self.raises.__name__]
        if self.status is not None:
            parts.append(f"with status {self.status}")
        if self.match:
            parts.append(f"with a text that matches {self.match!r}")
        return " ".join(parts)

    @property
    def is_vague(self) -> bool:
        """Whether a mistake of our own would be taken for it: a class that anything may raise, without more."""
        anything = self.raises.__module__ == "builtins" or self.raises is PMIxError
        return anything and not self.match and self.status is None

    def fits(self, error: BaseException) -> bool:
        """Return True if an error is the one that must be observed."""
        status = int(error.code) if isinstance(error, PMIxError) else None
        return (
            isinstance(error, self.raises)
            and (self.status is None or status == self.status)
            and (not self.match or re.search(self.match, str(error)) is not None)
        )


class Outcome(NamedTuple):
    """An outcome of a job that must be observed.

    Args:
        fact: What it is, for a person.
        holds: A predicate of the job; what it raises counts as False.
        hangs: Whether the job hangs; None if it may.
    """

    fact: str
    holds: Callable[[Job], object]
    hangs: bool | None = False

    def __str__(self) -> str:
        return self.fact


def returned(fact: str, holds: Callable[[list[Any]], object]) -> Outcome:
    """Return the outcome that no rank raised an error, and that what they returned fulfils a predicate.

    Args:
        fact: What it is, for a person.
        holds: A predicate of the list of what the ranks returned, in their order.
    """
    return Outcome(fact, lambda job: holds(job.values()))


def each_returned(value: object) -> Outcome:
    """Return the outcome that every rank returned this value."""
    return returned(f"every rank returns {value!r}", lambda found: bool(found) and all(each == value for each in found))


def others_get(*names: str) -> Outcome:
    """Return the outcome that all ranks but rank 1, which ends, get errors of these classes: the first of a result."""
    return Outcome(
        f"the others get {' or '.join(names)}",
        lambda job: {rank.result[0] for number, rank in job.ranks.items() if number != 1} <= {*names},
    )


class Lack(NamedTuple):
    """A feature that pairings lack, and where that is proven.

    A test that needs the feature does not run on these pairings. One of them, the probe, does, once for each server:
    it must fail with what is expected. A row without a probe is proven elsewhere.

    Args:
        feature: What is lacking, as tests name it by `pytest.mark.needs` or `pytest.mark.promise`.
        server: A pattern of servers.
        client: A pattern of clients.
        reason: Why.
        expect: What must be observed.
        probe: The test that shows it, such as `test_fences.test_alone`.
        proof: What proves a row that has no probe: the unit test of a refusal by our own engine, a test of what is
            different there, or the section of a page with the trace.
        harm: Trying it does harm: a crash, a hang, or an outcome that varies, of which `proof` has a trace.
    """

    feature: str
    server: str
    client: str
    reason: str
    expect: Error | Outcome | None = None
    probe: str = ""
    proof: str = ""
    harm: bool = False

    def judge(self, error: BaseException | None, job: Job | None) -> str:
        """Return what differs from what is expected; empty if nothing does.

        Args:
            error: What the probe raised; None if it passed.
            job: The last job that it ran; None if there was none.
        """
        assert self.expect is not None
        wanted = f"{self.feature!r} is declared as lacking ({self.reason}), to be seen by: {self.expect}"
        if error is None:
            return f"{wanted}; but the test passes: remove the row"
        if job is None:
            return f"{wanted}; but no job ran"
        hangs = self.expect.hangs if isinstance(self.expect, Outcome) else False
        if hangs is not None and hangs != bool(job.hung):
            return f"{wanted}; but the job {'hung' if job.hung else 'ended'}"
        if isinstance(self.expect, Outcome):
            try:
                if self.expect.holds(job):
                    return ""
            except Exception as wrong:
                return f"{wanted}; but what is to be seen is not there: {wrong!r}"
            return f"{wanted}; but that is not seen"
        errors = job.failures
        others = [each for each in errors if not self.expect.fits(each)]
        if len(others) < len(errors) and all(isinstance(each, CONSEQUENCES) for each in others):
            return ""
        return f"{wanted}; but the ranks raised {[str(each) for each in errors]}"


def raised(error: BaseException) -> Sequence[BaseException]:
    """Return what an error stands for: the errors of the ranks of a job that failed, or the error itself."""
    return getattr(error, "errors", None) or (error,)


class expected_failure(contextlib.ContextDecorator):
    """Assert that something fails, and how: a success fails the test, and so does any other failure.

    It takes the place of the marker `xfail`, around the lines that fail or as a decorator of a test. A job fails with
    the errors of its ranks: one of them at least raises the error, and none another one. A job that hangs or is killed
    fails otherwise.

    Example:
        ```python
        def test_signals(run):
            with expected_failure("its server knows no signals", raises=NotSupported, status=-47):
                run("control.signals")
        ```

    Args:
        reason: Why it fails.
        raises: The class of the error.
        match: A regular expression that its text contains.
        status: Its status, of a PMIx error.

    Raises:
        ValueError: Any mistake would be taken for it: `raises` is a built-in class, and nothing else is given.
    """

    def __init__(self, reason: str, *, raises: type[BaseException], match: str = "", status: int | None = None) -> None:
        self._reason = reason
        self._expected = Error(raises, match, status)
        if self._expected.is_vague:
            raise ValueError(f"{raises.__name__} alone says nothing of the failure: give `match` or `status`, too")

    def __enter__(self) -> None:
        pass

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        if error is None:
            raise AssertionError(f"this succeeds, and {self._expected} was expected: {self._reason}")
        if not isinstance(error, Exception):
            return False
        if not all(map(self._expected.fits, raised(error))):
            raise AssertionError(f"{self._expected} was expected ({self._reason}), not this:\n{error}") from error
        return True
