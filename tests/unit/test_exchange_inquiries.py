"""Where a coordinator is lost, all servers end as it has decided, if any of them knows; few messages find that out."""

from __future__ import annotations

import pytest

from lib.exchange_session import Session
from pypmix.engine import times
from pypmix.host.exchange import inquiries, tree
from pypmix.host.exchange.exchange import ANSWER, TELL
from pypmix.standard import attrs
from pypmix.standard.ops import GroupUpcall
from pypmix.standard.ops.events import procs_in
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT
from pypmix.standard.types import RANK_WILDCARD, Proc

pytestmark = pytest.mark.timeout(60)

ALL = (Proc("job", RANK_WILDCARD),)
MEMBERS = attrs.GROUP_MEMBERSHIP.key


@pytest.fixture(autouse=True, params=[1, 2, 16])
def radix(request, monkeypatch):
    monkeypatch.setattr(tree, "RADIX", tree.RADIX)
    monkeypatch.setattr(tree, "FLAT", 1)
    return request.param


def made(count):
    session = Session(count)
    session.register(*session.names)
    session.hub.run()
    session.hub.messages.clear()
    return session


def construct(session, name):
    infos = attrs.GROUP_ASSIGN_CONTEXT_ID(True), attrs.GROUP_OPTIONAL(True)
    return session.ask(name, GroupUpcall(GROUP_CONSTRUCT, "g", ALL, infos))


def decided(session, knowing, radix):
    """Have the first server decide a group of all, lose it when only some have got that, and return what is asked."""
    first, *others = session.names
    session.hub.drop = lambda sender, to, data: sender == first and data[0] == ANSWER and to not in knowing
    asked = {name: construct(session, name) for name in session.names}
    while not all(asked[name].ends for name in knowing):
        assert session.hub.clock.step()
    tree.RADIX = radix
    assert not [name for name in others if asked[name].ends and name not in knowing]
    session.hub.lose(first)
    return {name: asked[name] for name in others}


@pytest.mark.parametrize("count", [2, 3, 12])
@pytest.mark.parametrize("place", [1, 2, 11])
def test_what_one_server_knows_all_are_told(count, place, radix):
    session = made(count)
    knowing = session.names[min(place, count - 1)]
    asked = decided(session, {knowing}, radix)
    session.hub.run()
    assert {each.end for each in asked.values()} == {asked[knowing].end}
    assert procs_in(asked[knowing].end, MEMBERS) == tuple([Proc("job", rank) for rank in range(count)])
    assert not [name for name in asked if session.exchanges[name].open()]


@pytest.mark.parametrize("moment", [0.0, 0.005, 0.015, 0.025, 0.035, 0.045, 0.055, 0.065, 0.075, 0.085, 0.095])
@pytest.mark.parametrize("lost", [("n001",), ("n001", "n002"), ("n002",), ("n003", "n004"), ("n007",)])
def test_it_is_found_out_whenever_those_that_ask_for_others_are_lost(moment, lost, radix):
    session = made(9)
    asked = decided(session, {"n005"}, radix)
    for number, name in enumerate(lost):
        session.hub.clock.later(moment * (number + 1), lambda name=name: session.hub.lose(name))
    session.hub.run()
    left = [name for name in asked if name not in lost]
    assert {asked[name].end for name in left} == {asked["n005"].end}
    assert not [name for name in left if session.exchanges[name].open()]


@pytest.mark.parametrize("moment", [0.005 + 0.01 * step for step in range(24)])
def test_it_is_found_out_below_a_server_that_is_lost_while_it_asks_those(moment, radix):
    session = made(9)
    asked = decided(session, {"n008"}, radix)
    session.hub.clock.later(moment, lambda: session.hub.lose("n006"))
    session.hub.run()
    del asked["n006"]
    assert {each.end for each in asked.values()} == {asked["n008"].end}


def test_a_server_that_says_nothing_is_not_waited_for_where_another_one_knows():
    session = made(9)
    asked = decided(session, {"n008"}, tree.RADIX)
    session.exchanges["n006"].handle(inquiries.DECIDED, lambda *_: None)
    session.hub.run(session.hub.clock.now + times.DECISION_SECONDS - 1)
    assert {each.end for each in asked.values()} == {asked["n008"].end}


@pytest.mark.parametrize("moment", [0.025, 0.035, 0.045, 0.055, 0.065, 0.075, 0.085, 0.095])
def test_all_that_are_left_end_alike_where_the_only_one_that_knows_is_lost(moment, radix):
    session = made(9)
    asked = decided(session, {"n005"}, radix)
    session.hub.clock.later(moment, lambda: session.hub.lose("n005"))
    session.hub.run()
    left = [name for name in asked if name != "n005"]
    assert len({asked[name].end for name in left}) == 1
    assert procs_in(asked["n001"].end, MEMBERS)
    assert not [name for name in left if session.exchanges[name].open()]


def test_a_decision_that_is_still_on_its_way_to_one_server_is_waited_for(radix):
    session = made(9)
    session.hub._delay = lambda sender, to: 1.0 if (sender, to) == ("n000", "n005") else 0.01
    session.hub.drop = lambda sender, to, data: sender == "n000" and data[0] == ANSWER and to != "n005"
    asked = {name: construct(session, name) for name in session.names}
    while not asked["n000"].ends:
        assert session.hub.clock.step()
    tree.RADIX = radix
    # It leaves in order: what it has sent arrives.
    session.exchanges["n000"].close()
    session.hub.run()
    assert {each.end for each in asked.values()} == {asked["n000"].end}
    assert procs_in(asked["n000"].end, MEMBERS)


def test_what_one_has_found_out_the_others_are_told_that_had_asked_in_vain():
    session = made(9)
    asked = decided(session, {"n005"}, tree.RADIX)
    # The first that asks for others learns it, from one that is lost then, tells one server alone, and leaves.
    session.hub._delay = lambda sender, to: 1.0 if (sender, to) == ("n001", "n004") else 0.01
    session.hub.drop = lambda sender, to, data: sender == "n001" and data[0] in (ANSWER, TELL) and to != "n004"
    while not asked["n001"].ends:
        assert session.hub.clock.step()
    session.hub.lose("n005")
    session.exchanges["n001"].close()
    session.hub.run(session.hub.clock.now + 0.5)
    assert [name for name, each in asked.items() if not each.ends] == ["n002", "n003", "n004", "n006", "n007", "n008"]
    session.hub.run()
    assert {each.end for each in asked.values()} == {asked["n005"].end}


def test_a_server_that_knows_it_is_asked_alone(radix):
    session = made(40)
    asked = decided(session, {"n001", "n002"}, radix)
    questions = []
    session.hub.drop = lambda *sent: questions.append(sent) if inquiries.DECIDED.encode() in sent[2] else False
    session.hub.run()
    assert {each.end for each in asked.values()} == {asked["n001"].end}
    assert not questions


@pytest.mark.parametrize("answer", [b"\0\0", b"", None])
def test_a_server_that_says_nothing_that_can_be_read_holds_up_nobody_for_long(answer, radix):
    session = made(6)
    asked = decided(session, set(), radix)
    said = (lambda reply: None) if answer is None else (lambda reply: reply(answer, None))
    session.exchanges["n005"].handle(inquiries.DECIDED, lambda _sender, _data, reply: said(reply))
    session.hub.run(session.hub.clock.now + times.DECISION_SECONDS * 8)
    assert len({each.end for each in asked.values()}) == 1
    assert procs_in(asked["n001"].end, MEMBERS) == tuple([Proc("job", rank) for rank in range(1, 6)])


@pytest.mark.parametrize("radix", [4, 16], indirect=True)
def test_the_loss_of_a_coordinator_costs_each_server_a_few_messages(radix):
    cost = {}
    for count in (40, 80, 160):
        tree.RADIX = 16
        session = made(count)
        session.hub._delay = lambda _from, _to: 0.001
        asked = {name: construct(session, name) for name in session.names[:-1]}
        session.hub.run(session.hub.clock.now + 1)
        session.hub.messages.clear()
        tree.RADIX = radix
        session.hub.lose(session.names[0])
        session.hub.run(session.hub.clock.now + 1)
        asked[session.names[-1]] = construct(session, session.names[-1])
        session.hub.run()
        del asked[session.names[0]]
        assert len({each.end for each in asked.values()}) == 1
        assert procs_in(asked["n001"].end, MEMBERS) == tuple([Proc("job", rank) for rank in range(1, count)])
        cost[count] = sum(session.hub.messages.values()) / count
        assert max(session.hub.messages.values()) <= 5 * radix + 40
    assert cost[160] < cost[80] + 2 < cost[40] + 4 < 20


@pytest.mark.parametrize("radix", [2, 16], indirect=True)
def test_servers_that_lose_a_coordinator_one_after_the_other_are_asked_a_few_times(radix):
    session = made(60)
    asked = {name: construct(session, name) for name in session.names[:-1]}
    session.hub.run(session.hub.clock.now + 1)
    questions = []
    session.hub.drop = lambda sender, to, data: inquiries.DECIDED.encode() in data and questions.append(to)
    tree.RADIX = radix
    late = {name: 0.06 * place for place, name in enumerate(session.names)}
    session.hub._delay = lambda sender, to: late[to] if sender == "n000" else 0.01
    session.hub.lose("n000")
    session.hub.run(session.hub.clock.now + 10)
    asked["n059"] = construct(session, "n059")
    session.hub.run()
    del asked["n000"]
    assert len({each.end for each in asked.values()}) == 1
    # In four seconds, each time of all.
    assert max(map(questions.count, session.names)) <= 6
