"""Tools, and ranks that are looked at by them."""

from __future__ import annotations

import os

from lib.aio import hear, tell
from pypmix import EventCode, Persist, Proc, Range, Rank, attrs
from pypmix.aio import Tool

OUTSIDE = {"TMPDIR": os.environ["TMPDIR"]}
"""What a process that belongs to no job has in its environment."""


async def reach(me, how):
    """Return the arguments that name the rank's server in one way."""
    if how == "uri":
        return {"uri": await me.get(attrs.SERVER_URI)}
    if how == "nspace":
        return {"nspace": await me.get(attrs.SERVER_NSPACE)}
    return {"pid": os.getppid()} if how == "pid" else {}


async def from_outside(me, how):
    """Rank 0 opens a tool that has no part in the job, and both publish something for the other."""
    seen = None
    if me.rank == 0:
        await me.publish({"tools.port": "tcp://x"})
        async with Tool(env=OUTSIDE, **await reach(me, how)) as tool:
            everybody = Proc(me.nspace, Rank.WILDCARD)
            seen = {
                "own job": tool.nspace != me.nspace and tool.job.size == 1,
                "server": await tool.get_servers() == [Proc(await me.get(attrs.SERVER_NSPACE), 0)],
                "connected": tool.is_connected and not tool.singleton,
                "jobs": me.nspace in (await tool.query(attrs.QUERY_NAMESPACES)).split(","),
                "size": await tool.get(attrs.JOB_SIZE, everybody),
                "port": await tool.lookup("tools.port"),
            }
            await tool.publish({"tools.answer": 42}, persist=Persist.SESSION)
    await me.fence(timeout=20)
    return seen, await me.lookup("tools.answer")


async def table(me):
    """Rank 0 opens a tool that asks for the procs of the job."""
    await tell(f"pid.{me.rank}", str(os.getpid()))
    await me.fence(timeout=20)
    rows = None
    if me.rank == 0:
        async with Tool(env=OUTSIDE) as tool:
            found = await tool.query(attrs.QUERY_PROC_TABLE, nspace=me.nspace)
        rows = [(row.proc.rank, str(row.pid) == await hear(f"pid.{row.proc.rank}")) for row in found]
    await me.fence(timeout=20)
    return rows


async def as_client():
    """Every rank is a tool and nothing else."""
    async with Tool() as tool:
        await tool.put("tools.rank", tool.rank)
        await tool.fence(collect=True, timeout=20)
        others = [await tool.get("tools.rank", proc) for proc in tool.job]
        same = tool.proc == Proc(os.environ["PMIX_NAMESPACE"], int(os.environ["PMIX_RANK"]))
        servers = len(await tool.get_servers())
        await tool.fence(timeout=20)
        return same, others, servers


async def told(me):
    """Rank 1 raises an event; a tool in rank 0 hears of it, and answers with one of its own."""
    code, answer = EventCode(-6001), EventCode(-6002)
    if me.rank == 0:
        async with Tool(env=OUTSIDE) as tool, tool.events(code) as events:
            await tell("listening")
            event = await events.get(10)
            seen = event.source == Proc(me.nspace, 1), event.info["acme.load"]
            await tool.notify(answer, data_range=Range.GLOBAL)
            await hear("answered")
        return seen
    async with me.events(answer) as events:
        await hear("listening")
        await me.notify(code, data_range=Range.GLOBAL, info={"acme.load": 7})
        event = await events.get(10)
        await tell("answered")
        return event.source.nspace != me.nspace
