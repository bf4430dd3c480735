"""One client, used from several threads or tasks at once."""

from __future__ import annotations

import asyncio
import threading

from lib.aio import hear, tell, together
from pypmix import Scope, attrs


def in_threads(*calls):
    """Run the calls at the same time, and return their results or errors in order."""
    results = [None] * len(calls)

    def work(number):
        try:
            results[number] = calls[number]()
        except Exception as error:
            results[number] = error

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    return results


def fences_from_threads(me):
    """Each rank is in two fences at once, each with one of its neighbours, in no agreed order."""
    size = me.job.size
    after = [me.job[min(me.rank, (me.rank + 1) % size)], me.job[max(me.rank, (me.rank + 1) % size)]]
    before = [me.job[min(me.rank, (me.rank - 1) % size)], me.job[max(me.rank, (me.rank - 1) % size)]]
    sets = [after, before] if me.rank % 2 else [before, after]
    results = in_threads(*[lambda procs=procs: me.fence(procs, timeout=15) for procs in sets])
    me.fence(timeout=20)
    return results


async def fences_from_tasks(me):
    size = me.job.size
    after = [me.job[min(me.rank, (me.rank + 1) % size)], me.job[max(me.rank, (me.rank + 1) % size)]]
    before = [me.job[min(me.rank, (me.rank - 1) % size)], me.job[max(me.rank, (me.rank - 1) % size)]]
    results = await asyncio.gather(me.fence(after, timeout=15), me.fence(before, timeout=15), return_exceptions=True)
    await me.fence(timeout=20)
    return results


def threads_share_a_client(me, rounds):
    """Two threads put and get while a third waits in a fence that only comes later."""
    peer = me.job[(me.rank + 1) % me.job.size]
    gate = threading.Event()

    def getting(thread):
        seen = []
        for number in range(rounds):
            me.put(f"{thread}.{number}", number)
            seen.append(me.get(f"{thread}.{number}"))
        return seen

    def fencing():
        gate.wait(10)
        me.fence(timeout=15)
        return "met"

    def opening():
        seen = me.get("no.such.key", peer, default="nothing", timeout=0)
        gate.set()
        return seen

    results = in_threads(lambda: getting("a"), lambda: getting("b"), fencing, opening)
    me.fence(collect=True, timeout=20)
    results.append([me.get(f"{thread}.{rounds - 1}", peer) for thread in "ab"])
    me.fence(timeout=20)
    return results


async def tasks_share_a_client(me, rounds):
    """Many gets are under way while a fence waits; the event loop goes on turning meanwhile."""
    peer = me.job[(me.rank + 1) % me.job.size]
    ticks = 0

    async def tick():
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticking = asyncio.create_task(tick())
    if me.rank:
        await hear("turned")
    fence = asyncio.create_task(me.fence(timeout=15))
    seen = await asyncio.gather(*[me.get(f"none.{n}", peer, default=n, timeout=0) for n in range(rounds)])
    if not me.rank:
        while ticks <= 10:
            await asyncio.sleep(0.005)
        await tell("turned")
    await fence
    ticking.cancel()
    await me.fence(timeout=20)
    return seen, ticks


async def cancelled(me):
    """A cancelled task leaves the client usable."""
    peer = me.job[(me.rank + 1) % me.job.size]
    waiting = asyncio.create_task(me.get("never", peer, timeout=30))
    await asyncio.sleep(0.1)
    waiting.cancel()
    try:
        await waiting
    except asyncio.CancelledError:
        outcome = "cancelled"
    else:
        outcome = "finished"
    await tell(f"cancelled-{me.rank}")
    await hear(f"cancelled-{peer.rank}")
    await me.put("after", me.rank)
    await me.fence(collect=True, timeout=20)
    seen = await me.get("after", peer)
    await me.fence(timeout=20)
    return outcome, seen


def gil_is_free(me):
    """While this thread waits in a fence, another one runs."""
    ticks = 0
    done = threading.Event()

    def tick():
        nonlocal ticks
        while not done.wait(0.001):
            ticks += 1

    me.fence(timeout=20)
    thread = threading.Thread(target=tick)
    thread.start()
    if me.rank == 0:
        threading.Event().wait(0.5)
    me.fence(timeout=20)
    done.set()
    thread.join()
    return ticks


async def gets_of_one_proc(me):
    """Rank 0 asks each of the others for several keys at once, some of them not for it, and tells what came."""
    await me.put("far", f"far {me.rank} " + "x" * 300, Scope.REMOTE)
    await me.put("near", f"near {me.rank} " + "x" * 300)
    await me.fence(timeout=20)
    found = []
    for proc in me.job.procs[1:] if me.rank == 0 else ():
        keys, limit = ("near", "far", "far", "near", "far"), {attrs.TIMEOUT: 20}
        results = await together(
            *[lambda proc=proc, key=key, limit=limit: me.get(key, proc, info=limit) for key in keys]
        )
        found.append([text if isinstance(text, str) else type(text).__name__ for text in results])
    await me.fence(timeout=20)
    return found
