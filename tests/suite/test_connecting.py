"""Jobs connect, know each other's procs and data, and disconnect, on every pairing."""

from __future__ import annotations

import pytest

from pypmix import OperationTimeout, Unreachable


def test_within_a_job(run):
    assert run("connecting.within", ranks=4) == ["connected"] * 4


def test_some_procs_of_a_job(run):
    assert run("connecting.pair", ranks=3) == [0, 1, 2]


@pytest.mark.needs("an end after a connect that timed out")
def test_somebody_never_comes(run):
    error, _ = run("connecting.late", ranks=2)
    assert isinstance(error, OperationTimeout)
    if error.missing is not None:
        assert [proc.rank for proc in error.missing] == [1]


@pytest.mark.needs("the parent of a spawned job")
def test_a_job_and_one_that_it_spawned(run):
    assert run("connecting.across", ranks=2) == [(2, [0, 1])] * 2


def test_mistakes(run):
    expected = {"none": "ValueError", "empty": "ValueError", "string": "TypeError"}
    for found in run("connecting.refused", ranks=2):
        assert found.items() >= expected.items()
        assert found["unknown"] in ("refused", "timed out")
        if run.server.startswith("python-server"):
            assert found["others"] == "refused"


def test_a_lone_process(alone):
    assert isinstance(alone("connecting.lonely"), Unreachable)
