"""Ranks add up numbers with `torch.distributed`; a rank that is started again takes part in a new process group."""

import os
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

import pypmix
import pypmix.torch
from pypmix import Persist, attrs

STEPS = 20
LIMIT = timedelta(seconds=20)
killed = {int(word.partition("@")[0]): int(word.partition("@")[2]) for word in sys.argv[1:]}


def meet(me, state):
    """Return the latest state of all ranks, once all have come; wait for ranks that are started again."""
    me.put("acme.state", list(state))
    while True:
        try:
            me.fence(collect=True, timeout=120)
            return max(tuple(me.get("acme.state", proc)) for proc in me.job)
        except pypmix.PartialSuccess:
            # A rank is being started again, or one that was ahead has finished.
            found = me.lookup([f"acme.sum.{rank}" for rank in range(me.job.size)])
            for published in found.values():
                return STEPS, published.value
            time.sleep(0.05)


def begin(me):
    """Begin a process group; the present process of rank 0 opens its store."""
    if me.rank == 0:
        host = me.node.hostname if me.job.number_of_nodes > 1 else "127.0.0.1"
        store = dist.TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=LIMIT)
        me.put("acme.host", host)
        me.put("acme.port", store.port)
    me.fence(collect=True, timeout=120)
    if me.rank != 0:
        store = dist.TCPStore(me.get("acme.host", 0), me.get("acme.port", 0), is_master=False, timeout=LIMIT)
    dist.init_process_group("gloo", store=store, rank=me.rank, world_size=me.job.size, timeout=LIMIT)


me = pypmix.torch.client()
life = me.get(attrs.REINCARNATION, me.proc)
step = total = 0
while step < STEPS:
    # A rank that is started again begins with step 0, and takes the state of those that are ahead.
    step, total = meet(me, (step, total))
    if step == STEPS:
        break
    try:
        begin(me)
        while step < STEPS:
            if killed.get(me.rank, STEPS) <= step and life == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            part = torch.tensor([step])
            dist.all_reduce(part)
            step, total = step + 1, total + int(part)
    except (RuntimeError, pypmix.PartialSuccess) as error:
        print(f"rank {me.rank}: a rank is missing in step {step}: {type(error).__name__}", file=sys.stderr)
    if dist.is_initialized():
        dist.destroy_process_group()
me.publish({f"acme.sum.{me.rank}": total}, persist=Persist.APP)
print(f"rank {me.rank}, started {life + 1} times: the sum is {total}", flush=True)
