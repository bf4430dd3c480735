"""Members and leaders of groups that end or leave, before a group stands, while it does, and as it is destructed."""

from __future__ import annotations

import os
import signal
import threading
import time

from harness import sync
from harness.aio import hear, sleep, tell, together
from pypmix import EventCode, NotFound, OperationTimeout, PMIxError, Proc, Rank

MEMBER, LEADER, SELECTED = EventCode.GROUP_MEMBER_FAILED, EventCode.GROUP_LEADER_FAILED, EventCode.GROUP_LEADER_SELECTED
LEFT, ABORT = EventCode.GROUP_LEFT, EventCode.GROUP_CONSTRUCT_ABORT

MEANWHILE = 0.3
"""Seconds that pass between things that are to come one after the other."""

CALLED = 1.0
"""Seconds after which a call that was announced is with its server, on a busy machine too."""


def names(procs):
    return [proc.rank for proc in procs]


def die():
    """End as a process does that is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


async def comes(me):
    """Tell the others that this process is about to call what it waits in."""
    await tell(f"call.{me.rank}")


async def come(*ranks):
    """Wait until these have called what they wait in."""
    for rank in ranks:
        await hear(f"call.{rank}")
    await sleep(CALLED)


def die_later(*ranks):
    """End as a process does that is killed, from wherever it is when these have called."""

    def wait():
        for rank in ranks:
            sync.hear(f"call.{rank}")
        time.sleep(CALLED)
        sync.tell("dead")
        die()

    threading.Thread(target=wait, daemon=True).start()


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


async def shrunk(me, victims, early=False, **directives):
    """Some ranks end before they come to a construct, one after the other, the first of them maybe before all come."""
    async with me.events(MEMBER, LEADER, SELECTED, ABORT) as events:
        await me.fence(timeout=20)
        if me.rank in victims:
            turn = victims.index(me.rank) + (not early)
            if turn:
                # Busy machines would have all end before the others come.
                for rank in set(range(me.job.size)) - set(victims):
                    await me.get("comes", rank, wait=20)
                await sleep(MEANWHILE * turn)
            die()
        elif early:
            await sleep(MEANWHILE / 2)
        await me.put("comes", True)
        await me.commit()
        made = await outcome(lambda: me.group_construct("acme.shrunk", me.job.procs, timeout=20, **directives))
        said = await heard(events)
        if isinstance(made, PMIxError):
            return kind(made), said
        living = names(made.members), made.partial
        used = await outcome(lambda: me.fence(Proc("acme.shrunk", Rank.WILDCARD), timeout=20))
        taken = await outcome(lambda: me.group_destruct("acme.shrunk", timeout=20))
        return *living, used, taken, said


async def tardy(me):
    """Rank 2 comes to a construct whose time has run out, where coming is optional."""
    # The others have to come within each other's time.
    await me.fence(timeout=60)
    if me.rank == 2:
        await me.fence(timeout=60)
        found = await outcome(lambda: me.group_construct("acme.tardy", me.job.procs, optional=True, timeout=1))
        found = kind(found) if isinstance(found, PMIxError) else names(found.members)
    else:
        results = await me.group_construct("acme.tardy", me.job.procs, optional=True, timeout=3)
        await me.fence(Proc("acme.tardy", Rank.WILDCARD), timeout=20)
        await me.group_destruct("acme.tardy", timeout=20)
        await me.fence(timeout=60)
        found = names(results.members), results.partial
    await me.fence(timeout=20)
    return found


async def told(me, victims):
    """Rank 3 ends before it comes, and rank 1 leads: who hears of it."""
    async with me.events(MEMBER) as events:
        await me.fence(timeout=20)
        if me.rank in victims:
            await come(0, 1, 2)
            die()
        await comes(me)
        made = await outcome(
            lambda: me.group_construct(
                "acme.told", me.job.procs, leader=me.rank == 1, notify_termination=True, timeout=20
            )
        )
        said = await heard(events)
        await me.group_destruct("acme.told", timeout=20)
    return names(made.members) if not isinstance(made, PMIxError) else kind(made), said


async def given_up(me, victims):
    """Rank 3 ends before it comes, and the handler of one of the others gives the group up."""
    calls = []

    @me.on(MEMBER)
    def failed(event):
        calls.append(names(event.affected))
        return event.abort() if me.rank == 1 else event.pass_on()

    await failed.ready()
    async with me.events(ABORT) as events:
        await me.fence(timeout=20)
        if me.rank in victims:
            await come(0, 1, 2)
            die()
        await comes(me)
        made = await outcome(
            lambda: me.group_construct("acme.given", me.job.procs, notify_termination=True, timeout=20)
        )
        aborts = [name for name, group, _ in await heard(events) if group == "acme.given"]
    return kind(made) if isinstance(made, PMIxError) else names(made.members), calls, aborts


async def orphaned(me, victims, claims):
    """Rank 0 leads a construct and ends before the last one has come; those who claim want to lead in its place."""
    calls = []

    @me.on(LEADER)
    def failed(event):
        calls.append(names(event.affected))
        return event.lead() if me.rank in claims else event.pass_on()

    await failed.ready()
    async with me.events(SELECTED) as events:
        await me.fence(timeout=20)
        if me.rank in victims:
            die_later(0, 1, 2)
        elif me.rank == 3:
            await hear("dead")
            await sleep(MEANWHILE)
        group = me.group("acme.orphan", me.job.procs, leader=me.rank == 0, timeout=20)
        await comes(me)
        error = await outcome(group.construct)
        said = await heard(events)
    if isinstance(error, PMIxError):
        return kind(error), calls, said
    found = names(group), group.leader.rank
    await group.destruct()
    return found, calls, said


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
                refused = await outcome(lambda: me.group_leave("acme.early"))
            await tell("refused")
            return refused

        made, refused = await together(lambda: me.group_construct("acme.early", me.job.procs, timeout=20), leave)
        found = names(made.members), refused
    else:
        await hear("refused", 15)
        await me.group_construct("acme.early", me.job.procs, timeout=20)
    await me.fence(Proc("acme.early", Rank.WILDCARD), timeout=20)
    await me.group_destruct("acme.early", timeout=20)
    await me.fence(timeout=20)
    return found


async def taken_apart(me, victims, **directives):
    """Rank 2 ends while the others destruct the group."""
    async with me.events(MEMBER) as events:
        await me.group_construct("acme.apart", me.job.procs, timeout=20, **directives)
        if me.rank in victims:
            await come(0, 1)
            die()
        await comes(me)
        ended = await outcome(lambda: me.group_destruct("acme.apart", timeout=20))
        said = await heard(events)
    return None if ended is None else kind(ended), said


async def left(me):
    """Rank 1 leaves; the others hear of it and go on, and its name is no use to it."""
    group = me.group("acme.left", me.job.procs, timeout=20)
    await group.construct()
    async with me.events(LEFT) as events, group.changes() as changes:
        await me.fence(timeout=20)
        if me.rank == 1:
            await group.leave()
            found = group.is_open, type(await outcome(lambda: me.group_destruct("acme.left", timeout=3))).__name__
        else:
            event = await events.get(timeout=10)
            change = await changes.get(timeout=10)
            await group.fence(timeout=20)
            await me.fence(Proc("acme.left", Rank.WILDCARD), timeout=20)
            about = event.source.rank, event.info["pmix.grp.id"], await heard(events)
            found = about, type(change).__name__, names(group), group.rank, group.epoch
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


async def bereft(me, victims):
    """Rank 1 ends while the group stands; the others hear of it once and go on."""
    group = me.group("acme.bereft", me.job.procs, notify_termination=True, timeout=20)
    await group.construct()
    async with me.events(MEMBER) as events, group.changes() as changes:
        await me.fence(timeout=20)
        if me.rank in victims:
            die()
        change = await changes.get(timeout=10)
        said = await heard(events, quiet=1.0)
        await group.fence(timeout=20)
        found = type(change).__name__, change.proc.rank, names(group), group.rank, group.epoch
        await group.destruct()
    return found, said


async def led(me, victims):
    """Rank 0 leads a group and ends; two of the others want to lead it."""
    group = me.group("acme.led", me.job.procs, leader=me.job[0], timeout=20)
    await group.construct()
    calls = []

    @me.on(LEADER)
    def failed(event):
        calls.append((names(event.affected), event.info["pmix.grp.id"]))
        return event.lead() if me.rank in (1, 3) else event.pass_on()

    await failed.ready()
    async with me.events(SELECTED) as events, group.changes() as changes:
        before = group.leader.rank
        await me.fence(timeout=20)
        if me.rank in victims:
            die()
        kinds = [type(await changes.get(timeout=10)).__name__ for _ in range(2)]
        said = await heard(events)
        after = group.leader.rank
        await group.fence(timeout=20)
        await group.destruct()
    return before, after, calls, said, kinds
