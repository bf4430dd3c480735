"""Times fences across nodes in one run: `pypmix run` beside `prterun`, with as many daemons and the same C client.

    PYPMIX_TEST_PRTERUN=... python tests/bench/nodes.py [--nodes 2,4,8,16,32] [--bytes 0,1000] [--rounds 3]
                                                        [--count 200] [--realtime] [--out results/nodes/DATE.json]

Each "node" is a daemon of its own on this machine with one rank; both launchers start theirs by a command in the place
of ssh, and the daemons reach each other by TCP over loopback. The rounds of the two take turns, since machines have
other things to do; with `--realtime`, for root, all of them run before everything else on it. With bytes, each rank
puts so many before each fence, which collects them. `chart.py` makes the table of the page on performance of what
`--out` writes. `PYPMIX_TEST_PRTERUN` names the prterun of an Open MPI wheel, whose libpmix the clients use.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import build
from groups import run

from pypmix import __version__
from pypmix.extras.commands.bench import machine

AGENT = '#!/bin/sh\nshift\nexec sh -c "$*"\n'
"""In the place of ssh: its first argument is the node."""


def commands(prterun: Path, folder: Path, count: int) -> dict[str, list[str]]:
    """Return how each launcher starts one rank on each of some nodes."""
    agent = folder / "agent"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    hosts = ",".join([f"node{number:02}" for number in range(count)])
    common = ["--host", hosts, "-n", str(count), "-x", "BENCH_OUT", "-x", "LD_LIBRARY_PATH"]
    theirs = [str(prterun), "--allow-run-as-root", "--prefix", str(prterun.parents[1])]
    theirs += ["--prtemca", "plm_ssh_agent", str(agent), "--map-by", "node:OVERSUBSCRIBE"]
    ours = [sys.executable, "-m", "pypmix", "run", "--launch-agent", "sh -c {command}"]
    return {"prterun": [*theirs, *common], "pypmix": [*ours, *common]}


def main() -> int:
    """Time all numbers of nodes and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", default="2,4,8,16,32")
    parser.add_argument("--bytes", default="0,1000", help="what each rank puts before a fence; 0 for a plain one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=200, help="fences in each round")
    parser.add_argument("--realtime", action="store_true", help="run before all else on this machine; as root")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    prterun = os.environ.get("PYPMIX_TEST_PRTERUN")
    if not prterun:
        print("PYPMIX_TEST_PRTERUN names no prterun: nothing to compare with", file=sys.stderr)
        return 1
    prefix = Path(prterun).parents[1]
    extra = {f"{name}_PREFIX": str(prefix) for name in ("PRTE", "OPAL", "PMIX")}
    extra["LD_LIBRARY_PATH"] = f"{prefix / 'lib' / 'openmpi'}:{prefix / 'lib'}"
    rows = []
    with tempfile.TemporaryDirectory() as name:
        program = build(Path(name), "fencer")
        if program is None:
            print("no C compiler or no PMIx headers: nothing to compare with", file=sys.stderr)
            return 1
        print("microseconds of a fence, median of the rounds (best), one rank on each node")
        print(f"{'nodes':>6} {'bytes':>6} {'prterun':>20} {'pypmix':>20} {'ratio':>14} {'load':>6}")
        for count in map(int, options.nodes.split(",")):
            for size in map(int, options.bytes.split(",")):
                found: dict[str, list[float]] = {"prterun": [], "pypmix": []}
                for _ in range(options.rounds):
                    for launcher, command in commands(Path(prterun), Path(name), count).items():
                        words = [*command, str(program), str(options.count), "50", str(size)]
                        try:
                            results = run(words, {**os.environ, **extra}, count)
                        except RuntimeError as error:
                            # A machine with much else to do may not get all daemons to start in time.
                            print(f"  {error}", file=sys.stderr)
                            continue
                        times = [float(each["fence"]) for each in results]  # type: ignore[arg-type]
                        found[launcher].append(round(statistics.median(times)))
                if all(found.values()):
                    rows.append({"nodes": count, "bytes": size, **found})
                    show(rows[-1])
    if options.out is not None:
        keep(options.out, "fences", rows)
    return 0


def show(row: dict[str, Any]) -> None:
    """Print the figures of one number of nodes."""
    middle, best = ([pick(row[each]) for each in ("prterun", "pypmix")] for pick in (statistics.median, min))
    cells = [f"{one:10.0f} ({two:7.0f})" for one, two in zip(middle, best, strict=True)]
    ratios = f"{middle[1] / middle[0]:5.2f} ({best[1] / best[0]:5.2f})"
    print(f"{row['nodes']:>6} {row['bytes']:>6} {cells[0]} {cells[1]}  {ratios} {os.getloadavg()[0]:6.1f}", flush=True)


def keep(path: Path, what: str, rows: list[dict[str, Any]]) -> None:
    """Write figures to a file, which may hold those of the other benchmark on several nodes."""
    held = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    load = round(os.getloadavg()[0])
    text = json.dumps({**held, what: {**machine(), "version": __version__, "load": load, "rows": rows}}, indent=1)
    path.parent.mkdir(exist_ok=True)
    path.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
