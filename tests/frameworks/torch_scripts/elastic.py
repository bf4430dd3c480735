"""A worker of torchrun: in a world of three, the last one kills its agent and itself; the others go on without them."""

import os
import signal

import torch
import torch.distributed as dist

import pypmix.torch  # noqa: F401

dist.init_process_group("gloo", init_method="pmix://")
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
print(f"worker {rank} of {size}: total {total.item():g}", flush=True)
if size == 3:
    if rank == 2:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
dist.destroy_process_group()
