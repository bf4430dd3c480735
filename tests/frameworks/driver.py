"""A user's program on a cluster: `driver.py dask|ray ADDRESS WHAT [WORD ...]`; it prints what comes of it."""

from __future__ import annotations

import os
import sys
import time

from pypmix.host.rosters.engine import Nodes
from pypmix.host.terms import Terms
from pypmix.standard.errors import PMIxError

WAITS = """
import sys, time
from pypmix import Client, PartialSuccess

with Client() as me:
    me.fence(collect=True, timeout=60)
    print("ready", me.rank, me.node.hostname, flush=True)
    if me.node.hostname == sys.argv[1]:
        time.sleep(300)
    try:
        me.fence(timeout=200)
    except PartialSuccess as error:
        print("without", sorted(proc.rank for proc in error.missing), flush=True)
"""

GROWS = """
from pypmix import AllocDirective, Client, attrs

with Client() as me:
    answer = me.allocate(AllocDirective.EXTEND, timeout=100, info={attrs.ALLOC_NUM_NODES: 1})
    new = answer[attrs.ALLOC_NODE_LIST]
    print("grown", new, flush=True)
    me.spawn(["sh", "-c", "echo spawned on $PMIX_HOSTNAME"], info={attrs.HOST: new}).wait(timeout=100)
    me.allocate(AllocDirective.RELEASE, timeout=100, info={attrs.ALLOC_NODE_LIST: new})
    print("released", flush=True)
"""

JOINED = """
import time
from pypmix import Client, attrs

with Client() as me:
    print("waiting", flush=True)
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        try:
            me.spawn(["sh", "-c", "echo joined $PMIX_HOSTNAME"], info={attrs.HOST: "n3"}).wait(timeout=100)
            break
        except Exception as error:
            time.sleep(0.5)
"""


def together(number: int, more: int = 0) -> tuple[int, int, list[int], int, str]:
    import pypmix

    with pypmix.Client() as me:
        me.put("x", me.rank * number)
        me.fence(collect=True)
        found = [me.get("x", proc=proc) for proc in me.job.procs]
        with me.group("team", me.job.procs, context_id=True, timeout=60) as group:
            return me.rank, more, found, group.size, me.node.hostname


def fails() -> None:
    import pypmix

    with pypmix.Client() as me:
        me.fence(timeout=60)
        if me.rank == 1:
            raise KeyError("what rank 1 lacks")
        time.sleep(300)


def nodes_of(kind: str, address: str, count: int | None = None) -> Nodes:
    if kind == "ray":
        import ray

        import pypmix.ray

        ray.init(address=address, log_to_driver=False)
        return pypmix.ray.nodes(count or 3, num_cpus=2)
    from distributed import Client, LocalCluster

    import pypmix.dask

    if address == "tls":
        from distributed.security import Security

        security = Security.temporary()
        here = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, security=security)
        return pypmix.dask.nodes(Client(here))
    return pypmix.dask.nodes(Client(address), n=count)


def main(kind: str, address: str, what: str, *words: str) -> None:
    with nodes_of(kind, address, 2 if what == "grows" else None) as nodes:
        print(nodes, flush=True)
        if what in ("calls", "all"):
            print("returned", nodes.call(together, 10, more=3), flush=True)
            try:
                nodes.call(fails)
            except KeyError as error:
                note = error.__notes__[0].splitlines()
                print("raised", error, "|", note[0], "|", note[-1], flush=True)
            outcome = nodes.run(["./nosuch"], n=2)
            print("outcome", outcome.code, outcome.reason, flush=True)
        if what == "all":
            env = {name: os.environ[name] for name in os.environ if name.startswith("OMPI_")}
            outcome = nodes.run(words, n=4, env={**env, "PYTHONPATH": ""})
            print("mpi", outcome.code, outcome.reason, flush=True)
        if what in ("grows", "joined"):
            outcome = nodes.run(["python", "-c", GROWS if what == "grows" else JOINED], n=1)
            print("outcome", outcome.code, outcome.reason, nodes, flush=True)
        if what == "waits":
            terms = Terms(stdin=None, keep_going=True)
            outcome = nodes.run(["python", "-c", WAITS, words[0]], terms=terms)
            print("outcome", outcome.code, outcome.reason, flush=True)
            print("left", len(nodes.call(together, 1)), flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except PMIxError as error:
        print("refused", error, flush=True)
        sys.exit(1)
