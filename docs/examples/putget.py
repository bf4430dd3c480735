"""Each rank sends its address to all others."""

from pypmix import Client, Scope
from pypmix.types import uint32

with Client() as me:
    me.put("endpoint", f"tcp://{me.node.hostname}:{5000 + me.rank}")  # a str becomes a PMIX_STRING
    me.put("lanes", uint32(4), scope=Scope.GLOBAL)  # a C peer reads value.data.uint32
    me.fence(collect=True, timeout=30)  # commits, waits for everybody, exchanges the data
    table = {proc.rank: me.get("endpoint", proc) for proc in me.job}
    print(f"rank {me.rank} of {me.job.size} knows {table}")
