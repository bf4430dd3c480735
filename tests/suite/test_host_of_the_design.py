"""The resource manager of the design, word for word, is one that runs, on the server of every engine and libpmix."""

from __future__ import annotations

import re
import sys

import pytest

from lib import pairings
from lib.running import Jobs

# What the design shows. What its reader has to write is below: `agree` and `next_cid`.
DESIGN = """
from pypmix import aio, Status
from pypmix.host import Host, JobLayout

class MyRM(Host):                                                 # every upcall has a default: NOT_SUPPORTED
    async def fence(self, req):                                   # runs in *your* loop, never on the progress thread
        blobs = await self.exchange(req.signature, req.data, timeout=req.timeout)
        return b"".join(blobs)                                    # the modex reply; raise PMIxError to fail it

    async def group(self, req):
        members = await self.agree(req.group, req.procs | req.added)
        return req.reply(members=members, context_id=self.next_cid() if req.wants_context_id else None)

    async def spawn(self, req):
        job = await self.launch(req.apps, near=req.requestor)
        return job.nspace

    async def client_aborted(self, req):
        await self.kill(req.targets, status=req.status)

async def main():
    async with MyRM(engine=ENGINE) as rm:                         # or "python"; same subclass
        job = rm.job("demo", np=4, nodes={"n0": [0, 1], "n1": [2, 3]})
        async with rm.start(job, ["./client"], forward_output=True) as procs:
            print(await procs.wait())
"""

PROGRAM = (
    """
import asyncio, os, sys, tempfile

ENGINE = sys.argv[1]
"""
    + DESIGN
    + """
async def agree(self, group, members):
    return members

MyRM.agree = agree
MyRM.next_cid = Host.next_context_id
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    with open("client", "w") as file:
        file.write("#!" + sys.executable + sys.argv[2])
    os.chmod("client", 0o755)
    asyncio.run(main())
"""
)

CLIENT = """
import time

import pypmix

with pypmix.Client() as me:
    me.put("port", 5000 + me.rank)
    me.fence(collect=True, timeout=30)
    ports = [me.get("port", proc) for proc in me.job]
    print(f"rank {{me.rank}}: {{ports}}")
    evens = [proc for proc in me.job if proc.rank % 2 == 0]
    if me.proc in evens:
        with me.group("acme.evens", evens, context_id=True) as group:
            print(f"rank {{me.rank}} is {{group.rank}} of {{group.size}}, number {{group.context_id}}")
    if me.rank == 0:
        print("spawned", me.spawn(["true"], n=2))
    me.fence(timeout=30)
    if {aborts}:
        if me.rank == 3:
            me.abort(17, "enough")
        time.sleep(60)
"""


@pytest.fixture(params=pairings.clients())
def manage(request, job_folder):
    """Run the resource manager on a server of an engine; its ranks are clients of the same one."""
    pairings.require_client(request.param)
    jobs = Jobs(job_folder, request.param == pairings.ROOT_CLIENT)

    def run(aborts):
        environment = pairings.client_environment(request.param)
        line = [sys.executable, "-c", PROGRAM, environment["PYPMIX_ENGINE"], CLIENT.format(aborts=aborts)]
        return jobs.begin(line, environment=environment).wait()

    yield run
    jobs.end()


def test_it_runs(manage):
    job = manage(False)
    assert job.exit_code == 0 and not job.hung, job.report()
    ports = [5000, 5001, 5002, 5003]
    for rank in range(4):
        assert f"rank {rank}: {ports}\n" in job.stdout, job.report()
    numbers = re.findall(r"rank (\d) is (\d) of 2, number (\d+)", job.stdout)
    assert sorted(number[:2] for number in numbers) == [("0", "0"), ("2", "1")], job.report()
    assert len({number for *_, number in numbers}) == 1
    assert re.search(r"^spawned .", job.stdout, re.MULTILINE), job.report()
    assert "{0: 0, 1: 0, 2: 0, 3: 0}\n" in job.stdout, job.report()


def test_an_abort_ends_the_job(manage):
    job = manage(True)
    assert not job.hung, job.report()
    assert "{0: -15, 1: -15, 2: -15, 3: -15}\n" in job.stdout, job.report()
