"""The even ranks form a group with a number of its own."""

from pypmix import Client, NotSupported, Unreachable

with Client() as me:
    evens = [proc for proc in me.job if proc.rank % 2 == 0]
    try:
        if me.proc in evens:
            with me.group("acme.evens", evens, context_id=True, timeout=20) as group:
                me.fence(group, timeout=20)
                print(f"rank {me.rank} is {group.rank} of {group.size} in {group.name}, number {group.context_id:#x}")
        else:
            print(f"rank {me.rank} goes on by itself")
    except (NotSupported, Unreachable) as error:
        print(f"rank {me.rank} has no group: {error}")
