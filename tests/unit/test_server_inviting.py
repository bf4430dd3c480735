"""Proves that a server carries out the invitations of clients that leave them to it, as libpmix 7.0.0rc1 does."""

from __future__ import annotations

import pytest

from lib.group_party import Party, job
from pypmix.engine.groups import talk
from pypmix.standard import codes, keys, statuses
from pypmix.standard.types import RANK_WILDCARD, Proc
from pypmix.wire.frames import TAG_NOTIFY
from pypmix.wire.messages import EVENT, Command

EVERYONE = (Proc("job", RANK_WILDCARD),)


class Gathering(Party):
    def invite(self, rank, procs, timeout=0, optional=False, number=False, name="g"):
        given = {"timeout": timeout, "optional": optional, "assign_context_id": number}
        member = self.members[rank]
        return member.status(member.ask(Command.GROUP_INVITE, group=name, procs=procs, **given))

    def join(self, rank, leader, status=statuses.GROUP_INVITE_ACCEPTED, name="g"):
        member = self.members[rank]
        return member.status(member.ask(Command.GROUP_JOIN, group=name, status=status, leader=leader))

    def said(self, rank):
        """Return what a client has heard since it was asked last: code, source, and the ranks of the members."""
        client, release = self.members[rank].client, self.members[rank].release
        client.read()
        found = []
        for tag, payload in client.pushed:
            assert tag == TAG_NOTIFY
            event = EVENT.decode(payload, 1, release)
            members = [proc.rank for proc in talk.listed(event["infos"], keys.GROUP_MEMBERSHIP)]
            found.append((event["code"], event["source"].rank, members))
        client.pushed.clear()
        return found


ZERO = Proc("job", 0)


def test_who_accepts_is_a_member():
    party = Gathering(3)
    assert party.invite(0, job(2, 0, 1)) == statuses.SUCCESS
    assert [party.said(rank) for rank in range(3)] == [[(statuses.GROUP_INVITED, 0, [2, 0, 1])]] * 3
    assert party.join(1, ZERO) == statuses.SUCCESS
    # Nothing stands before the last one has answered.
    assert party.said(2) == []
    assert party.said(0) == [(statuses.GROUP_INVITE_ACCEPTED, 1, [])]
    assert party.join(2, None) == statuses.SUCCESS
    complete = statuses.GROUP_CONSTRUCT_COMPLETE, 0, [2, 0, 1]
    assert [party.said(rank) for rank in range(3)] == [
        [(statuses.GROUP_INVITE_ACCEPTED, 2, []), complete],
        [complete],
        [complete],
    ]
    assert party.server.store.groups["g"] == job(2, 0, 1)


def test_an_answer_by_event_counts_as_well():
    party = Gathering(2)
    assert party.invite(0, job(0, 1)) == statuses.SUCCESS
    party.notify(1, statuses.GROUP_INVITE_ACCEPTED, to=ZERO)
    assert party.said(1) == [(statuses.GROUP_INVITED, 0, [0, 1]), (statuses.GROUP_CONSTRUCT_COMPLETE, 0, [0, 1])]


def test_an_answer_goes_to_inviters_of_another_kind():
    party = Gathering(2)
    party.notify(0, statuses.GROUP_INVITED, to=Proc("job", 1))
    assert party.join(1, None) == statuses.SUCCESS
    assert party.said(0) == [(statuses.GROUP_INVITE_ACCEPTED, 1, [])]
    assert party.join(1, ZERO, statuses.GROUP_INVITE_DECLINED) == statuses.SUCCESS
    assert party.said(0) == [(statuses.GROUP_INVITE_DECLINED, 1, [])]
    assert "g" not in party.server.store.groups


@pytest.mark.parametrize("optional", [False, True])
@pytest.mark.parametrize("how", ["declines", "ends", "is silent"])
def test_who_does_not_accept(optional, how):
    party = Gathering(3)
    assert party.invite(0, EVERYONE, timeout=3, optional=optional) == statuses.SUCCESS
    assert party.join(1, ZERO) == statuses.SUCCESS
    for rank in range(3):
        party.said(rank)
    if how == "declines":
        assert party.join(2, ZERO, statuses.GROUP_INVITE_DECLINED) == statuses.SUCCESS
    elif how == "ends":
        party.die(2)
    else:
        party.advance(2.9)
        assert party.said(0) == []
        party.advance(0.2)
    end = (statuses.GROUP_CONSTRUCT_COMPLETE, 0, [0, 1]) if optional else (statuses.GROUP_CONSTRUCT_ABORT, 0, [])
    assert party.said(1) == [end]
    told = [each for each in party.said(0) if each[0] != statuses.GROUP_INVITE_DECLINED]
    assert told == [(statuses.GROUP_INVITE_FAILED, 0, []), end]
    assert party.server.store.groups == ({"g": job(0, 1)} if optional else {})
    # It is over, and nothing more comes of it.
    party.advance(10)
    assert party.said(0) == party.said(1) == []


def test_it_is_given_up_by_event():
    party = Gathering(3)
    assert party.invite(0, EVERYONE) == statuses.SUCCESS
    party.notify(1, statuses.GROUP_CONSTRUCT_ABORT, to=ZERO)
    assert (statuses.GROUP_CONSTRUCT_ABORT, 0, []) in party.said(2)
    assert party.join(2, ZERO) == statuses.SUCCESS
    assert party.server.store.groups == {}


def test_an_inviter_that_ends():
    party = Gathering(2)
    assert party.invite(0, EVERYONE, timeout=3) == statuses.SUCCESS
    party.die(0)
    assert party.said(1) == [(statuses.GROUP_INVITED, 0, [0, 1])]
    party.advance(10)
    assert party.said(1) == []


def test_a_context_id():
    party = Gathering(2)
    assert party.invite(0, job(0, 1), number=True) == statuses.SUCCESS
    assert party.join(1, ZERO) == statuses.SUCCESS
    client = party.members[1].client
    client.read()
    event = EVENT.decode(client.pushed[-1][1], 1, party.members[1].release)
    assert event["code"] == statuses.GROUP_CONSTRUCT_COMPLETE
    assert talk.number(event["infos"], keys.GROUP_CONTEXT_ID) is not None


def test_mistakes():
    party = Gathering(2)
    assert party.invite(0, job(0)) == statuses.ERR_BAD_PARAM
    assert party.invite(0, job(1)) == statuses.ERR_NOT_A_MEMBER
    assert party.invite(0, EVERYONE, name="") == statuses.ERR_BAD_PARAM
    assert party.invite(0, EVERYONE, name="job") == statuses.ERR_EXISTS
    assert party.invite(0, EVERYONE) == statuses.SUCCESS
    assert party.invite(1, EVERYONE) == statuses.ERR_EXISTS
    assert party.join(1, ZERO, codes.STRING) == statuses.ERR_BAD_PARAM
    assert party.join(1, None, name="other") == statuses.ERR_NOT_FOUND
