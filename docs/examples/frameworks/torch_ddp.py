"""Data-parallel training over the ranks of a job: `pypmix run -n 4 python torch_ddp.py`."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import pypmix.torch

dist.init_process_group("gloo", init_method="pmix://")
rank, size = dist.get_rank(), dist.get_world_size()

torch.manual_seed(0)
inputs = torch.rand(24, 4)
targets = inputs.sum(1, keepdim=True)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(20):
    optimizer.zero_grad()
    loss = torch.nn.functional.mse_loss(model(inputs[rank::size]), targets[rank::size])
    loss.backward()  # averages the gradients over all ranks
    optimizer.step()

total = torch.tensor([rank + 1.0])
dist.all_reduce(total)
places = pypmix.torch.environment()  # the variables that torchrun sets
place = f"local rank {places['LOCAL_RANK']} on node {places['GROUP_RANK']}"
weights = " ".join(f"{weight:.5f}" for weight in model.module.weight.flatten().tolist())
print(f"rank {rank} of {size}, {place}: total {total.item():g}, weights {weights}", flush=True)
dist.destroy_process_group()
