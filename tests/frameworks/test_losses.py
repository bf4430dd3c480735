"""The engine itself is stopped or lost: what is asked of it ends in time, with an error that says what is missing."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator

import pytest

from lib.cluster import Cluster
from lib.framework_clusters import DRIVER, Dask, Framework, Ray, opened
from lib.processes import Process

pytestmark = [pytest.mark.timeout(500), pytest.mark.clusters]

ENDS = 60.0
"""Seconds after which Ray ends a program that has lost the head of its cluster."""


@pytest.fixture(scope="module", params=[Dask, Ray])
def framework(
    request: pytest.FixtureRequest, frameworks: None, three_nodes: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Framework]:
    yield from opened(request.param(three_nodes, tmp_path_factory.mktemp("losses")))


def head(framework: Framework) -> Process:
    """Return the process without which there is no cluster."""
    return framework.find("n1", "dask scheduler" if framework.kind == "dask" else "gcs_server")


def worker(framework: Framework) -> Process:
    """Return the process that has started the daemon of the last machine."""
    return framework.find("n3", "dask worker" if framework.kind == "dask" else "ray::_Actor")


def begin(framework: Framework, *words: str) -> subprocess.Popen[str]:
    return framework.begin(DRIVER, framework.kind, framework.address, *words)


def until(framework: Framework, process: subprocess.Popen[str], word: str, count: int = 1) -> str:
    """Return the line with which the driver has printed as many that begin with a word."""
    assert process.stdout is not None
    while count:
        line = process.stdout.readline()
        assert line, f"{process.communicate()}\n{framework.logs()}"
        count -= line.startswith(word)
    return str(line)


def ended(framework: Framework, process: subprocess.Popen[str], seconds: float) -> str:
    """Return what the driver has printed further, which ends in time and leaves nothing."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        raise AssertionError(f"no end\n{framework.cluster.report()}\n{process.communicate()}") from None
    framework.gone(60.0)
    return str(out) + err


@pytest.mark.parametrize("what", [head, worker])
def test_what_is_stopped_does_not_hold_up_a_job(framework: Framework, what: object) -> None:
    """The ranks run on; what they have returned cannot be had. Afterwards all can be used again."""
    process = begin(framework, "twice")
    until(framework, process, "ready", 6)
    stopped = head(framework) if what is head else worker(framework)
    framework.cluster.stop(stopped)
    try:
        line = until(framework, process, "first")
    finally:
        framework.cluster.resume(stopped)
    if framework.kind == "ray" and what is head:
        # Calls of actors do not go by way of it.
        assert line == "first [0, 1, 2, 3, 4, 5]\n"
    else:
        names = "n1, n2, n3" if what is head else "n3"
        kind = framework.kind.capitalize()
        assert f"refused PMIx: {kind} does not give what the ranks of {names} have returned: nothing has" in line
    out = ended(framework, process, 200)
    assert "second [0, 1, 2, 3, 4, 5]\n" in out, out


def test_no_nodes_are_had_of_what_is_stopped(framework: Framework, tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("stopped") / "go"
    process = begin(framework, "anew", str(file))
    until(framework, process, "<nodes")
    stopped = head(framework)
    framework.cluster.stop(stopped)
    file.touch()
    try:
        if framework.kind == "ray":
            assert "refused PMIx: Ray's head has not answered within 5 s" in until(framework, process, "all")
        line = until(framework, process, "anew")
    finally:
        framework.cluster.resume(stopped)
    assert re.match("anew refused PMIx: (Dask's scheduler has not answered within 60 s|Ray reserves nothing)", line)
    ended(framework, process, 200)


def test_the_head_is_killed(framework: Framework) -> None:
    """The last test of a cluster: none is left."""
    process = begin(framework, "twice")
    until(framework, process, "ready", 6)
    framework.cluster.kill(head(framework))
    line = until(framework, process, "first")
    lost = "Dask's client has lost its scheduler" if framework.kind == "dask" else "was lost with node n1"
    assert "refused" in line and lost in line
    ended(framework, process, ENDS + 60.0)
