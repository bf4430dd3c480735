"""Groups that their members construct together: names, ranks, numbers, what members share, and who takes part."""

from __future__ import annotations

import sys

from lib.aio import hear, tell
from pypmix import Info, PMIxError, Proc, Rank, attrs

QUALIFIER = 8


def names(procs):
    return [proc.rank for proc in procs]


async def outcome(call):
    """Return what a call returns, or the name of the status that it fails with."""
    try:
        return await call()
    except PMIxError as error:
        return error.status.name


async def shared(me):
    """Each member gives something for the others, which they find with the results, or ask for by the context id."""
    said = attrs.GROUP_ENDPT_DATA(f"port {me.rank}".encode())
    results = await me.group("acme.shared", me.job.procs, context_id=True, timeout=20, info=[said]).construct()
    told = {}
    for info in results.membership.infos:
        if info.key == attrs.GROUP_INFO.key:
            proc, *items = info.value.data.items
            told[proc.value.data.rank] = [item.value.data for item in items if item.key == said.key]
    number = attrs.GROUP_CONTEXT_ID(results.context_id)
    by = Info(number.key, number.value, QUALIFIER)
    asked = []
    for member in results.members:
        asked.append(await me.get(said.key, member, default=None, timeout=2, info=[by]))
    await me.raw.group_destruct("acme.shared", timeout=20)
    await me.fence(timeout=20)
    return told, asked


CHILD = """
import sys
from pypmix import Client, Proc, Rank, attrs
with Client() as me:
    parent = me.get(attrs.PARENT_ID).nspace
    me.put("acme.child", f"child {me.rank}")
    me.commit()
    procs = [Proc(parent, Rank.WILDCARD), Proc(me.nspace, Rank.WILDCARD)]
    with me.group("acme.families", procs, timeout=20) as group:
        size = me.get(attrs.JOB_SIZE, Proc(parent, Rank.WILDCARD))
        values = [me.get("acme.parent", Proc(parent, rank)) for rank in range(size)]
        assert (size, values) == (int(sys.argv[1]), [f"parent {n}" for n in range(size)]), (size, values)
        assert len(group) == size + 2, list(group)
        group.fence(timeout=20)
"""


async def families(me):
    """A job and one that it has spawned have a group: each finds the job info of the other, and what it has put."""
    if me.rank == 0:
        job = await me.spawn([sys.executable, "-c", CHILD, str(me.job.size)], n=2)
        await tell("child", job.nspace)
        child = job.nspace
    else:
        child = await hear("child")
    await me.put("acme.parent", f"parent {me.rank}")
    await me.commit()
    procs = [Proc(me.nspace, Rank.WILDCARD), Proc(child, Rank.WILDCARD)]
    async with me.group("acme.families", procs, timeout=20) as group:
        size = await me.get(attrs.JOB_SIZE, Proc(child, Rank.WILDCARD))
        values = [await me.get("acme.child", Proc(child, rank)) for rank in range(2)]
        members = len(group)
        await group.fence(timeout=20)
    await me.fence(timeout=20)
    return size, values, members


async def on_one_node(me):
    """The ranks of each node have a group, which is said to be local."""
    here = [proc for proc in await me.raw.resolve_peers() if proc.nspace == me.nspace]
    async with me.group(f"acme.local{here[0].rank}", here, local_only=True, context_id=True, timeout=20) as group:
        await group.fence(timeout=20)
        found = names(group) == names(here), group.context_id
    async with me.group(f"acme.plain{here[0].rank}", here, local_only=True, timeout=20) as group:
        members = names(group) == names(here)
    await me.fence(timeout=20)
    return *found, members


async def disagreeing(me):
    """Rank 0 names fewer procs than the others; where they all agree there is a group."""
    procs = me.job.procs if me.rank else me.job.procs[:2]
    found = await outcome(lambda: me.group("acme.differ", procs, timeout=2).construct())
    await me.fence(timeout=20)
    async with me.group("acme.agree", me.job.procs, timeout=10):
        pass
    return found if isinstance(found, str) else names(found.membership.results.members)


async def bootstrapped(me, added):
    """Ranks 2 and 1 lead, and know their number alone; with added members, 0 and 3 are called in by one of them."""
    leads = me.rank in (1, 2)
    found = None
    if leads:
        add = [me.job[3], me.job[0]] if added and me.rank == 2 else ()
        made = me.group("acme.boot", bootstrap=2, add=add, context_id=True, timeout=20)
    else:
        made = me.group("acme.boot", context_id=True, timeout=20)
    if leads or added:
        async with made as group:
            await group.fence(timeout=20)
            found = names(group), group.rank, group.context_id
    await me.fence(timeout=20)
    return found


async def adding(me):
    """Ranks 0 and 1 name each other, and one of them ranks 3 and 2, who come with nothing but the name, and late."""
    if me.rank < 2:
        add = [me.job[3], me.job[2]] if me.rank == 1 else ()
        await tell(f"calls {me.rank}")
        made = me.group("acme.add", me.job.procs[:2], add=add, timeout=20)
    else:
        await hear(f"calls {me.rank - 2}")
        made = me.group("acme.add", timeout=20)
    async with made as group:
        await group.fence(timeout=20)
        found = names(group), group.rank
    await me.fence(timeout=20)
    return found
