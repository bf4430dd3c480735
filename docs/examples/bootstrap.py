"""Two leaders that know no other procs gather a group; rank 2 knows only the name of the group."""

from pypmix import Client, PMIxError

with Client() as me:
    if me.job.size < 3 or not me.supports("group.bootstrap"):
        print(f"rank {me.rank} gathers no group")
    else:
        try:
            if me.rank == 0:
                pool = me.group("acme.pool", bootstrap=2, add=[me.job[2]], timeout=20)
            elif me.rank == 1:
                pool = me.group("acme.pool", bootstrap=2, timeout=20)
            else:
                pool = me.group("acme.pool", timeout=20)
            with pool as group:
                print(f"rank {me.rank} is {group.rank} of {group.size} in {group.name}")
        except PMIxError as error:
            print(f"rank {me.rank} has no pool: {error}")
