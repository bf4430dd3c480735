"""What is promised of constructing groups is kept on every pairing, or declared: `lib.promises` lists it."""

from __future__ import annotations

import pytest

from lib import promises

pytestmark = [pytest.mark.servers(*promises.PROVEN_ON), pytest.mark.needs("groups")]


@pytest.mark.forms("sync")
@pytest.mark.promise("construct", "construct: rank by position", "construct: no context id", "construct: ids again")
@pytest.mark.promise("destruct")
def test_groups_of_one_name_one_after_the_other(run):
    run.keeps("construct")


@pytest.mark.forms("sync")
@pytest.mark.promise("destruct", "destruct: twice")
def test_a_group_that_is_no_more(run):
    run.keeps("destruct: twice", ranks=2)


@pytest.mark.promise("construct without blocking")
def test_several_at_once(run):
    run.keeps("construct without blocking")


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: ids side by side")
def test_several_of_the_same_procs_at_once(run):
    run.keeps("construct: ids side by side")


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: beside a fence")
def test_a_fence_of_the_same_procs(run):
    run.keeps("construct: beside a fence")


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: group ids")
def test_names(run):
    run.keeps("construct: group ids", ranks=2)


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: final order")
def test_an_order_that_is_asked_for(run):
    run.keeps("construct: final order")


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: context id")
def test_numbers_that_no_other_group_has(run):
    run.keeps("construct: context id")


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: group info")
def test_what_members_tell_the_others(run):
    run.keeps("construct: group info", ranks=3)


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: endpoint data")
def test_endpoints_of_members(run):
    ports = [f"port {rank}".encode() for rank in range(3)]
    for told, asked in run("group_construct.shared", ranks=3):
        assert asked == ports
        assert told in ({}, {rank: [port] for rank, port in enumerate(ports)})


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: job info", "construct: data")
def test_members_of_two_jobs(run):
    assert run("group_construct.families", ranks=2) == [(2, ["child 0", "child 1"], 4)] * 2


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: data")
def test_what_members_have_put(run):
    run.keeps("construct: data")


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: local only")
def test_a_group_of_a_node(run):
    found = run("group_construct.on_one_node", ranks=4)
    assert [(same, members) for same, _, members in found] == [(True, True)] * 4
    numbers = [number for _, number, _ in found]
    assert all(isinstance(number, int) for number in numbers)
    assert numbers[0] == numbers[1] and numbers[2] == numbers[3]
    assert (numbers[1] == numbers[2]) is (run.server != "python-server-2-nodes")


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: timeout")
def test_a_member_that_does_not_come_in_time(run):
    run.keeps("construct: timeout", ranks=3)


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: not a member")
def test_a_caller_who_is_not_named(run):
    run.keeps("construct: not a member", ranks=3)


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: other procs")
def test_members_who_name_other_procs(run):
    found = run("group_construct.disagreeing", ranks=3)
    assert all(isinstance(status, str) for status in found), found


@pytest.mark.forms("sync")
@pytest.mark.promise("bootstrap")
def test_leaders_that_know_their_number(run):
    none, first, second, nothing = run("group_construct.bootstrapped", ranks=4, added=False)
    assert none is nothing is None
    members, _, number = first
    assert sorted(members) == [1, 2] and isinstance(number, int)
    assert [first, second] == [(members, members.index(rank), number) for rank in (1, 2)]


@pytest.mark.forms("sync")
@pytest.mark.promise("add members")
def test_members_that_are_added(run):
    found = run("group_construct.adding", ranks=4)
    assert found == [([0, 1, 3, 2], rank) for rank in (0, 1, 3, 2)]


@pytest.mark.promise("bootstrap and add members")
def test_leaders_that_know_their_number_and_add_members(run):
    found = run("group_construct.bootstrapped", ranks=4, added=True)
    members, _, number = found[0]
    assert sorted(members) == [0, 1, 2, 3] and isinstance(number, int)
    assert found == [(members, members.index(rank), number) for rank in range(4)]
