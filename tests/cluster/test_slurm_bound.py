"""A Slurm step that binds its tasks, each of which is the daemon of a node: ranks stay within the CPUs of these."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lib import machine, slurm
from lib.command import LIMIT, Command
from lib.slurm import Cluster

CPUS = sorted(os.sched_getaffinity(0))
LAST = CPUS[-1]

WHERE = """
import os
from pypmix import Client
from pypmix.topology.bitmaps import bitmap, format_list
with Client() as me:
    me.fence(timeout=20)
    cpus = format_list(bitmap(os.sched_getaffinity(0)))
    found = [me.get(key, default=None) for key in ("pmix.cpuset", "pmix.bindto")]
    print(me.rank, me.node.hostname, cpus, *found, flush=True)
"""

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A Slurm that binds tasks."""
    if reason := slurm.lacking():
        machine.lacking(reason)
    found = Cluster(tmp_path_factory.mktemp("slurm"), binds=True)
    try:
        found.start()
        yield found
    finally:
        found.stop()


def step(command: Command, cluster: Cluster, *words: object) -> tuple[int, list[str], str]:
    """Run the same command on both nodes, in a step whose tasks are bound to the last CPU."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        meeting = f"127.0.0.1:{free.getsockname()[1]}"
    line = [*cluster.command(2), "--mpi=none", "--ntasks-per-node=1", f"--cpu-bind=map_cpu:{LAST}", sys.executable]
    line += ["-m", "pypmix", "run", "--meet", meeting, "--report-bindings", *map(str, words)]
    done = subprocess.run(
        [*line, sys.executable, "-c", WHERE],
        env={**command.environment, "PYPMIX_MUNGE_SOCKET": str(cluster.folder / "munge.socket")},
        cwd=command.folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT,
        check=False,
    )
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


def bindings(err: str) -> list[str]:
    """Return what `--report-bindings` prints about ranks, without their places in packages."""
    return re.findall(r"rank \d+ on \S+: (not bound|.*(?=CPUs)CPUs .*)", err)


def test_the_default_binds_within_the_step(command: Command, cluster: Cluster) -> None:
    code, out, err = step(command, cluster, "-n", 1)
    assert (code, out) == (0, [f"0 sn1 {LAST} {LAST} CORE"]), err
    assert [text.rpartition(" ")[2] for text in bindings(err)] == [str(LAST)], err


def test_ranks_that_outnumber_the_cores_of_a_step_stay_within_it(command: Command, cluster: Cluster) -> None:
    code, out, err = step(command, cluster, "-n", 4, "--map-by", "node:oversubscribe")
    assert (code, out) == (0, [f"{rank} sn{rank % 2 + 1} {LAST} None NONE" for rank in range(4)]), err
    assert bindings(err) == ["not bound"] * 4


@pytest.mark.parametrize("level", ["core", "package", "hwthread"])
def test_a_binding_is_not_wider_than_the_step(command: Command, cluster: Cluster, level: str) -> None:
    words = ("--map-by", "node:oversubscribe", "--bind-to", f"{level}:overload-allowed")
    code, out, err = step(command, cluster, "-n", 4, *words)
    told = f"{LAST} {LAST} {level.upper()}:OVERLOAD-ALLOWED"
    assert (code, out) == (0, [f"{rank} sn{rank % 2 + 1} {told}" for rank in range(4)]), err
    assert [text.rpartition(" ")[2] for text in bindings(err)] == [str(LAST)] * 4, err


def test_what_does_not_fit_into_the_step_is_refused(command: Command, cluster: Cluster) -> None:
    code, out, err = step(command, cluster, "-n", 4, "--map-by", "node:oversubscribe", "--bind-to", "core")
    assert code
    assert not out
    assert "there are too few cores on sn" in err
