"""Proves that a server knows the members of an invited group that the clients of that group know."""

from __future__ import annotations

import pytest

from lib.group_party import Party, complete, invite, job
from pypmix.engine.groups import talk
from pypmix.standard import codes, keys, statuses
from pypmix.standard.types import DataArray, Proc


def complete_by_range(party, rank, *ranks):
    """Announce a group as libpmix before 7.0 does: the range of the event is the membership."""
    party.notify(rank, statuses.GROUP_CONSTRUCT_COMPLETE, to=DataArray(codes.PROC, job(*ranks)))


@pytest.mark.parametrize("announce", [complete, complete_by_range])
def test_an_inviter_that_does_not_invite_itself_is_not_a_member(announce):
    party = Party(3)
    invite(party, 0, 1, 2)
    announce(party, 0, 1, 2)
    assert party.server.store.groups["g"] == job(1, 2)
    assert party.server.groups.records.get("g").leader is None
    # Nobody waits for it, and its end is no event of the group.
    tags = [party.members[rank].destruct() for rank in (1, 2)]
    assert party.statuses(tags, (1, 2)) == [statuses.SUCCESS] * 2
    assert party.is_clean()


@pytest.mark.parametrize("announce", [complete, complete_by_range])
def test_an_inviter_that_invites_itself_is_a_member(announce):
    party = Party(3)
    invite(party, 0, 0, 1, 2)
    announce(party, 0, 1, 0, 2)
    assert party.server.store.groups["g"] == job(1, 0, 2)
    assert party.server.groups.records.get("g").leader == Proc("job", 0)


def test_the_end_of_an_inviter_that_is_not_a_member_is_not_told_to_the_group():
    party = Party(3)
    invite(party, 0, 1, 2)
    complete(party, 0, 1, 2, infos=(talk.flag(keys.GROUP_NOTIFY_TERMINATION),))
    for rank in (1, 2):
        party.heard(rank)
    party.die(0)
    assert [party.heard(rank) for rank in (1, 2)] == [[], []]
    assert party.server.store.groups["g"] == job(1, 2)


@pytest.mark.parametrize("arrivals", [((3, 1), (2, 2)), ((2, 2), (3, 1))])
def test_admitted_members_have_the_ranks_that_the_clients_give_them(arrivals):
    """Clients sort them by the places that were given; the news of two admissions may arrive in any order."""
    party = Party(4)
    party.construct(0, 1, procs=job(0, 1))
    for rank, place in arrivals:
        new = Proc("job", rank)
        infos = (
            talk.procs(keys.GROUP_MEMBERSHIP, (*job(0, 1), new)),
            talk.procs(talk.ADDED, (new,)),
            talk.size(talk.PLACE, place),
            talk.size(talk.LIFE, place),
        )
        party.notify(0, statuses.GROUP_MEMBERSHIP_UPDATE, *infos, to=DataArray(codes.PROC, job(0, 1, rank)))
    assert party.server.store.groups["g"] == job(0, 1, 3, 2)
