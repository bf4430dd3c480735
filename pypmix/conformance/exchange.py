"""Checks of job info, put, commit, fence and get."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from pypmix import NotFound, PMIxError, Proc, Rank, Scope, attrs
from pypmix.conformance.awaited import sleep
from pypmix.conformance.calls import get_eventually, next_of, outcome
from pypmix.conformance.check import MEANWHILE, WAIT, promised

if TYPE_CHECKING:
    from pypmix.aio import Client

INIT = "Standard, PMIx_Init"
JOB = "Standard, Job-Level Information"
PUT = "Standard, PMIx_Put"
GET = "Standard, PMIx_Get"
FENCE = "Standard, PMIx_Fence"


@promised("start", INIT, "each rank has a server, its own rank, and the size of the job", ranks=1)
async def start(me: Client) -> Any:
    await me.fence(timeout=WAIT)
    return [me.rank, me.job.size, me.nspace]


@start.rule
def _(results: list[Any]) -> list[Any]:
    return [[rank, len(results), results[0][2]] for rank in range(len(results))]


@promised("job info", JOB, "JOB_SIZE, LOCAL_SIZE, LOCAL_RANK and LOCAL_PEERS are there and agree", ranks=1)
async def job_info(me: Client) -> Any:
    job = Proc(me.nspace, Rank.WILDCARD)
    here = {attrs.NODE_INFO: True, attrs.HOSTNAME: me.node.hostname}
    size = await me.get(attrs.JOB_SIZE, job)
    local = await me.get(attrs.LOCAL_SIZE, job, info=here)
    peers = (await me.get(attrs.LOCAL_PEERS, job, info=here)).split(",")
    own = await me.get(attrs.LOCAL_RANK, me.proc)
    return [size, len(peers) == local, str(me.rank) in peers, 0 <= own < local]


@job_info.rule
def _(results: list[Any]) -> list[Any]:
    return [[len(results), True, True, True]] * len(results)


async def _exchange(me: Client, collect: bool) -> Any:
    await me.put("acme.endpoint", f"tcp://{me.rank}")
    await me.put("acme.number", me.rank * 11)
    await me.fence(collect=collect, timeout=WAIT)
    found = [[await me.get("acme.endpoint", proc), await me.get("acme.number", proc)] for proc in me.job]
    # PRRTE never answers a get from a finalized proc of another node.
    await me.fence(timeout=WAIT)
    return found


def _expect_exchange(results: list[Any]) -> list[Any]:
    return [[[f"tcp://{rank}", rank * 11] for rank in range(len(results))]] * len(results)


@promised("exchange", FENCE, "after a fence with COLLECT_DATA each rank gets what all have put")
async def collected(me: Client) -> Any:
    return await _exchange(me, True)


@promised("exchange on demand", GET, "after a fence without it each get fetches what the proc has put")
async def on_demand(me: Client) -> Any:
    return await _exchange(me, False)


collected.rule(_expect_exchange)
on_demand.rule(_expect_exchange)


@promised("values", PUT, "numbers, texts, bytes and arrays arrive as they were put")
async def values(me: Client) -> Any:
    given: dict[str, Any] = {
        "int": -(2**40),
        "bool": True,
        "float": 0.5,
        "text": "\N{SNOWMAN}",
        "bytes": b"\0\xff",
        "list": [1, 2, 3],
        "texts": ["a", "b"],
        "empty": "",
    }
    for name, value in given.items():
        await me.put(f"acme.{name}", value)
    await me.fence(collect=True, timeout=WAIT)
    peer = next_of(me)
    return [name for name, value in given.items() if await me.get(f"acme.{name}", peer) != value]


@values.rule
def _(results: list[Any]) -> list[Any]:
    return [[]] * len(results)


@promised("exact floats", PUT, "floats arrive with all their digits")
async def floats(me: Client) -> Any:
    given = {"tenth": 0.1, "tiny": 1e-9, "huge": 1.7976931348623157e308, "third": 1 / 3}
    for name, value in given.items():
        await me.put(f"acme.{name}", value)
    await me.fence(collect=True, timeout=WAIT)
    return [await me.get(f"acme.{name}", next_of(me)) for name in given]


@floats.rule
def _(results: list[Any]) -> list[Any]:
    return [[0.1, 1e-9, 1.7976931348623157e308, 1 / 3]] * len(results)


async def _scopes(me: Client) -> dict[str, Any]:
    """Return the values of the next rank in each scope, and whether it is on this node."""
    kinds = (Scope.LOCAL, Scope.REMOTE, Scope.GLOBAL, Scope.INTERNAL)
    for scope in kinds:
        await me.put(f"acme.{scope.name}", f"{scope.name} of {me.rank}", scope=scope)
    await me.fence(collect=True, timeout=WAIT)
    peer = next_of(me)
    seen = {scope.name: await me.get(f"acme.{scope.name}", peer, default=None, timeout=0) for scope in kinds}
    own = [await me.get(f"acme.{scope.name}", default=None, timeout=0) for scope in kinds]
    await me.fence(timeout=WAIT)
    complete = own == [f"{scope.name} of {me.rank}" for scope in kinds]
    return {**seen, "own": complete, "here": peer in await me.raw.resolve_peers(nspace=me.nspace)}


@promised("scopes", PUT, "GLOBAL data reaches all, LOCAL data those of the node, INTERNAL data none; one's own stays")
async def scopes(me: Client) -> Any:
    seen = await _scopes(me)
    return [seen[name] for name in ("own", "here", "GLOBAL", "INTERNAL")] + ([seen["LOCAL"]] if seen["here"] else [])


@scopes.rule
def _(results: list[Any]) -> list[Any]:
    expected = []
    for rank, (_, here, *_rest) in enumerate(results):
        peer = (rank + 1) % len(results)
        expected.append([True, here, f"GLOBAL of {peer}", None, *([f"LOCAL of {peer}"] if here else [])])
    return expected


@promised("REMOTE stays off the own node", PUT, "REMOTE data reaches the other nodes alone")
async def remote(me: Client) -> Any:
    seen = await _scopes(me)
    return [seen["here"], seen["REMOTE"]]


@remote.rule
def _(results: list[Any]) -> list[Any]:
    ends = [(rank, here, (rank + 1) % len(results)) for rank, (here, _) in enumerate(results)]
    return [[here, None if here else f"REMOTE of {peer}"] for _, here, peer in ends]


@promised("a second commit", PUT, "what is put after a commit is added to what was put before")
async def two_commits(me: Client) -> Any:
    peer = next_of(me)
    await me.put("acme.first", 1)
    await me.put("acme.changing", "before")
    await me.fence(collect=True, timeout=WAIT)
    before = [await me.get("acme.changing", peer), await me.get("acme.first", peer)]
    await me.fence(timeout=WAIT)
    await me.put("acme.second", 2)
    await me.put("acme.changing", "after")
    await me.fence(collect=True, timeout=WAIT)
    second, own = await me.get("acme.second", peer), await me.get("acme.changing")
    await me.fence(timeout=WAIT)
    return [*before, second, own]


@two_commits.rule
def _(results: list[Any]) -> list[Any]:
    return [["before", 1, 2, "after"]] * len(results)


@promised(
    "fence: new values",
    "pypmix, Client.get",
    "after a collecting fence no get answers from what was read before it",
)
async def renewed(me: Client) -> Any:
    seen = []
    for number in range(4):
        if me.rank == 0:
            await me.put("acme.uid", number)
            await me.put("acme.beside", number * 2)
        await me.fence(collect=True, timeout=WAIT)
        seen.append([await me.get("acme.uid", me.job[0]), await me.get("acme.beside", me.job[0])])
        await me.fence(timeout=WAIT)
    return seen


@renewed.rule
def _(results: list[Any]) -> list[Any]:
    return [[[number, number * 2] for number in range(4)]] * len(results)


@promised("commit", PUT, "others see what was put from the commit on, and not before; the proc itself at once")
async def committed(me: Client) -> Any:
    peer = next_of(me)
    await me.put("acme.draft", f"of {me.rank}")
    own = [await me.get("acme.draft"), await me.get("acme.draft", me.proc), await me.get("acme.draft", optional=True)]
    await me.fence(commit=False, timeout=WAIT)
    early = await me.get("acme.draft", peer, default="not yet", timeout=0)
    await me.fence(commit=False, timeout=WAIT)
    await me.fence(timeout=WAIT)
    late = await me.get("acme.draft", peer, timeout=10)
    await me.fence(timeout=WAIT)
    return [*own, early, late]


@committed.rule
def _(results: list[Any]) -> list[Any]:
    size = len(results)
    return [[*[f"of {rank}"] * 3, "not yet", f"of {(rank + 1) % size}"] for rank in range(size)]


@promised("get: waits", GET, "a get waits until the proc commits the key")
async def get_waits(me: Client) -> Any:
    last = me.job.size - 1
    await me.fence(timeout=WAIT)
    if me.rank == last:
        await sleep(MEANWHILE)
        await me.put("acme.late", "there")
        await me.commit()
    value = await me.get("acme.late", me.job[last], timeout=10)
    await me.fence(timeout=WAIT)
    return value


@get_waits.rule
def _(results: list[Any]) -> list[Any]:
    return ["there"] * len(results)


@promised("get: a missing key", GET, "a key that was never put is ERR_NOT_FOUND, at once where the get does not wait")
async def missing(me: Client) -> Any:
    peer = next_of(me)
    await me.put("acme.there", 1)
    await me.fence(timeout=WAIT)
    began = time.monotonic()
    seen = [
        await outcome(lambda: me.get("acme.none", peer, timeout=0)),
        await outcome(lambda: me.get("acme.none", peer, optional=True)),
        await outcome(lambda: me.get("acme.none", timeout=0)),
        await me.get("acme.none", peer, default="instead", timeout=0),
    ]
    seen.append(time.monotonic() - began < 4)
    await me.fence(timeout=WAIT)
    return seen


@missing.rule
def _(results: list[Any]) -> list[Any]:
    return [[*["ERR_NOT_FOUND"] * 3, "instead", True]] * len(results)


@promised("get: an unknown proc", GET, "procs that do not exist are ERR_NOT_FOUND, and no wait")
async def unknown_procs(me: Client) -> Any:
    seen: list[Any] = []
    began = time.monotonic()
    for proc in (Proc("acme.no.nspace", 0), Proc(me.nspace, me.job.size + 5)):
        try:
            await me.get("acme.key", proc, timeout=0)
        except NotFound:
            seen.append("not found")
        except PMIxError as error:
            seen.append(error.status.name)
    return [*seen, time.monotonic() - began < 4]


@unknown_procs.rule
def _(results: list[Any]) -> list[Any]:
    return [["not found", "not found", True]] * len(results)


@promised("fence: some procs", FENCE, "a fence of some procs of a job waits for these alone", ranks=3)
async def subset(me: Client) -> Any:
    evens = [proc for proc in me.job if proc.rank % 2 == 0]
    seen = []
    if me.proc in evens:
        await me.put("acme.even", me.rank)
        await me.fence(evens, collect=True, timeout=WAIT)
        seen = [await me.get("acme.even", proc) for proc in evens]
        await me.put("acme.met", True)
        await me.commit()
    else:
        # The other ranks call the fence of all only after the fence of the even ranks.
        await get_eventually(me, "acme.met", me.job[0])
    await me.fence(timeout=WAIT)
    return seen


@subset.rule
def _(results: list[Any]) -> list[Any]:
    evens = [*range(0, len(results), 2)]
    return [[] if rank % 2 else evens for rank in range(len(results))]


async def _fence_without_last(me: Client) -> Any:
    """Return the outcome of a fence that the last rank joins only after the others have put that it has ended."""
    if me.rank == me.job.size - 1:
        for proc in me.job.procs[:-1]:
            await get_eventually(me, "acme.told", proc)
        return None
    began = time.monotonic()
    status = await outcome(lambda: me.fence(timeout=1))
    seconds = time.monotonic() - began
    await me.put("acme.told", True)
    await me.commit()
    return [status, 0.8 < seconds < WAIT / 2]


@promised(
    "fence: timeout",
    FENCE,
    "a fence that a proc does not come to ends with an error when its time is over",
)
async def overdue(me: Client) -> Any:
    return await _fence_without_last(me)


@overdue.rule
def _(results: list[Any]) -> list[Any] | str:
    # Another check tests that all ranks are notified.
    return results if ["ERR_TIMEOUT", True] in results else f"no rank was told in time: {results}"


@promised(
    "every rank is told of a failed fence",
    FENCE,
    "all that wait in a fence that fails are told",
    ranks=3,
    needs=("fence: timeout",),
)
async def fence_failure(me: Client) -> Any:
    seen = await _fence_without_last(me)
    return seen and seen[0]


@fence_failure.rule
def _(results: list[Any]) -> list[Any]:
    return [*["ERR_TIMEOUT"] * (len(results) - 1), None]
