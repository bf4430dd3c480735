"""An MPI program of the world model: point to point and collectives."""

from mpi4py import MPI

world = MPI.COMM_WORLD
rank, size = world.rank, world.size
total = world.allreduce(rank)
everyone = world.allgather(f"rank {rank}")
word = world.bcast("word" if rank == 0 else None)
if size > 1:
    word += world.sendrecv(f" of {rank}", dest=(rank + 1) % size, source=(rank - 1) % size)
parts = world.Split(rank % 2)
half = parts.allreduce(1)
parts.Free()
world.Barrier()
print("collectives", total, len(everyone), word, half, flush=True)
