"""Checked by mypy, never run: what the public API infers for programs that form groups."""

from __future__ import annotations

import json
from typing import assert_type

import pypmix
import pypmix.aio.recipes.draft as awaited_draft
import pypmix.aio.recipes.leadership as awaited
import pypmix.aio.recipes.mpi as awaited_mpi
import pypmix.recipes.draft as blocking_draft
import pypmix.recipes.leadership as blocking
from pypmix import Client, Connection, Event, Group, Proc, aio
from pypmix.events import Answer
from pypmix.groups import (
    Accepted,
    Change,
    Declined,
    Failed,
    GroupEvent,
    Invitation,
    Invite,
    InviteAnswer,
    Left,
)
from pypmix.recipes import Leadership
from pypmix.recipes.admission import Admission, admit, enter, request
from pypmix.recipes.mpi import Communicator
from pypmix.standard import ops
from pypmix.steps import Values


def used(me: Client) -> None:
    with me.group(procs=me.job, leader=me.job[0], ft=True, add=[me.proc], timeout=5) as group:
        assert_type(group, Group)
        assert_type(group.membership.leader, Proc | None)
        assert_type(group.membership.epoch, int)
        group.fence(ft=False)
        assert_type(group.allgather(1), Values)
        assert_type(group.gather({}, codec=json), Values | None)
        group.leave()
        with group.changes(since=group.membership.epoch) as changes:
            assert_type(changes.next(timeout=5), Change)
            for change in changes:
                match change:
                    case Left(proc=proc):
                        assert_type(proc, Proc | None)
    me.group("g", me.proc, leader="me")  # type: ignore[arg-type]
    assert_type(request(me, "g"), Group)
    assert_type(enter(me, "g", me.job), Group)
    with Admission(me.group("g"), lambda event: event.refuse("no")):
        admit(me.group("g"), 1)


def invited(me: Client) -> None:
    with me.invite("g", me.job, timeout=5) as invite:
        assert_type(invite, Invite)
        for answer in invite.answers():
            assert_type(answer, InviteAnswer)
            match answer:
                case Declined(reason=reason) if invite.missing < 2:
                    assert_type(reason, str)
                    invite.replace(answer.proc, with_=me.job[3])
                case Accepted() | Failed():
                    invite.drop(answer.proc)
        assert_type(invite.complete(), Group)
    assert_type(me.invite("g", me.job).form(), Group)
    assert_type(me.raw.group_join("g", me.job[0]), ops.GroupResults)
    assert_type(me.raw.group_join("g", me.job[0], False, reason="no"), ops.GroupResults)
    for invitation in me.invitations(auto=lambda invitation: invitation.leader.rank == 0):
        assert_type(invitation, Invitation)
        assert_type(invitation.accept(timeout=5), Group)
        invitation.decline("no")


def led(group: Group) -> None:
    with Leadership(group, elect=min) as lead:
        assert_type(lead, blocking.Leadership)
        for term in lead.terms():
            assert_type(term.leader, Proc)
            assert_type(term.over(), bool)
            assert_type(term.over.wait(1.0), bool)


def drafted(group: Group) -> None:
    blocking_draft.announce(group, group.members, GroupEvent.HAS_JOINED)
    with blocking_draft.Consent(group, lambda event: event.source, patience=1) as consent:
        assert_type(consent, blocking_draft.Consent)
        consent.leave(timeout=5)


async def drafted_awaited(group: aio.Group) -> None:
    await awaited_draft.announce(group, group.members)
    async with awaited_draft.Consent(group) as consent:
        assert_type(consent, awaited_draft.Consent)
        await consent.leave()


def communicating(group: Group, connection: Connection) -> None:
    with Communicator(group, timeout=None) as comm, Communicator(connection):
        comm.allreduce(1)


async def communicating_awaited(group: aio.Group) -> None:
    async with awaited_mpi.Communicator(group) as comm:
        comm.allreduce(1)


async def led_awaited(me: aio.Client) -> None:
    async with me.group("g", me.job, leader=True) as group, Leadership(group, elect=lambda alive: min(alive)) as lead:
        assert_type(group, aio.Group)
        assert_type(lead, awaited.Leadership)
        async for term in lead.terms():
            async with term.scope():
                assert_type(term.epoch, int)
        async for change in group.changes():
            assert_type(change, Change)


async def invited_awaited(me: aio.Client) -> aio.Group:
    async for invitation in me.invitations():
        return await invitation.accept(timeout=30)
    async with me.invite("g", me.job) as invite:
        async for answer in invite.answers():
            assert_type(answer, pypmix.groups.InviteAnswer)
        return await invite.complete()


def answered(event: Event) -> None:
    assert_type(event.lead(), Answer)
    assert_type(event.abort(), Answer)
