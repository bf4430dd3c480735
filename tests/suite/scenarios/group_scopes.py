"""Blocks that are cancelled when the term of a leader ends; there is no such thing where calls block."""

from __future__ import annotations

import os

from lib.aio import sleep
from pypmix.recipes import Leadership


async def scopes(me):
    """The design's failover, word by word but for what its members do."""
    log = []

    async def command():
        log.append(f"command {term.epoch}")
        await sleep(0.3)
        if me.rank == 0:
            os._exit(0)
        await me.raw.group_destruct("acme.control", timeout=20)

    async def obey(leader):
        log.append(f"obey {term.epoch}")
        if term.epoch == 2:
            await me.raw.group_destruct("acme.control", timeout=20)
        await sleep(60)

    async with me.group("acme.control", me.job.procs, leader=me.job[0], ft=True, notify_termination=True) as g:  # noqa: SIM117
        async with Leadership(g, elect=lambda alive: min(alive)) as lead:
            async for term in lead.terms():
                async with term.scope():
                    await (command() if term.leader == me.proc else obey(term.leader))
    return log
