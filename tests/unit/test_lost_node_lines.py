"""The lines of a launcher about lost nodes, on virtual time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pypmix.host.exchange import VirtualTime
from pypmix.host.placing import Node
from pypmix.host.rosters.base import NOT_OURS
from pypmix.host.session import Fleet, NodeSession

NAMES = ("n1", "n2", "n3")


def daemon(node):
    started = SimpleNamespace(stop=lambda: None, ended=lambda: 0, stdin=NOT_OURS, stdout=-1)
    return SimpleNamespace(
        node=node, started=started, joining=None, has_joined=True, present=True, open=True, dismiss=lambda: None
    )


@pytest.fixture
def running():
    """Return the clock, a fleet of three nodes without ranks, and the lines that it has written."""
    clock = VirtualTime()
    lines = []
    sink = SimpleNamespace(write=lambda _stream, line: lines.append(line.decode()))
    host = SimpleNamespace(
        loop=SimpleNamespace(post=lambda call: call()),
        sink=lambda _number: sink,
        machine=SimpleNamespace(tmpdir="/tmp"),
        jobs={},
        listeners={},
        node_lost=lambda: None,
        notify=lambda _event: None,
        server=SimpleNamespace(proc=None),
        nodes=(),
    )
    fleet = Fleet(host, NodeSession([Node(name, slots=1) for name in NAMES], None), "job", clock)
    fleet._daemons = {node.hostname: daemon(node) for node in fleet.nodes}
    return clock, fleet, lines


@pytest.fixture(autouse=True)
def without_events(monkeypatch):
    monkeypatch.setattr("pypmix.host.session.node_event", lambda *_: None)


def test_nodes_that_are_lost_together_are_one_line(running):
    """As all are to a launcher that was stopped."""
    clock, fleet, lines = running
    for name in NAMES:
        fleet.lose(name, "this server was stopped, and n2 counts it as lost")
    clock.run(clock.now + 1.0)
    assert lines == ["pypmix run: nodes n1, n2, n3 are lost: this server was stopped, and n2 counts it as lost\n"]


def test_nodes_that_are_lost_for_other_reasons_or_later_have_a_line_each(running):
    clock, fleet, lines = running
    fleet.lose("n1", "its daemon has ended")
    fleet.lose("n3", "it has left")
    clock.run(clock.now + 1.0)
    assert lines[0] == "pypmix run: node n1 is lost: its daemon has ended\n"
    assert lines[1:] == ["pypmix run: node n3 is lost: it has left\n"]
    fleet.lose("n2", "its daemon has ended")
    clock.run(clock.now + 1.0)
    assert lines[2:] == ["pypmix run: node n2 is lost: its daemon has ended\n"]
