"""A Dask cluster in a job: `pypmix run -n 6 python dask_runner.py`, or any other launcher of PMIx."""

import platform

from distributed import Client

from pypmix.dask import PMIxRunner


def square(number):
    """Runs in a worker, as a task."""
    return number * number


if __name__ == "__main__":
    with PMIxRunner() as runner, Client(runner) as client:
        # Only rank 1 comes here.
        client.wait_for_workers(runner.n_workers)
        print("sum", client.submit(sum, client.map(square, range(100))).result())
        print("workers on", sorted(client.run(platform.node).values()))
