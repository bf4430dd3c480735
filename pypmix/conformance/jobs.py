"""Checks of requests about jobs: queries, process sets, spawn, job control, credentials."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from pypmix import Persist, PMIxError, Proc, Rank, attrs
from pypmix.conformance.awaited import sleep
from pypmix.conformance.calls import outcome, ranks
from pypmix.conformance.check import MEANWHILE, WAIT, Untestable, promised

if TYPE_CHECKING:
    from pypmix.aio import Client

QUERY = "Standard, PMIx_Query_info"
RESOLVE = "Standard, PMIx_Resolve_peers"
SETS = "Standard, Process Sets"
SPAWN = "Standard, PMIx_Spawn"
CONTROL = "Standard, PMIx_Job_control"
SECURITY = "Standard, PMIx_Get_credential"
SPAWNED = ("spawn",)
PUBLISHED = ("publish",)
"""A spawned job and its parent wait for each other by lookup."""


@promised("namespaces by query", QUERY, "QUERY_NAMESPACES and JOB_SIZE; a key that is not known has no answer")
async def query_namespaces(me: Client) -> Any:
    try:
        unknown = f"answered: {await me.query('acme.no.such.key')}"
    except PMIxError:
        unknown = "an error"
    spaces = (await me.query(attrs.QUERY_NAMESPACES)).split(",")
    whole = Proc(me.nspace, Rank.WILDCARD)
    sizes = [await me.query(attrs.JOB_SIZE, nspace=me.nspace), await me.query(attrs.JOB_SIZE, proc=whole)]
    found = await me.query([attrs.JOB_SIZE, "acme.gone", attrs.QUERY_NAMESPACES])
    await me.fence(timeout=WAIT)
    return [me.nspace in spaces, sizes, found[attrs.JOB_SIZE], sorted(found.missing), unknown]


@query_namespaces.rule
def _(results: list[Any]) -> list[Any]:
    size = len(results)
    return [[True, [size, size], size, ["acme.gone"], "an error"]] * size


@promised("query: procs", QUERY, "QUERY_PROC_TABLE has each rank with its pid and node")
async def tables(me: Client) -> Any:
    await me.put("acme.pid", os.getpid())
    await me.fence(collect=True, timeout=WAIT)
    pids = [await me.get("acme.pid", proc) for proc in me.job]
    nodes = [await me.get(attrs.HOSTNAME, proc) for proc in me.job]
    rows = await me.query(attrs.QUERY_PROC_TABLE, nspace=me.nspace)
    await me.fence(timeout=WAIT)
    found = {int(row.proc.rank): [row.pid == pids[row.proc.rank], row.hostname == nodes[row.proc.rank]] for row in rows}
    return [found.get(rank) for rank in range(me.job.size)]


@tables.rule
def _(results: list[Any]) -> list[Any]:
    return [[[True, True]] * len(results)] * len(results)


@promised("peers and nodes", RESOLVE, "the procs of a node, and the nodes of a job")
async def resolved(me: Client) -> Any:
    peers = await me.raw.resolve_peers(nspace=me.nspace)
    named = await me.raw.resolve_peers(me.node.hostname, me.nspace)
    nodes = await me.raw.resolve_nodes(me.nspace)
    elsewhere = await me.raw.resolve_peers("acme.no.such.node", me.nspace)
    await me.fence(timeout=WAIT)
    return [me.proc in peers, ranks(named) == ranks(peers), me.node.hostname in nodes, ranks(elsewhere)]


@resolved.rule
def _(results: list[Any]) -> list[Any]:
    return [[True, True, True, []]] * len(results)


@promised("pset: query", SETS, "QUERY_NUM_PSETS, QUERY_PSET_NAMES and QUERY_PSET_MEMBERSHIP")
async def psets(me: Client) -> Any:
    sets = await me.psets
    if not sets:
        raise Untestable("the job has no process set; launchers make some with an option such as --pset NAME")
    number = await me.query(attrs.QUERY_NUM_PSETS)
    names = (await me.query(attrs.QUERY_PSET_NAMES)).split(",")
    own = [name for name in sorted(sets) if me.proc in sets[name]]
    names_of: list[str] = await me.get(attrs.PSET_NAMES, me.proc) if own else []
    told = [name for name in names_of if name in sets]
    none = await me.query(attrs.QUERY_PSET_MEMBERSHIP, info={attrs.PSET_NAME: "acme.none"}, default=None)
    await me.fence(timeout=WAIT)
    return [number == len(sets), sorted(names) == sorted(sets), sorted(told) == own, none]


@psets.rule
def _(results: list[Any]) -> list[Any]:
    return [[True, True, True, None]] * len(results)


def _child_command(me: Client, *words: str) -> list[str]:
    """Return the command line of a child job; see `child`."""
    return [sys.executable, "-m", "pypmix.conformance", "child", me.engine.name, *words]


async def child(me: Client) -> None:
    """Run a rank of a spawned job: put its description, and wait until the parent has read it."""
    parent = me.parent
    await me.put("acme.size", me.job.size)
    await me.put("acme.parent", f"{parent.nspace} {parent.rank}" if parent else "")
    await me.put("acme.variable", os.environ.get("ACME_VARIABLE", ""))
    await me.put("acme.words", sys.argv[3:])
    await me.fence(collect=True, timeout=WAIT)
    if me.rank == 0:
        await me.publish({"acme.ready": True})
    await me.lookup("acme.enough", timeout=WAIT)


async def _spawn_two(me: Client, early: bool = False) -> list[Any] | None:
    """Spawn a job of two ranks from rank 0, and return its size and the values that each has put.

    With `early`, rank 0 gets the values before the job reports that it has put them.
    """
    found = None
    if me.rank == 0:
        env = {**os.environ, "ACME_VARIABLE": "a b=c"}
        job = await me.spawn(_child_command(me, "x y", ""), n=2, env=env)
        if not early:
            await me.lookup("acme.ready", timeout=WAIT)
        keys = ("acme.size", "acme.variable", "acme.words", "acme.parent")
        found = [job.size, *[[await me.get(key, proc, timeout=WAIT) for key in keys] for proc in job]]
        # Otherwise this job may finish before the spawned job looks up the key.
        await me.publish({"acme.enough": True}, persist=Persist.SESSION)
    await me.fence(timeout=WAIT)
    return found


@promised(
    "spawn",
    SPAWN,
    "a job runs as asked, with its words and variables, and its parent reads what it puts",
    needs=PUBLISHED,
)
async def spawned(me: Client) -> Any:
    found = await _spawn_two(me)
    return found and [found[0], *[[size, variable, words] for size, variable, words, _ in found[1:]]]


@spawned.rule
def _(results: list[Any]) -> list[Any]:
    rank = [2, "a b=c", ["x y", ""]]
    return [[2, rank, rank], *[None] * (len(results) - 1)]


@promised(
    "data of a spawned job, early", SPAWN, "a get of what a spawned job has not put yet waits for it", needs=SPAWNED
)
async def early(me: Client) -> Any:
    found = await _spawn_two(me, True)
    return found and [each[0] for each in found[1:]]


@early.rule
def _(results: list[Any]) -> list[Any]:
    return [[2, 2], *[None] * (len(results) - 1)]


@promised(
    "the parent of a spawned job", SPAWN, "PARENT_ID tells a spawned job the proc that has spawned it", needs=SPAWNED
)
async def parent(me: Client) -> Any:
    found = await _spawn_two(me)
    return found and [each[3] == f"{me.nspace} 0" for each in found[1:]]


@parent.rule
def _(results: list[Any]) -> list[Any]:
    return [[True, True], *[None] * (len(results) - 1)]


@promised("the end of a spawned job", SPAWN, "the parent is told of the end of the job", needs=SPAWNED)
async def waited(me: Client) -> Any:
    result = None
    if me.rank == 0:
        job = await me.spawn([sys.executable, "-c", f"import time; time.sleep({MEANWHILE})"])
        result = await outcome(lambda: job.wait(WAIT / 2))
    await me.fence(timeout=WAIT)
    return result


@waited.rule
def _(results: list[Any]) -> list[Any]:
    return [0, *[None] * (len(results) - 1)]


@promised(
    "a spawn that fails is reported", SPAWN, "a program that is not there is an error of the spawn", needs=SPAWNED
)
async def failing(me: Client) -> Any:
    result = None
    if me.rank == 0:
        try:
            await me.spawn(["/acme/no/such/program"])
            result = "a success"
        except PMIxError:
            result = "an error"
    await me.fence(timeout=WAIT)
    return result


@failing.rule
def _(results: list[Any]) -> list[Any]:
    return ["an error", *[None] * (len(results) - 1)]


async def _send_signal(me: Client, one: bool) -> list[str]:
    """Send a signal from rank 0 to rank 1, or to all ranks, and return the received signals."""
    seen: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: seen.append(number))
    await me.fence(timeout=WAIT)
    if me.rank == 0:
        await me.control(me.job[1] if one else me.job).signal(signal.SIGUSR1)
    deadline = time.monotonic() + 5
    while not seen and (me.rank == 1 or not one) and time.monotonic() < deadline:
        await sleep(0.01)
    await me.fence(timeout=WAIT)
    await sleep(0.1)
    signal.signal(signal.SIGUSR1, before)
    return [signal.Signals(number).name for number in seen]


@promised("signals by job control", CONTROL, "JOB_CTRL_SIGNAL sends a signal to all procs of a job")
async def signalled(me: Client) -> Any:
    return await _send_signal(me, False)


@signalled.rule
def _(results: list[Any]) -> list[Any]:
    return [["SIGUSR1"]] * len(results)


@promised(
    "targets of job control", CONTROL, "it is for the procs that are named alone", needs=("signals by job control",)
)
async def targeted(me: Client) -> Any:
    return await _send_signal(me, True)


@targeted.rule
def _(results: list[Any]) -> list[Any]:
    return [["SIGUSR1"] if rank == 1 else [] for rank in range(len(results))]


@promised("credentials", SECURITY, "a credential names its owner to another rank, and a forged one is refused")
async def credentials(me: Client) -> Any:
    if me.rank == 0:
        await me.put("acme.credential", bytes(await me.credentials.get()))
    await me.fence(collect=True, timeout=WAIT)
    data = await me.get("acme.credential", me.job[0])
    found = await me.credentials.validate(data)
    seen: list[Any] = [found[attrs.USERID] == os.getuid(), found[attrs.GRPID] == os.getgid()]
    for other in (data[:-1] + bytes([data[-1] ^ 1]), b"nonsense"):
        try:
            await me.credentials.validate(other)
            seen.append("accepted")
        except PMIxError:
            seen.append("refused")
    await me.fence(timeout=WAIT)
    return seen


@credentials.rule
def _(results: list[Any]) -> list[Any]:
    return [[True, True, "refused", "refused"]] * len(results)
