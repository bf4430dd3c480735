"""What is promised of groups whose members end or leave is kept on every pairing, or declared: `lib.promises`."""

from __future__ import annotations

import pytest

from lib import pairings, promises
from pypmix import PMIxError

pytestmark = [
    pytest.mark.servers(*promises.PROVEN_ON),
    pytest.mark.needs("groups"),
    pytest.mark.forms("sync"),
]


@pytest.mark.promise("construct: a member dies")
def test_a_member_that_ends_before_it_comes(run):
    run.keeps("construct: a member dies")


@pytest.mark.promise("construct: optional")
def test_members_need_not_come(run):
    run.keeps("construct: optional")


@pytest.mark.promise("construct: optional in time")
def test_members_need_not_come_in_time(run):
    first, second, tardy = run("group_failures.tardy", ranks=3)
    assert first == second == ([0, 1], True)
    assert isinstance(tardy, str), tardy


@pytest.mark.promise("construct: fault tolerant")
def test_who_has_ended_is_gone_on_without(run):
    run.keeps("construct: fault tolerant")


@pytest.mark.promise("construct: members are told")
def test_members_hear_of_those_who_end(run):
    run.keeps("construct: members are told")


@pytest.mark.promise("construct: the leader is told")
def test_the_leader_alone_hears_of_those_who_end(run):
    run.keeps("construct: the leader is told")


@pytest.mark.promise("construct: a handler aborts")
def test_a_handler_gives_the_group_up(run):
    run.keeps("construct: a handler aborts")


@pytest.mark.promise("construct: the leader fails")
def test_one_of_those_who_claim_leads(run):
    run.keeps("construct: the leader fails")


@pytest.mark.promise("construct: no leader")
def test_nobody_wants_to_lead(run):
    run.keeps("construct: no leader")


@pytest.mark.promise("construct: no leave")
def test_nobody_leaves_before_it_stands(run):
    (members, refused), none = run("group_failures.impatient", ranks=2)
    assert members == [0, 1] and none is None
    assert isinstance(refused, PMIxError) and "not complete" in str(refused)


@pytest.mark.promise("destruct: a member has died")
def test_a_group_of_which_one_has_died_is_destructed_with_an_error(run):
    run.keeps("destruct: a member has died")


@pytest.mark.promise("destruct: a member dies")
def test_a_member_that_ends_before_it_destructs(run):
    run.keeps("destruct: a member dies")


@pytest.mark.promise("destruct: members are told")
def test_members_hear_of_those_who_end_before_they_destruct(run):
    run.keeps("destruct: members are told")


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
    run.keeps("a member fails")


@pytest.mark.promise("a leader fails")
def test_the_leader_of_a_group_that_stands_ends(run):
    run.keeps("a leader fails")


def _run_survivors(run, scenario, nodes):
    """Run a scenario in which ranks 3 and 4 end, and return the other ranks."""
    job = run.job(scenario, 5, options=("--nodes", str(nodes), *pairings.surviving(run.server)))
    left = job.ranks
    assert not job.hung and set(left) == {0, 1, 2} and not any(rank.error for rank in left.values()), job.report()
    return left


@pytest.mark.servers("python-server")
@pytest.mark.promise("construct: the leader fails")
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_the_next_leader_alone_hears_of_a_member_that_ends_after_the_leader(run, nodes):
    """The servers learn of both ends at once, and tell of them one after the other, as one server does."""
    left = _run_survivors(run, "group_failures.leader_and_member", nodes)
    failed, selected, member = ("GROUP_LEADER_FAILED", 3), ("GROUP_LEADER_SELECTED", 0), ("GROUP_MEMBER_FAILED", 4)
    # Rank 0 answers the event of the leader, which its later handlers do not get.
    heard = [[selected, member], [failed, selected], [failed, selected]]
    assert [left[rank].result for rank in range(3)] == [([0, 1, 2], each) for each in heard]


@pytest.mark.servers("python-server")
@pytest.mark.promise("construct: the leader fails")
@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_the_next_leader_alone_hears_of_a_member_that_ended_before_the_leader(run, nodes):
    """Only the former leader knew of the member, on one server and on several."""
    left = _run_survivors(run, "group_failures.member_and_leader", nodes)
    failed, selected, member = ("GROUP_LEADER_FAILED", 3), ("GROUP_LEADER_SELECTED", 0), ("GROUP_MEMBER_FAILED", 4)
    heard = [[selected, member], [failed, selected], [failed, selected]]
    assert [left[rank].result for rank in range(3)] == [([0, 1, 2], each) for each in heard]
