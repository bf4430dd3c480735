"""Every pairing: what ranks ask of their host is done: log, signals, monitors, credentials."""

from __future__ import annotations

import pytest

from pypmix import NotSupported, PermissionDenied, PMIxError, Unreachable
from pypmix.types import DeviceDistance


@pytest.mark.parametrize("to", ["stderr", "stdout"])
def test_log(run, to):
    job = run.job("control.logged", to=to)
    assert job.returned() == ["done"] * 2
    assert "acme says hello" in (job.stderr if to == "stderr" else job.stdout), job.report()


def test_every_rank_logs(run):
    job = run.job("control.logged_by_all", ranks=3)
    assert job.returned() == ["done"] * 3
    for rank in range(3):
        assert f"acme hears rank {rank}" in job.stderr, job.report()


@pytest.mark.needs("signals by job control", "targets of job control")
def test_a_signal_for_one(run):
    run.keeps("targets of job control", ranks=3)


@pytest.mark.needs("signals by job control")
def test_a_signal_for_all(run):
    run.keeps("signals by job control", ranks=3)


@pytest.mark.needs("termination by job control")
def test_termination(run):
    assert run("control.terminated") == [None, True]


@pytest.mark.needs("killing by job control")
def test_killing(run):
    job = run.job("control.killed", leaves_files=True)
    assert 1 not in job.ranks, job.report()
    # Whether that is a failure of the job is for the launcher to say.
    assert job.exit_code != 0 or job.ranks[0].result is True, job.report()


@pytest.mark.needs("pausing by job control")
def test_pause_and_resume(run):
    assert run("control.paused") == [(True, True), "went on"]


@pytest.mark.needs("unknown targets are refused")
def test_targets_that_nobody_knows(run):
    assert all(isinstance(error, PMIxError) for error in run("control.unknown_targets"))


@pytest.mark.needs("registered cleanup")
def test_what_is_left_is_removed_when_the_job_has_ended(run):
    job = run.job("control.cleaned", ranks=2)
    assert job.returned() == [True] * 2
    folder = job.results.parent / "left"
    assert sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir()) == ["kept"]


@pytest.mark.forms("sync")
@pytest.mark.needs("heartbeat monitors")
def test_a_heart_that_stops(run):
    _, (quiet, arrived, first) = run("control.alarmed")
    assert quiet is None
    assert arrived == ("MONITOR_HEARTBEAT_ALERT", first)


@pytest.mark.forms("sync")
@pytest.mark.needs("heartbeat monitors", "alarms reach who has asked for them")
def test_who_stops_hears_of_it_too(run):
    (quiet, arrived, first), _ = run("control.alarmed")
    assert quiet is None
    assert arrived == ("MONITOR_HEARTBEAT_ALERT", first)


@pytest.mark.forms("sync")
@pytest.mark.needs("file monitors")
def test_a_file_that_stops_growing(run, tmp_path):
    _, seen = run("control.watched", path=str(tmp_path / "watched"))
    assert seen == (None, "MONITOR_FILE_ALERT")


@pytest.mark.forms("sync")
@pytest.mark.needs("file monitors", "alarms reach who has asked for them")
def test_who_watches_a_file_hears_of_it_too(run, tmp_path):
    seen, _ = run("control.watched", path=str(tmp_path / "watched"))
    assert seen == (None, "MONITOR_FILE_ALERT")


@pytest.mark.forms("sync")
@pytest.mark.needs("monitors are cancelled")
def test_monitors_that_were_cancelled(run, tmp_path):
    assert run("control.cancelled", path=str(tmp_path / "watched")) == [None] * 2


@pytest.mark.needs("credentials")
def test_credentials(run):
    (first, user), (second, _) = run("control.credentials")
    uid, gid, forged, nonsense = second
    assert first == (uid, gid) == user
    assert isinstance(forged, PermissionDenied)
    assert isinstance(nonsense, PermissionDenied)


@pytest.mark.servers("python-server", "prterun-5.*", "mpirun-*")
def test_what_a_host_of_one_node_does_not_offer(run):
    for seen in run("control.not_offered"):
        assert {name: type(error) for name, error in seen.items()} == dict.fromkeys(seen, NotSupported)


def test_distances(run):
    for seen in run("control.distances"):
        assert isinstance(seen, NotSupported) or all(isinstance(device, DeviceDistance) for device in seen)


def test_mistakes_are_errors_at_the_call(run):
    kinds = {
        "nothing to log": "ValueError",
        "no channel": "ValueError",
        "text with NUL": "ValueError",
        "no signal": "ValueError",
        "nobody": "TypeError",
        "nspace for procs": "TypeError",
        "no period": "ValueError",
        "nothing to watch": "ValueError",
        "no directive": "ValueError",
        "no credential": "TypeError",
    }
    assert run("control.refused") == [kinds] * 2


def test_a_lone_process_has_no_host(alone):
    seen = alone("control.lonely")
    assert {name: type(error) for name, error in seen.items()} == dict.fromkeys(seen, Unreachable)
