"""Collectives that one caller gives up, while the others wait on."""

from __future__ import annotations

import asyncio
import os

from lib.aio import hear, tell
from pypmix import OperationTimeout, PMIxError, Proc, Rank


def collective(me, kind, connection):
    procs = me.job.procs
    return {
        "fence": lambda limit: me.fence(procs, timeout=limit),
        "connect": lambda limit: me.connect(procs, timeout=limit),
        "disconnect": lambda limit: connection.disconnect(timeout=limit),
        "construct": lambda limit: me.group("acme.up", procs, timeout=limit).construct(),
        "destruct": lambda limit: me.raw.group_destruct("acme.up", timeout=limit),
    }[kind]


async def limits(me, kind, first, order):
    """One has a short limit and one a long one; the third comes when both have given up. Then all call once more.

    Args:
        me: The session.
        kind: The operation.
        first: Who calls first: 0 for the one with the short limit, 1 for the other.
        order: The ranks of these three.
    """
    role = order.index(me.rank)
    connection = await me.connect(me.job.procs, timeout=40) if kind == "disconnect" else None
    if kind == "destruct":
        await me.group("acme.up", me.job.procs, timeout=40).construct()
    call = collective(me, kind, connection)
    await me.fence(timeout=40)
    outcome = None
    if role < 2:
        if role != first:
            await hear(f"calls-{first}", seconds=40)
        await tell(f"calls-{role}")
        try:
            await call(2 if role == 0 else 60)
        except OperationTimeout as error:
            outcome = sorted(proc.rank for proc in error.missing or ())
        await tell(f"over-{role}")
    else:
        for other in (0, 1):
            await hear(f"over-{other}", seconds=40)
    await call(40)
    if kind == "construct":
        await me.raw.group_destruct("acme.up", timeout=40)
    await me.fence(timeout=40)
    return outcome


async def cancelled(me, kind):
    """A task of rank 0 is cancelled while it waits; the others wait for its next call."""
    connection = await me.connect(me.job.procs, timeout=40) if kind == "disconnect" else None
    if kind == "destruct":
        await me.group("acme.up", me.job.procs, timeout=40).construct()
    call = collective(me, kind, connection)
    await me.fence(timeout=40)
    found = []
    if me.rank == 0:
        task = asyncio.create_task(call(60))
        await asyncio.sleep(0.3)
        task.cancel()
        await asyncio.wait([task])
        # What the others call now, they call after the withdrawal: it came first.
        await me.put("given up", True)
        await me.commit()
        await tell("cancelled")
        for rank in range(1, me.job.size):
            await hear(f"calls-{rank}", seconds=40)
        found = [os.path.exists(f"over-{rank}") for rank in range(1, me.job.size)]
    else:
        await hear("cancelled", seconds=40)
        await tell(f"calls-{me.rank}")
    try:
        await call(40)
    except PMIxError as error:
        found.append(str(error))
    await tell(f"over-{me.rank}")
    # The next collective of all is the next one of each.
    for _ in range(2):
        await me.fence(me.job.procs, timeout=20)
    return found


async def address(me, fences):
    """A member leaves a group that the others fence by its address: before either of them calls, between, or after."""
    await me.group("acme.address", me.job.procs, ft=True, timeout=40).construct()
    if me.rank == 2:
        for rank in range(fences):
            await hear(f"fences-{rank}", seconds=40)
        await me.raw.group_leave("acme.address")
        await tell("left")
    else:
        if me.rank < fences:
            await tell(f"fences-{me.rank}")
        else:
            await hear("left", seconds=40)
        await me.fence([Proc("acme.address", Rank.WILDCARD)], timeout=20)
    await me.fence(timeout=40)
    return True
