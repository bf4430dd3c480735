"""Connect and disconnect, inside of one job and between a job and one that it has spawned."""

from __future__ import annotations

import os
import signal
import sys

from lib.aio import hear, sleep, tell, together
from pypmix import ConnectEvent, EventCode, OperationTimeout, PMIxError, Proc, Rank, attrs
from pypmix.standard.ops.connecting import CONNECT_NOTIFY_EACH
from pypmix.types import ProcState

LOAD = EventCode.custom(-4242)
MEANWHILE = 0.3
"""Seconds after which a call that was begun is with the server; too few of them would prove less, and break nothing."""


def ranks(procs):
    return [proc.rank for proc in procs]


async def outcome(call):
    """Return what a call returns, or the name of its error."""
    try:
        return await call()
    except PMIxError as error:
        return type(error).__name__


async def come(me, name):
    """Tell the others that this process is about to call what all call; the last one lets them wait."""
    if me.rank == me.job.size - 1:
        await sleep(MEANWHILE)
    await tell(f"{name}.{me.rank}")


async def came(me, name):
    """See that all have come by now."""
    for rank in range(me.job.size):
        await hear(f"{name}.{rank}", 0)


async def cluster(me):
    return await outcome(lambda: me.get(attrs.CLUSTER_ID, timeout=5))


async def within(me):
    """All of a job connect and disconnect, twice, in whatever order they name the procs, and each time wait for all."""
    procs = me.job.procs if me.rank % 2 else tuple(reversed(me.job.procs))
    for turn in range(2):
        await come(me, f"connect.{turn}")
        await me.connect(procs, timeout=20)
        await came(me, f"connect.{turn}")
        await come(me, f"disconnect.{turn}")
        await me.raw.disconnect(procs, timeout=20)
        await came(me, f"disconnect.{turn}")
    await me.connect(Proc(me.nspace, Rank.WILDCARD), timeout=20)
    await me.fence(timeout=20)
    return "connected"


async def several(me):
    """Each rank has several connects of the same procs under way, begun in an order of its own."""
    if not me.supports("connect.directives"):
        return None
    names = ["a", "b", None]
    calls = [
        lambda name=name: me.connect(me.job.procs, connect_id=name, timeout=20)
        for name in names[me.rank :] + names[: me.rank]
    ]
    made = await together(*calls)
    for connection in made:
        if isinstance(connection, BaseException):
            raise connection
    made = dict(zip(names[me.rank :] + names[: me.rank], made, strict=True))
    await together(*[lambda each=each: each.disconnect(timeout=20) for each in made.values()])
    await me.fence(timeout=20)
    return {name: (connection.nspace, connection.is_open) for name, connection in made.items()}


async def identity(me):
    """All connect, use the nspace that they are given wherever procs are named, and leave it together."""
    if not me.supports("connect.nspace"):
        return None
    procs = tuple(reversed(me.job.procs)) if me.rank % 2 else Proc(me.nspace, Rank.WILDCARD)
    await me.put("acme.rank", me.rank)
    both = await me.connect(procs, timeout=20)
    whole = Proc(both.nspace, Rank.WILDCARD)
    found = {"made": (both.nspace, both.rank, both.proc, ranks(both))}
    await me.fence(whole, collect=True, timeout=20)
    await me.fence([Proc(both.nspace, rank) for rank in range(4)], timeout=20)
    found["values"] = [await me.get("acme.rank", Proc(both.nspace, rank)) for rank in range(4)]
    some = None
    if me.rank % 2:
        some = await me.connect([Proc(both.nspace, 1), Proc(both.nspace, 3)], timeout=20)
        found["some"] = some.nspace, some.rank, ranks(some)
    heard = []
    async with me.events(LOAD) as events:
        await both.fence(timeout=20)
        if me.rank == 1:
            await me.notify(LOAD, targets=whole, info={"acme.to": "all"})
            await some.notify(LOAD, info={"acme.to": "some"})
            await me.notify(LOAD, targets=both, info={"acme.to": "end"})
        while "end" not in heard:
            heard.append((await events.get(timeout=20)).info["acme.to"])
    found["heard"] = heard
    if some:
        await some.disconnect(timeout=20)
    found["outside"] = await outcome(lambda: me.raw.disconnect(Proc("acme.nobody", Rank.WILDCARD), timeout=20))
    if me.rank == 0:
        found["alone"] = await outcome(lambda: me.raw.disconnect(both.address, timeout=1))
    await me.fence(timeout=20)
    await come(me, "leave")
    if me.rank % 2:
        await both.disconnect(timeout=20)
    else:
        await me.raw.disconnect(both.address, timeout=20)
    await came(me, "leave")
    found["gone"] = [await outcome(lambda: me.raw.disconnect(both.address, timeout=20))]
    found["gone"].append(await outcome(lambda: me.fence(whole, timeout=20)))
    await me.fence(timeout=20)
    return found


async def requested(me):
    """Rank 0 asks the others to connect; all hear of each one that comes, and that goes."""
    if not me.supports("connect.directives"):
        return None
    async with (
        me.events(ConnectEvent.REQUESTED) as requests,
        me.events(ConnectEvent.HAS_CONNECTED) as comings,
        me.events(ConnectEvent.HAS_DISCONNECTED) as goings,
    ):
        await me.fence(timeout=20)
        if me.rank == 0:
            connection = await me.connect(
                me.job.procs, connect_id="acme.asked", notify_request=True, notify_each=True, timeout=20
            )
        else:
            event = await requests.get(timeout=20)
            procs, name = event.info[ConnectEvent.PROCS], event.info[ConnectEvent.ID]
            connection = await me.connect(procs, connect_id=name, timeout=20)
        came = [await comings.get(timeout=20) for _ in range(me.job.size - 1)]
        await connection.disconnect(timeout=20)
        went = [await goings.get(timeout=20) for _ in range(me.job.size - 1)]
    await me.fence(timeout=20)
    found = sorted(ranks([event.affected[0] for event in came])), sorted(ranks([event.affected[0] for event in went]))
    names = {event.info[ConnectEvent.ID] for event in (*came, *went)}
    return *found, names, {event.info[ConnectEvent.NSPACE] for event in went} == {connection.nspace}


async def plain(me):
    """What of a connection is there on a server that knows the Standard alone."""
    refused = {}
    for directive in ("connect_id", "optional", "early_termination", "notify_each", "notify_request"):
        given = "acme" if directive == "connect_id" else True
        refused[directive] = await outcome(lambda given={directive: given}: me.connect(me.job.procs, **given))
    refused["unknown"] = await outcome(lambda: me.raw.disconnect(Proc("acme.nobody", Rank.WILDCARD)))
    refused["disconnect"] = await outcome(lambda: me.raw.disconnect(me.job.procs, {CONNECT_NOTIFY_EACH: True}))
    async with await me.connect(me.job.procs, timeout=20) as connection:
        refused["fence"] = await outcome(connection.fence)
        found = connection.nspace, connection.rank, connection.proc, ranks(connection)
    await me.fence(timeout=20)
    return found, refused, [me.supports(feature) for feature in ("connect.nspace", "connect.directives")]


async def pair(me):
    """Two of three connect; the third goes on by itself."""
    if me.rank < 2:
        await me.connect(me.job.procs[:2], timeout=20)
        await me.raw.disconnect(me.job.procs[:2], timeout=20)
    await me.fence(timeout=20)
    return me.rank


async def late(me):
    """Rank 1 never comes."""
    error = None
    if me.rank == 0:
        try:
            await me.connect(me.job.procs, timeout=1)
        except PMIxError as caught:
            error = caught
    await me.fence(timeout=20)
    return error


CHILD = """
import sys
from pypmix import Client, Proc, Rank, attrs
with Client() as me:
    parent = me.get(attrs.PARENT_ID)
    me.put("acme.child", me.rank)
    me.commit()
    all = [Proc(parent.nspace, Rank.WILDCARD), Proc(me.nspace, Rank.WILDCARD)]
    swapped = me.connect(all, exchange_only=True, timeout=20)
    assert swapped.nspace is None and parent.nspace in swapped.jobs
    me.connect(all, timeout=20)
    size = me.get(attrs.JOB_SIZE, Proc(parent.nspace, Rank.WILDCARD))
    value = me.get("acme.parent", Proc(parent.nspace, 0), timeout=10)
    assert (size, value) == (int(sys.argv[1]), "from the parent"), (size, value)
    me.fence(all, timeout=20)
    me.raw.disconnect(all, timeout=20)
"""


async def across(me, engine=""):
    """A job and one that it has spawned, on an engine if one is named, connect, and read each other's info and data."""
    if me.rank == 0:
        env = {"PYPMIX_ENGINE": engine} if engine else None
        job = await me.spawn([sys.executable, "-c", CHILD, str(me.job.size)], n=2, env=env)
        await tell("child", job.nspace)
        child = job.nspace
    else:
        child = await hear("child")
    await me.put("acme.parent", "from the parent")
    await me.commit()
    everyone = [Proc(me.nspace, Rank.WILDCARD), Proc(child, Rank.WILDCARD)]
    swapped = await me.connect(everyone, exchange_only=True, timeout=20)
    size = await me.get(attrs.JOB_SIZE, Proc(child, Rank.WILDCARD))
    assert swapped.nspace is None and [*swapped.jobs] == [child] and swapped.jobs[child].size == size
    both = await me.connect(everyone, timeout=20)
    if me.supports("connect.nspace"):
        # A new name, of both jobs: the ranks follow the names of the jobs.
        assert both.nspace not in (None, me.nspace, child) and both[both.rank] == me.proc, both
        assert len(both) == len({*both}) == me.job.size + size, both
    values = [await me.get("acme.child", Proc(child, rank), timeout=10) for rank in range(2)]
    await me.fence(everyone, timeout=20)
    await me.raw.disconnect(everyone, timeout=20)
    await me.fence(timeout=20)
    return size, values


async def refused(me):
    """Mistakes are errors at the call, and harm nothing."""
    found = {}
    for name, procs in {"none": None, "empty": [], "string": me.nspace}.items():
        try:
            await me.connect(procs)
        except (TypeError, ValueError) as error:
            found[name] = type(error).__name__
    for name, procs in {
        "unknown": [me.proc, Proc("nobody", 0)],
        "others": [me.job[(me.rank + 1) % me.job.size]],
    }.items():
        try:
            await me.connect(procs, timeout=2)
        except OperationTimeout:
            found[name] = "timed out"
        except PMIxError:
            found[name] = "refused"
    await me.fence(timeout=20)
    return found


async def lonely(me):
    try:
        await me.connect([me.proc, Proc("other", 0)], timeout=1)
    except PMIxError as error:
        return error
    return None


async def known_to_have_ended(me, proc):
    """Wait until a host of ours has told its server of the end of a proc, or a while where the host is another."""
    if "PYPMIX_SERVER" not in os.environ:
        await sleep(1.0)
        return
    while True:
        table = await me.query(attrs.QUERY_PROC_TABLE, nspace=me.nspace)
        if any(row.proc == proc and row.state >= ProcState.TERMINATED for row in table):
            return
        await sleep(0.02)


async def ended(me, *, call, how, when):
    """Rank 1 ends before the others call, or while they wait for it; return what their call does, and a later fence."""
    procs, others = me.job.procs, [proc for proc in me.job if proc.rank != 1]
    if call == "disconnect":
        await me.connect(procs, timeout=20)
    await me.fence(timeout=20)
    if me.rank == 1:
        if when == "while":
            for proc in others:
                await hear(f"calls.{proc.rank}")
            await sleep(MEANWHILE)
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        return None
    if when == "before":
        await known_to_have_ended(me, me.job[1])
    await tell(f"calls.{me.rank}")
    try:
        await (me.connect if call == "connect" else me.disconnect)(procs, timeout=10)
        found = "success", None
    except PMIxError as error:
        found = type(error).__name__, None if error.missing is None else tuple(sorted(ranks(error.missing)))
    return (*found, await outcome(lambda: me.fence(others, timeout=20)))


async def told_in_disconnect(me, *, last):
    """Rank 2 is killed as 0 and 1 wait in a disconnect, and 3 too or not; return how often each hears of it."""
    async with me.events(ConnectEvent.TERMINATED) as events:
        connection = await me.connect(me.job.procs, timeout=20)
        await me.fence(timeout=20)
        callers = [0, 1, 3] if last else [0, 1]
        if me.rank == 2:
            for rank in callers:
                await hear(f"calls.{rank}")
            await sleep(MEANWHILE)
            os.kill(os.getpid(), signal.SIGKILL)
        if me.rank not in callers:
            await events.get(timeout=20)
        await tell(f"calls.{me.rank}")
        await connection.disconnect(timeout=20)
        heard = 0 if me.rank in callers else 1
        try:
            while True:
                await events.get(timeout=2)
                heard += 1
        except OperationTimeout:
            return heard
