"""Times a Dask cluster in a job: by `pypmix.dask.PMIxRunner` beside dask-mpi, in one run and under one prterun.

    python tests/bench/dask_ready.py [--ranks 3,6] [--rounds 5]

It takes what `tests/harness/provision_frameworks.py` fetches, and fetches dask-mpi from PyPI for itself. All ranks have
imported Dask before. `ready` is the time from when the last of them begins until the client has all workers, with the
import of mpi4py or pypmix and the start of MPI; `over` is that from there until the launcher has ended. The rounds of
the two take turns, since machines have other things to do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))

from provision_frameworks import FRAMEWORKS

ROOT = Path(__file__).parents[2]
LIMIT = 300.0
PACKAGE = "dask-mpi==2026.3.0"
WAYS = ("dask-mpi", "pypmix")

RANK = """
import sys, time
from distributed import Client, Nanny, Scheduler, Worker
if __name__ == "__main__":
    way, workers = sys.argv[1], int(sys.argv[2])
    # In one write: lines of ranks are not to be mixed.
    sys.stdout.write(f"begun {time.monotonic()}\\n")
    sys.stdout.flush()
    if way == "pypmix":
        from pypmix.dask import PMIxRunner
        with PMIxRunner(worker_options={"nthreads": 1}) as runner, Client(runner) as client:
            client.wait_for_workers(workers)
            sys.stdout.write(f"ready {time.monotonic()}\\n")
    else:
        from dask_mpi import initialize
        initialize()
        with Client() as client:
            client.wait_for_workers(workers)
            sys.stdout.write(f"ready {time.monotonic()}\\n")
"""


def time_one(way: str, ranks: int, folder: str) -> tuple[float, float]:
    """Return the seconds until all workers are there, and those from there to the job's end.

    Raises:
        RuntimeError: The job has failed.
    """
    script = Path(folder, "rank.py")
    script.write_text(RANK)
    line = [str(FRAMEWORKS / "bin" / "prterun"), "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n", str(ranks)]
    line += [str(FRAMEWORKS / "bin" / "python"), str(script), way, str(ranks - 2)]
    # It looks for its own parts where it was built.
    extra = {f"{name}_PREFIX": str(FRAMEWORKS) for name in ("PRTE", "OPAL", "PMIX")}
    extra |= {"PYTHONPATH": f"{ROOT}:{folder}", "LD_LIBRARY_PATH": f"{FRAMEWORKS}/lib/openmpi:{FRAMEWORKS}/lib"}
    done = subprocess.run(line, env={**os.environ, **extra}, capture_output=True, text=True, timeout=LIMIT, cwd=folder)
    end = time.monotonic()
    told = [each.split() for each in done.stdout.splitlines()]
    begun = [float(each[1]) for each in told if each[:1] == ["begun"]]
    ready = [float(each[1]) for each in told if each[:1] == ["ready"]]
    if done.returncode or len(begun) != ranks or len(ready) != 1:
        raise RuntimeError(f"{way}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return ready[0] - max(begun), end - ready[0]


def main() -> None:
    """Time all numbers of ranks, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="3,6")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--target", folder, PACKAGE], check=True, timeout=LIMIT)
        print("seconds, median (best)")
        print(f"{'ranks':>6} {'':>6} {WAYS[0]:>18} {WAYS[1]:>18} {'ratio':>14} {'load':>6}")
        for ranks in map(int, options.ranks.split(",")):
            found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
            for _ in range(options.rounds):
                for way, times in found.items():
                    times.append(time_one(way, ranks, folder))
            for number, what in enumerate(("ready", "over")):
                columns = [[each[number] for each in found[way]] for way in WAYS]
                middle, best = ([pick(column) for column in columns] for pick in (statistics.median, min))
                cells = [f"{one:9.3f} ({two:.3f})" for one, two in zip(middle, best, strict=True)]
                ratio = f"{middle[1] / middle[0]:.2f} ({best[1] / best[0]:.2f})"
                load = os.getloadavg()[0]
                print(f"{ranks:>6} {what:>6} {cells[0]:>18} {cells[1]:>18} {ratio:>14} {load:6.1f}", flush=True)


if __name__ == "__main__":
    main()
