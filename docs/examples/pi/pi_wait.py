"""Rank 0 collects the sums, and does not wait for a late rank for ever."""

from pi import part

import pypmix

with pypmix.Client() as me:
    first, last = me.job[0], me.job[me.job.size - 1]
    if me.proc == last:
        me.get("hurry", first, timeout=30)  # waits until rank 0 has committed this key
    me.put("sum", part(me.rank, me.job.size))
    me.commit()

    if me.proc == first:
        print("so far:", me.get("sum", last, default="nothing", timeout=0))  # no error if it is not there
        try:
            me.fence([first, last], timeout=1)  # the last rank does not call it
        except pypmix.OperationTimeout as error:
            print(error)
            print("missing:", [proc.rank for proc in error.missing or ()])
        me.put("hurry", True)
        me.commit()
        sums = [me.get("sum", proc, timeout=30) for proc in me.job]
        print(f"pi is {sum(sums):.9f}")
    me.fence(timeout=30)
