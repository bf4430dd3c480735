"""Events reach those whom they concern, once and in order, on every pairing."""

from __future__ import annotations

import pytest

from lib import promises


@pytest.mark.needs("one node")
def test_a_stream(run):
    for code, source, info, internal, more in run("events.observed", ranks=3):
        assert (code, source.rank, info) == (-4242, 1, {"acme.load": 0.5, "acme.count": 7})
        assert (internal, more) == ([], [])


def test_iteration_in_order(run):
    run.keeps("events: order", ranks=2)


def test_default_handlers(run):
    run.keeps("events: default handlers", ranks=2)


@pytest.mark.needs("events beyond the node", "one node")
def test_ranges(run):
    everybody = ["LOCAL", "NAMESPACE", "SESSION", "GLOBAL"]
    assert run("events.ranges", ranks=2) == [[*everybody, "PROC_LOCAL"], everybody]


@pytest.mark.needs("events beyond the node")
def test_targets(run):
    run.keeps("events beyond the node")


@pytest.mark.needs("a kept event comes once", "one node")
def test_late_registration(run):
    run.keeps("a kept event comes once", ranks=2)


@pytest.mark.servers(*promises.PROVEN_ON)
@pytest.mark.forms("sync")
def test_an_event_tells_of_a_rank_that_is_killed(run):
    run.keeps("event: a rank is killed")


def test_the_chain_of_handlers(run):
    names = ["first", "before", "single", "after", "appended", "several", "default", "last"]
    handed_on = sorted(f"acme.{name}" for name in names[:-1])
    assert run("events.chained", ranks=1) == [(names, handed_on)]


def test_handlers_that_end_the_chain_and_handlers_that_fail(run):
    assert run("events.ended", ranks=1) == [["broken", "wrong", "enough"]]


def test_handlers_that_are_gone(run):
    assert run("events.once", ranks=1) == [(["removed", "single"], 0)]


def test_streams_one_after_the_other(run):
    assert run("events.anew", ranks=1) == [[[0], [1], [2]]]


@pytest.mark.needs("one node")
def test_events_about_a_proc(run):
    assert run("events.about", ranks=2) == [[(1, [1]), (2, [0, 1])]] * 2


def test_a_slow_reader(run):
    assert run("events.slow", ranks=1) == [([7, 8, 9], 7)]


@pytest.mark.needs("one node")
def test_a_handler_that_asks(run):
    assert run("events.asked_inside", ranks=2) == [[5]] * 2


def test_nothing_comes(run):
    for text in run("events.silence", ranks=1):
        assert "nothing came within 0.3 s" in text


def test_mistakes(run):
    expected = {
        "order": "ValueError",
        "two orders": "ValueError",
        "no order": "ValueError",
        "code": "TypeError",
        "before": "NotFound",
        "custom": "ValueError",
    }
    assert run("events.refused", ranks=1) == [expected]


def test_a_lone_process(alone):
    assert alone("events.lonely") == (1, True)


@pytest.mark.forms("asyncio")
def test_a_stream_that_is_given_up(run):
    assert run("events.given_up", ranks=1) == [0]
