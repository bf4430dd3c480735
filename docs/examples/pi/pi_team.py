"""The last rank is killed before it has shared its sum; the others compute its part and have the result."""

import os
import signal

from pi import part

import pypmix

with pypmix.Client() as me, me.group("acme.pi", me.job.procs, ft=True, timeout=30) as team:
    print(f"rank {me.rank} of {me.job.size} on {me.node.hostname}: a team of {team.size}", flush=True)
    me.fence(team, timeout=30)
    if me.rank == me.job.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)

    sums = team.allgather(part(me.rank, me.job.size), timeout=30)
    lost = [proc for proc in me.job if proc not in sums.procs]
    for proc in lost:
        sums.append(part(proc.rank, me.job.size))
    print(f"rank {me.rank}: pi is {sum(sums):.9f}, computed without ranks {[proc.rank for proc in lost]}", flush=True)
