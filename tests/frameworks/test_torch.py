"""`pmix://` with the real PyTorch: data-parallel training over gloo, and ranks that die on the way."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

import pytest

from frameworks import training
from frameworks.training import EXAMPLE, SCRIPTS, trained
from lib import cluster as clusters
from lib import machine, provision, slurm
from lib.cluster import Cluster
from lib.plugin_runs import outcome

cluster = clusters.cluster

ENVIRONMENT = provision.FOLDER / "torch"
PYTHON = str(ENVIRONMENT / "bin" / "python")

PYPMIX_RUN = (sys.executable, "-m", "pypmix", "run")
"""In the Python of the tests, in which pypmix is installed."""

SECONDS = 400.0
"""For a job whose ranks import torch on a busy machine."""

pytestmark = pytest.mark.timeout(1000)


@pytest.fixture(scope="module", autouse=True)
def torch_here() -> None:
    """Skip where torch was not installed."""
    if not list(ENVIRONMENT.glob("installed-*")):
        machine.lacking("torch, which tests/lib/provision_frameworks.py fetches")


def environment() -> dict[str, str]:
    # Ranks that share the cores of a test machine are slower with threads.
    return {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT), "OMP_NUM_THREADS": "1"}


def run(*command: str, check: bool = True, **more: str) -> str:
    """Run a command to its end, with a TMPDIR of its own, as launchers need it; return what it has printed."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        env = {**environment(), "TMPDIR": folder, **more}
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS)
    assert not check or done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return f"{done.stdout}\n{done.stderr}"


@pytest.fixture(scope="module")
def weights_of_one() -> list[float]:
    """The weights that one process comes to without a launcher."""
    return training.weights_of_one(run(PYTHON, EXAMPLE))


def test_training_on_one_node(weights_of_one: list[float]) -> None:
    trained(run(*PYPMIX_RUN, "-n", "3", PYTHON, EXAMPLE), [(0, 0), (1, 0), (2, 0)], weights_of_one)


@pytest.fixture
def prterun() -> tuple[str, ...]:
    launcher = next((each for each in machine.launchers() if each.name.startswith("prterun")), None)
    if launcher is None:
        machine.lacking("prterun, which tests/lib/provision.py fetches")
    return (launcher.path, *machine.PRTERUN_OPTIONS)


def test_training_under_prterun(weights_of_one: list[float], prterun: tuple[str, ...]) -> None:
    trained(run(*prterun, "-n", "2", PYTHON, EXAMPLE), [(0, 0), (1, 0)], weights_of_one)


def test_training_under_mpirun(weights_of_one: list[float]) -> None:
    launcher = next((each for each in machine.launchers() if each.name.startswith("mpirun")), None)
    if launcher is None:
        machine.lacking("mpirun")
    out = run(launcher.path, *machine.MPIRUN_OPTIONS, "-n", "2", PYTHON, EXAMPLE)
    trained(out, [(0, 0), (1, 0)], weights_of_one)


def test_training_on_two_nodes_of_slurm(weights_of_one: list[float], slurm_nodes: slurm.Cluster) -> None:
    out = run(*slurm_nodes.command(2), "-n2", PYTHON, EXAMPLE)
    trained(out, [(0, 0), (0, 1)], weights_of_one)


def test_training_on_two_nodes(weights_of_one: list[float], cluster: Cluster) -> None:
    """Each has a network, a name and a loopback of its own."""
    over = ["--host", "n1:2,n2:2", "-n", "3", "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS"]
    done = cluster["n1"].run(*PYPMIX_RUN, *over, PYTHON, EXAMPLE, env=environment(), timeout=SECONDS)
    trained(done.stdout, [(0, 0), (1, 0), (0, 1)], weights_of_one)


def test_ranks_that_die_in_a_rendezvous() -> None:
    """Rank 0 after it has told its address, and before; the others are told who it is, long before the time limit."""
    out = run(*PYPMIX_RUN, "-n", "3", "--keep-going", PYTHON, str(SCRIPTS / "dies.py"), check=False)
    for rank in (1, 2):
        for step in ("on the way", "before"):
            assert re.search(rf"^{rank} {step}: PartialSuccess .*:0\b", out, re.MULTILINE), out


def test_a_rank_that_cannot_reach_the_store() -> None:
    """All are told who it is, and may try again."""
    out = run(*PYPMIX_RUN, "-n", "3", PYTHON, str(SCRIPTS / "unreached.py"))
    for rank in range(3):
        told = rf"^{rank} is told of \[1\]: .*rank 1 cannot reach it: .*no route to it"
        assert re.search(told, out, re.MULTILINE), out
        assert f"{rank} of 3: 3\n" in out, out


def test_a_torch_without_libuv() -> None:
    """Each store is asked for it once; where the user says that there is none, not at all."""
    for setting, asked in {"1": "[True, False]", "0": "[False]"}.items():
        out = run(*PYPMIX_RUN, "-n", "2", PYTHON, str(SCRIPTS / "without_libuv.py"), USE_LIBUV=setting)
        assert out.count(f"total 3 {asked}\n") == 2, out


def test_the_store_over_pmix_alone() -> None:
    """Its contract, a process group over it, and a rank that is killed: the others do not wait for it."""
    out = run(*PYPMIX_RUN, "-n", "3", "--keep-going", PYTHON, str(SCRIPTS / "store.py"), check=False)
    assert sorted(re.findall(r"^rank \d: total \d+$", out, re.MULTILINE)) == [
        "rank 0: total 12",
        "rank 1: total 12",
        "rank 2: total 6",
    ], out
    assert sorted(re.findall(r"^rank (\d): get of the PMIx store: .*rank 2 ended", out, re.MULTILINE)) == ["0", "1"], (
        out
    )


def test_the_store_over_pmix_needs_a_server_that_refuses_duplicates(prterun: tuple[str, ...]) -> None:
    out = run(*prterun, "-n", "2", PYTHON, str(SCRIPTS / "store.py"), check=False)
    assert re.search("rank [01]: NotSupported .*publishes a key twice", out), out


@pytest.fixture
def installed(tmp_path: Path) -> str:
    """A PYTHONPATH by which pypmix is found as if it were installed, with its entry points."""
    project = tomllib.loads((machine.ROOT / "pyproject.toml").read_text())["project"]
    folder = tmp_path / "pypmix-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: pypmix\nVersion: 0\n")
    groups = project["entry-points"].items()
    lines = [f"[{group}]\n" + "".join(f"{name} = {at}\n" for name, at in points.items()) for group, points in groups]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    return f"{tmp_path}:{machine.ROOT}"


def test_torchrun_goes_on_without_an_agent_that_is_killed(installed: str, cluster: Cluster) -> None:
    """Each agent is on a node of its own; the others form a new round with the workers that are left, and end it."""
    torchrun = (
        PYTHON,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2:3",
        "--nproc-per-node",
        "1",
        "--max-restarts",
        "3",
    )
    rendezvous = ("--rdzv-backend", "pmix", "--rdzv-id", "job1")
    over = ("--host", "n1:1,n2:1,n3:1", "-n", "3", "--keep-going", "-x", "PYTHONPATH", "-x", "OMP_NUM_THREADS")
    command = (*PYPMIX_RUN, *over, *torchrun, *rendezvous, str(SCRIPTS / "elastic.py"))
    found = {**environment(), "PYTHONPATH": installed}
    done = cluster["n1"].run(*command, env=found, timeout=SECONDS, check=False)
    out = f"{done.stdout}\n{done.stderr}"
    first = [f"worker {rank} of 3: total 6" for rank in range(3)]
    expected = sorted([*first, "worker 0 of 2: total 3", "worker 1 of 2: total 3"])
    assert sorted(re.findall(r"worker \d of \d: total \d", out)) == expected, out


def test_torchrun_starts_all_workers_again_when_one_of_a_full_round_fails(installed: str, tmp_path: Path) -> None:
    """The agent of the failed one comes to the next round; the other, whose worker is well, has to come, too."""
    torchrun = (PYTHON, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", "--max-restarts", "1")
    rendezvous = ("--rdzv-backend", "pmix", "--rdzv-id", "job2")
    worker = (str(SCRIPTS / "restarts.py"), str(tmp_path))
    out = run(*PYPMIX_RUN, "-n", "2", *torchrun, *rendezvous, *worker, PYTHONPATH=installed)
    found = sorted(re.findall(r"worker \d of \d(?: again)?", out))
    assert found == ["worker 0 of 2", "worker 0 of 2 again", "worker 1 of 2", "worker 1 of 2 again"], out


def test_torchrun_grows_and_goes_on_without_the_first_agent(installed: str, tmp_path: Path) -> None:
    """An agent that comes late has the others begin a new round; then the one with the workers' store is killed."""
    late = f"""if [ "$PMIX_RANK" = 2 ]; then until [ -e {tmp_path}/two ]; do sleep 0.1; done; fi; exec "$@\""""
    torchrun = (
        PYTHON,
        "-m",
        "torch.distributed.run",
        "--nnodes",
        "2:3",
        "--nproc-per-node",
        "1",
        "--max-restarts",
        "3",
    )
    rendezvous = ("--rdzv-backend", "pmix", "--rdzv-id", "job3", "--rdzv-conf", "last_call_timeout=1")
    worker = (str(SCRIPTS / "grows.py"), str(tmp_path))
    agent = ("sh", "-c", late, "sh", *torchrun, *rendezvous, *worker)
    out = run(*PYPMIX_RUN, "-n", "3", "--keep-going", *agent, check=False, PYTHONPATH=installed)
    found = re.findall(r"worker \d of (\d): total (\d)", out)
    assert found == [("2", "3")] * 2 + [("3", "6")] * 3 + [("2", "3")] * 2, out


def test_what_is_wrong_with_the_url() -> None:
    out = run(PYTHON, str(SCRIPTS / "wrong.py"))
    assert "ValueError: pmix://?prot=1: the options of pmix:// are" in out
    assert "ValueError: pmix://n1:29500: rank 0 chooses the host and the port" in out
    assert "ValueError: world_size is 2 here, but 1 in PMIx" in out
    assert "OSError" in out and "'nosuch0' is neither an interface of this node" in out
    assert "the environment: 7" in out


def test_importing_pypmix_loads_no_torch() -> None:
    out = run(PYTHON, "-c", "import sys, pypmix; pypmix.Client; print('torch' in sys.modules)")
    assert "False" in out


IN_TESTS = """
import pytest

@pytest.mark.pmix(ranks=[1, 2])
def test_sum(pmix_ranks):
    import torch
    import torch.distributed as dist
    import pypmix.torch
    dist.init_process_group("gloo", init_method="pmix://")
    try:
        value = torch.tensor([dist.get_rank() + 1])
        dist.all_reduce(value)
        assert dist.get_world_size() == pmix_ranks
        assert value.item() == sum(range(1, pmix_ranks + 1))
    finally:
        dist.destroy_process_group()

@pytest.mark.pmix(ranks=2)
def test_wrong():
    import torch
    assert torch.tensor([1]).item() == 2
"""


def test_marked_tests_use_torch(tmp_path: Path) -> None:
    out = outcome(tmp_path, PYTHON, IN_TESTS)
    assert "1 failed, 2 passed" in out and "assert 1 == 2" in out, out


def test_a_job_outlives_its_ranks() -> None:
    steps = str(machine.ROOT / "docs" / "examples" / "restarts" / "torch_steps.py")
    out = run(*PYPMIX_RUN, "--restart", "1", "-n", "3", PYTHON, steps, "0@5", "2@9")
    sums = [(rank, times) for rank, times in re.findall(r"rank (\d), started (\d) times: the sum is 570", out)]
    assert sorted(sums) == [("0", "2"), ("1", "1"), ("2", "2")], out
