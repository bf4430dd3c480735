"""A communicator of NCCL, by NVIDIA's nccl4py."""

from cuda.core import Device
from nccl import core as nccl

import pypmix

with pypmix.Client() as me:
    Device(me.node.local_rank).set_current()

    own = bytes(nccl.get_unique_id()) if me.rank == 0 else None
    unique_id = nccl.UniqueId.from_bytes(me.bcast(own, timeout=60))
    communicator = nccl.Communicator.init(me.job.size, me.rank, unique_id)

    communicator.destroy()
