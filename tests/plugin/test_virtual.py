"""Scenarios on virtual time: time passes at once, the same happens each time, and errors say where ranks are."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest

import pypmix
from lib.plugin_runs import Runs
from pypmix import PartialSuccess, aio
from pypmix.testing import scenario
from pypmix.testing.cluster import Cluster
from pypmix.testing.virtual import RanksFailed, simulate

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]

TESTS = """
import asyncio
import pytest
from pypmix.testing import scenario

@scenario(ranks=4, time="virtual")
async def test_one_fails(me, cluster):
    number = 10 * me.rank
    assert number != 10

@scenario(ranks=3, time="virtual")
async def test_all_fail(me, cluster):
    assert [1, 2] == [1, 3]

@scenario(ranks=2, time="virtual")
async def test_stuck(me, cluster):
    if me.rank == 0:
        await me.fence()
    else:
        await asyncio.Event().wait()

@scenario(ranks=2, time="virtual")
async def test_skipped(me, cluster):
    pytest.skip("not now")

@scenario(ranks=2, time="virtual", seed=range(3))
async def test_seeds(me, cluster):
    await me.fence()

@scenario(ranks=2)
async def test_on_processes(me, cluster):
    assert me.rank != 1
"""


@scenario(ranks=4, nodes=2, time="virtual")
async def test_an_hour_passes_at_once(me: aio.Client, cluster: Cluster) -> None:
    began = cluster.now()
    if me.rank == 3:
        await asyncio.sleep(7200)
        return
    with pytest.raises(pypmix.OperationTimeout):
        await me.fence(timeout=3600)
    assert 3600 <= cluster.now() - began < 3601 and asyncio.get_running_loop().time() == cluster.now()


@scenario(ranks=4, nodes=2, time="virtual", seed=range(5))
async def test_ranks_have_all_that_a_job_has(me: aio.Client, cluster: Cluster) -> None:
    await me.put("number", me.rank)
    await me.fence(collect=True, timeout=20)
    assert [await me.get("number", proc=proc) for proc in me.job] == [0, 1, 2, 3]
    assert len({await me.get("pmix.hname", proc=proc) for proc in me.job}) == 2
    if me.rank == 0:
        await me.publish({"port": 4711})
    assert await me.lookup("port", timeout=20) == 4711
    async with me.group("all", me.job.procs, context_id=True, timeout=20) as group:
        assert group.rank == me.rank and group.context_id
        await group.fence(timeout=20)
    custom = pypmix.EventCode.custom(-4242)
    async with me.events(custom) as events:
        await me.fence()
        if me.rank == 1:
            await me.notify(custom, data_range=pypmix.Range.NAMESPACE)
        assert (await events.get(timeout=20)).source == me.job[1]


@scenario(ranks=4, nodes=2, time="virtual", seed=range(5))
async def test_the_death_of_a_rank_is_told(me: aio.Client, cluster: Cluster) -> None:
    async with me.events(pypmix.EventCode.ERR_PROC_ABORTED) as events:
        await me.fence()
        if me.rank == 0:
            cluster.kill(3)
        if me.rank == 3:
            await asyncio.sleep(1e9)
        assert [proc.rank for proc in (await events.get(timeout=3600)).affected] == [3]
    with cluster.expect_missing(3):
        await me.fence(timeout=20)


@scenario(ranks=2, time="virtual")
async def test_a_rank_that_stands_still_is_slow(me: aio.Client, cluster: Cluster) -> None:
    if me.rank == 1:
        # It would come in time.
        await asyncio.sleep(1)
    else:
        cluster.stop(1)
        with cluster.expect_missing(1):
            await me.fence(timeout=10)
        cluster.resume(1)
    await me.fence(timeout=30)


def test_a_rank_that_is_killed_does_nothing_more() -> None:
    done: list[str] = []

    async def main(cluster: Cluster) -> str:
        async with aio.Client() as me:
            await me.fence()
            if me.rank == 1:
                cluster.kill(1)
                done.append("goes on")
            elif me.rank == 2:
                try:
                    await asyncio.sleep(100)
                finally:
                    done.append(f"cleans up at {cluster.now() > 200}")
            else:
                cluster.kill(2)
                await asyncio.sleep(300)
            return "over"

    # Clean-up of a rank that was killed happens when all is over.
    assert simulate(main, ranks=3) == ["over", None, None]
    assert done == ["cleans up at True"]


def test_a_program_opens_clients_by_itself() -> None:
    async def once(cluster: Cluster) -> list[int]:
        async with aio.Client() as me, asyncio.TaskGroup() as tasks:
            found = [tasks.create_task(me.lookup(str(number), timeout=20)) for number in range(me.job.size)]
            await me.publish({str(me.rank): me.rank})
        return [task.result() for task in found]

    assert simulate(once, ranks=3) == [[0, 1, 2]] * 3


def test_a_simulation_does_not_count_the_calls_of_an_earlier_one() -> None:
    async def main(cluster: Cluster) -> list[object] | str:
        async with aio.Client() as me:
            try:
                if me.rank == 1:
                    cluster.kill(1)
                return await me.allgather(me.rank, timeout=60)
            except PartialSuccess as error:
                return str(sorted(proc.rank for proc in error.missing or ()))

    async def gather(cluster: Cluster) -> list[object]:
        async with aio.Client() as me:
            return await me.allgather(me.rank, timeout=60)

    assert simulate(main, ranks=3) == ["[1]", None, "[1]"]
    assert simulate(gather, ranks=3) == [[0, 1, 2]] * 3


def test_the_same_seed_gives_the_same() -> None:
    program = f"""
import asyncio, sys
sys.path.insert(0, {str(ROOT)!r})
from pypmix import aio
from pypmix.testing.virtual import simulate
log = []
async def main(cluster):
    async with aio.Client() as me:
        for number in range(3):
            await me.put(str(number), me.rank)
            await me.fence(collect=True, timeout=20)
            log.append((cluster.now(), me.rank))
        async with me.group("all", me.job.procs, timeout=20) as group:
            log.append((cluster.now(), me.rank))
            await group.fence()
    log.append(cluster.now())
simulate(main, ranks=6, nodes=3, seed=int(sys.argv[1]))
print(log)
"""

    def run(seed: int, hashes: int) -> str:
        env = {**os.environ, "PYTHONHASHSEED": str(hashes)}
        return subprocess.run(
            [sys.executable, "-c", program, str(seed)], env=env, check=True, capture_output=True, text=True
        ).stdout

    assert run(7, 1) == run(7, 2)
    assert run(8, 1) != run(7, 1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: time.sleep(1), "time.sleep is called on virtual time: use `await asyncio.sleep"),
        (lambda: threading.Thread(target=print).start(), "a thread is started on virtual time"),
        (lambda: subprocess.run(["true"]), "a process is started on virtual time"),
        (lambda: os.fork(), "a process is started on virtual time"),
        (lambda: socket.create_connection(("127.0.0.1", 9)), "a socket is used on virtual time"),
        (lambda: pypmix.Client().open().lookup("never"), "a call blocks on virtual time .lookup.: use `pypmix.aio`"),
        (lambda: pypmix.Client(engine="native").open(), "the native engine cannot run on virtual time"),
    ],
)
def test_calls_that_block_are_refused(call: Callable[[], object], text: str) -> None:
    async def main(cluster: Cluster) -> None:
        call()

    with pytest.raises(RanksFailed, match=text):
        simulate(main, ranks=1)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: asyncio.to_thread(print), "a thread is started on virtual time"),
        (lambda: anyio.to_thread.run_sync(print), "a thread is started on virtual time"),
        (lambda: asyncio.create_subprocess_exec("true"), "a process is started on virtual time"),
        (lambda: asyncio.open_connection("127.0.0.1", 9), "a socket is used on virtual time"),
        (lambda: asyncio.start_server(print, "127.0.0.1", 0), "a socket is used on virtual time"),
        (lambda: anyio.wait_readable(0), "a descriptor is watched on virtual time"),
    ],
)
def test_what_an_event_loop_cannot_do_is_refused(call: Callable[[], Any], text: str) -> None:
    async def main(cluster: Cluster) -> None:
        await call()

    with pytest.raises(RanksFailed, match=text):
        simulate(main, ranks=1)
    # Here it can.
    threading.Thread(target=time.sleep, args=(0,)).start()


def test_a_job_cannot_be_spawned() -> None:
    async def main(cluster: Cluster) -> None:
        async with aio.Client() as me:
            await me.spawn(["true"])

    with pytest.raises(RanksFailed, match="a job cannot be spawned on virtual time"):
        simulate(main, ranks=1)


def test_ranks_that_wait_for_ever_are_told_at_once() -> None:
    async def main(cluster: Cluster) -> None:
        async with aio.Client() as me:
            if me.rank < 2:
                await me.fence()
            else:
                await asyncio.Event().wait()

    with pytest.raises(RanksFailed) as caught:
        simulate(main, ranks=3, nodes=3)
    (_, why), *stacks = caught.value.pmix_failures
    assert isinstance(why, str) and "all ranks wait, and nothing is on its way to any of them" in why
    assert "missing: rank 2 on node2" in why
    assert [where for where, _ in stacks] == ["ranks 0 to 1 of 3", "rank 2 of 3"]
    assert (
        f'File "{__file__}"' in str(stacks[0][1]) and "in fence" in str(stacks[0][1]) and "in wait" in str(stacks[1][1])
    )


def test_a_time_limit_is_one_of_virtual_time() -> None:
    async def main(cluster: Cluster) -> None:
        while True:
            await asyncio.sleep(1)

    with pytest.raises(RanksFailed, match="the job did not end within 1000 virtual s and was ended"):
        simulate(main, ranks=2, timeout=1000)


def test_tasks_that_look_again_and_again_take_time() -> None:
    async def main(cluster: Cluster) -> None:
        while cluster.now() < 3:
            await asyncio.sleep(0)

    assert simulate(main, ranks=2) == [None, None]


def test_tasks_that_look_for_ever_come_to_the_time_limit() -> None:
    async def main(cluster: Cluster) -> None:
        # What is due meanwhile comes at its time.
        others = asyncio.create_task(every_minute(cluster))
        while True:
            await asyncio.sleep(0)
        del others

    async def every_minute(cluster: Cluster) -> None:
        for number in range(1, 1000):
            await asyncio.sleep(60)
            assert 0 <= cluster.now() - 60 * number < 1

    with pytest.raises(RanksFailed) as failed:
        simulate(main, ranks=3)
    assert "did not end within 86400 virtual s" in str(failed.value.pmix_failures)
    assert "in main" in str(failed.value.pmix_failures)


def test_a_rank_that_is_aborted_is_told_why() -> None:
    async def main(cluster: Cluster) -> None:
        async with aio.Client() as me:
            if me.rank == 0:
                await me.abort(3, "enough")
            await asyncio.sleep(100)

    with pytest.raises(RanksFailed, match="SIGTERM.*: rank 0 on node0 called abort with status 3: enough"):
        simulate(main, ranks=2)


def test_mistakes_are_told() -> None:
    def blocking(me: pypmix.Client, cluster: Cluster) -> None: ...

    with pytest.raises(TypeError, match="blocking must be a coroutine function"):
        scenario(time="virtual")(blocking)
    with pytest.raises(ValueError, match="time is one of real, virtual, not 'slow'"):
        scenario(time="slow")
    with pytest.raises(ValueError, match="the engine 'native' cannot run on virtual time"):
        scenario(time="virtual", engine="native")
    with pytest.raises(TypeError, match="'blocking' is not a coroutine function"):
        simulate(blocking)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least 1 rank, not 0"):
        simulate(_nothing, ranks=0)


async def _nothing(cluster: Cluster) -> None: ...


def test_a_hundred_ranks() -> None:
    async def main(cluster: Cluster) -> int:
        async with aio.Client() as me:
            await me.fence(timeout=60)
            return me.rank

    assert simulate(main, ranks=100, nodes=8) == list(range(100))


def test_pytest_shows_failures_with_their_ranks(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    (tmp_path / "test_virtual.py").write_text(TESTS)
    found = runs("test_virtual.py", "-ra")
    assert "4 failed, 3 passed, 1 skipped" in found.out.splitlines()[-1], found.out
    one = found.part("test_one_fails")
    assert "- rank 1 of 4 -" in one and "- rank 0" not in one
    assert ">       assert number != 10\nE       assert 10 != 10" in one
    every = found.part("test_all_fail")
    assert "- ranks 0 to 2 of 3 -" in every and every.count("At index 1 diff: 2 != 3") == 1
    stuck = found.part("test_stuck")
    assert "fence 2 ranks: 1 of 2 arrived" in stuck and "in test_stuck" in stuck
    assert "rank 1 of 2: assert 1 != 1" in found.out
    assert "asyncio" not in found.part("test_on_processes")
