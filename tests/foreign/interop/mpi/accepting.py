"""An MPI program whose halves meet by a published name, as a server and its clients do."""

from mpi4py import MPI

world = MPI.COMM_WORLD
half = world.Split(world.rank % 2)
if world.rank % 2 == 0:
    port = MPI.Open_port() if half.rank == 0 else None
    if half.rank == 0:
        MPI.Publish_name("pypmix-test", port)
    world.Barrier()
    other = half.Accept(port, root=0)
    if half.rank == 0:
        MPI.Unpublish_name("pypmix-test", port)
        MPI.Close_port(port)
else:
    world.Barrier()
    port = MPI.Lookup_name("pypmix-test") if half.rank == 0 else None
    other = half.Connect(port, root=0)
merged = other.Merge(high=bool(world.rank % 2))
print("accepting", merged.size, merged.allreduce(1), flush=True)
merged.Free()
other.Disconnect()
half.Free()
