"""A process group where torch was built without libuv, as Debian's is: its stores refuse to be asked for it."""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import pypmix.torch  # noqa: F401

module = sys.modules["pypmix.torch.rendezvous"]
real, asked = module.TCPStore, []


def built_without(*place, use_libuv=True, **options):
    asked.append(use_libuv)
    if use_libuv:
        raise dist.DistStoreError("use_libuv was requested but PyTorch was built without libuv support")
    return real(*place, use_libuv=False, **options)


module.TCPStore = built_without
dist.init_process_group("gloo", init_method="pmix://", timeout=timedelta(seconds=150))
total = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(total)
print(f"total {total.item():g} {asked}", flush=True)
dist.destroy_process_group()
