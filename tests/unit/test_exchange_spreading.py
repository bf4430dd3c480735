"""Servers hand much data of a fence to each other, and each one that ends well has that of all."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from lib.exchange_session import Session
from lib.exchange_world import PARTIAL, TIMEOUT, UNREACH
from pypmix.engine.times import DECISION_SECONDS
from pypmix.host.exchange import participant, spreading, tree
from pypmix.standard import attrs, statuses
from pypmix.standard.errors import PMIxError
from pypmix.standard.ops import DirectModex, FenceUpcall
from pypmix.standard.types import RANK_WILDCARD, Proc

pytestmark = pytest.mark.timeout(60)

ALL = (Proc("job", RANK_WILDCARD),)
MUCH = 3000


@pytest.fixture(autouse=True)
def little_is_much(monkeypatch):
    monkeypatch.setattr(spreading, "SPREAD_BYTES", 2 * MUCH)


def made(count):
    session = Session(count)
    session.register(*session.names)
    session.hub.run()
    session.hub.messages.clear()
    session.hub.bytes.clear()
    return session


@cache
def data_of(name, size=MUCH):
    return Random(name).randbytes(size)


def fence(session, name, *infos, size=MUCH):
    return session.ask(name, FenceUpcall(ALL, infos, data_of(name, size)))


def open_in(session):
    return sum(exchange.open() for exchange in session.exchanges.values())


@pytest.mark.parametrize("radix", [2, 16])
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 13, 21])
def test_all_get_the_data_of_all_and_send_that_of_each_other_one_once(count, radix, monkeypatch):
    monkeypatch.setattr(tree, "RADIX", radix)
    monkeypatch.setattr(tree, "FLAT", 1)
    session = made(count)
    for _ in range(2):
        asked = [fence(session, name) for name in Random(count).sample(session.names, count)]
        session.hub.run()
        assert [each.end for each in asked] == [b"".join(map(data_of, session.names))] * count
    overhead = 2 * 100 * count * count
    assert max(session.hub.bytes.values(), default=0) <= 2 * (count - 1) * MUCH + overhead
    assert not open_in(session)


def test_at_the_busiest_server_it_is_an_eighth_of_what_goes_through_the_coordinator(monkeypatch):
    sent = []
    for limit in (256 << 10, 1 << 40):
        monkeypatch.setattr(spreading, "SPREAD_BYTES", limit)
        session = made(8)
        asked = [fence(session, name, size=1 << 17) for name in session.names]
        session.hub.run()
        assert {each.end for each in asked} == {b"".join([data_of(name, 1 << 17) for name in session.names])}
        sent.append((max(session.hub.bytes.values()), sum(session.hub.bytes.values())))
    (most, total), (most_flat, total_flat) = sent
    assert most < most_flat / 7.9
    assert total < total_flat


def test_servers_with_little_data_give_it_to_the_coordinator():
    session = made(6)
    sizes = dict(zip(session.names, (0, MUCH, 10, 10, 0, MUCH), strict=True))
    asked = [fence(session, name, size=size) for name, size in sizes.items()]
    session.hub.run()
    little, much = ([data_of(name, size) for name, size in sizes.items() if (size == MUCH) == kept] for kept in (0, 1))
    assert {each.end for each in asked} == {b"".join([*little, *much])}


def test_a_fence_without_data_sends_none():
    session = made(8)
    asked = [session.ask(name, FenceUpcall(ALL)) for name in session.names]
    session.hub.run()
    assert [each.end for each in asked] == [b""] * 8
    assert sum(session.hub.messages.values()) == 14
    assert sum(session.hub.bytes.values()) < 14 * 150


def test_a_get_asks_the_server_of_its_proc_alone():
    session = made(8)
    session.servers["n005"].committed[Proc("job", 5)] = data_of("n005", 100_000)
    asked = session.ask("n007", DirectModex(Proc("job", 5)))
    session.hub.run()
    assert asked.end == data_of("n005", 100_000)
    assert session.hub.messages == {"n007": 1, "n005": 1}


def test_data_goes_in_messages_of_a_bounded_size(monkeypatch):
    monkeypatch.setattr(spreading, "PIECE_BYTES", 1000)
    session = made(5)
    longest = []
    session.hub.drop = lambda _sender, _to, message: longest.append(len(message))
    asked = [fence(session, name, size=60_000) for name in session.names]
    session.hub.run()
    assert {each.end for each in asked} == {b"".join([data_of(name, 60_000) for name in session.names])}
    assert max(longest) < 1300


@pytest.mark.parametrize("lost", range(7))
@pytest.mark.parametrize("after", [0.011, 0.021, 0.031, 0.041, 0.051])
def test_a_lost_server_ends_it_and_whoever_ends_well_has_all(lost, after):
    session = made(7)
    gone = session.names[lost]
    asked = {name: fence(session, name) for name in session.names}
    session.hub.run(session.hub.clock.now + after)
    session.hub.lose(gone)
    begin = session.hub.clock.now
    session.hub.run()
    del asked[gone]
    assert session.hub.clock.now - begin <= DECISION_SECONDS + 1
    for each in asked.values():
        if isinstance(each.end, PMIxError):
            assert each.end.code == PARTIAL
            assert each.end.missing == {Proc("job", lost)}
        else:
            assert each.end == b"".join(map(data_of, session.names))
    assert not sum(session.exchanges[name].open() for name in asked)


def test_what_a_lost_server_has_not_sent_ends_it_at_once_for_all_behind_it():
    session = made(8)
    session.hub.drop = lambda sender, _to, message: sender == "n003" and spreading.DATA.encode() in message
    asked = {name: fence(session, name) for name in session.names}
    session.hub.run(session.hub.clock.now + 1)
    assert not any(each.ends for name, each in asked.items() if name != "n003")
    (pending,) = session.crossings["n002"].pending()
    assert Proc("job", 3) in pending.missing
    session.hub.lose("n003")
    session.hub.run(session.hub.clock.now + 0.2)
    del asked["n003"]
    assert {each.end.code for each in asked.values()} == {PARTIAL}
    assert {each.end.missing for each in asked.values()} == {frozenset((Proc("job", 3),))}


def test_a_server_that_goes_after_its_fence_takes_nothing_along():
    session = made(5)
    kept = []
    session.hub.drop = lambda sender, to, message: (
        sender == "n002" and to == "n001" and spreading.DATA.encode() in message and not kept.append(message)
    )
    asked = {name: fence(session, name) for name in session.names}
    session.hub.run(session.hub.clock.now + 1)
    assert [name for name in session.names if asked[name].ends] == ["n000", "n003"]
    # It has sent all, and is not the one that the others wait for.
    session.hub.lose("n003")
    session.hub.run(session.hub.clock.now + 1)
    assert not asked["n001"].ends
    session.hub.drop = lambda *_: False
    for message in kept:
        session.hub.send(session.hub._carriers["n002"], "n001", message)
    session.hub.run(session.hub.clock.now + 1)
    assert {each.end for each in asked.values()} == {b"".join(map(data_of, session.names))}


def test_a_time_limit_names_those_whose_data_is_missing():
    session = made(4)
    session.hub.drop = lambda sender, _to, message: sender == "n002" and spreading.DATA.encode() in message
    asked = {name: fence(session, name, attrs.TIMEOUT(2)) for name in session.names}
    session.hub.run()
    assert asked["n001"].end.code == TIMEOUT
    assert Proc("job", 2) in asked["n001"].end.missing
    assert session.hub.clock.now < 10
    assert not open_in(session)


def test_what_comes_before_the_decision_is_kept_up_to_a_limit(monkeypatch):
    """A server that has got more than that ends the fence, for the others too once it hears the decision."""
    monkeypatch.setattr(participant, "EARLY_BYTES", MUCH)
    session = made(4)
    late = []
    session.hub.drop = lambda sender, to, message: (
        (sender, to) == ("n000", "n002") and len(message) < 1000 and not late.append(message)
    )
    asked = {name: fence(session, name) for name in session.names}
    session.hub.run(session.hub.clock.now + 1)
    assert asked["n002"].end.code == statuses.ERR_OUT_OF_RESOURCE
    assert f"more than {MUCH} bytes" in str(asked["n002"].end)
    session.hub.drop = lambda *_: False
    for message in late:
        session.hub.send(session.hub._carriers["n000"], "n002", message)
    session.hub.run()
    assert asked["n001"].end.code == statuses.ERR_OUT_OF_RESOURCE
    assert not open_in(session)


def test_one_that_has_ended_it_before_the_decision_tells_those_who_count_on_it():
    session = made(4)
    late = []
    session.hub.drop = lambda sender, to, message: (
        (sender, to) == ("n000", "n002") and len(message) < 1000 and not late.append(message)
    )
    asked = {name: fence(session, name, attrs.TIMEOUT(2)) for name in session.names}
    session.hub.run(session.hub.clock.now + 1)
    (own,) = session.exchanges["n002"].collectives.open()
    session.exchanges["n002"].collectives._forsake(own)
    assert asked["n002"].end.code == TIMEOUT
    session.hub.drop = lambda *_: False
    for message in late:
        session.hub.send(session.hub._carriers["n000"], "n002", message)
    session.hub.run(session.hub.clock.now + 0.5)
    assert asked["n001"].end.code == TIMEOUT


def test_after_the_loss_of_its_server_a_proc_without_collected_data_cannot_be_read():
    session = made(3)
    session.hub.lose("n001")
    session.hub.run()
    asked = session.ask("n000", DirectModex(Proc("job", 1)))
    session.hub.run()
    assert asked.end.code == UNREACH
