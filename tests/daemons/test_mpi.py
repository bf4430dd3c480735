"""Unmodified Open MPI on nodes that daemons serve: collectives, and a spawn."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib import machine, provision
from lib.daemon_session import Start

PROGRAMS = Path(__file__).parents[1] / "foreign" / "interop" / "mpi"

ENVIRONMENT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,sm,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    # What finds pypmix has no business in the ranks, which run another Python's packages.
    "PYTHONPATH": "",
}

pytestmark = pytest.mark.timeout(170)


@pytest.fixture
def python() -> str:
    """Return the Python that has mpi4py."""
    found = provision.mpi4py()
    if found is None:
        machine.lacking("Open MPI with mpi4py, which tests/lib/provision.py fetches")
    return str(found)


def test_collectives(session: Start, python: str) -> None:
    code = "import os; from mpi4py import MPI; c = MPI.COMM_WORLD; "
    code += "os.write(1, f'{c.rank} {c.allreduce(c.rank)} {os.environ[\"TEST_NODE\"]}\\n'.encode())"
    run = session([4, python, "-c", code], env=ENVIRONMENT)
    assert run.end() == 0, run.told()
    assert sorted(run.out) == ["0 6 n0", "1 6 n0", "2 6 n1", "3 6 n1"]


def test_spawn_and_merge(session: Start, python: str) -> None:
    run = session([2, python, str(PROGRAMS / "spawning.py")], nodes={"n0": 1, "n1": 4}, env=ENVIRONMENT)
    assert run.end() == 0, run.told()
    lines = sorted(line for line in run.out if line.startswith("spawning"))
    assert lines == sorted(f"spawning {name} {rank} 4 4" for rank, name in enumerate(["parent"] * 2 + ["child"] * 2))
