"""`pypmix stacks` and `pypmix attach`: the stacks of all ranks, why there are none, and a debugger on a rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lib.command import Command

RANK = """
import os, signal, sys, time
import pypmix
from pathlib import Path

def wait_here():
    (folder / f"up.{me.rank}").write_text(f"{os.getpid()}\\n")
    while not (folder / "stop").exists():
        # Longer than it looks, so that its stack is that of the others.
        time.sleep(0.5)

def call_here():
    (folder / f"up.{me.rank}").write_text(f"{os.getpid()}\\n")
    me.get("never", proc=1, timeout=30, default=None)

folder = Path(sys.argv[1])
with pypmix.Client() as me:
    call_here() if me.rank == 2 else wait_here()
"""

SLEEPER = "import pathlib, sys, time\nwhile not (pathlib.Path(sys.argv[1]) / 'stop').exists(): time.sleep(0.05)\n"


@pytest.fixture(params=[(), ("--nodes", "2"), ("--server-engine", "native")], ids=["one", "nodes", "native"])
def job(request: pytest.FixtureRequest, command: Command) -> Iterator[subprocess.Popen[bytes]]:
    """A job of three ranks with clients and one without, of which rank 2 waits in a call."""
    (command.folder / "rank.py").write_text(RANK)
    (command.folder / "sleeper.py").write_text(SLEEPER)
    words = ("-n", "3", sys.executable, command.folder / "rank.py", command.folder)
    other = (":", "-n", "1", sys.executable, command.folder / "sleeper.py", command.folder)
    process = command.start("run", "--keep-going", *request.param, *words, *other)
    yield process
    (command.folder / "stop").touch()
    process.send_signal(signal.SIGTERM)
    command.end(process)


def test_equal_stacks_are_printed_once(command: Command, job: subprocess.Popen[bytes]) -> None:
    pids = command.wait_for("up", 3)
    os.kill(int(pids[1]), signal.SIGSTOP)
    try:
        ended = command("stacks", "--pid", job.pid)
    finally:
        os.kill(int(pids[1]), signal.SIGCONT)
    assert ended.code == 0, ended.err
    first, second, third = ended.out.decode().split("\n\n")
    assert first.startswith("rank 0\n  File ")
    assert " in wait_here\n" in first
    assert second.startswith("rank 2\n  File ")
    assert " in call_here\n" in second
    assert second.endswith(" in <module>")
    stopped, sleeper = third.splitlines()
    assert stopped.startswith("rank 1 (pid ")
    assert stopped.endswith("no stack: it is stopped, by a signal or by a debugger")
    assert sleeper.startswith("rank 3 (pid ")
    assert "is not a Python program with a pypmix client, and py-spy is not installed" in sleeper


def test_a_job_is_named_by_its_number(command: Command) -> None:
    (command.folder / "rank.py").write_text(RANK)
    job = command.start("run", "-n", "2", sys.executable, command.folder / "rank.py", command.folder)
    command.wait_for("up", 2)
    ended = command("stacks", "--pid", job.pid, "1")
    assert ended.out.startswith(b"ranks 0-1\n  File ")
    absent = command("stacks", "--pid", job.pid, "7")
    assert absent.code == 2
    assert b"there is no job 7: the jobs are " in absent.err
    (command.folder / "stop").touch()
    assert command.end(job).code == 0


def test_a_debugger_is_attached_to_a_rank(command: Command) -> None:
    (command.folder / "rank.py").write_text(RANK)
    job = command.start("run", "-n", "2", sys.executable, command.folder / "rank.py", command.folder)
    pids = command.wait_for("up", 2)
    ended = command("attach", "--pid", job.pid, "1", "--debugger", "echo attaches to")
    assert (ended.code, ended.lines) == (0, [f"attaches to {pids[1]}"])
    absent = command("attach", "--pid", job.pid, "5")
    assert absent.code == 2
    assert b"rank 5 of " in absent.err and b" does not run" in absent.err
    missing = command("attach", "--pid", job.pid, "0", "--debugger", "no-such-debugger")
    assert missing.code == 127
    assert b"no-such-debugger cannot be run: No such file or directory" in missing.err
    (command.folder / "stop").touch()
    assert command.end(job).code == 0
