"""Times warm ranks against started ones, in one run: `pypmix run --warm` and `pypmix run`.

    python tests/bench/warm.py [--ranks 64,256] [--rounds 5]

Each rank opens a client, says hello and finalizes. Every round runs both forms one after the other, so that a noisy
machine is noisy for both. The CPU time is that of the command and all of its processes, and depends less on what else
runs than the elapsed time does. Ranks per second are those of a whole run, its start and end included.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HELLO = "import pypmix\nwith pypmix.Client() as me: print('hello from', me.rank, 'of', me.job.size)\n"


def timed(words: list[str], env: dict[str, str], size: int) -> tuple[float, float]:
    """Return the seconds that a run takes, and its CPU seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(out.splitlines()) == size, out
    return elapsed, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="64,256")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    # As in an installation: what is imported is compiled.
    env = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    columns = f"{'started':>9} {'warm':>9} {'ratio':>6}"
    print(f"{'ranks':>6} {columns} {'warm/s':>7}   of CPU {columns}")
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "hello.py"
        program.write_text(HELLO)
        for size in map(int, given.ranks.split(",")):
            found: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
            for number in range(given.rounds + 1):
                for warm, times in found.items():
                    words = [sys.executable, "-m", "pypmix", "run", *(["--warm"] if warm else []), "-n", str(size)]
                    each = timed([*words, sys.executable, str(program)], env, size)
                    if number:
                        times.append(each)
            (cold, cold_cpu), (warm_time, warm_cpu) = (
                [statistics.median(column) for column in zip(*times, strict=True)] for times in found.values()
            )
            print(
                f"{size:>6} {cold:>8.2f}s {warm_time:>8.2f}s {warm_time / cold:>6.2f} {size / warm_time:>7.0f}"
                f"          {cold_cpu:>8.2f}s {warm_cpu:>8.2f}s {warm_cpu / cold_cpu:>6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
