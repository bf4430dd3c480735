"""Rank 0 has two connections, as one with an MPI: it ends one while rank 1 waits in a fence for the other.

two_connections.py LIBPMIX    rank 0 loads it, and so has what makes a process likely to have a connection more
"""

import ctypes
import subprocess
import sys
import time

import pypmix

if sys.argv[1] == "second":
    with pypmix.Client(engine="python") as me:
        print("open", flush=True)
        input()
        me.fence(timeout=20)
        print("second", me.rank, flush=True)
    sys.exit()

ctypes.CDLL(sys.argv[1])
with pypmix.Client(engine="python") as me:
    if me.rank == 1:
        me.put("entering", 1)
        me.commit()
        me.fence(timeout=20)
        print("first", me.rank, flush=True)
        sys.exit()
    second = subprocess.Popen(
        [sys.executable, __file__, "second"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert second.stdout.readline() == "open\n"
    me.get("entering", me.job[1], timeout=20)
    # Its fence follows what it has put on the same connection.
    time.sleep(0.3)
time.sleep(0.3)
out, _ = second.communicate("\n", timeout=30)
print(out, end="", flush=True)
