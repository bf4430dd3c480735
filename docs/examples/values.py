"""Give values to all ranks, or to one, and as often as needed."""

import json

import pypmix

with pypmix.Client() as me:
    # One rank has it, all get it: an NCCL id, a port, a seed.
    seed = me.bcast(b"0123" if me.rank == 0 else None, timeout=20)

    # Each rank gives something, and each gets the list.
    ranks = me.allgather(me.rank, timeout=20)

    # Objects that have no PMIx type go through a codec, which all ranks name.
    found = me.gather({"rank": me.rank, "loss": 0.5}, root=0, codec=json, timeout=20)

    # Rank 0 has a value for each.
    mine = me.scatter([f"part {rank}" for rank in range(me.job.size)] if me.rank == 0 else None, timeout=20)

    me.fence(timeout=20)
    reports = "" if found is None else f" and {len(found)} reports"
    print(f"rank {me.rank} knows {seed.decode()}, {len(ranks)} ranks, {mine}{reports}")
