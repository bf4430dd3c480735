"""Five faults of a node, over one to three nodes that are started by ssh or by hand: what a person and a shell get.

The job ends within the time of the keep-alive, or of a node that does not join, with an exit code and one line that
names the node; nothing is left on any node. All other time limits are far longer than the test's own.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from lib.cluster import Cluster
from lib.job import Job
from lib.node_runs import RUN, Runner, Started

RANK = "import time, pypmix; me = pypmix.Client().open(); me.fence(); print('up', flush=True); time.sleep(600)"

LIMIT = 100.0
"""Seconds for a run: several times the limits that are to end it."""

KEEP_ALIVE = 8
JOIN = 20
"""The limits that are to end a run, in seconds."""

GONE = 60.0
"""Seconds in which the other machines' processes notice that it is over, once they run and are reached again."""

CELLS = (
    ("ssh", ("n2",)),
    ("ssh", ("n2", "n3")),
    ("ssh", ("n1", "n2", "n3")),
    ("symmetric", ("n1", "n2")),
    ("symmetric", ("n1", "n2", "n3")),
)
"""The ways to start, and the nodes with a rank each; the launcher is on `n1`."""


class Fault(NamedTuple):
    """A fault, and what the launcher prints about it.

    Attributes:
        name: What is hit: the last node, or its way to others.
        text: The reason in the line about the lost node.
    """

    name: str
    text: str


HANGS = Fault("its daemon hangs", "it has not answered for")
STOPPED = Fault("it is stopped", "it has not answered for")
LINK = Fault("its link is down", "it has not answered for")
PAIR = Fault("another node does not reach it", "it has no connection with n2")
FAULTS = (HANGS, STOPPED, LINK, PAIR)


def cells(*faults: Fault) -> pytest.MarkDecorator:
    """Repeat a test for all ways, nodes and faults; two nodes apart from the launcher's make a pair."""
    found = [
        pytest.param(way, nodes, fault, id=f"{way}-{len(nodes)}-{fault.name}".replace(" ", "-"))
        for way, nodes in CELLS
        for fault in faults
        if fault is not PAIR or {"n2", "n3"} <= {*nodes}
    ]
    return pytest.mark.parametrize(("over", "nodes", "fault"), found, indirect=["over"])


@pytest.fixture
def hit(cluster: Cluster) -> Iterator[Hit]:
    """Return what hits nodes; everything runs and is reached again after the test."""
    found = Hit(cluster)
    yield found
    found.undo()


class Hit:
    """Hits a node, and undoes that."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stopped: list[int] = []

    def __call__(self, fault: Fault, name: str) -> None:
        found = self._cluster[name].processes()
        if fault is HANGS:
            found = [each for each in found if each.command.startswith((f"{RUN[0]} -m pypmix node", " ".join(RUN)))]
        if fault is LINK:
            self._cluster.link_down(name)
        elif fault is PAIR:
            self._cluster.cut("n2", name)
        else:
            assert found, self._cluster.report()
            self._stopped = [each.pid for each in found]
            for each in found:
                self._cluster.stop(each)

    def undo(self) -> None:
        for pid in self._stopped:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        for name in ("n2", "n3"):
            self._cluster.link_up(name)
        with contextlib.suppress(AssertionError):
            # There are no such entries unless the two were cut.
            self._cluster.mend("n2", "n3")


def begin(over: Runner, nodes: tuple[str, ...]) -> Started:
    options = ["--map-by", "node", "--keep-alive", str(KEEP_ALIVE), "--node-timeout", str(JOIN)]
    return over.begin(len(nodes), sys.executable, "-c", RANK, options=options, nodes=nodes, first="n1", limit=LIMIT)


def lines_of(job: Job) -> list[str]:
    """Return what the launcher printed, but for the nodes and the meeting that it names at the start."""
    starts = " by ssh", " on this machine", "which meet at"
    lines = [line for line in job.stderr.splitlines() if not any(start in line for start in starts)]
    return [line.removeprefix("pypmix run: ") for line in lines]


def end(over: Runner, started: Started, hit: Hit) -> Job:
    job = started.launcher.wait()
    hit.undo()
    for process in started.others:
        process.wait(GONE)
    left = over.cluster.wait_gone(GONE)
    assert not job.hung and left == "", f"{left}\n{job.report()}"
    return job


@pytest.mark.timeout(300)
@cells(*FAULTS)
def test_a_node_that_is_hit_while_a_job_runs(
    over: Runner, nodes: tuple[str, ...], fault: Fault, cluster: Cluster, hit: Hit
) -> None:
    started = begin(over, nodes)
    over.until_said(started, "up", len(nodes))
    hit(fault, nodes[-1])
    job = end(over, started, hit)
    lines = lines_of(job)
    assert job.exit_code == 137 and len(lines) == 1, job.report()
    assert f"was lost with node {nodes[-1]}: " in lines[0] and fault.text in lines[0], job.report()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("over", "nodes"), CELLS, indirect=["over"], ids=[f"{way}-{len(nodes)}" for way, nodes in CELLS]
)
def test_a_node_that_is_not_reached_from_the_start(
    over: Runner, nodes: tuple[str, ...], cluster: Cluster, hit: Hit
) -> None:
    cluster.link_down(nodes[-1])
    job = end(over, begin(over, nodes), hit)
    lines = lines_of(job)
    assert job.exit_code == 1, job.report()
    if over.way == "ssh":
        # The second line is advice.
        assert len(lines) == 2 and all(line.startswith(f"{nodes[-1]}: ") for line in lines), job.report()
    else:
        # Nobody knows its name: its place is the last one.
        come, place = len(nodes) - 2, len(nodes) - 1
        assert lines == [f"{come} of the {place} other processes have come, without {place} (port 7777)"], job.report()
