"""A group's name with a group rank, or all of them, where procs are wanted, and what is to be asked about groups."""

from __future__ import annotations

from pypmix import EventCode, OperationTimeout, PMIxError, Proc, Rank, attrs

LOAD = EventCode.custom(-4242)
NAME = "acme.address"


def names(procs):
    return [proc.rank for proc in procs]


def group_of(me):
    """The last three of four ranks, the other way round: group ranks are others than ranks."""
    return me.group(NAME, [me.job[3], me.job[2], me.job[1]], timeout=20)


async def fenced(me):
    """All of the group, and some of its ranks, fence; a rank too many is found out."""
    found = None
    if me.rank:
        async with group_of(me) as group:
            await me.put("acme.word", f"of {me.rank}")
            await me.fence(Proc(NAME, Rank.WILDCARD), collect=True, timeout=20)
            words = [await me.get("acme.word", member) for member in group]
            if group.rank < 2:
                await me.fence([Proc(NAME, 0), Proc(NAME, 1)], timeout=20)
            try:
                await me.fence([me.proc, Proc(NAME, 3)], timeout=5)
            except PMIxError as error:
                found = words, error.status.name
            await group.fence(timeout=20)
    await me.fence(timeout=20)
    return found


async def got(me):
    """Members are read by their group ranks."""
    found = None
    if me.rank:
        async with group_of(me) as group:
            await me.put("acme.word", f"of {me.rank}")
            await me.commit()
            found = [await me.get("acme.word", Proc(NAME, rank), wait=10) for rank in range(3)]
            found.append(await group.get("acme.word", 0))
            found.append(await me.get(attrs.LOCAL_RANK, Proc(NAME, 2)) == await me.get(attrs.LOCAL_RANK, me.job[1]))
            await group.fence(timeout=20)
    await me.fence(timeout=20)
    return found


async def notified(me):
    """An event for the group, and one for a group rank; each rank tells what it has heard."""
    found = []
    async with me.events(LOAD) as events:
        if me.rank:
            group = group_of(me)
            await group.construct()
        await me.fence(timeout=20)
        if me.rank == 1:
            await me.notify(LOAD, targets=Proc(NAME, Rank.WILDCARD), info={"acme.to": "all"})
            await me.notify(LOAD, targets=Proc(NAME, 1), info={"acme.to": "one"})
            await group.notify(LOAD, info={"acme.to": "again"})
        await me.fence(timeout=20)
        while True:
            try:
                found.append((await events.get(timeout=1.5)).info["acme.to"])
            except OperationTimeout:
                break
        if me.rank:
            await group.destruct()
    await me.fence(timeout=20)
    return found


async def connected(me):
    """The group connects, with its name or its ranks, and disconnects."""
    if me.rank:
        async with group_of(me) as group:
            await me.connect(group.address, timeout=20)
            await me.disconnect(group.address, timeout=20)
            await me.connect([Proc(NAME, rank) for rank in range(3)], timeout=20)
            await me.disconnect(group, timeout=20)
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


async def asked(me):
    """What there is is asked for by all, whether they are members or not; and again when there is none any more."""
    found = []
    if me.rank:
        group = group_of(me)
        await group.construct()
    await me.fence(timeout=20)
    number = await me.query(attrs.QUERY_NUM_GROUPS)
    names_ = await me.query(attrs.QUERY_GROUP_NAMES)
    found.append((number, names_))
    await me.fence(timeout=20)
    if me.rank:
        await group.destruct()
    await me.fence(timeout=20)
    found.append((await me.query(attrs.QUERY_NUM_GROUPS), await me.query(attrs.QUERY_GROUP_NAMES, default=[])))
    await me.fence(timeout=20)
    return found


async def listed(me):
    """Who is in a group, as a query tells."""
    if me.rank:
        group = group_of(me)
        await group.construct()
    await me.fence(timeout=20)
    members = await me.query(attrs.QUERY_GROUP_MEMBERSHIP, info={attrs.GROUP_ID: NAME})
    try:
        unknown = await me.query(attrs.QUERY_GROUP_MEMBERSHIP, info={attrs.GROUP_ID: "acme.nobody"}, default=None)
    except PMIxError:
        unknown = None
    await me.fence(timeout=20)
    if me.rank:
        await group.destruct()
    await me.fence(timeout=20)
    return sorted(names(members)), unknown


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
