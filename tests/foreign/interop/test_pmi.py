"""Unmodified programs of MPICH and Intel MPI run on our servers: they speak PMI-1, with nothing to set."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lib import machine, pairings, provision
from lib.pairings import Part

PROGRAMS = Path(__file__).parent / "mpi"
LIMIT = 75.0

pytestmark = [pytest.mark.servers("python-server", pairings.NODES, f"{pairings.HOSTED}*"), pytest.mark.timeout(90)]


@pytest.fixture(params=list(provision.MPIS))
def mpi(request, launch, monkeypatch):
    """Run a Python program that uses mpi4py as a job of so many ranks."""
    python = provision.other_mpi(request.param)
    if python is None:
        machine.lacking(f"{request.param} with mpi4py, which tests/lib/provision.py fetches")

    # Of the launcher, whose environment spawned ranks have: on one node, Intel MPI chooses shared memory alone, and
    # then refuses to spawn, under its own mpiexec too.
    monkeypatch.setenv("I_MPI_FABRICS", "shm:ofi")

    def start(ranks: int, *command: str) -> list[str]:
        job = launch(Part(ranks, [str(python), *command], {"PYTHONPATH": ""}), limit=LIMIT)
        assert job.exit_code == 0, job.report()
        return job.stdout.splitlines()

    return start


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_collectives(mpi, ranks):
    lines = mpi(ranks, str(PROGRAMS / "collectives.py"))
    ring = [f"word of {rank}" if ranks > 1 else "word" for rank in range(ranks)]
    assert sorted(line for line in lines if line.startswith("collectives")) == sorted(
        f"collectives {sum(range(ranks))} {ranks} {ring[(rank - 1) % ranks]} {len(range(rank % 2, ranks, 2))}"
        for rank in range(ranks)
    )


@pytest.mark.parametrize("ranks", [1, 2])
def test_spawn_and_merge(mpi, ranks):
    lines = mpi(ranks, str(PROGRAMS / "spawning.py"))
    size = ranks + 2
    names = ["parent"] * ranks + ["child"] * 2
    assert sorted(line for line in lines if line.startswith("spawning")) == sorted(
        f"spawning {name} {rank} {size} {size}" for rank, name in enumerate(names)
    )


@pytest.fixture
def ranks(launch):
    """Run ranks that do some steps of `pmi_rank.py`."""
    program = Path(__file__).parent / "pmi_rank.py"

    def start(count: int, *steps: str):
        return launch(Part(count, [sys.executable, str(program), *steps]), limit=LIMIT)

    return start


def test_the_key_value_space(ranks):
    job = ranks(3, "exchange")
    assert job.exit_code == 0, job.report()
    # Which ranks are on which node: (first node, number of nodes, ranks on each).
    mapping = "(vector,(0,1,3))" if "(0,1,3)" in job.stdout else "(vector,(0,1,2),(1,1,1))"
    assert sorted(job.stdout.splitlines()) == [f"exchanged {rank} {mapping}" for rank in range(3)]


@pytest.mark.servers("python-server", pairings.NODES)
def test_a_key_that_is_put_again(ranks):
    """A server of libpmix may answer with the older value."""
    job = ranks(3, "again")
    assert job.exit_code == 0, job.report()


def test_names(ranks):
    job = ranks(2, "names")
    assert job.exit_code == 0, job.report()
    assert sorted(job.stdout.splitlines()) == [f"named {rank} cmd=appnum appnum=0 rc=0" for rank in range(2)]


def test_children_have_what_their_parent_put(ranks):
    job = ranks(2, "spawn")
    assert job.exit_code == 0, job.report()
    answer = "cmd=get_result rc=0 msg=success value=port=7"
    assert sorted(job.stdout.splitlines()) == [f"child {rank} {answer}" for rank in range(2)]


def test_abort_ends_the_job_with_its_code(ranks):
    job = ranks(2, "abort")
    assert job.exit_code == 7, job.report()


def test_a_rank_that_exits_without_finalize(ranks):
    """The job ends as one with a rank of PMIx does that never calls `PMIx_Finalize`."""
    job = ranks(2, "leave")
    assert job.exit_code != 0, job.report()
    assert "rank 1" in job.stderr and "without calling finalize" in job.stderr


def test_an_unknown_command_ends_the_connection_alone(ranks):
    job = ranks(1, "nonsense")
    assert job.exit_code == 9, job.report()
    assert "the PMI command 'launch_missiles' is unknown" in job.stderr
