"""Proves with real processes that nothing hangs and nothing is left, whatever signal hits whom at whatever moment.

`PYPMIX_FAULT_ROUNDS` is how many jobs are hit, and `PYPMIX_FAULT_SEED` what chooses the moments.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import machine
from lib.job import Job
from lib.leftovers import paths_in

PROGRAM = str(Path(__file__).parent / "ranks.py")
ROUNDS = min(500, max(18, int(os.environ.get("PYPMIX_FAULT_ROUNDS", "0"))))
SEED = int(os.environ.get("PYPMIX_FAULT_SEED", "1"))

LONGEST = 20.0
"""Seconds within which each operation must end: its limit, a pause, and a busy machine's share."""

GONE = 15.0
"""Seconds within which all processes and files of a job are gone after its launcher."""

KILLED = ("a rank", "two ranks", "most ranks")
HITS = (*KILLED, "the launcher", "a stopped rank", "a paused rank", "TERM", "INT", "the guard")


@contextlib.contextmanager
def at_once(*pids: int) -> Iterator[None]:
    """A rank that has ended meanwhile needs no signal."""
    with contextlib.suppress(ProcessLookupError):
        yield


def hit(job: Job, what: str, pids: list[int], chance: random.Random) -> None:
    """Send the signals of a round."""
    chance.shuffle(pids)
    many = dict(zip(KILLED, (1, 2, len(pids) - 1), strict=True)).get(what, 0)
    for pid in pids[:many]:
        with at_once(pid):
            os.kill(pid, signal.SIGKILL)
        time.sleep(chance.uniform(0, 0.1))
    if what == "the launcher":
        job.send_signal(signal.SIGKILL)
    elif what == "the guard":
        # It has an environment of its own, without the mark.
        for pid in children(job.pid):
            if "pypmix-guard" in command_of(pid):
                os.kill(pid, signal.SIGKILL)
    elif what in ("TERM", "INT"):
        job.send_signal(signal.Signals[f"SIG{what}"])
    elif what in ("a stopped rank", "a paused rank"):
        with at_once(pids[0]):
            os.kill(pids[0], signal.SIGSTOP)
        time.sleep(chance.uniform(0.2, 2))
        if what == "a stopped rank":
            job.send_signal(signal.SIGKILL)
        else:
            with at_once(pids[0]):
                os.kill(pids[0], signal.SIGCONT)


def children(pid: int) -> list[int]:
    return [
        int(each) for task in Path(f"/proc/{pid}/task").iterdir() for each in (task / "children").read_text().split()
    ]


def command_of(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()


def left_files(folder: Path, seconds: float) -> list[Path]:
    deadline = time.monotonic() + seconds
    while (found := paths_in(folder)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


@pytest.mark.timeout(180)
@pytest.mark.parametrize("number", range(ROUNDS))
def test_whoever_is_hit(job_folder, tmp_path, number):
    chance = random.Random(SEED * 100_003 + number)
    what = HITS[number % len(HITS)]
    ranks, nodes = chance.randint(4, 6), chance.choice((1, 2))
    keep = chance.random() < 0.4
    options = ["--nodes", str(nodes), *(["--keep-going"] if keep else [])]
    options += ["--nspace", f"named{number}"] if number // len(HITS) % 2 else []
    command = [sys.executable, "-m", "pypmix", "run", "-n", str(ranks), *options]
    environment = {"FAULTS_FOLDER": str(tmp_path)}
    if machine.extension() and chance.random() < 0.5:
        environment["FAULTS_MIXED"] = "1"
    job = Job(
        [*command, sys.executable, PROGRAM, "any", str(chance.randrange(10**6))], job_folder, environment, limit=90
    ).start()
    try:
        deadline = time.monotonic() + 30
        while len(pids := [int(path.read_text()) for path in tmp_path.glob("pid.*")]) < ranks:
            assert time.monotonic() < deadline, job.wait().report()
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 1.5))
        hit(job, what, pids, chance)
        job.wait()
        story = f"{what} of {ranks} on {nodes} nodes, {options}\n{job.report()}"
        assert not job.hung, story
        assert not job.wait_gone(GONE), f"{[(each.pid, each.command) for each in job.wait_gone(0)]} still run: {story}"
        assert not (files := left_files(job.temporary, GONE)), f"left {files}: {story}"
        broken = {path.name: path.read_text() for path in tmp_path.glob("broken.*")}
        assert not broken, f"{broken}: {story}"
        for path in tmp_path.glob("left.*"):
            for name, end, seconds in json.loads(path.read_text()):
                assert end != "an error without a status", f"{path.name}: {name}: {story}"
                assert seconds < LONGEST, f"{path.name}: {name} took {seconds} s: {story}"
        if what in ("a paused rank", "the guard"):
            assert job.exit_code == 0, story
            assert len(list(tmp_path.glob("left.*"))) == ranks, story
        for text in ("Traceback", "failed in the upcall"):
            assert text not in job.stderr.replace("BrokenPipeError", "") or what in ("INT", "the launcher"), story
    finally:
        job.kill()
