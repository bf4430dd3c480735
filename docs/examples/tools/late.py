"""Steps of a program in which one rank has more to do than the others."""

import time

import pypmix

with pypmix.Client() as me:
    for step in range(3):
        time.sleep(0.25 if me.rank == 2 else 0.1)
        me.put(f"result.{step}", me.rank)
        me.fence()
        following = me.job.procs[(me.rank + 1) % me.job.size]
        me.get(f"result.{step}", following)
