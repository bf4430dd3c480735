"""Rank 1 is killed; the other members of its group exchange values."""

import os
import signal

import pypmix


def exchange(me, g):
    if me.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)

    values = g.allgather(10 * me.rank, timeout=20)
    loads = dict(zip([proc.rank for proc in values.procs], values, strict=True))

    root = me.job[0]
    parts = {proc: f"part {proc.rank}" for proc in me.job.procs} if me.proc == root else None
    part = g.scatter(parts, root=root, timeout=20)
    word = g.bcast("continue" if me.proc == root else None, root=root, timeout=20)
    print(f"rank {me.rank} knows {loads}, {part}, {word}")


with pypmix.Client() as me:
    if me.supports("group.ft"):
        with me.group("acme.survivors", me.job.procs, ft=True, timeout=20) as g:
            exchange(me, g)
    else:
        print(f"rank {me.rank} has no group that survives its members")
