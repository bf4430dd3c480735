"""Checked by mypy, never run: what the public API infers for the programs of its users."""

from __future__ import annotations

from typing import Any, assert_type

import pypmix
from pypmix import (
    Client,
    Info,
    NotFound,
    OperationTimeout,
    Persist,
    PMIxError,
    Proc,
    Published,
    PublishedData,
    Rank,
    Scope,
    Status,
    Value,
    aio,
    attrs,
)


def identity() -> None:
    with Client() as me:
        assert_type(me, Client)
        assert_type(me.proc, Proc)
        assert_type(me.rank, int)
        assert_type(me.nspace, str)
        assert_type(me.job.size, int)
        assert_type(me.job[0], Proc)
        assert_type(me.job.procs, tuple[Proc, ...])
        assert_type([proc.rank for proc in me.job], list[int])
        assert_type(me.node.hostname, str)
        assert_type(me.node.local_procs, tuple[Proc, ...])
        assert_type(me.engine.name, str)
        assert_type(str(me.engine), str)
        assert_type(me.singleton, bool)


def data(me: Client) -> None:
    assert_type(me.put("key", 1), None)
    me.put("key", pypmix.uint32(7), scope=Scope.REMOTE)
    me.put("key", [1, 2, 3])
    me.put(attrs.TIMEOUT, 5)
    assert_type(me.get("key"), Any)
    assert_type(me.get_value("key", me.job[0]), Value)
    me.get(attrs.JOB_SIZE, Proc(me.nspace, Rank.WILDCARD))
    me.get("key", default=None, wait=2.5, scope=Scope.LOCAL)
    me.fence()
    me.fence(me.proc, collect=True, timeout=30)
    me.fence(me.job, info=[attrs.TIMEOUT(5)])
    me.fence([me.job[0], me.job[1]], info={attrs.COLLECT_DATA: True})
    me.abort(3, "enough", procs=me.job)


def values() -> None:
    assert_type(pypmix.uint32(7), Value)
    assert_type(attrs.TIMEOUT(5), Info)
    assert_type(pypmix.info("key", 1), Info)
    assert_type(Proc("nspace", 0).rank, int)


def published(me: Client) -> None:
    assert_type(me.publish({"port": 1}, persist=Persist.PROC), None)
    found = me.lookup_all(["port"], wait=True, count=1)
    assert_type(found, PublishedData)
    assert_type(found["port"], Published)
    assert_type(found["port"].by, Proc)
    assert_type(found.missing, frozenset[str])
    assert_type(me.unpublish("port"), None)


def errors(me: Client) -> None:
    try:
        me.fence(timeout=1)
    except OperationTimeout as error:
        assert_type(error.status, Status)
        assert_type(error.missing, frozenset[Proc] | None)
        assert_type(error.procs, tuple[Proc, ...])
    except (NotFound, PMIxError) as error:
        assert_type(error.operation, str)


async def in_an_event_loop() -> None:
    async with aio.Client() as me:
        assert_type(me, aio.Client)
        assert_type(await me.get("key"), Any)
        assert_type(await me.get_value("key"), Value)
        assert_type(await me.fence(timeout=5), None)
        assert_type(await me.publish({"port": 1}), None)
        assert_type(await me.lookup("port", wait=5), Any)
        assert_type(await me.lookup_all(["port"]), PublishedData)
        assert_type(me.rank, int)


def mistakes(me: Client) -> None:
    """Each of these lines must be an error, or mypy reports that its `ignore` is not needed."""
    me.put(5, "value")  # type: ignore[arg-type]
    me.fence(timeout="soon")  # type: ignore[arg-type]
    me.get("key", "nspace")  # type: ignore[arg-type]
    me.lookup(["key"])  # type: ignore[arg-type]
    me.unpublish(5)  # type: ignore[arg-type]
    attrs.TIMEOUT("soon")  # type: ignore[arg-type]
    me.rank = 3  # type: ignore[misc]
    Proc("nspace")  # type: ignore[call-arg]
