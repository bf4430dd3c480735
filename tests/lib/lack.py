"""What a pairing of a server and a client lacks, and failures that are expected: each names what must be observed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

from pypmix import PMIxError


class Lack(NamedTuple):
    """A feature that pairings lack: patterns of server and client, the reason, and whether trying it does harm.

    Without harm the test must fail on these pairings, so that the table cannot become outdated unseen; with harm (a
    crash, a hang, an outcome that varies) it is skipped.
    """

    feature: str
    server: str
    client: str
    reason: str
    harm: bool = False


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


def raised(error: BaseException) -> Sequence[BaseException]:
    """Return what an error stands for: the errors of the ranks of a job that failed, or the error itself."""
    return getattr(error, "errors", None) or (error,)


class expected_failure(contextlib.ContextDecorator):
    """Assert that something fails, and how: a success fails the test, and so does any other failure.

    It takes the place of `pytest.mark.xfail`, around the lines that fail or as a decorator of a test. A job fails with
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
