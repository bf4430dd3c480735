"""Finds out whether a process can be forked: whether its modules have begun something that a child does not have."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

REFUSED = {
    "mpi4py.MPI": "it initializes MPI in the process that imports it (mpi4py alone can be named)",
}
"""Modules that cannot be imported before a fork, and why."""

_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/full", "/dev/tty", "/dev/pts/", "/dev/shm/")


def open_files() -> dict[int, str]:
    """Return what each descriptor of this process is."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            # The one by which the folder is read.
            continue
    return found


def trouble(before: dict[int, str]) -> str:
    """Return why this process cannot be forked; empty if it can.

    Args:
        before: The descriptors that are fine.
    """
    files = [what for fd, what in open_files().items() if before.get(fd) != what]
    connections = [what for what in files if what.startswith("socket:")]
    if connections:
        return "it has opened a connection, which all ranks would share"
    devices = [what for what in files if what.startswith("/dev/") and not what.startswith(_DEVICES)]
    if devices:
        return f"it has opened {devices[0]}, and what a device does for a process is not done for its children"
    threads = _threads_at_fork()
    if threads > 1:
        return (
            f"it has started {threads - 1} thread{'s' if threads > 2 else ''}{_names()}, which a child does not have, "
            "while what they had locked stays locked there"
        )
    return ""


def _threads_at_fork() -> int:
    """Return how many threads there are at the moment of forking.

    Libraries such as OpenBLAS end theirs in a handler of `pthread_atfork` and start them again when they are needed:
    so this is found out by a fork.
    """
    if _threads() == 1:
        return 1
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return _threads()


def _names() -> str:
    """Return the names of the threads that Python knows of."""
    threading: Any = sys.modules.get("threading")
    names = [] if threading is None else [each.name for each in threading.enumerate()]
    return f" ({', '.join(names[1:])})" if names[1:] else ""


def _threads() -> int:
    return len(os.listdir("/proc/self/task"))
