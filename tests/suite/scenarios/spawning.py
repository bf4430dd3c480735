"""Jobs that ranks start."""

from __future__ import annotations

import json
import os
import sys
import time

from lib.aio import hear, tell
from pypmix import PMIxError, Proc, Rank, app, attrs

CHILD = """
import json, os, sys
import pypmix
from lib.sync import hear, tell
with pypmix.Client() as me:
    me.put("port", 5000 + me.rank)
    me.fence(collect=True, timeout=20)
    peers = [me.get("port", proc=proc) for proc in me.job]
    facts = {
        "nspace": me.nspace, "size": me.job.size, "apps": me.job.number_of_apps, "peers": peers,
        "spawned": me.spawned, "parent": me.parent, "arguments": sys.argv[1:], "cwd": os.getcwd(),
        "variable": os.environ.get("ACME_VARIABLE"), "inherited": os.environ.get("PYPMIX_TEST_MARKS") is not None,
        "outer": os.environ.get("PMIX_ACME"),
    }
    tell(f"{sys.argv[1]}.{me.rank}", json.dumps(facts))
    if "stay" in sys.argv:
        hear("enough", 20)
    me.fence(timeout=20)
"""


def command(*words):
    return [sys.executable, "-c", CHILD, *words]


async def facts(name, ranks):
    return [json.loads(await hear(f"{name}.{rank}", 20)) for rank in range(ranks)]


async def attempt(call):
    try:
        return repr(await call())
    except PMIxError as error:
        return error


async def started(me, cwd):
    """Rank 0 starts a job; what it knows of that job, and what the job knows of itself."""
    result = None
    if me.rank == 0:
        env = {**os.environ, "ACME_VARIABLE": "a b=c", "PMIX_ACME": "x"}
        job = await me.spawn(command("child", "x y", ""), n=2, env=env, cwd=cwd)
        seen = await facts("child", 2)
        result = {
            "own": me.nspace,
            "job": (job.nspace, job.size, [proc.rank for proc in job], {proc.nspace for proc in job}),
            "read": await me.get(attrs.JOB_SIZE, proc=Proc(job.nspace, Rank.WILDCARD)),
            "child": seen,
        }
    await me.fence(timeout=20)
    return result, (me.spawned, me.parent)


async def two_apps(me):
    result = None
    if me.rank == 0:
        first = app(command("child", "first"), n=2, env={"ACME_VARIABLE": "1"})
        second = app(command("child", "second"), env={"ACME_VARIABLE": "2"})
        job = await me.spawn([first, second])
        seen = await facts("child", 3)
        result = job.size, [(each["arguments"], each["variable"], each["apps"], each["size"]) for each in seen]
    await me.fence(timeout=20)
    return result


async def from_all(me):
    """All ranks spawn at once."""
    job = await me.spawn(command(f"child{me.rank}"), n=1)
    (seen,) = await facts(f"child{me.rank}", 1)
    await me.fence(timeout=20)
    return job.nspace, seen["nspace"], seen["parent"][1] if seen["parent"] else None


async def data_of_the_child(me):
    """The parent reads what the procs of its child have put."""
    result = None
    if me.rank == 0:
        job = await me.spawn(command("child", "stay"), n=2)
        await facts("child", 2)
        result = [await me.get("port", proc=proc, timeout=5) for proc in job]
        result.append(await attempt(lambda: me.get("no.such.key", proc=job[0], timeout=0)))
        await tell("enough")
    await me.fence(timeout=20)
    return result


async def waited(me, code):
    """The exit code of a job, waited for before and after its end."""
    result = None
    if me.rank == 0:
        job = await me.spawn([sys.executable, "-c", f"import time; time.sleep(0.5); raise SystemExit({code})"])
        early = await attempt(lambda: job.wait(0.05))
        result = type(early).__name__, await job.wait(20), await job.wait(1)
    await me.fence(timeout=20)
    return result


async def waited_for_several(me):
    """Jobs that end in another order than they were started in."""
    result = None
    if me.rank == 0:
        jobs = [
            await me.spawn([sys.executable, "-c", f"import time; time.sleep({seconds})"]) for seconds in (0.6, 0, 0.3)
        ]
        result = [await job.wait(20) for job in jobs]
    await me.fence(timeout=20)
    return result


async def ended_early(me):
    """Rank 0 ends jobs that would run for long."""
    result = None
    if me.rank == 0:
        job = await me.spawn([sys.executable, "-c", "import time; time.sleep(100)"], n=2)
        began = time.monotonic()
        await job.kill()
        await job.wait(20)
        result = time.monotonic() - began
    await me.fence(timeout=20)
    return result


async def failures(me):
    """What cannot be started; afterwards all is as before."""
    found = {}
    if me.rank == 0:
        found = {
            "program": await attempt(lambda: me.spawn(["/no/such/program"])),
            "directory": await attempt(lambda: me.spawn([sys.executable, "-c", ""], cwd="/no/such/directory")),
        }
        job = await me.spawn(command("child"), n=1)
        found["then"] = job.size, (await facts("child", 1))[0]["size"]
    await me.fence(timeout=20)
    return found


async def children_of_children(me):
    """A spawned job spawns one itself."""
    result = None
    if me.rank == 0:
        code = (
            "import json, pypmix, sys\n"
            "with pypmix.Client() as me:\n"
            "    job = me.spawn([sys.executable, '-c', sys.argv[1], 'grandchild'], n=2)\n"
            "    from lib.sync import hear, tell\n"
            "    seen = [json.loads(hear(f'grandchild.{rank}', 20)) for rank in range(2)]\n"
            "    tell('child', json.dumps([me.nspace, job.nspace, seen]))\n"
        )
        await me.spawn([sys.executable, "-c", code, CHILD])
        result = json.loads(await hear("child", 20))
    await me.fence(timeout=20)
    return result


async def lonely(me):
    return await attempt(lambda: me.spawn(["true"])), me.spawned, me.parent, me.supports("spawn")
