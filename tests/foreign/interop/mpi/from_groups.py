"""Communicators from groups of a session, several at once.

from_groups.py halves          both halves of the job make one of the same tag at the same time, thrice
from_groups.py overlapping     neighbours make one each, all of which overlap, and then all of all
from_groups.py again N         all make and free one N times; what the server's memory grew by, in KiB, is told
"""

import os
import sys

import mpi4py

mpi4py.rc.initialize = False

from mpi4py import MPI  # noqa: E402


def make(group, tag):
    return MPI.Intracomm.Create_from_group(group, f"org.pypmix.{tag}")


def halves(world):
    rank, size = world.rank, world.size
    low = rank < size // 2
    mine = world.Incl(range(size // 2) if low else range(size // 2, size))
    found = []
    for number in range(3):
        comm = make(mine, "half")
        found.append(comm.allreduce(1 << rank))
        # The same tag again, while the other half may still have the one before.
        if number % 2:
            other = make(mine, "half.inner")
            found.append(other.allreduce(1))
            other.Free()
        comm.Free()
    mine.Free()
    return found


def overlapping(world):
    rank, size = world.rank, world.size
    comms = []
    # A rank is in two pairs: those that begin at an even rank are made first, all of them at the same time.
    for start in sorted((start for start in (rank - 1, rank) if 0 <= start < size - 1), key=lambda start: start % 2):
        group = world.Incl([start, start + 1])
        comms.append((start, make(group, f"pair.{start}")))
        group.Free()
    everyone = make(world, "everyone")
    found = [everyone.allreduce(1)]
    for start, comm in comms:
        found.append((start, comm.allreduce(1 << rank)))
        comm.Free()
    everyone.Free()
    return found


def again(world, count):
    def resident():
        with open(f"/proc/{os.getppid()}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") // 1024

    before = 0
    for number in range(count + 20):
        comm = make(world, f"again.{number % 3}")
        comm.Barrier()
        if number == 19:
            before = resident()
        comm.Free()
    return [count, resident() - before]


session = MPI.Session.Init()
world = session.Create_group("mpi://WORLD")
kind, *numbers = sys.argv[1:]
found = globals()[kind](world, *map(int, numbers))
print(kind, world.rank, found, flush=True)
world.Free()
session.Finalize()
