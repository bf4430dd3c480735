"""Whether code leaves threads, descriptors or files behind, where those of others may go meanwhile."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

SETTLE = 20.0
"""Seconds that what was told to end has for it."""


def descriptors() -> Counter[str]:
    """Return what the descriptors of this process are open on; sockets and pipes have names of their own."""
    found: Counter[str] = Counter()
    for name in os.listdir("/proc/self/fd"):
        # One of them is that of the listing itself.
        with contextlib.suppress(OSError):
            found[os.readlink(f"/proc/self/fd/{name}")] += 1
    return found


def paths_in(folder: Path) -> list[Path]:
    """Return all that is in a folder, at any depth, while others may delete it: `Path.rglob` fails then."""
    return sorted(Path(parent, name) for parent, folders, files in os.walk(folder) for name in (*folders, *files))


def tasks() -> set[str]:
    """Return the threads of this process that the kernel knows, also those that Python does not."""
    return set(os.listdir("/proc/self/task"))


@contextlib.contextmanager
def nothing_left(seconds: float = SETTLE) -> Iterator[None]:
    """Fail where a block leaves a thread or a descriptor that was not there before it.

    What was there before and ends meanwhile is not looked at: it is of somebody else.

    Args:
        seconds: How long what was told to end may take; 0 where it must be gone, but for a thread's last breath.
    """
    known, threads, files = tasks(), set(threading.enumerate()), descriptors()
    yield
    _gone(seconds, lambda: [*(set(threading.enumerate()) - threads), *(descriptors() - files).elements()])
    _gone(SETTLE, lambda: sorted(tasks() - known))


def _gone(seconds: float, left: Callable[[], Sequence[object]]) -> None:
    deadline = time.monotonic() + seconds
    while found := left():
        assert time.monotonic() <= deadline, f"left behind: {found}"
        time.sleep(0.01)
