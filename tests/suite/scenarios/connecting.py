"""Connect and disconnect, inside of one job and between a job and one that it has spawned."""

from __future__ import annotations

import sys

from harness.aio import hear, tell
from pypmix import OperationTimeout, PMIxError, Proc, Rank, attrs


async def within(me):
    """All of a job connect and disconnect, twice, in whatever order they name the procs."""
    procs = me.job.procs if me.rank % 2 else tuple(reversed(me.job.procs))
    for _ in range(2):
        await me.connect(procs, timeout=20)
        await me.disconnect(procs, timeout=20)
    await me.connect(Proc(me.nspace, Rank.WILDCARD), timeout=20)
    await me.fence(timeout=20)
    return "connected"


async def pair(me):
    """Two of three connect; the third goes on by itself."""
    if me.rank < 2:
        await me.connect(me.job.procs[:2], timeout=20)
        await me.disconnect(me.job.procs[:2], timeout=20)
    await me.fence(timeout=20)
    return me.rank


async def late(me):
    """Rank 1 never comes."""
    error = None
    if me.rank == 0:
        try:
            await me.connect(me.job.procs, timeout=1)
        except PMIxError as caught:
            error = caught
    await me.fence(timeout=20)
    return error


CHILD = """
import sys
from pypmix import Client, Proc, Rank, attrs
with Client() as me:
    parent = me.get(attrs.PARENT_ID)
    me.put("acme.child", me.rank)
    me.commit()
    all = [Proc(parent.nspace, Rank.WILDCARD), Proc(me.nspace, Rank.WILDCARD)]
    me.connect(all, timeout=20)
    size = me.get(attrs.JOB_SIZE, Proc(parent.nspace, Rank.WILDCARD))
    value = me.get("acme.parent", Proc(parent.nspace, 0), wait=10)
    assert (size, value) == (int(sys.argv[1]), "from the parent"), (size, value)
    me.fence(all, timeout=20)
    me.disconnect(all, timeout=20)
"""


async def across(me):
    """A job and one that it has spawned connect, and read each other's job info and data."""
    if me.rank == 0:
        job = await me.spawn([sys.executable, "-c", CHILD, str(me.job.size)], n=2)
        await tell("child", job.nspace)
        child = job.nspace
    else:
        child = await hear("child")
    await me.put("acme.parent", "from the parent")
    await me.commit()
    everyone = [Proc(me.nspace, Rank.WILDCARD), Proc(child, Rank.WILDCARD)]
    await me.connect(everyone, timeout=20)
    size = await me.get(attrs.JOB_SIZE, Proc(child, Rank.WILDCARD))
    values = [await me.get("acme.child", Proc(child, rank), wait=10) for rank in range(2)]
    await me.fence(everyone, timeout=20)
    await me.disconnect(everyone, timeout=20)
    await me.fence(timeout=20)
    return size, values


async def refused(me):
    """Mistakes are errors at the call, and harm nothing."""
    found = {}
    for name, procs in {"none": None, "empty": [], "string": me.nspace}.items():
        try:
            await me.connect(procs)
        except (TypeError, ValueError) as error:
            found[name] = type(error).__name__
    for name, procs in {
        "unknown": [me.proc, Proc("nobody", 0)],
        "others": [me.job[(me.rank + 1) % me.job.size]],
    }.items():
        try:
            await me.connect(procs, timeout=2)
        except OperationTimeout:
            found[name] = "timed out"
        except PMIxError:
            found[name] = "refused"
    await me.fence(timeout=20)
    return found


async def lonely(me):
    try:
        await me.connect([me.proc, Proc("other", 0)], timeout=1)
    except PMIxError as error:
        return error
    return None
