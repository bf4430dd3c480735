"""Each pair of a mapping and a binding gives ranks the CPUs that prterun 5 gives them on a machine of many parts."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import machine
from lib.hardware import Layout, write_files
from pypmix.host.binding import Binding, Cpus
from pypmix.host.mapping import Mapping, Room, place
from pypmix.topology.kernel import read_machine
from pypmix.topology.machine import Machine
from pypmix.topology.shape import Shape
from pypmix.topology.xml import write_xml

pytestmark = pytest.mark.timeout(180)

LAYOUT = Layout(packages=2, numa=2, l3=2, cores=8, threads=2, l2=2)
CORES = 16
LEVELS = ("hwthread", "core", "l2cache", "l3cache", "numa", "package")
"""From the smallest; on this machine an L3 cache has the CPUs of a NUMA node."""
MAPPINGS = ("", "slot", "node", *LEVELS, "ppr:2:numa")
BINDINGS = ("", "none", "hwthread", "core", "l3cache", "numa", "package")

SHOWS = """
import json
import subprocess
import sys
words = ["prterun", "--allow-run-as-root", "--prtemca", "hwloc_use_topo_file", sys.argv[1]]
for options in json.loads(sys.argv[2]):
    command = [*words, *options, "--display", "map", "--rtos", "donotlaunch", "true"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    print(json.dumps([done.returncode, done.stdout, done.stderr]), flush=True)
"""


def is_above(by: str, to: str) -> bool:
    """Return True if ranks are bound to something larger than they are mapped to, which prterun refuses."""
    by = by.rpartition(":")[2]
    return by in LEVELS and to in LEVELS and LEVELS.index(to) > LEVELS.index(by)


def options(by: str, to: str, size: int) -> list[str]:
    """Return the options of prterun, which binds to hardware threads if these count instead of cores."""
    if to == "hwthread" and by != "hwthread":
        by += ":hwtcpus"
    return ["-n", str(size), *(["--map-by", by] if by else []), *(["--bind-to", to] if to else [])]


def mapped(found: Machine, by: str, to: str, size: int) -> list[str] | None:
    """Return the places of ranks; None if they are refused."""
    shape = Shape.of(found, -1)
    binding = Binding().read(to) if to else Binding()
    mapping = Mapping.read(by, binding=binding) if by else Mapping(binding=binding)
    try:
        (places,) = place([Room("n1", CORES, cpus=Cpus("n1", shape))], [size], mapping)
    except ValueError:
        return None
    return [shape.describe(each.cpus) if each.cpus else "N/A" for each in places]


def prterun(folder: Path, found: Machine, commands: list[list[str]]) -> Iterator[list[str] | None]:
    """Yield the places of ranks for some options of prterun; None if it refuses them."""
    lacking = machine.root_lacking()
    if lacking:
        machine.lacking(lacking)
    (folder / "topology.xml").write_text(write_xml(found))
    words = ["env", f"TMPDIR={folder}", sys.executable, "-c", SHOWS, f"{folder}/topology.xml", json.dumps(commands)]
    command = machine.enter(words, folder)
    env = machine.clean_environment()
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, env=env, check=False)
    assert done.returncode == 0, done.stderr
    for command, line in zip(commands, done.stdout.splitlines(), strict=True):
        code, out, err = json.loads(line)
        lines = re.findall(r"Process rank: (\d+) Bound: (.*)", out)
        assert bool(lines) == (code == 0), (command, code, out, err)
        yield [text.strip().replace(":L", ":") for _, text in sorted(lines, key=lambda line: int(line[0]))] or None


def test_they_are_those_of_prterun(tmp_path: Path) -> None:
    found = read_machine(write_files(LAYOUT, tmp_path / "files"))
    pairs = [(by, to, 7) for by in MAPPINGS for to in BINDINGS if not is_above(by, to)]
    pairs += [(by, to, CORES) for by in MAPPINGS for to in ("", "core") if not is_above(by, to)]
    assert len(pairs) > 70
    shown = prterun(tmp_path, found, [options(*each) for each in pairs])
    ours = {each: mapped(found, *each) for each in pairs}
    assert ours == dict(zip(pairs, shown, strict=True))
    refused = [each for each, places in ours.items() if places is None]
    assert refused == [("ppr:2:numa", "", CORES), ("ppr:2:numa", "core", CORES)]


def test_prterun_binds_to_nothing_above_the_mapping(tmp_path: Path) -> None:
    found = read_machine(write_files(LAYOUT, tmp_path / "files"))
    pairs = [("hwthread", "core", 2), ("core", "package", 2), ("ppr:2:numa", "package", 2)]
    assert list(prterun(tmp_path, found, [options(*each) for each in pairs])) == [None] * 3
    assert [mapped(found, *each) for each in pairs] == [
        ["package[0][core:0]"] * 2,
        ["package[0][core:0-7]"] * 2,
        ["package[0][core:0-7]"] * 2,
    ]


def test_prterun_binds_one_or_two_ranks_to_cores(tmp_path: Path) -> None:
    found = read_machine(write_files(LAYOUT, tmp_path / "files"))
    pairs = [("slot", "", 1), ("slot", "", 2), ("node", "", 2), ("node", "", 3)]
    cores = ["package[0][core:0]", "package[0][core:1]"]
    numa = "package[0][core:0-3]"
    assert list(prterun(tmp_path, found, [options(*each) for each in pairs])) == [cores[:1], cores, cores, [numa] * 3]
    assert [mapped(found, *each) for each in pairs] == [[numa] * size for _, _, size in pairs]
