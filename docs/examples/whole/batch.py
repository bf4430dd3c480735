"""A batch system: `batch.py SLOTS < JOBS` runs jobs in their order, as many at a time as the slots allow.

Each line of JOBS is a number of ranks and a command.
"""

import asyncio
import shlex
import sys

from pypmix.host import Host


class Batch(Host):
    """A server for the ranks of all jobs, and the slots that they share."""

    def __init__(self, slots):
        super().__init__()
        self.slots = self.free = slots
        self.freed = asyncio.Condition()
        self.running = set()

    # What ranks ask for. All else is answered by the class itself.

    async def client_aborted(self, req):
        print(f"{req.proc.nspace}: a rank aborts the job with {req.status}", flush=True)
        # The job ends only after this answer.
        self.running.add(asyncio.ensure_future(self.kill(req.targets, status=req.status)))

    # The queue.

    async def work_off(self, lines):
        codes = {}
        for number, line in enumerate(lines, 1):
            size, *argv = shlex.split(line)
            job = self.job(f"job{number}", int(size), argv)
            if job.size > self.slots:
                print(f"{job.nspace}: {job.size} ranks never fit into {self.slots} slots", flush=True)
                codes[job.nspace] = 1
                continue
            async with self.freed:
                while self.free < job.size:
                    await self.freed.wait()
                self.free -= job.size
            self.running.add(asyncio.ensure_future(self.work(job, codes)))
        await asyncio.gather(*self.running)
        return codes

    async def work(self, job, codes):
        print(f"{job.nspace}: {job.size} ranks start, {self.free} of {self.slots} slots stay free", flush=True)
        async with self.start(job, forward_output=True) as procs:
            ended = await procs.wait()
            codes[job.nspace] = procs.status or max(ended.values())
        print(f"{job.nspace}: ended with {codes[job.nspace]}", flush=True)
        async with self.freed:
            self.free += job.size
            self.freed.notify_all()


async def main():
    async with Batch(int(sys.argv[1])) as batch:
        codes = await batch.work_off(sys.stdin.read().splitlines())
    return max(codes.values(), default=0)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
