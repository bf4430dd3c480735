"""Debuggers on the ranks of several machines: `pypmix attach` to a rank that runs, and `pypmix run --debug`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lib import machine
from lib.cluster import Cluster

PYPMIX = (sys.executable, "-m", "pypmix")
ENV = {"PYTHONPATH": str(machine.ROOT), "PYTHONUNBUFFERED": "1"}
LIMIT = 60.0

WAITS = """
import os, time
from pypmix import Client
with Client() as me:
    me.fence(timeout=30)
    print("ready", me.rank, os.getpid(), flush=True)
    while not os.path.exists("end"):
        time.sleep(0.02)
"""

STANDIN = """
rank=$(tr '\\0' '\\n' < /proc/$1/environ | sed -n 's/^PMIX_RANK=//p')
read line
echo "on $(uname -n): rank $rank, pid $1: $line"
exit 3
"""
"""Stands for a debugger: it looks into the process whose pid it gets, and reads a line."""

RANK = """
import os
import pypmix
if os.environ["PMIX_RANK"] == "1":
    open("begun", "w").close()
with pypmix.Client() as me:
    waited = os.path.exists("begun")
    print("rank", me.rank, "on", me.node.hostname, waited, flush=True)
    me.fence(timeout=30)
"""

TYPED = """\
print("begun", __import__("os").path.exists("begun"))
b 8
c
print("rank", me.rank, "has", waited)
c
q
"""
"""What a person types: pdb stops before the first line, and at the line that prints."""


class Machines:
    """Commands on the machines of a cluster."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self._cluster = cluster
        self.folder = folder
        self.started: list[Any] = []

    def start(self, node: str, *words: str) -> Any:
        """Start a `pypmix` command on a node."""
        pipe = subprocess.PIPE
        command = (*PYPMIX, *words)
        process = self._cluster[node].start(*command, env=ENV, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.folder)
        self.started.append(process)
        return process


@pytest.fixture
def machines(cluster: Cluster, tmp_path: Path) -> Iterator[Machines]:
    found = Machines(cluster, tmp_path)
    yield found
    for process in found.started:
        if process.poll() is None:
            process.kill()
        process.communicate(timeout=LIMIT)
    assert cluster.wait_gone() == ""


@pytest.mark.parametrize(("caller", "rank"), [("n1", 1), ("n1", 0), ("n2", 0), ("n2", 1)])
def test_a_debugger_is_attached_to_a_rank_of_any_machine(machines: Machines, caller: str, rank: int) -> None:
    (machines.folder / "standin").write_text(STANDIN)
    job = machines.start("n1", "run", "--host", "n1:1,n2:1", "-n", "2", sys.executable, "-c", WAITS)
    lines = [job.stdout.readline().split() for _ in range(2)]
    pids = {int(number): pid for _, number, pid in lines}
    attached = machines.start(caller, "attach", str(rank), "--debugger", f"sh {machines.folder}/standin")
    out, err = attached.communicate("a line\n", timeout=LIMIT)
    node = f"n{rank + 1}"
    assert (attached.returncode, out) == (3, f"on {node}: rank {rank}, pid {pids[rank]}: a line\n"), err
    assert ("without a terminal" in err) == (caller != node)
    # The job goes on.
    assert job.poll() is None
    (machines.folder / "end").touch()
    _, err = job.communicate(timeout=LIMIT)
    assert job.returncode == 0, err


def test_pdb_on_a_rank_of_another_machine(machines: Machines) -> None:
    (machines.folder / "rank.py").write_text(RANK)
    words = ("--host", "n1:1,n2:1", "-n", "2", "--debug", "1", sys.executable, "rank.py")
    job = machines.start("n1", "run", *words)
    out, err = job.communicate(TYPED, timeout=LIMIT)
    assert job.returncode == 0 and "(Pdb) begun False" in out, (out, err)
    # Rank 0 has waited in `PMIx_Init`, while rank 1 was before its first line.
    assert "rank 0 on n1 True" in out and "rank 1 has True" in out and "rank 1 on n2 True" in out
