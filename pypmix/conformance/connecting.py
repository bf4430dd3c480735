"""Checks of connect and disconnect."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pypmix import Proc, Rank
from pypmix.conformance.awaited import sleep
from pypmix.conformance.calls import all_of, outcome, ranks
from pypmix.conformance.check import MEANWHILE, WAIT, Untestable, promised
from pypmix.conformance.events import LOAD

if TYPE_CHECKING:
    from collections.abc import Callable

    from pypmix.aio import Client, Connection

CONNECT = "RFC 0003, PMIx_Connect"
DISCONNECT = "RFC 0003, PMIx_Disconnect"
DESCRIPTION = "RFC 0003, Description"
CONNECTED = ("connect: order",)
NSPACE = ("connect: nspace",)


@promised("connect: order", DESCRIPTION, "the order of the procs does not matter")
async def within(me: Client) -> Any:
    procs = me.job.procs if me.rank % 2 else tuple(reversed(me.job.procs))
    for _ in range(2):
        if me.rank == me.job.size - 1:
            await sleep(MEANWHILE)
        made = await me.connect(procs, timeout=WAIT)
        await made.disconnect(timeout=WAIT)
    await me.fence(timeout=WAIT)
    return "connected"


@within.rule
def _(results: list[Any]) -> list[Any]:
    return ["connected"] * len(results)


@promised(
    "connect: several at once",
    DESCRIPTION,
    "a process may take part in several connects at a time",
    ranks=3,
    needs=CONNECTED,
)
async def several(me: Client) -> Any:
    others = [proc for proc in me.job if proc != me.proc]
    calls: list[Callable[[], Any]] = [
        lambda proc=proc: me.connect([me.proc, proc], timeout=WAIT)  # type: ignore[misc]
        for proc in others[me.rank :] + others[: me.rank]
    ]
    made: list[Connection] = await all_of(*calls)
    # Pairs that share a proc must disconnect concurrently, as their procs may use different orders.
    await all_of(*[lambda each=each: each.disconnect(timeout=WAIT) for each in made])
    await me.fence(timeout=WAIT)
    return [
        sorted(rank for each in made for rank in ranks(each) if rank != me.rank),
        any(each.is_open for each in made),
    ]


@several.rule
def _(results: list[Any]) -> list[Any]:
    size = len(results)
    return [[[other for other in range(size) if other != rank], False] for rank in range(size)]


@promised("connect: timeout", CONNECT, "an error when somebody has not come in time", needs=CONNECTED)
async def connect_timeout(me: Client) -> Any:
    seen = None
    if me.rank != me.job.size - 1:
        seen = await outcome(lambda: me.connect(me.job.procs, timeout=1))
    await me.fence(timeout=WAIT)
    return seen


@connect_timeout.rule
def _(results: list[Any]) -> list[Any]:
    return [*["ERR_TIMEOUT"] * (len(results) - 1), None]


@promised("disconnect: unknown", DISCONNECT, "an nspace that is not known, or no more, is an error", needs=CONNECTED)
async def unknown(me: Client) -> Any:
    seen = await outcome(lambda: me.raw.disconnect(Proc("acme.none", Rank.WILDCARD), timeout=5))
    await me.fence(timeout=WAIT)
    return seen


@unknown.rule
def _(results: list[Any]) -> list[Any]:
    return ["ERR_NOT_FOUND"] * len(results)


async def _connect_all(me: Client) -> Connection:
    """Connect all procs, which name the participants in different ways."""
    if not me.supports("connect.nspace"):
        raise Untestable("the server assigns no nspace to a connection")
    procs = tuple(reversed(me.job.procs)) if me.rank % 2 else Proc(me.nspace, Rank.WILDCARD)
    return await me.connect(procs, timeout=WAIT)


@promised("connect: nspace", CONNECT, "an nspace that no other has, the same for all", needs=CONNECTED)
async def nspace(me: Client) -> Any:
    both = await _connect_all(me)
    made = [both.nspace != me.nspace and both.nspace, both.rank, ranks(both)]
    await both.disconnect(timeout=WAIT)
    await me.fence(timeout=WAIT)
    return made


@nspace.rule
def _(results: list[Any]) -> list[Any] | str:
    if not results[0][0]:
        return "the nspace of the connection is that of the job, or none"
    return [[results[0][0], rank, [*range(len(results))]] for rank in range(len(results))]


@promised("nspace: fence", DESCRIPTION, "the nspace in a fence", needs=NSPACE)
async def fenced(me: Client) -> Any:
    both = await _connect_all(me)
    assert both.nspace
    await me.put("acme.rank", me.rank)
    await me.fence(Proc(both.nspace, Rank.WILDCARD), collect=True, timeout=WAIT)
    await me.fence([Proc(both.nspace, rank) for rank in range(me.job.size)], timeout=WAIT)
    values = [await me.get("acme.rank", Proc(both.nspace, rank)) for rank in range(me.job.size)]
    await both.disconnect(timeout=WAIT)
    gone = await outcome(lambda: me.raw.disconnect(both.address, timeout=WAIT))
    await me.fence(timeout=WAIT)
    return [values, gone]


@fenced.rule
def _(results: list[Any]) -> list[Any]:
    return [[[*range(len(results))], "ERR_NOT_FOUND"]] * len(results)


@promised("nspace: notify", DESCRIPTION, "the nspace as the range of an event", needs=NSPACE)
async def notified(me: Client) -> Any:
    both = await _connect_all(me)
    assert both.nspace
    async with me.events(LOAD) as events:
        await both.fence(timeout=WAIT)
        if me.rank == 1:
            await me.notify(LOAD, targets=Proc(both.nspace, Rank.WILDCARD), info={"acme.to": "all"})
        event = await events.get(timeout=WAIT)
    await both.disconnect(timeout=WAIT)
    await me.fence(timeout=WAIT)
    return [event.info["acme.to"], event.source.rank]


@notified.rule
def _(results: list[Any]) -> list[Any]:
    return [["all", 1]] * len(results)
