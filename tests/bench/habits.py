"""Times what programs do after their start, beside a program that has done nothing else: a ratio for each habit.

    python tests/bench/habits.py [--ranks 2,8] [--rounds 3] [--habit NAME]

Every round runs a job for each habit, one after the other, so that a noisy machine is noisy for all. The reference of
a habit is the job without any ("plain"). A job times its fences, its collecting fences and its gets of a peer's value.

- plain: nothing else.
- new keys: each round puts a new key, as a program with numbered steps does; 1,000 came before the timed ones.
- handler: each rank has a handler for an event that nobody sends.
- groups: each rank has made and left 20 groups.
- spawns: the first rank has spawned 5 jobs, which have ended.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

HABITS = ["plain", "new keys", "handler", "groups", "spawns"]
FIGURES = ["fence", "fence collect", "get peer"]
KEYS = 1000
"""The keys that were put before the timed rounds."""
LIMIT = 300.0
"""Seconds that a job may take."""


def rank(habit: str, count: int) -> None:
    """Run one job's rank, and write its figures."""
    import pypmix  # the installation of this interpreter
    from pypmix.timing import clock, median, timed

    with pypmix.Client() as me, ExitStack() as stack:
        peer = me.job[(me.rank + 1) % me.job.size]
        if habit == "handler":
            stack.enter_context(me.events(pypmix.EventCode.custom(-5000)))
        if habit == "groups":
            for number in range(20):
                with me.group(f"habit.{number}", me.job.procs):
                    pass
        if habit == "spawns" and me.rank == 0:
            for _ in range(5):
                me.spawn(["true"])
        step = 0

        def put() -> str:
            nonlocal step
            step += habit == "new keys"
            me.put(f"habit.key.{step}", bytes(64))
            return f"habit.key.{step}"

        if habit == "new keys":
            for _ in range(KEYS):
                put()
            me.fence(collect=True)
        me.fence()
        collects, gets = [], []
        for _ in range(count):
            key = put()
            me.fence()
            begin = clock()
            me.fence(collect=True)
            collects.append(clock() - begin)
            begin = clock()
            me.get(key, peer)
            gets.append(clock() - begin)
        figures = {"fence": timed(count, me.fence), "fence collect": median(collects), "get peer": median(gets)}
        Path(os.environ["BENCH_OUT"], f"{me.rank}.json").write_text(json.dumps(figures))


def measure(habit: str, ranks: int, count: int) -> dict[str, float]:
    """Run one job, and return the median over its ranks of each figure, in microseconds."""
    with tempfile.TemporaryDirectory() as out:
        program = [sys.executable, __file__, "rank", habit, str(count)]
        line = [sys.executable, "-m", "pypmix", "run", "-n", str(ranks), "-x", "BENCH_OUT", *program]
        env = {**os.environ, "BENCH_OUT": out, "PYPMIX_ENGINE": "python"}
        done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
        results = [json.loads(file.read_text()) for file in Path(out).glob("*.json")]
        if done.returncode or len(results) != ranks:
            raise RuntimeError(f"{habit}: exit {done.returncode}, {len(results)} results\n{done.stderr[-2000:]}")
    return {name: statistics.median([result[name] for result in results]) for name in FIGURES}


def compare(ranks: int, rounds: int, habits: list[str]) -> dict[str, dict[str, float]]:
    """Print the figures of each habit and their ratios to the plain job's; return the figures."""
    count = max(20, 400 // ranks)
    found: dict[str, list[dict[str, float]]] = {habit: [] for habit in habits}
    for _ in range(rounds):
        for habit in habits:
            found[habit].append(measure(habit, ranks, count))
    table = {
        habit: {name: statistics.median([each[name] for each in those]) for name in FIGURES}
        for habit, those in found.items()
    }
    print(f"\nN = {ranks}: microseconds (ratio to a job without the habit)")
    print(f"  {'':10}" + "".join(f"{name:>22}" for name in FIGURES))
    for habit, figures in table.items():
        cells = [f"{figures[name]:12.1f} ({figures[name] / table['plain'][name]:5.2f})" for name in FIGURES]
        print(f"  {habit:10}" + "".join(f"{cell:>22}" for cell in cells))
    return table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,8")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--habit", action="append", choices=HABITS[1:], help="only this one; may be repeated")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a rank finds compiled modules where they were installed
    habits = [HABITS[0], *(options.habit or HABITS[1:])]
    for ranks in map(int, options.ranks.split(",")):
        compare(ranks, options.rounds, habits)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["rank"]:
        rank(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(main())
