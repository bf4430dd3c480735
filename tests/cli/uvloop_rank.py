"""A rank whose event loop is uvloop's."""

import asyncio

import uvloop

import pypmix.aio


async def main() -> None:
    async with pypmix.aio.Client() as me:
        await me.put("word", me.rank)
        await me.commit()
        await me.fence(timeout=20)
        found = [await me.get("word", proc, timeout=20) for proc in me.job.procs]
        async with me.group("acme", me.job.procs, timeout=20) as group:
            found.append(await group.allgather(me.rank))
        # One that is cancelled while it waits leaves nothing that hinders the next.
        waiting = asyncio.create_task(me.get("never", me.job[0], timeout=20))
        await asyncio.sleep(0.05)
        waiting.cancel()
        await me.fence(timeout=20)
        print(me.rank, found, waiting.cancelled(), flush=True)


uvloop.run(main())
