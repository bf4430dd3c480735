"""What is promised of constructing groups is kept on every pairing, or declared: `harness.promises` lists it."""

from __future__ import annotations

import pytest

from harness import promises
from pypmix import OperationTimeout

pytestmark = [pytest.mark.servers(*promises.PROVEN_ON), pytest.mark.needs("groups")]


@pytest.mark.forms("sync")
@pytest.mark.promise("construct", "construct: rank by position", "construct: no context id", "construct: ids again")
@pytest.mark.promise("destruct")
def test_groups_of_one_name_one_after_the_other(run):
    expected = [([3, 2, 1, 0], None, False), ([0, 1, 2, 3], None, False)]
    assert run("group_construct.again", ranks=4) == [expected] * 4


@pytest.mark.forms("sync")
@pytest.mark.promise("destruct", "destruct: twice")
def test_a_group_that_is_no_more(run):
    assert run("group_construct.ended", ranks=2) == [("ERR_NOT_FOUND", "ERR_NOT_FOUND")] * 2


@pytest.mark.promise("construct without blocking")
def test_several_at_once(run):
    found = run("group_construct.at_once", ranks=4, what="of other procs")
    halves, pairs = [each[0] for each in found], [each[1] for each in found]
    assert [members for members, _ in halves] == [[0, 2], [1, 3], [0, 2], [1, 3]]
    assert [members for members, _ in pairs] == [[0, 1], [0, 1], [2, 3], [2, 3]]
    assert halves[:2] == halves[2:] and pairs[::2] == pairs[1::2]
    assert len({number for each in found for _, number in each}) == 4


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: ids side by side")
def test_several_of_the_same_procs_at_once(run):
    found = run("group_construct.at_once", ranks=4, what="of the same")
    assert found == found[:1] * 4
    (members, number), (others, another) = found[0]
    assert members == others == [0, 1, 2, 3] and number != another


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: beside a fence")
def test_a_fence_of_the_same_procs(run):
    found = run("group_construct.at_once", ranks=4, what="a fence")
    assert found == found[:1] * 4 and found[0][0][0] == [0, 1, 2, 3]


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: group ids")
def test_names(run):
    expected = {
        "empty": "ValueError",
        "too long": "ValueError",
        "zero": "ValueError",
        "longest": [0, 1],
        "group": "ERR_EXISTS",
        "nspace": "ERR_EXISTS",
    }
    assert run("group_construct.named", ranks=2) == [expected] * 2


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: final order")
def test_an_order_that_is_asked_for(run):
    order = [2, 0, 3, 1]
    assert run("group_construct.ordered", ranks=4) == [(order, order.index(rank), "of 2") for rank in range(4)]


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: context id")
def test_numbers_that_no_other_group_has(run):
    found = run("group_construct.numbered", ranks=4)
    assert found[0] == found[2] and found[1] == found[3]
    assert found[0][::2] == found[1][::2]
    assert all(isinstance(number, int) for numbers in found for number in numbers)
    assert len({number for numbers in found for number in numbers}) == 6


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: group info")
def test_what_members_tell_the_others(run):
    ports = [f"port {rank}" for rank in range(3)]
    for told, asked in run("group_construct.shared", ranks=3, endpoint=False):
        assert asked == ports
        assert told in ({}, {rank: [port] for rank, port in enumerate(ports)})


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: endpoint data")
def test_endpoints_of_members(run):
    ports = [f"port {rank}".encode() for rank in range(3)]
    for told, asked in run("group_construct.shared", ranks=3, endpoint=True):
        assert asked == ports
        assert told in ({}, {rank: [port] for rank, port in enumerate(ports)})


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: job info", "construct: data")
def test_members_of_two_jobs(run):
    assert run("group_construct.families", ranks=2) == [(2, ["child 0", "child 1"], 4)] * 2


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: data")
def test_what_members_have_put(run):
    assert run("group_construct.put", ranks=4) == [[f"of {rank}" for rank in range(4)]] * 4


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
    *errors, none = run("group_construct.late", ranks=3)
    assert none is None
    assert all(isinstance(error, OperationTimeout) for error in errors), errors


@pytest.mark.forms("sync")
@pytest.mark.promise("construct: not a member")
def test_a_caller_who_is_not_named(run):
    first, second, other = run("group_construct.outside", ranks=3)
    assert first == second == [0, 1]
    assert other in ("ERR_BAD_PARAM", "ERR_NOT_A_MEMBER")


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
