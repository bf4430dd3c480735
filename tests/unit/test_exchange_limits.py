"""The time limit of one caller ends a collective on all servers, also where a server still waits for others."""

from __future__ import annotations

import pytest

from lib.exchange_session import Session
from lib.exchange_world import TIMEOUT
from pypmix.engine.collective import rules
from pypmix.engine.times import EXPIRY_SECONDS
from pypmix.standard import attrs, statuses
from pypmix.standard.ops import Connect, Disconnect, FenceUpcall, GroupUpcall
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT, GROUP_DESTRUCT
from pypmix.standard.types import Proc

pytestmark = pytest.mark.timeout(30)

PROCS = (Proc("job", 0), Proc("job", 1), Proc("job", 2))
KINDS = {
    rules.FENCE: lambda infos: FenceUpcall(PROCS, infos, b""),
    rules.CONNECT: lambda infos: Connect(PROCS, infos),
    rules.DISCONNECT: lambda infos: Disconnect(PROCS, infos),
    rules.CONSTRUCT: lambda infos: GroupUpcall(GROUP_CONSTRUCT, "g", PROCS, infos),
    rules.DESTRUCT: lambda infos: GroupUpcall(GROUP_DESTRUCT, "g", PROCS, infos),
}


class Cluster(Session):
    """Three servers that note what they are asked to end, and say that they have when they are told to."""

    def __init__(self):
        super().__init__(3)
        self.asked = []
        for name, server in self.servers.items():
            server.expire = lambda kind, id, procs, done, name=name: self.asked.append((name, kind, id, procs, done))
        self.register(*self.names)
        self.hub.run()

    def call(self, name, kind, *infos):
        return self.ask(name, KINDS[kind](infos))

    def wait(self, seconds):
        self.hub.run(self.hub.clock.now + seconds)

    def end_elsewhere(self):
        asked, self.asked = self.asked, []
        for *_, done in asked:
            done()
        self.wait(0.05)
        return sorted((name, kind, id) for name, kind, id, _, _ in asked)


@pytest.mark.parametrize("caller", ["n000", "n001"])
@pytest.mark.parametrize("kind", KINDS)
def test_those_that_lack_callers_end_it_before_the_others_hear(kind, caller):
    cluster = Cluster()
    call = cluster.call(caller, kind, attrs.TIMEOUT(2))
    cluster.wait(2.1)
    assert not call.ends
    assert [set(each[3]) for each in cluster.asked] == [set(PROCS)] * 2
    id = "g" if kind in (rules.CONSTRUCT, rules.DESTRUCT) else ""
    assert cluster.end_elsewhere() == [(name, kind, id) for name in cluster.names if name != caller]
    assert call.end.code == TIMEOUT and {*call.end.missing} == {*PROCS} - {PROCS[cluster.names.index(caller)]}
    # The next call of all is the next one of each.
    calls = [cluster.call(name, kind) for name in cluster.names]
    cluster.hub.run()
    assert not any(isinstance(each.end, Exception) for each in calls)
    assert not any(exchange.open() for exchange in cluster.exchanges.values())


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_whose_own_callers_run_out_of_time_ends_it_for_all(kind):
    """It has not contributed, and says so with the status of its callers."""
    cluster = Cluster()
    call = cluster.call("n000", kind)
    cluster.wait(1)
    over = cluster.call("n002", kind, attrs.LOCAL_COLLECTIVE_STATUS(statuses.ERR_TIMEOUT))
    cluster.wait(0.1)
    assert [each[0] for each in cluster.asked] == ["n001"]
    assert not call.ends
    cluster.end_elsewhere()
    assert call.end.code == over.end.code == TIMEOUT


def test_what_arrives_meanwhile_ends_as_well():
    """Its callers had called before their server could end it: nobody else has counted them in."""
    cluster = Cluster()
    call = cluster.call("n001", rules.FENCE, attrs.TIMEOUT(2))
    cluster.wait(2.1)
    late = cluster.call("n002", rules.FENCE)
    cluster.wait(0.1)
    assert not late.ends and not call.ends
    cluster.end_elsewhere()
    assert call.end.code == late.end.code == TIMEOUT


def test_a_contribution_on_its_way_is_not_ended_twice():
    cluster = Cluster()
    call = cluster.call("n001", rules.FENCE, attrs.TIMEOUT(2))
    cluster.wait(2.005)
    late = cluster.call("n002", rules.FENCE)
    cluster.wait(0.1)
    assert [each[0] for each in cluster.asked] == ["n000"]
    cluster.end_elsewhere()
    assert call.end.code == late.end.code == TIMEOUT


def test_a_server_that_does_not_answer_delays_it_for_a_moment_only():
    cluster = Cluster()
    call = cluster.call("n001", rules.CONNECT, attrs.TIMEOUT(2))
    cluster.wait(2 + EXPIRY_SECONDS / 2)
    assert not call.ends
    cluster.wait(EXPIRY_SECONDS)
    assert call.end.code == TIMEOUT


@pytest.mark.parametrize("has", [True, False])
def test_a_server_without_such_a_call_is_not_waited_for(has):
    """As those of libpmix; and one that is lost."""
    cluster = Cluster()
    for name in ("n000", "n002"):
        if has:
            cluster.hub.clock.later(2.05, lambda name=name: cluster.hub.lose(name) if name == "n002" else None)
        else:
            del cluster.servers[name].expire
    call = cluster.call("n001", rules.CONNECT, attrs.TIMEOUT(2))
    cluster.wait(2.06)
    for *_, done in cluster.asked:
        done()
    cluster.wait(0.1)
    assert call.end.code == TIMEOUT
