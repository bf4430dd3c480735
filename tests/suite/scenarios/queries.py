"""Queries, and the procs of a node and the nodes of a job."""

from __future__ import annotations

import os

from lib.aio import hear, tell
from pypmix import PMIxError, Proc, Query, Rank, attrs


async def attempt(call):
    """Return what a call returns or raises."""
    try:
        return await call()
    except PMIxError as error:
        return error


async def known(me):
    """What every process may ask of its server."""
    found = {
        "own nspace": me.nspace in (await me.query(attrs.QUERY_NAMESPACES)).split(","),
        "size": await me.query(attrs.JOB_SIZE),
        "size by nspace": await me.query(attrs.JOB_SIZE, nspace=me.nspace),
        "size by proc": await me.query(attrs.JOB_SIZE, proc=Proc(me.nspace, Rank.WILDCARD)),
        "default": await me.query("acme.no.such.key", default="fallback"),
        "unknown": await attempt(lambda: me.query("acme.no.such.key")),
    }
    await me.fence(timeout=20)
    return found


async def several(me):
    """Keys with an answer before and behind keys without one."""
    found = await me.query([attrs.JOB_SIZE, "acme.gone", attrs.QUERY_NAMESPACES, "acme.nor.this"])
    nothing = await me.query(["acme.gone", "acme.nor.this"])
    await me.fence(timeout=20)
    return (
        (sorted(found), found.missing, found[attrs.JOB_SIZE], me.nspace in found[attrs.QUERY_NAMESPACES].split(",")),
        (dict(nothing), nothing.missing),
    )


async def one_to_one(me):
    """Several queries with qualifiers of their own, and values with their types."""
    job = Query((str(attrs.JOB_SIZE),), (attrs.NSPACE(me.nspace),))
    found = await me.raw.query_info([Query((str(attrs.QUERY_NAMESPACES),)), job])
    single = await me.raw.query_info(job)
    await me.fence(timeout=20)
    return [info.key for info in found], single


async def tables(me):
    """Who runs where, and under which pid."""
    await tell(f"pid.{me.rank}", str(os.getpid()))
    pids = {rank: int(await hear(f"pid.{rank}")) for rank in range(me.job.size)}
    everybody = await me.query(attrs.QUERY_PROC_TABLE, nspace=me.nspace)
    local = await me.query(attrs.QUERY_LOCAL_PROC_TABLE, nspace=me.nspace)
    unknown = await attempt(lambda: me.query(attrs.QUERY_PROC_TABLE, nspace="no.such.nspace"))
    await me.fence(timeout=20)
    rows = [
        (row.proc.nspace == me.nspace, row.hostname == me.node.hostname, row.pid == pids[row.proc.rank])
        for row in everybody
    ]
    ranks = sorted(row.proc.rank for row in everybody), sorted(row.proc.rank for row in local)
    return rows, ranks, bool(everybody[0].executable), unknown


async def resolved(me):
    host = me.node.hostname
    found = {
        "peers": sorted(await me.raw.resolve_peers(host, me.nspace)),
        "own node": sorted(await me.raw.resolve_peers(nspace=me.nspace)),
        "nodes": await me.raw.resolve_nodes(me.nspace) == (host,),
        "everything": set(me.job.procs) <= set(await me.raw.resolve_peers(host)),
        "all nodes": host in await me.raw.resolve_nodes(),
        "elsewhere": await me.raw.resolve_peers("no.such.node", me.nspace),
        "nobody": await attempt(lambda: me.raw.resolve_peers(host, "no.such.nspace")),
    }
    await me.fence(timeout=20)
    return found


async def nodes_of_nothing(me):
    error = await attempt(lambda: me.raw.resolve_nodes("no.such.nspace"))
    await me.fence(timeout=20)
    return error


async def support(me):
    """What the client's own library supports."""
    functions = await me.query(attrs.QUERY_ATTRIBUTE_SUPPORT, info={attrs.CLIENT_FUNCTIONS: "all"})
    attributes = await me.query(attrs.QUERY_ATTRIBUTE_SUPPORT, info={attrs.CLIENT_ATTRIBUTES: "PMIx_Get"})
    await me.fence(timeout=20)
    names = [name for info in functions for name in info.value.data.split(",")]
    keys = [attr.key for info in attributes if info.key == "PMIx_Get" for attr in info.value.data.items]
    return "PMIx_Fence" in names, "pmix.timeout" in keys


async def refused(me):
    """Mistakes are errors at the call and leave everything else as it was."""
    errors = {}
    mistakes = {
        "empty key": lambda: me.query(""),
        "long key": lambda: me.query("k" * 600),
        "no key": lambda: me.query(5),
        "no keys": lambda: me.query([]),
        "no query": lambda: me.raw.query_info(["abc"]),
        "empty query": lambda: me.raw.query_info(Query(())),
        "no nspace": lambda: me.query("abc", nspace=5),
        "long nspace": lambda: me.raw.resolve_peers(nspace="n" * 256),
        "no node": lambda: me.raw.resolve_peers(5),
        "node with NUL": lambda: me.raw.resolve_peers("a\0b"),
    }
    for name, mistake in mistakes.items():
        try:
            await mistake()
        except (TypeError, ValueError, OverflowError) as error:
            errors[name] = type(error).__name__
    size = await me.query(attrs.JOB_SIZE)
    await me.fence(timeout=20)
    return errors, size


async def lonely(me):
    """A lone process knows what it knows."""
    return {
        "size": await me.query(attrs.JOB_SIZE),
        "peers": await me.raw.resolve_peers(nspace=me.nspace) == (me.proc,),
        "several": dict(await me.query([attrs.JOB_SIZE, "acme.what", "acme.else"])),
        "namespaces": await attempt(lambda: me.query(attrs.QUERY_NAMESPACES)),
        "supports": [me.supports(name) for name in ("query", "resolve_peers", "resolve_nodes")],
    }
