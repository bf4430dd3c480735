"""A rank dies; a survivor spawns a process in its place, and all form a group and share values."""

import os
import signal
import sys

from pypmix import Client, EventCode, Proc


def work(me, procs):
    """Form a group of the survivors and the new process, and share values."""
    with me.group("acme.repaired", procs, timeout=60) as group:
        values = group.allgather("new" if me.parent else f"rank {me.rank}", timeout=60)
        print(f"member {group.rank} knows {', '.join(values)}", flush=True)


with Client() as me:
    if me.parent:
        # The new process: its arguments are the ranks of the survivors.
        work(me, [*[Proc(me.parent.nspace, int(rank)) for rank in sys.argv[1:]], me.proc])
        raise SystemExit

    with me.events(EventCode.ERR_PROC_ABORTED) as failures:
        me.fence(timeout=60)
        if me.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        lost = failures.get(timeout=60).affected[0]
    survivors = [proc for proc in me.job if proc != lost]
    if me.proc == survivors[0]:
        new = me.spawn([sys.executable, __file__, *[str(proc.rank) for proc in survivors]], n=1)
        me.put("acme.new", new[0])
        me.commit()
    work(me, [*survivors, me.get("acme.new", survivors[0], timeout=60)])
