"""A rank that uses all that the resource manager of the tutorial offers."""

import sys

import pypmix

SPAWNED = """
import pypmix
with pypmix.Client() as me:
    print("a spawned job", flush=True)
    me.publish({"acme.motto": "all together"})
"""

with pypmix.Client() as me:
    me.put("port", 5000 + me.rank)
    me.fence(collect=True, timeout=20)
    ports = [me.get("port", proc) for proc in me.job]
    with me.group("everybody", me.job, context_id=True, timeout=20) as group:
        print(f"rank {me.rank} on {me.node.hostname}: ports {ports}, context id {group.context_id}")
    if me.rank == 0:
        me.spawn([sys.executable, "-c", SPAWNED])
    print(f"rank {me.rank} looks up: {me.lookup('acme.motto', timeout=20)}")
    me.fence(timeout=20)
