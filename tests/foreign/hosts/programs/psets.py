"""Process sets that a host defines and deletes, of its own and together with another one."""

from __future__ import annotations

import asyncio
import contextlib
import os

from foreign.hosts.programs.crossing import NODES, opened

from lib.hosted import WAIT, status, until
from pypmix import Proc, Rank, attrs

EXISTS, NOT_FOUND = -11, -46


def seen(me, name):
    """See a set come and go, and tell what is known in between; the host waits for the marks."""
    marks = os.environ["PYPMIX_TEST_MARKS"]
    with me.watch_psets() as changes:
        found = [list_of(changes.get(timeout=WAIT)) for _ in range(2)]
        known = {each: [proc.rank for proc in members] for each, members in me.psets.items()}
        names = [me.get(attrs.PSET_NAMES, proc, default=None) for proc in me.job.procs]
        me.fence(timeout=WAIT)
        open(os.path.join(marks, f"{name}.{me.rank}"), "w").close()
        found.append(list_of(changes.get(timeout=WAIT)))
        me.fence(timeout=WAIT)
        after = me.get(attrs.PSET_NAMES, default=None)
        me.fence(timeout=WAIT)
    return [sorted(found[:2]), known, names, found[2], after, list(me.psets)]


def list_of(change):
    return [change.kind, change.name, [proc.rank for proc in change.members]]


def at(name, ranks):
    """Return what tells whether ranks have come to a point."""
    marks = os.environ["PYPMIX_TEST_MARKS"]
    return lambda: all(os.path.exists(os.path.join(marks, f"{name}.{rank}")) for rank in ranks)


def rules(me):
    return me.query(attrs.QUERY_NUM_PSETS)


async def one(cell):
    """One host: what it refuses, and what clients see."""
    async with cell.host() as rm:
        job = rm.job("demo", np=3, pset="ocean")
        refused = {
            "again": status(rm.define_process_set, "ocean", job.proc(0)),
            "nspace": status(rm.define_process_set, "demo", job.proc(0)),
            "unknown": status(rm.define_process_set, "new", [job.proc(0), Proc("gone", 0)]),
            "no rank": status(rm.define_process_set, "new", Proc("demo", 3)),
            "not there": status(rm.delete_process_set, "new"),
            "a second job": status(rm.job, "next", 1, pset="ocean"),
        }
        assert refused == {
            "again": EXISTS,
            "nspace": EXISTS,
            "unknown": NOT_FOUND,
            "no rank": NOT_FOUND,
            "not there": NOT_FOUND,
            "a second job": EXISTS,
        }, refused
        assert "next" not in rm.jobs
        for wrong in ([], None, "demo"):
            try:
                rm.define_process_set("new", wrong)
            except (TypeError, ValueError):
                continue
            raise AssertionError(wrong)
        rm.define_process_set("late", [job.proc(2), job.proc(1)])
        async with cell.start(rm, seen, "one", job=job) as procs:
            await until(at("one", range(3)), "the ranks")
            rm.delete_process_set("late")
            codes = await procs.wait(WAIT)
            assert not any(codes.values()), codes
        for rank in range(3):
            both = [["ocean"], ["ocean", "late"], ["ocean", "late"]]
            assert cell.returned(job.proc(rank)) == [
                [["define", "late", [2, 1]], ["define", "ocean", [0, 1, 2]]],
                {"ocean": [0, 1, 2], "late": [2, 1]},
                both,
                ["delete", "late", [2, 1]],
                ["ocean"],
                ["ocean"],
            ], cell.returned(job.proc(rank))
        rm.define_process_set("all", Proc("demo", Rank.WILDCARD))
        rm.delete_process_set("all")
        # It goes with its job, and its name is free again.
        rm.forget(job)
        rm.define_process_set("ocean", rm.job("next", np=1).proc(0))
        assert await cell.run(rm, rules, job=rm.jobs["next"]) == [1]


async def two(cell):
    """Two hosts: what one defines, the servers of both know."""
    mine = NODES[cell.node]
    async with contextlib.AsyncExitStack() as stack:
        rm = await opened(cell, stack)
        job = rm.job("demo", nodes=NODES, pset="ocean")
        await rm.exchange("registered", nodes=NODES, timeout=WAIT)
        if cell.node == "n1":
            rm.define_process_set("late", [job.proc(3), job.proc(0)])
        await rm.exchange("defined", nodes=NODES, timeout=WAIT)
        async with cell.start(rm, seen, "two", job=job) as procs:
            await until(at("two", range(4)), "the ranks")
            if cell.node == "n0":
                rm.delete_process_set("late")
            codes = await procs.wait(WAIT)
            assert not any(codes.values()), codes
        for rank in mine:
            assert cell.returned(job.proc(rank)) == [
                [["define", "late", [3, 0]], ["define", "ocean", [0, 1, 2, 3]]],
                {"ocean": [0, 1, 2, 3], "late": [3, 0]},
                [["ocean", "late"], ["ocean"], ["ocean"], ["ocean", "late"]],
                ["delete", "late", [3, 0]],
                ["ocean"],
                ["ocean"],
            ], cell.returned(job.proc(rank))
        await rm.exchange("ended", nodes=NODES, timeout=WAIT)
        rm.forget(job)
        await until(lambda: status(rm.delete_process_set, "ocean") == NOT_FOUND, "the end of the job's set")
        await asyncio.sleep(0)
        await rm.exchange("end", nodes=NODES, timeout=WAIT)
