"""The members of a group go on when one of them is killed."""

import os
import signal

import pypmix

with pypmix.Client() as me, me.group("acme.team", me.job.procs, ft=True, timeout=60) as team:
    print(f"rank {me.rank} of {me.job.size} on {me.node.hostname}: a team of {team.size}", flush=True)
    me.fence(team, timeout=60)  # all have told, so the last rank may go
    if me.rank == me.job.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with team.changes() as changes:
        change = changes.next(timeout=60)
    print(f"rank {me.rank}: {type(change).__name__}, {len(change.members)} members left", flush=True)
    me.fence(team, timeout=60)  # of those who live
    print(f"rank {me.rank}: all of team {sorted(proc.rank for proc in team.members)} are here", flush=True)
