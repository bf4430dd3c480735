"""Programs with mpi4py and pypmix on two machines: communicators of groups, and pools, as their page has them."""

from __future__ import annotations

import os
import re
import sys

import pytest

from lib import machine, provision
from lib.node_runs import Runner, succeeded, ways

EXAMPLES = machine.ROOT / "docs" / "examples" / "mpi"
SETTINGS = ("OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
LIMIT = 100.0

pytestmark = pytest.mark.timeout(150)


@pytest.fixture
def python() -> str:
    """Return the Python that has mpi4py, if pypmix runs on it as well."""
    found = provision.mpi4py()
    if found is None or not list(found.parents[1].glob(f"lib/python3.{sys.version_info.minor}")):
        machine.lacking("Open MPI with mpi4py for this Python, which tests/lib/provision.py fetches")
    return str(found)


@ways("ssh")
def test_communicators_of_groups(over: Runner, python: str) -> None:
    path = os.pathsep.join([str(machine.ROOT), *filter(None, sys.path)])
    command = ["env", f"PYTHONPATH={path}", *SETTINGS, python, str(EXAMPLES / "both.py")]
    job = succeeded(over(4, *command, options=("--map-by", "ppr:2:node"), limit=LIMIT))
    sums = dict(re.findall(r"rank (\d) has the sum (\d)", job.stdout))
    assert sums == {"0": "1", "1": "1", "2": "5", "3": "5"}, job.report()


@ways("ssh")
@pytest.mark.parametrize("kind", ["spawned", "of the job"])
def test_pools(over: Runner, python: str, kind: str) -> None:
    """The workers are ranks of both machines, or are spawned where slots are free."""
    module, ranks = ((), 1) if kind == "spawned" else (("-m", "mpi4py.futures"), 4)
    options = ("--host", "n1:1,n2:2") if kind == "spawned" else ("--map-by", "node")
    command = ["env", "PYTHONPATH=", *SETTINGS, python, *module, str(EXAMPLES / "pool.py")]
    job = succeeded(over(ranks, *command, options=options, limit=LIMIT))
    squares, nodes = job.stdout.splitlines()[:2]
    assert squares == str([number * number for number in range(8)]), job.report()
    assert nodes == "on ['n2']" if kind == "spawned" else set(re.findall(r"n\d", nodes)) <= {"n1", "n2"}, job.report()
