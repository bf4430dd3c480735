"""`pypmix run` in a job of a Slurm that has no PMIx plugin: inside of salloc and sbatch, and as a step."""

from __future__ import annotations

import pytest

from lib import provision_roots
from lib.cluster import Cluster
from lib.slurm_nodes import Slurm
from trixie.conftest import CGROUP, RUN, Ran

pytestmark = pytest.mark.timeout(150)

PROGRAM = """\
import pypmix
with pypmix.Client() as me:
    me.put("rank", me.rank)
    me.fence(collect=True)
    total = sum(me.get("rank", proc=proc) for proc in me.job.procs)
    with me.group("all", me.job.procs, context_id=True) as group:
        print(me.rank, me.job.size, me.node.hostname, total, len(group.members), flush=True)
"""
BY_SLOT = ["0 4 n1 6 4", "1 4 n1 6 4", "2 4 n2 6 4", "3 4 n2 6 4"]
BY_NODE = ["0 4 n1 6 4", "1 4 n2 6 4", "2 4 n1 6 4", "3 4 n2 6 4"]


@pytest.fixture(scope="module")
def slurm(trixie: Cluster, root: provision_roots.Root) -> Slurm:
    """Slurm on the nodes, with all of its plugins but that for PMIx."""
    folder = trixie.folder / "plugins"
    folder.mkdir()
    for path in (root.folder / root.plugins.lstrip("/")).iterdir():
        if not path.name.startswith("mpi_pmix"):
            (folder / path.name).symlink_to(f"{root.plugins}/{path.name}")
    return Slurm(trixie, CGROUP, str(folder)).start()


def test_it_is_a_newer_slurm_without_the_plugin(ran: Ran, root: provision_roots.Root) -> None:
    assert ran("srun", "--version").stdout.split() == ["slurm-wlm", root.slurm]
    assert root.slurm.startswith("24.")
    listed = ran("srun", "--mpi=list")
    assert "pmix" not in listed.stdout + listed.stderr


def test_an_allocation(ran: Ran) -> None:
    words = ("salloc", "--quiet", "-N2", "--ntasks-per-node=2", *RUN, "-n", "4", "python3", "-c", PROGRAM)
    done = ran(*words)
    assert sorted(done.stdout.splitlines()) == BY_SLOT
    assert ": n1 (2), n2 (2)\n" in done.stderr


def test_a_batch_job(ran: Ran, trixie: Cluster, slurm: Slurm) -> None:
    script, out = trixie.folder / "script", trixie.folder / "out"
    program = trixie.folder / "program.py"
    program.write_text(PROGRAM)
    script.write_text(f"#!/bin/sh\n{' '.join(RUN)} -n 4 python3 {program}\n")
    ran("sbatch", "--wait", "-N2", "--ntasks-per-node=2", f"--output={out}", str(script))
    lines = [line for line in out.read_text().splitlines() if not line.startswith("pypmix run: ")]
    assert sorted(lines) == BY_SLOT


def test_a_step_with_one_task_on_each_node(ran: Ran) -> None:
    options = ("--map-by", "node", "-n", "4")
    done = ran("srun", "-N2", "--ntasks-per-node=1", "--cpus-per-task=2", *RUN, *options, "python3", "-c", PROGRAM)
    assert sorted(done.stdout.splitlines()) == BY_NODE
    assert "pypmix run: task 0 of 2 of Slurm job" in done.stderr


def test_an_exit_code(ran: Ran, slurm: Slurm) -> None:
    words = ("-n", "4", "sh", "-c", "test $PMIX_RANK != 3 || exit 9; sleep 60")
    done = ran("salloc", "--quiet", "-N2", "--ntasks-per-node=2", *RUN, *words, check=False)
    assert done.returncode == 9, done.stderr
    slurm.settle()


def test_nothing_is_left(trixie: Cluster, slurm: Slurm) -> None:
    slurm.settle()
    assert trixie.wait_gone() == ""
