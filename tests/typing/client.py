"""Checked by mypy, never run: what the public API infers for the programs of its users."""

from __future__ import annotations

import json
import marshal
import pickle
from pathlib import Path
from typing import Any, assert_type

import pypmix
from pypmix import (
    AllocDirective,
    Client,
    ConnectEvent,
    Connection,
    Event,
    EventCode,
    EventStream,
    Group,
    Info,
    InputWriter,
    IOFChannel,
    Job,
    NotFound,
    OperationTimeout,
    Output,
    OutputStream,
    Persist,
    PMIxError,
    Proc,
    ProcSet,
    Query,
    Range,
    Rank,
    Scope,
    SpawnedJob,
    Status,
    Value,
    aio,
    attrs,
)
from pypmix.events import Answer
from pypmix.steps import Values
from pypmix.types import (
    Answers,
    Credential,
    DeviceDistance,
    Fabric,
    LookupResults,
    ProcSets,
    PsetChange,
    PsetStream,
    Published,
)


def connections() -> None:
    with Client() as me, me.connect(me.job.procs, connect_id="acme") as both:
        assert_type(both, Connection)
        assert_type(both.nspace, str | None)
        assert_type(both.rank, int | None)
        assert_type(both[0], Proc)
        assert_type(both.procs, ProcSet)
        assert_type(both.jobs["other"], Job)
        assert_type(both.fence(), None)
        me.fence(both)
        me.on(ConnectEvent.TERMINATED)
        me.raw.disconnect(both.address or both)


async def connections_in_a_loop(me: aio.Client) -> None:
    async with await me.connect(me.job.procs) as both:
        assert_type(both, aio.Connection)
        await both.fence()


def process_sets() -> None:
    with Client() as me:
        assert_type(me.psets, ProcSets)
        gpu = me.psets["gpu"]
        assert_type(gpu, ProcSet)
        assert_type(gpu.name, str | None)
        assert_type(gpu[0], Proc)
        assert_type(gpu[1:], ProcSet)
        assert_type([proc.rank for proc in gpu], list[int])
        assert_type(me.job.procs - gpu, ProcSet)
        assert_type(gpu | [me.proc], ProcSet)
        assert_type([me.proc] | gpu, ProcSet)
        assert_type(gpu - me.proc, ProcSet)
        assert_type(me.psets.of(me.proc), tuple[str, ...])
        gpu | "demo"  # type: ignore[operator]
        ProcSet("demo")  # type: ignore[arg-type]
        me.fence(gpu)
        me.group("acme.gpu", gpu)
        with me.watch_psets() as changes:
            assert_type(changes, PsetStream)
            for change in changes:
                assert_type(change, PsetChange)
                assert_type(change.members, ProcSet)


async def process_sets_awaited() -> None:
    async with aio.Client() as me:
        assert_type(await me.psets, ProcSets)
        assert_type(await me.psets(), ProcSets)
        async with me.watch_psets() as changes:
            async for change in changes:
                assert_type(change, PsetChange)


def identity() -> None:
    with Client() as me:
        assert_type(me, Client)
        assert_type(me.proc, Proc)
        assert_type(me.rank, int)
        assert_type(me.nspace, str)
        assert_type(me.job.size, int)
        assert_type(me.job[0], Proc)
        assert_type(me.job.procs, ProcSet)
        assert_type([proc.rank for proc in me.job], list[int])
        assert_type(me.node.hostname, str)
        assert_type(me.node.local_procs, ProcSet)
        assert_type(me.engine.name, str)
        assert_type(str(me.engine), str)
        assert_type(me.singleton, bool)


def data(me: Client) -> None:
    assert_type(me.put("key", 1), None)
    me.put("key", pypmix.types.uint32(7), scope=Scope.REMOTE)
    me.put("key", [1, 2, 3])
    me.put(attrs.TIMEOUT, 5)
    assert_type(me.get("key"), Any)
    assert_type(me.raw.get(me.job[0], "key"), Value)
    me.get(attrs.JOB_SIZE, Proc(me.nspace, Rank.WILDCARD))
    me.get("key", default=None, timeout=2.5, scope=Scope.LOCAL)
    me.fence()
    me.fence(me.proc, collect=True, timeout=30)
    me.fence(me.job, info=[attrs.TIMEOUT(5)])
    me.fence([me.job[0], me.job[1]], info={attrs.COLLECT_DATA: True})
    me.abort(3, "enough", procs=me.job)


def answers_of_attributes_have_their_type(me: Client) -> None:
    assert_type(me.get(attrs.JOB_SIZE, me.job), int)
    assert_type(me.get(attrs.HOSTNAME), str)
    assert_type(me.get(attrs.JOB_SIZE, me.job, default=None), int | None)
    assert_type(me.get("key", 1, timeout=5), Any)
    me.fence([0, 1])
    me.fence(0)
    me.group("acme.some", range(2))
    me.control(1).kill()
    me.query(attrs.PROC_PID, proc=1)
    assert_type(me.lookup("key", timeout=5), Any)


def values() -> None:
    assert_type(pypmix.types.uint32(7), Value)
    assert_type(attrs.TIMEOUT(5), Info)
    assert_type(pypmix.types.info("key", 1), Info)
    assert_type(Proc("nspace", 0).rank, int)


def published(me: Client) -> None:
    assert_type(me.publish({"port": 1}, persist=Persist.PROC), None)
    found = me.lookup(["port"], timeout=float("inf"), count=1)
    assert_type(found, LookupResults)
    assert_type(found["port"], Published)
    assert_type(found["port"].by, Proc)
    assert_type(found.missing, frozenset[str])
    assert_type(me.unpublish("port"), None)


def grouped(me: Client) -> None:
    assert_type(me.group("g", me.job, context_id=True, timeout=5).construct(), Group)
    assert_type(me.raw.group_destruct("g"), None)
    with me.group("g", [me.proc]) as group:
        assert_type(group, Group)
        assert_type(group.context_id, int | None)
        assert_type(group.members, ProcSet)
        me.fence(group)


def spawned(me: Client) -> None:
    job = me.spawn(["./worker", "--fast"], n=4, env={"A": "1"}, stdin=Rank.WILDCARD)
    assert_type(job, SpawnedJob)
    assert_type(job.wait(timeout=5), int)
    assert_type(job[0], Proc)
    assert_type(me.spawn([pypmix.app(["a"], n=2), pypmix.app(["b"])]).size, int)
    assert_type(me.parent, Proc | None)
    with me.output(job, IOFChannel.STDOUT) as output:
        assert_type(output, OutputStream)
        assert_type(output.get(timeout=1).text, str)
        for piece in output:
            assert_type(piece, Output)
    with me.input(job) as stdin:
        assert_type(stdin, InputWriter)
        assert_type(stdin.write("text"), int)
    assert_type(me.input(job[0]).write(b"bytes"), int)


def queried(me: Client) -> None:
    assert_type(me.query(attrs.QUERY_NAMESPACES, default=None), Any)
    found = me.query([attrs.JOB_SIZE, "key"], nspace=me.nspace, refresh=True)
    assert_type(found, Answers)
    assert_type(found[attrs.JOB_SIZE], Any)
    found.get(attrs.JOB_SIZE, 0)
    assert_type(list(found), list[str])
    assert_type(found.missing, frozenset[str])
    assert_type(found.infos, tuple[Info, ...])
    assert_type(me.raw.query_info(Query(("key",))), tuple[Info, ...])
    assert_type(me.raw.resolve_peers(nspace=me.nspace), tuple[Proc, ...])
    assert_type(me.raw.resolve_nodes(), tuple[str, ...])


def controlled(me: Client) -> None:
    assert_type(me.log("text", to=["stderr", attrs.LOG_SYSLOG], tag=True), None)
    me.log({attrs.LOG_STDOUT: "text"})
    assert_type(me.control().request(info={attrs.JOB_CTRL_ID: "x"}), Answers)
    assert_type(me.control(me.job).signal(10), None)
    me.control(me.job[1]).kill()
    me.control().register_cleanup(Path("x"), ignore=["y"])
    assert_type(me.allocate(nodes=2), Answers)
    assert_type(me.allocate(AllocDirective.RELEASE), Answers)
    assert_type(me.monitors.watch(attrs.MONITOR_HEARTBEAT(True), EventCode.MONITOR_HEARTBEAT_ALERT), Answers)
    assert_type(me.monitors.watch_heartbeat(5), str)
    assert_type(me.monitors.watch_file(Path("x"), 5, size=True), str)
    assert_type(me.monitors.send_heartbeat(), None)
    credential = me.credentials.get()
    assert_type(credential, Credential)
    assert_type(credential.data, bytes)
    assert_type(credential.info, Answers)
    assert_type(me.credentials.validate(credential), Answers)
    assert_type(me.fabric.update(me.fabric.register()), Fabric)
    assert_type(me.fabric.compute_distances("0-3"), tuple[DeviceDistance, ...])


def features(me: Client) -> None:
    assert_type(me.supports("fence.timeout"), bool)
    me.supports("fence.timout")  # type: ignore[arg-type]


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
        assert_type(await me.raw.get(me.proc, "key"), Value)
        assert_type(await me.fence(timeout=5), None)
        assert_type(await me.publish({"port": 1}), None)
        assert_type(await me.lookup("port", timeout=5), Any)
        assert_type(await me.lookup(["port"]), LookupResults)
        assert_type(me.rank, int)
        assert_type(await me.query(["key"]), Answers)
        assert_type(await me.raw.resolve_nodes(), tuple[str, ...])
        assert_type(await me.credentials.get(), Credential)
        assert_type(await me.monitors.send_heartbeat(), None)
        job = await me.spawn(["./worker"])
        assert_type(await job.wait(), int)
        async with me.output(job) as output, me.input(job) as stdin:
            assert_type(await stdin.write(b"x"), int)
            async for piece in output:
                assert_type(piece, Output)


def mistakes(me: Client) -> None:
    """Each of these lines must be an error, or mypy reports that its `ignore` is not needed."""
    me.put(5, "value")  # type: ignore[arg-type]
    me.put("key", "value", EventCode.PROC_TERMINATED)  # type: ignore[arg-type]
    me.publish({"key": 1}, data_range=Scope.LOCAL)  # type: ignore[arg-type]
    me.publish({"key": 1}, persist=Range.LOCAL)  # type: ignore[arg-type]
    me.on(Scope.LOCAL)  # type: ignore[arg-type]
    me.notify(3)  # type: ignore[arg-type]
    me.fence(timeout="soon")  # type: ignore[arg-type]
    me.get("key", "nspace")  # type: ignore[call-overload]
    me.lookup(5)  # type: ignore[call-overload]
    me.unpublish(5)  # type: ignore[arg-type]
    me.raw.resolve_peers(5)  # type: ignore[arg-type]
    me.control(me.job).signal("TERM")  # type: ignore[arg-type]
    me.credentials.validate("text")  # type: ignore[arg-type]
    me.spawn("./worker", n="2")  # type: ignore[arg-type]
    me.output(me.job, "stdout")  # type: ignore[arg-type]
    me.input(me.job).write(5)  # type: ignore[arg-type]
    attrs.TIMEOUT("soon")  # type: ignore[arg-type]
    me.rank = 3  # type: ignore[misc]
    Proc("nspace")  # type: ignore[call-arg]


def hearing_of_events(me: Client) -> None:
    with me.events(EventCode.PROC_TERMINATED, EventCode.custom(-4242), buffer=10) as events:
        assert_type(events, EventStream)
        assert_type(events.get(timeout=1.5), Event)
        assert_type(events.dropped, int)
        for event in events:
            assert_type(event, Event)
            assert_type(event.code, EventCode)
            assert_type(event.affected, tuple[Proc, ...])
            assert_type(event.info["x"], Any)
    me.notify(EventCode.custom(-4242), targets=me.job[0], info={"acme.x": 1})

    @me.on(EventCode.custom(-4242), order="first")
    def handler(event: Event) -> Answer:
        return event.done({"acme.seen": True})

    assert_type(handler.id, int)
    handler.remove()


async def hearing_of_events_in_a_loop(me: aio.Client) -> None:
    async with me.events() as events:
        assert_type(await events.get(), Event)
        async for event in events:
            assert_type(event, Event)

    @me.on()
    async def handler(event: Event) -> None:
        await me.notify(EventCode.custom(-4242))

    await handler.ready()
    await me.connect(me.job.procs, timeout=3)


def names_that_do_not_exist() -> None:
    pypmix.Clinet  # type: ignore[attr-defined]  # noqa: B018
    aio.Clinet  # type: ignore[attr-defined]  # noqa: B018


class Doubled:
    def dumps(self, obj: Any, /) -> bytes:
        return bytes(obj) * 2

    def loads(self, data: bytes, /) -> bytes:
        return data[::2]


def given(me: Client) -> None:
    assert_type(me.bcast(b"id", 0, timeout=5), Any)
    assert_type(me.allgather({"a": 1}, codec=json), Values)
    assert_type(me.gather(1, codec=pickle), Values | None)
    assert_type(me.scatter([b"a", b"b"], codec=Doubled()), Any)
    assert_type(me.fence(timeout=1), None)
    assert_type(me.get("key", 0, refresh=True), Any)
    me.bcast(1, codec="json")  # type: ignore[arg-type]
    me.bcast(1, codec=Path)  # type: ignore[arg-type]


async def given_awaited(me: aio.Client) -> None:
    assert_type(await me.allgather(1, codec=marshal), Values)
    assert_type(await me.fence(), None)
