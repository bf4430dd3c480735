"""Collectives that one rank gives up where the server counts it in all the same, and calls again."""

from __future__ import annotations

import asyncio
import signal

from lib import sync
from lib.aio import hear, tell
from pypmix import OperationTimeout, PMIxError, Proc, Rank


async def outcome_of(call):
    try:
        await call
    except PMIxError as error:
        return error.status.name
    return "ok"


def collective(me, kind, limit):
    """Return a call; those of a disconnect come in turn with connects."""
    procs = me.job.procs
    return {
        "fence": lambda: me.fence(procs, timeout=limit),
        "job fence": lambda: me.fence(timeout=limit),
        "connect": lambda: me.connect(procs, timeout=limit),
        "disconnect": lambda: me.raw.disconnect(procs, timeout=limit),
        "group fence": lambda: me.fence([Proc("acme.up", Rank.WILDCARD)], timeout=limit),
        "construct": lambda: me.raw.group_construct("acme.again", procs, timeout=limit),
        "destruct": lambda: me.raw.group_destruct("acme.again", timeout=limit),
    }[kind]()


async def asked(call):
    """Start a call, and return its task when the engine has been asked for it."""
    task = asyncio.create_task(call)
    for _ in range(20):
        await asyncio.sleep(0)
    await asyncio.sleep(0.2)
    return task


async def arrived(me):
    """Wait until the server has read what this process has sent: what others call from now on comes after that."""
    await me.put("given up", True)
    await me.commit()


async def later(me, kind):
    """Return how the next collectives end, which all call: none may be ahead of the others, or behind."""
    kinds = {"disconnect": ["connect", "disconnect"], "construct": ["destruct"], "destruct": ["construct", "destruct"]}
    kinds = kinds.get(kind, [kind] * 2)
    return [await outcome_of(collective(me, each, 20)) for each in kinds]


async def cancelled(me, kind, again):
    """Rank 0 cancels a call, and calls again before the others call, or when theirs has ended.

    Or it cancels it after theirs has ended, when the answer waits to be read.
    """
    if kind in ("disconnect", "destruct"):
        await collective(me, "connect" if kind == "disconnect" else "construct", 40)
    if kind == "group fence":
        await me.group("acme.up", me.job.procs, timeout=40).construct()
    await me.fence(timeout=40)
    if me.rank == 0:
        task = await asked(collective(me, kind, 60))
        if again == "completed":
            await arrived(me)
            sync.tell("called")
            for rank in range(1, me.job.size):
                # It blocks the event loop.
                sync.hear(f"over-{rank}", 40)
        task.cancel()
        await asyncio.wait([task])
        if again == "before":
            task = await asked(collective(me, kind, 40))
            await arrived(me)
            await tell("called")
            found = [await outcome_of(task)]
        elif again == "completed":
            found = [await outcome_of(collective(me, kind, 40))]
        else:
            await arrived(me)
            await tell("called")
            for rank in range(1, me.job.size):
                await hear(f"over-{rank}", seconds=40)
            found = [await outcome_of(collective(me, kind, 40))]
    else:
        await hear("called", seconds=40)
        found = [await outcome_of(collective(me, kind, 40))]
        await tell(f"over-{me.rank}")
    return found + await later(me, kind)


async def limited(me):
    """The limit of rank 0 is over before the others call; it calls again before they do."""
    await me.fence(timeout=40)
    found = []
    if me.rank == 0:
        try:
            await collective(me, "connect", 1)
        except OperationTimeout:
            found.append("given up")
        try:
            await collective(me, "connect", 1)
        except OperationTimeout as error:
            found.append("an earlier call" in str(error))
        await tell("called")
    else:
        await hear("called", seconds=40)
    found.append(await outcome_of(collective(me, "connect", 40)))
    return found + await later(me, "connect")


async def concurrent(me):
    """Two fences of the same procs are under way at a time, and none was given up."""
    await me.fence(timeout=40)
    tasks = [await asked(collective(me, "fence", 40)) for _ in range(2)]
    return [await outcome_of(task) for task in tasks] + await later(me, "fence")


def interrupted(me, kind):
    """A signal handler of rank 0 raises in a call without a limit; it calls again before the others call."""

    class Interrupt(Exception):
        pass

    def interrupt(*_):
        raise Interrupt

    def call():
        me.connect(me.job.procs) if kind == "connect" else me.fence()

    me.fence(timeout=40)
    if me.rank == 0:
        signal.signal(signal.SIGALRM, interrupt)
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        try:
            call()
        except Interrupt:
            pass
        sync.tell("called")
    else:
        sync.hear("called", 40)
    for _ in range(3):
        call()
    me.fence(me.job.procs, timeout=20)
    return True


async def departed(me):
    """The fence of a group ends without a member that leaves; all fence another group of the same procs then."""
    group = await me.group("acme.one", me.job.procs, timeout=40).construct()
    await me.fence(timeout=40)
    if me.rank == 2:
        for rank in (0, 1):
            await hear(f"fences-{rank}", seconds=40)
        await group.leave()
        found = []
    else:
        task = await asked(group.fence(timeout=60))
        await arrived(me)
        await tell(f"fences-{me.rank}")
        found = [await outcome_of(task)]
    await me.fence(timeout=40)
    other = await me.group("acme.two", me.job.procs, timeout=40).construct()
    await me.fence(timeout=40)
    if me.rank == 2:
        for rank in (0, 1):
            await hear(f"again-{rank}", seconds=40)
        task = other.fence(timeout=40)
    else:
        task = await asked(other.fence(timeout=40))
        await arrived(me)
        await tell(f"again-{me.rank}")
    found.append(await outcome_of(task))
    return found + await later(me, "fence")
