"""Ranks on two nodes: where they are, and what crosses from one server to the other."""

from __future__ import annotations

import os
import signal
import sys
import time

from lib.aio import hear, sleep, tell
from pypmix import EventCode, NotFound, PMIxError, Proc, Range, Rank, Scope, attrs
from pypmix.types import uint32

HERE = EventCode.custom(-4300)
LAST = EventCode.custom(-4301)


async def attempt(call):
    """Return what a call returns, or the name of its error, and how long it took."""
    began = time.monotonic()
    try:
        result = await call()
    except PMIxError as error:
        result = type(error).__name__
    return result, time.monotonic() - began


def half(me, which):
    """Return the ranks of the first or the second node."""
    size = me.job.size
    return [proc for proc in me.job if (proc.rank < (size + 1) // 2) == (which == 0)]


async def place(me):
    job = Proc(me.nspace, Rank.WILDCARD)
    peers = {}
    for proc in me.job:
        peers[proc.rank] = (
            await me.get(attrs.HOSTNAME, proc),
            await me.get(attrs.LOCAL_RANK, proc),
            await me.get(attrs.NODE_RANK, proc),
        )
    return {
        "hostname": me.node.hostname,
        "environment": os.environ["PMIX_HOSTNAME"],
        "local_rank": me.node.local_rank,
        "local_procs": sorted(proc.rank for proc in me.node.local_procs),
        "nodes": await me.get(attrs.NODE_LIST, job),
        "number": await me.get(attrs.NUM_NODES, job),
        "peers": peers,
        "folder": await me.get(attrs.NSDIR, job),
    }


async def node_ids(me):
    return [await me.get(attrs.NODEID, proc) for proc in me.job]


async def resolved(me):
    nodes = await me.raw.resolve_nodes(me.nspace)
    found = [[proc.rank for proc in sorted(await me.raw.resolve_peers(node, me.nspace))] for node in sorted(nodes)]
    return sorted(nodes), found


async def tables(me):
    own = await me.query(attrs.QUERY_LOCAL_PROC_TABLE, nspace=me.nspace)
    whole = await me.query(attrs.QUERY_PROC_TABLE, nspace=me.nspace)
    await me.fence(timeout=20)
    return [sorted((row.proc.rank, row.hostname) for row in each) for each in (own, whole)]


async def scopes(me):
    """What a rank of the own node, and one of the other node, finds of each scope."""
    for scope in Scope.LOCAL, Scope.REMOTE, Scope.GLOBAL:
        await me.put(f"in.{scope.name}", me.rank, scope=scope)
    await me.fence(collect=True, timeout=20)
    found = {}
    for proc in me.job:
        if proc != me.proc:
            found[proc.rank] = [
                await me.get(f"in.{scope.name}", proc, default=None, timeout=0)
                for scope in (Scope.LOCAL, Scope.REMOTE, Scope.GLOBAL)
            ]
    await me.fence(timeout=20)
    return found


async def direct(me, size):
    """Nothing is collected: each value is fetched from the other node when it is asked for."""
    await me.put("big", bytes([me.rank]) * size)
    await me.fence(timeout=20)
    found = [(await me.get("big", proc, timeout=20)) == bytes([proc.rank]) * size for proc in me.job]
    await me.fence(timeout=20)
    return found


async def late(me):
    """A get waits for what a rank of the other node commits later."""
    if me.rank == me.job.size - 1:
        await hear("asking-0")
        await sleep(0.2)
        await me.put("late", "here")
        await me.commit()
        found = None
    elif me.rank == 0:
        await tell("asking-0")
        found = await me.get("late", me.job[me.job.size - 1], timeout=20)
    else:
        found = None
    await me.fence(timeout=20)
    return found


async def never(me):
    """A get from the other node of what nobody puts ends when its time is over."""
    found = None
    if me.rank == 0:
        found = await attempt(lambda: me.get("never", me.job[me.job.size - 1], timeout=1))
        await tell("gave up")
    else:
        await hear("gave up", 20)
    await me.fence(timeout=20)
    return found


async def one_node(me):
    """The ranks of the first node meet while those of the second are not there yet."""
    if me.proc in half(me, 0):
        await me.fence(half(me, 0), timeout=20)
        if me.rank == 0:
            await tell("first node met")
    else:
        await hear("first node met")
    await me.fence(timeout=20)
    return True


async def crossing_subset(me):
    """The first rank of each node meet with their data, many times, while the others do something else."""
    firsts = [half(me, 0)[0], half(me, 1)[0]]
    if me.proc in firsts:
        for number in range(20):
            await me.put(f"turn.{number}", number)
            await me.fence(firsts, collect=True, timeout=20)
            assert [await me.get(f"turn.{number}", proc) for proc in firsts] == [number, number]
        if me.rank == 0:
            await tell("they met")
    else:
        await hear("they met", 20)
    await me.fence(timeout=20)
    return True


async def groups(me):
    """Groups over both nodes and on one, one after the other: members and context ids."""
    found = []
    for name, procs in ("all", list(me.job)), ("firsts", [half(me, 0)[0], half(me, 1)[0]]), ("own", half(me, 0)):
        if me.proc in procs:
            results = await me.group(name, procs, context_id=True, timeout=20).construct()
            members, context_id = results.members, results.context_id
            await me.raw.group_destruct(name, timeout=20)
            found.append((name, [proc.rank for proc in members], context_id))
    await me.fence(timeout=20)
    return found


async def events(me, wide):
    """The last rank raises an event of a range; who hears it, before one that all hear."""
    async with me.events(HERE, LAST) as stream:
        await me.fence(timeout=20)
        if me.rank == me.job.size - 1:
            await me.notify(HERE, data_range=Range[wide], info={"acme.n": uint32(1)})
            await me.notify(LAST, data_range=Range.SESSION)
        found = []
        while not found or found[-1] != LAST:
            event = await stream.get(timeout=20)
            assert event.source.rank == me.job.size - 1
            found.append(event.code)
        await me.fence(timeout=20)
    return [code.name for code in found[:-1]]


async def published(me, wide):
    """The last rank publishes to a range; who finds it."""
    if me.rank == me.job.size - 1:
        await me.publish({"acme.name": "value"}, data_range=Range[wide])
    await me.fence(timeout=20)
    try:
        found = await me.lookup("acme.name")
    except NotFound:
        found = None
    await me.fence(timeout=20)
    return found


CHILD = """
import sys
import pypmix
from lib.sync import tell
with pypmix.Client() as me:
    me.put("port", 5000 + me.rank)
    me.fence(collect=True, timeout=20)
    ports = [me.get("port", proc) for proc in me.job]
    tell(f"{sys.argv[1]}.{me.rank}", f"{me.node.hostname} {me.node.local_rank} {ports}")
    if "connect" in sys.argv:
        me.connect([pypmix.Proc(me.nspace, pypmix.Rank.WILDCARD), pypmix.Proc(me.parent.nspace, pypmix.Rank.WILDCARD)])
        assert me.get("of.parent", me.parent, timeout=20) == "parent"
"""


async def spawned(me, n, host):
    """Rank 0 spawns a job: where its ranks are."""
    found = None
    if me.rank == 0:
        info = {attrs.HOST: host} if host else {}
        await me.spawn([sys.executable, "-c", CHILD, "child"], n=n, info=info)
        found = [await hear(f"child.{rank}", 20) for rank in range(n)]
    await me.fence(timeout=20)
    return found


async def connected(me):
    """A job spawned by the last rank connects with the one that has spawned it: each finds what the other has put."""
    await me.put("of.parent", "parent")
    await me.commit()
    nspace = None
    if me.rank == me.job.size - 1:
        job = await me.spawn([sys.executable, "-c", CHILD, "child", "connect"], n=2)
        await tell("nspace", job.nspace)
    nspace = await hear("nspace", 20)
    children = Proc(nspace, Rank.WILDCARD)
    await me.connect([children, Proc(me.nspace, Rank.WILDCARD)])
    found = [await me.get("port", Proc(nspace, rank), timeout=20) for rank in range(2)]
    await me.fence(timeout=20)
    return found


async def somebody_stays_away(me):
    """The last rank does not come in time to a fence over both nodes; a later one is whole again."""
    found = None
    if me.rank == me.job.size - 1:
        for rank in range(me.job.size - 1):
            await hear(f"told-{rank}", 20)
    else:
        found = await attempt(lambda: me.fence(timeout=1))
        await tell(f"told-{me.rank}")
    await me.fence(me.job.procs, timeout=20)
    return found


async def victims(me, killed):
    """Some ranks are killed while all others wait for them in a fence; return how that ends, and whom it names."""
    await me.fence(timeout=20)
    if me.rank in killed:
        for rank in set(range(me.job.size)) - set(killed):
            await hear(f"fencing-{rank}")
        await sleep(0.3)
        os.kill(os.getpid(), signal.SIGKILL)
    await tell(f"fencing-{me.rank}")
    missing: list[int] = []

    async def fence():
        try:
            await me.fence(timeout=20)
        except PMIxError as error:
            missing.extend(sorted(proc.rank for proc in error.missing or ()))
            raise

    first = await attempt(fence)
    rest = [proc for proc in me.job if proc.rank not in killed]
    return first, await attempt(lambda: me.fence(rest, timeout=20)), missing


async def finalized_early(me):
    """The last rank finalizes and lives on, while the first node waits for it in a fence, and its own node not yet."""
    last = me.job.size - 1
    if me.rank == last:
        for rank in range((last + 2) // 2):
            await hear(f"fencing-{rank}")
        await sleep(0.2)
        await me.close()
        await tell("finalized")
        for rank in range(last):
            await hear(f"told-{rank}", 20)
        return None
    if me.proc in half(me, 1):
        await hear("finalized")
        await sleep(0.1)
    else:
        await tell(f"fencing-{me.rank}")
    found = await attempt(me.fence)
    await tell(f"told-{me.rank}")
    return found


async def cut_off(me):
    """The last rank loses its connection while the others destruct a group with it; it ends only after that."""
    last = me.job.size - 1
    await me.group("cut", me.job.procs, notify_termination=True, timeout=20).construct()
    if me.rank == last:
        for rank in range(last):
            await hear(f"destructs-{rank}")
        await sleep(0.3)
        os.closerange(3, 256)
        time.sleep(2)
        os.kill(os.getpid(), signal.SIGKILL)
    async with me.events(EventCode.GROUP_MEMBER_FAILED) as events:
        await tell(f"destructs-{me.rank}")
        await me.raw.group_destruct("cut", timeout=20)
        return (await events.get(timeout=10)).affected[0].rank


async def waits(me):
    """All but the last rank wait in a fence until the job is ended."""
    await me.fence(timeout=20)
    if me.rank == me.job.size - 1:
        await sleep(60)
    await tell(f"waits-{me.rank}")
    await me.fence()


async def aborts(me):
    """The last rank aborts the job."""
    await me.fence(timeout=20)
    if me.rank == me.job.size - 1:
        await me.abort(7, "enough")
    await sleep(60)
