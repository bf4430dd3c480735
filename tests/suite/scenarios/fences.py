"""Fences: order, sub-sets, several at once, and those that never complete."""

from __future__ import annotations

import os
import signal
import time

from lib.aio import hear, sleep, tell
from pypmix import PMIxError, Proc, Rank


async def attempt(call):
    """Return the error of a call or None, and how long it took."""
    began = time.monotonic()
    error = None
    try:
        await call()
    except PMIxError as failure:
        error = failure
    return error, time.monotonic() - began


async def nobody_leaves_early(me, rounds):
    """Every round another rank comes last, and leaves its trace before it does."""
    for number in range(rounds):
        last = number % me.job.size
        if me.rank == last:
            await sleep(0.05)
            await tell(f"came-{number}")
        await me.fence(timeout=20)
        await hear(f"came-{number}", seconds=0.01)
    return rounds


async def named_members(me):
    """The whole job, named in three ways."""
    await me.fence(Proc(me.nspace, Rank.WILDCARD), timeout=20)
    await me.fence(me.job, timeout=20)
    await me.fence(list(me.job.procs), timeout=20)
    return True


async def alone(me):
    """A fence of the caller only does not wait for anybody."""
    await me.fence(me.proc, timeout=10)
    return True


async def someone_never_comes(me, timeout):
    """The last rank stays away; the others are told in time."""
    if me.rank == me.job.size - 1:
        for rank in range(me.job.size - 1):
            await hear(f"told-{rank}", seconds=20)
        return None, 0.0
    result = await attempt(lambda: me.fence(timeout=timeout))
    await tell(f"told-{me.rank}")
    return result


async def after_a_timeout(me):
    """A fence that timed out does not spoil the next one."""
    if me.rank == 0:
        first = await attempt(lambda: me.fence(timeout=1))
        await tell("timed out")
    else:
        await hear("timed out")
        first = None, 0.0
    await me.fence(me.job.procs, timeout=20)
    return first


async def someone_leaves(me, how):
    """The last rank goes without finalize while the others wait for it in a fence."""
    await me.fence(timeout=20)
    if me.rank == me.job.size - 1:
        for rank in range(me.job.size - 1):
            await hear(f"fencing-{rank}")
        await sleep(0.3)
        if how == "exit":
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    await tell(f"fencing-{me.rank}")
    error, _ = await attempt(lambda: me.fence(timeout=10))
    await tell(f"outcome-{me.rank}", type(error).__name__)


async def server_dies(me):
    """The test kills the server while one rank waits in a fence and the other does nothing."""
    signal.signal(
        signal.SIGTERM, signal.SIG_IGN
    )  # what survives its launcher is told to end, and we want to look first
    await me.fence(timeout=20)
    await tell(f"ready-{me.rank}")
    first = await attempt(me.fence) if me.rank == 0 else (None, 0.0)
    await hear("server is dead")
    calls = me.fence, me.commit, lambda: me.get("nothing", me.job[0]), me.close
    return [first, *[await attempt(call) for call in calls]]


async def any_limit(me):
    """Limits that no kernel takes as the milliseconds of a poll; the last rank comes when all others sleep."""
    for limit in (1e7, 2**31 - 1):
        if me.rank == me.job.size - 1:
            await sleep(0.3)
        await me.fence(timeout=limit)
    await me.put("here", me.rank)
    await me.fence(collect=True, timeout=2e9)
    return [await me.get("here", proc, timeout=2e9) for proc in me.job]
