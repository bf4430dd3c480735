import pypmix

with pypmix.Client() as me:  # connects to whatever launched this process
    me.put("endpoint", f"tcp://{me.node.hostname}:{5000 + me.rank}")
    me.fence(collect=True, timeout=30)  # wait for all ranks and exchange the data
    print(me.rank, {proc.rank: me.get("endpoint", proc) for proc in me.job})
