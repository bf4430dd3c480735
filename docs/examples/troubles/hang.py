"""The last rank waits for something else, and the others wait for it."""

import time

from pypmix import Client

with Client() as me:
    if me.rank == me.job.size - 1:
        time.sleep(3600)
    me.fence()
