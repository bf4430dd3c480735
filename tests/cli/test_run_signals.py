"""Signals to `pypmix run`: what a site sends reaches the ranks once, and ends neither the launcher nor its guard."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from lib import processes
from lib.command import LIMIT, Command
from pypmix.host import launch
from pypmix.host.signals import PASSED_ON

PASSED = tuple(int(number) for number in PASSED_ON)

RANK = """
import os, signal, sys, time
rank = os.environ["PMIX_RANK"]
def take(number, _):
    with open(f"got.{rank}", "a") as file:
        file.write(f"{number}\\n")
    if number == signal.SIGTERM:
        time.sleep(float(sys.argv[2]))
        open(f"saved.{rank}", "w").write("saved\\n")
        os._exit(0)
for number in map(int, sys.argv[1].split(",")):
    signal.signal(number, take)
open(f"up.{rank}", "w").write("up\\n")
while not os.path.exists("end"):
    time.sleep(0.02)
"""


def rank(*signals: int, saving: float = 0.0) -> tuple[object, ...]:
    """Return a program that notes the signals it gets, and needs so many seconds to save on SIGTERM."""
    return sys.executable, "-c", RANK, ",".join([str(int(number)) for number in signals]), saving


def started(command: Command, *words: object) -> subprocess.Popen[bytes]:
    launcher = command.start("run", "-n", 2, *words)
    command.wait_for("up", 2)
    return launcher


def got(command: Command, number: int) -> Counter[int]:
    path = command.folder / f"got.{number}"
    return Counter(map(int, path.read_text().split())) if path.exists() else Counter()


def pending(pid: int) -> bool:
    """Return True if a process was sent signals that it has not been handed."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return any(int(line.split()[1], 16) for line in lines if line.startswith(("ShdPnd:", "SigPnd:")))


def until(happened: object, what: str) -> None:
    deadline = time.monotonic() + LIMIT
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def to_all(command: Command, signum: int) -> None:
    """Send a signal to each process of the job, its launcher and its guard, as a resource manager does."""
    found = (*processes.guards(command.temporary), *processes.marked(command.mark))
    processes.send_signal([process.pid for process in found], signum)


@pytest.mark.parametrize("warm", [(), ("--warm",)])
def test_a_signal_to_the_launcher_reaches_each_rank_once(command: Command, warm: tuple[str, ...]) -> None:
    launcher = started(command, *warm, *rank(*PASSED))
    for signum in PASSED:
        launcher.send_signal(signum)
        until(lambda signum=signum: all(got(command, number)[signum] for number in (0, 1)), f"signal {signum}")
    (command.folder / "end").touch()
    assert command.end(launcher).code == 0
    assert [got(command, number) for number in (0, 1)] == [Counter(PASSED)] * 2


@pytest.mark.parametrize("warm", [(), ("--warm",)])
def test_a_signal_to_all_processes_reaches_each_rank_once_and_ends_nothing(
    command: Command, warm: tuple[str, ...]
) -> None:
    launcher = started(command, *warm, *rank(*PASSED))
    for signum in PASSED:
        to_all(command, signum)
        until(lambda signum=signum: all(got(command, number)[signum] for number in (0, 1)), f"signal {signum}")
    # What the launcher were to pass on would come before this, which it does not look at.
    launcher.send_signal(signal.SIGCONT)
    assert len(processes.guards(command.temporary)) == 1
    (command.folder / "end").touch()
    ended = command.end(launcher)
    assert ended.code == 0, ended.err
    assert [got(command, number) for number in (0, 1)] == [Counter(PASSED)] * 2
    # The report of SIGUSR1 is for somebody who asks the launcher for it.
    assert b"ranks run" not in ended.err


def test_the_guard_works_after_any_signal(command: Command) -> None:
    launcher = started(command, *rank(*PASSED))
    for signum in (*PASSED, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        (guard,) = processes.guards(command.temporary)
        os.kill(guard.pid, signum)
    launcher.kill()
    assert command.end(launcher).code == -signal.SIGKILL
    # The fixture finds no process and no folder.


def test_sigusr1_reports_and_ends_no_rank_that_has_no_handler(command: Command) -> None:
    launcher = started(command, *rank(signal.SIGUSR2))
    launcher.send_signal(signal.SIGUSR1)
    launcher.send_signal(signal.SIGUSR2)
    until(lambda: all(got(command, number)[signal.SIGUSR2] for number in (0, 1)), "the other signal")
    (command.folder / "end").touch()
    ended = command.end(launcher)
    assert ended.code == 0, ended.err
    assert b"2 of 2 ranks run" in ended.err


def test_the_grace_is_what_was_asked_for(command: Command) -> None:
    launcher = started(command, "--grace", 20, *rank(signal.SIGTERM, saving=6.0))
    launcher.send_signal(signal.SIGTERM)
    assert command.end(launcher).code == 143
    assert sorted(path.name for path in command.folder.glob("saved.*")) == ["saved.0", "saved.1"]


def test_ranks_that_take_longer_than_the_grace_are_killed(command: Command) -> None:
    launcher = started(command, "--grace", 0.2, *rank(signal.SIGTERM, saving=LIMIT))
    launcher.send_signal(signal.SIGTERM)
    assert command.end(launcher).code == 143
    assert not list(command.folder.glob("saved.*"))


@pytest.mark.parametrize("nodes", [1, 2])
def test_who_sends_sigterm_to_all_processes_kills_them_himself(command: Command, nodes: int) -> None:
    """Ranks have more time than the grace, and are sent SIGTERM once."""
    launcher = started(command, "--nodes", nodes, "--grace", 0.2, *rank(signal.SIGTERM, saving=2.0))
    to_all(command, signal.SIGTERM)
    ended = command.end(launcher)
    assert ended.code == 143, ended.err
    assert sorted(path.name for path in command.folder.glob("saved.*")) == ["saved.0", "saved.1"]
    assert [got(command, number) for number in (0, 1)] == [Counter([signal.SIGTERM])] * 2


def test_a_rank_that_such_a_sigterm_ends_does_not_end_the_others(command: Command) -> None:
    words = (sys.executable, "-c", RANK, int(signal.SIGTERM), 2.0)
    other = ("sh", "-c", "echo up >up.1; sleep 60")
    launcher = command.start("run", "--grace", 0.2, "-n", 1, *words, ":", "-n", 1, *other)
    command.wait_for("up", 2)
    to_all(command, signal.SIGTERM)
    ended = command.end(launcher)
    assert ended.code == 143, ended.err
    assert (command.folder / "saved.0").exists()
    assert got(command, 0) == Counter([signal.SIGTERM])


def test_ctrl_c_ends_what_a_manager_has_not_killed(command: Command) -> None:
    launcher = started(command, "--grace", 0.2, *rank(signal.SIGTERM, signal.SIGINT, saving=LIMIT))
    to_all(command, signal.SIGTERM)
    until(lambda: all(got(command, number)[signal.SIGTERM] for number in (0, 1)), "SIGTERM")
    launcher.send_signal(signal.SIGINT)
    assert command.end(launcher).code in (130, 143)
    assert not list(command.folder.glob("saved.*"))


MEETING = '{"meet": [["127.0.0.1", 9]], "secret": "00112233445566778899aabbccddeeff", "size": 2, "patience": 60}'


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("-m", "pypmix", "node"), ""),
        (("-m", "pypmix", "relay"), ""),
        (("-m", "pypmix.host.rosters.follow", "NUMBER"), MEETING),
        (
            ("-m", "pypmix", "run", "--symmetric", "0/2", "--meet", "127.0.0.1:{port}", "--secret-file", "key", "true"),
            "",
        ),
    ],
)
def test_processes_that_wait_for_others_outlive_signals_for_ranks(
    command: Command, words: tuple[str, ...], line: str
) -> None:
    key = command.folder / "key"
    key.write_text("0" * 64)
    key.chmod(0o600)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, *(word.format(port=port) for word in words)],
        stdin=subprocess.PIPE,
        env={**command.environment, "NUMBER": "0"},
        cwd=command.folder,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(line.encode() + b"\n" if line else b"")
        process.stdin.flush()
        until(lambda: launch.handles(process.pid, signal.SIGUSR2) or process.poll() is not None, "its handlers")
        for signum in PASSED:
            process.send_signal(signum)
            # One that it has not been handed yet is pending.
            until(lambda: process.poll() is not None or not pending(process.pid), f"signal {signum}")
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()
