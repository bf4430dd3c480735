import asyncio
import os

from lib.blocks import Session

from pypmix.host import Host

session = Session("host", globals())
session.run(0)
session.run(1)
session.run(2)
with Blocking(), Queued() as queued:
    assert queued.queue == []
session.run(3)
with rm:
    assert rm.server
session.run(4)
session.run(5)


async def spawning():
    async with All(), Own() as rm:
        job = rm.job("spawner", np=1)
        async with rm.start(job, ["python", "spawner.py"]) as procs:
            assert set((await procs.wait()).values()) == {0}


asyncio.run(spawning())
session.run(6)
asyncio.run(main())
