"""The time to a ready process group of torch, by `pmix://` and by what people use today, in one run; and port races.

`python tests/bench/torch_ready.py [RANKS [ROUNDS]]` prints the median and the least time of `init_process_group` on
gloo for each way: the ranks begin together, behind a barrier of PMIx, and what they have imported is not counted. The
port of `env://` is one that was free a moment before. `--race STARTS [JOBS]` has jobs side by side make so many
rendezvous, and counts those that fail. It takes the Python of `tests/harness/provision_frameworks.py`.
"""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WAYS = ("env://", "pmix://", "pmix://?store=pmix")


def rank(rounds: int, race: bool) -> None:
    """Form process groups in a rank, by each way in turn."""
    from datetime import timedelta

    import torch.distributed as dist

    import pypmix.torch

    me = pypmix.torch.client()
    places = pypmix.torch.environment()
    limit = timedelta(seconds=300)
    failed = 0
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(rounds):
        if race:
            try:
                found = next(dist.rendezvous("pmix://", timeout=limit))
                del found
            except Exception as error:
                failed += 1
                print(f"failed: {error}", flush=True)
            continue
        for way in WAYS:
            if way == "env://":
                with socket.create_server(("", 0)) as free:
                    port = me.bcast(free.getsockname()[1] if me.rank == 0 else None)
                os.environ |= {**places, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            me.barrier()
            started = time.perf_counter()
            dist.init_process_group("gloo", init_method=way, timeout=limit)
            times[way].append(time.perf_counter() - started)
            dist.barrier()
            dist.destroy_process_group()
            me.barrier()
    if me.rank == 0:
        if race:
            print(f"races {rounds} {failed}", flush=True)
        for way, taken in times.items():
            if taken:
                print(f"time {way} {statistics.median(taken)} {min(taken)}", flush=True)


def start(python: str, ranks: int, *words: str) -> subprocess.Popen[str]:
    """Start a job of this program's ranks."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pypmix", "run", "-n", str(ranks), python, __file__, "--rank", *words]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


def main(words: list[str]) -> None:
    if words[:1] == ["--rank"]:
        rank(int(words[1]), words[2:] == ["race"])
        return
    cache = os.environ.get("PYPMIX_TEST_CACHE") or ROOT / ".tox" / "native"
    python = os.environ.get("TORCH_PYTHON") or str(Path(cache) / "torch" / "bin" / "python")
    if words[:1] == ["--race"]:
        starts, jobs = int(words[1]), int(words[2]) if words[2:] else 4
        running = [start(python, 2, str(-(-starts // jobs)), "race") for _ in range(jobs)]
        lines = [line.split() for job in running for line in job.communicate()[0].splitlines()]
        races = [line for line in lines if line[:1] == ["races"]]
        done, failed = sum(int(line[1]) for line in races), sum(int(line[2]) for line in races)
        print(f"{done} rendezvous of {len(races)} of {jobs} jobs side by side, {failed} failed")
        return
    ranks, rounds = int(words[0]) if words else 2, int(words[1]) if words[1:] else 20
    found, _ = start(python, ranks, str(rounds)).communicate()
    times = {line.split()[1]: line.split()[2:] for line in found.splitlines() if line.startswith("time ")}
    print(f"{'ranks ' + str(ranks):<20} {'median ms':>10} {'least ms':>10} {'to env://':>10}")
    for way, (median, least) in times.items():
        ratio = float(median) / float(times["env://"][0])
        print(f"{way:<20} {float(median) * 1e3:>10.1f} {float(least) * 1e3:>10.1f} {ratio:>10.2f}")


if __name__ == "__main__":
    main(sys.argv[1:])
