"""Ranks are mapped to hardware and bound to it as `--map-by`, `--rank-by` and `--bind-to` say, as PRRTE does it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib.hardware import Layout, machine
from pypmix.host.binding import Binding, Cpus
from pypmix.host.mapping import RANKFILE, Mapping, Place, Room, fill, place
from pypmix.host.rankfile import read_rankfile
from pypmix.topology.bitmaps import format_list
from pypmix.topology.shape import Device, Shape


def shape_of(levels: dict[str, list[int]], gpus: tuple[Device, ...] = ()) -> Shape:
    cpus = sum(levels["hwthread"])
    return Shape(cpus, {name: tuple(enumerate(objects)) for name, objects in levels.items()}, gpus)


def node(packages: int = 2, cores: int = 2, threads: int = 2, gpus: tuple[Device, ...] = ()) -> Shape:
    """Return a node whose hardware threads are numbered core by core."""
    every = packages * cores
    core = [((1 << threads) - 1) << place * threads for place in range(every)]
    package = [sum(core[place * cores : (place + 1) * cores]) for place in range(packages)]
    numa = [sum(package)]
    threads_of = [1 << place for place in range(every * threads)]
    return shape_of({"hwthread": threads_of, "core": core, "numa": numa, "package": package}, gpus)


def placed(shape: Shape, nodes: int, slots: int, size: int, mapping: Mapping) -> list[tuple[Place, ...]]:
    rooms = [Room(f"n{number}", slots, cpus=Cpus(f"n{number}", shape)) for number in range(nodes)]
    return place(rooms, [size], mapping)


def shown(shape: Shape, places: list[tuple[Place, ...]]) -> str:
    """Return the places in the order of ranks: the node's number, and the package with its cores or threads."""
    every = {each.rank: (number, each) for number, found in enumerate(places) for each in found}
    texts = []
    for rank in sorted(every):
        number, each = every[rank]
        text = shape.describe(each.cpus).replace("package[", "").replace("][core:", "c").replace("][hwt:", "h")
        texts.append(f"{number}:{text.replace(']', '').replace(' ', '+') or '-'}")
    return " ".join(texts)


# Two nodes of two packages of two cores of two hardware threads, with four slots each: what PRRTE 5.0 maps and binds.
PRRTE = [
    ("3", "", "", "", "0:0c0 0:0c1 0:1c2"),
    ("6", "", "", "", "0:0c0 0:0c1 0:1c2 0:1c3 1:0c0 1:0c1"),
    ("6", "package", "", "", "0:0c0-1 0:0c0-1 0:1c2-3 0:1c2-3 1:0c0-1 1:1c2-3"),
    ("6", "package:span", "", "", "0:0c0-1 0:1c2-3 1:0c0-1 1:1c2-3 0:0c0-1 1:0c0-1"),
    ("6", "core:span", "", "", "0:0c0 0:0c1 0:1c2 1:0c0 1:0c1 1:1c2"),
    ("6", "package", "span", "", "0:0c0-1 0:1c2-3 1:0c0-1 1:1c2-3 0:0c0-1 0:1c2-3"),
    ("6", "package", "node", "", "0:0c0-1 1:0c0-1 0:1c2-3 1:1c2-3 0:0c0-1 0:1c2-3"),
    ("6", "package", "slot", "", "0:0c0-1 0:1c2-3 0:0c0-1 0:1c2-3 1:0c0-1 1:1c2-3"),
    ("4", "ppr:1:package", "", "", "0:0c0-1 0:1c2-3 1:0c0-1 1:1c2-3"),
    ("3", "ppr:1:package", "", "", "0:0c0-1 0:1c2-3 1:0c0-1"),
    ("4", "slot:PE=2", "", "", "0:0c0-1 0:1c2-3 1:0c0-1 1:1c2-3"),
    ("4", "node:PE=2", "", "", "0:0c0-1 1:0c0-1 0:1c2-3 1:1c2-3"),
    ("4", "ppr:1:package:PE=2", "", "", "0:0c0-1 0:1c2-3 1:0c0-1 1:1c2-3"),
    ("5", "hwthread", "", "", "0:0h0 0:0h1 0:0h2 0:0h3 1:0h0"),
    ("3", "slot", "", "", "0:0c0-1+1c2-3 0:0c0-1+1c2-3 0:0c0-1+1c2-3"),
    ("8", "slot", "", "core", "0:0c0 0:0c1 0:1c2 0:1c3 1:0c0 1:0c1 1:1c2 1:1c3"),
    ("4", "", "", "package", "0:0c0-1 0:0c0-1 0:1c2-3 0:1c2-3"),
    ("4", "package", "", "core", "0:0c0 0:0c1 0:1c2 0:1c3"),
    ("4", "slot", "", "package", "0:0c0-1 0:0c0-1 0:1c2-3 0:1c2-3"),
    ("2", "", "", "none", "0:- 0:-"),
    ("12", "core:oversubscribe", "", "", " ".join(["0:-"] * 6 + ["1:-"] * 6)),
    ("9", ":oversubscribe", "", "", " ".join(["0:-"] * 5 + ["1:-"] * 4)),
]


@pytest.mark.parametrize(("size", "by", "rank_by", "to", "expected"), PRRTE)
def test_as_prrte_maps_and_binds(size: str, by: str, rank_by: str, to: str, expected: str) -> None:
    binding = Binding().read(to) if to else Binding()
    mapping = Mapping.read(by, rank_by, binding=binding) if by else Mapping(rank_by=rank_by, binding=binding)
    shape = node()
    assert shown(shape, placed(shape, 2, 4, int(size), mapping)) == expected


@pytest.mark.parametrize(
    ("size", "by", "to", "words"),
    [
        (6, "slot:PE=2", "", "6 ranks of 2 cores each do not fit on 2 nodes with room for 4"),
        (4, "core:PE=2", "", "each core of n0 has fewer than 2 cores: map by something larger"),
        (9, "slot:oversubscribe", "core", "too few cores on n0 to bind ranks to: 4 in package[0][core:0-1] package[1]"),
        (5, "ppr:1:package", "", "5 ranks do not fit on 2 nodes with 1 on each package: 4 do"),
        (2, "l3cache", "", "n0 has no l3cache: map by, or bind to, one of hwthread, core, numa, package"),
        (2, "slot", "l2", "n0 has no l2cache"),
        (1, "device=gpu", "", "none of 2 nodes has a GPU"),
    ],
)
def test_what_cannot_be_bound_is_refused(size: int, by: str, to: str, words: str) -> None:
    mapping = Mapping.read(by, binding=Binding().read(to) if to else Binding())
    with pytest.raises(ValueError) as caught:
        placed(node(), 2, 4, size, mapping)
    assert words in str(caught.value)


def test_overload() -> None:
    shape = node(packages=1)
    mapping = Mapping.read("slot:oversubscribe", binding=Binding().read("core:overload-allowed"))
    assert shown(shape, placed(shape, 1, 2, 5, mapping)) == "0:0c0 0:0c1 0:0c0 0:0c1 0:0c0"


def test_ranks_that_run_keep_their_cores() -> None:
    shape = node()
    cpus = Cpus("n0", shape, {0: 1, 1: 1})
    places = place([Room("n0", 4, used=1, cpus=cpus)], [2], Mapping())
    assert shown(shape, places) == "0:0c1 0:1c2"
    assert cpus.load == {0: 1, 1: 1}
    # Three are left: a fourth rank makes all of this job's ranks unbound.
    assert shown(shape, place([Room("n0", 4, used=1, cpus=cpus)], [4], Mapping(crowded=True))) == "0:- 0:- 0:- 0:-"


def test_nodes_on_one_machine_share_its_cores() -> None:
    shape = node(packages=1)
    load: dict[int, int] = {}
    rooms = [Room(name, 1, cpus=Cpus(name, shape, load)) for name in ("n0", "n1")]
    assert shown(shape, place(rooms, [2], Mapping())) == "0:0c0 1:0c1"
    assert shown(shape, place([room.replace(slots=2) for room in rooms], [3], Mapping())) == "0:- 0:- 1:-"


def test_only_the_cpus_of_the_set() -> None:
    shape = node()
    limited = Mapping(binding=Binding(cpus="1-4"))
    places = placed(shape, 1, 8, 3, limited)
    assert [format_list(each.cpus) for each in places[0]] == ["1", "2-3", "4"]
    # Even if ranks have no core of their own.
    assert {format_list(each.cpus) for each in placed(shape, 1, 8, 4, limited)[0]} == {"1-4"}
    with pytest.raises(ValueError, match="n0 has none of the CPUs 64 that --cpu-set names; ranks may use 0-7 there"):
        placed(shape, 1, 8, 1, Mapping(binding=Binding(cpus="64")))


def test_unknown_hardware() -> None:
    assert place([Room("n0", 2)], [2], Mapping()) == [(Place(0), Place(1))]
    for mapping in (Mapping.read("core"), Mapping.read("slot:pe=2"), Mapping(binding=Binding("numa"))):
        with pytest.raises(ValueError, match="the hardware of n0 is unknown"):
            place([Room("n0", 2)], [2], mapping)


GPUS = (
    Device(0x0F, (("CUDA_VISIBLE_DEVICES", "GPU-a"),), "nvml0"),
    Device(0xF0, (("CUDA_VISIBLE_DEVICES", "GPU-b"),), "nvml1"),
)


def test_each_rank_has_a_gpu_and_the_cpus_near_it() -> None:
    shape = node(gpus=GPUS)
    places = placed(shape, 2, 4, 3, Mapping.read("device=gpu:1"))
    assert shown(shape, places) == "0:0c0-1 0:1c2-3 1:0c0-1"
    assert [dict(each.variables)["CUDA_VISIBLE_DEVICES"] for each in places[0]] == ["GPU-a", "GPU-b"]
    both = placed(shape, 1, 4, 1, Mapping.read("device=gpu:2"))[0][0]
    assert both.variables == (("CUDA_VISIBLE_DEVICES", "GPU-a,GPU-b"),)
    assert [device.name for device in both.devices] == ["nvml0", "nvml1"]
    assert both.cpus == 0xFF
    cores = placed(shape, 1, 4, 2, Mapping.read("device=gpu", binding=Binding().read("core")))
    assert shown(shape, cores) == "0:0c0 0:1c2"
    with pytest.raises(ValueError, match="there are GPUs for 2 ranks, and not for 3, on 1 node"):
        placed(shape, 1, 4, 3, Mapping.read("device=gpu"))
    shared = placed(shape, 1, 4, 3, Mapping.read("device=gpu:shared"))
    assert shown(shape, shared) == "0:0c0-1 0:1c2-3 0:0c0-1"
    two = placed(shape, 1, 4, 4, Mapping.read("ppr:2:device=gpu"))
    assert shown(shape, two) == "0:0c0-1 0:0c0-1 0:1c2-3 0:1c2-3"


def test_how_many_ranks_fill_nodes() -> None:
    rooms = [Room(f"n{number}", 4, cpus=Cpus(f"n{number}", node(gpus=GPUS))) for number in range(2)]
    for text, size in (("ppr:2:package", 8), ("device=gpu", 4), ("device=gpu:2", 2), ("ppr:3:node", 6), ("core", 8)):
        assert fill(rooms, Mapping.read(text))[0] == size
    lines = read_rankfile(["rank 0=n1 slot=1", "rank 1=n0 slot=0"], "f")
    assert fill(rooms, Mapping(RANKFILE, lines=lines))[0] == 2


def test_rankfiles() -> None:
    text = """
    # as Open MPI's documentation has it
    rank 0=n1 slot=1:0-1
    rank 1=n0 slot=0:0;1:1
    RANK 2=+n1 slots=2,3   # relative
    rank 3=n0 slot=1:*
    """
    shape = node()
    mapping = Mapping(RANKFILE, lines=read_rankfile(text.splitlines(), "f"))
    assert shown(shape, placed(shape, 2, 4, 4, mapping)) == "1:1c2-3 0:0c0+1c3 1:1c2-3 0:1c2-3"
    with pytest.raises(ValueError, match="no line for rank 4: add one, or run 4 ranks"):
        placed(shape, 2, 4, 5, mapping)
    threads = Mapping(RANKFILE, lines=read_rankfile(["rank 0=n0 slot=0:1"], "f"), binding=Binding(threads=True))
    assert shown(shape, placed(shape, 1, 4, 1, threads)) == "0:0h1"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["rank 0 = n0"], "line 1 of f is not like `rank 0=n1 slot=0:0-3`: 'rank 0 = n0'"),
        (["rank 0=n0 slot=0", "", "rank 0=n0 slot=1"], "line 3 of f gives rank 0 a second place"),
        (["rank 1=n0 slot=0"], "has no line for rank 0"),
        (["rank 0=n0 slot=x"], "line 1 of f cannot be understood: a set of CPUs is written as 0-3,8, not as 'x'"),
        (["# one", "rank 0=n0 slot=a:0"], "line 2 of f cannot be understood: a package is a number, not 'a'"),
        (["# none"], "gives no rank a place"),
    ],
)
def test_no_rankfiles(lines: list[str], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        read_rankfile(lines, "f")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("rank 0=n7 slot=0", "places rank 0 on n7, and the job has the nodes n0, n1"),
        ("rank 0=n0 slot=4", "gives rank 0 the cores 4 of n0, which has, or lets ranks use, 4 of them"),
        ("rank 0=n0 slot=0:2", "which has, or lets ranks use, 2 of them there"),
    ],
)
def test_rankfiles_that_do_not_fit(line: str, words: str) -> None:
    with pytest.raises(ValueError) as caught:
        placed(node(), 2, 4, 1, Mapping(RANKFILE, lines=read_rankfile([line], "f")))
    assert words in str(caught.value)


@pytest.mark.parametrize("words", ["", "core", "hwthread", "package"])
def test_each_application_gets_what_the_earlier_ones_leave(words: str) -> None:
    mapping = Mapping.read(words) if words else Mapping(binding=Binding(level="core"))
    (places,) = place([Room("n0", 4, cpus=Cpus("n0", node(packages=1, cores=4)))], [1, 2, 1], mapping)
    assert [each.rank for each in places] == [0, 1, 2, 3]
    taken = [each.units for each in places]
    assert all(taken) and sum(taken) == taken[0] | taken[1] | taken[2] | taken[3]


@pytest.mark.parametrize("level", ["", "none"])
def test_a_set_of_cpus_needs_known_hardware(level: str) -> None:
    with pytest.raises(ValueError, match="the hardware of n0 is unknown: leave out --cpu-set"):
        place([Room("n0", 1)], [1], Mapping(binding=Binding(level=level, cpus="0")))


@pytest.mark.parametrize("text", ["", "cores", "core:x", "none:x", "slot", "node"])
def test_no_bindings(text: str) -> None:
    with pytest.raises(ValueError, match="ranks are bound to none, hwthread, core"):
        Binding().read(text)


def test_shapes_are_read_as_they_were_written(tmp_path: Path) -> None:
    found = Shape.of(machine(Layout(numa=2, l3=2, allowed="0-5", gpus=(0, 1)), tmp_path), -1)
    assert Shape.read(found.write()) == found
    assert [index for index, _ in Shape.of(machine(Layout(), tmp_path / "b"), 0b110).objects("core")] == [1, 2]
    for text in ("", "[]", "{}", '["0", {"house": "0:0"}, [], ""]', '["x", {}, [], ""]', "[" * 100000):
        with pytest.raises(ValueError):
            Shape.read(text)


def test_a_large_node_has_a_short_shape(tmp_path: Path) -> None:
    found = Shape.of(machine(Layout(packages=2, numa=4, l3=8, cores=64, threads=2), tmp_path), -1)
    assert len(found.objects("core")) == 128
    assert len(found.write()) < 6000


def test_what_ranks_are_told_of_the_policies() -> None:
    assert Mapping().policies(True) == ("BYCORE:NOOVERSUBSCRIBE", "FILL", "CORE")
    assert Mapping(crowded=True).policies(False) == ("BYSLOT:OVERSUBSCRIBE", "SLOT", "NONE")
    assert Mapping.read("package").policies(True) == ("BYPACKAGE:NOOVERSUBSCRIBE", "FILL", "PACKAGE")
    assert Mapping.read("slot:pe=2").policies(True) == ("BYSLOT:NOOVERSUBSCRIBE", "SLOT", "CORE")
