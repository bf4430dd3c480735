"""The Python side of the bench of groups: a rank that forms groups with all of its job.

grouping.py collective COUNT    construct with a context id, destruct: the same as grouping.c
grouping.py invite COUNT        rank 0 invites all others with a context id, until it stands at each; destruct
grouping.py leave COUNT         the last rank leaves a group of all, until each of the others has heard of it
"""

from __future__ import annotations

import glob
import json
import os
import sys

from pypmix import Client, Proc
from pypmix.group import Left
from pypmix.timing import clock, median

WARM = 3


def server_cpu() -> float:
    """Return what all threads of the server, our parent, have run so far, in microseconds."""
    total = 0
    for task in glob.glob(f"/proc/{os.getppid()}/task/*/schedstat"):
        with open(task) as stat:
            total += int(stat.read().split()[0])
    return total / 1e3


def collective(me: Client, procs: list[Proc], count: int) -> dict[str, object]:
    construct, destruct = [], []
    before = 0.0
    for number in range(-WARM, count):
        if not number:
            before = server_cpu()
        name = f"bench.{number}"
        begin = clock()
        me.group(name, procs, context_id=True).construct()
        between = clock()
        me.raw.group_destruct(name)
        construct.append(between - begin)
        destruct.append(clock() - between)
    cpu = (server_cpu() - before) / count / len(procs)
    return {"construct": median(construct[WARM:]), "destruct": median(destruct[WARM:]), "server cpu/member": cpu}


def invite(me: Client, procs: list[Proc], count: int) -> dict[str, object]:
    """Each rank returns when it was in; rank 0 also when it has begun."""
    begun, done = [], []
    before = 0.0
    with me.invitations() as invitations:
        for number in range(-WARM, count):
            me.fence()
            if not number:
                before = server_cpu()
            if me.rank:
                group = invitations.get().accept()
            else:
                begun.append(clock())
                group = me.invite(f"bench.{number}", procs[1:], context_id=True).form()
            done.append(clock())
            me.fence()
            group.destruct()
    cpu = (server_cpu() - before) / count / len(procs)
    return {"begun": begun[WARM:], "done": done[WARM:], "server cpu/member": cpu}


def leave(me: Client, procs: list[Proc], count: int) -> dict[str, object]:
    begun, done = [], []
    before = 0.0
    for number in range(-WARM, count):
        group = me.group(f"bench.{number}", procs).construct()
        if me.rank == len(procs) - 1:
            me.fence()
            if not number:
                before = server_cpu()
            begun.append(clock())
            group.leave()
            done.append(clock())
            me.fence()
        else:
            with group.changes() as changes:
                me.fence()
                if not number:
                    before = server_cpu()
                assert isinstance(changes.get(), Left)
                done.append(clock())
                me.fence()
            group.destruct()
    cpu = (server_cpu() - before) / count / len(procs)
    return {"begun": begun[WARM:], "done": done[WARM:], "server cpu/member": cpu}


def main() -> None:
    kind, count = sys.argv[1], int(sys.argv[2])
    with Client() as me:
        found = globals()[kind](me, list(me.job), count)
        with open(f"{os.environ['BENCH_OUT']}/{me.rank}.json", "w") as out:
            json.dump(found, out)
        me.fence()


if __name__ == "__main__":
    main()
