"""The ranks of each process set meet among themselves; the others go on."""

from pypmix import Client

with Client() as me:
    if not me.supports("query"):
        print("this server does not tell of process sets")
        raise SystemExit

    sets = me.psets
    if me.rank == 0:
        print(f"rank 0 knows {sets}")
    for name in sets.of(me.proc):
        members = sets[name]
        me.fence(members, timeout=20)
        print(f"rank {me.rank} has met {members - me.proc or 'no others'} in {name}, without {me.job.procs - members}")
    if not sets.of(me.proc):
        print(f"rank {me.rank} goes on by itself")
