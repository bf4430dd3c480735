"""Errors say the operation, the procs, the status, the engine, who is missing and what to try."""

from __future__ import annotations

import pickle

import pytest

from pypmix import ConstructAborted, EventCode, LostConnection, NotFound, OperationTimeout, PMIxError, Proc, Status
from pypmix.standard import errors

pytestmark = pytest.mark.timeout(60)


def test_the_text_carries_everything() -> None:
    error = OperationTimeout(
        "not all came within 5 s",
        operation="fence",
        procs=[Proc("job", 0), Proc("job", 1)],
        engine="python 5.0.11",
        missing=[Proc("job", 1)],
        hint="look at rank 1",
    )
    assert str(error) == (
        "fence of job:0, job:1: not all came within 5 s [ERR_TIMEOUT -24, engine python 5.0.11]"
        "; still missing: job:1; look at rank 1"
    )
    assert error.status is Status.ERR_TIMEOUT


def test_many_procs_are_counted_not_listed() -> None:
    text = str(PMIxError("x", operation="fence", procs=[Proc("job", rank) for rank in range(1000)]))
    assert "and 996 more" in text
    assert len(text) < 200


@pytest.mark.parametrize("kind", [kind for kind in vars(errors).values() if isinstance(kind, type)
                                  and issubclass(kind, PMIxError)])  # fmt: skip
def test_every_kind_shows_its_text_and_survives_pickling(kind: type[PMIxError]) -> None:
    error = kind("it broke", operation="get", hint="try this", missing=[Proc("a", 1)])
    text = str(error)
    assert "it broke" in text
    assert "try this" in text
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (str(again), again.missing, again.code) == (text, error.missing, error.code)


def test_statuses_map_to_kinds_and_builtins() -> None:
    assert errors.error_for(-46) is NotFound
    assert errors.error_for(-9999) is PMIxError
    assert issubclass(OperationTimeout, TimeoutError)
    assert issubclass(LostConnection, ConnectionError)
    assert issubclass(NotFound, LookupError)


def test_an_unknown_status_is_shown_not_fatal() -> None:
    assert "-12345" in str(PMIxError("odd", status=-12345))


def test_the_constants_are_those_of_the_vocabulary() -> None:
    for name, code in vars(errors).items():
        if isinstance(code, int) and name.isupper() and name != "TYPE_CHECKING":
            assert (EventCode if name.startswith("GROUP_") else Status)[name] == code, name


def test_a_status_that_is_an_event_too_is_named() -> None:
    assert "[GROUP_CONSTRUCT_ABORT -165" in str(ConstructAborted("nobody came"))
    assert "[GROUP_LEADER_FAILED -168" in str(PMIxError("gone", status=EventCode.GROUP_LEADER_FAILED))
    assert "[UNKNOWN_N12345 -12345" in str(PMIxError("odd", status=-12345))
