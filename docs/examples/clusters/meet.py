"""Two jobs of different clusters meet: each publishes its name, looks the other's up, and connects with it."""

import sys

from pypmix import Client, Proc, Range, Rank, attrs, cluster_nspace, split_nspace

mine, theirs = sys.argv[1:]

with Client() as me:
    # What other clusters call this job: another one may have a job of the same name.
    myself = cluster_nspace(me.get(attrs.CLUSTER_ID), me.nspace)
    if me.rank == 0:
        me.publish({mine: myself}, data_range=Range.GLOBAL)
    partner = me.lookup(theirs, timeout=30)

    me.put("endpoint", f"{myself} {me.rank}")
    jobs = [Proc(myself, Rank.WILDCARD), Proc(partner, Rank.WILDCARD)]
    with me.connect(jobs, connect_id="meeting", timeout=30) as both:
        size = both.jobs[partner].size
        print(f"rank {me.rank} of {myself} is {both.rank} of {both.size} with {split_nspace(partner)[0]}'s {size}")
        both.fence(collect=True, timeout=30)
        first, last = me.get("endpoint", both[0]), me.get("endpoint", both[both.size - 1])
        print(f"{myself} {me.rank} knows {first} to {last}")
