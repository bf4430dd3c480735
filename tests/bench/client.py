"""The Python side of the bench: the same operations as client.c, through pypmix."""

import sys
import time

started = time.perf_counter()

from pypmix import Client  # noqa: E402
from pypmix.standard.types import Proc  # noqa: E402
from pypmix.standard.values import uint32  # noqa: E402
from pypmix.timing import clock, median, timed  # noqa: E402

local, fences, collects = map(int, sys.argv[1:4])


def server_cpu() -> float:
    """What all threads of the server, our parent, have run so far, in microseconds."""
    total = 0
    for task in glob.glob(f"/proc/{os.getppid()}/task/*/schedstat"):
        with open(task) as stat:
            total += int(stat.read().split()[0])
    return total / 1e3


imported = clock()
me = Client().open()
result = {"import": (imported - started) * 1e6, "init": (clock() - imported) * 1e6}
size = me.job.size
peer = me.job[(me.rank + 1) % size]
everyone = Proc(me.nspace, 0xFFFFFFFE)
value = uint32(7)
me.put("bench.key", value)
me.fence(collect=True)
me.get("bench.key", peer)
me.fence()

import glob  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402

result["put"] = timed(local, me.put, "bench.key", value)
me.commit()
result["get own"] = timed(local, me.get, "bench.key")
result["get peer"] = timed(local, me.get, "bench.key", peer)
result["get job"] = timed(local, me.get, "pmix.job.size", everyone)
me.fence()
before = server_cpu()
result["fence"] = timed(fences, me.fence)
result["server cpu/msg"] = (server_cpu() - before) / fences / size
blob = bytes(1024)
times = []
for turn in range(collects):
    me.put(f"bench.blob.{turn % 4}", blob)
    me.fence()
    begin = clock()
    me.fence(collect=True)
    times.append(clock() - begin)
result["fence collect"] = median(times)

with open(os.path.join(os.environ["BENCH_OUT"], f"{me.rank}.json"), "w") as out:
    json.dump(result, out)
me.close()
