"""Every rank says who it is."""

import pypmix

with pypmix.Client() as me:
    print(f"hello from {me.rank} of {me.job.size} on {me.node.hostname}  [{me.engine}]")
