"""Files and folders that are removed when procs have ended, as `PMIX_REGISTER_CLEANUP` requests it.

Only files of the requesting user are removed, no symbolic link is ever followed to them, and nothing on another file
system than the named folder's. The root, its folders, home, the working directory, and all folders that contain them or
the host's own files are refused from the start.
"""

from __future__ import annotations

import os
import stat
from functools import partial

from pypmix.standard import attrs, statuses
from pypmix.standard.errors import OutOfResources, PMIxError
from pypmix.standard.ops.events import is_set
from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pypmix.host.manager import Manager
    from pypmix.host.rank import Rank
    from pypmix.host.running import RunningJob
    from pypmix.standard.types import Info, Proc

FILES = attrs.REGISTER_CLEANUP.key
FOLDERS = attrs.REGISTER_CLEANUP_DIR.key

MAX_WAITING = 1 << 17
"""The limit of pending paths, and of procs whose end they wait for."""

PATH_MAX = 4096

MAX_DEPTH = 256
"""Folders in folders below this are left alone; each level takes a descriptor."""

_WALK = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_READ = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class CleanupRequest(Record):
    """The paths to remove.

    Args:
        files: Files, without symbolic links in the path.
        folders: Folders, likewise.
        ignored: Names and paths of files to leave alone.
        recursive: The contents of folders in the folders are removed too.
        empty: Only empty folders are removed.
        keep_top: The folders themselves stay.
        uid: The user to whom all of it must belong.
    """

    files: tuple[str, ...]
    folders: tuple[str, ...]
    ignored: frozenset[str]
    recursive: bool
    empty: bool
    keep_top: bool
    uid: int


class _Waiting:
    """A request, and the procs and jobs that have not ended."""

    def __init__(self, request: CleanupRequest, members: set[str | Proc]) -> None:
        self.request = request
        self.awaited = members
        self.size = len(request.files) + len(request.folders) + len(request.ignored) + len(members)


class Cleanups:
    """The paths that a host removes when procs have ended."""

    def __init__(self, host: Manager) -> None:
        self._host = host
        self._waiting: dict[str | Proc, list[_Waiting]] = {}
        self._size = 0
        host.at_rank_end.append(self._rank_ended)
        host.at_job_end.append(self._job_ended)

    def add(self, request: CleanupRequest, members: Iterable[str | Proc]) -> None:
        """Schedule a removal for when all of these procs and jobs have ended.

        Raises:
            PMIxError: Too many removals are pending.
        """
        waiting = _Waiting(request, set(members))
        if self._size + waiting.size > MAX_WAITING:
            raise OutOfResources("there is too much to clean up")
        self._size += waiting.size
        for end in waiting.awaited:
            self._waiting.setdefault(end, []).append(waiting)

    def _rank_ended(self, _job: RunningJob, rank: Rank) -> None:
        self._record_end(rank.proc)

    def _job_ended(self, job: RunningJob) -> None:
        self._record_end(job.nspace)

    def _record_end(self, end: str | Proc) -> None:
        for waiting in self._waiting.pop(end, ()):
            waiting.awaited.remove(end)
            if not waiting.awaited:
                self._size -= waiting.size
                carry_out(waiting.request)


def read(host: Manager, directives: Iterable[Info], uid: int) -> CleanupRequest | None:
    """Return the removal that directives request, None if they request nothing.

    Args:
        host: The host.
        directives: The directives of a job control request.
        uid: The requesting user.

    Raises:
        PMIxError: A path is invalid (`ERR_BAD_PARAM`), or must not be removed (`ERR_NO_PERMISSIONS`).
    """
    directives = tuple(directives)
    files = [_checked(path, uid) for path in _listed(directives, FILES)]
    folders = [_checked(path, uid) for path in _listed(directives, FOLDERS)]
    if not files and not folders:
        return None
    kept = _kept(host)
    for folder in folders:
        if folder.count(os.sep) < 2 or any(f"{path}/".startswith(f"{folder}/") for path in kept):
            raise PMIxError(f"{folder} is never removed", status=statuses.ERR_NO_PERMISSIONS)
    return CleanupRequest(
        tuple(files),
        tuple(folders),
        frozenset(_listed(directives, attrs.CLEANUP_IGNORE.key)),
        is_set(directives, attrs.CLEANUP_RECURSIVE.key),
        is_set(directives, attrs.CLEANUP_EMPTY.key),
        is_set(directives, attrs.CLEANUP_LEAVE_TOPDIR.key),
        uid,
    )


def _listed(directives: Iterable[Info], key: str) -> list[str]:
    found: list[str] = []
    for info in directives:
        if info.key == key:
            text = info.value.data
            if not isinstance(text, str) or not text:
                raise PMIxError(f"{key} takes paths", status=statuses.ERR_BAD_PARAM)
            found += [part for part in text.split(",") if part]
    return found


def _checked(path: str, uid: int) -> str:
    """Return a path without symbolic links before its last part."""
    parts = path.split(os.sep)
    if not path.startswith(os.sep) or ".." in parts or "\0" in path or len(path) >= PATH_MAX:
        raise PMIxError(f"an absolute path without '..' is wanted, not {path!r:.200}", status=statuses.ERR_BAD_PARAM)
    folder, name = os.path.split(os.path.normpath(path).replace("//", "/"))
    # Resolved now: a link that another process makes later is not followed.
    found = os.path.join(os.path.realpath(folder), name)
    try:
        owner = os.lstat(found).st_uid
    except OSError:
        return found
    if owner != uid:
        raise PMIxError(f"{path} belongs to another user", status=statuses.ERR_NO_PERMISSIONS)
    return found


def _kept(host: Manager) -> list[str]:
    """Return the folders that are never removed, nor any folder that contains one of them."""
    found = [os.path.expanduser("~"), host.machine.env.get("HOME", ""), host.machine.tmpdir, host.machine.wdir]
    found += [app.wdir for job in host.jobs.values() for app in job.job.apps]
    return [os.path.realpath(path) for path in found if path.startswith(os.sep)]


# The removal.


def carry_out(request: CleanupRequest) -> None:
    """Remove the paths of a request; skip paths that do not exist, belong to others, or cannot be removed."""
    for path in request.files:
        if not _ignored(request, path):
            _within(path, partial(_unlink, request))
    for path in request.folders:
        _within(path, partial(_clear, request, path))


def _within(path: str, act: Callable[[int, str], None]) -> None:
    """Call a function in the folder of a path, which is reached without following a link."""
    *folders, name = path.split(os.sep)[1:]
    try:
        here = os.open(os.sep, _WALK)
        try:
            for folder in folders:
                there = os.open(folder, _WALK, dir_fd=here)
                os.close(here)
                here = there
            act(here, name)
        finally:
            os.close(here)
    except OSError:
        return


def _ignored(request: CleanupRequest, path: str) -> bool:
    return path in request.ignored or os.path.basename(path) in request.ignored


def _unlink(request: CleanupRequest, folder: int, name: str) -> None:
    found = os.lstat(name, dir_fd=folder)
    if found.st_uid == request.uid and not stat.S_ISDIR(found.st_mode):
        os.unlink(name, dir_fd=folder)


def _clear(request: CleanupRequest, path: str, folder: int, name: str) -> None:
    top = os.open(name, _READ, dir_fd=folder)
    try:
        device = os.fstat(top).st_dev
        if os.fstat(top).st_uid != request.uid:
            return
        _empty(request, top, path, device, 0)
    finally:
        os.close(top)
    if not request.keep_top:
        os.rmdir(name, dir_fd=folder)


def _empty(request: CleanupRequest, folder: int, path: str, device: int, depth: int) -> None:
    with os.scandir(folder) as entries:
        names = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
    for name, is_folder in names:
        below = f"{path}/{name}"
        if _ignored(request, below):
            continue
        try:
            if not is_folder:
                if not request.empty:
                    _unlink(request, folder, name)
            elif (request.recursive or request.empty) and depth < MAX_DEPTH:
                _descend(request, folder, name, below, device, depth)
        except OSError:
            continue


def _descend(request: CleanupRequest, folder: int, name: str, path: str, device: int, depth: int) -> None:
    inner = os.open(name, _READ, dir_fd=folder)
    try:
        found = os.fstat(inner)
        if found.st_uid != request.uid or found.st_dev != device:
            return
        _empty(request, inner, path, device, depth + 1)
    finally:
        os.close(inner)
    os.rmdir(name, dir_fd=folder)
