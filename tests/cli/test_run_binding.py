"""`pypmix run` binds ranks to CPUs: what the kernel says they may use, and what they are told of it."""

from __future__ import annotations

import os
import sys

import pytest

from lib.command import Command

CPUS = sorted(os.sched_getaffinity(0))

WHERE = """
import os
from pypmix import Client
from pypmix.topology.bitmaps import bitmap, format_list
with Client() as me:
    me.fence(timeout=20)
    cpus = format_list(bitmap(os.sched_getaffinity(0)))
    told = [me.get(key, default=None) for key in ("pmix.cpuset", "pmix.locstr", "pmix.bindto")]
    print(me.rank, cpus, *told, flush=True)
"""

SPAWNS = """
import sys
from pypmix import Client, attrs
with Client() as me:
    job = me.spawn([sys.executable, "-c", sys.argv[1]], info={attrs.BINDTO: "core", attrs.CPU_LIST: sys.argv[2]})
    job.wait(timeout=20)
"""

SPAWNS_UNASKED = """
import sys
from pypmix import Client
with Client() as me:
    print(me.get("pmix.cpuset"), flush=True)
    me.spawn([sys.executable, "-c", sys.argv[1]]).wait(timeout=20)
"""

two_cores = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")


def where(command: Command, *words: object) -> list[list[str]]:
    done = command("run", *words, sys.executable, "-c", WHERE)
    assert done.code == 0, done.err
    return [line.split(" ")[1:] for line in sorted(done.lines)]


@two_cores
@pytest.mark.parametrize("words", [(), ("--warm",), ("--wdir", "/"), ("--nodes", 2), ("--server-engine", "native")])
def test_each_rank_has_a_core(command: Command, words: tuple[object, ...]) -> None:
    found = where(command, "-n", 2, *words)
    assert found[0][0] != found[1][0]
    for cpus, told, locality, policy in found:
        assert told == cpus
        assert policy == "CORE"
        assert locality.split(":")[-2].startswith("HT")


def test_ranks_that_outnumber_cores_are_not_bound(command: Command) -> None:
    found = where(command, "-n", len(CPUS) + 1)
    every = ",".join(found[0][:1])
    assert {tuple(each) for each in found} == {(every, "None", "None", "NONE")}


@two_cores
def test_ranks_stay_within_the_cpus_of_the_launcher(command: Command) -> None:
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {CPUS[-1]})
    try:
        found = where(command, "-n", 1)
        both = where(command, "-n", 2)
    finally:
        os.sched_setaffinity(0, before)
    assert found[0][:2] == [str(CPUS[-1])] * 2
    assert both == [[str(CPUS[-1]), "None", "None", "NONE"]] * 2


@pytest.mark.parametrize(
    ("words", "cpus"),
    [
        (("--bind-to", "none"), None),
        (("--bind-to", "none", "--cpu-set", CPUS[-1]), [CPUS[-1]]),
        (("--cpu-set", CPUS[-1]), [CPUS[-1]]),
        (("--cpus-per-rank", 1, "--bind-to", "core:overload-allowed", "--cpu-set", CPUS[0]), [CPUS[0]]),
    ],
)
def test_what_options_say(command: Command, words: tuple[object, ...], cpus: list[int] | None) -> None:
    code = "import os; print(sorted(os.sched_getaffinity(0)))"
    done = command("run", "-n", 1, *words, sys.executable, "-c", code)
    assert done.lines == [str(cpus or CPUS)]


def test_a_spawned_job_has_a_binding_of_its_own(command: Command) -> None:
    done = command("run", "-n", 1, "--bind-to", "none", sys.executable, "-c", SPAWNS, WHERE, CPUS[-1])
    assert done.code == 0, done.err
    assert [line.split(" ")[:3] for line in done.lines] == [["0", str(CPUS[-1]), str(CPUS[-1])]]


@two_cores
def test_a_spawned_job_gets_cores_that_are_free(command: Command) -> None:
    done = command("run", "-n", 1, sys.executable, "-c", SPAWNS_UNASKED, WHERE)
    assert done.code == 0, done.err
    own, child = done.lines
    assert child.split(" ")[1:3] != [own, own]
    assert child.split(" ")[1] == child.split(" ")[2]


def test_bindings_are_shown(command: Command) -> None:
    done = command("run", "-n", 1, "--report-bindings", "true")
    lines = done.err.decode().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("pypmix run: rank 0 on ")
    assert lines[0].endswith(f"CPUs {CPUS[0]}") or "-" in lines[0] or "," in lines[0]
    shown = command("run", "-n", 2, "--nodes", 2, "--bind-to", "none", "--display", "map", "true").err.decode()
    assert shown.splitlines() == [
        "pypmix run: job 1: ranks are mapped BYSLOT:OVERSUBSCRIBE, ranked SLOT, bound to NONE",
        "pypmix run: node0: 1 rank",
        "pypmix run:   rank 0 on node0: not bound",
        "pypmix run: node1: 1 rank",
        "pypmix run:   rank 1 on node1: not bound",
    ]


def test_too_few_cores_are_refused(command: Command) -> None:
    done = command("run", "-n", len(CPUS) + 1, "--bind-to", "core", "true")
    assert done.code == 2
    assert "there are too few cores on " in done.message


def test_a_rankfile(command: Command) -> None:
    file = command.folder / "ranks"
    file.write_text("rank 0=+n1 slot=0\nrank 1=+n0 slot=0\n")
    done = command("run", "--nodes", 2, "--rankfile", file, "--display", "bind", "true")
    assert done.code == 0, done.err
    assert [line.split(":")[1] for line in done.err.decode().splitlines()] == [" rank 1 on node0", " rank 0 on node1"]
    file.write_text("rank 0=localhost slot=0\n")
    assert command("run", "-rf", file, "true").code == 0
    done = command("run", "-n", 1, "--nodes", 2, "--rankfile", file, "true")
    assert "the rankfile places rank 0 on localhost, and the job has the nodes node0, node1" in done.message
    file.write_text("rank 0=+n1 slot=0\nrank 1=+n0 slot=0\n")
    done = command("run", "-n", 3, "--nodes", 2, "--rankfile", file, "true")
    assert done.code == 2
    assert "the rankfile has no line for rank 2" in done.message
