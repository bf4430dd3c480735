"""Rendezvous of a single process that cannot be."""

import os

from torch.distributed import rendezvous

import pypmix.torch

os.environ["ROLE_RANK"] = "7"
for url, size in (("pmix://?prot=1", -1), ("pmix://n1:29500", -1), ("pmix://", 2), ("pmix://?interface=nosuch0", -1)):
    try:
        next(rendezvous(url, world_size=size))
    except (ValueError, OSError) as error:
        print(f"{type(error).__name__}: {error}")
print("the environment:", pypmix.torch.environment()["ROLE_RANK"])
