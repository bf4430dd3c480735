"""What launchers and daemons tell each other parses as what was written, or is refused."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, strategies

from pypmix.host import orders
from pypmix.host.addresses import listening_address
from pypmix.host.binding import Binding
from pypmix.host.firstlines import Orders, bootstrap, first_line, read_orders, read_ready
from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.mapping import Mapping
from pypmix.host.nodes import HostNode
from pypmix.host.placing import Node as RosterNode
from pypmix.host.placing import placed, rooms_of
from pypmix.host.rank import Rank
from pypmix.standard import attrs
from pypmix.standard.errors import PMIxError, RemoteProtocolError
from pypmix.standard.ops import JobControl, Notification, Spawn
from pypmix.standard.types import App, Proc

FIELDS = [
    orders.DESCRIBE,
    orders.FAULT,
    orders.START,
    orders.STARTED,
    orders.INPUT,
    orders.PENDING,
    orders.SIGNAL,
    orders.NAMED,
    orders.PIECE,
    orders.PSET,
    orders.COUNT,
    orders.UPCALL,
    orders.ENDS,
    orders.EVENTS,
    orders.STAGE,
    orders.VALUE,
]
MAPPING = Mapping(crowded=True)
PROC = Proc("demo", 3)
APP = Application(("a.out", "\udcff"), 2, (("A", "b=c"),), "/tmp", "/bin/a.out", ("X",), "pset")
JOB = JobLayout(
    "demo",
    (APP, Application(("b",))),
    (NodeLayout("n0", (0, 2), 0, 0, 0), NodeLayout("n1", (1,), 1, 5, 4, True)),
    parent=PROC,
)
GIVEN = Orders("n1", "space", b"s" * 32, ("!launcher", (("127.0.0.1", 4711), ("::1", 4711))), 3, "lo", (("A", "b"),))


def test_a_job_is_read_as_it_was_written() -> None:
    described = (JOB, 7, True, None, False)
    assert orders.DESCRIBE.read(orders.DESCRIBE.write(described)) == described


@pytest.mark.parametrize(
    "value",
    [
        Spawn((App("a.out", ("a.out", "x"), (), "/tmp", 2, ()),), (attrs.HOST("n1"),)),
        JobControl((PROC,), (attrs.JOB_CTRL_KILL(True),)),
        Notification(-25, PROC, 6, (attrs.EVENT_AFFECTED_PROC(PROC),)),
        None,
        "text",
        (attrs.JOB_SIZE(4),),
    ],
)
def test_operations_and_results_are_read_as_they_were_written(value: object) -> None:
    assert orders.VALUE.read(orders.VALUE.write(value)) == value


@given(strategies.binary(max_size=200), strategies.sampled_from(FIELDS))
def test_bytes_parse_or_are_refused(data: bytes, field: orders.Field[object]) -> None:
    try:
        field.read(data)
    except RemoteProtocolError:
        pass


@given(strategies.data())
def test_a_description_that_was_changed_parses_or_is_refused(data: strategies.DataObject) -> None:
    packed = bytearray(orders.DESCRIBE.write((JOB, 1, False, 0, False)))
    for _ in range(data.draw(strategies.integers(1, 4))):
        packed[data.draw(strategies.integers(0, len(packed) - 1))] = data.draw(strategies.integers(0, 255))
    try:
        orders.DESCRIBE.read(bytes(packed))
    except RemoteProtocolError:
        pass


def test_the_first_line_is_read_as_it_was_written() -> None:
    line = bootstrap(GIVEN)
    assert line.endswith(b"\n") and line.count(b"\n") == 1
    assert read_orders(line) == GIVEN


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"protocol": 1}, "all nodes need the same"),
        ({"version": "1.0"}, "the launcher has pypmix 1.0"),
        ({"secret": "no hex"}, "has it wrong"),
        ({"launcher": ["x"]}, "has it wrong"),
        ({"env": []}, "has it wrong"),
    ],
)
def test_a_first_line_that_does_not_fit_is_refused(changes: dict[str, object], words: str) -> None:
    line = json.dumps({**json.loads(bootstrap(GIVEN)), **changes}).encode()
    with pytest.raises(ValueError, match=words) as caught:
        read_orders(line)
    assert "7373" not in str(caught.value), "the secret is shown"


def test_an_agent_that_passes_no_input_on_or_sends_it_back_is_told() -> None:
    for line in (b"", b"\n"):
        with pytest.raises(ValueError, match="kubectl exec with -i"):
            read_orders(line)
    for before in (b"", b"Welcome", b"Welcome\n$ "):
        with pytest.raises(PMIxError, match="comes back") as caught:
            read_ready(before + bootstrap(GIVEN), "n1")
        assert "7373" not in str(caught.value), "the secret is shown"


def test_the_first_line_of_a_daemon_is_found_behind_what_shells_print() -> None:
    line = b'{"ready": "n1"}'
    assert first_line(line) == (line, b"", b"")
    assert first_line(b"\n" + line + b"\nmore") == (b"\n", line, b"more")
    assert first_line(b"Welcome\n{quota}\n" + line + b"\n") == (b"Welcome\n{quota}\n", line, b"")
    assert first_line(b'Welcome {"to": 1}\n') == (b'Welcome {"to": 1}\n', b"", b"")
    assert first_line(b"Welcome\nto n1") == (b"Welcome\nto n1", b"", b"")


@given(strategies.binary(max_size=100))
def test_any_first_line_is_read_or_refused(line: bytes) -> None:
    with pytest.raises(ValueError):
        read_orders(line)
    with pytest.raises(PMIxError, match="node n1"):
        read_ready(line, "n1")


def test_the_address_to_listen_on() -> None:
    assert listening_address("", [("127.0.0.1", 1)]) == "127.0.0.1"
    assert listening_address("127.0.0.5/32", []) == "127.0.0.5"
    assert listening_address("127.0.0.0/8", []) == "127.0.0.1"
    assert listening_address("lo", []) == "127.0.0.1"
    with pytest.raises(OSError, match="neither an interface"):
        listening_address("nosuch0", [])
    with pytest.raises(OSError, match="no address in"):
        listening_address("2001:db8::/32", [])


def test_ranks_take_slots_and_then_even_shares() -> None:
    nodes = [(HostNode(number, f"n{number}", "", slots), slots) for number, slots in ((0, 2), (2, 3))]
    ranks = [Rank(Proc("other", 0), "other", nodes[1][0])]

    def shares(size: int, **limits: int) -> dict[int, int]:
        return {
            node.number: len(ranks)
            for node, ranks in placed([size], nodes, rooms_of(nodes, limits, ranks, MAPPING), MAPPING)
        }

    assert shares(1) == {0: 1}
    assert shares(4) == {0: 2, 2: 2}
    assert shares(7) == {0: 4, 2: 3}
    assert shares(2, n0=1) == {0: 1, 2: 1}
    with pytest.raises(OverflowError, match="no node has a slot"):
        placed([1], [], [], Mapping())


@pytest.mark.parametrize("name", ["", "a,b", "a/b", "!x", "x" * 300])
def test_names_that_no_node_can_have(name: str) -> None:
    with pytest.raises(ValueError):
        RosterNode(name)


@pytest.mark.parametrize(
    ("mapping", "devices"),
    [
        (Mapping(binding=Binding("none")), None),
        (Mapping(by="node", binding=Binding("none")), None),
        (Mapping(), False),
        (Mapping(by="core", binding=Binding("none")), False),
        (Mapping(binding=Binding("none", cpus="0-1")), False),
        (Mapping(by="device"), True),
    ],
)
def test_the_hardware_of_a_node_is_read_for_placements_that_need_it(mapping: Mapping, devices: bool | None) -> None:
    asked: list[bool] = []

    class Node(HostNode):
        def find_shape(self, *, devices: bool = False) -> None:
            asked.append(devices)

    rooms_of([(Node(0, "n0", "", 2), 2)], {}, (), mapping)
    assert asked == ([] if devices is None else [devices])
