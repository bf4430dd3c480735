"""What the early draft of RFC 0033 promises is kept on every pairing, or declared: `lib.promises`."""

from __future__ import annotations

import pytest

from lib import promises

pytestmark = [
    pytest.mark.servers(*promises.PROVEN_ON),
]


@pytest.mark.promise("request")
@pytest.mark.needs("groups")
def test_all_members_take_somebody_in(run):
    members = [2, 1, 0, 3]
    joined, call = ("Joined", 3, members, 2), (3, "acme.club")
    assert run("group_requests.asked", ranks=4) == [
        (joined, (members, 2, 2), [call], True),
        (joined, (members, 1, 2), [call], True),
        (joined, (members, 0, 2), [call], True),
        (None, (members, 3, 2), [], True),
    ]


@pytest.mark.promise("request")
@pytest.mark.needs("groups")
def test_what_a_new_member_knows(run):
    found = run("group_requests.number", ranks=3)
    assert found == [(found[0][0], [0, 1, 2])] * 3 and found[0][0] is not None


@pytest.mark.promise("request")
def test_groups_by_invitation_can_be_joined(run):
    assert run("group_requests.invited", ranks=3) == [[[0, 1, 2]], [[0, 1, 2], [1, 2]], [[0, 1, 2], [1, 2]]]


@pytest.mark.promise("request: refused")
@pytest.mark.needs("groups")
def test_a_member_refuses(run):
    found = run("group_requests.asked", ranks=4, refuses=[1])
    assert found[3] == (("PermissionDenied", True), None, [], False)
    members = [2, 1, 0]
    for rank, (change, group, calls, inside) in enumerate(found[:3]):
        assert (change, group, inside) == (None, (members, members.index(rank), 1), True)
        assert len(calls) == 1 or rank != 1


@pytest.mark.servers("python-server")
def test_a_group_that_nobody_knows(run):
    assert run("group_requests.unknown", ranks=2) == ["NotFound", None]


@pytest.mark.promise("request")
@pytest.mark.needs("groups")
def test_a_member_that_takes_its_time(run):
    assert run("group_requests.undecided", ranks=3) == [[0, 1], [0, 1], "OperationTimeout"]


@pytest.mark.promise("announced construct")
@pytest.mark.needs("groups")
def test_those_who_are_wanted_hear_of_it(run):
    everybody = [0, 1, 2]
    for rank, (wanted, (came, again), members) in enumerate(run("group_requests.announced", ranks=3)):
        assert wanted == ((0, "acme.called", everybody) if rank else None)
        assert came == [(other, "acme.called") for other in everybody if other != rank]
        assert again == [] and members == everybody


@pytest.mark.promise("announced construct")
@pytest.mark.needs("groups")
def test_nobody_hears_of_it_where_nobody_asks(run):
    assert run("group_requests.unannounced", ranks=2) == [[], []]


@pytest.mark.promise("confirmed leave")
@pytest.mark.needs("groups")
def test_a_leave_that_waits_for_the_others(run):
    call = 1, "acme.leaving"
    zero, one, two = run("group_requests.confirmed", ranks=3)
    assert one == (False, [])
    assert zero == two == (("Left", 1, [0, 2]), [call])


@pytest.mark.promise("confirmed leave")
@pytest.mark.needs("groups")
def test_a_leave_that_is_not_confirmed_in_time(run):
    call = 1, "acme.leaving"
    zero, one, two = run("group_requests.confirmed", ranks=3, timeout=1)
    assert one == (("OperationTimeout", [2], [0, 1, 2]), [])
    assert zero == two == (None, [call])


@pytest.mark.promise("confirmed leave")
@pytest.mark.needs("groups")
def test_all_leave_with_consent_at_once(run):
    assert run("group_requests.parted", ranks=4) == [False] * 4


@pytest.mark.parametrize("first", ["admit", "enter"])
@pytest.mark.promise("admission")
@pytest.mark.needs("groups")
def test_the_first_member_takes_a_proc_in(run, first):
    members = [0, 1, 2, 3]
    inside = [3], members
    assert run("group_requests.grown", ranks=4, first=first) == [inside, inside, inside, ([], members)]


@pytest.mark.promise("admission")
@pytest.mark.needs("groups")
def test_who_does_not_come_is_not_taken_in(run):
    """Rank 0 offers, but rank 2 waits for rank 1 to do so."""
    members = "OperationTimeout", [0, 1]
    assert run("group_requests.waited", ranks=3) == [members, None, ("OperationTimeout", [])]
