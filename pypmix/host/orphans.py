"""Processes that a job's ranks left behind: found, ended, collected."""

from __future__ import annotations

import os

_PR_SET_CHILD_SUBREAPER = 36


def adopt() -> bool:
    """Make this process the parent of its descendants that lose theirs; return True if that is possible here."""
    # Not `ctypes`, which makes a class of each type of C, for this one call.
    import _ctypes

    try:
        prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
        return bool(_ctypes.call_function(prctl, (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0)
    except (AttributeError, OSError):
        return False


def children() -> set[int]:
    """Return the pids of this process's children, including dead ones that were not collected."""
    found: set[int] = set()
    try:
        threads = os.listdir("/proc/self/task")
    except FileNotFoundError:
        # There may be no /proc, as in a chroot.
        return found
    for thread in threads:
        try:
            with open(f"/proc/self/task/{thread}/children", encoding="utf-8") as file:
                found.update([int(pid) for pid in file.read().split()])
        except FileNotFoundError:
            # A kernel without CONFIG_PROC_CHILDREN, or a thread that has just ended.
            continue
    return found


def of_job(nspace: str, keep: set[int]) -> set[int]:
    """Return the living children that have left the process groups of a finished job, and collect dead ones.

    Args:
        nspace: The job.
        keep: Children that are not looked at.
    """
    found: set[int] = set()
    mark = b"\0PMIX_NAMESPACE=%s\0" % os.fsencode(nspace)
    for pid in children() - keep:
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                # A child that has just ended has none.
                if mark in b"\0" + file.read() + b"\0":
                    found.add(pid)
        except OSError:
            continue
    return found


def reap(group: int) -> None:
    """Collect this process's dead children in a process group, which would keep the group alive."""
    try:
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


def collect(keep: set[int]) -> set[int]:
    """Collect the dead children that are not in `keep`, and return the pids of the living ones."""
    while True:
        living: set[int] = set()
        ended = False
        for pid in children() - keep:
            try:
                if os.waitpid(pid, os.WNOHANG)[0] == 0:
                    living.add(pid)
                else:
                    ended = True
            except ChildProcessError:
                pass
        if not ended:
            return living
        # A child that ended after it was listed has left its children to this process: only another look shows them.
