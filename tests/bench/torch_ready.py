"""The time to a ready process group of torch, by pypmix and by what people use today, in one run; and port races.

`python tests/bench/torch_ready.py [RANKS [ROUNDS]]` prints, for each way to `init_process_group` on gloo, the median
and the least time from when all ranks are let go until the last one is ready, and the median of its ratios to `env://`
in the same round. A "cold" rank has imported torch and no more: the import of `pypmix.torch` and the client's opening
count. An "open" one has done both. The ways take turns. The port of `env://` is one that was free a moment before.

`--launch [RANKS [ROUNDS]]` starts a program from nothing: by `torchrun` with its back end c10d, by hand with `env://`
(as many processes with the variables set, and a port that was free), and by `pypmix run` with `pmix://`. It takes the
time from there until the last rank has a process group, and the CPU time of all processes to the end of the job.

`--torchrun [AGENTS [ROUNDS]]` has torchrun's back ends take turns: agents that have imported torch are let go, and it
takes the time until the last worker runs, and until the last one has a process group.

`--race STARTS [JOBS]` has jobs side by side make so many rendezvous, and counts those that fail.

With `--first` jobs come before what else the machine does; `--out FILE` adds the figures to a file.

It takes the Python of `tests/lib/provision_frameworks.py`.
"""

from __future__ import annotations

import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path

from first import REALTIME, keep

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).resolve().parents[2]
WAYS = ("env://", "pmix://", "pmix://?store=pmix")
BACKENDS = ("c10d", "pmix")
LIMIT = 300

WORKER = """
import os, sys, time
begun = time.monotonic()
import torch.distributed as dist
dist.init_process_group("gloo")
ready = time.monotonic()
dist.barrier()
with open(sys.argv[1] + os.environ["RANK"], "w") as file:
    file.write(f"{begun} {ready}")
dist.destroy_process_group()
"""


BEFORE: list[str] = []
"""What jobs are started by."""

out = ""
"""The file to which figures are added."""

LAUNCHES = ("env:// by hand", "torchrun c10d", "pypmix run")

PROGRAM = """
import os, sys, time
import torch
import torch.distributed as dist
if sys.argv[1] == "pmix://":
    import pypmix.torch
dist.init_process_group("gloo", init_method=sys.argv[1])
ready = time.monotonic()
with open(sys.argv[2] + os.environ["RANK"], "w") as file:
    file.write(str(ready))
dist.barrier()
dist.destroy_process_group()
"""
"""What each rank runs; the URL and the beginning of a file's name are its arguments."""


def rank(path: str) -> None:
    """Do in a rank what the bench asks for; what is to be cold in a child."""
    import torch.distributed as dist

    with socket.socket(socket.AF_UNIX) as line:
        line.connect(path)
        words = line.makefile()
        while asked := words.readline().split():
            if asked[0] == "open":
                import pypmix.torch

                pypmix.torch.client()
            elif child := os.fork():
                os.waitpid(child, 0)
                continue
            line.sendall(b"ready\n")
            number, size, port = words.readline().split()
            if asked[1] == "torchrun":
                agent(asked[2], port, size, asked[3:])
            else:
                group(asked[1], number, size, port)
            line.sendall(f"{time.monotonic()}\n".encode())
            if dist.is_initialized():
                dist.barrier()
                dist.destroy_process_group()
            if asked[0] != "open":
                return


def group(way: str, number: str, size: str, port: str) -> None:
    """Make a process group."""
    import torch.distributed as dist

    if way.startswith("pmix"):
        import pypmix.torch  # noqa: F401
    else:
        os.environ |= {"RANK": number, "WORLD_SIZE": size, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    dist.init_process_group("gloo", init_method=way, timeout=timedelta(seconds=LIMIT))


def agent(backend: str, port: str, size: str, worker: list[str]) -> None:
    """Be an agent of torchrun."""
    from torch.distributed import run

    if backend == "pmix":
        # As the entry point does it, where pypmix is installed.
        from torch.distributed.elastic.rendezvous.registry import handler_registry

        from pypmix.torch import elastic

        handler_registry.register("pmix", elastic.handler())
    place = ["--rdzv-endpoint", f"127.0.0.1:{port}"] if backend == "c10d" else []
    run.main(["--nnodes", size, "--rdzv-backend", backend, "--rdzv-id", f"job{port}", *place, *worker])


def race(rounds: int) -> None:
    """Make rendezvous in a rank; print how many failed."""
    import torch.distributed as dist

    import pypmix.torch

    failed = 0
    for _ in range(rounds):
        try:
            found = next(dist.rendezvous("pmix://", timeout=timedelta(seconds=LIMIT)))
            del found
        except Exception as error:
            failed += 1
            print(f"failed: {error}", flush=True)
    if pypmix.torch.client().rank == 0:
        print(f"races {rounds} {failed}", flush=True)


class Ranks:
    """The ranks of a job, which do what they are told.

    Args:
        count: How many.
        folder: A folder of this job.
    """

    def __init__(self, count: int, folder: str) -> None:
        path = f"{folder}/line"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(count)
            listener.settimeout(LIMIT)
            self._job = start(count, "--rank", path)
            self._lines = [listener.accept()[0] for _ in range(count)]
        for line in self._lines:
            line.settimeout(LIMIT)
        self._words = [line.makefile() for line in self._lines]

    def begin(self, *asked: str) -> float:
        """Let all begin with something at one moment; return that."""
        self._tell(lambda _: " ".join(asked))
        for words in self._words:
            assert words.readline() == "ready\n", "a rank has ended"
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        begun = time.monotonic()
        self._tell(lambda number: f"{number} {len(self._lines)} {port}")
        return begun

    def end(self) -> float:
        """Wait for all; return when the last one was done."""
        return max([float(words.readline()) for words in self._words])

    def close(self) -> None:
        """End the job."""
        for line, words in zip(self._lines, self._words, strict=True):
            words.close()
            line.close()
        self._job.wait(LIMIT)

    def _tell(self, text: Callable[[int], str]) -> None:
        for number, line in enumerate(self._lines):
            line.sendall(f"{text(number)}\n".encode())


def interpreter() -> str:
    """Return the Python that has torch."""
    cache = os.environ.get("PYPMIX_TEST_CACHE") or Path.home() / ".cache" / "pypmix-tests"
    return os.environ.get("TORCH_PYTHON") or str(Path(cache) / "torch" / "bin" / "python")


def variables() -> dict[str, str]:
    """Return the environment of jobs."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    # An installed pypmix has been compiled.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return environment


def start(ranks: int, *words: str) -> subprocess.Popen[str]:
    """Start a job of this program's ranks."""
    command = [*BEFORE, sys.executable, "-m", "pypmix", "run", "-n", str(ranks), interpreter(), __file__, *words]
    return subprocess.Popen(command, env=variables(), stdout=subprocess.PIPE, text=True)


def launch(way: str, ranks: int, program: str, told: Path) -> tuple[float, float]:
    """Start a job; return the seconds until all have a process group, and the CPU time of all.

    Raises:
        RuntimeError: The job has failed.
    """
    python, environment = interpreter(), variables()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    places = [environment]
    if way == "env:// by hand":
        shared = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        places = [{**environment, **shared, "RANK": str(number)} for number in range(ranks)]
        command = [python, program, "env://"]
    elif way == "torchrun c10d":
        size = ["--nnodes", "1", "--nproc-per-node", str(ranks), "--rdzv-id", f"job{port}"]
        place = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}"]
        command = [python, "-m", "torch.distributed.run", *size, *place, program, "env://"]
    else:
        command = [sys.executable, "-m", "pypmix", "run", "-n", str(ranks), python, program, "pmix://"]
    files = [Path(f"{told}{number}") for number in range(ranks)]
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.monotonic()
    running = [subprocess.Popen([*BEFORE, *command, str(told)], env=place) for place in places]
    if codes := [code for job in running if (code := job.wait(LIMIT))]:
        raise RuntimeError(f"{way}: exit codes {codes}")
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    ready = max([float(file.read_text()) for file in files])
    for file in files:
        file.unlink()
    if BEFORE:
        # Others on the machine get a turn.
        time.sleep(ready - begun)
    return ready - begun, spent.ru_utime + spent.ru_stime - used.ru_utime - used.ru_stime


def table(title: str, times: dict[str, list[float]]) -> None:
    """Print the times of several ways, of which the first one is what the others are compared with."""
    print(f"{title:<28} {'median ms':>10} {'least ms':>10} {'ratio':>6}")
    first = next(iter(times.values()))
    keep(out, f"torch {title}", times)
    for way, taken in times.items():
        ratio = statistics.median([one / other for one, other in zip(taken, first, strict=True)])
        print(f"{way:<28} {statistics.median(taken) * 1e3:>10.1f} {min(taken) * 1e3:>10.1f} {ratio:>6.2f}")


def groups(ranks: int, rounds: int, folder: str) -> None:
    """Compare ways to a process group."""
    job = Ranks(ranks, folder)
    for warmth in "cold", "open":
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for way in WAYS:
            job.begin(warmth, way)
            job.end()
        for number in range(rounds):
            for way in WAYS[number % 3 :] + WAYS[: number % 3]:
                begun = job.begin(warmth, way)
                times[way].append(job.end() - begun)
        table(f"{warmth}, {ranks} ranks", times)
    job.close()


def agents(count: int, rounds: int, folder: str) -> None:
    """Compare back ends of torchrun."""
    worker, told = Path(folder, "worker.py"), Path(folder, "told")
    worker.write_text(WORKER)
    job = Ranks(count, folder)
    running: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    ready: dict[str, list[float]] = {backend: [] for backend in BACKENDS}
    for number in range(rounds):
        for backend in BACKENDS[:: 1 - 2 * (number % 2)]:
            begun = job.begin("cold", "torchrun", backend, str(worker), str(told))
            job.end()
            files = [Path(f"{told}{each}") for each in range(count)]
            found = [file.read_text().split() for file in files]
            for file in files:
                file.unlink()
            running[backend].append(max([float(first) for first, _ in found]) - begun)
            ready[backend].append(max([float(last) for _, last in found]) - begun)
    job.close()
    table(f"{count} agents' workers run", running)
    table(f"{count} agents' group is ready", ready)


def launches(ranks: int, rounds: int, folder: str) -> None:
    """Compare ways to start a job."""
    program, told = Path(folder, "program.py"), Path(folder, "told")
    program.write_text(PROGRAM)
    ready: dict[str, list[float]] = {way: [] for way in LAUNCHES}
    spent: dict[str, list[float]] = {way: [] for way in LAUNCHES}
    for number in range(rounds + 1):
        for way in LAUNCHES[number % 3 :] + LAUNCHES[: number % 3]:
            taken, cpu = launch(way, ranks, str(program), told)
            # In the first round modules are compiled and read from the disk.
            if number:
                ready[way].append(taken)
                spent[way].append(cpu)
    table(f"launch, {ranks} ranks", ready)
    table(f"CPU time, {ranks} ranks", spent)


def races(starts: int, jobs: int) -> None:
    """Have jobs side by side make rendezvous."""
    running = [start(2, "--racing", str(-(-starts // jobs))) for _ in range(jobs)]
    lines = [line.split() for job in running for line in job.communicate()[0].splitlines()]
    found = [line for line in lines if line[:1] == ["races"]]
    done, failed = sum(int(line[1]) for line in found), sum(int(line[2]) for line in found)
    print(f"{done} rendezvous of {len(found)} of {jobs} jobs side by side, {failed} failed")


def main(words: list[str]) -> None:
    global out
    if "--out" in words:
        place = words.index("--out")
        out = words[place + 1]
        del words[place : place + 2]
    if "--first" in words:
        words.remove("--first")
        BEFORE[:] = REALTIME
    kind = words.pop(0) if words and words[0].startswith("-") else ""
    if kind == "--rank":
        rank(words[0])
    elif kind == "--racing":
        race(int(words[0]))
    elif kind == "--race":
        races(int(words[0]), int(words[1]) if words[1:] else 4)
    else:
        compare = {"--torchrun": agents, "--launch": launches}.get(kind, groups)
        with tempfile.TemporaryDirectory() as folder:
            compare(int(words[0]) if words else 2, int(words[1]) if words[1:] else 10, folder)


if __name__ == "__main__":
    main(sys.argv[1:])
