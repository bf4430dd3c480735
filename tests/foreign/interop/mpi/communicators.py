"""Communicators of pypmix's groups, by `pypmix.recipes.mpi`.

communicators.py world       halves of the job, in another order than theirs, thrice; all have initialized MPI
communicators.py session     the same with a session of the program's own
communicators.py opened      the same with the session that pypmix opens
communicators.py jobs        a job and one that it spawns
communicators.py lacking     one rank has no mpi4py
"""

import os
import sys

kind = sys.argv[1]
own = None
if kind != "lacking":
    import mpi4py

    mpi4py.rc.initialize = kind in ("world", "jobs")
    from mpi4py import MPI

    own = MPI.Session.Init() if kind == "session" else None

import pypmix  # noqa: E402
from pypmix.recipes.mpi import Communicator  # noqa: E402


def halves(me):
    mine = [proc for proc in reversed(me.job.procs) if proc.rank % 2 == me.rank % 2]
    found = []
    with me.group(f"acme.{me.rank % 2}", mine, timeout=60) as group:
        for _ in range(3):
            with Communicator(group, session=own) as comm:
                assert (comm.rank, comm.size) == (group.rank, group.size)
                found.append(comm.allreduce(1 << me.rank))
    return found


def jobs(me):
    parent = me.parent
    if parent is None:
        # What the command line of this job has set is not there for a spawned one.
        settings = [f"{name}={text}" for name, text in os.environ.items() if name.startswith(("OMPI_", "PYTHONPATH"))]
        child = me.spawn(["env", *settings, sys.executable, *sys.argv], n=2) if me.rank == 0 else None
        nspace = me.bcast(child.nspace if child else None, timeout=60)
        procs = [pypmix.Proc(nspace, 1), *me.job.procs, pypmix.Proc(nspace, 0)]
    else:
        procs = [me.job[1], *(pypmix.Proc(parent.nspace, rank) for rank in range(2)), me.job[0]]
    # The procs of a group have to know of each other's jobs.
    with (
        me.connect(procs, timeout=60),
        me.group("acme.all", procs, timeout=60) as group,
        Communicator(group) as comm,
    ):
        return [comm.rank, group.rank, comm.size, comm.allgather(me.rank)]


def lacking(me):
    if me.rank == 1:
        sys.modules["mpi4py"] = None
    try:
        with me.group("acme", me.job.procs, timeout=60) as group, Communicator(group):
            return "made"
    except pypmix.PMIxError as error:
        return error.detail, [proc.rank for proc in error.procs]


with pypmix.Client() as me:
    found = {"jobs": jobs, "lacking": lacking}.get(kind, halves)(me)
    print(kind, me.rank, found, flush=True)
if own is not None:
    own.Finalize()
