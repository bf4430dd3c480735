# pypmix run --nodes 2 -n 1
import asyncio

from lib.blocks import Session

from pypmix import aio, attrs

session = Session("nodes", globals())


async def main():
    global me
    async with aio.Client() as me:
        await session.run_async(0)


asyncio.run(main())
