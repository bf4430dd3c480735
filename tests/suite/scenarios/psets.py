"""Process sets: those of the command line, those that come later, and what is done with them."""

from __future__ import annotations

import os
import sys
from functools import partial

from lib.aio import hear, psets, tell
from pypmix import NotFound, PMIxError, Proc, ProcSet, Rank, app, attrs
from pypmix.aio import Tool

OUTSIDE = {"TMPDIR": os.environ["TMPDIR"]}
"""What a process that belongs to no job has in its environment."""


async def attempt(call):
    """Return what a call returns, or the status of the error that it raises."""
    try:
        return await call()
    except PMIxError as error:
        return int(error.code)


def ranks(sets):
    return {name: [proc.rank for proc in members] for name, members in sets.items()}


async def known(me):
    """What every process may know of the sets of its job."""
    sets = await psets(me)
    names = [await me.get(attrs.PSET_NAMES, proc, default=None) for proc in me.job.procs]
    try:
        sets["acme.gone"]
    except NotFound as error:
        unknown = isinstance(error, KeyError), str(error)
    seen = {
        "sets": ranks(sets),
        "own": all(
            isinstance(each, ProcSet) and {proc.nspace for proc in each} == {me.nspace} for each in sets.values()
        ),
        "names": names,
        "value": tuple(await me.get(attrs.PSET_NAMES, me.job[0])),
        "of": [sets.of(proc) for proc in me.job.procs],
        "number": await me.query(attrs.QUERY_NUM_PSETS),
        "asked": (await me.query(attrs.QUERY_PSET_NAMES)).split(","),
        "members": ranks({"ice": await me.query(attrs.QUERY_PSET_MEMBERSHIP, info={attrs.PSET_NAME: "ice"})}),
        "none": await me.query(attrs.QUERY_PSET_MEMBERSHIP, info={attrs.PSET_NAME: "acme.gone"}, default=None),
        "unknown": unknown,
        "others": (me.job.procs - sets["ocean"], sets["ocean"] ^ sets["ice"]),
    }
    await me.fence(timeout=20)
    return seen


async def app_info(me):
    """The applications of the job, as their ranks see them."""
    found = [await me.get(key) for key in (attrs.APPNUM, attrs.APP_RANK)]
    job = Proc(me.nspace, Rank.WILDCARD)
    info = {attrs.APP_INFO: True, attrs.APPNUM: found[0]}
    found += [
        await me.get(key, job, info=info, default=None) for key in (attrs.APP_SIZE, attrs.APPLDR, attrs.PSET_NAME)
    ]
    await me.fence(timeout=20)
    return found


async def used(me):
    """A set is accepted where procs are."""
    sets = await psets(me)
    own = next(members for members in sets.values() if me.proc in members)
    await me.put("acme.word", f"of {me.rank}")
    await me.fence(own, collect=True, timeout=20)
    words = [await me.get("acme.word", proc) for proc in own]
    await me.fence(sets["ice"] | sets["ocean"], timeout=20)
    return words


async def grouped(me):
    """A group of the members of a set, under the set's name."""
    ocean = (await psets(me))["ocean"]
    found = None
    if me.proc in ocean:
        async with me.group("ocean", ocean, context_id=True, timeout=20) as group:
            await group.fence(timeout=20)
            found = group.rank, [proc.rank for proc in group.members], isinstance(group.members, ProcSet)
    await me.fence(timeout=20)
    return found, ranks(await psets(me))["ocean"]


async def watched(me):
    """Who looks early and who looks late sees the same sets come, each once."""
    seen = []
    for _ in range(2):
        async with me.watch_psets() as changes:
            found = [await changes.get(timeout=10) for _ in range(2)]
            seen.append(sorted((each.kind, each.name, tuple(proc.rank for proc in each.members)) for each in found))
            await me.fence(timeout=20)
            seen.append(await attempt(lambda: changes.get(timeout=0.2)))
    return seen


async def later(me):
    """A set that is defined while the job runs; it does not change any more."""
    before = await me.get(attrs.PSET_NAMES, default=None)
    nobody = Proc(me.nspace, 1000)
    async with me.watch_psets() as changes:
        await changes.get(timeout=10)
        await me.fence(timeout=20)
        refused = []
        if me.rank == 0:
            await me.control(me.job.procs[1:]).request(info={attrs.JOB_CTRL_DEFINE_PSET: "late"})
            for procs, name in ((me.job.procs, "late"), (me.job.procs, me.nspace), (nobody, "x"), (me.job[0], "a,b")):
                info = {attrs.JOB_CTRL_DEFINE_PSET: name}
                refused.append(await attempt(partial(me.job_control, procs, info=info)))
        change = await changes.get(timeout=10)
        await me.fence(timeout=20)
        seen = change.kind, change.name, [proc.rank for proc in change.members]
        names = [await me.get(attrs.PSET_NAMES, proc, default=None) for proc in me.job.procs]
        await me.fence(timeout=20)
    return before, seen, names, ranks(await psets(me)), refused


async def spawned(me, gone):
    """The applications of a spawned job are sets, which go with it."""
    found = None
    if me.rank == 0:
        mark = os.path.join(os.environ["PYPMIX_TEST_MARKS"], "over")
        command = ["sh", "-c", f"while [ ! -e {mark} ]; do sleep 0.05; done"]
        apps = [app(command, n=2, info={attrs.PSET_NAME: "wind"}), app(command, info={attrs.PSET_NAME: "sea"})]
        async with me.watch_psets() as changes:
            first = await changes.get(timeout=10)
            job = await me.spawn(apps)
            came = [await changes.get(timeout=10) for _ in apps]
            sets = await psets(me)
            members = sets["wind"] == tuple(job.procs[:2]), sets["sea"] == tuple(job.procs[2:])
            names = [await me.get(attrs.PSET_NAMES, proc) for proc in job.procs]
            again = await attempt(lambda: me.spawn(apps[:1])) if gone else None
            await tell("over")
            went = [await changes.get(timeout=10) for _ in apps] if gone else []
            kept = list(await psets(me)) if gone else []
        found = (
            (first.name, sorted((each.kind, each.name) for each in came), members, names),
            (again, sorted((each.kind, each.name, len(each.members)) for each in went), kept),
        )
    await me.fence(timeout=30)
    return found


async def waited(me):
    """Return the sets that exist when a spawned job has been waited for."""
    found = None
    if me.rank == 0:
        job = await me.spawn([app(["true"], n=2, info={attrs.PSET_NAME: "wind"})])
        await job.wait(timeout=30)
        found = list(await psets(me))
    await me.fence(timeout=60)
    return found


async def by_tool(me):
    """A tool from outside knows the same sets, and hears of further ones."""
    seen = None
    if me.rank == 0:
        async with Tool(env=OUTSIDE, pid=os.getppid()) as tool, tool.watch_psets() as changes:
            found = [await changes.get(timeout=10) for _ in range(2)]
            names = await tool.get(attrs.PSET_NAMES, me.proc)
            sets = await psets(tool)
            await me.control(me.job.procs[1:]).request(info={attrs.JOB_CTRL_DEFINE_PSET: "late"})
            found.append(await changes.get(timeout=10))
        seen = ranks(sets), names, [(each.kind, each.name) for each in found]
    await me.fence(timeout=20)
    return seen


async def empty(me):
    """Where nobody has defined any."""
    sets = await psets(me)
    found = dict(sets), repr(sets), await me.get(attrs.PSET_NAMES, default="none")
    if len(me.job.procs) > 1:
        await me.fence(timeout=20)
    return found


async def ended(me):
    """A set keeps its members when they end."""
    ocean = (await psets(me))["ocean"]
    await me.fence(timeout=20)
    if me.rank == 0:
        await tell("gone.0")
        sys.exit(0)
    await hear("gone.0")
    seen = len(ocean), ranks(await psets(me))["ocean"]
    await me.fence([proc for proc in me.job.procs if proc.rank], timeout=20)
    return seen
