"""Ranks add up numbers step by step; a rank that is started again gets the sum of the others, and goes on with them."""

import os
import signal
import sys
import time

import pypmix
from pypmix import EventCode, attrs

STEPS = 20
killed = {int(word.partition("@")[0]): int(word.partition("@")[2]) for word in sys.argv[1:]}


def gather(me, restarts, state):
    """Return the states of all ranks; wait for a rank that is started again."""
    me.put("acme.state", list(state))
    while True:
        try:
            me.fence(collect=True, timeout=60)
            return [tuple(me.get("acme.state", proc)) for proc in me.job]
        except pypmix.PartialSuccess:
            restarts.get(timeout=60)


with pypmix.Client() as me, me.events(EventCode.ERR_PROC_RESTART) as restarts:
    life = me.get(attrs.REINCARNATION, me.proc)
    step = total = 0
    while step < STEPS:
        # A rank that is started again begins with step 0, and takes the state of those that are ahead.
        step, total = max(gather(me, restarts, (step, total)))
        if killed.get(me.rank) == step and life == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.02)  # the work of a step
        step, total = step + 1, total + step
    print(f"rank {me.rank}, started {life + 1} times: the sum is {total}", flush=True)
