"""What ranks are told of their node's hardware, and the distances that a host computes."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

import pytest

from lib.hardware import Layout, machine
from pypmix.host import addresses, distances, hardware
from pypmix.host.binding import Binding
from pypmix.host.directives import SpawnRequest
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.mapping import RANKFILE, Mapping
from pypmix.host.spawning import _mapping as mapping_of
from pypmix.standard import attrs
from pypmix.standard.enums import DeviceType
from pypmix.standard.errors import NotFound, NotSupported, PMIxError
from pypmix.standard.ops import ComputeDistances
from pypmix.standard.structures import Cpuset, Topology
from pypmix.standard.types import Info
from pypmix.topology.xml import read_xml, write_xml


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A node of two packages of four cores of two threads, instead of this machine."""
    found = Layout(gpus=(0, 1))
    made = machine(found, tmp_path)
    for module in (hardware, distances):
        monkeypatch.setattr(module, "this_machine", lambda: made)
    return found


def data(infos: tuple[Info, ...]) -> dict[str, Any]:
    return {info.key: info.value.data for info in infos}


def test_places_and_the_node_are_told_to_its_own_ranks(layout: Layout) -> None:
    nodes = (NodeLayout("n0", (0, 1, 2, 3), cpus=("0,8", "1,9", "4,12", "")), NodeLayout("n1", (4,), cpus=("0,8",)))
    job = JobLayout("demo@1", (Application(("prog",), 5),), nodes)
    found = hardware.described(job.info(), job, "n0")
    procs = [data(infos) for _, infos in found.procs]
    assert [each.get("pmix.locstr") for each in procs] == [
        "SK0:L30:L20:L10:CR0:HT0-1:NM0",
        "SK0:L30:L21:L11:CR1:HT2-3:NM0",
        "SK1:L31:L24:L14:CR4:HT8-9:NM1",
        None,
        None,
    ]
    gpus = [
        {each.osname: each.mindist for each in of["pmix.dev.dist"].items if each.type == DeviceType.GPU}
        for of in procs[:3]
    ]
    assert gpus == [{"renderD128": 6, "renderD129": 12}] * 2 + [{"renderD128": 12, "renderD129": 6}]
    assert [bool(each.get("pmix.dev.dist")) for each in procs] == [True, True, True, False, False]
    assert [each.get("pmix.pkgrank") for each in procs] == [0, 1, 0, None, None]
    own, other = [data(infos) for infos in found.nodes]
    assert own["pmix.pmem"] == 32 << 30
    assert "pmix.pmem" not in other
    assert "pmix.alias" not in own, "a simulated node has no other names"
    assert hardware.described(job.info(), job, "n2") == job.info()


def test_clients_get_the_xml(layout: Layout) -> None:
    (info,) = hardware.resources()
    assert info.key == "pmix.hwlocxml2"
    assert len(read_xml(info.value.data).of_type("Core")) == layout.all_cores


def test_a_kernel_that_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hardware, "this_machine", lambda: None)
    job = JobLayout("demo@1", (Application(("prog",)),), (NodeLayout("n0", (0,)),))
    assert hardware.resources() == ()
    assert hardware.described(job.info(), job, "n0") == job.info()


@pytest.fixture
def own_name(monkeypatch: pytest.MonkeyPatch) -> str:
    hardware._addresses.cache_clear()
    monkeypatch.setattr(hardware.os, "uname", lambda: SimpleNamespace(nodename="n0.site"))
    return "n0.site"


def test_the_addresses_are_read_once(own_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def listed() -> list[str]:
        calls.append("read")
        return ["10.0.0.1", "127.0.0.1"]

    monkeypatch.setattr(addresses, "all_addresses", listed)
    assert hardware.aliases("n1") == "" and calls == []
    for _ in range(3):
        assert hardware.aliases(own_name) == "localhost,n0,127.0.0.1,10.0.0.1"
    assert calls == ["read"]
    hardware._addresses.cache_clear()


def test_a_kernel_that_does_not_list_its_addresses_in_time(own_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answered = Event()

    def listed() -> list[str]:
        assert answered.wait(30)
        return ["10.0.0.1"]

    monkeypatch.setattr(addresses, "all_addresses", listed)
    monkeypatch.setattr(hardware, "ADDRESS_SECONDS", 0.001)
    assert hardware.aliases(own_name) == "localhost,n0"
    answered.set()
    hardware._addresses.cache_clear()


class Question:
    """An upcall that keeps its answer."""

    requestor = None

    def __init__(self, op: ComputeDistances) -> None:
        self.op = op
        self.answer: Any = None

    def reply(self, answer: object) -> None:
        self.answer = answer


def answered(cpus: str, *infos: Info, xml: str | None = None) -> Any:
    upcall = Question(ComputeDistances(Topology(xml), Cpuset(cpus), infos))
    host: Any = SimpleNamespace(node_of=lambda _proc: SimpleNamespace(hostname="n0"))
    distances.ANSWERS[ComputeDistances](host, upcall)  # type: ignore[arg-type]
    return upcall.answer


def test_distances(layout: Layout, tmp_path: Path) -> None:
    assert [each.osname for each in answered("0")] == ["renderD128", "renderD129", "ib0", "ib1"]
    near, far = answered("0", attrs.DEVICE_TYPE(int(DeviceType.GPU)))
    assert near.uuid == "gpu://n0::renderD128"
    assert near.maxdist < far.mindist
    assert [each.osname for each in answered("0", attrs.DEVICE_ID("ib1"))] == ["ib1"]
    other = write_xml(machine(Layout(), tmp_path / "other"))
    with pytest.raises(NotFound):
        answered("0", xml=other)
    with pytest.raises(NotSupported, match="only the whole machine"):
        answered("0,4")
    for cpus, xml in (("x", None), ("0", "<a/>")):
        with pytest.raises(PMIxError, match="ERR_BAD_PARAM"):
            answered(cpus, xml=xml)


def wished(host_mapping: Mapping, *infos: Info) -> Mapping | None:
    request = SpawnRequest()
    request.read(infos)
    return mapping_of(SimpleNamespace(site=SimpleNamespace(mapping=host_mapping)), request)  # type: ignore[arg-type]


def test_directives_of_a_spawn_set_places() -> None:
    unbound = Mapping(crowded=True, binding=Binding("none"))
    assert wished(unbound) is None
    assert wished(unbound, attrs.MAPBY("node")) == Mapping("node", crowded=True, binding=Binding("none"))
    # Mapped to hardware, ranks are bound to it.
    assert wished(unbound, attrs.MAPBY("socket")) == Mapping("package", crowded=True)
    assert wished(unbound, attrs.MAPBY("package"), attrs.BINDTO("core:overload-allowed")) == Mapping(
        "package", crowded=True, binding=Binding("core", overload=True)
    )
    assert wished(unbound, attrs.CPUS_PER_PROC(2)) == Mapping(crowded=True, binding=Binding(width=2))
    assert wished(Mapping(), attrs.CPU_LIST("0-3")) == Mapping(binding=Binding(cpus="0-3"))
    assert wished(Mapping(RANKFILE)) == Mapping()
    assert wished(Mapping(), attrs.RANKBY("core")) == Mapping(rank_by="fill")


@pytest.mark.parametrize(
    ("infos", "words"),
    [
        ((attrs.BINDTO("board"),), "ranks are bound to none"),
        ((attrs.BINDTO("core"), attrs.BINDTO("numa")), "bound in one way"),
        ((attrs.BINDTO("none"), attrs.CPUS_PER_PROC(2)), "are bound to them"),
        ((attrs.CPU_LIST("x"),), "a set of CPUs"),
        ((attrs.MAPBY("board"),), "ranks are mapped by"),
        ((attrs.RANKBY("board"),), "procs are ranked by"),
    ],
)
def test_directives_that_cannot_be_met(infos: tuple[Info, ...], words: str) -> None:
    with pytest.raises(PMIxError, match=words):
        wished(Mapping(), *infos)
