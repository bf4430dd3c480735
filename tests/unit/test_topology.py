"""Sets of CPUs, machines from the kernel's files and from XML, locality strings, GPUs."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib.hardware import Layout, machine, write_files
from lib.steps import count_calls
from pypmix.standard.enums import DeviceType, Locality
from pypmix.topology import devices
from pypmix.topology.bitmaps import bitmap, format_list, format_mask, numbers, parse_list, parse_mask
from pypmix.topology.distances import KINDS, compute_distances
from pypmix.topology.files import Files
from pypmix.topology.kernel import allowed, read_machine
from pypmix.topology.locality import format_cpuset, format_locality, parse_cpuset, relative_locality
from pypmix.topology.machine import CORE, L3, NUMA, PACKAGE, PU
from pypmix.topology.shape import Shape
from pypmix.topology.xml import read_xml, write_xml


@pytest.mark.parametrize(
    ("text", "bits"),
    [("", 0), ("0", 1), ("0-3,8", 0x10F), ("4-", -16), ("1,2 3", 0xE), ("0x10,010", 1 << 16 | 1 << 8), ("0-", -1)],
)
def test_lists(text: str, bits: int) -> None:
    assert parse_list(text) == bits
    assert parse_list(format_list(bits)) == bits
    assert parse_mask(format_mask(bits)) == bits


@pytest.mark.parametrize("text", ["a", "3-1", "1-x", "99999999", "0-99999999", "--"])
def test_no_lists(text: str) -> None:
    with pytest.raises(ValueError):
        parse_list(text)


def test_masks_have_words_of_32_bits() -> None:
    assert format_mask(bitmap([0, 64])) == "0x00000001,,0x00000001"
    assert format_mask(1 << 64) == "0x00000001,,0x0"
    assert format_mask(0) == "0x0"
    assert list(numbers(parse_mask("0x00000001,,0x0"))) == [64]
    for text in ("0xg", "1,0x123456789", ",".join(["0x1"] * 5000)):
        with pytest.raises(ValueError):
            parse_mask(text)


def test_a_machine_of_the_kernel(tmp_path: Path) -> None:
    found = machine(Layout(packages=2, numa=2, l3=2, cores=8, threads=2), tmp_path)
    assert [(level[0].type, len(level)) for level in found.levels] == [
        ("Machine", 1),
        ("Package", 2),
        ("L3Cache", 4),
        ("L2Cache", 16),
        ("L1Cache", 16),
        ("Core", 16),
        ("PU", 32),
    ]
    assert [format_list(each.cpus) for each in found.of_type(PACKAGE)] == ["0-7,16-23", "8-15,24-31"]
    assert [each.place.parent and each.parent and each.parent.type for each in found.numa] == [L3] * 4
    assert found.of_type(L3)[0].attributes["cache_size"] == str(32 << 20)
    assert found.memory_size() == 4 * (16 << 30)
    assert format_list(found.of_type(CORE)[1].cpus) == "1,17"


def test_only_the_cpus_of_the_control_group(tmp_path: Path) -> None:
    found = machine(Layout(allowed="0-2,9"), tmp_path)
    assert format_list(found.cpus) == "0-2,9"
    assert [each.number for each in found.of_type(PU)] == [0, 1, 9, 2]
    assert [each.number for each in found.of_type(CORE)] == [0, 1, 2]
    assert [each.number for each in found.numa] == [0, 1]


@pytest.mark.parametrize(
    ("lines", "files", "cpus"),
    [
        ("9:cpuset:/a/b\n", {"cpuset/a/b/cpuset.cpus": "1-2"}, "1-2"),
        ("9:cpuset:/a\n", {"cpuset/a/cpuset.cpus": "1-2", "cpuset/a/cpuset.effective_cpus": "1"}, "1"),
        ("9:cpuset:/\n", {"cpuset/cpuset.cpus": "3"}, "3"),
        ("0::/a/b\n", {"a/cpuset.cpus.effective": "2-3"}, "2-3"),
        ("0::/../..\n", {"cpuset.cpus.effective": "2-3"}, "2-3"),
        ("0::/\n", {}, "0-"),
        ("", {}, "0-"),
    ],
)
def test_control_groups_of_both_versions(lines: str, files: dict[str, str], cpus: str, tmp_path: Path) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(lines)
    for name, text in files.items():
        path = tmp_path / "sys/fs/cgroup" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")
    assert format_list(allowed(Files(str(tmp_path)))[0]) == cpus


def test_files_are_read_once_for_what_cpus_share(tmp_path: Path) -> None:
    paths: list[str] = []

    class Counting(Files):
        def read(self, path: str) -> str:
            paths.append(path)
            return super().read(path)

    layout = Layout(packages=2, cores=16, threads=2)
    write_files(layout, tmp_path)
    read_machine(Counting(str(tmp_path)))
    # Each cache has six files, and each core has a third of its caches' and its own two.
    assert len([path for path in paths if "/cpu33/" in path]) == 0
    assert len(paths) < 21 * 32


def test_a_placement_reads_few_of_the_files_of_a_machine(tmp_path: Path) -> None:
    counts: list[int] = []

    class Counting(Files):
        def read(self, path: str) -> str:
            counts[-1] += 1
            return super().read(path)

    write_files(Layout(packages=2, numa=4, l3=8, cores=64, threads=2, gpus=(0, 1)), tmp_path)
    shapes = []
    for whole in (True, False):
        counts.append(0)
        found = read_machine(Counting(str(tmp_path)), devices=whole, details=whole)
        assert bool(found.memory_size()) == bool(found.devices) == whole
        shapes.append(Shape.of(found, -1))
    assert shapes[0].gpus and shapes[1] == shapes[0].replace(gpus=())
    # Each cache has six files, of which two are needed; the other files of a core are needed all.
    assert counts[1] < 0.65 * counts[0]


def test_a_machine_is_read_in_few_calls(tmp_path: Path) -> None:
    files = write_files(Layout(packages=2, numa=2, l3=2, cores=8, threads=2), tmp_path)
    found = read_machine(files)
    every = list(found.root.below())
    assert [each.number for each in every if each.type == PU] == [each.number for each in found.of_type(PU)]
    assert count_calls(lambda: list(found.root.below())) <= len(every) + 1
    assert count_calls(lambda: read_machine(files)) <= 80 * len(found.of_type(PU))


def test_no_kernel_files(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="shows no CPUs"):
        read_machine(Files(str(tmp_path)))


def test_xml_is_read_as_it_was_written(tmp_path: Path) -> None:
    text = write_xml(machine(Layout(numa=2, l3=2, allowed="0-5", gpus=(0, 1)), tmp_path))
    again = read_xml(text)
    assert write_xml(again) == text
    assert [each.attributes["name"] for each in again.devices] == ["ib0", "renderD128", "ib1", "renderD129"]


def test_xml_of_hwloc_1() -> None:
    found = read_xml(
        '<topology><object type="Machine" cpuset="0x3"><object type="Socket" cpuset="0x3"><object type="Cache" '
        'cpuset="0x3" depth="3" cache_type="0"><object type="PU" os_index="0" cpuset="0x1"/><object type="PU" '
        'os_index="1" cpuset="0x2"/></object></object></object></topology>'
    )
    assert [level[0].type for level in found.levels] == ["Machine", "Package", "L3Cache", "PU"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no xml",
        "<a/>",
        "<topology/>",
        '<topology><object type="Machine"/></topology>',
        '<topology><object type="PU" cpuset="0x1"/></topology>',
        '<topology><object type="Machine" cpuset="0xg"/></topology>',
        '<topology><object type="Machine" cpuset="0x1" os_index="x"/></topology>',
        '<topology><object type="Machine" cpuset="0x1"/><object type="Machine" cpuset="0x1"/></topology>',
        '<!DOCTYPE a [<!ENTITY b "c">]><topology><object type="Machine" cpuset="0x1"/></topology>',
        "<topology>" + '<object type="Machine" cpuset="0x1">' * 100,
    ],
)
def test_no_xml_of_a_machine(text: str) -> None:
    with pytest.raises(ValueError):
        read_xml(text)


def test_locality_strings(tmp_path: Path) -> None:
    found = machine(Layout(numa=2, l3=2), tmp_path)
    assert format_locality(found, found.of_type(CORE)[0].cpus) == "SK0:L30:L20:L10:CR0:HT0-1:NM0"
    assert format_locality(found, found.of_type(PACKAGE)[1].cpus) == "SK1:L32-3:L24-7:L14-7:CR4-7:HT8-15:NM2-3"
    assert format_locality(found, -1) is None
    assert format_locality(found, 1 << 100) is None


def test_relative_locality() -> None:
    node = Locality.SHARE_NODE
    assert relative_locality("SK0:CR0:HT0", "SK1:CR1:HT2") == node
    assert (
        relative_locality("hwloc:SK0:L30:CR0", "SK0:L30-1:CR1")
        == node | Locality.SHARE_PACKAGE | Locality.SHARE_L3CACHE
    )
    for text in ("XX0", "", "cores 0"):
        with pytest.raises(ValueError):
            relative_locality(text, "SK0")


def test_cpusets() -> None:
    assert format_cpuset(parse_cpuset("hwloc:0-3,8")) == "hwloc:0-3,8"
    for text in ("0-3", "other:0-3", "hwloc:x"):
        with pytest.raises(ValueError):
            parse_cpuset(text)


def test_distances_of_some_devices(tmp_path: Path) -> None:
    found = machine(Layout(gpus=(0, 1)), tmp_path)
    cpus = found.of_type(PACKAGE)[0].cpus
    near, far = compute_distances(found, cpus, "n1", int(DeviceType.GPU))
    assert (near.uuid, far.uuid) == ("gpu://n1::renderD128", "gpu://n1::renderD129")
    assert near.maxdist < far.mindist
    assert [each.osname for each in compute_distances(found, cpus, "n1", names=("IB1",))] == ["ib1"]
    with pytest.raises(LookupError):
        compute_distances(found, found.cpus, "n1")


def test_gpus_by_the_names_of_their_libraries(tmp_path: Path) -> None:
    layout = Layout(gpus=(0, 0, 1))
    files = write_files(layout, tmp_path / "identified")
    found = read_machine(files)
    own = devices.gpus(found, files)
    assert [gpu.name for gpu in own] == [f"GPU-{number:08x}-0000" for number in range(3)]
    assert [gpu.system for gpu in own] == ["renderD128", "renderD129", "renderD130"]
    assert [gpu.cpus for gpu in own] == [found.numa[node].cpus for node in layout.gpus]
    assert devices.variables(own[:2]) == [("CUDA_VISIBLE_DEVICES", "GPU-00000000-0000,GPU-00000001-0000")]
    nameless = devices.gpus(read_xml(write_xml(found)))
    assert devices.variables(nameless[1:]) == [("CUDA_VISIBLE_DEVICES", "1,2"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")]
    assert devices.gpus(machine(Layout(), tmp_path / "none")) == []
    assert found.of_type(NUMA) == found.numa


def test_the_kinds_of_devices_with_a_distance_have_the_values_of_the_standard() -> None:
    assert [value for _, value in KINDS] == [DeviceType.GPU, DeviceType.NETWORK, DeviceType.OPENFABRICS]


def test_a_machine_shows_what_it_has() -> None:
    found = read_xml(
        '<topology><object type="Machine" cpuset="0x3"><object type="Core" cpuset="0x1"/>'
        '<object type="Core" cpuset="0x2"/></object></topology>'
    )
    assert repr(found) == "<Machine of 2 cores, 0 NUMA nodes and 0 devices>"
