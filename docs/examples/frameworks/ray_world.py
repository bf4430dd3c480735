"""MPI over the actors of a Ray cluster: `python ray_world.py ADDRESS`."""

import sys

import ray

import pypmix.ray


@ray.remote
class Actor:
    """One of your own."""

    def name(self):
        """Its methods may be called while it is in a world."""
        return type(self).__name__


def total(comm, factor):
    """Runs in each rank; the communicator is one of mpi4py."""
    return comm.allreduce(factor * comm.rank)


if __name__ == "__main__":
    ray.init(address=sys.argv[1])
    actors = [Actor.remote() for _ in range(4)]
    for factor in (10, 100):
        with pypmix.ray.world(actors) as world:
            print("totals", world.run(total, factor), ray.get(actors[0].name.remote()))
