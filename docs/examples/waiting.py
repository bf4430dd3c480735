"""Values that come late, values that never come, and peers that do not arrive."""

import time

from pypmix import Client, NotFound, NotSupported, OperationTimeout

with Client() as me:
    first, last = me.job[0], me.job[me.job.size - 1]
    if me.proc == first:
        time.sleep(0.2)
        me.put("port", 5000)
        me.commit()
    print("port:", me.get("port", first, timeout=10))  # waits until rank 0 has committed it

    print("speed:", me.get("speed", first, default="unknown", timeout=0))  # not found: no error
    try:
        me.get("speed", first, timeout=0)
    except NotFound as error:
        print(error)

    if me.proc == first and me.job.size > 2:  # a fence that names all of the job is the same fence as the one below
        try:
            me.fence([first, last], timeout=1)  # the last rank does not come
        except OperationTimeout as error:
            print(error)
            print("missing:", sorted(error.missing or ()))  # a pypmix server names them
        except NotSupported as error:
            print(error)  # Slurm fences whole jobs and procs of one node only
    me.fence(timeout=30)
