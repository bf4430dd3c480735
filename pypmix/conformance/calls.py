"""Calls that several checks make."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pypmix import ConstructAborted, EventCode, NotFound, NotSupported, OperationTimeout, PMIxError
from pypmix.conformance.awaited import together
from pypmix.conformance.check import WAIT

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from pypmix import Event, Proc
    from pypmix.aio import Client
    from pypmix.aio.operations.events import EventStream


def ranks(procs: Iterable[Proc]) -> list[int]:
    """Return the ranks of procs."""
    return [int(proc.rank) for proc in procs]


def next_of(me: Client) -> Proc:
    """Return the proc after this one, the first one after the last."""
    return me.job[(me.rank + 1) % me.job.size]


async def outcome(call: Callable[[], Awaitable[Any]]) -> Any:
    """Return what a call returns, or the name of the status that it fails with; `NotSupported` is raised."""
    try:
        return await call()
    except NotSupported:
        raise
    except ConstructAborted:
        # Its code is an event's.
        return EventCode.GROUP_CONSTRUCT_ABORT.name
    except PMIxError as error:
        return error.status.name


async def fetched(me: Client, key: str, proc: Proc) -> Any:
    """Return what a proc is about to put; some servers answer a get that waits when it commits something else."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            return await me.get(key, proc, wait=1)
        except (NotFound, OperationTimeout):
            continue
    return await me.get(key, proc, wait=1)


async def left(stream: EventStream, quiet: float = 1.0) -> list[Event]:
    """Return the events that come until there is none for some seconds."""
    found: list[Event] = []
    while True:
        try:
            found.append(await stream.get(timeout=quiet))
        except OperationTimeout:
            return found


async def all_of(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Make calls at the same time, and return what each returned; the first error is raised."""
    found = await together(*calls)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found
