"""Ranks of a job as a Dask cluster in which something fails: `runner.py WHAT`; rank 1 prints what comes of it."""

from __future__ import annotations

import os
import signal
import sys
import time

from distributed import Client, wait

from pypmix.dask import PMIxRunner


def killed(pid: int = 0) -> None:
    os.kill(pid or os.getpid(), signal.SIGKILL)


class Runner(PMIxRunner):
    """One of its workers ends when it knows the scheduler, which does not know it yet."""

    async def before_worker_start(self) -> None:
        if os.environ["PMIX_RANK"] == "2":
            killed()


def main(what: str) -> None:
    if what == "early" and os.environ["PMIX_RANK"] == "0":
        os._exit(3)
    if what == "late" and os.environ["PMIX_RANK"] == "2":
        time.sleep(300)
    runner = (Runner if what == "between" else PMIxRunner)(timeout=3 if what == "late" else 100)
    client = Client(runner)
    client.wait_for_workers(runner.n_workers)
    print("ready", flush=True)
    workers = client.run(os.getpid)
    first = min(workers)
    if what == "scheduler":
        client.run_on_scheduler(os.getpid)
        client.run_on_scheduler(killed)
    elif what == "client":
        os._exit(3)
    elif what == "worker":
        killed(workers[first])
    elif what == "workers":
        for pid in workers.values():
            killed(pid)
    # With a worker left there is a result; the block is never left, but the script ends.
    wait(future := client.submit(sum, range(10)), timeout=200)
    print("result", future.result(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
