# pypmix run -n 3
import asyncio
import os

from lib.blocks import Session

from pypmix import Client, aio

session = Session("leaders", globals())


def busy():
    return False


def compute():
    pass


async def invited():
    global me
    async with aio.Client() as me:
        group = await session.run_async(1)
        await group.destruct(timeout=60)


def inviting():
    for name, other in (("acme.one", me.job[1]), ("acme.two", me.job[2])):
        with me.invite(name, [other], timeout=60) as invite:
            team = invite.complete()
        team.destruct(timeout=60)


if os.environ["PMIX_RANK"] == "2":
    asyncio.run(invited())
else:
    with Client() as me:
        if me.rank == 0:
            inviting()
        else:
            session.run(0)
            group.destruct(timeout=60)
