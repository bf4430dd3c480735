"""The ranks of each node in a communicator of their own."""

from mpi4py import MPI  # MPI is initialized here, before the client is opened

from pypmix import Client
from pypmix.recipes.mpi import Communicator

with Client() as me:
    world = MPI.COMM_WORLD
    assert (world.rank, world.size) == (me.rank, len(me.job))

    near = me.node.local_procs
    with me.group(f"node.{near[0].rank}", near, timeout=60) as group, Communicator(group) as comm:
        total = comm.allreduce(me.rank)

    for rank, each in enumerate(me.gather(total) or ()):
        print(f"rank {rank} has the sum {each} of its node's ranks")
