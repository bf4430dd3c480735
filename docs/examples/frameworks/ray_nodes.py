"""Ranks over actors of a Ray cluster: `python ray_nodes.py ADDRESS`."""

import sys

import ray

import pypmix.ray

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


@ray.remote(num_cpus=0)
def task(factor):
    """Runs as a task of Ray; its ranks are on two nodes."""
    with pypmix.ray.nodes(2) as nodes:
        return nodes.call(total, factor)


if __name__ == "__main__":
    ray.init(address=sys.argv[1])
    with pypmix.ray.nodes(3, num_cpus=2) as nodes:
        print(nodes)
        outcome = nodes.run(["python", "-c", HELLO], n=6)
        print("exit code", outcome.code)
        print("totals", nodes.call(total, 10, n=6))
    print("totals of a task", ray.get(task.remote(7)))
