"""Signals that Slurm sends to a job of `pypmix run` on two nodes: they reach each rank once, and end nothing else."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from signal import Signals

import pytest

from lib.cluster import Cluster
from lib.slurm_nodes import Slurm

RANK = """
import os, signal, sys, time
from pypmix import Client
folder, saving = sys.argv[1], float(sys.argv[2])
with Client() as me:
    def take(number, _):
        with open(f"{folder}/got.{me.rank}", "a") as file:
            file.write(f"{number}\\n")
        if number == signal.SIGTERM:
            time.sleep(saving)
            # The servers are still there for what ranks do together.
            me.fence(timeout=5)
            open(f"{folder}/saved.{me.rank}", "w").write("saved\\n")
            os._exit(0)
    for number in (1, 10, 12, 14, 15, 24, 29, 37):
        signal.signal(number, take)
    me.fence()
    open(f"{folder}/up.{me.rank}", "w").write("up\\n")
    while not os.path.exists(f"{folder}/end"):
        time.sleep(0.02)
"""

SECONDS = 60.0


class Batch:
    """A job of Slurm that runs `pypmix run` with four ranks on two nodes."""

    def __init__(
        self,
        cluster: Cluster,
        slurm: Slurm,
        folder: Path,
        options: str = "-N2 --ntasks-per-node=2",
        saving: float = 0.0,
        run: str = "",
        by: str = "",
    ) -> None:
        self._cluster = cluster
        self._slurm = slurm
        self.folder = folder
        program, script = folder / "rank.py", folder / "job.sh"
        program.write_text(RANK)
        line = f"{by} {sys.executable} -m pypmix run {run} -n 4 {sys.executable} {program} {folder} {saving}"
        script.write_text(f"#!/bin/sh\n{line}\necho $? >{folder}/code\n")
        words = ["sbatch", "--parsable", f"--output={folder}/said", *options.split()]
        self.number = self.ask(*words, str(script)).strip()
        self.until("all ranks", lambda: len(list(folder.glob("up.*"))) == 4)

    def ask(self, *command: str) -> str:
        return self._cluster["n1"].run(*command, env=self._slurm.environment).stdout

    def until(self, what: str, there: object) -> None:
        deadline = time.monotonic() + SECONDS
        while not there():  # type: ignore[operator]
            assert time.monotonic() < deadline, f"{what}\n{self.said()}\n{self._cluster.report()}"
            time.sleep(0.05)

    def said(self) -> str:
        path = self.folder / "said"
        return path.read_text() if path.exists() else ""

    def got(self, rank: int) -> Counter[int]:
        path = self.folder / f"got.{rank}"
        return Counter(map(int, path.read_text().split())) if path.exists() else Counter()

    def have(self, number: int) -> bool:
        return all(self.got(rank)[number] for rank in range(4))

    def guards(self) -> list[str]:
        found = [process for node in self._cluster for process in node.processes()]
        return [process.command for process in found if "pypmix-guard" in process.command]

    def over(self) -> None:
        self.until("the end of the job", lambda: not self.ask("squeue", "-h", "-j", self.number, "-o", "%A").strip())

    def code(self) -> str:
        self.until("the end of the script", (self.folder / "code").exists)
        return (self.folder / "code").read_text().strip()


def test_signals_to_the_step(cluster: Cluster, nodes_with_slurm: Slurm, tmp_path: Path) -> None:
    job = Batch(cluster, nodes_with_slurm, tmp_path)
    # One for the launcher, and one for each daemon.
    assert len(job.guards()) == 3
    numbers = (Signals.SIGUSR1, Signals.SIGUSR2, Signals.SIGALRM, Signals.SIGXCPU, Signals.SIGIO, 37)
    for number in numbers:
        job.ask("scancel", f"--signal={int(number)}", job.number)
        job.until(f"signal {number}", lambda number=number: job.have(number))
    assert len(job.guards()) == 3
    (tmp_path / "end").touch()
    assert job.code() == "0", job.said()
    assert [job.got(rank) for rank in range(4)] == [Counter(numbers)] * 4


def test_a_warning_before_the_time_limit(cluster: Cluster, nodes_with_slurm: Slurm, tmp_path: Path) -> None:
    job = Batch(cluster, nodes_with_slurm, tmp_path, "-N2 --ntasks-per-node=2 --time=1 --signal=USR2@55")
    job.until("the warning", lambda: job.have(Signals.SIGUSR2))
    (tmp_path / "end").touch()
    assert job.code() == "0", job.said()
    assert [job.got(rank) for rank in range(4)] == [Counter([Signals.SIGUSR2])] * 4


WAYS = {
    "an allocation": ("-N2 --ntasks-per-node=2", ""),
    "a step with one task on each node": ("-N2 --ntasks-per-node=1 --cpus-per-task=2", "srun --cpus-per-task=2"),
    # Slurm kills the batch step when its shell has ended, as SIGTERM ends it.
    "one node": ("-N1 --ntasks=4", "exec"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_is_cancelled_has_the_time_that_slurm_gives(
    cluster: Cluster, nodes_with_slurm: Slurm, tmp_path: Path, way: str
) -> None:
    """KillWait is longer than the grace; each rank is sent SIGTERM once, and can still use its server."""
    options, by = WAYS[way]
    job = Batch(cluster, nodes_with_slurm, tmp_path, options, 4.0, "--grace 0.5", by)
    job.ask("scancel", job.number)
    job.over()
    assert sorted(path.name for path in tmp_path.glob("saved.*")) == [f"saved.{rank}" for rank in range(4)], job.said()
    assert [job.got(rank) for rank in range(4)] == [Counter([Signals.SIGTERM])] * 4
