"""Jobs that clients spawn: their ends, their output, and what others hear of both."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys

from foreign.hosts.programs.crossing import opened

import pypmix
from lib.hosted import WAIT, status
from pypmix import EventCode, Proc, Rank, Status, attrs
from pypmix.host.launch import inherited_environment

CLIENT = "import pypmix\nme = pypmix.Client().open()\n"

WAYS = {
    "plain": ("print('hi')", 0, Status.SUCCESS),
    "client": (f"{CLIENT}me.close()\nprint('hi')", 0, Status.SUCCESS),
    "failing": ("import os, time\ntime.sleep(0.2 * int(os.environ['PMIX_RANK']))\nos._exit(3)", 3, -187),
    "unsynced": (f"{CLIENT}import os\nos._exit(0)", 1, -185),
    "killed": ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", 137, -184),
    "aborted": (f"{CLIENT}import time\nif me.rank == 0: me.abort(7, 'enough')\ntime.sleep(60)", 7, -182),
}
"""What children run, the exit code of their job, and the status of its end."""

STATUSES = {3: Status.ERR_EXIT_NONZERO_TERM, 1: Status.ERR_PROC_TERM_WO_SYNC, 137: Status.ERR_PROC_ABORTED_BY_SIG}


def child(code):
    return [sys.executable, "-c", code]


def spawn(me, code, n=1, **options):
    return me.spawn(child(code), n=n, env=inherited_environment(os.environ), **options)


def about(stream, nspace):
    """Return the next event about a job; a server hands on what others have raised before, too."""
    while True:
        event = stream.get(timeout=WAIT)
        if event.affected[0].nspace == nspace:
            return event


def ended(event):
    """Return what an event says of an end."""
    return [event.info.get(attrs.EXIT_CODE), event.info.get(attrs.JOB_TERM_STATUS)]


def spawning(me, kind):
    code, exit_code, job_status = WAYS[kind]
    failures = (EventCode.ERR_PROC_ABORTED,)
    with me.events(EventCode.EVENT_JOB_END) as ends, me.events(EventCode.PROC_TERMINATED, *failures) as procs:
        job = spawn(me, code, n=2)
        assert job.wait(timeout=WAIT) == exit_code, kind
        assert ended(about(ends, job.nspace)) == [exit_code, job_status]
        # A good end is no event for programs on libpmix, from which its servers cannot tell this one.
        good = 2 if os.environ.get("PYPMIX_SERVER_ENGINE") == "python" else 0
        heard = [about(procs, job.nspace) for _ in range(4 if exit_code else good)]
    affected = {Proc(job.nspace, rank) for rank in (0, 1)} if heard else set()
    assert {event.affected[0] for event in heard} == affected, heard
    failed = [event for event in heard if event.code == EventCode.ERR_PROC_ABORTED]
    assert len(failed) == (2 if exit_code else 0), heard
    if exit_code in STATUSES:
        assert {event.info[attrs.PROC_TERM_STATUS] for event in failed} == {STATUSES[exit_code]}, failed


def manager():
    """Return a class of hosts as the README has it."""
    from pypmix.host import Host

    class Mine(Host):
        async def spawn(self, req):
            job = await self.launch(req.apps, near=req.requestor)
            return job.nspace

        async def client_aborted(self, req):
            await self.kill(req.targets, status=req.status)

    return Mine


async def waited_for(cell):
    """All ways in which a job can end."""
    async with cell.host(manager(), grace=0.3) as rm:
        for kind in WAYS:
            await cell.run(rm, spawning, kind)


def half_started(me, folder):
    broken = os.path.join(folder, "broken")
    with open(broken, "w") as file:
        file.write("#!/no/such/interpreter\n")
    os.chmod(broken, 0o700)
    apps = [pypmix.app(child("import time\ntime.sleep(60)")), pypmix.app([broken])]
    with me.events(EventCode.EVENT_JOB_END) as ends:
        assert status(me.spawn, apps) == Status.ERR_JOB_EXE_NOT_FOUND
        # What is heard first is the end of a job that there was.
        job = spawn(me, "")
        assert ends.get(timeout=WAIT).affected == (Proc(job.nspace, Rank.WILDCARD),)


async def not_launched(cell):
    """A job of which one process cannot be started never was."""
    base = manager()

    class Mine(base):
        async def spawn(self, req):
            try:
                return await super().spawn(req)
            except OSError as error:
                assert all(launch.is_over for launch in self._launches if launch.job.size == 2)
                raise pypmix.PMIxError(str(error), status=Status.ERR_JOB_EXE_NOT_FOUND) from None

    async with cell.host(Mine) as rm:
        await cell.run(rm, half_started, rm.tmpdir)


def pulling(me):
    code = "import sys\nfor n in range(50): print('line', n, flush=True)\nprint('bad', file=sys.stderr)"
    job = spawn(me, code)
    found = {2: b"", 4: b""}
    with me.output(job) as stream:
        for piece in stream:
            found[piece.channel] += piece.data
    assert found == {2: b"".join([b"line %d\n" % n for n in range(50)]), 4: b"bad\n"}, found
    # A pull by name, of one who is late.
    job = spawn(me, "print('late')")
    assert job.wait(timeout=WAIT) == 0
    with me.output(job[0]) as stream:
        assert b"".join([piece.data for piece in stream if piece.channel == 2]) == b"late\n"
    return [status(me.push_input, job, b"x"), status(me.output(Proc("acme.none", 0)).open)]


async def output(cell):
    """What spawned jobs write comes to those who pull it, and the stream ends with it."""
    async with cell.host(manager()) as rm:
        ((pushed, unknown),) = await cell.run(rm, pulling)
        # A server of libpmix says a success before its host has an opinion.
        assert pushed == Status.ERR_NOT_SUPPORTED, pushed
        assert unknown == (0 if cell.native else Status.ERR_NOT_FOUND), unknown


def told_by_host(me):
    job = spawn(me, "raise SystemExit(5)", n=2)
    return job.wait(timeout=WAIT)


async def own_processes(cell):
    """A host that starts processes itself says how they end."""
    from pypmix.host import Host

    class Mine(Host):
        async def spawn(self, req):
            (app,) = req.apps
            job = self.job("acme.own", app.maxprocs, app.argv, parent=req.requestor)
            self.tasks = [
                asyncio.create_task(self.one(app, proc)) for proc in self.expand([Proc(job.nspace, Rank.WILDCARD)])
            ]
            return job.nspace

        async def one(self, app, proc):
            self.server.register_client(proc)
            process = await asyncio.create_subprocess_exec(app.cmd, *app.argv[1:])
            self.report_end(proc, await process.wait())

    async with cell.host(Mine) as rm:
        assert await cell.run(rm, told_by_host) == [5]
        for wrong in ((Proc("acme.own", 2), 0), (Proc("demo", 0), 0), (Proc("acme.other", 0), 0)):
            with contextlib.suppress(ValueError):
                rm.report_end(*wrong)
                raise AssertionError(wrong)


def across(me):
    with me.events(EventCode.EVENT_JOB_END) as ends, me.events(EventCode.ERR_PROC_ABORTED) as failures:
        me.fence(timeout=WAIT)
        found = []
        if me.rank == 0:
            job = spawn(me, "import os\nos._exit(4 * (os.environ['PMIX_RANK'] == '3'))", n=4)
            assert job.wait(timeout=WAIT) == 4
            found = [status(me.output(job).open), status(me.output(job[3]).open)]
        assert ended(about(ends, "acme.spawned")) == [4, -187]
        assert about(failures, "acme.spawned").affected[0].rank == 3
        me.fence(timeout=WAIT)
    return found


async def on_both(cell):
    """A job on two nodes ends when its procs on both have, and is told on both."""
    from pypmix.host import Host

    nodes = {"n0": [0, 1], "n1": [2, 3]}

    class Mine(Host):
        async def spawn(self, req):
            (app,) = req.apps
            data = json.dumps([app.cmd, *app.argv[1:]]).encode()
            self._exchange.broadcast("spawn", data)
            self.begin(data, req.requestor)
            return "acme.spawned"

        def begin(self, data, parent=None):
            job = self.job("acme.spawned", argv=json.loads(data), nodes=nodes, parent=parent)
            self.task = asyncio.ensure_future(self.follow(job))

        async def follow(self, job):
            async with self.start(job) as procs:
                await procs.wait()

    async with contextlib.AsyncExitStack() as stack:
        rm = await opened(cell, stack, Mine)
        rm._exchange.hear("spawn", lambda _name, data: rm.loop.call_soon_threadsafe(rm.begin, data))
        await rm.exchange("hears", nodes=nodes, timeout=WAIT)
        found = await cell.run(rm, across, nodes=nodes)
        refused = 0 if cell.native else Status.ERR_NOT_SUPPORTED
        assert found == ([[refused, refused], []] if cell.node == "n0" else [[], []]), found
        await rm.task
        await rm.exchange("end", nodes=nodes, timeout=WAIT)
