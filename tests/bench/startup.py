"""Times the start of a job on several machines, in one run: `pypmix run`, `prterun` and `mpirun` over the same ssh.

    python tests/bench/startup.py [--nodes 8] [--ranks 8] [--rounds 5] [--program true|client]
                                  [--realtime] [--out results/nodes/DATE.json]

As root: the machines are namespaces of this kernel with a `sshd` each (`tests/lib/cluster.py`), all on the same
cores. Every round runs all launchers one after the other, so that a noisy machine is noisy for all of them; with
`--realtime` all run before everything else on it. A run is timed from the launcher's start to its end. The CPU time is
that of the whole session, of all its ssh, daemons and ranks, and depends less on what else runs. `true` ends at once;
`client` is a C program that initializes PMIx, fences and finalizes. `PYPMIX_TEST_PRTERUN` names the prterun of an Open
MPI wheel.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from bench import build  # noqa: E402
from nodes import keep  # noqa: E402

from lib.cluster import Cluster, lacking  # noqa: E402

LIMIT = 40.0
"""Seconds that a run may take. One that does not end, as prterun 5.0.11 does now and then, is told and not counted."""

REFERENCE = "pypmix"


def launchers(nodes: int, ranks: int) -> dict[str, list[str]]:
    """Return the command line of each launcher, up to the program."""
    hosts = ",".join([f"n{number}:{ranks}" for number in range(1, nodes + 1)])
    size = ["-n", str(nodes * ranks)]
    found = {REFERENCE: [sys.executable, "-m", "pypmix", "run", "--host", hosts, *size]}
    # All nodes are this machine, which has fewer cores than they have ranks.
    size += ["--map-by", "slot:OVERSUBSCRIBE", "--bind-to", "none"]
    prterun = os.environ.get("PYPMIX_TEST_PRTERUN", "")
    if prterun:
        prefix = str(Path(prterun).parents[1])
        found["prterun"] = [prterun, "--allow-run-as-root", "--prefix", prefix, "--host", hosts, *size]
    mpirun = "/usr/bin/mpirun"
    if os.path.exists(mpirun):
        found["mpirun"] = [mpirun, "--allow-run-as-root", "--host", hosts, *size]
    return found


def spent(cluster: Cluster) -> float:
    """Return the CPU seconds of all that has run on the nodes and ended, and of what serves them."""
    total = 0.0
    for node in cluster:
        for pid in (node.pid, *[service.pid for service in node.services]):
            # A node's first process inherits what its parents leave behind.
            words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, words[11:15]))
    mine = os.times()
    return total / os.sysconf("SC_CLK_TCK") + mine.children_user + mine.children_system


def timed(cluster: Cluster, command: list[str], program: list[str], env: dict[str, str]) -> tuple[float, float]:
    """Run a job from the first node; return the seconds that it took, and the CPU seconds.

    Raises:
        AssertionError: It failed.
    """
    before = spent(cluster)
    begin = time.perf_counter()
    cluster["n1"].run(*command, *program, timeout=LIMIT, env=env)
    took = time.perf_counter() - begin
    left = cluster.wait_gone()
    if left:
        raise AssertionError(f"{command[0]} has left processes\n{left}")
    return took, spent(cluster) - before


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--ranks", type=int, default=8, help="on each node")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", choices=("true", "client"), default="true")
    parser.add_argument("--realtime", action="store_true", help="run before all else on this machine")
    parser.add_argument("--out", type=Path, help="where to write the figures, for `chart.py`")
    options = parser.parse_args()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    if lacking():
        print(lacking(), file=sys.stderr)
        return 1
    # Daemons find compiled modules, as where pypmix was installed.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    found: dict[str, list[tuple[float, float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        program = ["true"]
        if options.program == "client":
            built = build(Path(folder), "fencer")
            if built is None:
                print("no C compiler or no PMIx headers", file=sys.stderr)
                return 1
            program = [str(built), "1", "0"]
        nodes = Path(folder, "nodes")
        nodes.mkdir()
        cluster = Cluster(options.nodes, nodes, [Path(folder)])
        try:
            cluster.open()
            for _ in range(options.rounds):
                for name, command in launchers(options.nodes, options.ranks).items():
                    more = ["-x", "BENCH_OUT"] if options.program == "client" else []
                    try:
                        figures = timed(cluster, [*command, *more], program, {"BENCH_OUT": "/tmp"})
                        found.setdefault(name, []).append(figures)
                    except AssertionError as error:
                        print(f"{name}: {str(error)[-400:]}", file=sys.stderr)
                        cluster.restore()
        finally:
            cluster.close()
    show(options, found)
    if options.out is not None:
        size = {"nodes": options.nodes, "ranks": options.ranks, "program": options.program}
        runs = {name: [[round(figure, 2) for figure in run] for run in runs] for name, runs in found.items()}
        keep(options.out, "starts", [{**size, **runs}])
    return 0


def show(options: argparse.Namespace, found: dict[str, list[tuple[float, float]]]) -> None:
    """Print the medians and the least of each launcher, and what ours are of the others'."""
    print(f"{options.nodes} nodes x {options.ranks} ranks, {options.program}, {options.rounds} rounds")
    print(f"  {'':8}{'seconds':>10}{'least':>8}{'CPU s':>8}{'least':>8}   pypmix / it: seconds, least, CPU, least")

    def figures(name: str) -> list[float]:
        return [pick(column) for column in zip(*found[name], strict=True) for pick in (statistics.median, min)]

    for name in found:
        own, other = figures(REFERENCE), figures(name)
        ratios = ", ".join([f"{one / another:.2f}" for one, another in zip(own, other, strict=True)])
        print(f"  {name:8}{other[0]:10.2f}{other[1]:8.2f}{other[2]:8.2f}{other[3]:8.2f}   {ratios}")


if __name__ == "__main__":
    sys.exit(main())
