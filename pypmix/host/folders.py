"""The folders of a job: its working directory, and the folder of its files until it ends."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


RENDEZVOUS_VARIABLES = ("PMIX_LAUNCHER_RNDZ_FILE", "PMIX_LAUNCHER_RENDEZVOUS_FILE")
"""Variables with the path of the file that a launcher writes for the tool that has started it."""


def temporary_folder(env: Mapping[str, str]) -> str:
    """Return the folder for temporary files: TMPDIR if it can be used, the system's folders otherwise."""
    for folder in (env.get("TMPDIR"), "/tmp", "/var/tmp"):
        if folder and os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK):
            return os.path.abspath(folder)
    return os.getcwd()


def open_private(path: str) -> int:
    """Return a descriptor to write to a file, emptied, that only its owner can read from then on.

    Raises:
        OSError: It cannot be opened, or belongs to another user.
    """
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        found = os.fstat(fd)
        if stat.S_ISREG(found.st_mode):
            if found.st_mode & 0o077:
                # An existing file keeps its mode.
                os.fchmod(fd, 0o600)
            os.ftruncate(fd, 0)
    except BaseException:
        os.close(fd)
        raise
    return fd


def rendezvous_file(env: Mapping[str, str]) -> str | None:
    """Return the rendezvous file that the environment names; None if it exists: then it is not to be written."""
    return next((env[name] for name in RENDEZVOUS_VARIABLES if env.get(name) and not os.path.lexists(env[name])), None)


def working_directory() -> str:
    """Return this process's working directory, empty if it was removed."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        # Programs can run in a removed folder all the same.
        return ""


def remove_job(folder: str) -> None:
    """Remove a job's directory, except files that later jobs of the session need.

    libpmix 7 keeps data that all jobs of a session share in files in the folder of the first job, and in further files
    in the folders of later jobs: clients of all jobs open them. They are removed with the host's own folder.
    """
    remove(folder, lambda name: name.startswith("pmix-gds-") and ".session." in name)


def remove(folder: str, kept: Callable[[str], bool] | None = None) -> None:
    """Remove a directory with its contents, except files directly in it whose name is to be kept."""
    try:
        entries = list(os.scandir(folder))
    except OSError:
        # An empty folder can be removed even if no descriptor is left to list it.
        entries = []
    for entry in entries:
        if kept is not None and kept(entry.name):
            continue
        if entry.is_dir(follow_symlinks=False):
            remove(entry.path)
            continue
        try:
            os.unlink(entry.path)
        except OSError:
            # Files that cannot be removed keep their folders; the host is about to end.
            continue
    try:
        os.rmdir(folder)
    except OSError:
        return
