"""Proves that servers that have lost their connection with each other are lost to all alike, and nobody else is."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.exchange_psets import Server
from pypmix.host.exchange import Exchange, Hub, limits, membership
from pypmix.host.exchange.psets import Psets
from pypmix.standard.types import Proc

pytestmark = pytest.mark.timeout(60)


class Session:
    def __init__(self, names, delay=lambda _one, _other: 0.1):
        self.hub = Hub(delay=delay)
        self.exchanges = {}
        for name in names:
            self.join(name)
        self.hub.run()

    def join(self, name):
        exchange = Exchange(self.hub.carrier(name), later=self.hub.clock.later, now=self.hub.clock.time)
        self.exchanges[name] = exchange
        exchange.start()

    def views(self):
        self.hub.run()
        return {name: "".join(exchange.members) for name, exchange in self.exchanges.items()}


def test_the_later_one_of_two_leaves_the_others():
    session = Session("abc")
    session.hub.part("a", "b")
    assert session.views() == {"a": "ac", "b": "b", "c": "ac"}
    assert session.exchanges["c"].gone == {"b"}
    assert session.exchanges["c"].reason("b") == "it has no connection with a"
    session.exchanges["c"].close()
    session.hub.run()
    assert session.exchanges["a"].reason("c") == ""


def test_doubts_of_servers_that_are_not_there_do_not_count():
    session = Session("abcd")
    b = session.exchanges["a"].membership.life_of("b")
    for number in range(20):
        doubt = membership._DOUBT.write((f"x{number}", "b", b))
        session.exchanges["c"].request("a", membership.DOUBT, doubt, lambda _data, _error: None)
    session.hub.run()
    session.hub.part("b", "d")
    assert session.views() == {"a": "abc", "b": "abc", "c": "abc", "d": "d"}


def test_two_alone_have_nobody_to_tell_them():
    session = Session("ab")
    session.hub.part("b", "a")
    assert session.views() == {"a": "a", "b": "b"}
    assert session.exchanges["a"].gone == {"b"}


def test_a_server_that_ends_takes_nobody_along():
    session = Session("abc")
    heard = []
    session.exchanges["c"].hear("news", lambda sender, data: heard.append((sender, data)))
    # It is heard of from others before its own last word.
    session.hub._delay = lambda one, other: 5.0 if (one, other) == ("a", "c") else 0.1
    session.exchanges["a"].tell("c", "news", b"last")
    session.exchanges.pop("a").close()
    assert session.views() == {"b": "bc", "c": "bc"}
    assert heard == [("a", b"last")]


def test_whoever_comes_later_is_turned_away_by_one_that_has_left():
    session = Session("abc")
    session.hub.part("a", "c")
    session.hub.run()
    session.join("d")
    assert session.views() == {"a": "abd", "b": "abd", "c": "c", "d": "abd"}


def test_what_waits_for_one_that_leaves_ends():
    session = Session("abc")
    ends = []
    for name in "bc":
        done = lambda result, error, name=name: ends.append((name, error.servers))  # noqa: E731
        session.exchanges[name].allgather(b"x", "abc", b"", done)
    session.hub.run()
    session.hub.part("a", "b")
    session.hub.run()
    assert sorted(ends) == [("b", ("a",)), ("c", ("b",))]


@settings(max_examples=200)
@given(
    st.integers(2, 6),
    st.lists(st.tuples(st.sampled_from("plc"), st.integers(0, 5), st.integers(0, 5), st.floats(0, 1)), max_size=8),
    st.lists(st.sampled_from((0.0, 0.1, 0.5, 2.0)), min_size=1, max_size=7),
)
def test_servers_that_have_each_other_have_the_same_others(size, happenings, delays):
    the_same_others(size, happenings, delays)


@settings(max_examples=200)
@given(
    st.integers(2, 14),
    st.lists(
        st.tuples(st.sampled_from("pppplc"), st.integers(0, 13), st.integers(0, 13), st.floats(0, 1)), max_size=16
    ),
    st.lists(st.sampled_from((0.0, 0.1, 0.5, 2.0)), min_size=1, max_size=7),
)
def test_it_is_enough_that_a_few_hear_of_each_loss(size, happenings, delays):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_MESH", 1)
        the_same_others(size, happenings, delays)


def test_a_death_among_many_costs_each_a_message():
    session = Session([f"n{number:03}" for number in range(100)])
    hub, sent = session.hub, Counter()
    send = hub.send
    hub.send = lambda carrier, to, message: (sent.update([carrier.name]), send(carrier, to, message))
    hub.lose("n050")
    hub.run()
    assert sent == {"n000": 98}
    # A broken connection is heard of all the same.
    hub.part("n020", "n070")
    hub.run()
    del session.exchanges["n050"], session.exchanges["n070"]
    names = tuple(session.exchanges)
    assert {exchange.members for exchange in session.exchanges.values()} == {names}
    # The next one takes the place of the first when all agree.
    sent.clear()
    hub.lose("n000")
    hub.run()
    del session.exchanges["n000"]
    assert sent == {"n001": 2 * 96, **dict.fromkeys([name for name in session.exchanges if name != "n001"], 1)}
    assert {exchange.members for exchange in session.exchanges.values()} == {names[1:]}


def the_same_others(size, happenings, delays):
    paces = iter(range(1 << 30))
    session = Session("abcdefghijklmn"[:size], lambda _one, _other: delays[next(paces) % len(delays)])
    names = sorted(session.exchanges)
    for what, one, other, at in happenings:
        first, second = names[one % size], names[other % size]

        def happens(what=what, first=first, second=second):
            if what == "p":
                session.hub.part(first, second)
            elif first in session.exchanges:
                exchange = session.exchanges.pop(first)
                if what == "l":
                    session.hub.lose(first)
                else:
                    exchange.close()

        session.hub.clock.later(at, happens)
    views = session.views()
    for name, view in views.items():
        for other in view:
            assert views[other] == view, f"{name} has {other}: {views}"


def test_what_a_host_that_is_lost_has_told_of_its_sets_all_know_in_the_end():
    hub = Hub(delay=lambda one, other: 9.0 if (one, other) == ("a", "c") else 0.1)
    hosts = {}
    for name in "abcd":
        server, exchange = Server(), Exchange(hub.carrier(name), later=hub.clock.later)
        hosts[name] = server, Psets(server, exchange), exchange
        exchange.start()
    hub.run()
    procs = (Proc("job", 0),)
    hosts["a"][1].define("ocean", procs)
    hub.run(hub.clock.now + 1)
    hub.lose("a")
    hub.run()
    assert [hosts[name][0].sets for name in "bcd"] == [{"ocean": procs}] * 3
    hosts["c"][1].delete("ocean")
    hub.run()
    assert [hosts[name][0].sets for name in "bcd"] == [{}] * 3


@pytest.mark.parametrize("patience", [4.0, 12.0])
def test_a_busy_root_delays_a_loss_for_the_time_of_the_keep_alive_at_most(monkeypatch, patience):
    """Without a launcher: the first one by name does not process what has arrived, as its loop is busy."""
    monkeypatch.setattr("pypmix.host.exchange.inprocess.HubCarrier.keep_alive", patience, raising=False)
    session = Session("abcd")
    busy, clock = [], session.hub.clock

    def between(_sender, receiver, carry):
        if receiver == "a" and busy is not None:
            busy.append(carry)
        else:
            carry()

    session.hub._between = between
    ends = []
    for name in "bcd":
        session.exchanges[name].allgather(
            b"sum", "bcd", b"", lambda _gathered, error, name=name: ends.append((name, error, clock.now))
        )
    began = clock.now
    session.hub.lose("d")
    session.hub.run(began + patience + 1)
    assert [name for name, _, _ in ends] == ["b", "c"]
    assert all(error.servers == ("d",) for _, error, _ in ends)
    assert all(patience <= moment - began <= patience + 0.5 for _, _, moment in ends)
    # Its loop goes on: it declares the loss as well, and nobody leaves for it.
    waiting, busy = busy, None
    for carry in waiting:
        carry()
    assert session.views() == {"a": "abc", "b": "abc", "c": "abc", "d": "abcd"}
