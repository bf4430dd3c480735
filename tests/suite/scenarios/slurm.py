"""A job step of Slurm: what its plugin offers holds over nodes, and what it does not is refused at once."""

from __future__ import annotations

import time

from lib.aio import hear, psets, sleep, tell
from pypmix import EventCode, NotSupported, PMIxError, Proc, Range, Rank, attrs
from pypmix.aio.recipes.admission import request

ALERT = EventCode.custom(-4310)

FEATURES = """
put commit fence fence.collect fence.timeout get get.timeout get.immediate resolve_peers resolve_nodes events
abort finalize compute_distances publish lookup lookup.wait unpublish query get.pset_names get.group_names log
job_control allocation_request process_monitor heartbeat get_credential validate_credential output input
fabric_register spawn connect connect.nspace connect.directives disconnect group_construct group_destruct
notify group.construct group.bootstrap group.invite group.leave group.request group.leader
"""


async def last_comes_late(me, kind):
    """Return for each round whether the last rank had come when this one went on, in a fence of one kind."""
    procs = list(me.job) if kind == "listed" else None
    directives = {attrs.COLLECT_DATA: False} if kind == "directive" else None
    found = []
    for number, last in enumerate((me.job[me.job.size - 1], me.job[0])):
        await me.fence(collect=True, timeout=20)
        if me.proc == last:
            await sleep(0.5)
            await tell(f"came-{number}")
        await me.fence(procs, collect=kind == "asked", timeout=20 if kind == "timeout" else None, info=directives)
        try:
            await hear(f"came-{number}", seconds=0.01)
            found.append(True)
        except AssertionError:
            found.append(False)
    return found


async def some(me):
    """Fence the first two ranks, and the first with the last."""
    said = []
    for ranks in (0, 1), (0, me.job.size - 1):
        if me.rank not in ranks:
            said.append(None)
            continue
        try:
            await me.fence([me.job[rank] for rank in ranks], timeout=20)
            said.append("passed")
        except NotSupported as error:
            said.append("Slurm" if "Slurm" in str(error) else str(error))
    await me.fence(timeout=20)
    return tuple(said)


async def refused(me):
    """Ask for all that the plugin does not offer: return what each says, and how long the longest took."""
    everybody = Proc(me.nspace, Rank.WILDCARD)

    async def invitations():
        async with me.invitations() as stream:
            await stream.get(timeout=20)

    async def watched():
        async with me.watch_psets() as stream:
            await stream.get(timeout=20)

    async def grouped():
        async with me.group("acme.g", me.job.procs, timeout=20):
            pass

    async def output():
        async with me.output(everybody):
            pass

    async def targeted():
        await me.notify(ALERT, targets=me.job.procs)

    async def invited():
        async with me.invite("acme.t", me.job.procs, timeout=20) as invite:
            async for _ in invite.answers():
                pass
            await invite.complete()

    async def sets():
        await psets(me)

    calls = {
        "publish": lambda: me.publish({"acme.p": 1}),
        "lookup": lambda: me.lookup("acme.p", timeout=20),
        "unpublish": lambda: me.unpublish("acme.p"),
        "spawn": lambda: me.spawn(["true"]),
        "connect": lambda: me.connect(everybody, timeout=20),
        "signal": lambda: me.control(everybody).signal(10),
        "log": lambda: me.log("words", to="stderr"),
        "get_credential": lambda: me.credentials.get(),
        "heartbeat": lambda: me.monitors.send_heartbeat(),
        "output": output,
        "group": grouped,
        "request": lambda: request(me, "acme.g", timeout=20),
        "invite": invited,
        "invitations": invitations,
        "watch_psets": watched,
        "psets": sets,
        "query": lambda: me.query(attrs.QUERY_NAMESPACES),
        "refreshed": lambda: me.query("acme.what", refresh=True),
        "targets": targeted,
        **{
            f"notify {span.name}": (lambda span=span: me.notify(ALERT, data_range=span))
            for span in (Range.LOCAL, Range.SESSION, Range.NAMESPACE, Range.GLOBAL)
        },
    }
    said, longest = {}, 0.0
    for name, call in calls.items():
        began = time.monotonic()
        try:
            await call()
            said[name] = "nothing"
        except PMIxError as error:
            said[name] = type(error).__name__ if "Slurm" not in str(error) else "Slurm"
        longest = max(longest, time.monotonic() - began)
    await me.fence(timeout=20)
    return said, longest


async def answered(me):
    """Ask what can be answered, where everybody is, and raise an event for this process alone."""
    found = await me.query([attrs.JOB_SIZE, attrs.QUERY_NAMESPACES, "acme.what"])
    nodes = [
        [proc.rank for proc in sorted(await me.raw.resolve_peers(node, me.nspace))]
        for node in sorted(await me.raw.resolve_nodes())
    ]
    async with me.events(ALERT) as events:
        await me.notify(ALERT, data_range=Range.PROC_LOCAL)
        event = await events.get(timeout=20)
    return dict(found), sorted(found.missing), nodes, event.source.rank


async def supported(me):
    return [name for name in FEATURES.split() if me.supports(name)]


async def direct_modex(me):
    """Read what procs of the other node have committed, without a fence that would have brought it."""
    await me.put("big", bytes([me.rank]) * 100_000)
    await me.commit()
    found = [await me.get("big", proc, timeout=20) for proc in me.job]
    late = me.job[me.job.size - 1]
    if me.proc == late:
        await sleep(0.3)
        await me.put("late", 7)
        await me.commit()
    return [data == bytes([rank]) * 100_000 for rank, data in enumerate(found)]


async def unfinished(me):
    """A get of what nobody puts ends in its time, from the other node too."""
    began = time.monotonic()
    try:
        await me.get("never", me.job[me.job.size - 1 - me.rank], timeout=1)
        text = "found"
    except PMIxError as error:
        text = type(error).__name__
    seconds = time.monotonic() - began
    await tell(f"asked-{me.rank}")
    for rank in range(me.job.size):
        await hear(f"asked-{rank}", seconds=20)
    return text, seconds
