"""An MPI program that spawns another one and merges with it."""

import sys

from mpi4py import MPI

parent = MPI.Comm.Get_parent()
if parent == MPI.COMM_NULL:
    other, name = MPI.COMM_WORLD.Spawn(sys.executable, [__file__], maxprocs=2), "parent"
else:
    other, name = parent, "child"
merged = other.Merge(high=name == "child")
# One write: the output of a lone parent is the launcher's, to which it writes the lines of the others.
sys.stdout.write(f"spawning {name} {merged.rank} {merged.size} {merged.allreduce(1)}\n")
sys.stdout.flush()
merged.Free()
other.Disconnect()
