"""Who a process is, and what it knows about its job from the start."""

from __future__ import annotations

from lib.aio import Client, hear, tell
from pypmix import NotFound, PMIxError, Proc, Rank, attrs


async def hello(me):
    return {
        "proc": me.proc,
        "nspace": me.nspace,
        "rank": me.rank,
        "size": me.job.size,
        "procs": list(me.job),
        "last": me.job[me.job.size - 1],
        "hostname": me.node.hostname,
        "local_rank": me.node.local_rank,
        "local_procs": me.node.local_procs,
        "singleton": me.singleton,
        "engine": me.engine.name,
        "release": me.engine.release,
        "library": me.engine.library,
        "open": me.is_open,
    }


async def job_info(me, keys):
    """Read keys of the job, of the own node, and of every rank."""
    job = Proc(me.nspace, Rank.WILDCARD)
    host = me.node.hostname
    return {
        "job": {name: await me.get(getattr(attrs, name), job) for name in keys},
        "node": {
            "LOCAL_SIZE": await me.get(attrs.LOCAL_SIZE, job, info={attrs.NODE_INFO: True, attrs.HOSTNAME: host}),
            "LOCAL_PEERS": await me.get(attrs.LOCAL_PEERS, job, info={attrs.NODE_INFO: True, attrs.HOSTNAME: host}),
        },
        "ranks": [
            {
                "LOCAL_RANK": await me.get(attrs.LOCAL_RANK, proc),
                "NODE_RANK": await me.get(attrs.NODE_RANK, proc),
                "APPNUM": await me.get(attrs.APPNUM, proc),
                "HOSTNAME": await me.get(attrs.HOSTNAME, proc),
            }
            for proc in me.job
        ],
    }


async def app_info(me):
    job = Proc(me.nspace, Rank.WILDCARD)
    return {
        "APP_SIZE": await me.get(attrs.APP_SIZE, job, info={attrs.APP_INFO: True, attrs.APPNUM: 0}),
        "APP_RANK": [await me.get(attrs.APP_RANK, proc) for proc in me.job],
    }


async def without_server():
    async with Client() as me:
        await me.put("own", 5)
        own = await me.get("own")
        await me.commit()
        await me.fence(collect=True, timeout=2)
        missing = await me.get("nothing", default="absent")
        return {"singleton": me.singleton, "rank": me.rank, "size": me.job.size, "own": own, "missing": missing}


async def required_server():
    try:
        async with Client(singleton="forbid"):
            return None
    except PMIxError as error:
        return error


async def refused():
    """Open a client although the server that the environment names is not there."""
    try:
        async with Client():
            return None
    except PMIxError as error:
        return error


async def cycle(times):
    """Open and finalize several times in one process; the job has two ranks."""
    seen = []
    for number in range(times):
        async with Client() as me:
            rank = me.rank
            await me.put("round", number)
            await me.fence(collect=True, timeout=10)
            peer = me.job[(me.rank + 1) % me.job.size]
            seen.append(await me.get("round", peer, timeout=10))
            await me.fence(timeout=10)
        # A server that has not seen the end of a peer's old connection would count it out of the next fence.
        await tell(f"closed-{number}-{rank}")
        await hear(f"closed-{number}-{1 - rank}")
    return seen


async def used_after_close():
    """Finalize, finalize again, and use a client that is closed."""
    me = Client()
    errors = {}
    async with me:
        await me.close()
        errors["open after finalize"] = me.is_open
    await me.close()
    for name, call in {"fence": me.fence, "commit": me.commit}.items():
        try:
            await call()
        except PMIxError as error:
            errors[name] = error
    for name in ("get", "put"):
        try:
            await (me.get("x") if name == "get" else me.put("x", 1))
        except PMIxError as error:
            errors[name] = error
    try:
        errors["rank"] = me.rank
    except PMIxError as error:
        errors["rank"] = error
    return errors


async def without_a_proc(me):
    """What a get finds that names no proc: values of the job, then of the caller, then nothing."""
    try:
        await me.get("pmix.no.such.key", timeout=2)
        error = None
    except NotFound as caught:
        error = caught
    size = await me.get(attrs.JOB_SIZE)
    return size, await me.get(attrs.JOB_SIZE, me.job), await me.get(attrs.LOCAL_RANK), error
