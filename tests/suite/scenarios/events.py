"""Events between ranks: streams, handlers, ranges, and what servers keep for those who come later."""

from __future__ import annotations

from lib.aio import sleep
from pypmix import EventCode, OperationTimeout, PMIxError, Range
from pypmix.types import uint32

LOAD = EventCode.custom(-4242)
OTHER = EventCode.custom(-4243)
NEVER = EventCode.custom(-4999)


def shown(event):
    return event.code.name, event.source.rank, dict(event.info)


async def left(stream, quiet=0.8):
    """Return what comes until nothing has come for a while."""
    found = []
    while True:
        try:
            found.append(await stream.get(timeout=quiet))
        except OperationTimeout:
            return found


async def until(condition, seconds=10.0):
    """Wait for what handlers do, for some seconds at most: whoever calls looks whether it was done."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await sleep(0.02)


async def observed(me):
    """Rank 1 raises an event that all have a stream for, itself too."""
    async with me.events(LOAD) as events:
        await me.fence(timeout=20)
        if me.rank == 1:
            await me.notify(LOAD, data_range=Range.LOCAL, info={"acme.load": 0.5, "acme.count": uint32(7)})
        event = await events.get(timeout=10)
        await me.fence(timeout=20)
        more = await left(events, 0.2)
    info = {key: value for key, value in event.info.items() if key.startswith("acme.")}
    return event.code, event.source, info, [key for key in event.info if key.startswith("pmix.srvr")], more


async def ranges(me):
    """Rank 0 raises an event for each range; every rank tells which it has heard."""
    heard = []
    names = ("LOCAL", "NAMESPACE", "SESSION", "GLOBAL", "PROC_LOCAL")
    async with me.events(LOAD) as events:
        await me.fence(timeout=20)
        if me.rank == 0:
            for name in names:
                await me.notify(LOAD, data_range=Range[name], info={"acme.range": name})
        await me.fence(timeout=20)
        for event in await left(events):
            heard.append(event.info["acme.range"])
    return heard


async def chained(me):
    """Handlers of one process are called in their order, and hand results on."""
    calls = []
    passed = []

    def handler(name, **options):
        def note(event):
            calls.append(name)
            passed.append(dict(event.results))
            return event.pass_on({f"acme.{name}": True})

        return note, {"name": name, **options}

    several = (LOAD, OTHER)
    for codes, (function, options) in (
        (several, handler("several")),
        ((LOAD,), handler("single")),
        ((), handler("default")),
        ((LOAD,), handler("last", order="last")),
        ((LOAD,), handler("first", order="first")),
        ((LOAD,), handler("appended", order="append")),
        ((LOAD,), handler("before", before="single")),
        ((LOAD,), handler("after", after="single")),
    ):
        made = me.on(*codes, **options)(function)
        await made.ready()
    await me.notify(LOAD, data_range=Range.PROC_LOCAL)
    await until(lambda: len(calls) >= 8)
    await me.fence(timeout=20)
    return calls, sorted(key for key in passed[-1] if key.startswith("acme."))


async def ended(me):
    """A handler that is done keeps the event from those after it; one that raises does not."""
    calls = []

    def broken(event):
        calls.append("broken")
        raise RuntimeError("of this test's making")

    def wrong(event):
        calls.append("wrong")
        return 42

    def enough(event):
        calls.append("enough")
        return event.done()

    def never(event):
        calls.append("never")

    for function in (broken, wrong, enough, never):
        made = me.on(LOAD, order="append")(function)
        await made.ready()
    await me.notify(LOAD, data_range=Range.PROC_LOCAL)
    await until(lambda: "enough" in calls)
    await sleep(0.3)
    await me.fence(timeout=20)
    return calls


async def once(me):
    """A handler for one event, one that is removed, and a stream that is closed, hear of nothing more."""
    calls = []

    def single(event):
        calls.append("single")

    def removed(event):
        calls.append("removed")

    first = me.on(LOAD, once=True)(single)
    await first.ready()
    second = me.on(LOAD)(removed)
    await second.ready()
    stream = me.events(LOAD)
    await stream.open()
    await me.notify(LOAD, data_range=Range.PROC_LOCAL)
    await stream.get(timeout=10)
    await until(lambda: len(calls) == 2)
    await second.remove()
    await stream.close()
    await me.notify(LOAD, data_range=Range.PROC_LOCAL)
    await sleep(0.3)
    await me.fence(timeout=20)
    return sorted(calls), len(stream)


async def anew(me):
    """Streams of one code, one after the other, and a stream that is opened again, each hear of the next event."""
    again = me.events(LOAD)
    for _ in range(3):
        for stream in again, me.events(LOAD):
            async with stream:
                await me.notify(LOAD, data_range=Range.LOCAL)
                await stream.get(timeout=10)
    found = []
    for number in range(3):
        async with me.events(LOAD) as stream:
            await me.notify(LOAD, data_range=Range.LOCAL, info={"acme.n": number})
            events = [await stream.get(timeout=10), *await left(stream, 0.3)]
            found.append([event.info["acme.n"] for event in events])
    await me.fence(timeout=20)
    return found


async def about(me):
    """A stream of events about one proc does not get those about others."""
    async with me.events(LOAD, affected=me.job[1]) as events:
        await me.fence(timeout=20)
        if me.rank == 0:
            await me.notify(LOAD, data_range=Range.LOCAL, affected=me.job[0], info={"acme.n": uint32(0)})
            await me.notify(LOAD, data_range=Range.LOCAL, affected=me.job[1], info={"acme.n": uint32(1)})
            await me.notify(LOAD, data_range=Range.LOCAL, affected=[me.job[0], me.job[1]], info={"acme.n": uint32(2)})
        await me.fence(timeout=20)
        found = await left(events)
    return [(event.info["acme.n"], [proc.rank for proc in event.affected]) for event in found]


async def slow(me):
    """A reader that does not keep up loses the oldest events, and is told how many."""
    async with me.events(LOAD, buffer=3) as events:
        for number in range(10):
            await me.notify(LOAD, data_range=Range.PROC_LOCAL, info={"acme.n": uint32(number)})
        await until(lambda: events.dropped >= 7)
        dropped = events.dropped
        found = [event.info["acme.n"] for event in await left(events)]
    await me.fence(timeout=20)
    return found, dropped


async def asked_inside(me):
    """A handler may itself use the client."""
    seen = []

    async def handler(event):
        await me.put("acme.heard", event.info["acme.n"])
        await me.commit()
        seen.append(await me.get("acme.heard"))

    made = me.on(LOAD)(handler)
    await made.ready()
    await me.fence(timeout=20)
    if me.rank == 0:
        await me.notify(LOAD, data_range=Range.LOCAL, info={"acme.n": uint32(5)})
    await until(lambda: seen)
    await me.fence(timeout=20)
    return seen


async def silence(me):
    async with me.events(NEVER) as events:
        try:
            await events.get(timeout=0.3)
        except OperationTimeout as error:
            found = str(error)
    await me.fence(timeout=20)
    return found


async def refused(me):
    """Mistakes are errors at the call, and harm nothing."""
    found = {}
    for name, call in {
        "order": lambda: me.events(LOAD, buffer=0),
        "two orders": lambda: me.on(LOAD, order="first", before="x")(print),
        "no order": lambda: me.on(LOAD, order="middle")(print),
        "code": lambda: me.events("x"),
    }.items():
        try:
            call()
        except (TypeError, ValueError) as error:
            found[name] = type(error).__name__
    try:
        made = me.on(LOAD, before="nobody")(print)
        await made.ready()
    except PMIxError as error:
        found["before"] = type(error).__name__
    try:
        await me.notify(LOAD, data_range=Range.CUSTOM)
    except ValueError as error:
        found["custom"] = type(error).__name__
    await me.fence(timeout=20)
    return found


async def lonely(me):
    """A singleton hears of what it raises itself."""
    async with me.events(LOAD) as events:
        await me.notify(LOAD, info={"acme.n": uint32(1)})
        event = await events.get(timeout=5)
    return event.info["acme.n"], event.source == me.proc


async def given_up(me):
    """A stream whose opening was cancelled leaves nothing behind, and another one works."""
    import anyio

    for _ in range(20):
        with anyio.move_on_after(0):
            async with me.events(LOAD):
                pass
    async with me.events(LOAD) as events:
        await me.notify(LOAD, data_range=Range.PROC_LOCAL)
        await events.get(timeout=10)
        more = len(await left(events, 0.2))
    await me.fence(timeout=20)
    return more
