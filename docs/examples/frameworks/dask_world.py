"""MPI over the workers of a Dask cluster: `python dask_world.py tcp://SCHEDULER:8786`."""

import sys

from distributed import Client

import pypmix.dask


def total(comm, factor):
    """Runs in each rank; the communicator is one of mpi4py."""
    return comm.allreduce(factor * comm.rank)


def task(factor):
    """Runs in a worker, as a task."""
    with pypmix.dask.world(n=3) as world:
        return world.run(total, factor)


if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
        with pypmix.dask.world(client, 4) as world:
            print("totals", world.run(total, 10))
            print("totals", world.run(total, 100))
        print("totals of a task", client.submit(task, 7).result())
