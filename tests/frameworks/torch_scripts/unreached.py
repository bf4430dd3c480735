"""Rank 1 of three cannot reach the store of rank 0; then it can, on what counts as several nodes."""

import sys
from datetime import timedelta

from torch.distributed import rendezvous

import pypmix.torch

me = pypmix.torch.client()
module = sys.modules["pypmix.torch.rendezvous"]
module._is_one_node = lambda _me: False
reach = module.connect_store


def refused(*_args):
    raise OSError("no route to it")


for connected in (refused if me.rank == 1 else reach, reach):
    module.connect_store = connected
    try:
        store, rank, size = next(rendezvous("pmix://", timeout=timedelta(seconds=150)))
        store.add("sum", 1)
        me.fence(timeout=150)
        print(f"{rank} of {size}: {store.get('sum').decode()}", flush=True)
    except pypmix.PMIxError as error:
        print(f"{me.rank} is told of {[proc.rank for proc in error.procs]}: {error}", flush=True)
