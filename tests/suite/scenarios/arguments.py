"""Arguments that are integers or numbers of seconds, and errors about arguments."""

from __future__ import annotations

from lib.samples import Index, Seconds
from pypmix import EventCode, Proc, attrs

POINT = Proc("job", 0)


async def integers(me):
    """Objects with `__index__` and `__float__` are integers and numbers wherever an int or a float is."""
    await me.put("index", Index(7), scope=Index(3))
    await me.fence([Index(rank) for rank in range(me.job.size)], timeout=Index(60))
    got = [await me.get("index", Index(rank), timeout=Seconds(60.0)) for rank in range(me.job.size)]
    async with me.group(procs=[Index(rank) for rank in range(me.job.size)], timeout=Seconds(60.0)) as group:
        got.append(await group.bcast(me.rank, root=Index(1)))
    await me.publish({f"port.{me.rank}": Index(9)}, timeout=Index(60))
    got.append(await me.lookup(f"port.{me.rank}", timeout=Seconds(60.0)))
    async with me.events(EventCode.PROC_TERMINATED, buffer=Index(4)) as events:
        await me.notify(Index(int(EventCode.custom(Index(-5000)))), data_range=Index(2))
        try:
            await events.get(timeout=Seconds(0.0))
        except TimeoutError as error:
            got.append(str(error).partition(" [")[0])
    await me.fence(timeout=60)
    return got


WRONG = {
    "get": lambda me: me.get(""),
    "get of a rank": lambda me: me.get("key", -1),
    "get in time": lambda me: me.get("key", timeout=-1),
    "fence": lambda me: me.fence(timeout=0),
    "fence of ranks": lambda me: me.fence([1.5]),
    "fence with infos": lambda me: me.fence(info={3: 1}),
    "publish": lambda me: me.publish({3: 1}),
    "publish in time": lambda me: me.publish({"key": 1}, timeout="1"),
    "lookup": lambda me: me.lookup("pmix.key"),
    "unpublish": lambda me: me.unpublish(""),
    "connect": lambda me: me.connect([POINT], timeout=-1),
    "spawn": lambda me: me.spawn(["true"], timeout=float("nan")),
    "spawn of some": lambda me: me.spawn(["true"], n="2"),
    "query": lambda me: me.query(3),
    "log": lambda me: me.log("text", timeout=2**31),
    "notify": lambda me: me.notify("PROC_TERMINATED"),
    "put": lambda me: me.put("key", 1, scope="LOCAL"),
    "abort": lambda me: me.abort("1"),
}


async def wrong(me):
    """Each of these calls is refused before anything is sent; return the errors' texts."""
    found = {}
    for name, call in WRONG.items():
        try:
            await call(me)
        except (TypeError, ValueError, OverflowError) as error:
            found[name] = str(error)
    try:
        attrs.TIMEOUT("1")
    except TypeError as error:
        found["an attribute"] = str(error)
    return found
