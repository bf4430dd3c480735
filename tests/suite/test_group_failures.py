"""What is promised of groups whose members end or leave is kept on every pairing, or declared: `harness.promises`."""

from __future__ import annotations

import pytest

from harness import promises
from pypmix import PMIxError

pytestmark = [
    pytest.mark.servers(*promises.PROVEN_ON),
    pytest.mark.needs("groups"),
    pytest.mark.forms("sync"),
]

ERRORS = ("ConstructAborted", "PartialSuccess", "LostConnection")


def failed(rank, group="acme.shrunk"):
    return "GROUP_MEMBER_FAILED", group, rank


def survivors(run, scenario, ranks, victims, **arguments):
    return run.survivors(f"group_failures.{scenario}", ranks, victims, victims=victims, **arguments)


@pytest.mark.promise("construct: a member dies")
def test_a_member_that_ends_before_it_comes(run):
    for early in (False, True):
        for status, said, *members in survivors(run, "shrunk", 3, [1], early=early).values():
            assert not members and status in ERRORS
            assert not [name for name, _, _ in said if name != "GROUP_CONSTRUCT_ABORT"]


@pytest.mark.promise("construct: optional")
def test_members_need_not_come(run):
    expected = [0, 2], True, None, None, []
    assert survivors(run, "shrunk", 4, [3, 1], early=True, optional=True) == {0: expected, 2: expected}


@pytest.mark.promise("construct: optional in time")
def test_members_need_not_come_in_time(run):
    first, second, tardy = run("group_failures.tardy", ranks=3)
    assert first == second == ([0, 1], True)
    assert isinstance(tardy, str), tardy


@pytest.mark.promise("construct: fault tolerant")
def test_who_has_ended_is_gone_on_without(run):
    expected = [0, 2], True, None, None
    found = survivors(run, "shrunk", 4, [3, 1], early=True, ft=True)
    assert {rank: each[:4] for rank, each in found.items()} == {0: expected, 2: expected}


@pytest.mark.promise("construct: members are told")
def test_members_hear_of_those_who_end(run):
    found = survivors(run, "shrunk", 4, [3, 1], early=True, notify_termination=True)
    expected = [0, 2], True, None, None, [failed(1), failed(3)]
    assert {rank: (*each, sorted(said)) for rank, (*each, said) in found.items()} == {0: expected, 2: expected}


@pytest.mark.promise("construct: the leader is told")
def test_the_leader_alone_hears_of_those_who_end(run):
    none = [0, 1, 2], []
    found = survivors(run, "told", 4, [3])
    assert found == {0: none, 1: ([0, 1, 2], [failed(3, "acme.told")]), 2: none}


@pytest.mark.promise("construct: a handler aborts")
def test_a_handler_gives_the_group_up(run):
    expected = "ConstructAborted", [[3]], ["GROUP_CONSTRUCT_ABORT"]
    assert survivors(run, "given_up", 4, [3]) == dict.fromkeys(range(3), expected)


@pytest.mark.promise("construct: the leader fails")
def test_one_of_those_who_claim_leads(run):
    found = survivors(run, "orphaned", 4, [0], claims=[1, 2])
    (_, leader), *_ = found[1]
    assert leader in (1, 2)
    expected = ([1, 2, 3], leader), [[0]], [("GROUP_LEADER_SELECTED", "acme.orphan", leader)]
    assert found == dict.fromkeys((1, 2, 3), expected)


@pytest.mark.promise("construct: nobody leads")
def test_nobody_wants_to_lead(run):
    expected = "ConstructAborted", [[0]], [("GROUP_LEADER_SELECTED", "acme.orphan", None)]
    assert survivors(run, "orphaned", 4, [0], claims=[]) == dict.fromkeys((1, 2, 3), expected)


@pytest.mark.promise("construct: no leave")
def test_nobody_leaves_before_it_stands(run):
    (members, refused), none = run("group_failures.impatient", ranks=2)
    assert members == [0, 1] and none is None
    assert isinstance(refused, PMIxError) and "not complete" in str(refused)


@pytest.mark.promise("destruct: a member dies")
def test_a_member_that_ends_before_it_destructs(run):
    for status, said in survivors(run, "taken_apart", 3, [2]).values():
        assert status in ERRORS and said == []


@pytest.mark.promise("destruct: members are told")
def test_members_hear_of_those_who_end_before_they_destruct(run):
    expected = None, [failed(2, "acme.apart")]
    assert survivors(run, "taken_apart", 3, [2], notify_termination=True) == {0: expected, 1: expected}


@pytest.mark.promise("leave")
def test_a_member_that_leaves(run):
    zero, one, two = run("group_failures.left", ranks=3)
    assert one == (False, "NotFound")
    assert zero == ((1, "acme.left", []), "Left", [0, 2], 0, 2)
    assert two == ((1, "acme.left", []), "Left", [0, 2], 1, 2)


@pytest.mark.promise("leave: fault tolerant")
def test_a_fence_goes_on_without_who_leaves(run):
    assert run("group_failures.left_behind", ranks=3, abandons=True, ft=True) == [None, None, None]


@pytest.mark.promise("leave: standard error")
def test_a_fence_ends_with_an_error_when_somebody_leaves(run):
    found = run("group_failures.left_behind", ranks=3, abandons=True, ft=False)
    assert found == ["PartialSuccess", None, "PartialSuccess"]


@pytest.mark.promise("a member fails")
def test_a_member_of_a_group_that_stands_ends(run):
    found = survivors(run, "bereft", 3, [1])
    assert found == {
        rank: (("MemberFailed", 1, [0, 2], place, 2), [failed(1, "acme.bereft")]) for place, rank in enumerate((0, 2))
    }


@pytest.mark.promise("a leader fails")
def test_the_leader_of_a_group_that_stands_ends(run):
    found = survivors(run, "led", 4, [0])
    leader = found[1][1]
    assert leader in (1, 3)
    selected = [("GROUP_LEADER_SELECTED", "acme.led", leader)]
    expected = 0, leader, [([0], "acme.led")], selected, ["LeaderFailed", "LeaderSelected"]
    assert found == dict.fromkeys((1, 2, 3), expected)
