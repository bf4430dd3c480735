"""Failures that are expected: `lib.lack.expected_failure`."""

from __future__ import annotations

import pytest

from lib.job import JobFailed
from lib.lack import expected_failure
from pypmix import NotFound, NotSupported, PMIxError
from pypmix.standard import statuses


def refused() -> PMIxError:
    return NotSupported("its server refuses")


def test_the_expected_failure_is_no_failure() -> None:
    with expected_failure("it cannot", raises=NotSupported, match="refuses", status=statuses.ERR_NOT_SUPPORTED):
        raise refused()


def test_a_decorated_test_keeps_its_arguments() -> None:
    @expected_failure("it cannot", raises=NotSupported)
    def refusing(text: str) -> None:
        raise NotSupported(text)

    refusing("no")


def test_a_success_fails() -> None:
    with (
        pytest.raises(AssertionError, match="this succeeds, and NotSupported was expected: it cannot"),
        expected_failure("it cannot", raises=NotSupported),
    ):
        pass


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (RuntimeError("sabotage"), {"raises": NotSupported}),
        (NotFound("get"), {"raises": NotSupported}),
        (refused(), {"raises": NotSupported, "match": "another text"}),
        (refused(), {"raises": PMIxError, "status": statuses.ERR_TIMEOUT}),
        (JobFailed("it hung"), {"raises": NotSupported}),
        (JobFailed("ranks differ", [refused(), RuntimeError("sabotage")]), {"raises": NotSupported}),
        (AssertionError("2 == 3"), {"raises": AssertionError, "match": "1 == 2"}),
    ],
)
def test_another_failure_fails(error: BaseException, expected: dict[str, object]) -> None:
    with (
        pytest.raises(AssertionError, match="was expected .it cannot., not this") as caught,
        expected_failure("it cannot", **expected),  # type: ignore[arg-type]
    ):
        raise error
    assert caught.value.__cause__ is error


def test_a_job_fails_with_the_errors_of_its_ranks() -> None:
    with expected_failure("it cannot", raises=NotSupported):
        raise JobFailed("a report", [refused(), refused()])


@pytest.mark.parametrize(
    "vague", [Exception, AssertionError, RuntimeError, TypeError, PMIxError, pytest.fail.Exception]
)
def test_a_class_that_anything_raises_is_no_expectation(vague: type[BaseException]) -> None:
    with pytest.raises(ValueError, match="alone says nothing of the failure"):
        expected_failure("it cannot", raises=vague)


def test_a_skip_remains_a_skip() -> None:
    with pytest.raises(pytest.skip.Exception), expected_failure("it cannot", raises=NotSupported):
        pytest.skip("this machine lacks something")
