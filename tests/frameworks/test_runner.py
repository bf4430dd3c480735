"""The ranks of a job as a Dask cluster: by several launchers, on one machine and on two, and with faults."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lib import cluster as clusters
from lib import machine, slurm_nodes
from lib.cluster import Cluster
from lib.framework_clusters import FRAMEWORKS
from lib.node_runs import launcher_command
from lib.slurm_nodes import Slurm

cluster = clusters.cluster
slurm_on_nodes = slurm_nodes.slurm_on_nodes
nodes_with_slurm = slurm_nodes.nodes_with_slurm

EXAMPLE = machine.ROOT / "docs" / "examples" / "frameworks" / "dask_runner.py"
FAULTS = Path(__file__).with_name("runner.py")
RUN = (sys.executable, "-m", "pypmix", "run")
SECONDS = 200.0

pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("frameworks")]


def run(
    cluster: Cluster, *words: str, check: bool = True, env: Mapping[str, str] | None = None
) -> tuple[int, str, str]:
    """Run a launcher on the first machine to its end, after which nothing of it may be left."""
    env = {"PYTHONPATH": str(machine.ROOT), **(env or {})}
    done = cluster["n1"].run(*words, timeout=SECONDS, check=check, env=env)
    assert not cluster.wait_gone()
    return done.returncode, done.stdout, done.stderr


def ranks(path: Path, *words: str) -> list[str]:
    # Not every launcher hands the environment on.
    return ["env", f"PYTHONPATH={machine.ROOT}", str(FRAMEWORKS / "python"), str(path), *words]


def further(*given: object) -> Any:
    """Return parameters that are left out by default: each job takes seconds of CPU time."""
    return pytest.param(*given, marks=pytest.mark.clusters)


def expected(*nodes: str) -> str:
    """Return what the example prints where its workers are on these nodes."""
    return f"sum 328350\nworkers on {[*nodes]}\n"


@pytest.mark.parametrize(
    ("launcher", "nodes"),
    [
        further("pypmix run", 1),
        ("pypmix run", 2),
        ("prterun", 1),
        further("prterun", 2),
        further("mpirun", 1),
        ("mpirun", 2),
    ],
)
def test_the_example(cluster: Cluster, launcher: str, nodes: int) -> None:
    start = list(RUN) if launcher == "pypmix run" else launcher_command(launcher)
    if launcher == "prterun":
        # It takes the cores that there are for as many ranks as fit.
        start += ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
    hosts = ["--host", ",".join(f"n{number}:{5 if nodes == 1 else 2 + number % 2}" for number in range(1, nodes + 1))]
    _, out, _ = run(cluster, *start, *hosts, "-n", "5", *ranks(EXAMPLE))
    assert out == (expected("n1", "n1", "n1") if nodes == 1 else expected("n1", "n2", "n2"))


@pytest.mark.parametrize("nodes", [further(1), 2])
def test_the_example_under_slurm(cluster: Cluster, nodes_with_slurm: Slurm, nodes: int) -> None:
    # A node has four CPUs, which are taken in turn.
    where = ["-wn1", "-N1", "--overcommit"] if nodes == 1 else ["-wn1,n2", "-N2", "--distribution=block"]
    start = ["srun", "--mpi=pmix", *where, "-n5"]
    _, out, _ = run(cluster, *start, *ranks(EXAMPLE), env=nodes_with_slurm.environment)
    assert out == (expected("n1", "n1", "n1") if nodes == 1 else expected("n1", "n1", "n2"))


def test_too_few_ranks(cluster: Cluster) -> None:
    code, _, err = run(cluster, *RUN, "-n", "2", *ranks(EXAMPLE), check=False)
    assert code == 1 and "needs 3 ranks or more, for scheduler, client, workers: this job has 2" in err, err


@pytest.mark.parametrize("what", ["scheduler", further("client"), further("workers"), "early"])
def test_what_is_needed_fails(cluster: Cluster, what: str) -> None:
    """It is an error, even where the launcher goes on without ranks that fail."""
    code, out, err = run(cluster, *RUN, "-n", "4", "--keep-going", *ranks(FAULTS, what), check=False)
    assert code and "result" not in out, f"{out}\n{err}"
    if what == "early":
        # Others learn of it by the call that waits for it, or by the event, whichever comes first.
        assert "PartialSuccess" in err or "the scheduler of the Dask cluster has failed" in err, f"{out}\n{err}"
    else:
        role = {"workers": "last worker"}.get(what, what)
        assert f"the {role} of the Dask cluster has failed" in err, f"{out}\n{err}"


def test_a_rank_does_not_come(cluster: Cluster) -> None:
    code, out, err = run(cluster, *RUN, "-n", "4", *ranks(FAULTS, "late"), check=False)
    assert code and "result" not in out, f"{out}\n{err}"
    assert re.search(r"OperationTimeout: .* still missing: rank 2\b", err), err


def test_a_worker_fails_before_it_is_one(cluster: Cluster) -> None:
    """It is not waited for."""
    code, out, err = run(cluster, *RUN, "-n", "4", "--keep-going", *ranks(FAULTS, "between"), check=False)
    assert code and out == "ready\nresult 45\n", f"{out}\n{err}"


def test_a_worker_fails(cluster: Cluster) -> None:
    """The launcher ends the job; told not to, Dask goes on with the other one, and all end with the script."""
    code, out, err = run(cluster, *RUN, "-n", "4", *ranks(FAULTS, "worker"), check=False)
    assert code and "killed by signal 9" in err, f"{out}\n{err}"
    code, out, err = run(cluster, *RUN, "-n", "4", "--keep-going", *ranks(FAULTS, "worker"), check=False)
    assert code and out == "ready\nresult 45\n", f"{out}\n{err}"
