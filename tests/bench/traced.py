"""Times what a trace costs: fences of jobs that are traced beside the same that are not, in turns.

    python tests/bench/traced.py [--ranks 2,8] [--rounds 9] [--fences 2000] [--json FILE]

Of each job there are the median of a fence in its first rank, and the CPU time for a fence of the process that serves
it while the fences last: of its server's thread, and of all of its threads. When the job is over, that process also
writes the file, which no fence waits for: that is given by itself, for each fence of a rank.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import here

FIGURES = ("fence", "server's thread", "all threads", "file")
Figures = dict[str, float]


def spent(pid: int) -> dict[str, int]:
    """Return the nanoseconds of CPU time that each thread of a process has had."""
    folder = Path(f"/proc/{pid}/task")
    return {thread: int((folder / thread / "schedstat").read_text().split()[0]) for thread in os.listdir(folder)}


def rank(fences: int) -> None:
    """Be a rank; the first one says what it has found."""
    import pypmix

    server = os.getppid()
    with pypmix.Client() as me:
        for _ in range(max(50, fences // 10)):
            me.fence()
        times = []
        before = spent(server) if me.rank == 0 else {}
        me.fence()
        for _ in range(fences):
            begin = time.perf_counter()
            me.fence()
            times.append(time.perf_counter() - begin)
        if me.rank == 0:
            used = [after - before.get(thread, 0) for thread, after in spent(server).items()]
            found = {
                "fence": statistics.median(times) * 1e6,
                "server's thread": max(used) / fences / 1e3,
                "all threads": sum(used) / fences / 1e3,
            }
            print(json.dumps(found), flush=True)
        me.fence()


def job(ranks: int, fences: int, traced: bool) -> Figures:
    """Run a job, and return what its first rank has found, and the CPU time of what comes after the last fence."""
    with tempfile.TemporaryDirectory() as folder:
        trace = ["--trace", f"{folder}/trace.json"] if traced else []
        command = [sys.executable, "-m", "pypmix", "run", *trace, "-n", str(ranks)]
        command += [sys.executable, os.path.abspath(__file__), "--rank", "--fences", str(fences)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        said = process.stdout.readline()
        at_last = sum(spent(process.pid).values())
        process.stdout.close()
        # It is still there to be asked until it is waited for.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        words = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        whole = (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")
        if process.wait():
            raise RuntimeError(f"{' '.join(command)}: exit {process.returncode}")
    return {**json.loads(said), "file": (whole * 1e6 - at_last / 1e3) / fences / ranks}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="2,8")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--fences", type=int, default=2000)
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    parser.add_argument("--rank", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    os.environ.update(PYPMIX_ENGINE="python")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if given.rank:
        rank(given.fences)
        return
    all_: dict[str, dict[str, Figures]] = {}
    for ranks in map(int, given.ranks.split(",")):
        runs: dict[bool, list[Figures]] = {False: [], True: []}
        for _ in range(given.rounds):
            for traced, found in runs.items():
                found.append(job(ranks, given.fences, traced))
        plain, traced = ({name: statistics.median([run[name] for run in runs[on]]) for name in FIGURES} for on in runs)
        ratios = {
            name: statistics.median([on[name] / off[name] for off, on in zip(*runs.values(), strict=True)])
            for name in FIGURES[:-1]
        }
        all_[str(ranks)] = {"plain": plain, "traced": traced, "ratios": ratios}
        print(f"{ranks} ranks: microseconds, medians of {given.rounds} rounds", flush=True)
        for name in FIGURES:
            ratio = f" ({ratios[name]:.2f})" if name in ratios else ""
            print(f"  {name:16} {plain[name]:8.1f} traced {traced[name]:8.1f}{ratio}", flush=True)
    if given.json:
        run = {"rounds": given.rounds, "fences": given.fences, "load": round(os.getloadavg()[0])}
        given.json.write_text(json.dumps({**here(), **run, "microseconds": all_}, indent=1) + "\n")


if __name__ == "__main__":
    main()
