"""Members and leaders of groups that end or leave, before a group stands, while it does, and as it is destructed."""

from __future__ import annotations

import os
import signal
import threading
import time

from lib.aio import hear, sleep, tell, together
from pypmix import EventCode, NotFound, OperationTimeout, PMIxError, Proc, Rank

MEMBER, LEADER, SELECTED = EventCode.GROUP_MEMBER_FAILED, EventCode.GROUP_LEADER_FAILED, EventCode.GROUP_LEADER_SELECTED
LEFT, ABORT = EventCode.GROUP_LEFT, EventCode.GROUP_CONSTRUCT_ABORT

MEANWHILE = 0.3
"""Seconds that pass between things that are to come one after the other."""

CALLED = 1.0
"""Seconds after which a call that was announced is with its server, on a busy machine too."""


def names(procs):
    return [proc.rank for proc in procs]


async def comes(me):
    """Tell the others that this process is about to call what it waits in."""
    await tell(f"call.{me.rank}")


async def come(*ranks):
    """Wait until these have called what they wait in."""
    for rank in ranks:
        await hear(f"call.{rank}")
    await sleep(CALLED)


async def outcome(call):
    """Return what a call returns, or the error."""
    try:
        return await call()
    except PMIxError as error:
        return error


def kind(error):
    """Return what sort of error it is, with the status of those that have no class of their own."""
    return f"PMIxError {error.code}" if type(error) is PMIxError else type(error).__name__


async def heard(stream, quiet=0.8):
    """Return which procs events are about, and of which group, until none has come for a while."""
    found = []
    while True:
        try:
            event = await stream.get(timeout=quiet)
        except OperationTimeout:
            return found
        leader = event.info.get("pmix.grp.ldr")
        about = leader if isinstance(leader, Proc) else event.affected[0] if event.affected else None
        found.append((event.code.name, event.info.get("pmix.grp.id"), None if about is None else about.rank))


async def leader_and_member(me):
    """Leader 3 is killed in a construct, and then 4, which never joins it; return the members, and what 0 to 2 hear."""

    @me.on(LEADER)
    def failed(event):
        return event.lead() if me.rank == 0 else event.pass_on()

    await failed.ready()
    async with me.events(MEMBER, LEADER, SELECTED) as events, me.events(EventCode.ERR_PROC_ABORTED) as ends:
        await me.fence(timeout=60)
        if me.rank == 4:
            await ends.get(timeout=60)
            os.kill(os.getpid(), signal.SIGKILL)
        if me.rank == 3:
            # It is lost while it waits.
            threading.Timer(3 * CALLED, os.kill, (os.getpid(), signal.SIGKILL)).start()
        leads = True if me.rank == 3 else None
        found = await me.group("acme.led", me.job.procs, leader=leads, notify_termination=True, timeout=60).construct()
        members = found.members
        told = sorted([each[::2] for each in await heard(events)])
        # No rank ends before all have heard.
        await me.fence(members, timeout=60)
        return names(members), told


async def member_and_leader(me):
    """Member 4, which never joins a construct, is killed, and then leader 3; return the members, and what 0 to 2 hear.

    The leader ends as soon as it hears of the member.
    """
    rank = me.rank

    @me.on(LEADER)
    def failed(event):
        return event.lead() if rank == 0 else event.pass_on()

    @me.on(MEMBER)
    def lost(event):
        if rank == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return event.pass_on()

    await failed.ready()
    await lost.ready()
    async with me.events(MEMBER, LEADER, SELECTED) as events:
        await me.fence(timeout=60)
        if rank == 4:
            await come(0, 1, 2, 3)
            os.kill(os.getpid(), signal.SIGKILL)
        await comes(me)
        leads = True if rank == 3 else None
        found = await me.group("acme.led", me.job.procs, leader=leads, notify_termination=True, timeout=60).construct()
        members = found.members
        told = [each[::2] for each in await heard(events)]
        # No rank ends before all have heard.
        await me.fence(members, timeout=60)
        return names(members), told


async def tardy(me):
    """Rank 2 comes to a construct whose time has run out, where coming is optional."""
    # The others have to come within each other's time.
    await me.fence(timeout=60)
    if me.rank == 2:
        await me.fence(timeout=60)
        found = await outcome(lambda: me.group("acme.tardy", me.job.procs, optional=True, timeout=1).construct())
        found = kind(found) if isinstance(found, PMIxError) else names(found.membership.results.members)
    else:
        made = await me.group("acme.tardy", me.job.procs, optional=True, timeout=3).construct()
        found = names(made.membership.results.members), made.membership.results.partial
        await me.fence(Proc("acme.tardy", Rank.WILDCARD), timeout=20)
        await me.raw.group_destruct("acme.tardy", timeout=20)
        await me.fence(timeout=60)
    await me.fence(timeout=20)
    return found


async def impatient(me):
    """Rank 0 leaves a group that rank 1 has not come to yet."""
    found = None
    if me.rank == 0:

        async def leave():
            refused = NotFound("not yet")
            end = time.monotonic() + 10
            # Its call may not have begun.
            while isinstance(refused, NotFound) and time.monotonic() < end:
                await sleep(0.01)
                refused = await outcome(lambda: me.raw.group_leave("acme.early"))
            await tell("refused")
            return refused

        made, refused = await together(lambda: me.group("acme.early", me.job.procs, timeout=20).construct(), leave)
        found = names(made.members), refused
    else:
        await hear("refused", 15)
        await me.group("acme.early", me.job.procs, timeout=20).construct()
    await me.fence(Proc("acme.early", Rank.WILDCARD), timeout=20)
    await me.raw.group_destruct("acme.early", timeout=20)
    await me.fence(timeout=20)
    return found


async def left(me):
    """Rank 1 leaves; the others hear of it and go on, and its name is no use to it."""
    group = me.group("acme.left", me.job.procs, timeout=20)
    await group.construct()
    async with me.events(LEFT) as events, group.changes() as changes:
        await me.fence(timeout=20)
        if me.rank == 1:
            await group.leave()
            found = (
                group.membership.is_open,
                type(await outcome(lambda: me.raw.group_destruct("acme.left", timeout=3))).__name__,
            )
        else:
            event = await events.get(timeout=10)
            change = await changes.get(timeout=10)
            await group.fence(timeout=20)
            await me.fence(Proc("acme.left", Rank.WILDCARD), timeout=20)
            about = event.source.rank, event.info["pmix.grp.id"], await heard(events)
            found = about, type(change).__name__, names(group), group.rank, group.membership.epoch
            await group.destruct()
    await me.fence(timeout=20)
    return found


async def left_behind(me, ft):
    """Rank 1 leaves while the others wait for it in a fence of the group."""
    group = me.group("acme.behind", me.job.procs, timeout=20)
    await group.construct()
    if me.rank == 1:
        await come(0, 2)
        await group.leave()
        found = None
    else:
        await comes(me)
        error = await outcome(lambda: group.fence(timeout=20, ft=ft))
        found = error if error is None else kind(error)
        # Whoever has left is not waited for any more.
        await group.fence(timeout=20)
        await group.destruct()
    await me.fence(timeout=20)
    return found
