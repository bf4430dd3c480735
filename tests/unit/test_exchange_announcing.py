"""Servers tell each other of jobs by a digest, and of procs by few messages; nobody acts on what it lacks."""

from __future__ import annotations

import pytest

from lib.exchange_session import Session
from lib.exchange_world import PARTIAL, fence
from pypmix.engine.times import DECISION_SECONDS
from pypmix.standard.types import RANK_WILDCARD, Proc

pytestmark = pytest.mark.timeout(30)

ALL = (Proc("job", RANK_WILDCARD),)


def test_a_job_that_all_describe_alike_is_told_by_a_digest():
    bytes_of = {}
    for count in (4, 16):
        session = Session(count)
        session.register(*session.names)
        session.hub.run()
        assert set(session.hub.messages.values()) == {count - 1}
        bytes_of[count] = max(session.hub.bytes.values()) // (count - 1)
        assert all(session.has(name) == session.places for name in session.names)
        places = session.crossings["n000"]._places
        assert places.known_to("job", session.names)
    assert bytes_of[4] == bytes_of[16]


def test_who_has_no_part_in_a_job_asks_one_server_for_it():
    session = Session(8)
    session.register(*session.names[:6])
    session.hub.run()
    assert session.has("n006") == session.has("n007") == session.places
    assert sum(session.hub.messages.values()) == 6 * 7 + 2 * 2
    assert session.crossings["n007"]._places.tellers_of("job") == session.names[:6]


def test_who_describes_it_in_another_way_gets_what_the_others_know():
    session = Session(3)
    session.register("n000", "n001")
    session.register("n002", places={7: "n002"})
    session.hub.run()
    assert all(session.has(name) == {**session.places, 7: "n002"} for name in session.names)


def test_what_comes_before_the_description_waits_for_it_and_keeps_its_order():
    session = Session(3)
    session.register("n001", "n002")
    # The coordinator has not heard of the job but by these, and registers it much later.
    asked = [session.ask(name, fence(name, ALL)) for name in ("n001", "n002")]
    session.crossings["n002"].departed(Proc("job", 2))
    session.hub.run(0.2)
    assert not any(each.ends for each in asked)
    assert session.has("n000") == session.places
    assert session.crossings["n000"]._places.has_departed(Proc("job", 2))
    session.register("n000")
    asked.append(session.ask("n000", fence("n000", ALL)))
    session.hub.run()
    assert [each.end for each in asked] == [b"<n000><n001><n002>"] * 3


def test_upcalls_wait_for_a_description_that_was_told_of():
    session = Session(2)
    session.register("n001", job="other", places={0: "n001", 1: "n000"})
    session.hub.run(0.02)
    assert session.has("n000", "other") is None
    # Its client knows of that job from the other one.
    procs = (Proc("other", RANK_WILDCARD),)
    asked = [session.ask(name, fence(name, procs)) for name in session.names]
    session.hub.run()
    assert [each.end for each in asked] == [b"<n000><n001>"] * 2


def test_two_servers_that_lack_what_the_other_has_do_not_wait_for_each_other():
    session = Session(2)
    for name, job in (("n000", "first"), ("n001", "second")):
        session.register(name, job=job, places={0: name})
    session.hub.run(0.02)
    asked = [session.ask(name, fence(name, (Proc("first", 0), Proc("second", 0)))) for name in session.names]
    session.hub.run()
    assert session.hub.clock.now < 1
    assert [each.end for each in asked] == [b"<n000><n001>"] * 2


def test_where_the_one_that_is_asked_is_lost_another_is_asked():
    session = Session(4)
    session.register("n001", "n002")
    session.hub.run(0.07)
    session.hub.lose("n001")
    session.hub.run()
    assert session.has("n003") == session.has("n000") == session.places
    assert session.crossings["n003"]._places.tellers_of("job") == ["n002"]


def test_what_is_kept_counts_where_its_sender_is_lost():
    session = Session(3)
    heard = []
    session.exchanges["n000"].hear("news", lambda *news: heard.append(news))
    session.register("n001")
    session.exchanges["n001"].tell("n000", "news", b"1")
    session.hub.run(0.011)
    assert not heard
    # Its description never comes.
    session.exchanges["n001"].close()
    session.hub.run()
    assert heard == [("n001", b"1")]
    assert session.has("n000") is None
    # And nothing waits any more.
    session.register("n000", "n002")
    assert session.ask("n000", fence("n000", (Proc("job", 0),))).end == b"<n000>"


def test_a_server_that_does_not_say_what_it_has_told_of_holds_nobody_up_for_ever(caplog):
    session = Session(2)
    session.hub.drop = lambda _sender, to, message: to == "n001" and b"wanted" in message
    session.register("n001", job="other", places={0: "n001"})
    asked = session.ask("n000", fence("n000", (Proc("other", 0),)))
    heard = []
    session.exchanges["n000"].hear("news", lambda *news: heard.append(news))
    session.exchanges["n001"].tell("n000", "news", b"1")
    session.hub.run(DECISION_SECONDS / 2)
    assert not heard
    session.hub.run()
    assert heard == [("n001", b"1")]
    assert asked.end.code
    assert "do not say where the procs of 'other' are" in caplog.text


def test_a_job_that_is_over_before_it_was_asked_about_is_not_known():
    session = Session(2)
    session.register("n001")
    session.crossings["n001"].deregister("job")
    session.hub.run()
    assert session.has("n000") is None
    assert not session.crossings["n000"]._announcements.has_to_ask()


def test_procs_that_go_at_a_time_are_told_of_together():
    session = Session(4, ranks=8)
    session.register(*session.names)
    for rank in range(32):
        session.crossings[session.places[rank]].connected(Proc("job", rank))
    session.hub.run()
    session.hub.messages.clear()
    for rank in range(32):
        crossing = session.crossings[session.places[rank]]
        crossing.finalized(Proc("job", rank))
        crossing.departed(Proc("job", rank))
    session.hub.run()
    assert set(session.hub.messages.values()) == {3}
    for crossing in session.crossings.values():
        assert crossing._places.has_ended("job")


def test_news_of_procs_come_before_what_builds_on_them():
    session = Session(2)
    session.register(*session.names)
    session.hub.run()
    heard = []
    place = session.crossings["n000"]._places
    session.exchanges["n000"].hear("news", lambda *_: heard.append(place.has_departed(Proc("job", 1))))
    session.crossings["n001"].departed(Proc("job", 1))
    session.exchanges["n001"].tell("n000", "news", b"")
    session.hub.run()
    assert heard == [True]


def test_a_proc_that_goes_and_comes_back_has_gone_for_others_too():
    session = Session(2)
    gone = []
    session.crossings["n000"]._gone = gone.append
    session.register(*session.names)
    session.hub.run()
    proc = Proc("job", 1)
    crossing = session.crossings["n001"]
    for step in (crossing.connected, crossing.departed, crossing.connected, crossing.departed, crossing.connected):
        step(proc)
    session.hub.run()
    assert gone == [proc, proc]
    assert not session.crossings["n000"]._places.has_departed(proc)


def test_a_server_that_comes_late_is_told_of_procs_that_have_gone():
    session = Session(2)
    session.register(*session.names)
    session.hub.run()
    session.add("n009")
    session.crossings["n001"].departed(Proc("job", 1))
    session.hub.run()
    assert session.crossings["n009"]._places.has_departed(Proc("job", 1))
    asked = session.ask("n000", fence("n000", ALL))
    session.hub.run()
    assert asked.end.code == PARTIAL


@pytest.mark.parametrize("again", [False, True])
def test_a_server_that_comes_late_is_told_of_procs_whose_server_has_gone(again):
    """Also where it has the name of the one that has gone: its own procs are others."""
    session = Session(3)
    session.register(*session.names)
    session.hub.run()
    session.exchanges["n002"].close()
    session.hub.run()
    newcomer = "n002" if again else "n009"
    session.add(newcomer)
    session.register(newcomer)
    session.hub.run()
    assert session.crossings[newcomer]._places.has_departed(Proc("job", 2))
    asked = session.ask("n000", fence("n000", ALL))
    session.ask("n001", fence("n001", ALL))
    session.hub.run()
    assert asked.end.code == PARTIAL


@pytest.mark.parametrize("late", ["n000", "n002"])
@pytest.mark.parametrize("there", [True, False])
def test_who_comes_to_a_job_late_hears_of_procs_whose_server_is_done_with_it(late, there):
    """Servers of one job may begin, and end, long before another one: a resource manager starts each by itself."""
    session = Session(2 if late == "n002" and not there else 3)
    early = [name for name in ("n000", "n001", "n002") if name != late]
    places = {rank: f"n{rank:03}" for rank in range(3)}
    if late == "n000" and not there:
        session.exchanges["n000"].close()
        session.hub.run()
    session.register(*early, places=places)
    session.hub.run()
    for name in early[:1]:
        session.crossings[name].departed(Proc("job", int(name[1:])))
        session.hub.run()
        session.crossings[name].deregister("job")
        session.hub.run()
    if not there:
        session.add(late)
        session.hub.run()
    session.register(late, places=places)
    others = [early[1], late]
    asked = [session.ask(name, fence(name, ALL)) for name in others]
    session.hub.run(5.0)
    assert [each.end.status for each in asked] == [PARTIAL] * 2
    assert [list(each.end.missing) for each in asked] == [[Proc("job", int(early[0][1:]))]] * 2


def test_a_second_job_of_a_name_is_another_one():
    session = Session(2)
    for _ in range(2):
        # The second time one is far earlier than the other, and its procs wait for those of that.
        session.register("n001")
        session.hub.run()
        asked = [session.ask("n001", fence("n001", ALL))]
        session.hub.run(1.0)
        session.register("n000")
        asked.append(session.ask("n000", fence("n000", ALL)))
        session.hub.run()
        assert [each.end for each in asked] == [b"<n000><n001>"] * 2
        for rank, name in enumerate(session.names):
            session.crossings[name].departed(Proc("job", rank))
            session.crossings[name].deregister("job")
        session.hub.run()
    assert not any(crossing._ended for crossing in session.crossings.values())


@pytest.mark.parametrize("there", [True, False])
def test_the_last_of_a_job_waits_for_nobody_who_had_gone_before_it_came(there):
    session = Session(2 if there else 1)
    places = {0: "n000", 1: "n001"}
    session.register("n000", places=places)
    session.hub.run()
    session.crossings["n000"].departed(Proc("job", 0))
    session.crossings["n000"].deregister("job")
    session.hub.run()
    if not there:
        session.add("n001")
        session.hub.run()
    session.register("n001", places=places)
    asked = session.ask("n001", fence("n001", ALL))
    session.hub.run(5.0)
    assert asked.end.status == PARTIAL and list(asked.end.missing) == [Proc("job", 0)]
