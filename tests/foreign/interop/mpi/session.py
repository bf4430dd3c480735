"""An MPI program without a world: a session, and communicators from groups of it."""

import mpi4py

mpi4py.rc.initialize = False

from mpi4py import MPI  # noqa: E402

session = MPI.Session.Init()
world = session.Create_group("mpi://WORLD")
everyone = MPI.Intracomm.Create_from_group(world, "org.pypmix.all")
total = everyone.allreduce(1)
rank = everyone.rank
evens = world.Incl(range(0, world.size, 2))
if rank % 2 == 0:
    some = MPI.Intracomm.Create_from_group(evens, "org.pypmix.even")
    total += 100 * some.allreduce(1)
    some.Free()
everyone.Barrier()
everyone.Free()
evens.Free()
world.Free()
session.Finalize()
print("session", rank, total, flush=True)
