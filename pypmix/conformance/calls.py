"""Calls that several checks share."""

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
    """Return the next proc of the job; after the last one, the first."""
    return me.job[(me.rank + 1) % me.job.size]


async def outcome(call: Callable[[], Awaitable[Any]]) -> Any:
    """Return the result of a call, or the name of the status with which it fails; raise `NotSupported`."""
    try:
        return await call()
    except NotSupported:
        raise
    except ConstructAborted:
        # Its code is the code of an event, not a status.
        return EventCode.GROUP_CONSTRUCT_ABORT.name
    except PMIxError as error:
        return error.status.name


async def get_eventually(me: Client, key: str, proc: Proc) -> Any:
    """Get a value that a proc is about to put, repeatedly: some servers answer too early, after any commit."""
    deadline = time.monotonic() + WAIT
    while time.monotonic() < deadline:
        try:
            return await me.get(key, proc, timeout=1)
        except (NotFound, OperationTimeout):
            continue
    return await me.get(key, proc, timeout=1)


async def remaining_events(stream: EventStream, quiet: float = 1.0) -> list[Event]:
    """Return the events of a stream until no event arrives for `quiet` seconds."""
    found: list[Event] = []
    while True:
        try:
            found.append(await stream.get(timeout=quiet))
        except OperationTimeout:
            return found


async def all_of(*calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """Make calls concurrently, and return their results; raise the first error."""
    found = await together(*calls)
    for each in found:
        if isinstance(each, BaseException):
            raise each
    return found
