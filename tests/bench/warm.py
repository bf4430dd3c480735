"""Times warm ranks, in one run with what they are held against: started ones, bare forks and bare interpreters.

    python tests/bench/warm.py [--ranks 64,512] [--rounds 5] [--batches] [--realtime] [--json FILE]

Each rank opens a client, says hello and finalizes. A round runs all one after the other, so that a noisy machine is
noisy for all: `pypmix run`, `pypmix run --warm`, a batch of as many ranks in a host of this process whose fork server
is there already, as many forks of an interpreter that has imported a client, and as many interpreters that are started.

The CPU time depends less on what else runs than the elapsed time does. That of a batch is parted: the ranks, with their
end in the kernel; the fork server; the host's thread; and the server's. `--realtime` has all of it run before all else,
and `--batches` leaves all out but batches, one after the other.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from pypmix.extras.forking.servers import ForkServers
from pypmix.host import Application, LocalHost

HELLO = "import pypmix\nwith pypmix.Client() as me: print('hello from', me.rank, 'of', me.job.size)\n"
FORKS = """
import gc, os, sys
from pypmix.extras.forking.server import prepare
prepare([])
gc.collect()
gc.freeze()
print(flush=True)
input()
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
"""
TICK = 1 / os.sysconf("SC_CLK_TCK")
PARTS = ("ranks", "fork server", "host", "server")

Figures = dict[str, float]


def run(words: list[str], env: dict[str, str], size: int) -> Figures:
    """Return the seconds that a run takes, and its CPU seconds."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    out = subprocess.run(words, env=env, check=True, capture_output=True, text=True).stdout
    elapsed, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert len(out.splitlines()) == size, out
    return {"seconds": elapsed, "CPU": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime}


def forks(env: dict[str, str], size: int) -> Figures:
    """Return the seconds that as many forks take, one after the other."""
    with subprocess.Popen(
        [sys.executable, "-c", FORKS, str(size)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdout.readline()
        start = time.perf_counter()
        process.stdin.write(b"\n")
        process.stdin.close()
        process.wait()
        return {"seconds": time.perf_counter() - start}


def interpreters(env: dict[str, str], size: int) -> Figures:
    """Return the seconds that as many interpreters take which do nothing, all started at once."""
    start = time.perf_counter()
    pids = [os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], env) for _ in range(size)]
    for pid in pids:
        os.waitpid(pid, 0)
    return {"seconds": time.perf_counter() - start}


class Batches:
    """Runs jobs of warm ranks, one after the other, with one fork server."""

    def __init__(self, program: Path, env: dict[str, str], size: int) -> None:
        self._application = Application((sys.executable, str(program)), size)
        self._env = env
        self._size = size
        self._forks = ForkServers()
        self._run()
        (self._pid,) = self._forks.pids

    def _run(self) -> None:
        LocalHost([self._application], env=self._env, warm=self._forks, own_process=True).run()

    def _spent(self) -> list[float]:
        words = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
        user, system, users, systems = [int(word) * TICK for word in words[11:15]]
        own = resource.getrusage(resource.RUSAGE_SELF)
        host = time.thread_time()
        return [users + systems, user + system, host, own.ru_utime + own.ru_stime - host]

    def run(self) -> Figures:
        """Return the seconds of a batch, and the CPU seconds of its parts."""
        before, start = self._spent(), time.perf_counter()
        self._run()
        elapsed = time.perf_counter() - start
        parts = [one - other for one, other in zip(self._spent(), before, strict=True)]
        return {"seconds": elapsed, "CPU": sum(parts), **dict(zip(PARTS, parts, strict=True))}

    def close(self) -> None:
        """End the fork server."""
        self._forks.close()


def only_batches(program: Path, env: dict[str, str], size: int, count: int) -> dict[str, Figures]:
    """Return the medians of batches alone."""
    batches = Batches(program, env, size)
    found = [batches.run() for _ in range(count)]
    batches.close()
    return {"batch": {figure: statistics.median([each[figure] for each in found]) for figure in found[0]}}


def rounds(program: Path, env: dict[str, str], size: int, count: int) -> dict[str, Figures]:
    """Return the medians of each."""
    started = [sys.executable, "-m", "pypmix", "run"]
    rest = ["-n", str(size), sys.executable, str(program)]
    batches = Batches(program, env, size)
    found: dict[str, list[Figures]] = {}
    for number in range(count + 1):
        each = {
            "started": run([*started, *rest], env, size),
            "warm": run([*started, "--warm", *rest], env, size),
            "batch": batches.run(),
            "forks": forks(env, size),
            "interpreters": interpreters(env, size),
        }
        for name, figures in each.items():
            # The first round finds what the others need in the page cache.
            found.setdefault(name, []).extend([figures] if number else [])
    batches.close()
    return {
        name: {figure: statistics.median([each[figure] for each in all_]) for figure in all_[0]}
        for name, all_ in found.items()
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--ranks", default="64,512")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", action="store_true", help="batches alone")
    parser.add_argument("--realtime", action="store_true", help="run before all else on this machine; as root")
    parser.add_argument("--json", type=Path, help="write the figures to a file")
    given = parser.parse_args()
    if given.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    # As in an installation: what is imported is compiled, and output goes by lines or blocks.
    unset = ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")
    env = {name: text for name, text in os.environ.items() if name not in unset}
    shown = os.fdopen(os.dup(1), "w", buffering=1)
    # The ranks of batches write to this process's own output.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    all_: dict[str, dict[str, Figures]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "hello.py"
        program.write_text(HELLO)
        for size in map(int, given.ranks.split(",")):
            measured = only_batches if given.batches else rounds
            found = all_[str(size)] = measured(program, env, size, given.rounds)
            print(f"{size} ranks, medians of {given.rounds} rounds", file=shown)
            for name, figures in found.items():
                cpu = f"  {figures['CPU'] / size * 1e3:6.2f} ms of CPU each" if "CPU" in figures else ""
                print(f"  {name:13} {figures['seconds']:7.3f} s {size / figures['seconds']:7.0f}/s{cpu}", file=shown)
            parts = ", ".join([f"{name} {found['batch'][name] / size * 1e3:.2f}" for name in PARTS])
            print(f"  a rank of a batch, ms of CPU: {parts}", file=shown)
            if given.batches:
                continue
            warm, started = found["warm"], found["started"]
            times, cpu_times = warm["seconds"] / started["seconds"], warm["CPU"] / started["CPU"]
            print(f"  pypmix run --warm / pypmix run: {times:.2f}, of CPU {cpu_times:.2f}", file=shown)
    if given.json:
        given.json.write_text(json.dumps(all_, indent=1) + "\n")


if __name__ == "__main__":
    main()
