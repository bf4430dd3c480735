"""Hosts without a method: what `pypmix run` answers, they answer too."""

from __future__ import annotations

import os
import signal
import sys

import pypmix
from lib.hosted import WAIT, status, until
from pypmix import EventCode, Proc, Status, attrs
from pypmix.host.launch import inherited_environment

CHILD = "import sys\nprint('out', flush=True)\nprint(sys.stdin.readline().strip(), file=sys.stderr)\nsys.exit(3)"


def spawn(me, code, **options):
    return me.spawn([sys.executable, "-c", code], env=inherited_environment(os.environ), **options)


def spawning(me):
    job = spawn(me, CHILD, info=[attrs.FWD_STDIN(True), attrs.TAG_OUTPUT(True)])
    found = {2: b"", 4: b""}
    with me.output(job) as stream:
        me.push_input(job, b"in\n")
        for piece in stream:
            found[piece.channel] += piece.data
    code = job.wait(timeout=WAIT)
    missing = status(me.spawn, ["acme-no-such-program"])
    return [found[2].decode(), found[4].decode(), code, missing]


async def spawned(cell):
    """A spawn with its directives, its output, its input and its end."""
    async with cell.host() as rm:
        (found,) = await cell.run(rm, spawning)
        assert found == ["out\n", "in\n", 3, Status.ERR_JOB_EXE_NOT_FOUND], found
        assert rm.jobs


def stop(me):
    job = spawn(me, "import time\ntime.sleep(600)", n=2)
    states = sorted([proc.state for proc in me.query(attrs.QUERY_PROC_TABLE, info={attrs.NSPACE: job.nspace})])
    me.control(job).request(info={attrs.JOB_CTRL_KILL: True})
    return [
        len(states),
        job.wait(timeout=WAIT),
        status(me.job_control, Proc("acme.none", 0), info={attrs.JOB_CTRL_KILL: True}),
    ]


async def controlled(cell):
    """Job control of spawned jobs."""
    async with cell.host() as rm:
        assert await cell.run(rm, stop) == [[2, 128 + signal.SIGKILL, Status.ERR_NOT_FOUND]]


def asking(me):
    found = []
    # libpmix's servers tell the proc itself nothing of its heart.
    with me.events(EventCode.MONITOR_HEARTBEAT_ALERT) as alerts:
        me.fence(timeout=WAIT)
        if me.rank == 0:
            me.monitors.watch_heartbeat(1)
            me.publish({"acme.a": "published"})
            me.log("written down", to=attrs.LOG_STDERR, timeout=WAIT)
        else:
            found.append(alerts.get(timeout=WAIT).source.rank)
        me.fence(timeout=WAIT)
    credential = me.credentials.get()
    table = me.query(attrs.QUERY_PROC_TABLE)
    return [
        *found,
        me.lookup("acme.a"),
        sorted([proc.proc.rank for proc in table if proc.pid]),
        me.credentials.validate(credential)[attrs.PROCID].rank,
        status(me.query, "acme.unknown"),
    ]


async def asked(cell):
    """Published data, queries, logs, monitors, credentials."""
    async with cell.host() as rm:
        found = await cell.run(rm, asking, np=2)
    missing = int(Status.ERR_NOT_FOUND)
    assert found == [["published", [0, 1], 0, missing], [0, "published", [0, 1], 1, missing]], found


def leave(me):
    me.fence(timeout=WAIT)
    if me.rank == 0:
        me.abort(7, "enough")
    me.fence(timeout=WAIT)


async def aborted(cell):
    """An abort ends the job, as its caller has asked."""
    async with cell.host(grace=1) as rm, cell.start(rm, leave, np=2) as procs:
        codes = await procs.wait(WAIT)
        assert set(codes.values()) <= {-15, -9}, codes


def override(me):
    me.publish({"acme.a": 1})
    return [me.query("acme.load"), len(me.query(attrs.QUERY_PROC_TABLE)), status(me.spawn, ["true"])]


async def overridden(cell):
    """A method of its own comes before an answer, which it may end with."""
    from pypmix.host import Host

    class Mine(Host):
        def query(self, req):
            return {"acme.load": 0.5} if "acme.load" in req.keys else self.default(req)

        async def spawn(self, req):
            raise pypmix.PermissionDenied("not here")

    async with cell.host(Mine, answers=["publishing", "queries", "spawning"]) as rm:
        assert await cell.run(rm, override) == [[0.5, 1, Status.ERR_NO_PERMISSIONS]]
        await until(lambda: not [job for job in rm.jobs.values() if job.parent])
