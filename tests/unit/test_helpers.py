"""What the tests stand on: the engine of each rank is asserted, and an interpreter is one by whatever path."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from lib import warm
from lib.job import Job
from lib.running import Jobs
from pypmix.extras.forking.servers import ForkServers


def ended_job(folder: Path, *ranks: tuple[str, ...]) -> Job:
    """Return a job whose ranks opened clients on these engines."""
    job = Job(["true"], folder)
    for rank, engines in enumerate(ranks):
        (job.results / f"{rank}.pickle").write_bytes(pickle.dumps((rank, engines, None, None, "")))
    return job


@pytest.mark.parametrize(
    ("client", "right", "wrong"),
    [
        ("python-client", ["python 4.2.2", "python 7.0.0"], ["native 5.0.11"]),
        ("native-5.0.11", ["native 5.0.11"], ["native 5.0.1", "native 4.2.2", "python 5.0.11"]),
    ],
)
def test_ranks_on_another_engine_are_found(tmp_path: Path, client: str, right: list[str], wrong: list[str]) -> None:
    job = ended_job(tmp_path, (), tuple(right), tuple(right + wrong))
    assert job.other_engines(client) == [f"rank 2 opened a client on the engine {engine}" for engine in wrong]


def test_a_rank_on_another_engine_fails_the_test(tmp_path: Path) -> None:
    jobs = Jobs(tmp_path, client="native-5.0.11")
    jobs._jobs.append((ended_job(tmp_path / "0", ("python 5.0.11",)), False))
    with pytest.raises(pytest.fail.Exception, match="rank 0 opened a client on the engine python 5.0.11"):
        jobs.end()


def test_the_fork_server_has_the_path_that_a_host_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[tuple[Any, ...]] = []
    monkeypatch.setattr(ForkServers, "prepare", lambda self, *arguments: prepared.append(arguments))
    monkeypatch.setattr(sys, "executable", f"{os.path.dirname(sys.executable)}/../bin/python")
    warm._forks.__wrapped__("/lib")
    ((app, program, *_),) = prepared
    assert program == app.argv[0] == os.path.abspath(sys.executable)
