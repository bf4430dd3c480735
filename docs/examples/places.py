"""Each rank prints the CPUs that it is bound to."""

from pypmix import Client, attrs

with Client() as me:
    cpus = me.get(attrs.CPUSET, default="")
    print(f"rank {me.rank} is bound to CPUs {cpus}" if cpus else f"rank {me.rank} is not bound", flush=True)
