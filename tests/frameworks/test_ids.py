"""The programs of the page on ids, with stand-ins of the libraries' documented interfaces: no GPU is needed."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from lib import machine, provision
from lib.job import Job
from lib.running import Jobs

FRAMEWORKS = provision.FOLDER / "frameworks"
STANDINS = Path(__file__).with_name("standins")
EXAMPLES = machine.ROOT / "docs" / "examples" / "ids"
RUN = (sys.executable, "-m", "pypmix", "run", "--nodes", "2", "-n", "4")
LIMIT = 90.0

pytestmark = pytest.mark.timeout(LIMIT + 30)


@pytest.fixture
def job(request: pytest.FixtureRequest, tmp_path: Path):
    """Run a program of the page over two simulated nodes, by a Python that has NumPy."""
    if not list(FRAMEWORKS.glob("installed-*numpy*")):
        machine.lacking("NumPy, which tests/lib/provision_frameworks.py fetches with Dask and Ray")
    jobs = Jobs(tmp_path)
    paths = os.pathsep.join(map(str, [STANDINS, machine.ROOT, machine.TESTS]))
    command = [*RUN, str(FRAMEWORKS / "bin" / "python"), str(EXAMPLES / f"{request.param}.py")]
    yield jobs.begin(command, environment={"PYTHONPATH": paths}, limit=LIMIT).wait()
    jobs.end()


def test_all_programs_are_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {"nccl4py_id", "cupy_id", "nvshmem_id", "ucxx_id"}


@pytest.mark.parametrize("job", ["nccl4py_id", "cupy_id", "nvshmem_id"], indirect=True)
def test_all_ranks_have_one_id(job: Job) -> None:
    """Each hands it to the library with its own rank, on the device of its place on its node."""
    assert job.exit_code == 0, job.report()
    found = re.findall(r"rank (\d) of 4 on device (\d) with ([0-9a-f]{256})\n", job.stdout)
    assert sorted(each[:2] for each in found) == [("0", "0"), ("1", "1"), ("2", "0"), ("3", "1")], job.report()
    assert len({each[2] for each in found}) == 1


@pytest.mark.parametrize("job", ["ucxx_id"], indirect=True)
def test_all_ranks_have_all_addresses(job: Job) -> None:
    assert job.exit_code == 0, job.report()
    found = re.findall(r"rank (\d) got (\d)\n", job.stdout)
    assert sorted(found) == [("0", "3"), ("1", "0"), ("2", "1"), ("3", "2")], job.report()
