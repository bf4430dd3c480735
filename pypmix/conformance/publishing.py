"""Checks of publish, lookup and unpublish."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pypmix import Persist, Range
from pypmix.conformance.awaited import sleep
from pypmix.conformance.calls import outcome
from pypmix.conformance.check import MEANWHILE, WAIT, promised

if TYPE_CHECKING:
    from pypmix.aio import Client

PUBLISH = "Standard, PMIx_Publish"
LOOKUP = "Standard, PMIx_Lookup"
UNPUBLISH = "Standard, PMIx_Unpublish"


@promised("publish", PUBLISH, "what a rank publishes is found by all")
async def published(me: Client) -> Any:
    await me.publish({f"acme.port.{me.rank}": f"tcp://{me.rank}"})
    await me.fence(timeout=WAIT)
    seen = [await me.lookup(f"acme.port.{rank}") for rank in range(me.job.size)]
    await me.fence(timeout=WAIT)
    return seen


@published.rule
def _(results: list[Any]) -> list[Any]:
    return [[f"tcp://{rank}" for rank in range(len(results))]] * len(results)


@promised(
    "a lookup of several keys", LOOKUP, "one lookup finds several keys, and who published each", needs=("publish",)
)
async def several(me: Client) -> Any:
    await me.publish({f"acme.port.{me.rank}": f"tcp://{me.rank}"})
    if me.rank == 0:
        await me.publish({"acme.more": 1, "acme.too": 2})
    await me.fence(timeout=WAIT)
    keys = [f"acme.port.{rank}" for rank in range(me.job.size)]
    seen = await me.lookup([*keys, "acme.gone", "acme.more", "acme.too"])
    await me.fence(timeout=WAIT)
    ports = [[seen[key].value, seen[key].by.rank, seen[key].by.nspace == me.nspace] for key in keys]
    return [ports, seen["acme.more"].value, seen["acme.too"].value, sorted(seen.missing)]


@several.rule
def _(results: list[Any]) -> list[Any]:
    ports = [[f"tcp://{rank}", rank, True] for rank in range(len(results))]
    return [[ports, 1, 2, ["acme.gone"]]] * len(results)


@promised("lookup: a missing key", LOOKUP, "a key that was never published is ERR_NOT_FOUND", needs=("publish",))
async def missing(me: Client) -> Any:
    seen = [
        await outcome(lambda: me.lookup("acme.none")),
        await me.lookup("acme.none", default="instead"),
        await outcome(lambda: me.lookup("acme.none", timeout=1)),
    ]
    await me.fence(timeout=WAIT)
    return seen


@missing.rule
def _(results: list[Any]) -> list[Any]:
    return [["ERR_NOT_FOUND", "instead", "ERR_TIMEOUT"]] * len(results)


@promised("lookup: waits", LOOKUP, "a lookup with WAIT ends when the key is published", needs=("publish",))
async def lookup_waits(me: Client) -> Any:
    await me.fence(timeout=WAIT)
    if me.rank == me.job.size - 1:
        await sleep(MEANWHILE)
        await me.publish({"acme.late": "there"})
    value = await me.lookup("acme.late", timeout=10)
    await me.fence(timeout=WAIT)
    return value


@lookup_waits.rule
def _(results: list[Any]) -> list[Any]:
    return ["there"] * len(results)


@promised(
    "a lookup waits for all of its keys",
    LOOKUP,
    "a lookup with WAIT ends when all of its keys are published",
    needs=("publish",),
)
async def lookup_waits_for_each(me: Client) -> Any:
    await me.fence(timeout=WAIT)
    seen = None
    keys = ["acme.one", "acme.two", "acme.three"]
    if me.rank == 0:
        found = await me.lookup(keys, timeout=10)
        seen = {key: item.value for key, item in found.items()}
    elif me.rank == 1:
        for number, key in enumerate(keys):
            await sleep(MEANWHILE)
            await me.publish({key: number})
    await me.fence(timeout=WAIT)
    return seen


@lookup_waits_for_each.rule
def _(results: list[Any]) -> list[Any]:
    return [{"acme.one": 0, "acme.two": 1, "acme.three": 2}, *[None] * (len(results) - 1)]


@promised("unpublish", UNPUBLISH, "what was taken back is gone, and may be published again", needs=("publish",))
async def taken_back(me: Client) -> Any:
    if me.rank == 0:
        await me.publish({"acme.kept": 1})
        await me.publish({"acme.taken": 2})
    await me.fence(timeout=WAIT)
    before = await me.lookup("acme.taken")
    await me.fence(timeout=WAIT)
    if me.rank == 0:
        await me.unpublish("acme.taken")
    await me.fence(timeout=WAIT)
    between = [await me.lookup("acme.taken", default="gone"), await me.lookup("acme.kept")]
    await me.fence(timeout=WAIT)
    if me.rank == 0:
        await me.publish({"acme.taken": "again"})
    await me.fence(timeout=WAIT)
    return [before, *between, await me.lookup("acme.taken")]


@taken_back.rule
def _(results: list[Any]) -> list[Any]:
    return [[2, "gone", 1, "again"]] * len(results)


@promised("duplicate keys are refused", PUBLISH, "a key that is there already is ERR_DUPLICATE_KEY", needs=("publish",))
async def twice(me: Client) -> Any:
    seen = None
    if me.rank == 0:
        await me.publish({"acme.key": "first"})
        again = await outcome(lambda: me.publish({"acme.other": 0, "acme.key": "again"}))
        await me.publish({"acme.key": "own"}, data_range=Range.PROC_LOCAL)
        seen = [again, await me.lookup("acme.other", default="not published")]
    await me.fence(timeout=WAIT)
    value = await me.lookup("acme.key")
    await me.fence(timeout=WAIT)
    return [seen, value]


@twice.rule
def _(results: list[Any]) -> list[Any]:
    return [[["ERR_DUPLICATE_KEY", "not published"], "own"], *[[None, "first"]] * (len(results) - 1)]


@promised(
    "a range of the proc itself",
    PUBLISH,
    "all find what is for NAMESPACE, SESSION and GLOBAL, those of the node LOCAL, and the proc itself PROC_LOCAL",
    needs=("publish",),
)
async def ranges(me: Client) -> Any:
    kinds = (Range.NAMESPACE, Range.SESSION, Range.GLOBAL, Range.LOCAL, Range.PROC_LOCAL)
    if me.rank == 0:
        for kind in kinds:
            await me.publish({f"acme.{kind.name}": kind.name}, data_range=kind)
    await me.fence(timeout=WAIT)
    seen = [await me.lookup(f"acme.{kind.name}", default=None) for kind in kinds]
    await me.fence(timeout=WAIT)
    return [me.job[0] in await me.raw.resolve_peers(nspace=me.nspace), *seen]


@ranges.rule
def _(results: list[Any]) -> list[Any]:
    everyone = ["NAMESPACE", "SESSION", "GLOBAL"]
    return [
        [here, *everyone, "LOCAL" if here else None, None if rank else "PROC_LOCAL"]
        for rank, (here, *_) in enumerate(results)
    ]


@promised("publish: first read", PUBLISH, "data with PERSIST_FIRST_READ is gone when it was read", needs=("publish",))
async def read_once(me: Client) -> Any:
    first = None
    if me.rank == 0:
        await me.publish({"acme.once": 1}, persist=Persist.FIRST_READ)
        first = await me.lookup("acme.once", default="gone")
    await me.fence(timeout=WAIT)
    second = await me.lookup("acme.once", default="gone")
    await me.fence(timeout=WAIT)
    return [first, second]


@read_once.rule
def _(results: list[Any]) -> list[Any]:
    return [[1, "gone"], *[[None, "gone"]] * (len(results) - 1)]
