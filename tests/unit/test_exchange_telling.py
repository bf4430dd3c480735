"""What is told to many goes by way of others: each gets it once and in order, whoever is lost on the way or comes."""

from __future__ import annotations

import random
from collections import Counter
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pypmix.host.exchange import Exchange, Hub, codec, inprocess, limits, telling
from pypmix.host.exchange.kinds import hearers
from pypmix.host.exchange.roll import followers
from pypmix.host.exchange.telling import split
from pypmix.standard import statuses
from pypmix.standard.errors import RemoteProtocolError

pytestmark = pytest.mark.timeout(120)


class Session:
    """Exchanges on virtual time that count what they are told."""

    def __init__(self, names, delay=lambda _one, _other: 0.001):
        self.hub = Hub(delay=delay)
        self.exchanges = {}
        self.told = {}
        self.sent = Counter()
        send = self.hub.send

        def counted(carrier, to, message):
            self.sent[carrier.name] += 1
            send(carrier, to, message)

        self.hub.send = counted
        for name in names:
            self.join(name)
        self.hub.run()
        self.sent.clear()

    def join(self, name):
        clock = self.hub.clock
        exchange = self.exchanges[name] = Exchange(self.hub.carrier(name), later=clock.later, now=clock.time)
        told = self.told[name] = []
        exchange.hear("t", lambda sender, data: told.append((sender, int(data))))
        exchange.start()

    def lose(self, name):
        del self.exchanges[name]
        self.hub.lose(name)

    def check_empty(self):
        for exchange in self.exchanges.values():
            assert not exchange._telling, exchange.name
            assert not exchange._telling.unheard
            assert not any(origin.early or origin.behind for origin in exchange._telling._origins.values())


def many(count):
    return [f"n{number:04}" for number in range(count)]


def test_runs_begin_where_neighbours_are():
    names = many(100)
    assert sorted(chain(*split(names))) == names
    for count in (1, 2, 3, 33, 64, 65, 1000):
        ring = many(count)
        others = ring[6 % count + 1 :] + ring[: 6 % count]
        assert {run[0] for run in split(others) if run} == followers(ring, ring[6 % count])


@pytest.mark.parametrize("count", [limits.MAX_MESH, limits.MAX_MESH + 1, 200])
def test_all_hear_it_once(count):
    session = Session(many(count))
    session.exchanges["n0007"].broadcast("t", b"5")
    session.hub.run()
    assert session.told.pop("n0007") == []
    assert set(map(tuple, session.told.values())) == {(("n0007", 5),)}
    session.check_empty()
    few = count <= limits.MAX_MESH
    assert session.sent["n0007"] == (count - 1 if few else (count - 1).bit_length())
    # Of many, each other one answers.
    assert sum(session.sent.values()) == (count - 1) * (1 if few else 2)
    assert few or max(session.sent.values()) <= (count - 1).bit_length() + 1


def test_all_tell_all_over_connections_with_neighbours_alone():
    session = Session(many(100))
    pairs = set()
    send = session.hub.send
    session.hub.send = lambda carrier, to, message: (pairs.add((carrier.name, to)), send(carrier, to, message))
    for exchange in session.exchanges.values():
        exchange.broadcast("t", b"1")
    session.hub.run()
    assert all(len(told) == 99 for told in session.told.values())
    follow = {name: followers(many(100), name) for name in many(100)}
    assert all(to in follow[sender] or sender in follow[to] for sender, to in pairs)
    assert hearers(many(100), "n0000") >= follow["n0000"]


def test_who_leaves_for_a_broken_connection_is_lost_to_those_too_that_never_get_what_it_has_told():
    session = Session(many(48), lambda sender, _to: 10.0 if sender == "n0047" else 0.001)
    later, left = session.hub.clock.later, session.exchanges["n0031"]
    left.broadcast("t", b"1")
    # It leaves for want of this connection, and so does not pass on itself what this other one was to pass on.
    later(0.1, lambda: session.hub.part("n0030", "n0031"))
    later(0.2, lambda: session.lose("n0047"))
    session.hub.run()
    del session.exchanges["n0031"]
    assert left.members == ("n0031",)
    assert {exchange.members for exchange in session.exchanges.values()} == {tuple(sorted(session.exchanges))}
    assert {tuple(told) for told in session.told.values()} == {(), (("n0031", 1),)}
    session.check_empty()


def test_what_is_told_to_one_and_to_all_stays_in_order():
    chance = random.Random(5)
    session = Session(many(60), lambda _one, _other: chance.random())
    for number in range(100):
        for name in ("n0000", "n0013", "n0042"):
            if number % 3:
                session.exchanges[name].broadcast("t", b"%d" % number)
            else:
                for to in session.exchanges:
                    if to != name:
                        session.exchanges[name].tell(to, "t", b"%d" % number)
        session.hub.run(session.hub.clock.now + 0.1)
    session.hub.run()
    for name, told in session.told.items():
        for sender in {"n0000", "n0013", "n0042"} - {name}:
            assert [number for other, number in told if other == sender] == list(range(100))
    session.check_empty()


def test_a_message_that_is_too_long_to_be_sent_holds_up_nothing(monkeypatch):
    session = Session(many(40))
    monkeypatch.setattr(inprocess, "MAX_MESSAGE", 1000)
    errors = []
    teller = session.exchanges["n0000"]
    teller.request("n0001", "t", bytes(1001), lambda _data, error: errors.append(error))
    teller.broadcast("t", b"5")
    session.hub.run(session.hub.clock.now + 1)
    assert [error.code for error in errors] == [statuses.ERR_OUT_OF_RESOURCE]
    assert session.told["n0001"] == [("n0000", 5)]
    session.check_empty()


@pytest.mark.parametrize(
    "lost", [["n0004"], ["n0008", "n0012", "n0010"], ["n0001", "n0002", "n0004", "n0008", "n0016"]]
)
def test_whoever_is_lost_on_the_way_costs_the_others_nothing(lost):
    session = Session(many(40))
    session.exchanges["n0000"].broadcast("t", b"1")
    session.hub.run(session.hub.clock.now + 0.0005)
    for name in lost:
        session.lose(name)
    session.hub.run()
    assert all(session.told[name] == [("n0000", 1)] for name in session.exchanges if name != "n0000")
    session.check_empty()


def test_who_comes_is_told_what_comes_after():
    session = Session(many(40))
    session.exchanges["n0000"].broadcast("t", b"1")
    session.hub.run()
    session.join("n0020a")
    session.exchanges["n0000"].broadcast("t", b"2")
    session.exchanges["n0030"].broadcast("t", b"3")
    session.hub.run()
    session.exchanges["n0000"].broadcast("t", b"4")
    session.hub.run()
    told = session.told["n0020a"]
    assert ("n0000", 1) not in told
    assert ("n0000", 4) in told
    assert all(dict.fromkeys(each) == dict.fromkeys([*each]) and each[-1] == ("n0000", 4) for each in [told])
    session.check_empty()


def test_another_process_under_the_name_of_one_that_was_lost_gets_what_is_told():
    """Also where one that passes it on has heard of the loss, and not yet of the new one."""
    session = Session(many(40))
    session.lose("n0010")
    session.hub.run()
    session.hub._delay = lambda one, other: 5.0 if (one, other) == ("n0010", "n0008") else 0.001
    session.join("n0010")
    session.hub.run(session.hub.clock.now + 1)
    session.exchanges["n0000"].broadcast("t", b"1")
    session.hub.run()
    session.exchanges["n0000"].tell("n0010", "t", b"2")
    session.hub.run()
    assert session.told["n0010"] == [("n0000", 1), ("n0000", 2)]
    session.check_empty()


@pytest.mark.parametrize("told", [0, 3])
def test_another_process_under_the_name_of_one_that_was_lost_is_heard(told):
    """Also where what it tells comes before the word that it is there, or that the one before it is lost."""
    session = Session(many(40))
    for _ in range(told):
        session.exchanges["n0010"].broadcast("t", b"0")
        session.hub.run()
    slow = ("n0010", "n0030"), ("n0010", "n0031")
    session.lose("n0010")
    session.hub.run()
    session.hub._delay = lambda one, other: 5.0 if (one, other) in slow else 0.001
    session.join("n0010")
    session.hub.run(session.hub.clock.now + 1)
    session.exchanges["n0010"].broadcast("t", b"1")
    session.exchanges["n0010"].broadcast("t", b"2")
    session.hub.run()
    for name, heard in session.told.items():
        assert name == "n0010" or heard[told:] == [("n0010", 1), ("n0010", 2)], name
    session.check_empty()


@settings(max_examples=150)
@example(4, [("a", 0, 0, 0.0)] * 7 + [("l", 0, 0, 0.0)], 0)
@example(
    6,
    [
        *(("a", each, 0, 0.0) for each in (2, 0, 1, 0, 0, 0)),
        ("r", 1, 0, 0.0),
        ("a", 3, 0, 0.0),
        ("a", 3, 0, 0.5),
        ("r", 3, 0, 0.0),
    ],
    2266,
)
@given(
    st.integers(2, 12),
    st.lists(
        st.tuples(st.sampled_from("aaaaooolrjp"), st.integers(0, 11), st.integers(0, 11), st.floats(0, 1)), max_size=40
    ),
    st.integers(0, 1 << 30),
)
def test_any_moment(size, happenings, seed):
    """Servers tell one or all, are lost and come, at any moment, with messages that take any time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_MESH", 1)
        anything_happens(size, happenings, seed)


def anything_happens(size, happenings, seed):
    chance = random.Random(seed)
    session = Session(many(size), lambda _one, _other: chance.choice((0.0, 0.1, 0.5, 2.0)))
    said = {name: [] for name in session.exchanges}
    first = set(session.exchanges)
    for number, (what, one, other, after) in enumerate(happenings):
        names = sorted(session.exchanges)
        one, other = names[one % len(names)], names[other % len(names)]
        if what == "a":
            said[one].append((number, None))
            session.exchanges[one].broadcast("t", b"%d" % number)
        elif what == "o" and one != other:
            said[one].append((number, other))
            session.exchanges[one].tell(other, "t", b"%d" % number)
        elif what == "l" and len(names) > 2:
            session.lose(one)
        elif what == "r" and len(names) > 2:
            # Another process under its name, once no server tells of the loss any more; some hear of it before others.
            first.discard(one)
            session.lose(one)
            session.hub.run(session.hub.clock.now + 12)
            session.join(one)
        elif what == "j":
            session.join(f"m{number}")
            said[f"m{number}"] = []
        session.hub.run(session.hub.clock.now + after)
    session.hub.run()
    for name in session.exchanges:
        for sender in said:
            if sender == name:
                continue
            heard = [count for each, count in session.told[name] if each == sender]
            meant = [count for count, to in said[sender] if to in (None, name)]
            assert heard == [count for count in meant if count in set(heard)], (name, sender, heard, meant)
            if {name, sender} <= first and sender in session.exchanges:
                assert heard == meant, (name, sender)
    session.check_empty()


def test_what_does_not_parse_is_dropped():
    session = Session(many(3))
    exchange = session.exchanges["n0000"]
    for kind in (telling.SPREAD, telling.HEARD, telling.DIFFERS, telling.SINCE, telling.AFTER):
        for fields in ((), (b"",), (b"x" * 21, b"\0", b"\0", b"x"), (b"x" * 15, b"y"), (b"\0" * 20, b"\0", b"\0", b"")):
            message = codec.pack(kind, *fields)
            session.exchanges["n0001"]._carrier.send("n0000", message)
            with pytest.raises(RemoteProtocolError):
                Exchange(Hub().carrier("n0000"))._telling.take("n0001", message)
    session.hub.run()
    session.exchanges["n0001"].tell("n0000", "t", b"1")
    session.hub.run()
    assert session.told["n0000"] == [("n0001", 1)]
    assert exchange.members == tuple(many(3))


def test_messages_in_the_names_of_servers_that_are_not_there_take_a_bounded_place(monkeypatch):
    monkeypatch.setattr(telling, "MAX_SERVERS", 10)
    session = Session(many(3))
    exchange = session.exchanges["n0000"]
    for number in range(100):
        which = (7).to_bytes(8, "big") + (1).to_bytes(8, "big")
        packed = codec.pack(0, codec.NAME.write(f"x{number}"), which, b"text")
        session.exchanges["n0001"]._carrier.send("n0000", codec.pack(telling.SPREAD, bytes(20), b"\0", b"\0", packed))
    session.hub.run(session.hub.clock.now + 1)
    assert len(exchange._telling._origins) == 10
    session.hub.run()
    assert not exchange._telling._origins, "none of them has come"
    session.exchanges["n0001"].tell("n0000", "t", b"1")
    session.hub.run()
    assert session.told["n0000"] == [("n0001", 1)]


def test_an_answer_that_nobody_has_asked_for_changes_nothing():
    session = Session(many(40))
    session.exchanges["n0000"].broadcast("t", b"1")
    for number in range(1, 8):
        session.exchanges["n0039"]._carrier.send(
            "n0000", codec.pack(telling.HEARD, b"\0" * 7 + bytes((number,)), b"\0")
        )
    session.hub.run()
    assert all(session.told[name] == [("n0000", 1)] for name in session.exchanges if name != "n0000")
    session.check_empty()
