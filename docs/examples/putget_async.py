"""The same with asyncio: the event loop continues while the fence waits."""

import asyncio

from pypmix import aio


async def main() -> None:
    async with aio.Client() as me:
        await me.put("endpoint", f"tcp://{me.node.hostname}:{5000 + me.rank}")
        await me.fence(collect=True, timeout=30)
        endpoints = await asyncio.gather(*[me.get("endpoint", proc) for proc in me.job])
        print(f"rank {me.rank} of {me.job.size} knows {endpoints}")


asyncio.run(main())
