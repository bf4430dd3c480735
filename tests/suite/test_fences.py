"""Every pairing: fences hold until all have come, for any set of procs, and end in time when somebody does not come."""

from __future__ import annotations

import signal

import pytest

from lib import promises
from pypmix import LostConnection, OperationTimeout, PMIxError


def test_nobody_leaves_early(run):
    assert run("fences.nobody_leaves_early", ranks=3, rounds=6) == [6] * 3


def test_the_job_by_any_name(run):
    assert run("fences.named_members", ranks=3) == [True] * 3


@pytest.mark.needs("fences of some procs of several nodes")
def test_a_subset(run):
    run.keeps("fence: some procs")


def test_a_limit_of_years_is_a_limit(run):
    assert run("fences.any_limit", ranks=3) == [[0, 1, 2]] * 3


def test_alone(run):
    assert run("fences.alone", ranks=2) == [True] * 2


@pytest.mark.timing
def test_someone_never_comes(run):
    first, _ = run("fences.someone_never_comes", ranks=2, timeout=1)
    error, seconds = first
    assert isinstance(error, OperationTimeout)
    assert "fence" in str(error) and "rounded" not in str(error)
    assert 0.8 < seconds < 5


def test_an_error_says_that_its_limit_was_rounded_up(run):
    first, _ = run("fences.someone_never_comes", ranks=2, timeout=0.2)
    assert isinstance(first[0], OperationTimeout)
    assert "the limit of 0.2 s was rounded up to 1 s" in str(first[0])


@pytest.mark.needs("every rank is told of a failed fence")
def test_someone_never_comes_and_everyone_is_told(run):
    run.keeps("every rank is told of a failed fence", ranks=3)


@pytest.mark.needs("the missing are named")
def test_the_missing_are_named(run):
    error, _ = run("fences.someone_never_comes", ranks=2, timeout=1)[0]
    assert {proc.rank for proc in error.missing} == {1}


@pytest.mark.needs("fence again after a timeout")
def test_a_fence_after_one_that_timed_out(run):
    first, _ = run("fences.after_a_timeout", ranks=2)
    assert isinstance(first[0], OperationTimeout)


def _ends_at_once(job):
    """The others' fence ends at once and not as a success, or the host has ended them before they could tell."""
    assert not job.hung, job.report()
    assert job.exit_code != 0, job.report()
    told = job.told()
    if "outcome-0" in told:
        assert told["outcome-0"] == "PartialSuccess", job.report()


@pytest.mark.needs("a rank that leaves without finalize is missed")
def test_someone_exits_without_finalize(run):
    _ends_at_once(run.job("fences.someone_leaves", ranks=2, how="exit"))


def test_someone_is_killed(run):
    _ends_at_once(run.job("fences.someone_leaves", ranks=2, how="kill"))


@pytest.mark.servers(*promises.PROVEN_ON)
@pytest.mark.forms("sync")
def test_the_others_go_on_without_a_rank_that_is_killed(run):
    run.keeps("a job goes on")


@pytest.mark.servers(*promises.PROVEN_ON)
@pytest.mark.needs("every rank is told of a failed fence")
@pytest.mark.forms("sync")
def test_a_rank_that_is_killed_before_it_comes(run):
    run.keeps("fence: a member dies")


@pytest.mark.timing
@pytest.mark.servers("python-server", "prterun*")
def test_a_server_that_dies(run):
    """Every operation on a lost server fails promptly and says so; closing is quiet."""
    job = run.start("fences.server_dies", ranks=2, leaves_files=True)
    for rank in range(2):
        job.hear(f"ready-{rank}")
    job.send_signal(signal.SIGKILL)
    job.tell("server is dead")
    job.wait()
    assert not job.wait_gone(10), job.report()
    outcomes = {rank: left.result for rank, left in job.ranks.items()}
    assert sorted(outcomes) == [0, 1], job.report()
    for rank, (waiting, fence, commit, get, _) in outcomes.items():
        for name, (error, seconds) in {"fence": fence, "commit": commit, "get": get}.items():
            assert isinstance(error, PMIxError), (rank, name)
            assert seconds < 3, (rank, name)
        if rank == 0:
            assert isinstance(waiting[0], LostConnection)
            assert isinstance(fence[0], LostConnection)
