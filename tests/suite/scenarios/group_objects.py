"""Groups, invitations and leadership as programs write them: the design's own snippets, and what surrounds them."""

from __future__ import annotations

import os

from lib.aio import hear, sleep, tell
from pypmix import ConstructAborted, EventCode, PermissionDenied, PMIxError
from pypmix.aio.recipes.admission import Admission, request
from pypmix.groups import Accepted, Declined, Failed, Left, MemberFailed
from pypmix.recipes import Leadership


def names(procs):
    return [proc.rank for proc in procs]


async def evens(me):
    """The design's group: the even ranks have one, use it, and rank 2 leaves it."""
    await me.put("endpoint", f"tcp://{me.rank}")
    await me.fence(collect=True, timeout=20)
    evens = [p for p in me.job.procs if p.rank % 2 == 0]
    found = None
    if me.proc in evens:
        async with me.group("acme.evens", evens, context_id=True, notify_termination=True, timeout=20) as g:
            found = g.rank, g.size, g.context_id, names(g.members)
            await g.fence()
            peer = await me.get("endpoint", proc=g.members[0])
            assert peer == await me.get("endpoint", g[0]) == "tcp://0"
            if me.rank == 2:
                await g.leave()
        assert not g.membership.is_open
    await me.fence(timeout=20)
    return found


async def unnamed(me):
    """Groups without names: all who name the same procs, in whatever order, mean the same group."""
    found = []
    half = [proc for proc in me.job.procs if proc.rank % 2 == me.rank % 2]
    for procs in (me.job.procs, half[::-1] if me.rank > 1 else half, me.job):
        async with me.group(procs=procs, timeout=20) as g:
            await g.fence(timeout=20)
            found.append((g.name, sorted(names(g))))
    await me.fence(timeout=20)
    return found


async def raising(me):
    """An exception leaves the group, which waits for nobody; the others hear of it and go on."""
    try:
        async with me.group("acme.raising", me.job.procs, timeout=20) as g:
            changes = g.changes()
            if me.rank == 0:
                raise KeyError("mine")
            change = await changes.next(timeout=20)
            await g.fence(timeout=20)
            members = names(change.members)
            found = isinstance(change, Left), names(change.left), change.epoch, members, g.membership.epoch
    except KeyError as error:
        found = error.args[0]
    await me.fence(timeout=20)
    return found, g.membership.is_open


async def dying(me):
    """A member that ends is told of, and the fault tolerant group goes on."""
    async with me.group("acme.dying", me.job.procs, ft=True, notify_termination=True, timeout=20) as g:
        changes = g.changes()
        if me.rank == 1:
            os._exit(0)
        change = await changes.next(timeout=20)
        await g.fence(timeout=20)
        return isinstance(change, MemberFailed), names(change.left), names(g), g.rank


async def spare(me):
    """The design's invitation: rank 1 declines, and the last rank takes its place."""
    group = await (lead_team(me) if me.rank == 0 else join_team(me))
    found = None
    if group is not None:
        async with group:
            await group.fence(timeout=20)
            found = names(group), group.rank, names([group.membership.leader])
    await me.fence(timeout=20)
    return found


async def lead_team(me):
    async with me.invite("acme.team", me.job.procs[1:-1], timeout=20) as inv:
        async for answer in inv.answers():
            match answer:
                case Declined(proc=p, reason=r) if r == "out of memory":
                    await inv.replace(p, with_=me.job[me.job.size - 1])
                case Declined() | Failed():
                    inv.drop(answer.proc)
        return await inv.complete()


async def join_team(me):
    async for invitation in me.invitations():
        if me.rank == 1:
            await invitation.decline("out of memory")
            return None
        return await invitation.accept(timeout=20)
    return None


async def fewer(me):
    """Rank 1 declines and rank 2 ends without an answer; the leader goes on with whom there is."""
    if me.rank == 0:
        answers = []
        async with me.invite("acme.fewer", me.job.procs, timeout=20, context_id=True) as inv:
            await tell("invited")
            async for answer in inv.answers():
                answers.append((type(answer).__name__, answer.proc.rank))
                if not isinstance(answer, Accepted):
                    inv.drop(answer.proc)
            group = await inv.complete()
        found = sorted(answers), names(group), isinstance(group.context_id, int)
    elif me.rank == 2:
        await hear("invited")
        os._exit(0)
    else:
        async with me.invitations() as invitations:
            invitation = await invitations.get(timeout=20)
        if me.rank == 1:
            await invitation.decline()
            return None
        group = await invitation.accept(timeout=20)
        found = names(group)
    await group.destruct(timeout=20)
    return found


async def given_up(me):
    """Leaving the block without `complete`, and an exception, give the group up for all."""
    found = []
    for name in ("acme.left", "acme.raised"):
        try:
            if me.rank == 0:
                async with me.invite(name, me.job.procs, timeout=20) as inv:
                    async for _ in inv.answers():
                        pass
                    if name == "acme.raised":
                        raise KeyError(name)
            else:
                async for invitation in me.invitations():
                    await invitation.accept(timeout=20)
        except (ConstructAborted, KeyError) as error:
            found.append(type(error).__name__)
        await me.fence(timeout=20)
    return found


async def automatic(me):
    """A function answers invitations while the program does other things."""
    async with me.invitations(auto=lambda invitation: me.rank != 1) as invitations:
        await me.fence(timeout=20)
        if me.rank == 0:
            group = await me.invite("acme.auto", me.job.procs, optional=True, timeout=20).form()
        elif me.rank == 2:
            invitation = await invitations.get(timeout=20)
            group = await invitation.accept()
        else:
            group = None
        found = None if group is None else names(group)
        if group is not None:
            await group.destruct(timeout=20)
        await me.fence(timeout=20)
    return found


async def failover(me):
    """The design's failover: the first two leaders end one after the other, and terms follow each other."""
    found = []
    async with me.group("acme.control", me.job.procs, leader=me.job[0], ft=True, notify_termination=True) as g:  # noqa: SIM117
        async with Leadership(g, elect=lambda alive: min(alive)) as lead:
            async for term in lead.terms():
                found.append((term.epoch, term.leader.rank, names(g)[-2:]))
                if term.leader.rank == 2:
                    break
                # Each has seen the term before it ends.
                await me.fence(g.members, timeout=20)
                if term.leader == me.proc:
                    os._exit(0)
                await term.over.wait(20)
    return found


async def both(me):
    """The leader and the one that would follow it end at once."""
    found = []
    async with me.group("acme.both", me.job.procs, leader=me.job[0], ft=True, notify_termination=True) as g:  # noqa: SIM117
        async with Leadership(g) as lead:
            first = await lead.get(timeout=20)
            found.append(first.leader.rank)
            await me.fence(timeout=20)
            if me.rank < 2:
                os._exit(0)
            second = await lead.get(timeout=20)
            while second.leader.rank < 2:
                # Of two that end at once, one may still be there when the other has gone.
                second = await lead.get(timeout=20)
            found += [second.leader.rank, first.over(), second.epoch]
    return found


async def requests(me):
    """Asking to join a group that stands: its members' handlers decide."""
    found = None
    if me.rank < 2:
        async with me.group("acme.open", me.job.procs[:2], timeout=20) as g:

            def decide(ev):
                return ev.refuse("not you") if ev.source.rank == 3 else ev.done()

            async with Admission(g, decide):
                await g.fence(timeout=20)
                await me.fence(timeout=20)
                change = await g.changes().next(timeout=20)
                await me.fence(timeout=20)
            found = names(change.joined), names(g)
            await g.fence(timeout=20)
    else:
        await me.fence(timeout=20)
        try:
            group = await request(me, "acme.open", timeout=20)
        except PMIxError as error:
            found = isinstance(error, PermissionDenied), "not you" in str(error)
            await me.fence(timeout=20)
        else:
            await me.fence(timeout=20)
            found = names(group)
            await group.fence(timeout=20)
            await group.destruct(timeout=20)
    await me.fence(timeout=20)
    return found


async def aborting(me):
    """A handler gives the construct up when a member ends before it has come."""
    if me.rank == 2:
        await hear("begun")
        await sleep(0.3)
        os._exit(0)

    @me.on(EventCode.GROUP_MEMBER_FAILED)
    def give_up(ev):
        return ev.abort()

    await give_up.ready()
    await tell("begun")
    try:
        await me.group("acme.given", me.job.procs, notify_termination=True, timeout=20).construct()
    except PMIxError as error:
        return type(error).__name__
    return None
