"""Processes of a test, found by a mark in their environment: their tree, their stacks, and their end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

MARK = "PYPMIX_TEST_MARK"
STACKS = "PYPMIX_TEST_STACKS"

STACK_SIGNAL = signal.SIGURG
"""As `sitecustomize` has it: a signal that launchers and daemons neither take nor pass on to their ranks."""

STACK_SECONDS = 5.0
"""The most seconds to wait for the first line of each process."""

STOP_SECONDS = 5.0
"""The most seconds to wait until processes that are to be killed have stopped."""


class Process(NamedTuple):
    pid: int
    parent: int
    state: str
    command: str


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def read(pid: int) -> Process | None:
    """Return a process, None if there is none."""
    after_name = _read(pid, "stat").rpartition(b") ")[2].split()
    if not after_name:
        return None
    command = _read(pid, "cmdline").replace(b"\0", b" ").decode(errors="replace").strip()
    return Process(pid, int(after_name[1]), after_name[0].decode(), command)


def stop(pid: int, seconds: float = 10) -> None:
    """Let a process stand still, and return when it does: the signal comes to one thread, and the others go on a while.

    Raises:
        AssertionError: It does not stand still in time.
    """
    os.kill(pid, signal.SIGSTOP)
    deadline = time.monotonic() + seconds
    while not _is_stopped(pid):
        assert time.monotonic() < deadline, f"process {pid} goes on after SIGSTOP"
        time.sleep(0.001)


def _is_stopped(pid: int) -> bool:
    """Return True if no thread of a process runs."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except FileNotFoundError:
        return True
    return not any(task.state not in "TtZX" for name in threads if (task := read(int(name))))


def children(pid: int) -> list[Process]:
    """Return the children of a process, with those that have ended and that it has not waited for."""
    found = [read(int(name)) for name in os.listdir("/proc") if name.isdigit()]
    return [each for each in found if each is not None and each.parent == pid]


def marked(mark: str, variable: str = MARK) -> list[Process]:
    """Return the living processes, but for this one, whose environment holds the mark."""
    needle = f"{variable}={mark}\0".encode()
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid() and needle in _read(int(name), "environ") + b"\0":
            process = read(int(name))
            if process and process.state not in "ZX":
                found.append(process)
    return found


def guards(folder: Path) -> list[Process]:
    """Return the guards of launchers, daemons and hosts whose folders are in a folder."""
    needle = b"FOLDER=" + os.fsencode(folder)
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit() and needle in _read(int(name), "environ")]
    return [each for pid in pids if (each := read(pid)) is not None and "pypmix-guard" in each.command]


def wait_gone(mark: str, seconds: float, variable: str = MARK) -> list[Process]:
    """Wait until no marked process is left, and return those that still are."""
    deadline = time.monotonic() + seconds
    while (left := marked(mark, variable)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def send_signal(pids: Iterable[int], signum: int) -> None:
    """Send a signal to processes, of which the first to get it may have ended others."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)


def kill(mark: str, variable: str = MARK) -> None:
    """Kill every marked process.

    All are stopped first: a rank that still runs would see the end of its launcher, and record the lost connection as
    the result of what it waits for.
    """
    for _ in range(20):
        pids = [process.pid for process in marked(mark, variable)]
        if not pids:
            return
        send_signal(pids, signal.SIGSTOP)
        # The caller of `vfork` does not stop while its child is stopped: such a process is killed as it is.
        deadline = time.monotonic() + STOP_SECONDS
        while not all(map(_is_stopped, pids)) and time.monotonic() < deadline:
            time.sleep(0.001)
        send_signal(pids, signal.SIGKILL)
        time.sleep(0.02)


def tree(processes: list[Process]) -> str:
    """Return the processes as an indented tree."""
    known = {process.pid: process for process in processes}
    lines = []

    def show(process: Process, depth: int) -> None:
        waits = _read(process.pid, "wchan").decode(errors="replace")
        lines.append(f"{'  ' * depth}{process.pid} {process.state} {waits} {process.command}")
        for child in processes:
            if child.parent == process.pid:
                show(child, depth + 1)

    for process in processes:
        if process.parent not in known:
            show(process, 0)
    return "\n".join(lines)


def _catches_stack_signal(pid: int) -> bool:
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"SigCgt:"):
            return bool(int(line.split()[1], 16) & 1 << (STACK_SIGNAL - 1))
    return False


def _own_pid(pid: int) -> str:
    """Return the number that a process has in its own namespace."""
    for line in _read(pid, "status").splitlines():
        if line.startswith(b"NSpid:"):
            return line.split()[-1].decode()
    return str(pid)


def stacks(processes: list[Process], folder: Path) -> str:
    """Return the Python stacks of the processes that `sitecustomize` prepared for it."""
    # Processes of several namespaces may have the same number, and share a file.
    asked: dict[Path, list[str]] = {}
    sizes: dict[Path, int] = {}
    for process in processes:
        path = folder / _own_pid(process.pid)
        if path.exists() and _catches_stack_signal(process.pid):
            sizes.setdefault(path, path.stat().st_size)
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, STACK_SIGNAL)
                asked.setdefault(path, []).append(f"--- stacks of {process.pid} {process.command}\n")
    # A stopped process writes nothing.
    deadline = time.monotonic() + STACK_SECONDS
    while any(path.stat().st_size == sizes[path] for path in asked) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(0.3)
    return "\n".join("".join(names) + path.read_text(errors="replace") for path, names in asked.items())


def report(mark: str, folder: Path) -> str:
    """Return what the marked processes are doing now."""
    living = marked(mark)
    if not living:
        return "no process of the test is left"
    return f"processes:\n{tree(living)}\n{stacks(living, folder)}"


def asked_until(wanted: str, head: str, told: Callable[[], str], ask: Callable[[], object]) -> Callable[[], bool]:
    """Return a function that tells whether a report says what is wanted, and asks for another one where it does not.

    Ranks may not have come to what is to be reported when it is asked for.

    Args:
        wanted: A pattern of what a report is to say.
        head: The words of each report.
        told: Returns all that was reported.
        ask: Asks for a report.
    """
    asked = 0

    def shown() -> bool:
        nonlocal asked
        text = told()
        if re.search(wanted, text):
            return True
        if text.count(head) == asked:
            asked += 1
            ask()
        return False

    return shown
