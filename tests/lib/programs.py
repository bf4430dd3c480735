"""The program that shows that the ranks of a job reach each other, wherever they are.

Each rank puts its number, and gets those of all. It prints its rank, the size of the job, its node, and the sum.
"""

TOTAL = """\
import pypmix
with pypmix.Client() as me:
    me.put("rank", me.rank)
    me.fence(collect=True)
    total = sum(me.get("rank", proc=proc) for proc in me.job.procs)
    print(me.rank, me.job.size, me.node.hostname, total, flush=True)
"""
