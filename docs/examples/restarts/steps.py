"""Ranks add up numbers step by step; a rank that is started again gets the sum of the others, and goes on with them."""

import os
import signal
import sys
import time

import pypmix
from pypmix import Persist, attrs

STEPS = 20
killed = {int(word.partition("@")[0]): int(word.partition("@")[2]) for word in sys.argv[1:]}


def gather(me, state):
    """Return the latest state of all ranks, once all have come; wait for ranks that are started again."""
    me.put("acme.state", list(state))
    while True:
        try:
            me.fence(collect=True, timeout=60)
            return max(tuple(me.get("acme.state", proc)) for proc in me.job)
        except pypmix.PartialSuccess:
            # A rank is being started again, or one that was ahead has finished.
            found = me.lookup([f"acme.sum.{rank}" for rank in range(me.job.size)])
            for published in found.values():
                return STEPS, published.value
            time.sleep(0.05)


with pypmix.Client() as me:
    life = me.get(attrs.REINCARNATION, me.proc)
    step = total = 0
    while step < STEPS:
        # A rank that is started again begins with step 0, and takes the state of those that are ahead.
        step, total = gather(me, (step, total))
        if step == STEPS:
            break
        if killed.get(me.rank, STEPS) <= step and life == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)  # the work of a step
        step, total = step + 1, total + step
    me.publish({f"acme.sum.{me.rank}": total}, persist=Persist.APP)
    print(f"rank {me.rank}, started {life + 1} times: the sum is {total}", flush=True)
