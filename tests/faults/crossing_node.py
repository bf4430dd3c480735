"""A node of `test_crossing_nodes`, or a rank of one.

crossing_node.py node NAME FOLDER       serve two ranks of a job of four on two nodes, and start them
crossing_node.py rank                   exchange, then wait in a fence for ranks that never come
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time

NSPACE = "job"
NAMES = ("n0", "n1")
PLACES = {0: "n0", 1: "n0", 2: "n1", 3: "n1"}
PATIENCE = 20


def say(**facts):
    # In one piece: all ranks of a node have this output.
    os.write(1, json.dumps(facts).encode() + b"\n")


def node(name, folder):
    from pypmix import Proc, Server, attrs
    from pypmix.host.exchange import Crossing, Exchange, TCPCarrier
    from pypmix.server import accept
    from pypmix.standard.jobinfo import JobInfo
    from pypmix.standard.ops import ClientLost

    local = tuple(rank for rank, place in PLACES.items() if place == name)
    job = JobInfo(
        NSPACE,
        (attrs.JOB_SIZE(4), attrs.UNIV_SIZE(4), attrs.NUM_NODES(2)),
        tuple((attrs.NODEID(number), attrs.HOSTNAME(each)) for number, each in enumerate(NAMES)),
        procs=tuple((rank, (attrs.HOSTNAME(place), attrs.LOCAL_RANK(rank % 2))) for rank, place in PLACES.items()),
    )
    crossings = []

    def on_upcall(upcall):
        if isinstance(upcall.op, ClientLost):
            crossings[0].departed(upcall.op.proc)
        if not crossings[0].answer(upcall):
            accept(upcall)

    exchange = Exchange(TCPCarrier.in_folder(name, folder))
    with Server(on_upcall) as server:
        crossings.append(Crossing(server, exchange))
        there = threading.Event()
        exchange.when_present(NAMES, lambda _, error: there.set() if error is None else None, timeout=PATIENCE)
        exchange.start()
        crossings[0].register(job, PLACES)
        server.register_nspace(job, local)
        assert there.wait(PATIENCE)
        ranks = []
        inherited = {key: value for key, value in os.environ.items() if not key.startswith("PMIX")}
        for rank in local:
            proc = Proc(NSPACE, rank)
            server.register_client(proc)
            env = {**inherited, **server.client_env(proc)}
            ranks.append(subprocess.Popen([sys.executable, __file__, "rank"], env=env))
        for rank in ranks:
            rank.wait()
    exchange.close()


def rank():
    from pypmix import Client, PMIxError

    with Client() as me:
        me.put("key", me.rank * 10)
        me.fence(collect=True)
        say(rank=me.rank, got=[me.get("key", proc) for proc in me.job])
        if me.rank in (0, 3):
            me.fence([me.job[0], me.job[3]])
        say(rank=me.rank, ready=True)
        if me.rank > 1:
            time.sleep(60)
        begin = time.monotonic()
        for timeout in (PATIENCE, None):
            try:
                me.fence(timeout=timeout)
                say(rank=me.rank, end="success")
            except PMIxError as error:
                say(rank=me.rank, end=error.status.name, seconds=time.monotonic() - begin)


if __name__ == "__main__":
    if sys.argv[1] == "node":
        node(*sys.argv[2:])
    else:
        rank()
