"""Nodes that do not answer, or do not reach each other: one line names the node, and the job ends with an exit code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from lib.cluster import Cluster, Node

LIMIT = 90.0
"""Seconds for a run: far more than its own time limits, far less than the limits that must not matter."""

LONG = "600"
"""A time limit that must not matter."""

RANK = "import time, pypmix; me = pypmix.Client().open(); print('up', flush=True); time.sleep(600)"

Begin = Callable[..., "Session"]


class Session:
    """A job with a rank on each of three nodes."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def wait_until_up(self) -> None:
        assert self.process.stdout is not None
        for _ in range(3):
            assert self.process.stdout.readline() == "up\n", self.end()

    def end(self) -> tuple[int, list[str]]:
        """Return the exit code of the launcher, and its lines but for the list of nodes."""
        _, err = self.process.communicate(timeout=LIMIT)
        return self.process.returncode, [line for line in err.splitlines() if " by ssh" not in line]


@pytest.fixture
def begin(cluster: Cluster) -> Iterator[Begin]:
    """Return a function that starts a job by options of `pypmix run`."""
    started: list[subprocess.Popen[str]] = []

    def start(*options: str, rank: str = RANK) -> Session:
        command = [sys.executable, "-m", "pypmix", "run", "--host", "n1,n2,n3", "-n", "3", "--map-by", "node", *options]
        pipes: dict[str, Any] = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
        line = [*command, sys.executable, "-c", rank]
        started.append(cluster["n1"].start(*line, env={"PYTHONPATH": os.getcwd()}, **pipes))
        return Session(started[-1])

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()


def stop_all(found: Sequence[Any]) -> None:
    for each in found:
        os.kill(each.pid, signal.SIGSTOP)


def continue_all(found: Sequence[Any]) -> None:
    for each in found:
        try:
            os.kill(each.pid, signal.SIGCONT)
        except ProcessLookupError:
            continue


def daemons(node: Node) -> list[Any]:
    return [each for each in node.processes() if each.command.endswith("-m pypmix node")]


EXCHANGES = """
import time
import pypmix

with pypmix.Client() as me:
    me.put("acme.rank", me.rank)
    if me.rank:
        me.fence(me.job.procs[1:], timeout=60)
    me.fence(collect=True, timeout=60)
    print(sum(me.get("acme.rank", proc=proc, timeout=60) for proc in me.job.procs), flush=True)
    time.sleep(600)
"""


def test_nodes_that_never_reach_each_other_work_through_the_launcher(begin: Begin, cluster: Cluster) -> None:
    """It warns after the time limit of a node; the time of the keep-alive has nothing to do with it."""
    cluster.cut("n2", "n3")
    try:
        process = begin("--node-timeout", "3", "--keep-alive", LONG, rank=EXCHANGES).process
        assert process.stdout is not None and process.stderr is not None
        assert [process.stdout.readline() for _ in range(3)] == ["3\n"] * 3
        lines = [process.stderr.readline() for _ in range(2)]
    finally:
        cluster.mend("n2", "n3")
    assert re.search(r"n[23] has not reached n[23] .*; their messages pass through this process", lines[1]), lines
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT)


def test_a_node_whose_ssh_never_answers(begin: Begin, cluster: Cluster) -> None:
    stop_all(cluster["n3"].services)
    try:
        code, lines = begin("--node-timeout", "3", "--keep-alive", LONG).end()
    finally:
        continue_all(cluster["n3"].services)
    assert code == 1 and lines[0] == "pypmix run: n3 did not join within 3 s", lines
    assert len(lines) == 2 and lines[1].startswith("n3: its daemon does not answer; try `ssh "), lines


def test_nodes_that_no_longer_reach_each_other(begin: Begin, cluster: Cluster) -> None:
    session = begin("--keep-alive", "6", "--node-timeout", LONG)
    session.wait_until_up()
    cluster.cut("n2", "n3")
    code, lines = session.end()
    cluster.mend("n2", "n3")
    assert code == 137 and len(lines) == 1, lines
    assert "was lost with node n3" in lines[0] and "it has no connection with n2" in lines[0], lines


@pytest.mark.parametrize("hit", ["its daemon is stopped", "its link is down"])
def test_a_node_that_no_longer_answers(begin: Begin, cluster: Cluster, hit: str) -> None:
    session = begin("--keep-alive", "6", "--node-timeout", LONG)
    session.wait_until_up()
    stopped = daemons(cluster["n3"]) if "stopped" in hit else []
    assert stopped or "link" in hit
    stop_all(stopped)
    if not stopped:
        cluster.link_down("n3")
    code, lines = session.end()
    continue_all(stopped)
    cluster.link_up("n3")
    assert code == 137 and len(lines) == 1, lines
    assert "was lost with node n3" in lines[0] and "has not answered for" in lines[0], lines
