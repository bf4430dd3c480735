"""A user's program on a cluster: `driver.py dask|ray ADDRESS WHAT [WORD ...]`; it prints what comes of it."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import Any

from pypmix.extras.frameworks.engine import Nodes
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

MEETS = """
import os, sys
from pypmix import Client, EventCode, Proc, Range, Rank, attrs

LOAD = EventCode.custom(-4242)
BLOB = 3 << 20

with Client() as me:
    if len(sys.argv) > 1:
        partner = sys.argv[1]
    else:
        with me.events(LOAD) as events:
            me.put("blob", bytes([me.rank]) * BLOB)
            me.fence(collect=True, timeout=60)
            blobs = {me.get("blob", proc=proc) for proc in me.job.procs}
            assert blobs == {bytes([rank]) * BLOB for rank in range(me.job.size)}
            if me.rank == 0:
                me.notify(LOAD, data_range=Range.NAMESPACE, info={"acme.load": 0.75})
            print("load", events.get(timeout=60).info["acme.load"], flush=True)
            if me.rank == 0:
                hosts = {attrs.HOST: "n2,n3", attrs.MAPBY: "node"}
                partner = me.spawn(["python", "-c", os.environ["MEETS"], me.nspace], n=2, info=hosts).nspace
                me.put("partner", partner)
                me.commit()
            else:
                partner = me.get("partner", me.job[0], timeout=60)
    with me.connect([Proc(me.nspace, Rank.WILDCARD), Proc(partner, Rank.WILDCARD)], timeout=60) as both:
        me.fence(both, timeout=60)
        print("together", both.rank, me.node.hostname, flush=True)
"""

SPEED = """
import time
from pypmix import Client

with Client() as me:
    me.fence(timeout=60)
    times = []
    for _ in range(60):
        began = time.perf_counter()
        me.fence(timeout=60)
        times.append(time.perf_counter() - began)
    if me.rank == 0:
        print("fence", sorted(times)[30], flush=True)
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


AGAIN = """
import sys, time
from pypmix import Client, EventCode, attrs

with Client() as me:
    with me.events(EventCode.EVENT_NODE_DOWN) as events:
        print("waiting", flush=True)
        print("lost", events.get(timeout=100).info[attrs.HOSTNAME], flush=True)
    deadline = time.monotonic() + 150
    while time.monotonic() < deadline:
        try:
            me.spawn(["sh", "-c", "echo joined $PMIX_HOSTNAME"], info={attrs.HOST: sys.argv[1]}).wait(timeout=100)
            break
        except Exception as error:
            print(error, file=sys.stderr)
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


def waits(seconds: float) -> int:
    import pypmix

    with pypmix.Client() as me:
        me.fence(timeout=60)
        print("ready", flush=True)
        time.sleep(seconds)
        return me.rank


def told(word: str, call: Callable[[], Any]) -> None:
    try:
        print(word, call(), flush=True)
    except PMIxError as error:
        print(word, "refused", error, flush=True)


def nodes_of(kind: str, address: str, count: int | None = None, direct: bool | None = None) -> Nodes:
    if kind == "ray":
        import ray

        import pypmix.ray

        ray.init(address=address, log_to_driver=False)
        return pypmix.ray.nodes(count or 3, num_cpus=2, direct=direct)
    from distributed import Client, LocalCluster

    import pypmix.dask

    if address == "tls":
        from distributed.security import Security

        security = Security.temporary()
        here = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None, security=security)
        return pypmix.dask.nodes(Client(here), direct=direct)
    if address == "scaled":
        return pypmix.dask.nodes(Client(LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)))
    return pypmix.dask.nodes(Client(address), n=count, direct=direct)


def main(kind: str, address: str, what: str, *words: str) -> None:
    direct = False if what == "switched" else None
    with nodes_of(kind, address, 2 if what == "grows" else None, direct) as nodes:
        print(nodes, flush=True)
        if what == "meets":
            outcome = nodes.run(["python", "-c", MEETS], env={"MEETS": MEETS})
            print("outcome", outcome.code, outcome.reason, flush=True)
        if what == "twice":
            told("first", lambda: nodes.call(waits, 5.0))
            told("second", lambda: nodes.call(waits, 0.0, patience=100))
        if what == "speed":
            for _ in range(int(words[0])):
                for nodes._direct in (True, False):
                    print("direct" if nodes._direct else "switched", flush=True)
                    nodes.run(["python", "-c", SPEED])
        if what in ("calls", "all", "switched"):
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
            if kind == "ray":
                import ray

                # What was reserved for the further node is free again, without which no autoscaler takes it back.
                deadline = time.monotonic() + 60
                while (free := ray.available_resources().get("CPU", 0)) < 2 and time.monotonic() < deadline:
                    time.sleep(0.1)
                print("free", free, flush=True)
            if address == "scaled":
                from distributed import get_client

                deadline = time.monotonic() + 60
                while (left := len(get_client().scheduler_info()["workers"])) > 1 and time.monotonic() < deadline:
                    time.sleep(0.1)
                print("workers", left, flush=True)
        if what == "again":
            outcome = nodes.run(["python", "-c", AGAIN, words[0]], n=1, terms=Terms(stdin=None, keep_going=True))
            print("outcome", outcome.code, outcome.reason, nodes, flush=True)
            engine: Any = nodes._engine
            (lost,) = [name for name, process in engine._workers.items() if process in engine._lost]
            told("late", lambda: engine.call(lost, "stop"))
        if what == "waits":
            terms = Terms(stdin=None, keep_going=True)
            outcome = nodes.run(["python", "-c", WAITS, words[0]], terms=terms)
            print("outcome", outcome.code, outcome.reason, flush=True)
            print("left", len(nodes.call(together, 1)), flush=True)
    if what == "anew":
        while not os.path.exists(words[0]):
            time.sleep(0.05)
        if kind == "ray":
            import pypmix.ray

            told("all", lambda: pypmix.ray.nodes(timeout=5))
            told("anew", lambda: pypmix.ray.nodes(3))
        else:
            import pypmix.dask

            told("anew", pypmix.dask.nodes)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except PMIxError as error:
        print("refused", error, flush=True)
        sys.exit(1)
