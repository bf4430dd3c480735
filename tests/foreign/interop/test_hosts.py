"""Clients that nobody here wrote run under hosts in Python, on libpmix's own server and on ours."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine, pairings
from lib.c_programs import notes, outcome
from lib.pairings import Part
from lib.running import Jobs

HERE = Path(__file__).parent
MANAGER = machine.ROOT / "docs" / "examples" / "hosts" / "own_rm.py"

PYTHON = "/usr/bin/python3"
"""The system's Python, whose packages are Debian's."""

HOSTED = f"{pairings.HOSTED}4.2.2"

OPEN_MPI = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_btl": "self,tcp",
    "OMPI_MCA_btl_tcp_if_include": "lo",
    "OMPI_MCA_mpi_yield_when_idle": "1",
}

pytestmark = pytest.mark.timeout(90)


@functools.cache
def works(code: str) -> bool:
    """Tell whether the system's Python can run a line of code."""
    try:
        done = subprocess.run([PYTHON, "-c", code], env=machine.clean_environment(), capture_output=True, timeout=30)
    except FileNotFoundError:
        return False
    return done.returncode == 0


@pytest.fixture
def binding() -> list[str]:
    """The command of a rank that uses the Standard's binding."""
    if not works("import pmix"):
        machine.lacking("the Standard's Python binding (Debian's python3-pmix)")
    return [PYTHON, "-W", "ignore", str(HERE / "binding_rank.py")]


@pytest.fixture
def ring() -> list[str]:
    """The command of a rank that uses the system's Open MPI 4."""
    if not works("import ctypes; ctypes.CDLL('libmpi.so.40')"):
        machine.lacking("Open MPI 4 (Debian's openmpi-bin)")
    return [PYTHON, str(HERE / "mpi" / "ring.py")]


@pytest.fixture(params=["python", "native"])
def manage(request, job_folder):
    """Run a command under the tutorial's `Host` on two nodes, on the Python server or on libpmix 4.2."""
    environment = {"PYPMIX_ENGINE": request.param}
    if request.param == "native":
        pairings.require_client("native-4.2.2")
        environment = pairings.client_environment("native-4.2.2")
    jobs = Jobs(job_folder)

    def run(ranks, *command, **more):
        line = [sys.executable, str(MANAGER), str(ranks), *command]
        job = jobs.begin(line, environment={**environment, **more}).wait()
        assert job.exit_code == 0 and not job.hung, job.report()
        return job

    yield run
    jobs.end()


def lines(job, word):
    return sorted(line.removeprefix(word).strip() for line in job.stdout.splitlines() if line.startswith(word))


def said_by_bindings(job):
    return sorted(map(json.loads, lines(job, "binding")), key=lambda seen: seen["rank"])


def seen_by_bindings(ranks):
    words = [f"of {rank}" for rank in range(ranks)]
    return [{"rank": rank, "words": words, "port": [["tcp://here", 0]]} for rank in range(ranks)]


def ring_of(ranks):
    return sorted(f"{rank} {ranks} {sum(range(ranks))} {(rank - 1) % ranks}" for rank in range(ranks))


@pytest.mark.servers("python-server", HOSTED)
@pytest.mark.parametrize("ranks", [1, 3])
def test_the_standards_binding(launch, binding, ranks):
    job = launch(Part(ranks, binding, {"PYTHONPATH": ""}))
    assert job.exit_code == 0, job.report()
    assert said_by_bindings(job) == seen_by_bindings(ranks), job.report()


@pytest.mark.servers("python-server", HOSTED)
@pytest.mark.parametrize("ranks", [1, 3])
def test_open_mpi_4(launch, ring, ranks):
    job = launch(Part(ranks, ring, OPEN_MPI))
    assert job.exit_code == 0, job.report()
    assert lines(job, "ring") == ring_of(ranks), job.report()


def test_the_standards_binding_under_the_tutorials_host(manage, binding):
    job = manage(4, *binding, PYTHONPATH=str(machine.ROOT))
    assert said_by_bindings(job) == seen_by_bindings(4), job.report()


def test_open_mpi_4_under_the_tutorials_host(manage, ring):
    job = manage(4, "env", *(f"{name}={value}" for name, value in OPEN_MPI.items()), *ring)
    assert lines(job, "ring") == ring_of(4), job.report()


def test_c_ranks_under_the_tutorials_host(manage, programs):
    """Every rank reads what those of the other node have put."""
    job = manage(4, programs("modex"))
    for rank in range(4):
        seen = notes(job, rank)
        assert [outcome(seen[f"global-{peer}"])[1] for peer in range(4)] == [f"ok of {peer}" for peer in range(4)]
        assert outcome(seen["pmix.num.nodes"])[1] == "ok 2"
        assert outcome(seen["pmix.local.size"])[1] == "ok 2"
        assert seen["finalize"] == "0"
