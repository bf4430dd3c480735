"""Two nodes, each with a host and a server of its own, whose exchange answers what crosses them."""

from __future__ import annotations

import contextlib
import os
import time

from lib.hosted import WAIT, Logged, status
from pypmix import Proc, Range, Rank

NODES = {"n0": [0, 1], "n1": [2, 3]}

SIZES = {"native-4.2": (0, 4)}
"""What clients may see of the size of a group: libpmix 4.2 hands on no membership."""


def fences(me):
    me.put("acme.a", me.rank)
    me.fence(collect=True, timeout=WAIT)
    collected = [me.get("acme.a", proc=proc) for proc in me.job.procs]
    # A part of the job, in which both nodes take part.
    if me.rank in (1, 2):
        me.put("acme.b", f"rank {me.rank}")
        me.fence([me.job[1], me.job[2]], collect=True, timeout=WAIT)
        collected.append(me.get("acme.b", proc=me.job[3 - me.rank]))
    me.fence(timeout=WAIT)
    for _ in range(5):
        me.fence(collect=True, timeout=WAIT)
    return collected


def modex(me):
    # The last rank commits later than it is asked.
    if me.rank == 3:
        time.sleep(0.3)
    me.put("acme.c", f"of {me.rank}")
    me.commit()
    found = [me.get("acme.c", proc=proc, timeout=WAIT) for proc in me.job.procs]
    me.fence(timeout=WAIT)
    return found


def publishing(me):
    if me.rank == 3:
        me.publish({"acme.port": 5}, timeout=WAIT)
    found = me.lookup("acme.port", timeout=WAIT)
    me.fence(timeout=WAIT)
    if me.rank == 3:
        me.unpublish("acme.port")
    me.fence(timeout=WAIT)
    return [found, status(me.lookup, "acme.port")]


def groups(me):
    group = me.group("acme.g", me.job.procs, context_id=True, timeout=WAIT).construct()
    found = [len(group.members), group.context_id]
    me.fence(Proc("acme.g", Rank.WILDCARD), timeout=WAIT)
    me.raw.group_destruct("acme.g", timeout=WAIT)
    # A second group of the same name is another one.
    again = me.group("acme.g", me.job.procs, context_id=True, timeout=WAIT).construct()
    found.append(again.context_id)
    me.raw.group_destruct("acme.g", timeout=WAIT)
    return found


def connects(me):
    me.connect(me.job.procs, timeout=WAIT)
    me.disconnect(me.job.procs, timeout=WAIT)
    some = [me.job[0], me.job[3]]
    if me.proc in some:
        me.connect(some, timeout=WAIT)
        me.disconnect(some, timeout=WAIT)
    me.fence(timeout=WAIT)


def partners(me, other):
    """The two jobs share no node: no server has told its clients of the other job before."""
    with me.connect([Proc(name, Rank.WILDCARD) for name in (me.nspace, other)], timeout=WAIT) as both:
        return [[job.nspace, job.size, repr(job)] for job in both.jobs.values()]


def events(me):
    with me.events(-4242) as heard:
        me.fence(timeout=WAIT)
        if me.rank == 0:
            me.notify(-4242, data_range=Range.SESSION, info={"acme.load": "high"})
        event = heard.get(timeout=WAIT)
        me.fence(timeout=WAIT)
    return [event.source.rank, event.info["acme.load"]]


async def opened(cell, stack, kind=None):
    """Return the host of this node, of a class, when the other one is there too."""
    from pypmix.host.exchange import Exchange, TCPCarrier

    folder = os.path.join(os.environ["PYPMIX_TEST_MARKS"], "meeting")
    exchange = Exchange(TCPCarrier.in_folder(cell.node, folder, host=cell.address))
    rm = await stack.enter_async_context(cell.host(kind, exchange=exchange))
    assert await rm.exchange("start", cell.node.encode(), nodes=NODES, timeout=WAIT) == [b"n0", b"n1"]
    return rm


async def data(cell):
    """Fences, direct modex, and what is published."""
    mine = NODES[cell.node]
    log = Logged()
    async with contextlib.AsyncExitStack() as stack:
        rm = await opened(cell, stack)
        found = await cell.run(rm, fences, nodes=NODES)
        assert found == [[0, 1, 2, 3] + ([f"rank {3 - rank}"] if rank in (1, 2) else []) for rank in mine], found
        assert await cell.run(rm, modex, nodes=NODES) == [[f"of {rank}" for rank in range(4)]] * 2
        assert await cell.run(rm, publishing, nodes=NODES) == [[5, -46]] * 2
        await rm.exchange("end", nodes=NODES, timeout=WAIT)
    assert not log.texts(), log.texts()


async def joining(cell):
    """Connects and events."""
    async with contextlib.AsyncExitStack() as stack:
        rm = await opened(cell, stack)
        await cell.run(rm, connects, nodes=NODES)
        assert await cell.run(rm, events, nodes=NODES) == [[0, "high"]] * 2
        names = {"n0": "first", "n1": "second"}
        jobs = {node: rm.job(name, nodes={node: [0, 1]}) for node, name in names.items()}
        await rm.exchange("described", nodes=NODES, timeout=WAIT)
        other = names["n1" if cell.node == "n0" else "n0"]
        found = await cell.run(rm, partners, other, job=jobs[cell.node])
        assert found == [[[other, 2, f"<ChildJob {other} of 2>"]]] * 2, found
        await rm.exchange("end", nodes=NODES, timeout=WAIT)


async def grouping(cell):
    """Groups of procs of both nodes."""
    async with contextlib.AsyncExitStack() as stack:
        rm = await opened(cell, stack)
        found = await cell.run(rm, groups, nodes=NODES)
        assert found[0] == found[1], found
        size, first, second = found[0]
        assert size in SIZES.get(cell.client[:10], (4,)), found
        assert first != second and first > 0, found
        await rm.exchange("end", nodes=NODES, timeout=WAIT)
