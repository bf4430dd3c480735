"""What is promised of groups by invitation is kept on every pairing, or declared: `lib.promises`."""

from __future__ import annotations

import pytest

from lib import promises
from pypmix import EventCode

pytestmark = [
    pytest.mark.servers(*promises.PROVEN_ON),
]

ABORTED = "ConstructAborted"


def survivors(run, scenario, ranks, victims, **arguments):
    return run.survivors(f"group_invitations.{scenario}", ranks, victims, victims=victims, **arguments)


@pytest.mark.promise("invite")
def test_who_accepts_is_a_member(run):
    run.keeps("invite")


@pytest.mark.promise("invite")
def test_other_ways_to_join(run):
    assert run("group_invitations.by_hand", ranks=3) == [[0, 1, 2]] * 3


@pytest.mark.promise("invite")
def test_several_invitations_at_once(run):
    assert run("group_invitations.several", ranks=3) == [[[0, 1, 2], [0, 1, 2], [1, 0, 2]]] * 3


@pytest.mark.promise("invite: not before it stands")
def test_nobody_uses_what_is_not_complete(run):
    assert run("group_invitations.patient", ranks=3) == [[0, 1, 2]] * 3


@pytest.mark.promise("invite: answers", "invite: decline", "invite: drop")
def test_what_the_inviter_sees(run):
    expected = ([0, 1, 3], True), None
    said = [(1, "Accepted", "", 1), (2, "Declined", "out of memory", 0), (3, "Accepted", "", 1)]
    assert run("group_invitations.answered", ranks=4) == [
        (expected[0], (said, (3, 3), (0, [1, 3]))),
        expected,
        (0, None),
        expected,
    ]


@pytest.mark.promise("invite: decline")
def test_all_are_to_accept(run):
    assert run("group_invitations.declined", ranks=3) == [(ABORTED, [1]), (None, []), (ABORTED, [])]


@pytest.mark.promise("invite: optional")
def test_not_all_need_to_accept(run):
    assert run("group_invitations.declined", ranks=3, optional=True) == [([0, 2], [1]), (None, []), ([0, 2], [])]


@pytest.mark.promise("invite: a handler aborts")
def test_a_handler_of_the_inviter_gives_it_up(run):
    found = run("group_invitations.declined", ranks=3, optional=True, verdict="abort")
    assert found == [(ABORTED, [1]), (None, []), (ABORTED, [])]


@pytest.mark.promise("invite: replacement")
def test_a_handler_of_the_inviter_invites_somebody_else(run):
    members = [0, 2, 3]
    found = run("group_invitations.declined", ranks=4, verdict="replace")
    assert found == [(members, [1]), (None, []), (members, []), (members, [])]


@pytest.mark.promise("invite: drop")
def test_a_handler_of_the_inviter_goes_on_without(run):
    found = run("group_invitations.declined", ranks=3, verdict="drop")
    assert found == [([0, 2], [1]), (None, []), ([0, 2], [])]


@pytest.mark.promise("invite: timeout")
def test_who_does_not_answer_in_time(run):
    said = [("Accepted", 1, False), ("Failed", 2, True)]
    assert run("group_invitations.silent", ranks=3) == [([0, 1], said), ([0, 1], None), (ABORTED, None)]


@pytest.mark.promise("invite: timeout")
def test_all_are_to_accept_in_time(run):
    run.keeps("invite: timeout", ranks=3)


@pytest.mark.promise("invite: an invitee dies")
@pytest.mark.parametrize("accepts", [False, True], ids=["silent", "accepted"])
def test_an_invited_one_ends(run, accepts):
    said = [("Accepted", 1), *([("Accepted", 2)] if accepts else []), ("Failed", 2)]
    found = survivors(run, "bereft", 3, [2], accepts=accepts)
    assert found == {0: ([0, 1], (said, [2], "acme.bereft", 0)), 1: ([0, 1], None)}


@pytest.mark.promise("invite: replacement")
def test_somebody_else_is_invited(run):
    said = [("Accepted", 2), ("Accepted", 3), ("Declined", 1)]
    members = [0, 2, 3]
    assert run("group_invitations.replaced", ranks=4) == [(members, said), None, members, members]


@pytest.mark.promise("invite: abort")
@pytest.mark.parametrize("how", ["call", "exception", "event", "member"])
def test_it_is_given_up(run, how):
    inviter = "KeyError" if how == "exception" else ABORTED
    assert run("group_invitations.given_up", ranks=3, how=how) == [inviter, ABORTED, ABORTED]


@pytest.mark.promise("invite: early invitations")
def test_an_invitation_that_comes_early(run):
    assert run("group_invitations.early", ranks=2) == [[0, 1]] * 2


@pytest.mark.promise("invite: context id")
def test_context_ids(run):
    run.keeps("invite: context id", ranks=3)


@pytest.mark.promise("invite: endpoint data")
@pytest.mark.parametrize("endpoint", [True, False], ids=["endpoint", "info"])
def test_what_members_tell_with_their_answers(run, endpoint):
    ports = [f"port {rank}" for rank in range(3)]
    expected = {rank: [port.encode() if endpoint else port] for rank, port in enumerate(ports)}
    assert run("group_invitations.shared", ranks=3, endpoint=endpoint) == [expected] * 3


@pytest.mark.promise("invite: the leader fails")
def test_one_who_claims_completes_it(run):
    found = survivors(run, "orphaned", 4, [0], claims=[1, 2])
    (_, leader), *_ = found[1]
    assert leader in (1, 2)
    assert {rank: each[1:] for rank, each in found.items()} == dict.fromkeys(
        (1, 2, 3), ([([0], "acme.orphan")], [leader])
    )
    for (members, who), *_ in found.values():
        assert sorted(members) == [1, 2, 3] and (members, who) == found[1][0]


@pytest.mark.promise("invite: nobody leads")
def test_nobody_wants_to_complete_it(run):
    expected = int(EventCode.GROUP_LEADER_FAILED), [([0], "acme.orphan")], [None]
    assert survivors(run, "orphaned", 4, [0], claims=[]) == dict.fromkeys((1, 2, 3), expected)
