"""Hosts that start processes: their output, their ends, and what is left when a host fails, is cancelled or killed."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading

import pypmix
from lib.hosted import WAIT, until
from pypmix import Proc, Rank
from pypmix.types import Pdata


def speak(me):
    print("rank", me.rank, "of", me.job.size, os.environ["COLOUR"], os.getcwd(), flush=True)
    print("no newline", file=sys.stderr, end="", flush=True)
    me.fence(timeout=WAIT)
    rank = me.rank
    me.close()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    os._exit(rank)


async def start_and_wait(cell):
    """Output, environment, directory, exit codes; nothing of a job is left after the host's end."""
    async with cell.host() as rm:
        job = rm.job("demo", np=3)
        env = {**cell.env, "COLOUR": "blue"}
        async with rm.start(job, cell.command(speak), forward_output=True, env=env, wdir="/") as procs:
            assert sorted(procs.pids) == [0, 1, 2]
            assert await procs.wait(WAIT) == {0: 0, 1: 1, 2: -9}, procs.codes
        async with rm.start(job, ["true"], ranks=[1]) as procs:
            assert await procs.wait(WAIT) == {1: 0}
        folder = rm.tmpdir
        assert os.path.isdir(folder)
    assert not os.path.exists(folder)


def both(me):
    if me.rank == 0:
        me.publish({"acme.a": 1})
    return me.lookup("acme.b")


def blocking(cell):
    """A host in `with`: handlers run in its own loop or on threads, and this thread may block."""
    from pypmix.host import Host

    seen = []

    class Mine(Host):
        async def publish(self, req):
            seen.append(threading.current_thread().name)

        def lookup(self, req):
            seen.append(threading.current_thread().name)
            return [Pdata(req.requestor, req.keys[0], pypmix.types.uint32(7))]

    with cell.host(Mine) as rm, cell.start(rm, both, np=2) as procs:
        assert procs.wait(WAIT) == {0: 0, 1: 0}
    assert [cell.returned(Proc("demo", rank)) for rank in (0, 1)] == [7, 7]
    assert seen.count("pypmix-host") == 1 and len(seen) == 3, seen


STUBBORN = (
    "import os, signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print(os.getpid(), subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)']).pid, flush=True)\n"
    "time.sleep(600)"
)


async def failing(cell):
    """An error in the body ends all that runs, with what it has started, however stubborn."""
    with contextlib.suppress(ZeroDivisionError):
        async with cell.host(grace=0.3) as rm:
            job = rm.job("demo", np=2)
            async with rm.start(job, [sys.executable, "-c", STUBBORN], forward_output=True) as procs:
                await asyncio.sleep(1)
                assert not procs.codes
                raise ZeroDivisionError
        raise AssertionError("the error is lost")


async def cancelled(cell):
    """A cancelled task ends its processes too."""

    async def main():
        async with cell.host(grace=0.3) as rm, rm.start(rm.job("demo", np=2), ["sleep", "600"]) as procs:
            pids.extend(procs.pids.values())
            await procs.wait()

    pids = []
    task = asyncio.create_task(main())
    await until(lambda: len(pids) == 2)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
        raise AssertionError("it was not cancelled")
    for pid in pids:
        assert not os.path.exists(f"/proc/{pid}")


async def unstartable(cell):
    """Nothing runs where one program does not exist; the host goes on."""
    from pypmix.host import Application

    async with cell.host() as rm:
        for argv, error in ((["/nonexistent"], FileNotFoundError), (["/etc/passwd"], PermissionError)):
            try:
                async with rm.start(rm.job("demo", np=2), argv):
                    raise AssertionError("it runs")
            except error:
                rm.forget("demo")
        apps = (Application(("true",), 1), Application(("false",), 2))
        async with rm.start(rm.job("demo", apps=apps)) as procs:
            assert await procs.wait(WAIT) == {0: 0, 1: 1, 2: 1}


async def unnoticed(cell):
    """A process that ignores SIGCHLD has its children collected by the kernel, which tells nobody how they ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    logging.getLogger("pypmix.host").setLevel(logging.CRITICAL)
    async with cell.host() as rm, rm.start(rm.job("demo", np=2), ["true"]) as procs:
        assert set((await procs.wait(WAIT)).values()) <= {0, 255}, procs.codes


async def killed(cell):
    """This process is killed; the test looks what is left, also of what has left its session."""
    there = "echo > ready.$PMIX_RANK; exec sleep 600"
    async with cell.host() as rm:
        job = rm.job("demo", np=2)
        async with rm.start(job, ["sh", "-c", f"setsid sh -c '{there}' & wait"], wdir=rm.tmpdir) as procs:
            await until(lambda: all(os.path.exists(f"{rm.tmpdir}/ready.{rank}") for rank in (0, 1)))
            print(rm.tmpdir, *procs.pids.values(), flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


async def later_jobs(cell):
    """Jobs come and go; each finds what those of its session share, whatever has ended meanwhile."""
    async with cell.host() as rm:
        for number in range(3):
            assert await cell.run(rm, alone, job=rm.job(f"job{number}", np=1)) == [1]
        assert len(os.listdir(rm.tmpdir)) <= 3


def alone(me):
    return me.job.size


def across(me):
    me.put("acme.a", me.rank)
    me.fence(collect=True, timeout=WAIT)
    found = [me.get("acme.a", proc=proc) for proc in me.job.procs]
    group = me.group("acme.g", me.job.procs, context_id=True, timeout=WAIT).construct()
    context_id = group.context_id
    me.fence(Proc("acme.g", Rank.WILDCARD), timeout=WAIT)
    me.raw.group_destruct("acme.g", timeout=WAIT)
    me.connect(me.job.procs, timeout=WAIT)
    me.disconnect(me.job.procs, timeout=WAIT)
    return [found, context_id]


async def one_process(cell):
    """Two hosts, two servers, one process: what a method does not answer crosses by an exchange in memory."""
    from pypmix.host.exchange import Exchange, Hub

    nodes = {"n0": [0, 1], "n1": [2, 3]}
    hub = Hub(asyncio.get_running_loop().call_soon_threadsafe)
    hosts = [cell.host(exchange=Exchange(hub.carrier(name))) for name in nodes]
    async with hosts[0], hosts[1]:
        signature = ("mine", Proc("demo", Rank.WILDCARD))
        jobs = [rm.job("demo", nodes=nodes) for rm in hosts]
        gathered = await asyncio.gather(*[rm.exchange(signature, rm.node.encode(), timeout=WAIT) for rm in hosts])
        assert gathered == [[b"n0", b"n1"]] * 2
        assert await hosts[0].exchange(("alone", Proc("demo", 1)), b"x") == [b"x"]
        assert len({rm.next_context_id() for rm in hosts for _ in range(5)}) == 10
        pairs = zip(hosts, jobs, strict=True)
        found = await asyncio.gather(*[cell.run(rm, across, job=job) for rm, job in pairs])
    assert len({number for node in found for _, number in node}) == 1, found
    assert all(values == [0, 1, 2, 3] for node in found for values, _ in node), found


def leave_a_daemon(me):
    """A process that ends and leaves another one behind, which is of its group."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    return child.pid


async def orphans(cell):
    """What a rank has left behind ends with its job."""
    async with cell.host(grace=0.3) as rm:
        (pid,) = await cell.run(rm, leave_a_daemon)
        await until(lambda: not os.path.exists(f"/proc/{pid}"), "its end")
