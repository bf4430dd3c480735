from pypmix import Client

with Client() as me:
    # Each rank tells the others its port.
    me.put("acme.address", f"tcp://10.0.0.{me.rank}:5000")
    me.fence(collect=True)
    found = {proc.rank: me.get("acme.address", proc) for proc in me.job.procs}
    print(f"rank {me.rank} knows {found}", flush=True)

    # All of them form a group, with a number that is its own.
    with me.group("acme.all", me.job.procs, context_id=True) as group:
        print(f"rank {me.rank} is in acme.all, numbered: {isinstance(group.context_id, int)}", flush=True)
