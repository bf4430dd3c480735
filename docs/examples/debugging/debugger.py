"""A small debugger: starts a job that stops in PMIx_Init, lists its ranks, examines each, and releases them."""

import sys

import pypmix
from pypmix import EventCode, attrs
from pypmix.types import ProcState


def examine() -> None:
    """Be one of the daemons: there is one beside each rank, with the rank's number."""
    with pypmix.Client() as me:
        target = me.get(attrs.DEBUG_TARGET)
        table = me.query(attrs.QUERY_LOCAL_PROC_TABLE, nspace=target.nspace)
        row = next(row for row in table if row.proc.rank == me.rank)
        with open(f"/proc/{row.pid}/status") as status:
            threads = next(line.split()[1] for line in status if line.startswith("Threads:"))
        print(f"daemon {me.rank}: rank {row.proc.rank} has {threads} threads", flush=True)


def debug(ranks: int, command: list[str]) -> None:
    """Run a command on some ranks under this debugger."""
    with pypmix.Client() as me, me.events(EventCode.READY_FOR_DEBUG) as ready:
        job = me.spawn(command, n=ranks, info=[attrs.DEBUG_STOP_IN_INIT(True)])
        event = ready.get(timeout=30)
        # Some launchers do not name the place.
        print(f"all ranks have stopped at {event.info.get(attrs.BREAKPOINT.key, 'pmix-init')}", flush=True)
        for row in me.query(attrs.QUERY_PROC_TABLE, nspace=job.nspace):
            state = ProcState(row.state).name
            print(f"rank {row.proc.rank}: pid {row.pid}, {row.executable.rpartition('/')[2]}, {state}", flush=True)
        target = pypmix.Proc(job.nspace, pypmix.Rank.WILDCARD)
        beside = [attrs.DEBUGGER_DAEMONS(True), attrs.DEBUG_DAEMONS_PER_PROC(1), attrs.DEBUG_TARGET(target)]
        me.spawn([sys.executable, __file__], info=beside).wait(timeout=30)
        me.notify(EventCode.DEBUGGER_RELEASE, targets=job, non_default=True, cache=False)
        print(f"exit code {job.wait(timeout=30)}")


if len(sys.argv) > 1:
    debug(int(sys.argv[1]), sys.argv[2:])
else:
    examine()
