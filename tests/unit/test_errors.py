"""Errors say the operation, the procs, the status, the engine, who is missing and what to try."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest

from pypmix import (
    ConstructAborted,
    EventCode,
    LostConnection,
    NotFound,
    OperationTimeout,
    OutOfResources,
    PMIxError,
    Proc,
    Rank,
    ResourceBusy,
    Status,
)
from pypmix.arguments import explain_rounding, seconds
from pypmix.standard import codes, errors
from pypmix.standard.ops import Fence
from pypmix.standard.types import Value

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
        "fence of job:0-1: not all came within 5 s [ERR_TIMEOUT -24, engine python 5.0.11]"
        "; still missing: job:1; look at rank 1"
    )
    assert error.status is Status.ERR_TIMEOUT


def test_many_procs_are_counted_not_listed() -> None:
    text = str(PMIxError("x", operation="fence", procs=[Proc("job", rank) for rank in range(0, 1000, 2)]))
    assert "and 484 more" in text
    assert len(text) < 200


def test_ranks_of_the_callers_job_have_no_nspace() -> None:
    mine = [Proc("job", 1), Proc("job", 4), Proc("job", 3)]
    error = PMIxError("x", operation="fence", procs=mine, missing=mine[:1], job="job")
    assert str(error) == "fence of ranks 1, 3 to 4: x [ERROR -1]; still missing: rank 1"
    error.procs = (*mine, Proc("other", 0))
    assert str(error).startswith("fence of job:1,3-4, other:0: x")
    error.procs = (Proc("job", Rank.WILDCARD),)
    assert str(error).startswith("fence of all ranks of this job: x")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        (
            OutOfResources,
            [
                Status.ERR_OUT_OF_RESOURCE,
                Status.ERR_NOMEM,
                Status.ERR_JOB_INSUFFICIENT_RESOURCES,
                Status.ERR_SYS_LIMITS_PIPES,
                Status.ERR_SYS_LIMITS_CHILDREN,
                Status.ERR_SYS_LIMITS_FILES,
            ],
        ),
        (ResourceBusy, [Status.ERR_RESOURCE_BUSY]),
    ],
)
def test_a_status_that_a_program_acts_on_has_a_class(kind: type[PMIxError], statuses: list[Status]) -> None:
    assert [errors.error_for(status) for status in statuses] == [kind] * len(statuses)
    assert kind.default_status == statuses[0]


def test_the_reference_lists_the_statuses_of_each_class() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/reference/errors.md").read_text()
    listed = {
        (status, kind)
        for kind, cell in re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)
        for status in re.findall(r"`PMIX_(\w+)`", cell)
    }
    names = {EventCode(code).name if Status(code).name.startswith("UNKNOWN") else Status(code).name: kind.__name__
             for code, kind in errors.BY_STATUS.items()}  # fmt: skip
    assert listed == set(names.items())


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


def test_a_limit_that_was_rounded_up_is_explained() -> None:
    error = OperationTimeout("no answer", hint="is it alive?")
    explain_rounding(error, Fence(directives=(seconds(0.2),)))
    assert str(error).endswith("; is it alive?; the limit of 0.2 s was rounded up to 1 s: PMIx counts whole seconds")


@pytest.mark.parametrize("limit", [1, 2.0])
def test_a_limit_of_whole_seconds_is_not_explained(limit: float) -> None:
    error = OperationTimeout("no answer")
    explain_rounding(error, Fence(directives=(seconds(limit),)))
    assert error.hint == ""


def test_the_limit_of_a_call_is_an_int_of_seconds() -> None:
    limits = [seconds(limit).value for limit in (0.2, 1.5, 2.0, 3)]
    assert limits == [Value(codes.INT, number) for number in (1, 2, 2, 3)]
    assert pickle.loads(pickle.dumps(limits)) == limits
