"""Contributions of many servers go up a tree, and one decision comes down, which is that of the flat form."""

from __future__ import annotations

from random import Random

import pytest

from lib.exchange_session import Counting, Session
from lib.exchange_world import PARTIAL, TIMEOUT
from pypmix.engine.times import COMBINE_SECONDS
from pypmix.host.exchange import Exchange, codec, tree
from pypmix.host.exchange.errors import ServerLost
from pypmix.host.exchange.tree import at_place, place_in
from pypmix.standard import attrs
from pypmix.standard.ops import Connect, Disconnect, FenceUpcall, GroupUpcall
from pypmix.standard.ops.events import procs_in
from pypmix.standard.ops.hosting import GROUP_CONSTRUCT, GROUP_DESTRUCT
from pypmix.standard.types import RANK_WILDCARD, Proc

pytestmark = pytest.mark.timeout(60)

ALL = (Proc("job", RANK_WILDCARD),)


@pytest.fixture(params=[1, 2, 3])
def radix(request, monkeypatch):
    monkeypatch.setattr(tree, "RADIX", request.param)
    monkeypatch.setattr(tree, "FLAT", 1)
    return request.param


def made(count, delay=None):
    session = Session(count)
    if delay is not None:
        session.hub._delay = delay
    session.register(*session.names)
    session.hub.run()
    session.hub.messages.clear()
    session.hub.bytes.clear()
    return session


def fence(session, name, *infos):
    return session.ask(name, FenceUpcall(ALL, infos, f"<{name}>".encode()))


def everything(session):
    return b"".join([f"<{name}>".encode() for name in session.names])


@pytest.mark.parametrize("radix", [1, 2, 3, 16])
@pytest.mark.parametrize("count", [1, 2, 5, 18, 40, 300])
def test_each_place_has_one_above_and_a_run_below(count, radix, monkeypatch):
    monkeypatch.setattr(tree, "RADIX", radix)
    below = dict.fromkeys(range(count), 0)
    for place in range(count):
        above, after = tree.spans(count, place)
        assert above == sorted(above) and (above[:1] == [0]) == bool(place)
        assert place < after <= count
        for each in above:
            assert each < place < tree.spans(count, each)[1]
        if above:
            below[above[-1]] += 1
    assert max(below.values()) <= radix
    assert tree.is_flat(count) == (count <= 2 * radix + 1)


def test_whoever_is_the_root_the_others_keep_their_order():
    names = tuple("abcdefg")
    for root in names:
        places = [at_place(names, root, place) for place in range(len(names))]
        assert places == [root, *[name for name in names if name != root]]
        assert [place_in(names, root, name) for name in places] == list(range(len(names)))
    assert place_in(names, "x", "a") is None and place_in(names, "a", "x") is None


def test_a_fence_ends_the_same_for_all_in_the_order_of_names(radix):
    session = made(14)
    for _ in range(3):
        asked = [fence(session, name) for name in Random(radix).sample(session.names, 14)]
        session.hub.run()
        assert [each.end for each in asked] == [everything(session)] * 14
    assert not any(exchange.open() for exchange in session.exchanges.values())


def test_no_server_sends_more_than_those_right_below_it_and_one_above(radix):
    session = made(9)
    asked = [fence(session, name) for name in session.names]
    session.hub.run()
    assert all(each.ends for each in asked)
    assert max(session.hub.messages.values()) <= radix + 1
    assert sum(session.hub.messages.values()) == 2 * 8


def test_a_fence_without_data_takes_hardly_more_than_names():
    session = made(200)
    # Servers send the basis of their messages once after the job has begun.
    for name in session.names:
        session.ask(name, FenceUpcall(ALL, (), b""))
    session.hub.run()
    session.hub.messages.clear()
    session.hub.bytes.clear()
    asked = [session.ask(name, FenceUpcall(ALL, (), b"")) for name in session.names]
    session.hub.run()
    assert [each.end for each in asked] == [b""] * 200
    assert max(session.hub.messages.values()) == 16
    assert max(session.hub.bytes.values()) < 1000


def test_with_few_servers_all_contribute_to_the_coordinator():
    others = tree.FLAT * tree.RADIX
    session = made(others + 1)
    for name in session.names:
        fence(session, name)
    session.hub.run()
    sent = session.hub.messages
    assert [sent[name] for name in session.names] == [others] + [1] * others


def test_what_comes_late_does_not_hold_up_what_is_there(radix):
    session = made(9)
    asked = [fence(session, name) for name in session.names[:-1]]
    session.hub.run(session.hub.clock.now + 10 * COMBINE_SECONDS)
    assert session.crossings["n000"].pending()[0].missing == (Proc("job", 8),)
    asked.append(fence(session, session.names[-1]))
    session.hub.run()
    assert [each.end for each in asked] == [everything(session)] * 9


def test_a_time_limit_names_those_that_are_missing(radix):
    session = made(12)
    missing = {"n004", "n009"}
    there = [name for name in session.names if name not in missing]
    asked = [fence(session, name, *([attrs.TIMEOUT(2)] if name == "n011" else [])) for name in there]
    session.hub.run()
    for each in asked:
        assert each.end.code == TIMEOUT
        assert each.end.missing == {Proc("job", 4), Proc("job", 9)}
    assert not any(exchange.open() for exchange in session.exchanges.values())


def test_a_time_limit_that_is_over_before_anything_was_passed_on_counts(radix, monkeypatch):
    monkeypatch.setattr(tree, "COMBINE_SECONDS", 1000.0)
    session = made(12)
    asked = [fence(session, name, attrs.TIMEOUT(1)) for name in session.names[6:]]
    session.hub.run()
    assert session.hub.clock.now < 10
    assert {each.end.code for each in asked} == {TIMEOUT}


@pytest.mark.parametrize("lost", range(13))
def test_a_lost_server_ends_it_for_all_wherever_it_stands(radix, lost):
    session = made(13)
    asked = {name: fence(session, name) for name in session.names if name != "n012"}
    session.hub.run(session.hub.clock.now + 0.05)
    session.hub.lose(session.names[lost])
    session.hub.run()
    for name, each in asked.items():
        if name != session.names[lost]:
            assert each.end.code == PARTIAL
    for name, exchange in session.exchanges.items():
        assert name == session.names[lost] or not exchange.open()


def test_a_disconnect_goes_on_without_a_lost_server(radix):
    session = made(8)
    asked = [session.ask(name, Disconnect(ALL, ())) for name in session.names[:-1]]
    session.hub.run(session.hub.clock.now + 0.05)
    session.hub.lose("n007")
    session.hub.run()
    assert [each.end for each in asked] == [None] * 7


def construct(name="g", *infos):
    return GroupUpcall(GROUP_CONSTRUCT, name, ALL, (attrs.GROUP_ASSIGN_CONTEXT_ID(True), *infos))


def members_in(asked):
    (end,) = {each.end for each in asked}
    return procs_in(end, attrs.GROUP_MEMBERSHIP.key)


def test_groups_and_connections_go_up_the_tree(radix):
    session = made(9)
    for number in range(8):
        session.hub.messages.clear()
        asked = [session.ask(name, construct(f"g{number}")) for name in session.names]
        session.hub.run()
        assert members_in(asked) == tuple([Proc("job", rank) for rank in range(9)])
        assert max(session.hub.messages.values()) <= radix + 1
        assert sum(session.hub.messages.values()) == 2 * 8
        assert session.hub.messages[session.names[0]] == radix
    for op in (Connect(ALL, ()), GroupUpcall(GROUP_DESTRUCT, "g0", ALL)):
        session.hub.messages.clear()
        asked = [session.ask(name, op) for name in session.names]
        session.hub.run()
        assert len({each.end for each in asked}) == 1
        assert sum(session.hub.messages.values()) == 2 * 8


@pytest.mark.parametrize("moment", [0.0, 0.105, 0.13, 0.5])
@pytest.mark.parametrize("lost", range(13))
def test_a_group_goes_on_without_a_lost_server_wherever_it_stands(radix, lost, moment):
    """Its subtree contributes once more; whoever decided it, all that are left get one end."""
    session = made(13)
    asked = {name: session.ask(name, construct("g", attrs.GROUP_OPTIONAL(True))) for name in session.names}
    session.hub.run(session.hub.clock.now + moment)
    session.hub.lose(session.names[lost])
    session.hub.run()
    left = [name for name in session.names if name != session.names[lost]]
    found = members_in([asked[name] for name in left])
    assert set(found) >= {Proc("job", rank) for rank in range(13) if rank != lost}
    assert not [name for name in left if session.exchanges[name].open()]


def test_a_decision_that_is_still_on_its_way_down_counts_though_its_coordinator_is_lost(monkeypatch):
    """The next coordinator asks for decisions that others know: the last server gets one after that."""
    monkeypatch.setattr(tree, "RADIX", 1)
    monkeypatch.setattr(tree, "FLAT", 1)
    slow = {}
    session = made(4, lambda *pair: slow.get(pair, 0.01))
    numbers = []

    def drop(sender, to, message):
        """Of the answers of the coordinator, only the one for the last server arrives."""
        if (sender, to) == ("n001", "n000") and message[0] == codec.REQUEST:
            numbers.append(codec.read_numbered(message, 2)[0])
        is_other = message[0] != codec.ANSWER or codec.read_numbered(message, 1)[0] != numbers[0]
        return sender == "n000" and session.hub.clock.now > began + 1 and is_other

    began = session.hub.clock.now
    session.hub.drop = drop
    last = session.ask("n003", construct("g"))
    session.hub.run(began + 1)
    assert len(numbers) == 1
    slow["n002", "n003"] = 2.0
    others = [session.ask(name, construct("g")) for name in ("n002", "n001", "n000")]
    session.hub.run(began + 1.2)
    session.hub.lose("n000")
    session.hub.run()
    assert members_in([last, *others]) == tuple([Proc("job", rank) for rank in range(4)])
    assert not any(exchange.open() for name, exchange in session.exchanges.items() if name != "n000")


def test_an_allgather_that_is_given_up_ends_with_that_error_for_all(radix):
    session = made(9)
    ends = {}
    gatherings = {
        name: session.exchanges[name].allgather(
            b"s", session.names, name.encode(), lambda *end, name=name: ends.update({name: end})
        )
        for name in session.names[1:]
    }
    session.hub.run(session.hub.clock.now + 0.05)
    gatherings["n008"].cancel(ServerLost("enough"))
    session.hub.run()
    assert len(ends) == 8
    assert {str(error.detail) for _, error in ends.values()} == {"enough"}


def test_contributions_to_the_same_signature_keep_their_order(radix):
    random = Random(radix)
    names = [f"n{number:03}" for number in range(11)]
    hub = Counting(delay=lambda _from, _to: random.random())
    exchanges = {name: Exchange(hub.carrier(name), later=hub.clock.later, now=hub.clock.time) for name in names}
    for exchange in exchanges.values():
        exchange.start()
    hub.run()
    ends = {name: [] for name in names}
    for name, exchange in exchanges.items():
        for number in range(5):
            hub.clock.later(
                random.random() * 2 + number * 0.2,
                lambda name=name, exchange=exchange: exchange.allgather(
                    b"s", names, name.encode() + bytes((48 + len(ends[name]),)), lambda *end: ends[name].append(end)
                ),
            )
    hub.run()
    for rounds in zip(*ends.values(), strict=True):
        assert {error for _, error in rounds} == {None}
        assert len({tuple(gathered.blobs.values()) for gathered, _ in rounds}) == 1
        assert list(rounds[0][0].blobs) == names
    assert not any(exchange.open() for exchange in exchanges.values())


def test_participants_that_do_not_agree_are_told_so(radix):
    names = [f"n{number:03}" for number in range(7)]
    hub = Counting()
    exchanges = {name: Exchange(hub.carrier(name), later=hub.clock.later, now=hub.clock.time) for name in names}
    for exchange in exchanges.values():
        exchange.start()
    hub.run()
    ends = []
    for name in names[:-1]:
        exchanges[name].allgather(b"s", names, b"", lambda *end: ends.append(end), timeout=3)
    exchanges[names[-1]].allgather(b"s", names[:-2] + names[-1:], b"", lambda *end: ends.append(end), timeout=3)
    hub.run()
    assert len(ends) == 7
    assert all(error is not None for _, error in ends)


def test_what_does_not_go_together_is_refused():
    session = made(3)
    ends = []
    for data in (b"", b"\xff", tree.UPWARDS.write(("n000", b"", 1, b"\0"))):
        session.exchanges["n002"].request("n000", tree.UP, data, lambda *end: ends.append(end))
    session.hub.run()
    assert len(ends) == 3
    assert all(error is not None for _, error in ends)
