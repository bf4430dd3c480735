"""Counts what the launcher does when something happens to a job on several nodes: functions, calls, thread switches.

    python tests/bench/launcher.py [--nodes 3] [--cases exits,lost] [--show CASE] [--out results/launcher/DATE.json]

Each "node" is a daemon of its own on this machine, which a command in the place of ssh starts, with one rank. The
`functions` are the distinct functions of pypmix that the launcher calls from the event on, on all of its threads; the
`calls` are the calls of them, and the `switches` the times that another thread continues. A job that ends takes the
session with it, whose end counts too. Counts do not depend on how busy the machine is, as times do, up to messages that
arrive together or one after the other. `--show` prints all calls of one case.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import NamedTuple

AGENT = "sh -c {command}"
LIMIT = 60
QUIET = 0.7
"""Seconds before the event, in which the launcher finishes all that precedes it."""
WINDOW = 0.7
"""Seconds after the event that count, if the job continues."""

CASES = {
    "prints": "a rank prints a line",
    "exits": "a rank exits with 0, and the others continue",
    "fails": "a rank exits with 3, which ends the job",
    "lost": "a node is lost, which ends the job of its rank",
    "kept": "a node is lost, and the job continues (`--keep-going`)",
    "idle": "a node without ranks is lost, and the job continues",
    "starts": "a job starts, from its description to the last rank's start",
}
CONTINUED = frozenset(("prints", "exits", "kept", "idle"))
FIGURES = ("functions", "calls", "switches", "lines")


class Call(NamedTuple):
    """A call of a function of pypmix in the launcher."""

    time: float
    thread: int
    file: str
    function: str


def rank(case: str, folder: Path) -> None:
    """Run one rank: rank 0 or the last one causes the event."""
    import pypmix

    with pypmix.Client() as me:
        (folder / f"parent{me.rank}").write_text(str(os.getppid()))
        me.fence()
        last = me.rank == len(me.job) - 1
        if last and case == "idle":
            return
        time.sleep(QUIET)
        if last and case in ("prints", "exits", "fails"):
            (folder / "mark").write_text(str(time.monotonic()))
            if case == "prints":
                print("hello", flush=True)
                time.sleep(WINDOW + 1)
                return
            if case == "exits":
                return
            os._exit(3)
        if me.rank == 0 and case in ("lost", "kept", "idle"):
            parent = int((folder / f"parent{len(me.job) - 1}").read_text())
            (folder / "mark").write_text(str(time.monotonic()))
            os.kill(parent, signal.SIGKILL)
        if case != "starts":
            time.sleep(WINDOW + 1 if case in CONTINUED else LIMIT)


def launch(folder: Path, arguments: list[str]) -> None:
    """Run `pypmix` with these arguments, and write each call of one of its functions to a file."""
    found: list[tuple[float, int, object]] = []

    def profile(frame: object, event: str, _argument: object) -> None:
        code = frame.f_code  # type: ignore[attr-defined]
        if event == "call" and "/pypmix/" in code.co_filename:
            found.append((time.monotonic(), threading.get_ident(), code))

    def dump(code: int) -> None:
        sys.setprofile(None)
        with (folder / "calls").open("w") as file:
            for at, thread, each in list(found):
                where = each.co_filename.rpartition("/pypmix/")[2]  # type: ignore[attr-defined]
                file.write(f"{at}\t{thread}\t{where}\t{each.co_qualname}\n")  # type: ignore[attr-defined]
        leave(code)

    leave = os._exit
    os._exit = dump  # type: ignore[assignment]
    from pypmix.cli.main import main

    threading.setprofile(profile)
    sys.setprofile(profile)
    code = 1
    try:
        main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    dump(code)


def calls_of(case: str, nodes: int) -> tuple[list[Call], list[str]]:
    """Run the job of a case; return the launcher's calls that count, and the lines that it has printed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        hosts = ",".join([f"n{number}:1" for number in range(nodes)])
        options = ["--keep-going"] if case == "kept" else []
        run = ["run", "--host", hosts, "--launch-agent", AGENT, "--map-by", "node", "-n", str(nodes), *options]
        this = [sys.executable, __file__]
        done = subprocess.run(
            [*this, "--launch", name, *run, *this, "--rank", case, name],
            stderr=subprocess.PIPE,
            timeout=LIMIT,
            check=False,
        )
        printed = done.stderr.decode(errors="replace").splitlines()
        lines = [(folder / "calls").read_text().splitlines()] if (folder / "calls").exists() else []
        if not lines:
            raise SystemExit("\n".join(printed) or "the launcher has written no calls")
        split = [line.split("\t") for line in lines[0]]
        calls = [Call(float(at), int(thread), file, function) for at, thread, file, function in split]
        if case == "starts":
            first = next(index for index, call in enumerate(calls) if call.function == "Manager.begin")
            last = next(index for index, call in enumerate(calls) if call.function == "RunningJob.started")
            return calls[first : last + 1], printed
        mark = float((folder / "mark").read_text())
        end = mark + WINDOW if case in CONTINUED else float("inf")
        return [call for call in calls if mark <= call.time <= end], printed


def figures(calls: list[Call], printed: list[str]) -> dict[str, int]:
    """Return the figures of a case."""
    return {
        "functions": len({(call.file, call.function) for call in calls}),
        "calls": len(calls),
        "switches": sum(one.thread != other.thread for one, other in zip(calls, calls[1:], strict=False)),
        # The launch agent's own line says that its process was killed.
        "lines": sum(
            line.startswith("pypmix run: ") and " by sh" not in line and "Killed" not in line for line in printed
        ),
    }


def show(calls: list[Call]) -> None:
    """Print calls, one a line."""
    threads: dict[int, int] = {}
    for call in calls:
        number = threads.setdefault(call.thread, len(threads))
        print(f"{call.time - calls[0].time:8.5f} {number} {call.file:40} {call.function}")


def main() -> None:
    if sys.argv[1:2] == ["--launch"]:
        launch(Path(sys.argv[2]), sys.argv[3:])
    if sys.argv[1:2] == ["--rank"]:
        rank(sys.argv[2], Path(sys.argv[3]))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=3)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--show", default="", choices=["", *CASES])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    if options.show:
        show(calls_of(options.show, options.nodes)[0])
        return
    found: dict[str, dict[str, int]] = {}
    print(f"{'':8}" + "".join([f"{name:>10}" for name in FIGURES]))
    for case in options.cases.split(","):
        found[case] = figures(*calls_of(case, options.nodes))
        print(f"{case:8}" + "".join([f"{found[case][name]:10}" for name in FIGURES]) + f"  {CASES[case]}", flush=True)
    if options.out is not None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps({"nodes": options.nodes, "cases": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
