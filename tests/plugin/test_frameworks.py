"""mpi4py inside of tests on several ranks, and workers of mpi4py's pools that are forked."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lib import machine, provision
from lib.plugin_runs import SECONDS, outcome, run

pytestmark = pytest.mark.timeout(2 * SECONDS)

MPI = """
import pytest

@pytest.fixture(scope="module")
def world():
    from mpi4py import MPI
    return MPI.COMM_WORLD

@pytest.mark.pmix(ranks=3)
@pytest.mark.parametrize("factor", [1, 2])
def test_sum(world, factor, pmix_ranks):
    assert world.size == pmix_ranks == 3
    assert world.allreduce(world.rank * factor) == 3 * factor

@pytest.mark.pmix(ranks=2)
def test_both(world, pmix):
    assert (world.rank, world.size) == (pmix.rank, pmix.job.size)
    assert world.allgather(world.rank) == [0, 0]
"""

POOL = """
import os
from mpi4py.futures import MPIPoolExecutor

def place(number):
    with open(f"/proc/{os.getppid()}/cmdline") as file:
        return number * number, "pypmix.extras.forking.server" in file.read()

if __name__ == "__main__":
    with MPIPoolExecutor(2) as pool:
        print(list(pool.map(place, range(4))))
"""


@pytest.fixture
def mpi() -> str:
    """The Python that has mpi4py."""
    found = provision.mpi4py()
    if found is None or not list(found.parents[1].glob(f"lib/python3.{sys.version_info.minor}")):
        machine.lacking("Open MPI with mpi4py for this Python, which tests/lib/provision.py fetches")
    return str(found)


def test_mpi4py_in_tests(mpi: str, tmp_path: Path) -> None:
    """Fixtures of a module, parameters, and a failure with its ranks."""
    out = outcome(tmp_path, mpi, MPI)
    assert "1 failed, 2 passed" in out, out
    assert "ranks 0 to 1 of 2" in out and "assert [0, 1] == [0, 0]" in out, out


def test_workers_of_a_pool_are_warm(mpi: str, tmp_path: Path) -> None:
    (tmp_path / "pool.py").write_text(POOL)
    done = run(tmp_path, sys.executable, "-m", "pypmix", "run", "--warm", "-n", "1", mpi, "pool.py")
    assert done.stdout.strip() == str([(number * number, True) for number in range(4)]), done.stdout + done.stderr
