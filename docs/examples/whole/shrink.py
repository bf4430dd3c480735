"""A sum over many rows. If a rank dies, the others share its rows and continue."""

import os
import signal

from pypmix import Client, Group, OperationTimeout, PartialSuccess

ROWS = range(1, 101)


def add_rows(me: Client, group: Group) -> int:
    """Return the sum of all rows; repeat the step if a member is lost."""
    while True:
        members = [proc.rank for proc in group.members]
        part = sum(row * row for row in ROWS[members.index(me.rank) :: len(members)])
        if me.rank == 2:
            os.kill(os.getpid(), signal.SIGKILL)  # as a node that fails would do
        try:
            parts = group.allgather({"members": members, "part": part}, timeout=20)
        except (PartialSuccess, OperationTimeout):
            continue  # a member is lost
        # All have the same parts, so all decide alike: they fit if everybody knew the same members, who all took part.
        took_part = [proc.rank for proc in parts.procs]
        if all(each["members"] == took_part for each in parts):
            return sum(each["part"] for each in parts)


with Client() as me, me.group("acme.solver", me.job.procs, ft=True, timeout=20) as group:
    total = add_rows(me, group)
    print(f"rank {me.rank}: {total} by {group.size} ranks")
