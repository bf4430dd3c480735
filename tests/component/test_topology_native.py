"""The reader of the kernel's files, hwloc's XML and the strings of localities, compared with hwloc and libpmix."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lib import machine as here
from lib.hardware import Layout, machine, write_files
from pypmix.standard.types import DeviceDistance
from pypmix.topology import kernel
from pypmix.topology.bitmaps import bitmap, format_list
from pypmix.topology.distances import compute_distances
from pypmix.topology.locality import format_cpuset, format_locality, parse_cpuset, relative_locality
from pypmix.topology.machine import DEVICES, Machine
from pypmix.topology.xml import read_xml, write_xml

pytestmark = pytest.mark.timeout(120)

DRIVER = Path(__file__).parents[1] / "lib" / "hwloc_driver.py"
LAYOUTS = [
    Layout(),
    Layout(packages=1, cores=1, threads=1),
    Layout(numa=2, l3=2),
    Layout(l3=2, dies=2),
    Layout(packages=1, cores=8, l3=4, numa=2, l2=2),
    Layout(numa=2),
    Layout(allowed="0-2,9"),
    Layout(numa=2, allowed="4-7"),
    Layout(packages=4, cores=32, l3=4, numa=4),
    Layout(gpus=(0, 1, 1)),
]


def ask(cpusets: list[str], pairs: list[tuple[str, str]], **settings: str) -> dict[str, Any]:
    """Return the answers of the newest libpmix about the machine that variables name."""
    if not here.libraries():
        here.lacking("a libpmix")
    path = here.libraries()[-1].path
    env = {**here.clean_environment(), **settings}
    done = subprocess.run(
        [sys.executable, str(DRIVER), path],
        input=json.dumps({"cpusets": cpusets, "pairs": pairs}),
        capture_output=True,
        text=True,
        timeout=60,
        env=env,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def description(found: Machine) -> list[tuple[object, ...]]:
    """Return what is compared of a machine: all but the numbers that programs make up, and devices."""
    return [
        (
            each.type,
            each.number,
            each.depth,
            each.index,
            *[format_list(bits) for bits in (each.cpus, each.complete_cpus, each.nodes)],
            each.attributes.get("cache_size"),
            each.attributes.get("local_memory"),
        )
        for each in found.root.below()
        if each.type not in DEVICES
    ]


def some_cpusets(found: Machine, count: int) -> list[int]:
    chance = random.Random(7)
    every = [each for each in range(found.root.complete_cpus.bit_length()) if found.cpus >> each & 1]
    objects = [each.cpus for level in found.levels[1:] for each in level if each.cpus]
    some = [bitmap(chance.sample(every, min(len(every), chance.randrange(1, 5)))) for _ in range(count)]
    return [*some, *chance.sample(objects, min(count, len(objects))), 1 << 5000]


def compare(own: Machine, **settings: str) -> dict[str, Any]:
    """Assert that libpmix makes the same strings and distances of a machine; return its answers."""
    cpusets = some_cpusets(own, 30)
    localities = [format_locality(own, cpus) for cpus in cpusets]
    known = [f"hwloc:{text}" for text in localities if text]
    pairs = list(zip(known, reversed(known), strict=True))
    answer = ask([format_cpuset(cpus) for cpus in cpusets], pairs, **settings)
    for cpus, locality, found in zip(cpusets, localities, answer["cpusets"], strict=True):
        assert found["again"] == format_cpuset(cpus)
        assert found["locality"] == locality, format_cpuset(cpus)
        assert parse_cpuset(found["again"]) == cpus
    # Releases before 6 fail the call although they have the answer.
    assert [shared for _, shared in answer["shared"]] == [int(relative_locality(*pair)) for pair in pairs]
    return answer


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: "-".join(map(str, each)))
def test_what_hwloc_reads_from_the_same_files(layout: Layout, tmp_path: Path) -> None:
    own = kernel.read_machine(write_files(layout, tmp_path))
    answer = compare(
        own,
        HWLOC_FSROOT=str(tmp_path),
        HWLOC_COMPONENTS="linux,stop",
        HWLOC_THISSYSTEM_ALLOWED_RESOURCES="1",
    )
    theirs = read_xml(answer["xml"])
    assert description(own) == description(theirs)
    assert [len(level) for level in own.levels] == [len(level) for level in theirs.levels]


def test_distances_of_devices(tmp_path: Path) -> None:
    own = machine(Layout(numa=2, gpus=(0, 2, 3, 3)), tmp_path / "files")
    file = tmp_path / "machine.xml"
    file.write_text(write_xml(own))
    answer = compare(own, HWLOC_XMLFILE=str(file))
    assert description(read_xml(answer["xml"])) == description(own)
    measured = 0
    for cpus, found in zip(some_cpusets(own, 30), answer["cpusets"], strict=True):
        if cpus & own.cpus:
            distances = [[each.uuid, each.osname, each.type, each.mindist, each.maxdist] for each in measure(own, cpus)]
            if distances:
                assert found["distances"] == distances, format_cpuset(cpus)
            else:
                assert found["distances"] < 0, format_cpuset(cpus)
            measured += bool(distances)
    assert measured > 10


def measure(own: Machine, cpus: int) -> tuple[DeviceDistance, ...]:
    """Return the distances; nothing if only the whole machine holds the CPUs."""
    try:
        return compute_distances(own, cpus, socket.gethostname())
    except LookupError:
        return ()


def test_this_machine(tmp_path: Path) -> None:
    own = kernel.read_machine(devices=False)
    answer = ask([], [])
    assert description(own) == description(read_xml(answer["xml"]))


def test_synthetic_machines_of_hwloc() -> None:
    for text in ("pack:2 numa:2 l3:1 l2:2 l1:1 core:2 pu:2", "group:2 pack:2 core:2 pu:2"):
        found = read_xml(ask([], [], HWLOC_SYNTHETIC=text)["xml"])
        compare(found, HWLOC_SYNTHETIC=text)
        again = read_xml(write_xml(found))
        assert description(again) == description(found)
