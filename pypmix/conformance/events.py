"""Checks of events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pypmix import EventCode, Proc, Range, Rank
from pypmix.conformance.calls import remaining_events
from pypmix.conformance.check import WAIT, Untestable, promised
from pypmix.standard.enums import EXTERNAL_ERR_BASE
from pypmix.types import uint32

if TYPE_CHECKING:
    from pypmix.aio import Client

NOTIFY = "Standard, PMIx_Notify_event"
REGISTER = "Standard, PMIx_Register_event_handler"
LOAD = EventCode.custom(EXTERNAL_ERR_BASE - 1242)
OTHER = EventCode.custom(LOAD - 1)


@promised(
    "events beyond the node", NOTIFY, "an event reaches those that it is for: a proc, some procs, all of a job", ranks=3
)
async def targets(me: Client) -> Any:
    heard = []
    async with me.events(LOAD) as events:
        await me.fence(timeout=WAIT)
        if me.rank == 0:
            await me.notify(LOAD, targets=me.job[1], info={"acme.to": "one"})
            await me.notify(LOAD, targets=[me.job[1], me.job[2]], info={"acme.to": "two"})
            await me.notify(LOAD, targets=Proc(me.nspace, Rank.WILDCARD), info={"acme.to": "all"})
        await me.fence(timeout=WAIT)
        for event in await remaining_events(events):
            heard.append([event.info["acme.to"], event.source.rank])
    return heard


@targets.rule
def _(results: list[Any]) -> list[Any]:
    one, two, everyone = ["one", 0], ["two", 0], ["all", 0]
    return [[everyone], [one, two, everyone], [two, everyone], *[[everyone]] * (len(results) - 3)]


@promised("events: order", NOTIFY, "events of one proc come in their order, to the procs of its node")
async def order(me: Client) -> Any:
    async with me.events(LOAD, OTHER) as events:
        await me.fence(timeout=WAIT)
        if me.rank == 0:
            for number in range(20):
                await me.notify(LOAD if number % 2 else OTHER, data_range=Range.LOCAL, info={"acme.n": uint32(number)})
        await me.fence(timeout=WAIT)
        seen = [[event.code.name, event.info["acme.n"]] for event in await remaining_events(events)]
        return [await _is_near(me), seen]


async def _is_near(me: Client) -> bool:
    """Return True if this rank is on the node of rank 0, which alone gets what that raises for its node."""
    return me.job[0] in await me.raw.resolve_peers(nspace=me.nspace)


def _near(results: list[Any], expected: Any, nothing: Any) -> list[Any]:
    """Return what ranks should have seen that say first whether they are near."""
    return [[True, expected], *[[True, expected] if seen[0] is True else [False, nothing] for seen in results[1:]]]


@order.rule
def _(results: list[Any]) -> list[Any]:
    return _near(results, [["CUSTOM_N4242" if number % 2 else "CUSTOM_N4243", number] for number in range(20)], [])


@promised(
    "events: default handlers", REGISTER, "a handler without codes gets all events, but those for non-default ones"
)
async def by_default(me: Client) -> Any:
    async with me.events() as rest, me.events(LOAD) as loads:
        await me.fence(timeout=WAIT)
        if me.rank == 0:
            await me.notify(OTHER, data_range=Range.LOCAL, non_default=True, info={"acme.n": uint32(1)})
            await me.notify(OTHER, data_range=Range.LOCAL, info={"acme.n": uint32(2)})
            await me.notify(LOAD, data_range=Range.LOCAL, info={"acme.n": uint32(3)})
        await me.fence(timeout=WAIT)
        named = [event.info["acme.n"] for event in await remaining_events(loads)]
        others = [event.info["acme.n"] for event in await remaining_events(rest) if event.code in (LOAD, OTHER)]
        return [await _is_near(me), [named, others]]


@by_default.rule
def _(results: list[Any]) -> list[Any]:
    return _near(results, [[3], [2, 3]], [[], []])


@promised("a kept event comes once", REGISTER, "an event that was raised before a handler was registered comes once")
async def kept(me: Client) -> Any:
    if me.rank == 0:
        await me.notify(LOAD, data_range=Range.LOCAL, cache=False, info={"acme.n": uint32(1)})
        await me.notify(LOAD, data_range=Range.LOCAL, info={"acme.n": uint32(2)})
    await me.fence(timeout=WAIT)
    seen = None
    near = await _is_near(me)
    if me.rank == 1 and near:
        async with me.events(LOAD) as events:
            seen = [event.info["acme.n"] for event in await remaining_events(events, 2.0)]
    await me.fence(timeout=WAIT)
    if me.rank == 1 and not near:
        raise Untestable("rank 1 is not on the node of rank 0, whose events are for that")
    return seen


@kept.rule
def _(results: list[Any]) -> list[Any]:
    return [None, [2], *[None] * (len(results) - 2)]
