"""Times jobs of two ranks in a standing session: on two nodes beside one, and beside `prun` in a DVM of PRRTE.

    python tests/bench/sessions.py [--rounds 20] [--root forky] [--out results/sessions/DATE.json]

Each "node" is a daemon of its own on this machine, which a command in the place of ssh starts. The ways take turns, and
what counts is the ratio of the times of one turn: its median. The ranks are `true`, and a Python program that
initializes, fences and finalizes. With `--root`, all of it runs in that Debian root, whose PRRTE has `prun`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HOSTS = "node00:2,node01:2"
AGENT = '#!/bin/sh\nshift\nexec sh -c "$*"\n'
HELLO = "import pypmix\nwith pypmix.Client() as me:\n    me.fence()\n"
PYPMIX = [sys.executable, "-m", "pypmix"]
LIMIT = 60
HUNG = 15
"""Seconds after which a job counts as hung, as some of `prun` do: its turn does not count."""


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Keep a session of two nodes."""
    nodes = ["--host", HOSTS, "--launch-agent", "sh -c {command}"]
    subprocess.run([*PYPMIX, "session", "start", "bench", *nodes], check=True, timeout=LIMIT)
    try:
        yield
    finally:
        subprocess.run([*PYPMIX, "session", "stop", "bench"], check=True, timeout=LIMIT)


@contextlib.contextmanager
def machine_of_prrte(folder: Path) -> Iterator[list[str]]:
    """Keep a DVM of two nodes, and yield the beginning of the command that runs a job there; empty without PRRTE."""
    prun, prte = shutil.which("prun"), shutil.which("prte")
    if prun is None or prte is None:
        yield []
        return
    agent, uri = folder / "agent", folder / "uri"
    agent.write_text(AGENT)
    agent.chmod(0o755)
    words = [prte, "--allow-run-as-root", "--host", HOSTS, "--prtemca", "plm_ssh_agent", str(agent)]
    with (folder / "prte").open("wb") as log:
        process = subprocess.Popen([*words, "--report-uri", str(uri)], stdout=log, stderr=log)
    try:
        end = time.monotonic() + LIMIT
        while not (uri.exists() and uri.read_text().endswith("\n")):
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit(f"prte does not start:\n{(folder / 'prte').read_text()}")
            time.sleep(0.1)
        yield [prun, "--allow-run-as-root", "--dvm-uri", f"file:{uri}"]
    finally:
        process.terminate()
        process.wait(LIMIT)


def ways(prun: list[str]) -> dict[str, list[str]]:
    """Return the beginning of each way's command."""
    found = {
        "session, one node": [*PYPMIX, "run", "--session", "bench", "--host", "node00:2", "-n", "2"],
        "session, two nodes": [*PYPMIX, "run", "--session", "bench", "--map-by", "node", "-n", "2"],
        "pypmix run, one node": [*PYPMIX, "run", "-n", "2"],
        "pypmix run, two nodes": [
            *PYPMIX, "run", "--host", HOSTS, "--launch-agent", "sh -c {command}", "--map-by", "node", "-n", "2",
        ],
    }  # fmt: skip
    if prun:
        found["prun, one node"] = [*prun, "--map-by", "slot", "-n", "2"]
        found["prun, two nodes"] = [*prun, "--map-by", "node", "-n", "2"]
    return found


def timed(command: list[str]) -> float:
    """Run a command and return the milliseconds that it takes; raise `TimeoutExpired` if it hangs."""
    begin = time.perf_counter()
    pipe = subprocess.DEVNULL
    subprocess.run(command, check=True, timeout=HUNG, stdin=pipe, stdout=pipe, stderr=pipe)
    return (time.perf_counter() - begin) * 1000


def measure(rounds: int, folder: Path) -> dict[str, dict[str, list[float]]]:
    """Return the milliseconds of each way, by program."""
    (folder / "hello.py").write_text(HELLO)
    programs = {"true": ["true"], "Python": [sys.executable, str(folder / "hello.py")]}
    found: dict[str, dict[str, list[float]]] = {}
    with session(), machine_of_prrte(folder) as prun:
        for name, program in programs.items():
            times = found[name] = {way: [] for way in ways(prun)}
            for turn in range(rounds + 1):
                try:
                    taken = {way: timed([*begin, *program]) for way, begin in ways(prun).items()}
                except subprocess.TimeoutExpired as error:
                    print("hung:", *error.cmd, file=sys.stderr)
                    continue
                for way, each in taken.items() if turn else ():
                    times[way].append(round(each, 1))
    return found


def show(found: dict[str, dict[str, list[float]]]) -> None:
    """Print the medians, and the ratios to a job on one node of the session."""
    for program, times in found.items():
        base = times["session, one node"]
        for way, each in times.items():
            ratio = statistics.median([one / other for one, other in zip(each, base, strict=True)])
            print(f"{program:>7} {way:>22} {statistics.median(each):8.1f} ms {ratio:6.2f}", flush=True)


def in_root(name: str, words: list[str]) -> int:
    """Run this in a Debian root."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from lib import machine

    found = machine.root(name)
    assert found is not None, machine.root_lacking(name)
    with tempfile.TemporaryDirectory() as temporary:
        variables = [f"PYTHONPATH={found.packages}", f"TMPDIR={temporary}", f"HOME={temporary}", "PATH=/usr/bin:/bin"]
        inside = ["env", *variables, sys.executable, str(Path(__file__).resolve()), *words]
        return subprocess.run(machine.enter(inside, Path(temporary), name), env=machine.clean_environment()).returncode


def main() -> int:
    """Time all ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--root", default="")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.root:
        return in_root(options.root, ["--rounds", str(options.rounds)])
    with tempfile.TemporaryDirectory() as name:
        found = measure(options.rounds, Path(name))
    show(found)
    if options.out is not None:
        options.out.parent.mkdir(exist_ok=True)
        options.out.write_text(json.dumps({"load": os.getloadavg()[0], "times": found}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
