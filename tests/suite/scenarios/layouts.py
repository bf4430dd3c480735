"""The last rank of a job ends before the others call what needs it, or while they wait in that."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from pypmix import EventCode
from pypmix.conformance.calls import outcome, ranks, remaining_events
from pypmix.conformance.check import WAIT
from pypmix.conformance.losses import ENDS, _die

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pypmix.aio import Client

NAME = "acme.layout"


async def _prepared(me: Client, operation: str) -> Callable[[], Awaitable[Any]]:
    """Return a call of an operation by all ranks, after what it needs was done."""
    if operation == "destruct":
        await me.group(NAME, me.job.procs, timeout=WAIT).construct()
        return lambda: me.raw.group_destruct(NAME, timeout=WAIT)
    if operation == "construct":
        return lambda: me.group(NAME, me.job.procs, timeout=WAIT).construct()
    if operation == "connect":
        return lambda: me.connect(me.job.procs, timeout=WAIT)
    if operation == "disconnect":
        await me.connect(me.job.procs, timeout=WAIT)
        return lambda: me.raw.disconnect(me.job.procs, timeout=WAIT)
    return lambda: me.fence(timeout=WAIT)


async def ended(me: Client, operation: str, early: bool) -> Any:
    """Return what the operation ends with, and then a fence of those who live."""
    *living, dead = me.job.procs
    call = await _prepared(me, operation)
    async with me.events(*ENDS) as events:
        await me.fence(timeout=WAIT)
        if me.proc == dead:
            for proc in () if early else living:
                await me.get("acme.waits", proc, timeout=WAIT)
            _die()
        if early:
            # The server of this node knows of the end before it is called.
            event = await events.get(timeout=WAIT)
            assert dead in (event.affected or (event.source,)), event
            found = await outcome(call)
        else:
            waiting = asyncio.ensure_future(outcome(call))
            # What is sent later comes later, so that whoever reads this knows that the call is with its server.
            await asyncio.sleep(0.2)
            assert not waiting.done(), await waiting
            await me.put("acme.waits", True)
            await me.commit()
            found = await waiting
    return [found if isinstance(found, str) else None, await outcome(lambda: me.fence(living, timeout=WAIT))]


async def led_last(me: Client) -> Any:
    """The leader calls a construct last, when a member has ended; return the members, and who hears of the member."""
    *living, dead = me.job.procs
    directives = {"notify_termination": True, "timeout": WAIT}
    async with me.events(EventCode.GROUP_MEMBER_FAILED) as failures, me.events(*ENDS) as events:
        await me.fence(timeout=WAIT)
        if me.proc == dead:
            for proc in living[1:]:
                await me.get("acme.waits", proc, timeout=WAIT)
            _die()
        leads = me.proc == living[0]
        if leads:
            # It calls when its server knows of the end.
            await events.get(timeout=WAIT)
        making = asyncio.ensure_future(me.group(NAME, me.job.procs, leader=leads, **directives).construct())
        if not leads:
            await asyncio.sleep(0.2)
            assert not making.done(), await making
            await me.put("acme.waits", True)
            await me.commit()
        made = await making
        await me.fence(living, timeout=WAIT)
        heard = [ranks(event.affected) for event in await remaining_events(failures)]
        # Nobody ends before all have heard.
        await me.fence(living, timeout=WAIT)
    return [ranks(made.membership.results.members), heard]
