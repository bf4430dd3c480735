"""Checked by mypy and pyright, never run: typical mistakes, of which both checkers must refuse each.

A line without an error makes its `ignore` superfluous, which both report.
"""

from __future__ import annotations

from typing import Any

import pypmix
from pypmix import Client, EventCode, Group, Scope, aio, attrs
from pypmix.groups import Left
from pypmix.host import Host, requests


def blocking(me: Client, group: Group) -> None:
    me.put("key", 1, "global")  # type: ignore[arg-type]  # a word instead of a Scope
    me.get("key", "rank 1")  # type: ignore[call-overload]  # a word instead of a proc
    me.fence(timeout="5s")  # type: ignore[arg-type]  # a word instead of seconds
    me.fence(me.job, Scope.GLOBAL)  # type: ignore[call-arg, arg-type]  # a further argument without a name
    me.fence(colect=True)  # type: ignore[call-arg]  # a misspelled argument
    me.sise  # type: ignore[attr-defined]  # noqa: B018  # a misspelled attribute
    me.job.size()  # type: ignore[operator]  # a property called
    me.spawn(["./worker"], n="2")  # type: ignore[arg-type]  # a word instead of a number
    me.publish("port", 5000)  # type: ignore[call-arg, arg-type]  # a key and a value instead of a mapping
    size: str = me.get(attrs.JOB_SIZE, me.job)  # type: ignore[assignment]  # an attribute of another type
    attrs.JOB_SIZE("four")  # type: ignore[arg-type]
    pypmix.Clinet()  # type: ignore[attr-defined]
    with me.events(EventCode.ERR_PROC_ABORTED) as events:
        for event in events:
            event.affected.rank  # type: ignore[attr-defined]  # noqa: B018  # several procs instead of one
            event.source.ranks  # type: ignore[attr-defined]  # noqa: B018
    for change in group.changes():
        match change:
            case Left(proc=proc):
                print(proc.rank)  # type: ignore[union-attr]  # None has no rank
    print(size)


async def awaiting(me: aio.Client) -> None:
    address: str = me.lookup("address")  # type: ignore[assignment]  # await is missing
    with me.group("acme.group"):  # type: ignore[attr-defined]  # async with is needed
        pass
    for event in me.events():  # type: ignore[attr-defined]  # async for is needed
        print(event)
    print(address)


class Manager(Host):
    def fence(self, req: requests.FenceRequest) -> str:  # type: ignore[override]  # data is bytes
        return req.dtaa  # type: ignore[attr-defined, no-any-return]

    async def spawn(self, req: requests.FenceRequest) -> str:  # type: ignore[override]  # another upcall's request
        return ""

    def lookup(self, req: requests.LookupRequest, more: int) -> Any:  # type: ignore[override]
        return req.timeout + more  # type: ignore[operator]  # None has no sum
