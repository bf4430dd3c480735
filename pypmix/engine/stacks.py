"""Python stacks of a running client: offered by the client, read by others of its user.

A client registers faulthandler on a signal, which writes the stacks of all threads to a file in memory, without the
interpreter's help: also while the program waits in C code. Another process sends the signal and reads the file by the
client's entry in `/proc` (`pypmix.cli.nodestacks`). It sends the signal only to processes that handle it.
"""

from __future__ import annotations

import os
from _signal import SIG_DFL, getsignal  # type: ignore[import-not-found]

SIGNUM = 46
"""A real-time signal, which programs hardly use; its default action ends a process."""

FILE = "pypmix-stacks"

_offered = [0]
"""The process that offers its stacks: a forked child does not."""

_file: list[int] = []
"""Its file, which stays open until it ends."""


def has_offered_stacks() -> bool:
    """Return True if this process offers its stacks."""
    return bool(_file) and _offered[0] == os.getpid()


def offer_stacks() -> None:
    """Let other processes of this user read the Python stacks of this process."""
    pid = os.getpid()
    if _offered[0] == pid:
        return
    _offered[0] = pid
    # A forked child shares the handler and the file of its parent.
    if getsignal(SIGNUM) != SIG_DFL and not _file:
        return
    try:
        import faulthandler

        file = os.memfd_create(FILE, os.MFD_CLOEXEC)
        faulthandler.register(SIGNUM, file, all_threads=True)
    except (AttributeError, ImportError, OSError, RuntimeError, ValueError):
        # A system, or a sandbox, without such files.
        return
    _file[:] = [file]


def withdraw_stacks() -> None:
    """Undo `offer_stacks` in the process that offered: children that it forks then inherit nothing of it."""
    if has_offered_stacks():
        import faulthandler

        faulthandler.unregister(SIGNUM)
        os.close(_file.pop())
        _offered[0] = 0
