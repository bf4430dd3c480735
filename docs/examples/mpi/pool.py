"""Squares, computed by the processes of a pool."""

from mpi4py import MPI
from mpi4py.futures import MPIPoolExecutor


def square(number):
    return number * number, MPI.Get_processor_name()


if __name__ == "__main__":
    with MPIPoolExecutor(max_workers=2) as pool:
        found = list(pool.map(square, range(8)))
    print([number for number, _ in found])
    print("on", sorted({node for _, node in found}))
