"""Groups that all of their members construct and destruct together."""

from __future__ import annotations

import os
import signal

from lib.aio import hear, sleep, tell
from pypmix import PartialSuccess, PMIxError, Proc, Rank, attrs


def names(procs):
    return [proc.rank for proc in procs]


async def everyone(me):
    """All of a job construct a group, use it, and destruct it; the group ranks are the places of the procs."""
    procs = tuple(reversed(me.job.procs))
    results = await me.group("acme.all", procs, context_id=True, timeout=20).construct()
    members, context_id = results.members, results.context_id
    await me.put("acme.word", f"of {me.rank}")
    await me.fence(Proc("acme.all", Rank.WILDCARD), collect=True, timeout=20)
    words = [await me.get("acme.word", proc) for proc in members]
    await me.raw.group_destruct("acme.all", timeout=20)
    await me.fence(timeout=20)
    return names(members), context_id, words


async def disagreeing(me):
    """The members name the procs in different orders, and yet have the same group ranks."""
    procs = me.job.procs if me.rank % 2 else tuple(reversed(me.job.procs))
    results = await me.group("acme.orders", procs, context_id=True, timeout=20).construct()
    members = results.members
    await me.raw.group_destruct("acme.orders", timeout=20)
    await me.fence(timeout=20)
    return names(members)


async def plain(me):
    """A group that nobody wants a context id of, named by its job."""
    results = await me.group("acme.plain", Proc(me.nspace, Rank.WILDCARD), timeout=20).construct()
    members, context_id = results.members, results.context_id
    await me.raw.group_destruct("acme.plain", timeout=20)
    await me.fence(timeout=20)
    return names(members), context_id


async def mixed(me):
    """One member asks for a context id and the others do not; who has not asked is told of none."""
    results = await me.group("acme.mixed", me.job.procs, context_id=me.rank == 0, timeout=20).construct()
    context_id = results.context_id
    await me.raw.group_destruct("acme.mixed", timeout=20)
    await me.fence(timeout=20)
    return context_id


async def again(me, rounds):
    """A name is free once its group is destructed, and each group has a number of its own."""
    found = []
    for _ in range(rounds):
        results = await me.group("acme.again", me.job.procs, context_id=True, timeout=20).construct()
        found.append(results.context_id)
        await me.raw.group_destruct("acme.again", timeout=20)
    await me.fence(timeout=20)
    return found


async def parts(me):
    """The even and the odd ranks have a group each, at the same time, and one over both."""
    half = [proc for proc in me.job.procs if proc.rank % 2 == me.rank % 2]
    own = f"acme.part{me.rank % 2}"
    async with (
        me.group("acme.whole", me.job.procs, context_id=True, timeout=20) as whole,
        me.group(own, half, context_id=True, timeout=20) as part,
    ):
        await me.fence(part.proc, timeout=20)
        await me.fence(part, timeout=20)
        await me.fence([Proc(own, rank) for rank in range(part.size)], timeout=20)
        await me.fence(whole.proc, timeout=20)
        inside = part.rank, names(part), whole.context_id, part.context_id
    await me.fence(timeout=20)
    return inside


async def some(me):
    """Two of three have a group; the third goes on by itself."""
    found = None
    if me.rank != 1:
        async with me.group("acme.some", [me.job[0], me.job[2]], context_id=True, timeout=20) as group:
            await me.fence(group, timeout=20)
            found = names(group), group.rank, me.job[1] in group
    await me.fence(timeout=20)
    return found


async def alone(me):
    """A group of one."""
    async with me.group(f"acme.one{me.rank}", me.proc, context_id=True, timeout=20) as group:
        found = names(group), group.rank, group.context_id
    await me.fence(timeout=20)
    return found


async def late(me):
    """Rank 1 does not come to the construct."""
    error = None
    if me.rank == 0:
        try:
            await me.group("acme.late", me.job.procs, context_id=True, timeout=1).construct()
        except PMIxError as caught:
            error = caught
    await me.fence(timeout=20)
    async with me.group("acme.after", me.job.procs, context_id=True, timeout=20):
        pass
    return error


async def lingering(me):
    """Rank 1 comes late to the destruct; who has not waited for it may destruct again."""
    await me.group("acme.lingering", me.job.procs, context_id=True, timeout=20).construct()
    error = None
    if me.rank == 0:
        try:
            await me.raw.group_destruct("acme.lingering", timeout=1)
        except PMIxError as caught:
            error = caught
        await tell("gave up")
    else:
        await hear("gave up")
    await me.raw.group_destruct("acme.lingering", timeout=20)
    await me.fence(timeout=20)
    return error


async def slow(me):
    """The last to come is waited for."""
    if me.rank == 1:
        await sleep(1)
    async with me.group("acme.slow", me.job.procs, context_id=True, timeout=20) as group:
        return names(group)


async def refused(me):
    """Mistakes are errors at the call, and harm nobody."""
    found = {}
    bad = {
        "empty": ("acme.g", []),
        "string": ("acme.g", me.nspace),
        "no name": ("", me.job.procs),
        "long name": ("g" * 256, me.job.procs),
        "number": (7, me.job.procs),
    }
    for case, (name, procs) in bad.items():
        try:
            await me.group(name, procs).construct()
        except (TypeError, ValueError) as error:
            found[case] = type(error).__name__
    others = [proc for proc in me.job.procs if proc != me.proc]
    await me.group("acme.there", me.job.procs, context_id=True, timeout=20).construct()
    for case, name, procs in (
        ("others", "acme.g", others),
        ("nspace", me.nspace, me.job.procs),
        ("twice", "acme.there", me.job.procs),
    ):
        try:
            await me.group(name, procs, timeout=5).construct()
        except PMIxError as error:
            found[case] = error.status.name
    try:
        await me.fence(Proc("acme.there", me.job.size), timeout=5)
    except PMIxError as error:
        found["rank"] = error.status.name
    await me.raw.group_destruct("acme.there", timeout=20)
    for case, name in (("destructed", "acme.there"), ("unknown", "acme.nobody")):
        try:
            await me.raw.group_destruct(name, timeout=5)
        except PMIxError as error:
            found[case] = error.status.name
    await me.fence(timeout=20)
    return found


async def raising(me):
    """An exception that leaves the block leaves the group, and destructs nothing that others would wait in."""
    try:
        async with me.group("acme.raising", me.job.procs, context_id=True, timeout=20) as group:
            if me.rank == 0:
                raise KeyError("mine")
            await me.fence([proc for proc in group if proc.rank], timeout=20)
            await hear("raised")
            raise KeyError("theirs")
    except KeyError as error:
        word = error.args[0]
        await tell("raised")
    await me.fence(timeout=20)
    return word, group.membership.is_open


async def offered(me):
    """What a construct says where the server or its host has none."""
    error = None
    try:
        await me.group("acme.offered", me.job.procs, timeout=10).construct()
    except PMIxError as caught:
        error = caught
    await me.fence(timeout=20)
    return error


async def lost(me):
    """Rank 1 ends without coming."""
    if me.rank == 1:
        import os

        await hear("begun")
        await sleep(0.3)
        os._exit(0)
    await tell("begun")
    try:
        await me.group("acme.lost", me.job.procs, context_id=True, timeout=20).construct()
    except PMIxError as error:
        return error
    return None


async def lonely(me):
    try:
        await me.group("acme.lonely", me.proc, timeout=1).construct()
    except PMIxError as error:
        return error
    return None


async def reduced(me, *, how):
    """Rank 3 leaves a group, or is killed; the others destruct it, ask for it, and two of them construct it again.

    A group that is not to lose members ends with an error: one has ended before the others destruct it, or meanwhile.
    """
    name, procs = "acme.reduced", me.job.procs
    loses = {} if how in ("lost", "lost meanwhile") else {"ft": True, "notify_termination": True}
    group = me.group(name, procs, **loses, timeout=20)
    await group.construct()
    await me.fence(timeout=20)
    if me.rank == 3:
        if how == "lost meanwhile":
            for rank in range(3):
                await hear(f"destructs.{rank}")
            await sleep(0.3)
        if how not in ("leave", "whole"):
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "leave":
            await group.leave()
    await tell(f"destructs.{me.rank}")
    if how not in ("whole", "lost meanwhile") and me.rank != 3:
        while len(group.members) > 3:
            await sleep(0.02)
    if how != "leave" or me.rank != 3:
        failed = None
        try:
            await group.destruct(timeout=20)
        except PartialSuccess as error:
            failed = error
        assert (failed is None) is bool(loses), failed
    about = {attrs.GROUP_ID: name}
    found = [
        await me.query(attrs.QUERY_NUM_GROUPS),
        await me.get(attrs.GROUP_NAMES, me.proc, default=None),
        await me.query(attrs.QUERY_GROUP_MEMBERSHIP, info=about, default=None),
    ]
    await tell(f"asked.{me.rank}")
    for rank in range(3):
        # The record of the next group is not to be what they see.
        await hear(f"asked.{rank}")
    if me.rank < 2:
        try:
            again = me.group(name, procs[:2], timeout=20)
            await again.construct()
            await again.fence(timeout=20)
            found.append(len(await me.query(attrs.QUERY_GROUP_MEMBERSHIP, info=about)))
            await tell(f"again.{me.rank}")
            for rank in range(2):
                await hear(f"again.{rank}")
            await again.destruct(timeout=20)
        except PMIxError as error:
            found.append(error.status.name)
    await tell(f"over.{me.rank}")
    for rank in range(2):
        await hear(f"over.{rank}")
    return found
