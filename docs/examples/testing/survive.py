"""Goes on with the ranks that are left when one is lost."""

import time

import pypmix

with pypmix.Client() as me:
    if me.rank == 1:
        # It is killed meanwhile.
        time.sleep(60)
    try:
        me.fence(timeout=30)
        print(f"rank {me.rank}: all are here")
    except pypmix.PartialSuccess as error:
        lost = sorted(proc.rank for proc in error.missing or ())
        print(f"rank {me.rank} goes on without {lost}")
