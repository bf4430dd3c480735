"""How ranks end: abort, exit codes, and death."""

from __future__ import annotations

import os
import sys

from lib.aio import Client, hear, tell

FOR_EVER = 120
"""Seconds of waits that only the end of the job ends: they are longer than a job may take."""


async def abort(me, code, message):
    """Rank 0 aborts the job while the others wait."""
    await me.fence(timeout=20)
    if me.rank == 0:
        for rank in range(1, me.job.size):
            await hear(f"waiting-{rank}")
        await me.abort(code, message)
    await tell(f"waiting-{me.rank}")
    await hear("the end of the world", seconds=FOR_EVER)


async def exit_code(me, codes):
    """Every rank finalizes and exits with its own code."""
    await me.fence(timeout=20)
    rank = me.rank
    await me.close()
    sys.exit(codes[rank])


async def unhandled(abort_on_error):
    """Rank 0 fails with an exception inside the `with` block while the others wait for it."""
    async with Client(abort_on_error=abort_on_error) as me:
        await me.fence(timeout=20)
        if me.rank == 0:
            raise RuntimeError("rank 0 gave up")
        await me.fence(timeout=FOR_EVER)


async def killed(number):
    """Rank 1 dies of a signal."""
    async with Client() as me:
        await me.fence(timeout=20)
        if me.rank == 1:
            os.kill(os.getpid(), number)
        await me.fence(timeout=FOR_EVER)
