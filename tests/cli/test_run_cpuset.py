"""`pypmix run` on a part of the machine, by affinity or by a control group: ranks are bound within it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import machine
from lib.command import LIMIT, Command

CPUS = sorted(os.sched_getaffinity(0))
FIRST, LAST = CPUS[0], CPUS[-1]
GROUPS = (Path("/sys/fs/cgroup/cpuset"), Path("/sys/fs/cgroup"))
"""Where control groups have sets of CPUs, in the first and in the second version."""

WHERE = """
import os
from pypmix import Client
from pypmix.topology.bitmaps import bitmap, format_list
from pypmix.topology.locality import format_locality
from pypmix.topology.xml import read_xml
with Client() as me:
    me.fence(timeout=20)
    machine = read_xml(me.get("pmix.hwlocxml2"))
    cpus = bitmap(os.sched_getaffinity(0))
    found = [me.get(key, default=None) for key in ("pmix.cpuset", "pmix.bindto", "pmix.locstr")]
    same = found.pop() == format_locality(machine, cpus)
    print(me.rank, format_list(cpus), *found, same, format_list(machine.cpus), flush=True)
"""

pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU")


def limited(command: Command, start: list[str], *words: object) -> tuple[list[str], list[str]]:
    """Run a job behind the start of a command line, and return the lines of its ranks and of `--report-bindings`."""
    line = [*start, sys.executable, "-m", "pypmix", "run", "--report-bindings", *map(str, words)]
    done = command.end(command.start_words([*line, sys.executable, "-c", WHERE], subprocess.DEVNULL))
    assert done.code == 0, done.err
    reports = [text for text in done.err.decode().splitlines() if text.startswith("pypmix run: rank ")]
    return sorted(done.lines), [text.rpartition(", ")[2] or text for text in reports]


@pytest.fixture
def group(command: Command) -> Iterator[Path]:
    """A control group of the last CPU."""
    found = make_group(f"pypmix-{command.mark}")
    if found is None:
        machine.lacking("root's rights and a hierarchy of the kernel's, to make a control group of some CPUs")
    assert found is not None
    yield found
    left = command.left()
    command.kill()
    remove(found, time.monotonic() + LIMIT)
    assert not left


def make_group(name: str) -> Path | None:
    """Make a control group of the last CPU; None if it is not possible."""
    for parent in GROUPS:
        try:
            (parent / name).mkdir()
        except OSError:
            continue
        if (parent / name / "cpuset.cpus").exists():
            (parent / name / "cpuset.cpus").write_text(str(LAST))
            if (parent / "cpuset.mems").exists():
                # In the first version no process joins a group without memory.
                (parent / name / "cpuset.mems").write_text((parent / "cpuset.mems").read_text())
            return parent / name
        (parent / name).rmdir()
    return None


def remove(group: Path, deadline: float) -> None:
    """Remove a control group once the kernel has let go of the processes that ended in it."""
    while True:
        try:
            group.rmdir()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def joining(group: Path) -> list[str]:
    """Return the start of a command line that joins a control group."""
    return ["sh", "-c", f'echo $$ >{group}/cgroup.procs && exec "$@"', "sh"]


@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize("cpu", [FIRST, LAST])
def test_an_affinity(command: Command, cpu: int, engine: str) -> None:
    words = ("-n", 2, "--server-engine", engine, "--bind-to", "core:overload-allowed")
    found, reports = limited(command, ["taskset", "-c", str(cpu)], *words)
    every = found[0].rpartition(" ")[2]
    # As under other launchers the topology is that of the control group.
    assert found == [f"{rank} {cpu} {cpu} CORE:OVERLOAD-ALLOWED True {every}" for rank in range(2)]
    assert reports == [f"CPUs {cpu}"] * 2


def test_an_affinity_with_too_few_cores(command: Command) -> None:
    line = ["taskset", "-c", str(FIRST), sys.executable, "-m", "pypmix", "run", "-n", "2", "--bind-to", "core", "true"]
    done = command.end(command.start_words(line, subprocess.DEVNULL))
    assert done.code == 2
    assert "there are too few cores on " in done.message
    assert "to bind ranks to: 1 in package[0][core:" in done.message


@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize("to", ["core", "package", "hwthread", "numa"])
def test_a_control_group(command: Command, group: Path, to: str, engine: str) -> None:
    words = ("-n", 2, "--server-engine", engine, "--bind-to", f"{to}:overload-allowed")
    found, reports = limited(command, joining(group), *words)
    told = f"{LAST} {LAST} {to.upper()}:OVERLOAD-ALLOWED True {LAST}"
    assert found == [f"{rank} {told}" for rank in range(2)]
    assert reports == [f"CPUs {LAST}"] * 2


def test_the_default_in_a_control_group(command: Command, group: Path) -> None:
    found, reports = limited(command, joining(group), "-n", 1)
    assert found == [f"0 {LAST} {LAST} CORE True {LAST}"]
    assert reports == [f"CPUs {LAST}"]
    found, reports = limited(command, joining(group), "-n", 2)
    assert [line.split(" ")[1:4] for line in found] == [[str(LAST), "None", "NONE"]] * 2
    assert [text.rpartition(": ")[2] for text in reports] == ["not bound"] * 2
