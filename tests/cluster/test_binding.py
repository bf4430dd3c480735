"""Ranks are bound on nodes that daemons serve: their hardware is reported, and their places reach them."""

from __future__ import annotations

import os
import sys

import pytest

from lib.command import Command

CPUS = sorted(os.sched_getaffinity(0))
LOCAL = "sh -c {command}"
FIRST = f"taskset -c {CPUS[0]} sh -c {{command}}"
"""An agent whose nodes have one of this machine's CPUs."""

WHERE = """
import os
from pypmix import Client
from pypmix.topology.bitmaps import bitmap, format_list
with Client() as me:
    me.fence(timeout=20)
    told = [me.get(key, default=None) for key in ("pmix.cpuset", "pmix.bindto")]
    print(me.rank, me.node.hostname, format_list(bitmap(os.sched_getaffinity(0))), *told, flush=True)
"""


def where(command: Command, *words: object) -> list[list[str]]:
    done = command("run", *words, sys.executable, "-c", WHERE)
    assert done.code == 0, done.err
    return [line.split(" ")[1:] for line in sorted(done.lines)]


@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")
@pytest.mark.parametrize("words", [(), ("--warm",)])
def test_nodes_on_one_machine_use_different_cores(command: Command, words: tuple[object, ...]) -> None:
    found = where(command, "--host", "n1,n2", "--launch-agent", LOCAL, "-n", 2, *words)
    assert [each[0] for each in found] == ["n1", "n2"]
    assert found[0][1] != found[1][1]
    for _, cpus, told, policy in found:
        assert (told, policy) == (cpus, "CORE")


def test_ranks_stay_within_the_cpus_of_their_daemon(command: Command) -> None:
    words = ("--host", "n1:2", "--launch-agent", FIRST, "--report-bindings")
    done = command("run", *words, "-n", 1, sys.executable, "-c", WHERE)
    assert done.lines == [f"0 n1 {CPUS[0]} {CPUS[0]} CORE"], done.err
    assert done.err.decode().splitlines()[-1].endswith(f", CPUS {CPUS[0]}".replace("CPUS", "CPUs"))
    both = where(command, *words, "-n", 2)
    assert both == [["n1", str(CPUS[0]), "None", "NONE"]] * 2


def test_a_mapping_to_packages_fills_the_nodes(command: Command) -> None:
    done = command(
        "run", "--host", "n1:1,n2:1", "--launch-agent", FIRST, "--map-by", "ppr:1:package:oversubscribe",
        "--bind-to", "core:overload-allowed", "echo", "up",
    )  # fmt: skip
    assert done.lines == ["up", "up"], done.err
    assert "2 ranks, 1 on each package; -n says otherwise" in done.err.decode()


def test_what_a_node_does_not_have_is_refused(command: Command) -> None:
    done = command("run", "--host", "n1", "--launch-agent", FIRST, "--map-by", "device=gpu", "true")
    assert done.code in (1, 2)
    assert b"none of 1 node has a GPU that its kernel shows" in done.err
