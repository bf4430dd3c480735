"""A ring and a sum by whatever libmpi the system has, without bindings; prints `ring RANK SIZE SUM FROM`."""

import ctypes
import sys

mpi = ctypes.CDLL("libmpi.so.40", mode=ctypes.RTLD_GLOBAL)


def handle(name):
    return ctypes.c_void_p(ctypes.addressof(ctypes.c_byte.in_dll(mpi, name)))


def check(code):
    if code:
        sys.exit(f"MPI returned {code}")


world, integer, plus = handle("ompi_mpi_comm_world"), handle("ompi_mpi_int"), handle("ompi_mpi_op_sum")
check(mpi.MPI_Init(None, None))
rank, size = ctypes.c_int(), ctypes.c_int()
check(mpi.MPI_Comm_rank(world, ctypes.byref(rank)))
check(mpi.MPI_Comm_size(world, ctypes.byref(size)))
mine, total, got = ctypes.c_int(rank.value), ctypes.c_int(), ctypes.c_int(-1)
check(mpi.MPI_Allreduce(ctypes.byref(mine), ctypes.byref(total), 1, integer, plus, world))
right, left = (rank.value + 1) % size.value, (rank.value - 1) % size.value
send = (ctypes.byref(mine), 1, integer, right, 5)
check(mpi.MPI_Sendrecv(*send, ctypes.byref(got), 1, integer, left, 5, world, None))
print("ring", rank.value, size.value, total.value, got.value, flush=True)
check(mpi.MPI_Finalize())
