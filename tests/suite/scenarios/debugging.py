"""Jobs that stop for a debugger, which rank 0 is."""

from __future__ import annotations

import json
import sys

from lib.aio import hear
from pypmix import EventCode, Proc, Rank, Value, app, attrs
from pypmix.aio.recipes.debugging import stop_at_breakpoint
from pypmix.types import DataType

CHILD = """
import json, os, sys
import pypmix
from lib.sync import tell
from pypmix.recipes.debugging import stop_at_breakpoint
with pypmix.Client() as me:
    stopped = stop_at_breakpoint(me, "setup")
    tell(f"child.{me.rank}", json.dumps([me.rank, stopped]))
    me.fence(timeout=20)
"""

DAEMON = """
import json, sys
import pypmix
from lib.sync import tell
from pypmix import attrs
with pypmix.Client() as me:
    target = me.get(attrs.DEBUG_TARGET)
    local = me.query(attrs.QUERY_LOCAL_PROC_TABLE, nspace=target.nspace)
    whole = me.query(attrs.QUERY_PROC_TABLE, nspace=target.nspace)
    here = [row.proc.rank for row in local if row.hostname == me.node.hostname and row.pid]
    tell(f"daemon.{me.rank}", json.dumps([target.nspace, target.rank, here, [row.proc.rank for row in whole]]))
"""


def state(pid):
    """Return the letter of a process's state in the kernel."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0]


async def stopped(me, place, only=None):
    """Rank 0 spawns a job whose ranks stop at a place, and releases it when all have."""
    if me.rank:
        await me.fence(timeout=60)
        return None
    attribute = getattr(attrs, place)
    what = True if only is None else Value(DataType.PROC_RANK, only)
    async with me.events(EventCode.READY_FOR_DEBUG) as ready:
        job = await me.spawn([sys.executable, "-c", CHILD], n=3, info=[attribute(what)])
        event = await ready.get(30)
        affected = [None if proc.rank == Rank.WILDCARD else proc.rank for proc in event.affected]
        seen = [event.info[attrs.BREAKPOINT.key], affected, {proc.nspace for proc in event.affected} == {job.nspace}]
        rows = await me.query(attrs.QUERY_PROC_TABLE, nspace=job.nspace)
        meant = [row for row in rows if only in (None, row.proc.rank)]
        seen += [[row.proc.rank for row in rows], {state(row.pid) for row in meant}]
        await me.notify(EventCode.DEBUGGER_RELEASE, targets=job, non_default=True, cache=False)
        seen.append(await job.wait(timeout=30))
    told = [json.loads(await hear(f"child.{rank}", 20)) for rank in range(3)]
    await me.fence(timeout=60)
    return [*seen, told]


async def daemons(me, beside, together):
    """Rank 0 spawns a stopped job, and daemons beside its ranks: later, or with the same spawn."""
    if me.rank:
        await me.fence(timeout=60)
        return None
    infos = (attrs.DEBUGGER_DAEMONS(True), *((getattr(attrs, beside)(1),) if beside else ()))
    program = app([sys.executable, "-c", CHILD], n=3)
    stop = [attrs.DEBUG_STOP_IN_INIT(True)]
    async with me.events(EventCode.READY_FOR_DEBUG) as ready:
        if together:
            job = await me.spawn([program, app([sys.executable, "-c", DAEMON], info=infos)], info=stop)
            await ready.get(30)
        else:
            job = await me.spawn(program, info=stop)
            await ready.get(30)
            target = attrs.DEBUG_TARGET(Proc(job.nspace, Rank.WILDCARD))
            await (await me.spawn([sys.executable, "-c", DAEMON], info=[*infos, target])).wait(timeout=30)
        first = json.loads(await hear("daemon.0", 20))
        found = [first[0] == job.nspace, first[1] == Rank.WILDCARD, job.size, first[2:]]
        await me.notify(EventCode.DEBUGGER_RELEASE, targets=job, non_default=True, cache=False)
        found.append(await job.wait(timeout=30))
    await me.fence(timeout=60)
    return found


async def unstopped(me):
    """A breakpoint of a job without a debugger."""
    return await stop_at_breakpoint(me, "setup")
