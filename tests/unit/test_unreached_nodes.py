"""Nodes of a session that do not reach each other: when the launcher warns of them, on virtual time."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from pypmix.host import orders
from pypmix.host.exchange import VirtualTime
from pypmix.host.placing import Node
from pypmix.host.session import Fleet, NodeSession, Probes


class Daemons:
    """An exchange whose other servers answer probes at once: `n1` has not reached `n2` until a time."""

    def __init__(self, clock, begin, until=float("inf")):
        self.clock = clock
        self.begin = begin
        self.until = until
        self.hung = set()

    def request(self, name, topic, _data, answered, timeout=0.0):
        assert topic == orders.PROBE and not timeout
        if name in self.hung:
            return
        apart = name == "n1" and self.begin <= self.clock.now < self.until
        unreached = (("n2", "10.77.0.2 port 9", "no answer", self.clock.now - self.begin),) if apart else ()
        answered(orders.UNREACHED.write(unreached), None)


@pytest.fixture
def fleet():
    """Return a function that makes a fleet of two nodes, with the daemons and the losses, by their times."""

    def make(patience, keep_alive, begin=0.5, until=float("inf")):
        clock = VirtualTime()
        warnings = []
        sink = SimpleNamespace(write=lambda _stream, line: warnings.append((clock.now, line.decode())))
        post = SimpleNamespace(post=lambda call: call())
        machine = SimpleNamespace(tmpdir="/tmp")
        host = SimpleNamespace(tmpdir="/tmp", loop=post, sink=lambda _number: sink, machine=machine)
        nodes = [Node(name, slots=1) for name in ("n1", "n2")]
        session = NodeSession(nodes, None, patience=patience, keep_alive=keep_alive)
        found = Fleet(host, session, "job", clock)
        daemons = Daemons(clock, begin, until)
        for node in found.nodes:
            node.open(daemons, lambda reason: None)
        losses = []

        def lose(name, reason):
            losses.append((clock.now, name, reason))
            found._joined = tuple(node for node in found.nodes if node.hostname != name)

        found.lose = lose
        Probes(host, found, clock).begin()
        return clock, daemons, losses, warnings

    return make


@pytest.mark.parametrize("keep_alive", [3.0, 30.0, 600.0])
@pytest.mark.parametrize("patience", [2.0, 5.0, 30.0])
def test_two_that_do_not_reach_each_other_are_named_once_when_the_time_is_over(fleet, patience, keep_alive):
    clock, daemons, losses, warnings = fleet(patience, keep_alive)
    clock.run(daemons.begin + patience - 0.01)
    assert warnings == []
    clock.run(daemons.begin + patience + min(patience, keep_alive) / 3)
    ((_, line),) = warnings
    assert line.startswith("pypmix run: n1 has not reached n2 at 10.77.0.2 port 9") and "--interface" in line
    clock.run(3 * patience)
    assert len(warnings) == 1
    assert losses == []


def test_nodes_that_reach_each_other_in_time_are_not_named(fleet):
    clock, _, losses, warnings = fleet(5.0, 30.0, until=5.49)
    clock.run(100.0)
    assert losses == warnings == []


@pytest.mark.parametrize("patience", [2.0, 5.0, 30.0])
def test_a_daemon_that_hangs_is_lost_within_the_keep_alive(fleet, patience):
    clock, daemons, losses, _ = fleet(patience, 6.0, begin=1e9)
    clock.run(20.0)
    assert losses == []
    daemons.hung.add("n2")
    clock.run(26.0 + 2 * min(6.0, patience) / 6)
    ((when, name, reason),) = losses
    assert name == "n2" and when >= 26.0 and reason.startswith("its daemon has not answered for 6")
