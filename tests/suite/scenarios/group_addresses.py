"""A group's name with a group rank, or all of them, where procs are wanted, and what is to be asked about groups."""

from __future__ import annotations

from pypmix import EventCode, OperationTimeout, Proc, Rank, attrs

LOAD = EventCode.custom(-4242)
NAME = "acme.address"


def names(procs):
    return [proc.rank for proc in procs]


def group_of(me):
    """The last three of four ranks, the other way round: group ranks are others than ranks."""
    return me.group(NAME, [me.job[3], me.job[2], me.job[1]], timeout=20)


async def heard_until_quiet(events):
    """Return to whom each event is that has come, or comes within a while."""
    found = []
    while True:
        try:
            found.append((await events.get(timeout=1.5)).info["acme.to"])
        except OperationTimeout:
            return found


async def notified(me):
    """An event for the group, and one for a group rank; each rank tells what it has heard."""
    async with me.events(LOAD) as events:
        if me.rank:
            group = group_of(me)
            await group.construct()
        await me.fence(timeout=20)
        if me.rank == 1:
            await me.notify(LOAD, targets=Proc(NAME, Rank.WILDCARD), info={"acme.to": "all"})
            await me.notify(LOAD, targets=Proc(NAME, 1), info={"acme.to": "one"})
            await me.notify(LOAD, targets=group, info={"acme.to": "again"})
        await me.fence(timeout=20)
        found = await heard_until_quiet(events)
        if me.rank:
            await group.destruct()
    await me.fence(timeout=20)
    return found


async def notified_from_outside(me):
    """A process that is not a member sends events to the group's address, and to that of its first member."""
    async with me.events(LOAD) as events:
        members = [me.job[3], me.job[2]]
        if me.proc in members:
            await me.group(NAME, members, timeout=20).construct()
        await me.fence(timeout=20)
        if me.rank == 0:
            await me.notify(LOAD, targets=Proc(NAME, Rank.WILDCARD), info={"acme.to": "all"})
            await me.notify(LOAD, targets=Proc(NAME, 0), info={"acme.to": "one"})
        await me.fence(timeout=20)
        found = await heard_until_quiet(events)
        if me.proc in members:
            await me.raw.group_destruct(NAME, timeout=20)
    await me.fence(timeout=20)
    return found


async def connected(me):
    """The group connects, with its name or its ranks, and disconnects."""
    if me.rank:
        async with group_of(me) as group:
            await me.connect(group, timeout=20)
            await me.raw.disconnect(group, timeout=20)
            await me.connect([Proc(NAME, rank) for rank in range(3)], timeout=20)
            await me.raw.disconnect(group, timeout=20)
    await me.fence(timeout=20)
    return "connected"


async def grown(me):
    """A group and another proc make a further group, whose ranks are in the order of the group's."""
    if me.rank:
        async with group_of(me), me.group("acme.more", [Proc(NAME, Rank.WILDCARD), me.job[0]], timeout=20) as more:
            await more.fence(timeout=20)
            found = names(more), more.rank
    else:
        async with me.group("acme.more", [me.job[3], me.job[2], me.job[1], me.job[0]], timeout=20) as more:
            await more.fence(timeout=20)
            found = names(more), more.rank
    await me.fence(timeout=20)
    return found


async def belonging(me):
    """In which groups each proc is, as every other one reads it."""
    if me.rank:
        group = group_of(me)
        await group.construct()
    async with me.group(f"acme.own{me.rank}", [me.proc], timeout=20):
        await me.fence(timeout=20)
        found = [sorted(await me.get(attrs.GROUP_NAMES, proc)) for proc in me.job]
        await me.fence(timeout=20)
    if me.rank:
        await group.destruct()
    await me.fence(timeout=20)
    after = await me.get(attrs.GROUP_NAMES, me.job[1], default=[])
    await me.fence(timeout=20)
    return found, list(after)
