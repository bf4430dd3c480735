"""Groups are addresses, and known to whoever asks, on every pairing, or declared: `lib.promises` lists it."""

from __future__ import annotations

import pytest

from lib import promises

pytestmark = [
    pytest.mark.servers(*promises.PROVEN_ON),
    pytest.mark.needs("groups"),
    pytest.mark.forms("sync"),
]


@pytest.mark.promise("address: fence")
def test_fences_of_a_group_and_of_some_of_its_ranks(run):
    run.keeps("address: fence")


@pytest.mark.promise("address: get")
def test_members_are_read_by_group_rank(run):
    run.keeps("address: get")


@pytest.mark.promise("address: notify")
def test_events_for_a_group(run):
    everyone = ["all", "again"]
    assert run("group_addresses.notified", ranks=4) == [[], everyone, ["all", "one", "again"], everyone]


@pytest.mark.promise("address: notify from outside")
def test_events_for_a_group_from_outside(run):
    """Rank 0's node may have no member; the last two ranks are the members, the other way round."""
    assert run("group_addresses.notified_from_outside", ranks=4) == [[], [], ["all"], ["all", "one"]]


@pytest.mark.promise("address: connect")
def test_a_group_connects(run):
    assert run("group_addresses.connected", ranks=4) == ["connected"] * 4


@pytest.mark.promise("address: further group")
def test_a_group_in_another_one(run):
    assert run("group_addresses.grown", ranks=4) == [([3, 2, 1, 0], place) for place in (3, 2, 1, 0)]


@pytest.mark.promise("query: groups")
def test_how_many_groups_there_are(run):
    run.keeps("query: groups")


@pytest.mark.promise("query: membership")
def test_who_is_in_a_group(run):
    run.keeps("query: membership")


@pytest.mark.promise("group names")
def test_in_which_groups_a_proc_is(run):
    names = [["acme.own0"], *[["acme.address", f"acme.own{rank}"] for rank in (1, 2, 3)]]
    assert run("group_addresses.belonging", ranks=4) == [(names, [])] * 4
