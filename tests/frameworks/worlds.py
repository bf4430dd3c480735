"""A user's program that makes worlds of a cluster: `worlds.py dask|ray ADDRESS WHAT`; it prints what comes of it."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from pypmix.extras.frameworks.world import World
from pypmix.standard.errors import OperationTimeout, PMIxError

SIZE = 4


def total(comm: Any, factor: int, *, more: int) -> tuple[int, int, int, int, str, int]:
    from mpi4py import MPI

    assert MPI.COMM_WORLD.allreduce(1) == comm.size
    return comm.rank, comm.size, comm.allreduce(factor * comm.rank), more, os.uname().nodename, os.getpid()


def session(comm: Any) -> int:
    from mpi4py import MPI

    opened = MPI.Session.Init()
    group = opened.Create_group("mpi://WORLD")
    own = MPI.Intracomm.Create_from_group(group, "org.pypmix.test")
    found = own.allreduce(1)
    own.Free()
    group.Free()
    opened.Finalize()
    return int(found)


def members(group: Any, word: str) -> tuple[int, int, str]:
    group.fence(timeout=60)
    return group.rank, group.size, word


def fails(group: Any) -> None:
    if group.rank == 1:
        raise KeyError("what rank 1 lacks")
    group.fence(timeout=300)


def waits(group: Any, late: int) -> None:
    print("ready", group.rank, flush=True)
    if group.rank != late:
        group.fence(timeout=300)
    else:
        time.sleep(300)


def leaves(group: Any) -> None:
    if group.rank == 1:
        os._exit(3)
    group.fence(timeout=300)


class Cluster:
    """What workers or actors a world is made of."""

    def __init__(self, kind: str, address: str) -> None:
        self.kind = kind
        if kind == "ray":
            import ray

            ray.init(address=address, log_to_driver=False)

            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            @ray.remote(num_cpus=0.5)
            class Mine:
                def pid(self) -> int:
                    return os.getpid()

            nodes = [each["NodeID"] for each in ray.nodes() if each["Alive"]]
            places = [NodeAffinitySchedulingStrategy(nodes[number % len(nodes)], False) for number in range(SIZE)]
            self.actors = [Mine.options(scheduling_strategy=place).remote() for place in places]
        else:
            from distributed import Client

            self.client = Client(address)
            self.client.wait_for_workers(SIZE, timeout=100)

    def world(self, *, mpi: bool = True) -> World:
        if self.kind == "ray":
            import pypmix.ray

            return pypmix.ray.world(self.actors, mpi=mpi, timeout=100)
        import pypmix.dask

        return pypmix.dask.world(self.client, SIZE, mpi=mpi)

    def pids(self) -> list[int]:
        """Return the processes of actors, or of workers."""
        if self.kind == "ray":
            import ray

            return list(ray.get([actor.pid.remote() for actor in self.actors]))
        return list(self.client.run(os.getpid).values())


def raised(world: World, *given: Any, **options: Any) -> str:
    try:
        return f"returned {world.run(*given, **options)}"
    except OperationTimeout as error:
        return f"late {sorted(proc.rank for proc in error.missing or ())}"
    except KeyError as error:
        return f"raised {error} | {error.__notes__[0].splitlines()[0]}"
    except PMIxError as error:
        return f"refused {error}"


def main(kind: str, address: str, what: str) -> None:
    cluster = Cluster(kind, address)
    if what == "twice":
        before = cluster.pids()
        for turn in range(2):
            with cluster.world() as world:
                for factor in (10, 100):
                    print("totals", turn, world.run(total, factor, more=turn), flush=True)
                print("sessions", world.run(session), world.run(session), flush=True)
        print("same", cluster.pids() == before, flush=True)
    if what == "faults":
        for function in (fails, leaves):
            with cluster.world(mpi=False) as world:
                print(function.__name__, raised(world, function), flush=True)
                print("after", raised(world, members, "again"), flush=True)
        with cluster.world(mpi=False) as world:
            print("waits", raised(world, waits, 2, timeout=3), flush=True)
        with cluster.world(mpi=False) as world:
            print("members", world.run(members, "word"), flush=True)
        if kind == "ray":
            cluster.actors[1] = "an actor"
            try:
                cluster.world()
            except TypeError as error:
                print("others", error, flush=True)
    if what == "lost":
        with cluster.world(mpi=False) as world:
            print("begun", flush=True)
            print("lost", raised(world, waits, 0), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
