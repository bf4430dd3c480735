"""Every pairing: abort, exit codes and deaths end the job with the code that they should, and leave nothing."""

from __future__ import annotations

import signal

import pytest


def test_abort(run):
    job = run.job("ending.abort", ranks=3, code=9, message="rank 0 had enough")
    assert not job.hung, job.report()
    assert job.exit_code == 9, job.report()
    assert not job.ranks, "no rank may outlive the abort"


@pytest.mark.needs("abort message")
def test_an_abort_shows_its_message(run):
    job = run.job("ending.abort", ranks=2, code=3, message="rank 0 had enough")
    assert "rank 0 had enough" in job.stderr + job.stdout, job.report()


def test_success(run):
    job = run.job("ending.exit_code", ranks=2, codes=[0, 0])
    assert job.exit_code == 0, job.report()


def test_exit_code(run):
    job = run.job("ending.exit_code", ranks=2, codes=[0, 5])
    assert not job.hung, job.report()
    assert job.exit_code == 5, job.report()


@pytest.mark.needs("the exit code of the rank that failed")
def test_an_unhandled_exception_ends_the_job(run):
    """The rank's own exit code says so; the others are not left in their fence."""
    job = run.job("ending.unhandled", ranks=2, abort_on_error=False)
    assert not job.hung, job.report()
    assert job.exit_code == 1, job.report()
    assert "rank 0 gave up" in job.stderr, job.report()


@pytest.mark.needs("abort and finalize at once")
def test_an_unhandled_exception_aborts_the_job_on_demand(run):
    job = run.job("ending.unhandled", ranks=2, abort_on_error=True)
    assert not job.hung, job.report()
    assert job.exit_code != 0, job.report()


@pytest.mark.needs("the exit code of the rank that failed")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM], ids=lambda number: number.name)
def test_a_rank_that_dies(run, number):
    job = run.job("ending.killed", ranks=3, number=int(number))
    assert not job.hung, job.report()
    assert job.exit_code == 128 + number, job.report()


@pytest.mark.servers("python-server")
def test_a_rank_that_dies_is_named(run):
    job = run.job("ending.killed", ranks=2, number=int(signal.SIGKILL))
    assert "rank 1" in job.stderr, job.report()
    assert "SIGKILL" in job.stderr or "Killed" in job.stderr or "signal 9" in job.stderr, job.report()
    assert "pid" in job.stderr, job.report()
