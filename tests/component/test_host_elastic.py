"""Allocation requests: what they ask for, and what is refused before any node is asked."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from pypmix.extras.schedulers import prrte, slurm_further
from pypmix.host import elastic
from pypmix.host.placing import Node, NodeRequest
from pypmix.host.rosters.base import ElasticRoster, RosterError, Settings
from pypmix.host.rosters.names import read_hosts
from pypmix.host.rosters.ssh import SSHRoster
from pypmix.standard import attrs
from pypmix.standard.enums import AllocDirective, EventCode, InfoFlags, Status
from pypmix.standard.errors import NotFound, NotSupported, PMIxError
from pypmix.standard.ops import AllocationRequest
from pypmix.standard.types import Info, Proc


class Remote:
    """A node of the session."""

    def __init__(self, node: Node, running: int = 0) -> None:
        self.known, self.hostname, self.slots = node, node.name, node.slots
        self.ranks = [SimpleNamespace(node=self, over=False) for _ in range(running)]
        self.names = (node.name, f"{node.name}.cluster")
        self.busy = False
        self.lost = ""

    def refresh(self, done: Any, timeout: float) -> None:
        done()

    def __str__(self) -> str:
        return self.hostname

    def when_idle(self, done: Any) -> None:
        self.idle = done
        if not self.busy:
            done()


class Session:
    """A launcher with its daemons, which come and go at once."""

    def __init__(self, *nodes: Remote, obtained: Sequence[Node] = (), reason: str = "", failing: str = "") -> None:
        self.nodes = nodes
        self.wanted: list[NodeRequest] = []
        self.released: list[str] = []
        self.ended: list[int] = []
        self.events: list[str] = []
        self.jobs = {
            "job": SimpleNamespace(
                ranks=[rank for node in nodes for rank in node.ranks], when_started=lambda call: call()
            )
        }
        self.space = "demo"
        self.loop = SimpleNamespace(post=lambda call: call())
        self.server = SimpleNamespace(proc=Proc("demo@0", 0))
        self._obtained = obtained, reason
        self._failing = failing
        self.elastic = elastic.Elastic(self, self, self)  # type: ignore[arg-type]

        self.elastic.begin()

    def find_part(self, _kind: type) -> elastic.Elastic:
        return self.elastic

    @staticmethod
    def answer_with(function: Any, upcall: Any) -> None:
        function(upcall.host, upcall)

    def obtain(self, wanted: NodeRequest, done: Any) -> None:
        self.wanted.append(wanted)
        done(*self._obtained)

    def release(self, node: Node) -> None:
        self.released.append(node.name)

    def add(self, nodes: Sequence[Node], done: Any) -> None:
        failed = {node.name: "it is broken" for node in nodes if node.name == self._failing}
        if not failed:
            self.nodes += tuple([Remote(node) for node in nodes])
        done(failed)

    def dismiss(self, node: Remote, done: Any) -> None:
        self.nodes = tuple([each for each in self.nodes if each is not node])
        done()

    def notify(self, event: Any) -> None:
        self.events.append(f"{EventCode(event.code).name} {event.infos[0].value.data}")

    def ask(self, directive: int, *infos: Info, uid: int | None = None) -> dict[str, Any]:
        """Return the answer to a request."""
        found: list[Any] = []
        upcall = SimpleNamespace(
            host=self,
            op=AllocationRequest(directive, infos),
            uid=os.geteuid() if uid is None else uid,
            requestor=None,
            reply=found.append,
            fail=found.append,
        )
        elastic.ANSWERS[AllocationRequest](self, upcall)  # type: ignore[arg-type]
        (answer,) = found
        if isinstance(answer, Exception):
            raise answer
        return {info.key: info.value.data for info in answer}


NEW, EXTEND, RELEASE = AllocDirective.NEW, AllocDirective.EXTEND, AllocDirective.RELEASE


def test_nodes_are_wanted_by_name_and_by_number() -> None:
    session = Session(Remote(Node("n1")), obtained=[Node("n3", 4), Node("n4")])
    answer = session.ask(EXTEND, attrs.ALLOC_NODE_LIST("n3:4,n4"), attrs.ALLOC_REQ_ID("mine"))
    assert session.wanted == [NodeRequest((("n3", 4), ("n4", 1)))]
    assert answer == {
        attrs.ALLOC_ID.key: "demo.1",
        attrs.ALLOC_NODE_LIST.key: "n3,n4",
        attrs.ALLOC_REQ_ID.key: "mine",
    }
    assert session.elastic.nodes_of("demo.1") == ("n3", "n4")
    session.ask(NEW, attrs.ALLOC_NUM_NODES(2), attrs.ALLOC_NUM_CPUS(8))
    assert session.wanted[1:] == [NodeRequest((), 2, 8)]
    assert session.events == ["DVM_IS_READY n3,n4"] * 2


def test_of_the_nodes_of_a_request_all_join_or_none() -> None:
    session = Session(Remote(Node("n1")), obtained=[Node("n3"), Node("n4")], failing="n4")
    with pytest.raises(PMIxError, match="it is broken") as caught:
        session.ask(EXTEND, attrs.ALLOC_NODE_LIST("n3,n4"))
    assert caught.value.status == Status.ERR_JOB_ALLOC_FAILED
    assert session.events == ["ERR_DVM_MOD True"] and session.elastic.nodes_of("demo.1") == ()
    with pytest.raises(PMIxError, match="there are no more"):
        Session(Remote(Node("n1")), reason="there are no more").ask(EXTEND, attrs.ALLOC_NUM_NODES(1))


@pytest.mark.parametrize(
    ("directive", "infos", "status"),
    [
        (EXTEND, (), Status.ERR_BAD_PARAM),
        (EXTEND, (attrs.ALLOC_NUM_NODES(1 << 40),), Status.ERR_BAD_PARAM),
        (EXTEND, (attrs.ALLOC_NUM_CPUS(1 << 40),), Status.ERR_BAD_PARAM),
        (EXTEND, (attrs.ALLOC_NODE_LIST("n1"),), Status.ERR_EXISTS),
        (EXTEND, (attrs.ALLOC_NODE_LIST("-x"),), Status.ERR_BAD_PARAM),
        (EXTEND, (Info(*attrs.ALLOC_MEM_SIZE(1.0)[:2], InfoFlags.REQUIRED),), Status.ERR_NOT_SUPPORTED),
        (AllocDirective.REQ_CANCEL, (), Status.ERR_NOT_SUPPORTED),
        (RELEASE, (), Status.ERR_BAD_PARAM),
        (RELEASE, (attrs.ALLOC_NODE_LIST("n9"),), Status.ERR_NOT_FOUND),
        (RELEASE, (attrs.ALLOC_NODE_LIST("n1"),), Status.ERR_RESOURCE_BUSY),
        (RELEASE, (attrs.ALLOC_NUM_NODES(2),), Status.ERR_RESOURCE_BUSY),
        (RELEASE, (attrs.ALLOC_NODE_LIST("n1,n2"),), Status.ERR_BAD_PARAM),
        (RELEASE, (attrs.ALLOC_ID("demo.7"),), Status.ERR_BAD_PARAM),
    ],
)
def test_refusals(directive: int, infos: tuple[Info, ...], status: int) -> None:
    session = Session(Remote(Node("n1"), 1), Remote(Node("n2")))
    with pytest.raises(PMIxError) as caught:
        session.ask(directive, *infos)
    assert caught.value.status == status, caught.value
    assert len(session.nodes) == 2 and not session.wanted and not session.released


def test_a_node_that_is_on_its_way_is_not_asked_for_again() -> None:
    session = Session(Remote(Node("n1")), obtained=[Node("n3")])
    calls: list[Any] = []
    session.obtain = lambda wanted, done: calls.append(done)  # type: ignore[method-assign]
    found: list[Any] = []
    grow = elastic.Elastic(session, session, session).grow  # type: ignore[arg-type]
    grow(NodeRequest((("me@n3", 1),)), lambda *done: found.append(done))
    with pytest.raises(PMIxError, match="n3 is on its way") as caught:
        grow(NodeRequest((("n2", 1), ("n3", 1))), lambda *_: None)
    assert caught.value.status == Status.ERR_EXISTS and not found
    calls[0]((), "there is none")
    grow(NodeRequest((("n3", 1),)), lambda *done: found.append(done))
    calls[1]([Node("n3")], "")
    assert [granted for granted, _ in found] == ["", "demo.1"]


def test_a_node_that_is_taken_out_twice_leaves_once_and_both_are_answered() -> None:
    node = Remote(Node("n2"))
    session = Session(Remote(Node("n1")), node)
    node.busy = True
    done: list[str] = []
    session.elastic.shrink(["n2"], True, lambda: done.append("first"))
    assert node.slots == 0, "no rank is placed there any more"
    session.elastic.shrink(["n2", "n2"], True, lambda: done.append("second"))
    session.elastic.leave("n2", "it is needed")
    assert not done
    node.idle()
    assert done == ["first", "second"] and session.released == ["n2"]
    assert sum(event.startswith("EVENT_NODE_OFFLINE") for event in session.events) == 1


def test_an_asker_whose_node_leaves_last_is_answered_before_and_once() -> None:
    nodes = Remote(Node("n2")), Remote(Node("n3"))
    session = Session(Remote(Node("n1")), *nodes)
    nodes[0].busy = nodes[1].busy = True
    done: list[object] = []

    def said(name: str) -> Any:
        return lambda: done.append((name, list(session.released)))

    session.elastic.shrink(["n3", "n2"], True, said("there"), "", "n3")
    assert nodes[1].slots == 0, "no rank is placed there any more"
    nodes[0].idle()
    assert not done
    nodes[1].idle()
    assert done == [("there", ["n2"])] and session.released == ["n2", "n3"]
    # Another request takes its node out, while it waits for the other one.
    done.clear()
    session.nodes += nodes
    session.elastic.shrink(["n3", "n2"], True, said("there"), "", "n3")
    session.elastic.shrink(["n3"], True, said("elsewhere"))
    nodes[1].idle()
    nodes[0].idle()
    assert [name for name, _ in done] == ["elsewhere", "there"]
    assert session.released == ["n2", "n3", "n3", "n2"]


def test_a_node_without_slots_is_not_one_that_stays() -> None:
    session = Session(Remote(Node("n1")), Remote(Node("n2", 0)))
    with pytest.raises(PMIxError, match="without n1 the session has no slot"):
        session.ask(RELEASE, attrs.ALLOC_NODE_LIST("n1"))


def test_another_user_changes_nothing() -> None:
    session = Session(Remote(Node("n1")), Remote(Node("n2")))
    with pytest.raises(PMIxError) as caught:
        session.ask(RELEASE, attrs.ALLOC_NODE_LIST("n2"), uid=os.geteuid() + 1)
    assert caught.value.status == Status.ERR_NO_PERMISSIONS


def test_nodes_are_released_by_name_number_and_allocation() -> None:
    session = Session(Remote(Node("n1"), 1), Remote(Node("n2")), Remote(Node("n3")), obtained=[Node("n4")])
    granted = session.ask(NEW, attrs.ALLOC_NODE_LIST("n4"))[attrs.ALLOC_ID.key]
    assert session.ask(RELEASE, attrs.ALLOC_ID(granted)) == {attrs.ALLOC_NODE_LIST.key: "n4"}
    assert session.elastic.nodes_of(granted) == ()
    assert session.ask(RELEASE, attrs.ALLOC_NUM_NODES(1)) == {attrs.ALLOC_NODE_LIST.key: "n3"}
    session.ask(RELEASE, attrs.ALLOC_NODE_LIST("n2.cluster"))
    assert session.released == ["n4", "n3", "n2"]
    assert session.events[1:3] == ["EVENT_NODE_OFFLINE n4", "DVM_IS_READY n4"]


def test_ssh_knows_nodes_that_are_named_and_those_that_were_released() -> None:
    roster = SSHRoster(Settings({"PATH": os.environ["PATH"]}, tuple(read_hosts("n1,n2:2")), "sh -c {command}"))
    assert isinstance(roster, ElasticRoster)
    told: list[tuple[list[Node], str]] = []

    def done(nodes: Sequence[Node], reason: str) -> None:
        told.append((list(nodes), reason))

    roster.obtain(NodeRequest((("me@n3", 4),)), done)
    roster.obtain(NodeRequest(nodes=1), done)
    roster.release(roster.nodes()[1])
    roster.obtain(NodeRequest(nodes=1, cpus=3), done)
    roster.obtain(NodeRequest(nodes=1, cpus=2), done)
    assert [[node.name for node in nodes] for nodes, _ in told] == [["n3"], [], [], ["n2"]]
    assert told[0][0][0].slots == 4 and told[0][0][0].addresses == ("me@n3",)
    assert "have to be named" in told[1][1]
    roster.close()


class Group:
    """Processes on nodes, which come when the test says so."""

    come = threading.Event()
    fails = False
    closed: ClassVar[SimpleQueue[Any]] = SimpleQueue()

    def __init__(self, *given: Any) -> None:
        names = next(each for each in given if isinstance(each, list))
        self.followers = {name: SimpleNamespace(hello=SimpleNamespace(cpus=4), addresses=()) for name in names}

    def wait(self, _deadline: float) -> None:
        Group.come.wait(30)
        if Group.fails:
            raise RosterError("they do not come")

    def nodes(self, _slots: Any) -> list[Node]:
        return [Node(name) for name in self.followers]

    def watch(self, _lost: Any) -> None: ...

    def close(self) -> None:
        Group.closed.put(self)


def obtained(obtain: Any, *wanted: NodeRequest) -> list[tuple[list[str], str]]:
    """Ask for nodes, all requests at a time; return what is answered."""
    answers: SimpleQueue[tuple[list[str], str]] = SimpleQueue()
    Group.come.clear()
    for each in wanted:
        obtain(each, lambda nodes, reason: answers.put(([node.name for node in nodes], reason)))
    time.sleep(0.2)
    Group.come.set()
    return sorted([answers.get(timeout=30) for _ in wanted])


def test_two_requests_do_not_take_the_same_node_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slurm_further, "started", Group)
    left = {"n2": Node("n2", 3)}
    further = slurm_further.FurtherNodes(Settings({"PATH": ""}), [], left, lambda _name, _reason: None)
    one = NodeRequest(nodes=1)
    assert obtained(further.obtain, one, one) == [
        ([], "there is no salloc here to ask Slurm for further nodes"),
        (["n2"], ""),
    ]
    left["n2"] = Node("n2", 3)
    monkeypatch.setattr(Group, "fails", True)
    assert obtained(further.obtain, NodeRequest((("n2", 0),))) == [([], "they do not come")]
    assert left == {"n2": Node("n2", 3)}
    # Whatever it is, it is told.
    monkeypatch.setattr(slurm_further, "started", None)
    assert "not callable" in obtained(further.obtain, one)[0][1]


def test_two_requests_do_not_take_the_same_node_of_a_dvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prrte, "Group", Group)
    monkeypatch.setattr(prrte.PRRTERoster, "_names", staticmethod(lambda _tool: ["n1", "n2", "n3", "n4"]))
    roster = prrte.PRRTERoster(Settings({}))
    roster._tool = SimpleNamespace()  # type: ignore[assignment]
    one = NodeRequest(nodes=1)
    assert obtained(roster.obtain, one, one) == [(["n1"], ""), (["n2"], "")]
    monkeypatch.setattr(Group, "fails", True)
    assert "they do not come" in obtained(roster.obtain, one)[0][1]
    assert not roster._coming
    monkeypatch.setattr(prrte, "Group", None)
    assert "not callable" in obtained(roster.obtain, one)[0][1]


def test_processes_that_were_started_for_a_node_end_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their launcher listens for them until then: nodes may come and go as often as they like."""
    monkeypatch.setattr(Group, "closed", SimpleQueue())
    monkeypatch.setattr(prrte, "Group", Group)
    monkeypatch.setattr(prrte.PRRTERoster, "_names", staticmethod(lambda _tool: ["n1", "n2", "n3"]))
    roster = prrte.PRRTERoster(Settings({}))
    roster._tool = SimpleNamespace()  # type: ignore[assignment]
    monkeypatch.setattr(slurm_further, "started", Group)
    left = {"n1": Node("n1"), "n2": Node("n2")}
    further = slurm_further.FurtherNodes(Settings({"PATH": ""}), [], left, lambda _name, _reason: None)
    both = NodeRequest((("n1", 0), ("n2", 0)))
    for obtain, release in (roster.obtain, roster.release), (further.obtain, lambda node: further.release(node.name)):
        assert obtained(obtain, both) == [(["n1", "n2"], "")]
        (group,) = roster._groups or further._restarted
        release(Node("n1"))
        time.sleep(0.2)
        assert Group.closed.empty()
        release(Node("n2"))
        assert Group.closed.get(timeout=30) is group
        assert not roster._groups and not further._restarted
    monkeypatch.setattr(Group, "fails", True)
    assert "they do not come" in obtained(roster.obtain, both)[0][1]
    Group.closed.get(timeout=30)
    assert not roster._groups


def test_a_fixed_session_says_so() -> None:
    session = Session(Remote(Node("n1")))
    session.obtain = None  # type: ignore[assignment, method-assign]
    fixed = elastic.Elastic(session, session, session)  # type: ignore[arg-type]
    with pytest.raises(NotSupported, match="its roster adds none"):
        fixed.grow(NodeRequest((("n2", 1),)), lambda _id, _error: None)
    with pytest.raises(NotFound):
        fixed.shrink(["n2"], False, lambda: None)
