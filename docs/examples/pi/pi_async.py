"""The same with `async` and `await`: the event loop runs while the fence waits."""

import asyncio

from pi import part

from pypmix import aio


async def main():
    async with aio.Client() as me:
        await me.put("sum", part(me.rank, me.job.size))
        await me.fence(collect=True, timeout=30)
        sums = await asyncio.gather(*[me.get("sum", proc) for proc in me.job])
        print(f"rank {me.rank} of {me.job.size}: pi is {sum(sums):.9f}")


asyncio.run(main())
