"""JAX's processes find each other by pypmix, with JAX's own wheel: on a machine, under prterun, on two; and faults."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from lib import cluster as clusters
from lib import machine, pairings, provision, slurm
from lib.cluster import Cluster
from lib.job import Job
from lib.running import Jobs

three_nodes = clusters.three_nodes
cluster = clusters.cluster

JAX = provision.FOLDER / "jax"
PYTHON = str(JAX / "bin" / "python")
PROGRAM = str(machine.ROOT / "docs" / "examples" / "frameworks" / "jax_sum.py")
FAULTS = str(Path(__file__).with_name("jax_faults.py"))
RUN = (sys.executable, "-m", "pypmix", "run")
SECONDS = 240.0
"""JAX alone takes some seconds to import and to compile a sum; a busy machine makes them many more."""

SLURM = {
    "SLURM_JOB_ID": "7",
    "SLURM_STEP_NODELIST": "elsewhere",
    "SLURM_NTASKS": "1",
    "SLURM_PROCID": "0",
    "SLURM_LOCALID": "0",
}
"""What JAX takes for a step of Slurm; in a job of `pypmix run` it is the daemons'."""

PLACES = """
import jax, pypmix.jax
from jax._src.distributed import global_state

jax.distributed.initialize()
assert jax.process_count() == 4, jax.process_count()
local = pypmix.jax.PMIxCluster.get_local_process_id()
print(f"process {jax.process_index()} is {local} here, coordinator {global_state.coordinator_address}")
"""

pytestmark = pytest.mark.timeout(SECONDS + 60)


@pytest.fixture(autouse=True)
def _jax() -> None:
    """Skip where JAX was not fetched."""
    if not list(JAX.glob("installed-*")):
        machine.lacking("JAX, which tests/lib/provision_frameworks.py fetches")


@pytest.fixture
def jobs(tmp_path: Path):
    """Runs jobs, after which nothing may be left."""
    found = Jobs(tmp_path)
    yield found
    found.end()


def begin(jobs: Jobs, command: Sequence[str], **environment: str) -> Job:
    paths = os.pathsep.join([str(machine.ROOT), str(machine.TESTS)])
    settings = {"PYTHONPATH": paths, "JAX_PLATFORMS": "cpu", **environment}
    return jobs.begin(command, environment=settings, limit=SECONDS).wait()


def sums(job: Job, size: int) -> None:
    """All processes have the sum of their numbers."""
    assert job.exit_code == 0, job.report()
    found = re.findall(r"process (\d) of (\d): the sum is (\d+)", job.stdout)
    total = str(sum(range(size)))
    assert sorted(found) == [(str(rank), str(size), total) for rank in range(size)], job.report()


def test_a_sum_of_processes(jobs: Jobs) -> None:
    """Also where Slurm's variables are those of something else."""
    sums(begin(jobs, [*RUN, "-n", "3", PYTHON, PROGRAM], **SLURM), 3)


@pytest.mark.parametrize("name", ["prterun", "mpirun"])
def test_a_sum_under_another_launcher(jobs: Jobs, name: str) -> None:
    launcher = next((each for each in machine.launchers() if each.name.startswith(name)), None)
    if launcher is None:
        machine.lacking(name)
    assert launcher is not None
    options = machine.PRTERUN_OPTIONS if name == "prterun" else machine.MPIRUN_OPTIONS
    command = [launcher.path, *options, "-n", "2", PYTHON, PROGRAM]
    sums(begin(jobs, command, **pairings.client_environment("python-client")), 2)


def test_a_sum_over_two_nodes_of_slurm(jobs: Jobs, slurm_nodes: slurm.Cluster) -> None:
    sums(begin(jobs, [*slurm_nodes.command(2), "-n2", PYTHON, PROGRAM]), 2)


def test_a_sum_over_two_machines(cluster: Cluster) -> None:
    """Each machine's processes number themselves from 0, and reach process 0 at its machine's own address."""
    env = {"PYTHONPATH": str(machine.ROOT), "JAX_PLATFORMS": "cpu"}
    line = [*RUN, "--host", "n1:2,n2:2", "-n", "4", "-x", "PYTHONPATH", "-x", "JAX_PLATFORMS"]
    out = cluster["n1"].run(*line, PYTHON, PROGRAM, env=env, timeout=SECONDS).stdout
    assert sorted(re.findall(r"process (\d) of 4: the sum is 6\n", out)) == list("0123"), out
    out = cluster["n1"].run(*line, PYTHON, "-c", PLACES, env=env, timeout=SECONDS).stdout
    found = re.findall(r"process (\d) is (\d) here, coordinator (\S+):\d+\n", out)
    address = cluster["n1"].address
    assert sorted(found) == [(str(rank), str(rank % 2), address) for rank in range(4)], out


def test_a_process_that_does_not_come(jobs: Jobs) -> None:
    """The others are told who it is: when the time is over, and, once it has been killed, at once."""
    job = begin(jobs, [*RUN, "--keep-going", "-n", "3", PYTHON, FAULTS, "away"])
    assert job.exit_code == 137, job.report()
    for rank in 0, 1:
        assert re.search(rf"^{rank} waited for \[.*2\]$", job.stdout, re.MULTILINE), job.report()
        assert f"{rank} without [2]\n" in job.stdout, job.report()


def test_process_0_ends_before_its_coordinator_is_there(jobs: Jobs) -> None:
    """The others are told at once."""
    job = begin(jobs, [*RUN, "--keep-going", "-n", "3", PYTHON, FAULTS, "coordinator"])
    assert job.exit_code == 137, job.report()
    for rank in 1, 2:
        assert f"{rank} before JAX without [0]\n" in job.stdout, job.report()


def test_a_process_that_ends_while_jax_connects_is_logged(jobs: Jobs) -> None:
    """The end of the others is JAX's own."""
    job = begin(jobs, [*RUN, "--keep-going", "-n", "3", PYTHON, FAULTS, "connecting"])
    assert job.exit_code != 0, job.report()
    assert job.stderr.count("process 2 of JAX (") == 2, job.report()


def test_the_port_is_held_and_devices_are_shared_out(jobs: Jobs) -> None:
    job = begin(jobs, [*RUN, "-n", "2", PYTHON, FAULTS, "port"])
    assert job.exit_code == 0, job.report()
    assert job.stdout.count("Address already in use\n") == 3 + 2, job.report()
    for rank in 0, 1:
        assert f"{rank}: process 0 cannot hold the port PORT: Address already in use\n" in job.stdout, job.report()
        assert f"{rank}: process 0 cannot hold the port '99999': that is not a port\n" in job.stdout, job.report()
        assert f"{rank} of 0,1 takes {rank}\n" in job.stdout and f"{rank} of 0 takes None\n" in job.stdout, job.report()


def test_what_is_not_installed_is_named() -> None:
    code = "import sys; sys.modules['jax'] = None\nimport pypmix.jax"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "pip install 'pypmix-hpc[jax]'" in done.stderr and "ImportError" in done.stderr
