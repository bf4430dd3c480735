"""A worker of torchrun: two wait until there are three, then rank 0, which has the store, is lost with its agent."""

import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

import pypmix.torch  # noqa: F401

two, three = Path(sys.argv[1], "two"), Path(sys.argv[1], "three")
dist.init_process_group("gloo", init_method="pmix://")
rank, size = dist.get_rank(), dist.get_world_size()
total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
print(f"worker {rank} of {size}: total {total.item():g}", flush=True)
if size == 2 and not three.exists():
    two.touch()
    time.sleep(200)
if size == 3:
    three.touch()
    dist.barrier()
    if rank == 0:
        os.kill(os.getppid(), signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()
dist.destroy_process_group()
