"""The state of a session in one order: few messages, and contributions in order with the jobs and news before them."""

from __future__ import annotations

import pytest

from lib.exchange_session import DESCRIBE, LAUNCHER
from lib.exchange_session import LaunchedSession as Session
from lib.exchange_world import fence
from pypmix.engine.times import DOUBT_SECONDS, HELD_SECONDS, LOSS_SECONDS
from pypmix.host.exchange import limits, statelog
from pypmix.standard import attrs
from pypmix.standard.ops import Connect, FenceUpcall, NotifyEvent
from pypmix.standard.ops.publishing import RANGE_SESSION
from pypmix.standard.types import RANK_WILDCARD, Proc

pytestmark = pytest.mark.timeout(30)

ALL = (Proc("job", RANK_WILDCARD),)


@pytest.mark.parametrize("count", [4, 8, 16, 40])
def test_placements_and_exits_cost_a_few_messages_for_each_server(count):
    """Where servers announced them to each other, these were two for each pair."""
    session = Session(count, ranks=3)
    session.describe()
    session.hub.run()
    assert sum(session.hub.messages.values()) == count
    assert all(crossing._places.of("job") == session.places for crossing in session.crossings.values())
    session.hub.messages.clear()
    for rank, name in session.places.items():
        session.crossings[name].departed(Proc("job", rank))
    session.hub.run()
    assert sum(session.hub.messages.values()) == 2 * count
    assert all(session.has_departed(name, rank) for name in session.crossings for rank in session.places)
    session.hub.messages.clear()
    for name in session.crossings:
        session.crossings[name].deregister("job")
    session.hub.run()
    assert not session.hub.messages


def test_exits_one_after_the_other_are_forwarded_a_few_at_a_time():
    session = Session(16)
    session.describe()
    session.hub.run()
    session.hub.messages.clear()
    began = session.hub.clock.now
    for rank, name in session.places.items():
        session.crossings[name].departed(Proc("job", rank))
        session.wait(0.005)
    session.hub.run()
    # The first one goes at once; 80 ms are a few of the launcher's messages to each.
    assert session.hub.messages[LAUNCHER] <= 6 * 16
    assert session.hub.clock.now < began + 0.2
    assert all(session.has_departed(name, rank) for name in session.crossings for rank in session.places)


def test_servers_that_have_no_part_in_a_fence_get_nothing():
    session = Session(16)
    session.describe()
    session.hub.run()
    session.hub.messages.clear()
    procs = (Proc("job", 3), Proc("job", 5))
    asked = [session.ask(name, fence(name, procs)) for name in ("n003", "n005")]
    session.hub.run()
    assert [each.end for each in asked] == [b"<n003><n005>"] * 2
    assert session.hub.messages == {"n003": 1, "n005": 1}


def test_a_contribution_that_overtakes_the_description_waits_for_it():
    session = Session(2)
    session.slow = {(LAUNCHER, "n000"): 10.0}
    session.describe()
    session.wait(0.05)
    asked = [session.ask("n001", fence("n001", ALL))]
    session.wait(5)
    assert not asked[0].ends
    assert not session.exchanges["n000"].open()
    session.wait(6)
    asked.append(session.ask("n000", fence("n000", ALL)))
    session.hub.run()
    assert [each.end for each in asked] == [b"<n000><n001>"] * 2


def test_a_contribution_waits_for_the_news_before_it():
    """A proc that has exited is there again: who has not heard of that would leave its contribution out."""
    session = Session(3)
    session.describe()
    session.hub.run()
    back = Proc("job", 1)
    session.crossings["n001"].departed(back)
    session.hub.run()
    assert session.has_departed("n000", 1)
    session.slow = {(LAUNCHER, "n000"): 10.0}
    session.crossings["n001"].connected(back)
    asked = [session.ask("n001", Connect(ALL, ()))]
    session.wait(5)
    assert session.has_departed("n000", 1)
    assert not asked[0].ends
    session.hub.run()
    asked += [session.ask(name, Connect(ALL, ())) for name in ("n002", "n000")]
    session.hub.run()
    assert [each.end for each in asked] == [None] * 3


def test_news_that_overtake_a_contribution_leave_it_counted():
    """A proc that has contributed and exits was there: its fence is not done without it."""
    session = Session(2)
    session.describe()
    session.hub.run()
    session.slow = {("n001", "n000"): 4.0}
    early = session.ask("n001", fence("n001", ALL))
    session.crossings["n001"].departed(Proc("job", 1))
    session.wait(1)
    assert session.has_departed("n000", 1)
    late = session.ask("n000", fence("n000", ALL))
    session.wait(1)
    assert not late.ends
    session.hub.run()
    assert late.end == early.end == b"<n000><n001>"


@pytest.mark.parametrize("lost", [True, False])
def test_news_of_a_server_count_where_it_is_lost(lost):
    """Nothing is left waiting, and what it had reported last of others' procs does not bring its own back."""
    session = Session(3)
    session.describe()
    session.hub.run()
    session.slow = {("n001", "n000"): 2.0}
    session.exchanges["n001"].tell("n000", DESCRIBE, b"2")
    session.crossings["n001"].departed(Proc("job", 1))
    session.crossings["n001"].connected(Proc("job", 1))
    session.wait(0.5)
    if lost:
        session.hub.lose("n001")
    session.hub.run()
    assert session.has_departed("n000", 1) == lost


def test_a_server_that_joins_late_knows_what_has_happened_to_procs():
    session = Session(3)
    session.describe()
    session.hub.run()
    session.crossings["n001"].connected(Proc("job", 1))
    session.crossings["n001"].finalized(Proc("job", 1))
    session.crossings["n002"].departed(Proc("job", 2))
    session.hub.run()
    session.add("n003")
    session.hub.run()
    # It has to know the jobs first: what others say waits until then.
    heard = []
    session.exchanges["n003"].hear("words", lambda *said: heard.append(said))
    session.exchanges["n002"].tell("n003", "words", b"1")
    session.wait(1)
    assert not heard
    session.exchanges[LAUNCHER].tell("n003", DESCRIBE, b"1")
    session.crossings[LAUNCHER].introduce("n003")
    session.hub.run()
    assert heard == [("n002", b"1")]
    assert session.has_departed("n003", 2)
    assert session.crossings["n003"]._places.is_missing(Proc("job", 1), 1)
    assert not session.crossings["n003"]._places.is_missing(Proc("job", 0), 1)


def test_what_is_told_all_waits_for_its_basis_too():
    session = Session(40)
    session.slow = {(LAUNCHER, name): 10.0 for name in session.names[:5]}
    for name in session.names:
        session.exchanges[LAUNCHER].tell(name, DESCRIBE, b"1")
    session.wait(0.05)
    event = NotifyEvent(-3000, RANGE_SESSION, (attrs.EVENT_AFFECTED_PROC(Proc("job", 0)),))
    session.ask("n020", event)
    session.wait(5)
    assert sorted(name for name in session.names if session.servers[name].heard) == sorted(
        {*session.names[5:]} - {"n020"}
    )
    session.hub.run()
    assert all(len(session.servers[name].heard) == 1 for name in session.names if name != "n020")


def test_a_message_goes_along_with_those_before_it():
    session = Session(2)
    a, b = (session.exchanges[name] for name in session.names)
    heard = []
    for topic in ("one", "two"):
        b.hear(topic, lambda _sender, data: heard.append(data))
    a.soon(a.outbox.buffer, "n001", "one", lambda: b"1")
    a.soon(a.outbox.buffer, "n001", "one", lambda: b"2")
    a.tell("n001", "two", b"3")
    assert session.hub.messages == {"n000": 1}
    session.hub.run()
    assert heard == [b"1", b"2", b"3"]
    # One that is long goes alone, and one that nothing follows in a moment.
    a.soon(a.outbox.buffer, "n001", "one", lambda: b"4")
    a.tell("n001", "two", bytes(1 << 17))
    a.soon(a.outbox.buffer, "n001", "one", lambda: b"5")
    session.hub.run()
    assert session.hub.messages == {"n000": 4}
    assert heard[3:] == [b"4", bytes(1 << 17), b"5"]
    # Nothing is left for one that is lost.
    a.soon(a.outbox.buffer, "n001", "one", lambda: b"6")
    session.hub.lose("n001")
    session.hub.run()
    assert not a.outbox._buffered


def test_only_the_launcher_orders_entries(caplog):
    session = Session(3)
    session.describe()
    session.hub.run()
    entries = ("n002", 1, statelog.NEWS, b""), ("n001", 0, statelog.LOSS, b"")
    news = statelog.ORDER.write((9, 9, entries))
    session.exchanges["n001"].tell("n000", statelog.ORDERED, news)
    session.hub.run()
    assert session.exchanges["n000"].members == (LAUNCHER, *session.names)
    assert "n001 may not send 'pypmix.state.ordered' to n000" in caplog.text


@pytest.mark.parametrize("bound", ["seconds", "bytes"])
def test_messages_wait_for_their_basis_within_bounds(bound, monkeypatch, caplog):
    session = Session(2)
    session.slow = {(LAUNCHER, "n000"): 1000.0}
    session.describe()
    session.wait(0.05)
    heard = []
    session.exchanges["n000"].hear("words", lambda *said: heard.append(said))
    monkeypatch.setattr(limits, "HELD_BYTES", 1000 if bound == "bytes" else 1 << 20)
    for number in range(8):
        session.exchanges["n001"].tell("n000", "words", b"%d" % number * 200)
    session.wait(HELD_SECONDS / 2)
    if bound == "seconds":
        assert not heard
        session.wait(HELD_SECONDS)
    assert [data[:1] for _, data in heard] == [b"%d" % number for number in range(8)]
    assert caplog.text.count("are processed without the changes") == 1


def test_many_pairs_fence_without_the_others():
    session = Session(60)
    session.describe()
    session.hub.run()
    session.hub.messages.clear()
    # One pair is as slow as can be, and two servers without a part answer nobody.
    session.slow = {("n001", "n000"): 500.0, ("n058", LAUNCHER): 500.0, (LAUNCHER, "n058"): 500.0}
    asked = {}
    for number in range(0, 58, 2):
        one, other = session.names[number : number + 2]
        procs = (Proc("job", number), Proc("job", number + 1))
        asked[one, other] = [session.ask(name, fence(name, procs)) for name in (one, other)]
    session.wait(1)
    assert [pair for pair, both in asked.items() if not all(each.ends for each in both)] == [("n000", "n001")]
    session.hub.run()
    assert all(
        each.end == b"<%b><%b>" % (one.encode(), other.encode())
        for (one, other), both in asked.items()
        for each in both
    )
    assert session.hub.messages == dict.fromkeys(session.names[:58], 1)


def test_a_paused_server_that_takes_no_part_delays_nobody():
    session = Session(60)
    session.describe()
    session.hub.run()
    paused = "n030"
    session.slow = {pair: 500.0 for name in (LAUNCHER, *session.names) for pair in ((name, paused), (paused, name))}
    procs = tuple([Proc("job", rank) for rank, name in session.places.items() if name != paused])
    asked = [session.ask(name, fence(name, procs)) for name in session.names if name != paused]
    session.wait(1)
    assert len({each.end for each in asked}) == 1


def test_the_loss_of_a_server_costs_a_message_for_each_other_one():
    session = Session(16)
    session.describe()
    session.hub.run()
    session.hub.messages.clear()
    session.hub.lose("n007")
    session.hub.run()
    assert session.hub.messages == {LAUNCHER: 15}
    assert all("n007" in session.exchanges[name].gone for name in session.names if name != "n007")
    # At the end of a session nobody has to know.
    session.hub.messages.clear()
    session.exchanges[LAUNCHER].conclude()
    for name in ("n001", "n002"):
        session.hub.lose(name)
    session.wait(DOUBT_SECONDS / 2)
    assert not session.hub.messages


def test_of_two_that_lose_each_other_the_launcher_declares_the_later_one_lost():
    session = Session(4)
    session.describe()
    session.hub.run()
    session.hub.part("n001", "n002")
    asked = [session.ask(name, fence(name, ALL)) for name in session.names]
    session.hub.run()
    left = (LAUNCHER, "n000", "n001", "n003")
    assert all(session.exchanges[name].members == left for name in left)
    assert session.exchanges["n002"].members == ("n002",)
    # The first server had all contributions.
    assert {each.end for each in asked} == {b"<n000><n001><n002><n003>"}
    asked = [session.ask(name, fence(name, ALL)) for name in session.names]
    session.hub.run()
    assert [each.end.missing for each in asked if each is not asked[2]] == [{Proc("job", 2)}] * 3
    assert asked[2].ends


def test_a_living_server_that_is_declared_lost_leaves():
    session = Session(3)
    session.describe()
    session.hub.run()
    session.slow = {("n001", "n000"): 3 * LOSS_SECONDS}
    heard = []
    session.exchanges["n000"].hear("words", lambda *said: heard.append(said))
    session.exchanges["n001"].tell("n000", "words", b"late")
    launcher = session.exchanges[LAUNCHER]
    launcher.soon(launcher.membership.lose, "n001")
    session.hub.run()
    assert session.exchanges["n001"].members == ("n001",)
    assert session.exchanges["n000"].members == session.exchanges["n002"].members == (LAUNCHER, "n000", "n002")
    # Its messages are waited for, but not for ever.
    assert not heard


def test_a_fence_with_directives_is_answered_as_any_other():
    session = Session(2)
    session.describe()
    session.hub.run()
    asked = [session.ask(name, FenceUpcall(ALL, (attrs.TIMEOUT(3),), name.encode())) for name in session.names]
    session.hub.run()
    assert [each.end for each in asked] == [b"n000n001"] * 2


@pytest.mark.parametrize("count", [2, 5])
def test_two_that_reach_only_the_launcher_work_together_through_it(count):
    session = Session(0)
    first, second = "n000", "n001"
    # The two never hear of each other from their carriers.
    enter = session.hub._pass
    session.hub._pass = lambda one, other, call: {one.name, other.name} != {first, second} and enter(one, other, call)
    session.names = [f"n{number:03}" for number in range(count)]
    session.places = dict(enumerate(session.names))
    for name in session.names:
        session.add(name)
    session.wait(1)
    assert second not in session.exchanges[first].members
    session.describe()
    session.wait(0.1)
    asked = [session.ask(name, fence(name, ALL)) for name in session.names]
    session.hub.run()
    assert {each.end for each in asked} == {"".join(f"<{name}>" for name in session.names).encode()}
    asked = [session.ask(name, fence(name, ALL)) for name in session.names]
    session.wait(0.2)
    assert {each.end for each in asked} == {"".join(f"<{name}>" for name in session.names).encode()}
    session.hub.lose(second)
    asked = session.ask(first, fence(first, ALL))
    session.hub.run()
    assert asked.end.missing == {Proc("job", 1)}
    assert all(
        exchange.members == (LAUNCHER, first, *session.names[2:])
        for name, exchange in session.exchanges.items()
        if name != second
    )
