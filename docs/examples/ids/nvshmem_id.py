"""NVSHMEM, by NVIDIA's nvshmem4py."""

import numpy as np
import nvshmem.core as nvshmem
from cuda.core import Device

import pypmix

with pypmix.Client() as me:
    device = Device(me.node.local_rank)
    device.set_current()

    unique_id = nvshmem.get_unique_id(empty=me.rank != 0)
    data = unique_id._data.view(np.int8)
    data[:] = np.frombuffer(me.bcast(data.tobytes() if me.rank == 0 else None, timeout=60), np.int8)
    nvshmem.init(device=device, uid=unique_id, rank=me.rank, nranks=me.job.size, initializer_method="uid")

    nvshmem.finalize()
