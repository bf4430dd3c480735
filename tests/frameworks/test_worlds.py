"""Worlds of MPI over workers of Dask and actors of Ray, on three machines: one after the other, and with faults."""

from __future__ import annotations

import re
import subprocess
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import machine
from lib.cluster import Cluster
from lib.framework_clusters import Dask, Framework, Ray, opened

EXAMPLES = machine.ROOT / "docs" / "examples" / "frameworks"
DRIVER = str(Path(__file__).with_name("worlds.py"))
SECONDS = 200.0

pytestmark = [pytest.mark.timeout(500), pytest.mark.clusters]

BOTH = pytest.mark.parametrize("framework", [Dask, Ray], indirect=True)


@pytest.fixture(scope="module")
def framework(
    request: pytest.FixtureRequest, frameworks: None, three_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Framework]:
    """A cluster with four workers, two of them on one machine."""
    for found in opened(request.param(three_nodes, tmp_path_factory.mktemp("worlds"))):
        if isinstance(found, Dask):
            found.add(three_nodes["n1"], "-more")
            found.complete(4)
        yield found


def run(framework: Framework, what: str) -> dict[str, list[str]]:
    """Run the driver; return what it has printed by the first word of each line."""
    found: dict[str, list[str]] = {}
    for line in framework.run(DRIVER, framework.kind, framework.address, what).splitlines():
        word, _, rest = line.partition(" ")
        found.setdefault(word, []).append(rest)
    return found


@BOTH
def test_worlds_one_after_the_other(framework: Framework) -> None:
    """The same workers are in both, and MPI stays from one call to the next."""
    found = run(framework, "twice")
    pids = []
    for turn in range(2):
        for factor in (10, 100):
            number, _, text = found["totals"].pop(0).partition(" ")
            results = literal_eval(text)
            assert int(number) == turn
            assert [each[:4] for each in results] == [(rank, 4, 6 * factor, turn) for rank in range(4)]
            assert {each[4] for each in results} == {"n1", "n2", "n3"}
            pids.append([each[5] for each in results])
        assert pids[2 * turn] == pids[2 * turn + 1], "ranks stay"
    assert found["sessions"] == ["[4, 4, 4, 4] [4, 4, 4, 4]"] * 2
    assert found["same"] == ["True"]


@BOTH
def test_the_example(framework: Framework) -> None:
    out = framework.run(str(EXAMPLES / f"{framework.kind}_world.py"), framework.address)
    name = " Actor" if framework.kind == "ray" else ""
    wanted = f"totals [60, 60, 60, 60]{name}\ntotals [600, 600, 600, 600]{name}\n"
    assert out.startswith(wanted)
    assert framework.kind == "ray" or out.removeprefix(wanted) == "totals of a task [21, 21, 21]\n"


@BOTH
def test_functions_fail(framework: Framework) -> None:
    """Each ends its world with an error, and no other one."""
    found = run(framework, "faults")
    assert found["fails"] == ["raised 'what rank 1 lacks' | rank 1 of 4 failed:"]
    # Others are told of the loss in their fence, and may end of that before it is known how rank 1 has ended. Their
    # fence may also be one that has begun without it, and misses one that was ended then.
    assert re.search(r"refused .*(rank 1 .*exited with code 3|still missing: \S+:[123]$)", found["leaves"][0]), found
    assert len(found["after"]) == 2 and all("the world has ended: " in line for line in found["after"]), found
    assert found["waits"] == ["late [0, 1, 2, 3]"]
    assert found["members"] == [str([(rank, 4, "word") for rank in range(4)])]
    assert framework.kind == "dask" or found["others"] == ["a world needs actors of Ray, not 'an actor'"]


@BOTH
def test_a_worker_is_lost(framework: Framework) -> None:
    """What runs in its world is an error that names it; the workers that are left can be used."""
    process = framework.begin(DRIVER, framework.kind, framework.address, "lost")
    assert process.stdout is not None
    ready = 0
    while ready < 4:
        line = process.stdout.readline()
        assert line, f"{process.communicate()}\n{framework.logs()}"
        ready += line.startswith("ready")
    pattern = "dask worker" if framework.kind == "dask" else "ray::Mine"
    framework.cluster.kill(framework.find("n3", pattern))
    try:
        out, err = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"no end\n{framework.cluster.report()}\n{process.communicate()}") from None
    assert re.search(
        r"^lost refused .*(n3|actor \d \(pid \d+\) has ended|some of its members have gone)", out, re.MULTILINE
    ), f"{out}\n{err}"
    framework.gone(60.0)
