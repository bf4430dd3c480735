"""Rank 0 leads a group and ends without a word; the others choose a new leader."""

import asyncio
import os

from pypmix import aio
from pypmix.recipes import Leadership


async def command(me, group, term):
    print(f"rank {me.rank} leads in term {term.epoch}", flush=True)
    if me.rank == 0:
        await asyncio.sleep(0.5)
        os._exit(0)
    await group.destruct(timeout=20)


async def obey(me, group, term):
    print(f"rank {me.rank} follows rank {term.leader.rank} in term {term.epoch}")
    if term.leader.rank > 0:
        await group.destruct(timeout=20)
    await asyncio.sleep(60)


async def main():
    async with aio.Client() as me:
        if me.job.size < 2 or not me.supports("group.leader"):
            print(f"rank {me.rank} has no group to lead")
            return
        control = me.group("acme.control", me.job.procs, leader=me.job[0], ft=True, notify_termination=True, timeout=20)
        async with control as group, Leadership(group, elect=lambda alive: min(alive)) as lead:
            async for term in lead.terms():
                async with term.scope():  # cancelled as soon as the term ends
                    await (command if term.leader == me.proc else obey)(me, group, term)


asyncio.run(main())
