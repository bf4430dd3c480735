"""Ranks over the workers of a Dask cluster: `python dask_nodes.py tcp://SCHEDULER:8786`."""

import sys

from distributed import Client

import pypmix.dask

HELLO = """
from pypmix import Client

with Client() as me:
    print(f"hello from {me.rank} of {me.job.size} on {me.node.hostname}")
"""


def total(factor):
    """Runs in each rank of a job."""
    with pypmix.Client() as me:
        me.put("share", factor * me.rank)
        me.fence(collect=True)
        return sum(me.get("share", proc=proc) for proc in me.job.procs)


def task(factor):
    """Runs in a worker, as a task; its ranks are on two workers."""
    with pypmix.dask.nodes(n=2, slots=1) as nodes:
        return nodes.call(total, factor)


if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
        with pypmix.dask.nodes(client) as nodes:
            print(nodes)
            outcome = nodes.run(["python", "-c", HELLO], n=6)
            print("exit code", outcome.code)
            print("totals", nodes.call(total, 10, n=6))
        print("totals of a task", client.submit(task, 7).result())
