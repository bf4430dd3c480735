"""A communicator of NCCL, by CuPy 14 or newer."""

import cupy
from cupy.cuda import nccl

import pypmix

with pypmix.Client() as me:
    cupy.cuda.Device(me.node.local_rank).use()

    own = nccl.get_unique_id() if me.rank == 0 else None
    unique_id = me.bcast(own, timeout=60)
    communicator = nccl.NcclCommunicator(me.job.size, unique_id, me.rank)

    communicator.destroy()
