"""The program of `pypmix stacks` on each node: writes the Python stacks of a job's ranks there, a line of JSON each."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

from pypmix.client import Client
from pypmix.engine.stacks import FILE, SIGNUM
from pypmix.host.launch import handles
from pypmix.standard import attrs

LIMIT = 3.0
"""Seconds to wait for stacks."""

QUIET = 0.05
"""Seconds without further data after which stacks are complete."""

POLL = 0.005

SPY_SECONDS = 10
"""Seconds that py-spy may take for a process."""

THREAD = re.compile(r"(?:Current t|T)hread 0x[0-9a-f]+.*")
SPY_THREAD = re.compile(r"Thread (?:0x)?[0-9a-fA-F]+ ?(\(.*)")


def main() -> None:
    """Write the stacks of the ranks on this node of the job that this process was started for."""
    with Client() as me:
        target = me.get(attrs.DEBUG_TARGET)
        for row in me.query(attrs.QUERY_LOCAL_PROC_TABLE, nspace=target.nspace):
            if not row.exit_code and row.pid and os.path.exists(f"/proc/{row.pid}"):
                stacks, why = find_stacks(row.pid)
                found = {"rank": row.proc.rank, "pid": row.pid, "node": row.hostname, "stacks": stacks, "why": why}
                print(json.dumps(found), flush=True)


def find_stacks(pid: int) -> tuple[list[list[str]], str]:
    """Return the stacks of a rank, a list of lines for each thread, or none and the reason."""
    why = ""
    family = [pid, *descendants(pid)]
    for each in family:
        try:
            text = read_stacks(each)
        except OSError as error:
            why = why or f"{error.strerror or error}"
        else:
            if text is not None:
                return threads(text.replace(f'"{_folder_of(each)}/', '"')), ""
    spy = shutil.which("py-spy") or shutil.which("py-spy", path=os.path.dirname(sys.executable))
    for each in family if spy is not None else ():
        command = [str(spy), "dump", "--pid", str(each)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=SPY_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            why = why or "py-spy does not answer"
            continue
        if not done.returncode:
            return spy_threads(done.stdout), ""
        why = why or (done.stderr.strip().splitlines() or ["py-spy fails"])[-1]
    if not why:
        name = program(pid)
        why = f"{name} is not a Python program with a pypmix client, and py-spy is not installed"
    return [], why


def read_stacks(pid: int) -> str | None:
    """Return the Python stacks of a process, in faulthandler's form; None if it does not offer them.

    Raises:
        TimeoutError: It is stopped, or has not written them in time.
        OSError: It has ended, or belongs to another user.
    """
    path = _find_file(pid)
    if path is None or not handles(pid, SIGNUM):
        return None
    with open(f"/proc/{pid}/stat", "rb") as stat:
        if stat.read().rpartition(b") ")[2][:1] in (b"T", b"t"):
            raise TimeoutError("it is stopped, by a signal or by a debugger")
    with open(path, "rb") as file:
        before = os.fstat(file.fileno()).st_size
        file.seek(before)
        os.kill(pid, SIGNUM)
        found = b""
        end = time.monotonic() + LIMIT
        quiet = 0.0
        while quiet < QUIET or not found.endswith(b"\n"):
            if time.monotonic() > end:
                raise TimeoutError(f"it has not written it within {LIMIT:g} s")
            time.sleep(POLL)
            data = file.read()
            found += data
            quiet = 0.0 if data else quiet + POLL
    return found.decode(errors="replace")


def _folder_of(pid: int) -> str:
    """Return the working directory of a process: the names of files below it are shown without it."""
    try:
        return os.readlink(f"/proc/{pid}/cwd").rstrip("/")
    except OSError:
        return os.devnull


def _find_file(pid: int) -> str | None:
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}")
        except OSError:
            continue
        if target.startswith(f"/memfd:{FILE}"):
            return f"{folder}/{name}"
    return None


def threads(text: str) -> list[list[str]]:
    """Return the lines of each thread of faulthandler's text, the main thread first; threads of pypmix are left out."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if THREAD.match(line):
            found.append([])
        elif line.startswith("  ") and found:
            found[-1].append(line.strip())
    # It lists the newest thread first, and the main thread last.
    others = reversed(found[:-1])
    return found[-1:] + [lines for lines in others if not all(map(_is_library_frame, lines))]


def _is_library_frame(line: str) -> bool:
    """Return True if a frame is of pypmix, or of the standard library's threading."""
    return f"{os.path.dirname(os.path.dirname(__file__))}{os.sep}" in line or "/threading.py" in line


def spy_threads(text: str) -> list[list[str]]:
    """Return the lines of each thread of py-spy's text."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if SPY_THREAD.match(line):
            found.append([])
        elif line.startswith("  ") and found:
            found[-1].append(line.strip())
    return found


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and theirs, nearest first."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                children.setdefault(int(file.read().rpartition(b")")[2].split()[1]), []).append(int(name))
    found: list[int] = []
    waiting = [pid]
    for each in waiting:
        found += children.get(each, [])
        waiting += children.get(each, [])
    return found


def program(pid: int) -> str:
    """Return the name of a process's program."""
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return "it"


if __name__ == "__main__":
    main()
