"""Times what an upcall costs, in one run: fences of a job that is half elsewhere, put to hosts that answer at once.

    python tests/bench/hosts.py [--ranks 1,2,8,32] [--rounds 5] [--fences 1000] [--root]

Every round runs all hosts one after the other, each with the same C client, so that a noisy machine is noisy for all of
them; many clients do fewer fences. The reference is a host in C on the same libpmix, which answers on the library's own
thread. The official binding is run by the interpreter that has it (`PYPMIX_BENCH_OFFICIAL`, by default
/usr/bin/python3). With `--root` all hosts but that one run in the Debian root of `tests/lib/provision_roots.py`,
with its libpmix and its Python.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import HERE, build

PATIENCE = 10.0
"""Seconds in which the official binding has to serve a handful of fences."""

LIMIT = 120.0
"""Seconds that a run may take."""

REFERENCE = "C"
HOSTS = {
    "native inline": ("native", "inline"),
    "native asyncio": ("native", "asyncio"),
    "native threads": ("native", "threads"),
    "python inline": ("python", "inline"),
    "python asyncio": ("python", "asyncio"),
    "python threads": ("python", "threads"),
}
"""The hosts of `host.py`: the engine of each, and where its handler runs."""


def library_of(program: Path) -> str:
    """Return the path of the libpmix that a program is linked with."""
    shown = subprocess.run(["ldd", str(program)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"libpmix\S* => (\S+)", shown)
    if found is None:
        raise RuntimeError(f"{program} is linked with no libpmix")
    return found[1]


def run(command: list[str], env: dict[str, str], ranks: int, limit: float, folder: str | None = None) -> float:
    """Run a host with its clients; return the median over these of the microseconds that a fence takes.

    Args:
        command: The host, and what it starts.
        env: The environment of both.
        ranks: The number of clients.
        limit: Seconds that it may take.
        folder: Where clients may write.

    Raises:
        TimeoutError: It did not end in time, and was stopped with all its clients.
        RuntimeError: It failed.
    """
    with tempfile.TemporaryDirectory(dir=folder) as out, tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command,
            env={**env, "BENCH_OUT": out},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=said,
            start_new_session=True,
        )
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"{command[0]} did not end within {limit:g} s") from None
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        files = list(Path(out).glob("*.json"))
        if code or len(files) != ranks:
            said.seek(0)
            raise RuntimeError(f"{' '.join(command)}: exit {code}, {len(files)} results\n{said.read()[-2000:]}")
        return statistics.median([float(json.loads(file.read_text())["fence"]) for file in files])


def official(client: Path) -> None:
    """Print what the official binding does with a handful of fences."""
    interpreter = os.environ.get("PYPMIX_BENCH_OFFICIAL", "/usr/bin/python3")
    try:
        there = subprocess.run([interpreter, "-c", "import pmix"], capture_output=True, check=False, timeout=LIMIT)
    except OSError:
        there = None
    if there is None or there.returncode:
        print(f"\nofficial binding: {interpreter} has none")
        return
    try:
        figure = run([interpreter, str(HERE / "official.py"), "1", str(client), "20"], dict(os.environ), 1, PATIENCE)
    except TimeoutError:
        print(f"\nofficial binding: hangs; a client of it had not done 20 fences after {PATIENCE:g} s, and was stopped")
    except RuntimeError as error:
        print(f"\nofficial binding: fails: {error}")
    else:
        print(f"\nofficial binding: {figure:.1f} us a fence, N = 1")


def compare(ranks: list[int], rounds: int, fences: int, root: bool = False) -> None:
    """Time all hosts and print a table for each number of clients."""
    with tempfile.TemporaryDirectory() as folder:
        host, client = (build(Path(folder), name) for name in ("host", "fencer"))
        if host is None or client is None:
            print("no C compiler or no PMIx headers: no host in C to compare with", file=sys.stderr)
            return
        library = library_of(host)
        if root:
            sys.path.insert(0, str(HERE.parent))
            from lib import machine

            if machine.root_lacking():
                print(f"this machine lacks {machine.root_lacking()}", file=sys.stderr)
                return
            library = machine.root().library
        commands: dict[str, tuple[list[str], dict[str, str]]] = {REFERENCE: ([str(host)], dict(os.environ))}
        for name, (engine, kind) in HOSTS.items():
            env = {**os.environ, "PYPMIX_ENGINE": engine, "PYPMIX_LIBPMIX": library}
            commands[name] = [sys.executable, str(HERE / "host.py"), kind], env
        print(f"\nwhat an upcall costs: fences that are put to a host, {library}")
        for n in ranks:
            found: dict[str, list[float]] = {name: [] for name in commands}
            count = str(max(100, fences * 8 // max(n, 8)))
            for _ in range(rounds):
                for name, (command, env) in commands.items():
                    line = [*command, str(n), str(client), count]
                    if root:
                        line = machine.enter(line, Path(folder))
                    found[name].append(run(line, env, n, LIMIT, folder))
            show(n, found)
        if not root:
            official(client)


def show(ranks: int, found: dict[str, list[float]]) -> None:
    """Print one table: microseconds, as medians over the rounds and in the best round, with ratios to the host in C."""
    print(f"\nN = {ranks}: microseconds a fence, median and best of {len(found[REFERENCE])} rounds (ratio to C)")
    reference = found[REFERENCE]
    for name, figures in found.items():
        cells = []
        for pick in (statistics.median, min):
            cells.append(f"{pick(figures):9.1f} ({pick(figures) / pick(reference):5.2f})")
        print(f"  {name:16}" + "  ".join(cells))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="1,2,8,32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--fences", type=int, default=1000)
    parser.add_argument("--root", action="store_true", help="in the Debian root")
    options = parser.parse_args()
    compare([int(number) for number in options.ranks.split(",")], options.rounds, options.fences, options.root)
    return 0


if __name__ == "__main__":
    sys.exit(main())
