"""Ranks have their launcher write a line and send a signal."""

import signal

from pypmix import Client

with Client() as me:
    if not me.supports("job_control"):
        print("no server that steers processes")
        raise SystemExit

    me.log(f"rank {me.rank} is at work\n", to="stderr")

    seen = []
    signal.signal(signal.SIGUSR1, lambda number, frame: seen.append(number))
    me.fence(timeout=30)
    if me.rank == 0 and me.job.size > 1:
        me.control(me.job.procs[1:]).signal(signal.SIGUSR1)
    me.fence(timeout=30)  # by now it has been sent
    print(f"rank {me.rank} is done")
