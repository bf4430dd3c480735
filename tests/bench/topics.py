"""The Python side of the bench for two ranks: an event from one to the other, a query, and a spawn."""

import json
import os
import sys

from pypmix import Client, EventCode, PMIxError, Range
from pypmix.timing import clock, median, timed

rounds, spawns = map(int, sys.argv[1:3])
PING, PONG = EventCode.custom(-4001), EventCode.custom(-4002)

with Client() as me:
    result = {}
    with me.events(PONG if me.rank == 0 else PING) as events:
        me.fence()
        times = []
        for _ in range(rounds):
            begin = clock()
            if me.rank == 0:
                me.notify(PING, data_range=Range.LOCAL, cache=False)
                events.get(timeout=20)
                times.append((clock() - begin) / 2)
            else:
                events.get(timeout=20)
                me.notify(PONG, data_range=Range.LOCAL, cache=False)
        if times:
            result["event"] = median(times)
    me.fence()
    if me.rank == 0:
        result["query"] = timed(rounds, me.query, "pmix.qry.ns")
        try:
            result["spawn"] = timed(spawns, me.spawn, ["true"], notify=False)
        except PMIxError as error:
            print(f"no spawn: {error}", file=sys.stderr)
    me.fence()
    with open(os.path.join(os.environ["BENCH_OUT"], f"{me.rank}.json"), "w") as out:
        json.dump(result, out)
