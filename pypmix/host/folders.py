"""The folders of a job: where it is started, and where its files are until it ends."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def temporary_folder(env: Mapping[str, str]) -> str:
    """Return where temporary files go: TMPDIR if it can be used, the system's folders otherwise."""
    for folder in (env.get("TMPDIR"), "/tmp", "/var/tmp"):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return os.path.abspath(folder)
    return os.getcwd()


def working_directory() -> str:
    """Return this process's working directory, empty if it has none any more."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        # It has been removed; programs can run in it all the same.
        return ""


def remove(folder: str) -> None:
    """Remove a directory with all that is in it."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            remove(entry.path)
            continue
        try:
            os.unlink(entry.path)
        except OSError:
            # What cannot be removed keeps its folders; there is nobody left to tell.
            continue
    try:
        os.rmdir(folder)
    except OSError:
        return
