"""Proves with real processes that a rank killed at any moment leaves the others answered, and the server as it was.

`PYPMIX_FAULT_ROUNDS` is how many ranks are killed under one server, and `PYPMIX_FAULT_SEED` what chooses the moments.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

from lib import pairings
from lib.running import Jobs

pytestmark = pytest.mark.timing

PROGRAM = str(Path(__file__).parent / "ranks.py")
RANKS = 5
ROUNDS = max(8, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0")))
SEED = int(os.environ.get("PYPMIX_FAULT_SEED", "1"))

SECONDS_PER_ROUND = 8
LONGEST = 8.0
"""Seconds within which every operation must end: what it was given, and what a busy machine takes."""

ENDS = {
    "success",
    "PartialSuccess",
    "OperationTimeout",
    "NotFound",
}
"""How operations of survivors end; not by the loss of their own connections, which nobody has harmed."""

MEMORY = 4096
"""KiB that a server may have grown in the second half of its jobs."""

MEMORY_PER_JOB = 8
"""And what may be added for each, since the kernel and allocators of memory round up."""


@pytest.fixture
def jobs(job_folder):
    found = Jobs(job_folder)
    yield found
    found.end()


def judge(left, victim, ranks):
    """What the survivors of one job must have seen."""
    assert left.keys() == {str(rank) for rank in range(ranks)} - {str(victim)}, "a survivor did not come to its end"
    for rank, seen in left.items():
        for name, end, seconds in seen["done"]:
            assert end in ENDS, f"{name} of rank {rank} ended with {end}"
            assert seconds < LONGEST, f"{name} of rank {rank} took {seconds} s"
        heard = [tuple(event) for event in seen["heard"]]
        assert len(set(heard)) == len(heard), f"rank {rank} got an event twice"
        assert not seen["dropped"]
        told = [event for event in heard if event[:2] == ("aborted", seen["nspace"])]
        assert told == [("aborted", seen["nspace"], victim)]


def drive(jobs, tmp_path, rounds, client, server="python-server"):
    """Kill a rank of each of many jobs under one host; return how they went, and the host before and after."""
    variables = {f"FAULTS_{name}": value for name, value in pairings.client_environment(client).items()}
    command = [sys.executable, PROGRAM, "drive", str(SEED * 100_000), str(rounds), str(RANKS)]
    job = jobs.begin(
        pairings.command_line(server, [pairings.Part(1, command)]),
        environment={"FAULTS_FOLDER": str(tmp_path), **variables},
        limit=30 + rounds * SECONDS_PER_ROUND,
    ).wait()
    state = tmp_path / "server"
    # The ranks that were killed count as failures of the whole.
    assert job.exit_code == 128 + signal.SIGKILL and state.exists(), job.report()
    found = [json.loads(line) for line in (tmp_path / "rounds").read_text().splitlines()]
    assert len(found) == rounds
    for each in found:
        try:
            judge(each["left"], each["victim"], RANKS)
        except AssertionError as error:
            raise AssertionError(f"seed {each['seed']}, killed after {each['moment']:.3f} s: {error}") from error
    return found, json.loads(state.read_text())


@pytest.mark.timeout(60 + ROUNDS * SECONDS_PER_ROUND)
@pytest.mark.parametrize("server", ["python-server", pairings.NODES])
def test_the_server_is_as_before(jobs, tmp_path, server):
    _, states = drive(jobs, tmp_path, ROUNDS, "python-client", server)
    before, after = states["before"], states["after"]
    growth = after.pop("rss") - before.pop("rss")
    assert after == before
    assert not after["zombies"]
    assert growth < MEMORY + MEMORY_PER_JOB * ROUNDS


@pytest.mark.parametrize("client", ["native-4.2.2", "native-5.0.11"])
def test_native_survivors(jobs, tmp_path, client):
    pairings.require_client(client)
    found, _ = drive(jobs, tmp_path, 3, client)
    assert {seen["engine"] for each in found for seen in each["left"].values()} == {"native"}


@pytest.mark.parametrize("server", ["python-server", pairings.NODES])
@pytest.mark.parametrize("turn", range(3))
def test_ranks_that_keep_going(jobs, tmp_path, turn, server):
    chance = random.Random(SEED + turn)
    ranks = chance.randrange(4, 7)
    victim = chance.randrange(ranks)
    command = [sys.executable, PROGRAM, "live", str(SEED + turn)]
    job = jobs.begin(
        pairings.command_line(server, [pairings.Part(ranks, command)], ["--keep-going"]),
        environment={"FAULTS_FOLDER": str(tmp_path), **pairings.client_environment("python-client")},
    )
    path = tmp_path / f"pid.{victim}"
    deadline = time.monotonic() + 20
    while not path.exists():
        assert time.monotonic() < deadline
        time.sleep(0.001)
    time.sleep(chance.uniform(0, 0.8))
    os.kill(int(path.read_text()), signal.SIGKILL)
    (tmp_path / "draft").write_text(str(victim))
    (tmp_path / "draft").rename(tmp_path / "killed")
    job.wait()
    assert job.exit_code == 128 + signal.SIGKILL, job.report()
    judge({path.name[5:]: json.loads(path.read_text()) for path in tmp_path.glob("left.*")}, victim, ranks)
