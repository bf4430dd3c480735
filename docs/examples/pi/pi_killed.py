"""The last rank is killed before it has shared its sum; the others see an error."""

import os
import signal

from pi import part

import pypmix

with pypmix.Client() as me:
    if me.rank == me.job.size - 1:
        os.kill(os.getpid(), signal.SIGKILL)
    me.put("sum", part(me.rank, me.job.size))
    try:
        me.fence(collect=True, timeout=30)
    except pypmix.PartialSuccess as error:
        print(f"rank {me.rank} has no pi: it misses ranks {[proc.rank for proc in error.missing or ()]}")
