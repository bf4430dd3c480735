"""Machines with a firewall that lets only the engine's own ports be reached: messages go over its connections."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from lib import machine
from lib.cluster import Cluster
from lib.framework_clusters import DRIVER, FRAMEWORKS, Dask, Framework, Ray, opened
from lib.processes import children

pytestmark = pytest.mark.timeout(500)

SAID = r"^n\d does not reach (n\d|this program) at .*: messages go over the connections of (Dask|Ray)$"
SILENCE = 30.0
"""Seconds after which a launcher is lost that says nothing."""


@pytest.fixture(scope="module", params=[Dask, pytest.param(Ray, marks=pytest.mark.clusters)])
def apart(
    request: pytest.FixtureRequest, frameworks: None, three_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Framework]:
    """A cluster of an engine on machines that a firewall parts."""
    found: Framework = request.param(three_nodes, tmp_path_factory.mktemp("apart"))
    found.wall()
    yield from opened(found)


def run(apart: Framework, what: str) -> tuple[str, str]:
    """Run the driver; return what it has printed, and what it has written to standard error."""
    process = apart.begin(DRIVER, apart.kind, apart.address, what)
    try:
        out, err = process.communicate(timeout=200)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"no end\n{apart.cluster.report()}\n{process.communicate()}") from None
    assert process.returncode == 0, f"{out}\n{err}\n{apart.logs()}"
    apart.gone(60.0)
    return out, err


def test_values_and_groups(apart: Framework) -> None:
    """The nodes are tried once, and one line says what comes of it."""
    out, err = run(apart, "calls")
    returned = eval(re.findall(r"^returned (.*)$", out, re.MULTILINE)[0])
    assert [each[:4] for each in returned] == [(rank, 3, [0, 10, 20, 30, 40, 50], 6) for rank in range(6)]
    assert {each[4] for each in returned} == {"n1", "n2", "n3"}
    assert "raised 'what rank 1 lacks' | rank 1 of 6 failed: | KeyError: 'what rank 1 lacks'\n" in out
    assert len(re.findall(SAID, err, re.MULTILINE)) == 1, err


def test_events_and_jobs_that_are_spawned(apart: Framework) -> None:
    out, err = run(apart, "meets")
    assert out.count("load 0.75\n") == 6, f"{out}\n{err}"
    together = sorted(re.findall(r"^together (\d) (n\d)$", out, re.MULTILINE))
    assert [number for number, _ in together] == list("01234567"), f"{out}\n{err}"
    assert {name for _, name in together[6:]} == {"n2", "n3"}
    assert "outcome 0 \n" in out


def test_a_worker_is_killed(apart: Framework) -> None:
    process = apart.waiting("n3")
    apart.cluster.kill(apart.find("n3", "dask worker|ray::_Actor"))
    try:
        out, err = process.communicate(timeout=100)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"no end\n{apart.cluster.report()}\n{process.communicate()}") from None
    lost = re.findall(r"without (\[.*\])\n", out)
    assert len(lost) == 4 and len(set(lost)) == 1, f"{out}\n{err}"
    assert re.search(r"outcome [1-9]\d* .*n3", out), f"{out}\n{err}"
    assert "left 4\n" in out, f"the others cannot be used after it\n{out}\n{err}"
    apart.gone(60.0)
    if isinstance(apart, Dask):
        apart.add(apart.cluster["n3"])
        apart.complete()


def test_the_users_program_is_killed(apart: Framework) -> None:
    """Nothing tells the daemons of it but its silence."""
    process = apart.waiting("n3")
    process.kill()
    process.communicate()
    apart.gone(SILENCE + 30.0)


def test_the_users_program_is_killed_while_its_daemons_start(apart: Framework) -> None:
    """Nobody waits for them yet; and their parents, which stay, are not left with what has ended."""
    parents = [apart.find(node.name, "dask worker|raylet/raylet") for node in apart.cluster]
    before = {each.pid for parent in parents for each in children(parent.pid)}
    process = apart.begin(DRIVER, apart.kind, apart.address, "waits", "n3")
    apart.cluster.until("a daemon", lambda: [each for each in apart.ours() if each.command.endswith("-m pypmix node")])
    process.kill()
    process.communicate()
    apart.gone(SILENCE + 30.0)
    if isinstance(apart, Dask):

        def left() -> set[int]:
            return {each.pid for parent in parents for each in children(parent.pid)} - before

        apart.cluster.until("the end of all", lambda: not left())


def test_messages_go_over_a_cluster_with_tls(frameworks: None) -> None:
    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    command = [FRAMEWORKS / "python", DRIVER, "dask", "tls", "switched"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("returned [(0, 3, [0, 10], 2,") == 1
