"""Counts the instructions of an operation, in a rank and in its server, of one installation beside another.

    python tests/bench/instructions.py [--against PYTHON] [--ranks 2,6] [--kinds fence,modex] [--repeat 3]
    python tests/bench/instructions.py --traced [--ranks 2,6] [--kinds fence,modex]

`--against` names the interpreter of another checkout's environment, such as that of the commit before a change. Counts
do not depend on how busy the machine is, as times do. They are valgrind's (cachegrind), of the Python engine: an
operation's are the difference between a short and a long run, and "start" is all that a rank and `pypmix run` do for
a job that only opens and closes. The server's are those of all threads of its process. `--traced` compares a job with
the same one under `pypmix run --trace`: its server's count has what is written when the job is over, and `traced.py`
tells what fences wait for.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

KINDS = ["start", "fence", "modex", "get", "group", "publish"]
SHORT, LONG = 20, 420
"""Rounds. A job's own count differs by a million from one run to the next, so that few rounds measure that alone."""


def rank(kind: str, rounds: int) -> None:
    """Run one kind of operation so many times, as a rank."""
    import pypmix  # the installation of this interpreter

    with pypmix.Client() as me:
        procs = me.job.procs
        if kind == "start":
            return
        me.put("get", b"x" * 64)
        me.fence(collect=True)
        for index in range(rounds):
            if kind == "fence":
                me.fence()
            elif kind == "modex":
                me.put(f"modex.{index}", b"x" * 64)
                me.fence(collect=True)
                for proc in procs:
                    me.get(f"modex.{index}", proc)
                me.fence()  # else a rank that is late gets what the others have put for the next round, and asks less
            elif kind == "get":
                me.get("get", procs[-1])
            elif kind == "group":
                group = me.group(f"group.{index}", procs)
                group.construct()
                group.destruct()
            elif kind == "publish":
                me.publish({f"publish.{me.rank}.{index}": index})
                me.lookup(f"publish.{me.rank}.{index}")
        me.fence()


def serve(arguments: list[str]) -> None:
    """Be `pypmix`, as if the counted program were as fast as usual.

    It is 50 times slower, and valgrind has no pidfds: without this, much of the count would be charges for long turns,
    and looks whether a rank has ended.
    """
    import pypmix.engine.python.node as node
    import pypmix.engine.python.server as server
    import pypmix.host.processes as processes
    from pypmix.cli.main import main as pypmix

    node.CHARGED_SECONDS = server.CHARGED_SECONDS = 1.0
    processes.POLL = 0.5
    sys.argv = ["pypmix", *arguments]
    pypmix()


def counted(python: str, kind: str, ranks: int, rounds: int, side: str, traced: bool) -> int:
    """The instructions of the last rank, or of the server, of one job.

    One of them is counted at a time: what waits for a rank that is slow has more turns than usual.
    """
    with tempfile.TemporaryDirectory() as folder:
        count = ["valgrind", "-q", "--tool=cachegrind", "--cache-sim=no", f"--cachegrind-out-file={folder}/%p"]
        job = [python, os.path.abspath(__file__), "--rank", kind, "--rounds", str(rounds)]
        if side == "rank":
            script = f'test "$PMIX_RANK" = {ranks - 1} || shift {len(count)}; exec "$@"'
            job = ["sh", "-c", script, "sh", *count, *job]
        trace = ["--trace", f"{folder}/trace.json"] if traced else []
        is_counted = side == "server"
        program = [os.path.abspath(__file__), "--serve"] if is_counted and kind != "start" else ["-m", "pypmix"]
        command = [*(count if is_counted else []), python, *program, "run", *trace, "-n", str(ranks), *job]
        environment = {**os.environ, "PYTHONHASHSEED": "0", "PYPMIX_ENGINE": "python"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # a start finds compiled modules where they were installed
        # `python -m` looks into the working directory first: from a checkout, both would run the code of that checkout.
        done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}\nexit {done.returncode}\n{done.stdout}{done.stderr}")
        # a child that only becomes the rank's program leaves a small count of its own
        texts = [path.read_text() for path in Path(folder).iterdir() if path.name != "trace.json"]
        return max(int(number) for text in texts for number in re.findall(r"(?m)^summary: *(\d+)", text))


def per_operation(python: str, traced: bool, kind: str, ranks: int, side: str) -> float:
    """The instructions that one operation takes in a rank, or in the server for all ranks."""
    if kind == "start":
        return counted(python, kind, ranks, 0, side, traced)
    long, short = (counted(python, kind, ranks, rounds, side, traced) for rounds in (LONG, SHORT))
    return (long - short) / (LONG - SHORT)


def main() -> None:
    """Print the counts, and their ratios to those of the other installation."""
    if sys.argv[1:2] == ["--serve"]:
        serve(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", help="the interpreter of the installation to compare with")
    parser.add_argument("--traced", action="store_true", help="compare with the same jobs, traced")
    parser.add_argument("--ranks", default="2,6")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--sides", default="rank,server")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=0, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.rank:
        rank(chosen.rank, chosen.rounds)
        return
    jobs = [(python, False) for python in (chosen.against, sys.executable) if python]
    if chosen.traced:
        jobs.append((sys.executable, True))
    for kind in chosen.kinds.split(","):
        for ranks in map(int, chosen.ranks.split(",")):
            for side in chosen.sides.split(","):
                runs = [[per_operation(*job, kind, ranks, side) for _ in range(chosen.repeat)] for job in jobs]
                counts = [statistics.median(run) for run in runs]
                line = f"{kind:8} {ranks:3} {side:7}" + "".join(f"{count:14,.0f}" for count in counts)
                print(line + (f"{counts[-1] / counts[0]:8.3f}" if len(counts) == 2 else ""), flush=True)


if __name__ == "__main__":
    main()
