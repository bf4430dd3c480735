"""Groups by invitation: who answers what, what the inviter makes of it, and who ends or gives up in between."""

from __future__ import annotations

import os
import signal
import threading

from lib.aio import hear, sleep, tell, together
from pypmix import ConstructAborted, EventCode, OperationTimeout, PMIxError, attrs
from pypmix.groups import Accepted, Declined, Failed

INVITED, DECLINED, FAILED = (
    EventCode.GROUP_INVITED,
    EventCode.GROUP_INVITE_DECLINED,
    EventCode.GROUP_INVITE_FAILED,
)
COMPLETE, ABORT = EventCode.GROUP_CONSTRUCT_COMPLETE, EventCode.GROUP_CONSTRUCT_ABORT
LEADER, SELECTED = EventCode.GROUP_LEADER_FAILED, EventCode.GROUP_LEADER_SELECTED

MEANWHILE = 0.3
"""Seconds after which the others have come to what they wait in."""


def names(procs):
    return [proc.rank for proc in procs]


def die(after=0.0):
    """End as a process does that is killed, at once or some seconds later from wherever it is then."""
    if after:
        threading.Timer(after, os.kill, (os.getpid(), signal.SIGKILL)).start()
    else:
        os.kill(os.getpid(), signal.SIGKILL)


async def outcome(call):
    """Return the members of the group that a call returns, by rank, or the name of the error that it raises."""
    try:
        return names(await call())
    except PMIxError as error:
        return type(error).__name__


async def listening(me):
    """Return a stream of invitations when all ranks have one."""
    invitations = await me.invitations().open()
    await me.fence(timeout=20)
    return invitations


async def count(stream, quiet=0.6):
    """Return how many come until none has come for a while."""
    number = 0
    while True:
        try:
            await stream.get(timeout=quiet)
        except OperationTimeout:
            return number
        number += 1


async def end(me, team):
    """Use a group, and destruct it."""
    await team.fence(timeout=20)
    await team.destruct(timeout=20)


async def by_hand(me):
    """Ranks join by what the event says; rank 2 leaves the answer to a function."""
    if me.rank == 0:
        await me.fence(timeout=20)
        team = await me.invite("acme.hand", me.job.procs, timeout=20).form()
    elif me.rank == 1:
        async with me.events(INVITED) as events:
            await me.fence(timeout=20)
            event = await events.get(timeout=20)
            team = await me.group_join(event.info["pmix.grp.id"], event.source, timeout=20)
    else:
        async with me.invitations(auto=lambda invitation: invitation.group == "acme.hand") as invitations:
            await me.fence(timeout=20)
            team = await (await invitations.get(timeout=20)).accept(timeout=20)
    found = names(team)
    await end(me, team)
    return found


async def several(me):
    """Ranks 0 and 1 invite each other and rank 2 at the same time, and rank 0 to a second group."""
    invitations = await listening(me)

    async def join():
        return names(await (await invitations.get(timeout=20)).accept(timeout=20))

    def inviting(name):
        others = [proc for proc in me.job.procs if proc != me.proc]
        return lambda: outcome(lambda: me.invite(name, others, timeout=20).form())

    calls = {0: [inviting("acme.a"), inviting("acme.b"), join], 1: [inviting("acme.c"), join, join], 2: [join] * 3}
    found = await together(*calls[me.rank])
    await me.fence(timeout=20)
    return sorted(found, key=str)


async def patient(me):
    """Nobody uses the group before its inviter has completed it, whenever it has accepted."""
    invitations = await listening(me)
    if me.rank == 0:
        async with me.invite("acme.patient", me.job.procs[1:], timeout=20) as invite:
            async for answer in invite.answers():
                if answer.proc.rank == 1:
                    await tell("one")
            await sleep(MEANWHILE)
            await tell("complete")
            team = await invite.complete()
    else:
        invitation = await invitations.get(timeout=20)
        if me.rank == 2:
            await hear("one")
        team = await invitation.accept(timeout=20)
        await hear("complete", 0)
    found = names(team)
    await end(me, team)
    return found


async def answered(me):
    """Rank 2 declines; rank 0 sees it, and goes on without it, and rank 2 hears nothing more."""
    said = None
    invitations = await listening(me)
    async with me.events(COMPLETE, ABORT, DECLINED) as events:
        if me.rank == 0:
            said = []
            async with me.invite("acme.some", me.job.procs, timeout=20) as invite:
                before = invite.missing, len(invite.procs)
                async for answer in invite.answers():
                    infos = [info.key for info in answer.infos if info.key == attrs.GROUP_INFO.key]
                    said.append((answer.proc.rank, type(answer).__name__, answer.reason, len(infos)))
                    if isinstance(answer, Declined):
                        invite.drop(answer.proc)
                after = invite.missing, names(invite.accepted)
                team = await invite.complete()
            said = sorted(said), before, after
        else:
            invitation = await invitations.get(timeout=20)
            if me.rank == 2:
                await invitation.decline("out of memory")
                await hear("over")
                found = await count(events)
            else:
                info = attrs.GROUP_INFO({"acme.port": f"port {me.rank}"})
                team = await invitation.accept(timeout=20, info=[info])
    if me.rank != 2:
        found = names(team), team.membership.is_partial
        await end(me, team)
        await tell("over")
    await me.fence(timeout=20)
    return found, said


async def declined(me, verdict=None, **directives):
    """Rank 1 declines what rank 0 invites it and rank 2 to, and a handler of rank 0's may say what to do then."""
    calls = []
    if me.rank == 0:

        @me.on(DECLINED)
        def judge(event):
            calls.append(event.source.rank)
            if verdict == "abort":
                return event.abort()
            if verdict == "replace":
                return event.pass_on({attrs.GROUP_ADD_MEMBERS: [me.job[3]]})
            if verdict == "drop":
                return event.pass_on({attrs.GROUP_OPTIONAL: True})
            return event.pass_on()

        await judge.ready()
    invitations = await listening(me)
    found = None
    if me.rank == 0:
        found = await outcome(lambda: me.invite("acme.judged", me.job.procs[1:3], timeout=20, **directives).form())
    elif me.rank == 1:
        await (await invitations.get(timeout=20)).decline()
    elif me.rank == 2 or verdict == "replace":
        found = await outcome(partial_accept(await invitations.get(timeout=20)))
    if isinstance(found, list):
        await me.raw.group_destruct("acme.judged", timeout=20)
    await me.fence(timeout=20)
    return found, calls


def partial_accept(invitation):
    return lambda: invitation.accept(timeout=20)


async def silent(me):
    """Rank 2 does not answer in time, and accepts when it is too late."""
    invitations = await listening(me)
    if me.rank == 0:
        said = []
        async with me.invite("acme.silent", me.job.procs[1:], timeout=4) as invite:
            async for answer in invite.answers():
                said.append((type(answer).__name__, answer.proc.rank, answer.reason != ""))
                if isinstance(answer, Failed):
                    invite.drop(answer.proc)
            team = await invite.complete()
    else:
        said = None
        invitation = await invitations.get(timeout=20)
        if me.rank == 1:
            team = await invitation.accept(timeout=20)
    if me.rank < 2:
        found = names(team)
        await end(me, team)
    await me.fence(timeout=20)
    if me.rank == 2:
        found = await outcome(partial_accept(invitation))
    await me.fence(timeout=20)
    return found, said


async def bereft(me, victims, accepts):
    """Rank 2 is killed, before or after it has accepted."""
    invitations = await listening(me)
    if me.rank == 0:
        said = []
        async with me.events(FAILED) as events, me.invite("acme.bereft", me.job.procs[1:], timeout=20) as invite:
            async for answer in invite.answers():
                said.append((type(answer).__name__, answer.proc.rank))
            if accepts:
                await tell("accepted")
            event = await events.get(timeout=10)
            async for answer in invite.answers():
                said.append((type(answer).__name__, answer.proc.rank))
            said = sorted(said), names(event.affected), event.info["pmix.grp.id"], await count(events)
            invite.drop(me.job[2])
            team = await invite.complete()
    else:
        said = None
        invitation = await invitations.get(timeout=20)
        if me.rank in victims:
            if accepts:
                threading.Thread(target=lambda: (wait_for("accepted"), die())).start()
                await invitation.accept(timeout=20)
            die()
        team = await invitation.accept(timeout=20)
    found = names(team)
    await end(me, team)
    return found, said


def wait_for(name):
    """Wait in a thread until somebody has told something."""
    from lib import sync

    sync.hear(name)


async def replaced(me):
    """Rank 1 declines, and rank 3 is invited instead."""
    invitations = await listening(me)
    found = None
    if me.rank == 0:
        said = []
        async with me.invite("acme.spare", me.job.procs[1:3], timeout=20) as invite:
            async for answer in invite.answers():
                said.append((type(answer).__name__, answer.proc.rank))
                if isinstance(answer, Declined):
                    await invite.replace(answer.proc, with_=me.job[3])
            team = await invite.complete()
        found = names(team), sorted(said)
        await end(me, team)
    else:
        invitation = await invitations.get(timeout=20)
        if me.rank == 1:
            await invitation.decline()
        else:
            team = await invitation.accept(timeout=20)
            found = names(team)
            await end(me, team)
    await me.fence(timeout=20)
    return found


async def given_up(me, how):
    """A group is given up when rank 1 has accepted and rank 2 has not answered, who accepts afterwards."""
    invitations = await listening(me)
    infos = {attrs.GROUP_ID: "acme.vain"}
    async with me.events(ABORT) as events:
        await me.fence(timeout=20)
        if me.rank == 0:
            try:
                async with me.invite("acme.vain", me.job.procs[1:], timeout=20) as invite:
                    async for answer in invite.answers():
                        assert isinstance(answer, Accepted), answer
                        await tell("one")
                        if how == "call":
                            await invite.abort()
                            break
                        if how == "exception":
                            raise KeyError(how)
                        if how == "event":
                            await me.notify(ABORT, targets=me.job.procs, info=infos)
                    found = await outcome(invite.complete)
            except ConstructAborted:
                found = "ConstructAborted"
            except KeyError:
                found = "KeyError"
            await tell("over")
        else:
            invitation = await invitations.get(timeout=20)
            if me.rank == 2:
                if how == "member":
                    await hear("one")
                    await me.notify(ABORT, targets=me.job.procs, info=infos)
                await hear("over")
                await count(events)
            found = await outcome(partial_accept(invitation))
        await me.fence(timeout=20)
    # Nothing is left of it: the name is free.
    if me.rank == 0:
        team = await me.invite("acme.vain", me.job.procs, timeout=20).form()
    else:
        team = await (await invitations.get(timeout=20)).accept(timeout=20)
    await end(me, team)
    return found


async def early(me):
    """Rank 1 looks for invitations when one has been sent to it already."""
    if me.rank == 0:
        async with me.invite("acme.early", [me.job[1]], timeout=20) as invite:
            await me.fence(timeout=20)
            async for answer in invite.answers():
                assert isinstance(answer, Accepted), answer
            team = await invite.complete()
    else:
        await me.fence(timeout=20)
        async with me.invitations() as invitations:
            team = await (await invitations.get(timeout=20)).accept(timeout=20)
    found = names(team)
    await end(me, team)
    return found


async def shared(me, endpoint):
    """Each member gives something with its invitation or answer, which all find with the group."""
    if endpoint:
        said = attrs.GROUP_ENDPT_DATA(f"port {me.rank}".encode())
    else:
        said = attrs.GROUP_INFO({"acme.port": f"port {me.rank}"})
    invitations = await listening(me)
    if me.rank == 0:
        team = await me.invite("acme.ports", me.job.procs, timeout=20, info=[said]).form()
    else:
        team = await (await invitations.get(timeout=20)).accept(timeout=20, info=[said])
    told = {}
    for info in team.membership.infos:
        if info.key == said.key:
            proc, *items = info.value.data.items
            told[proc.value.data.rank] = [item.value.data for item in items]
    await end(me, team)
    return told


async def orphaned(me, victims, claims):
    """Rank 0 invites all others and ends when two have accepted; rank 3 accepts later."""
    calls = []

    @me.on(LEADER)
    def failed(event):
        calls.append((names(event.affected), event.info["pmix.grp.id"]))
        return event.lead() if me.rank in claims else event.pass_on()

    await failed.ready()
    invitations = await listening(me)
    async with me.events(SELECTED) as events:
        await me.fence(timeout=20)
        if me.rank in victims:
            async with me.invite("acme.orphan", me.job.procs[1:], timeout=20) as invite:
                async for _ in invite.answers():
                    if len(invite.accepted) == 2:
                        die()
        invitation = await invitations.get(timeout=20)
        if me.rank == 3:
            await sleep(2 * MEANWHILE)
        try:
            team = await invitation.accept(timeout=20)
        except PMIxError as error:
            return int(error.code), calls, await selected(events)
        found = names(team), team.membership.leader.rank
        said = await selected(events)
        await end(me, team)
    return found, calls, said


async def selected(events):
    """Return what events of a selection tell: whose, or None where nobody was."""
    found = []
    while True:
        try:
            event = await events.get(timeout=0.6)
        except OperationTimeout:
            return found
        leader = event.info.get(attrs.GROUP_LEADER.key)
        found.append(getattr(leader, "rank", None))


async def mixed(me, role):
    """What a rank does in a job with ranks of another language; see `tests/foreign/interop/invitations.c`."""
    invitations = await listening(me)
    said = []
    try:
        if role == "invite":
            async with me.invite("acme.mixed", me.job.procs, timeout=20) as invite:
                async for answer in invite.answers():
                    said.append((answer.proc.rank, type(answer).__name__))
                    if isinstance(answer, Declined):
                        invite.drop(answer.proc)
                team = await invite.complete()
        else:
            invitation = await invitations.get(timeout=20)
            said.append((invitation.group, invitation.leader.rank))
            team = await invitation.accept(timeout=20)
    except ConstructAborted:
        found = None
    else:
        found = names(team)
        await end(me, team)
    await me.fence(timeout=20)
    return found, sorted(said)
