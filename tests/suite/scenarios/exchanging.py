"""Values for all: `bcast`, `allgather`, `gather` and `scatter`."""

from __future__ import annotations

import json
import os
import pickle
import signal

from lib.aio import hear, sleep, tell
from pypmix import PMIxError, Proc
from pypmix.aio.recipes.admission import Admission, request
from pypmix.steps import _all
from pypmix.types import uint32


async def outcome(call):
    """Return what a call returns, or its error."""
    try:
        return await call()
    except (PMIxError, TypeError, ValueError, IndexError) as error:
        return error


async def again(me, rounds, who=None):
    """All calls by turns, each with another root; returns what is wrong."""
    who = who or me
    rank, size = who.rank, len(who)
    wrong = []

    def check(call, seen, expected):
        if seen != expected:
            wrong.append((call, seen, expected))

    for number in range(rounds):
        root = number % size
        first = rank == root
        check("bcast", await who.bcast(f"of {number}" if first else None, root, timeout=40), f"of {number}")
        check("allgather", await who.allgather(rank + number, timeout=40), [each + number for each in range(size)])
        seen = await who.gather({"rank": rank}, root, codec=json, timeout=40)
        check("gather", seen, [{"rank": each} for each in range(size)] if first else None)
        values = [bytes([each, number]) for each in range(size)] if first else None
        check("scatter", await who.scatter(values, root, timeout=40), bytes([rank, number]))
        await who.fence(timeout=40)
    return wrong


class OfAJob:
    """A job as `again` takes participants."""

    def __init__(self, me):
        self.rank = me.rank
        self.bcast, self.allgather, self.fence = me.bcast, me.allgather, me.fence
        self.gather, self.scatter = me.gather, me.scatter
        self.size = me.job.size

    def __len__(self):
        return self.size


async def of_a_job(me, rounds):
    return await again(me, rounds, OfAJob(me))


async def kinds(me):
    """What comes back of each kind of value, at the root and elsewhere."""
    values = [b"\0\xff", "text", 0.1, -(2**40), True, [1, 2], me.job[0], uint32(7)]
    plain = [await me.bcast(value if me.rank == 0 else None, timeout=40) for value in values]
    plain[6] = plain[6] == me.job[0]
    objects = [
        await me.bcast({"a": (1, None)} if me.rank == 0 else None, codec=codec, timeout=40) for codec in (json, pickle)
    ]
    return plain, objects


async def pieces(me, sizes):
    """Values of any length, of each rank another one."""
    pattern = bytes(range(251))
    big = [(pattern * (size // 251 + 1))[:size] for size in sizes]
    own = big[me.rank]
    last = me.job.size - 1
    return (
        await me.bcast(own if me.rank == last else None, last, timeout=60) == big[last],
        await me.allgather(own, timeout=60) == big,
        await me.scatter(big if me.rank == 0 else None, timeout=60) == own,
        await me.allgather(me.rank, timeout=60),
    )


async def gathered_pieces(me, sizes):
    found = await me.gather(bytes([me.rank]) * sizes[me.rank], 1, timeout=60)
    return None if found is None else [(len(each), set(each)) for each in found]


async def mistakes(me):
    """What one rank does wrong is told to those who would have got a wrong value; then all goes on."""
    calls = {
        "no such root": lambda: me.bcast(1, 9),
        "no rank": lambda: me.gather(1, "first"),
        "no value": lambda: me.bcast(object() if me.rank == 0 else None, timeout=40),
        "a value too few": lambda: me.scatter([1], timeout=40),
        "no value of one": lambda: me.allgather(object() if me.rank == 1 else 1, timeout=40),
        "no value for the root": lambda: me.gather(object() if me.rank == 1 else 1, timeout=40),
        "codecs": lambda: me.allgather(1, codec=json if me.rank == 0 else None, timeout=40),
        "no codec": lambda: me.allgather(1, codec="json"),
        "roots": lambda: me.bcast(1, me.rank, timeout=40),
        "roots of a gather": lambda: me.gather(1, 1 if me.rank == 0 else 0, timeout=40),
        "calls": lambda: me.bcast(1, timeout=40) if me.rank == 0 else me.allgather(1, timeout=40),
    }
    found = {name: await outcome(call) for name, call in calls.items()}
    return found, await me.allgather(me.rank, timeout=40)


async def absent(me):
    """The last rank comes when the others' time has run out; the next call is as if nothing had been."""
    if me.rank == me.job.size - 1:
        for rank in range(me.job.size - 1):
            await hear(f"told-{rank}", seconds=20)
        error = None
    else:
        error = await outcome(lambda: me.allgather(me.rank, timeout=1))
        await tell(f"told-{me.rank}")
    return error, await me.allgather(me.rank, timeout=40)


async def lost(me):
    """The last rank is killed while the others wait for its value."""
    await me.allgather(me.rank, timeout=40)
    if me.rank == me.job.size - 1:
        for rank in range(me.job.size - 1):
            await hear(f"waiting-{rank}")
        await sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    await tell(f"waiting-{me.rank}")
    error = await outcome(lambda: me.allgather(me.rank, timeout=20))
    await tell(f"outcome-{me.rank}", type(error).__name__)


async def side_by_side(me):
    """Two groups that have a member in common, and the job."""
    wrong = []
    async with (
        me.group("acme.low", me.job.procs[:2], timeout=40)
        if me.rank < 2
        else me.group("acme.high", me.job.procs[2:], timeout=40) as team
    ):
        wrong += await again(me, 3, team)
        wrong += await again(me, 2, OfAJob(me))
        async with me.group("acme.all", me.job.procs[::-1], timeout=40) as everybody:
            wrong += await again(me, 2, everybody)
            wrong += await again(me, 2, team)
    # The name of a group is free when its last member has destructed it, which the others cannot know.
    await me.fence(timeout=40)
    async with (
        me.group("acme.low", me.job.procs[1:], timeout=40)
        if me.rank
        else me.group("acme.alone", me.proc, timeout=40) as other
    ):
        return wrong + await again(me, 2, other)


async def left(me):
    """A member leaves a group, and the others go on."""
    team = me.group("acme.team", me.job.procs, ft=True, timeout=40)
    await team.construct()
    before = await team.allgather(me.rank, timeout=40)
    # All have got it: one that hears of a departure before it has read the values does without that one's.
    await me.fence(timeout=40)
    if me.rank == 1:
        await team.leave()
        await me.fence(timeout=40)
        return before, None
    async with team.changes() as changes:
        await changes.get(timeout=40)
    after = await team.allgather(me.rank, timeout=40), await again(me, 2, team)
    await me.fence(timeout=40)
    return before, after


async def formed_again(me, rounds):
    """A group is destructed and formed again; how many of its counts are left, and what is wrong.

    An odd number of steps, so that a count that goes on would use the other key.
    """
    wrong, other = [], me.group("acme.again", me.job.procs, timeout=40)
    for number in range(rounds):
        team = me.group("acme.again", me.job.procs, timeout=40) if number % 2 else other
        await team.construct()
        for each in range(1 + 2 * (number % 2)):
            seen = await team.bcast([number, each] if me.rank == 0 else None, codec=json, timeout=40)
            if seen != [number, each]:
                wrong.append(seen)
        await team.destruct()
    left = [steps for (proc, name), steps in _all.items() if (proc, name) == (me.proc, "acme.again")]
    return len(left) if me.supports("get.refresh") else 0, wrong


async def joined(me):
    """Rank 2 joins a group whose members have called some of these already."""
    if me.rank < 2:
        team = me.group("acme.club", me.job.procs[:2], timeout=40)
        await team.construct()
        wrong = await again(me, 1, team)
        await team.fence(timeout=40)
        async with Admission(team), team.changes() as changes:
            await me.fence(timeout=40)
            await changes.get(timeout=40)
    else:
        wrong = []
        await me.fence(timeout=40)
        team = await request(me, "acme.club", timeout=40)
    wrong += await again(me, 2, team)
    await me.fence(timeout=40)
    return wrong


async def connected(me):
    async with await me.connect(me.job.procs[::-1], timeout=40) as connection:
        return await again(me, 2, connection)


async def opened_again(me, rounds):
    """Clients are closed and opened; the calls of the new one follow those of the old one."""
    wrong, own, size = [], me.rank, me.job.size
    for number in range(rounds):
        wrong += await again(me, 1 + number, OfAJob(me))
        await me.close()
        # Some servers end a fence for want of a proc that closes its client while others have begun it.
        await tell(f"closed-{number}-{own}")
        for rank in range(size):
            await hear(f"closed-{number}-{rank}", seconds=60)
        await me.open()
    return wrong


async def kept(me, rounds):
    """How many keys this rank has put after so many calls: `get` finds those of the last two, and no others."""
    for _ in range(rounds):
        await me.allgather(bytes(1000), timeout=40)
    found = []
    peer = Proc(me.nspace, (me.rank + 1) % me.job.size)
    for step in range(rounds):
        value = await me.get(f"pypmix.values..{step}", peer, default=b"", timeout=0)
        found.append(len(value) > 1000)
    await me.fence(timeout=40)
    return found


async def bereft(me, gone, leaves):
    """A member of a fault-tolerant group leaves or dies, and the others go on at once, each when it comes.

    Returns what each call came to: with a root named by its proc, and by a rank that may be another proc for some.
    """
    team = me.group("acme.bereft", me.job.procs, ft=True, timeout=40)
    await team.construct()
    if me.rank == gone:
        if not leaves:
            os.kill(os.getpid(), signal.SIGKILL)
        await team.leave()
        await hear_all("bereft", [rank for rank in range(me.job.size) if rank != gone])
        return None
    root, found = me.job[(gone + 1) % me.job.size], []
    for number in range(3):
        await sleep(0.02 * ((me.rank + number) % me.job.size))
        first = me.proc == root
        parts = {proc: f"for {proc.rank} in {number}" for proc in me.job} if first else None
        found.append(await team.bcast(number if first else None, root, timeout=20))
        values = await team.allgather((me.rank, number), codec=json, timeout=20)
        found += [list(values), [proc.rank for proc in values.procs]]
        found.append(await team.scatter(parts, root, timeout=20) == f"for {me.rank} in {number}")
        values = await team.gather(me.rank, root, timeout=20)
        found.append((values is not None) == first and (values is None or list(values) == found[-2]))
        listed = [f"for {proc.rank}" for proc in team.members] if first else None
        found.append(await team.scatter(listed, root, timeout=20) == f"for {me.rank}")
        by_rank = await outcome(lambda: team.bcast("all", me.job.size - 2, timeout=20))
        found.append(type(by_rank).__name__ if isinstance(by_rank, Exception) else by_rank)
    await tell(f"bereft-{me.rank}")
    return found


async def hear_all(name, ranks):
    for rank in ranks:
        await hear(f"{name}-{rank}", seconds=60)
