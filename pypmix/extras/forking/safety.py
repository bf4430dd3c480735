"""Finds out whether a process can be forked: its modules may hold connections, devices or threads."""

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
    """Return the target of each descriptor of this process."""
    found: dict[int, str] = {}
    for name in os.listdir("/proc/self/fd"):
        try:
            found[int(name)] = os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:
            # The descriptor that read the folder is closed by now.
            continue
    return found


def explain_unsafe(before: dict[int, str]) -> str:
    """Return why this process cannot be forked; empty if it can.

    Args:
        before: The descriptors that were open before the modules were imported.
    """
    files = [target for fd, target in open_files().items() if before.get(fd) != target]
    connections = [target for target in files if target.startswith("socket:")]
    if connections:
        return "it has opened a connection, which all ranks would share"
    devices = [target for target in files if target.startswith("/dev/") and not target.startswith(_DEVICES)]
    if devices:
        return f"it has opened {devices[0]}, which works only in the process that opened it"
    threads = _count_threads_at_fork()
    if threads > 1:
        return (
            f"it has started {threads - 1} thread{'s' if threads > 2 else ''}{_thread_names()}, which a child does "
            "not have, while their locks stay locked there"
        )
    return ""


def _count_threads_at_fork() -> int:
    """Return the number of threads at the moment of a fork."""
    if _count_threads() == 1:
        return 1
    # Libraries such as OpenBLAS stop their threads in a handler of `pthread_atfork` and start them again later: only a
    # fork shows the number.
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)
    return _count_threads()


def _thread_names() -> str:
    """Return the names of the threads that Python started."""
    threading: Any = sys.modules.get("threading")
    names = [] if threading is None else [each.name for each in threading.enumerate()]
    return f" ({', '.join(names[1:])})" if names[1:] else ""


def _count_threads() -> int:
    return len(os.listdir("/proc/self/task"))
