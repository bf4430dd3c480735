"""The way of entries from the root: through other servers if there are many, and what mends it."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from lib.exchange_session import LAUNCHER, LaunchedSession
from lib.exchange_session import Session as Peers
from lib.exchange_world import fence
from pypmix.engine.times import GAP_SECONDS, LOG_SECONDS, QUIET_SECONDS
from pypmix.host.exchange import TCPCarrier, distribution, limits, statelog
from pypmix.host.exchange.codec import BYTES, TEXT, message
from pypmix.host.exchange.inprocess import HubCarrier
from pypmix.standard.ops import Connect
from pypmix.standard.types import RANK_WILDCARD, Proc

pytestmark = pytest.mark.timeout(60)

BROADCAST = message(TEXT, BYTES)
ALL = (Proc("job", RANK_WILDCARD),)
PROCS = (Proc("job", 4), Proc("job", 5))


def described(count, fan_out):
    session = LaunchedSession(count, fan_out=fan_out)
    session.describe()
    session.hub.run()
    session.hub.messages.clear()
    return session


def knows(session, rank):
    return [name for name in session.crossings if session.has_departed(name, rank)]


def count_entries(session):
    """Count the messages with entries by their receiver, and keep those of the root."""
    received, sent = Counter(), Counter()
    topics = distribution.ORDERED.encode(), distribution.FORWARDED.encode()

    def count(sender, to, message):
        if any(topic in message for topic in topics):
            received[to] += 1
            sent[sender] += 1
        return False

    session.hub.drop = count
    return received, sent


def test_connections_have_a_fan_out_and_one_process_has_none():
    assert TCPCarrier.fan_out == limits.FAN_OUT
    assert HubCarrier.fan_out == 0


@pytest.mark.parametrize(("count", "fan_out"), [(32, 32), (100, 32), (100, 2), (300, 32)])
def test_the_root_sends_an_entry_to_a_few_and_each_server_gets_it_once(count, fan_out):
    session = described(count, fan_out)
    received, sent = count_entries(session)
    session.crossings["n003"].departed(Proc("job", 3))
    session.wait(QUIET_SECONDS / 2)
    assert knows(session, 3) == [LAUNCHER, *session.names]
    assert received == dict.fromkeys(session.names, 1)
    assert sent[LAUNCHER] <= fan_out
    assert max(sent.values()) <= fan_out
    # The last number goes once more to all, when nothing follows.
    session.hub.run()
    assert received == dict.fromkeys(session.names, 1 if count <= fan_out else 2)
    assert sent[LAUNCHER] <= 2 * fan_out


def test_entries_that_arrive_before_earlier_ones_wait():
    session = described(20, 2)
    # The first forwarder is slow for the first entry.
    session.slow = {("n000", name): 0.5 for name in session.names}
    session.crossings["n019"].departed(Proc("job", 19))
    session.wait(0.03)
    session.slow = {}
    session.crossings["n019"].connected(Proc("job", 19))
    session.wait(1)
    assert knows(session, 19) == []


def test_the_root_sends_entries_that_a_lost_server_has_not_forwarded():
    session = described(20, 2)
    # The messages of this forwarder are lost with it.
    session.hub.drop = lambda sender, _to, _message: sender == "n000"
    session.crossings["n019"].departed(Proc("job", 19))
    session.wait(0.2)
    assert len(knows(session, 19)) < 20
    session.hub.lose("n000")
    session.wait(GAP_SECONDS + 0.2)
    assert knows(session, 19) == [LAUNCHER, *session.names]
    assert all(session.exchanges[name].members == (LAUNCHER, *session.names[1:]) for name in session.names[1:])


def test_entries_behind_a_silent_forwarder_arrive_by_another_one():
    session = described(20, 2)
    session.slow = {("n000", name): 1000.0 for name in session.names}
    session.crossings["n019"].departed(Proc("job", 19))
    session.wait(0.2)
    assert len(knows(session, 19)) < 21
    session.wait(QUIET_SECONDS + 2 * GAP_SECONDS)
    assert knows(session, 19) == [LAUNCHER, *session.names]


def test_a_fence_does_not_wait_for_a_silent_forwarder():
    session = described(20, 2)
    session.slow = {("n000", name): 1000.0 for name in session.names}
    # The contribution of a server waits for the entry before it.
    session.crossings["n019"].departed(Proc("job", 19))
    session.crossings["n019"].connected(Proc("job", 19))
    procs = (Proc("job", 5), Proc("job", 19))
    asked = [session.ask(name, fence(name, procs)) for name in ("n005", "n019")]
    session.wait(3 * GAP_SECONDS + 0.1)
    assert [each.end for each in asked] == [b"<n005><n019>"] * 2


def test_a_forwarder_that_does_not_know_a_server_asks_for_it():
    session = LaunchedSession(0, fan_out=2)
    enter = session.hub._pass
    session.hub._pass = lambda one, other, call: {one.name, other.name} != {"n000", "n001"} and enter(one, other, call)
    session.names = [f"n{number:03}" for number in range(6)]
    session.places = dict(enumerate(session.names))
    for name in session.names:
        session.add(name)
    session.wait(0.1)
    assert "n001" not in session.exchanges["n000"].members
    session.crossings["n005"].departed(Proc("other", 0))
    session.describe()
    session.wait(0.1)
    session.crossings["n005"].departed(Proc("job", 5))
    session.wait(QUIET_SECONDS / 2)
    assert knows(session, 5) == [LAUNCHER, *session.names]


def test_messages_of_the_root_wait_for_the_entries_before_them():
    session = described(20, 2)
    session.slow = {("n000", name): 0.04 for name in session.names}
    order = []
    session.exchanges["n003"].hear("words", lambda _sender, _data: order.append(session.has_departed("n003", 19)))
    session.crossings[LAUNCHER].departed(Proc("job", 19))
    session.exchanges[LAUNCHER].tell("n003", "words", b"1")
    session.hub.run()
    assert order == [True]


def test_a_server_that_has_missed_too_much_gets_a_report():
    session = described(20, 2)
    session.hub.drop = lambda _sender, to, _message: to == "n019"
    session.crossings["n005"].departed(Proc("job", 5))
    session.wait(LOG_SECONDS + 1)
    session.crossings["n006"].departed(Proc("job", 6))
    session.wait(0.5)
    session.hub.drop = lambda *_message: False
    assert "n019" not in knows(session, 5)
    session.crossings["n007"].departed(Proc("job", 7))
    session.hub.run()
    assert all(knows(session, rank) == [LAUNCHER, *session.names] for rank in (5, 6, 7))


def test_a_server_that_joins_begins_after_the_entries_before():
    session = described(20, 2)
    session.crossings["n005"].departed(Proc("job", 5))
    session.hub.run()
    received, _ = count_entries(session)
    session.add("n020")
    session.wait(0.05)
    session.place("n020", 1)
    session.crossings[LAUNCHER].introduce("n020")
    session.wait(0.5)
    # The number that it begins at, and a report.
    assert received == {"n020": 2}
    session.crossings["n006"].departed(Proc("job", 6))
    session.hub.run()
    assert all(knows(session, rank) == [LAUNCHER, *session.names, "n020"] for rank in (5, 6))


def test_the_next_root_of_a_session_without_a_launcher_begins_anew(monkeypatch):
    monkeypatch.setattr(HubCarrier, "fan_out", 2)
    session = Peers(12)
    session.register(*session.names)
    session.hub.run()
    for root in session.names[:4]:
        rank = session.names.index(root) + 6
        session.crossings[session.names[rank]].departed(Proc("job", rank))
        session.hub.run()
        left = [name for name in session.names if name >= root]
        assert [name for name in left if session.crossings[name]._places.has_departed(Proc("job", rank))] == left
        # What waits for the root is sent again as soon as it is lost.
        ended = [session.ask(name, Connect(ALL, ())) for name in left if name != root]
        session.wait(1)
        session.hub.lose(root)
        session.wait(1)
        assert all(each.ends for each in ended)
        asked = [session.ask(name, fence(name, PROCS)) for name in ("n004", "n005")]
        session.wait(1)
        assert [each.end for each in asked] == [b"<n004><n005>"] * 2
    left = tuple(session.names[4:])
    assert {session.exchanges[name].members for name in left} == {left}


@pytest.mark.parametrize("seed", range(40))
def test_all_get_each_message_once_whoever_is_lost_or_joins(seed):
    """Servers join, are lost, are slow and tell all; each that stays has got everything once."""
    random = Random(seed)
    session = LaunchedSession(random.randint(5, 24), fan_out=random.choice((1, 2, 3)))
    session.describe()
    session.hub.run()
    exchanges, heard = session.exchanges, {name: [] for name in session.names}
    for name in session.names:
        exchanges[name].hear("words", lambda _sender, data, name=name: heard[name].append(data))
    stays, told = set(session.names), []

    def tell(number):
        name = random.choice(sorted(stays))
        told.append(b"%d" % number)
        exchange = exchanges[name]
        heard[name].append(told[-1])
        exchange.soon(exchange.state.submit, statelog.BROADCAST, BROADCAST.write(("words", told[-1])))

    def lose():
        if len(stays) > 3:
            name = random.choice(sorted(stays))
            stays.discard(name)
            session.hub.lose(name)

    def slow():
        name = random.choice(sorted(stays))
        seconds = random.choice((0.001, 0.05, 0.2, 3.0))
        for other in session.names:
            session.slow[name, other] = seconds

    def join():
        name = f"n{len(session.names):03}"
        session.names.append(name)
        session.add(name)
        exchanges[name].hear("words", lambda _sender, _data: None)

    for number in range(30):
        at = random.random() * random.choice((0.2, 5.0))
        session.hub.clock.later(at, lambda number=number: tell(number))
        if random.random() < 0.5:
            session.hub.clock.later(at + random.random(), random.choice((lose, slow, join)))
    session.hub.run()
    # A message of a lost server may be lost with it.
    sure = [{*heard[name]} for name in stays]
    assert all(each == sure[0] for each in sure)
    assert all(len(heard[name]) == len({*heard[name]}) for name in stays)
