"""What one host of several defines as process sets, the servers of all know alike, whatever overtakes what."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.exchange_psets import Server
from pypmix.host.exchange import Exchange, Hub
from pypmix.host.exchange.psets import Psets
from pypmix.standard.errors import NotFound, PMIxError
from pypmix.standard.types import Proc

pytestmark = pytest.mark.timeout(60)

EXISTS = -11
FIRST, SECOND = (Proc("job", 0), Proc("job", 1)), (Proc("job", 2),)
NAMES = "abcd"


class Host:
    def __init__(self, hub, name, knows=True):
        self.server = Server(knows)
        self.exchange = Exchange(hub.carrier(name), later=hub.clock.later)
        self.psets = Psets(self.server, self.exchange)
        self.exchange.start()


class Session:
    """Hosts whose messages take as long as the test says."""

    def __init__(self, names="abc", delay=None):
        self.hub = Hub(delay=delay)
        self.hosts = {name: Host(self.hub, name, knows=name != "c") for name in names}
        self.hub.clock.run()

    def __getitem__(self, name):
        return self.hosts[name].psets

    def known(self):
        self.hub.clock.run()
        return [host.server.sets for host in self.hosts.values()]


def test_what_one_defines_all_know_and_whoever_comes_later():
    session = Session()
    session["b"].define("ocean", FIRST)
    assert session.known() == [{"ocean": FIRST}] * 3
    session.hosts["d"] = Host(session.hub, "d")
    assert session.known() == [{"ocean": FIRST}] * 4
    # The one that has defined it leaves; a newcomer hears of it still.
    session.hosts.pop("b").exchange.close()
    session.hosts["e"] = Host(session.hub, "e")
    assert session.known() == [{"ocean": FIRST}] * 4
    session["e"].delete("ocean")
    assert session.known() == [{}] * 4
    assert session.hosts["a"].server.told == [("define", "ocean"), ("delete", "ocean")]


def test_each_host_may_define_what_all_define():
    session = Session("ab")
    session["a"].define("ocean", FIRST)
    session.hub.clock.run()
    session["b"].define("ocean", FIRST)
    assert session.known() == [{"ocean": FIRST}] * 2
    for name in "ab":
        with pytest.raises(PMIxError) as caught:
            session[name].define("ocean", FIRST)
        assert caught.value.code == EXISTS
    assert [host.server.told for host in session.hosts.values()] == [[("define", "ocean")]] * 2


def test_sets_do_not_change():
    session = Session()
    session["a"].define("ocean", FIRST)
    session.hub.clock.run()
    with pytest.raises(PMIxError) as caught:
        session["b"].define("ocean", SECOND)
    assert caught.value.code == EXISTS
    with pytest.raises(NotFound):
        session["b"].delete("ice")
    with pytest.raises(NotFound):
        session["c"].define("ice", FIRST)
    assert session.known() == [{"ocean": FIRST}] * 3


def test_of_two_at_once_the_first_in_the_order_counts():
    session = Session()
    session["b"].define("ocean", SECOND)
    session["a"].define("ocean", FIRST)
    assert session.known() == [{"ocean": FIRST}] * 3


def test_a_set_that_two_define_is_deleted_as_one():
    """Also where the definition of the second is still on its way to the host that deletes it."""
    session = Session("abc", lambda sender, _to: 9.0 if sender == "b" else 0.5)
    session["a"].define("ocean", FIRST)
    session["b"].define("ocean", FIRST)
    clock = session.hub.clock
    clock.run(clock.now + 1.0)
    assert session.hosts["c"].server.sets == {"ocean": FIRST}
    session["c"].delete("ocean")
    assert session.known() == [{}] * 3
    session["a"].define("ice", SECOND)
    assert session.known() == [{"ice": SECOND}] * 3


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["define", "define", "delete", "pass", "come"]),
        st.sampled_from(NAMES),
        st.sampled_from([FIRST, FIRST, SECOND]),
    ),
    min_size=4,
    max_size=20,
)


@settings(max_examples=400)
@given(STEPS, st.integers(0, 1000))
def test_in_the_end_all_know_the_same(steps, seed):
    """Whoever defines, deletes or comes, and however slow each way is."""
    chance = random.Random(seed)
    session = Session("abc", lambda _from, _to: chance.choice((0.0, 0.5, 1.5, 4.0, 9.0)))
    clock = session.hub.clock
    name = "ocean"
    for kind, host, members in steps:
        if kind == "come" and host not in session.hosts:
            session.hosts[host] = Host(session.hub, host)
        elif kind == "pass":
            clock.run(clock.now + 1.0)
        elif kind in ("define", "delete") and host in session.hosts:
            psets = session[host]
            try:
                psets.define(name, members) if kind == "define" else psets.delete(name)
            except PMIxError:
                continue
    known = session.known()
    assert all(left == right for left, right in itertools.pairwise(known))
    for host in session.hosts.values():
        assert host.psets._applied == host.server.sets
        assert not known[0] and not host.psets._sets or host.psets._sets.keys() == {"ocean"} == known[0].keys()
        assert known[0] or not (host.psets._mine or host.psets._defining or host.psets._deleting)
