"""Start processes on this node: their environment, their program, their place among other processes."""

from __future__ import annotations

import errno
import os
import select
import sys

from pypmix.host.pmi.registration import PREPUT
from pypmix.host.signals import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from typing import Any

_OUTER = ("PMIX_", "OMPI_", "PRTE_")
_PMI = frozenset(("PMI_FD", "PMI_ID", "PMI_JOBID", "PMI_PORT", "PMI_RANK", "PMI_SIZE", "PMI_SPAWNED", PREPUT))
_PARAMETERS = ("PMIX_MCA_", "OMPI_MCA_", "PRTE_MCA_")
_JOB_MARKS = ("PMIX_NAMESPACE", "PRTE_LAUNCHED", "OMPI_COMM_WORLD_RANK")

# Open MPI 4 looks for its own launcher before it looks for PMIx, and runs as a singleton if it finds none.
# This disables that search; other releases have no component of this name.
_OPEN_MPI_4 = ("OMPI_MCA_schizo", "^orte")

# Python ignores these; a child would inherit that.
_DEFAULTED = (signal.SIGPIPE, signal.SIGXFSZ)

# The descriptors that each rank uses here: two pipes, its pidfd, its connection.
DESCRIPTORS_PER_RANK = 4


def inherited_environment(env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment that a rank inherits: all variables except those of an outer job.

    Inside an outer job everything under `PMIX_`, `OMPI_` and `PRTE_` belongs to that job, MCA parameters too, since
    launchers set their own there. Outside of a job the MCA parameters are the user's and stay. A rank never has the
    place of this process in a job of PMI-1.
    """
    inside = any(mark in env for mark in _JOB_MARKS)
    kept = {
        name: value
        for name, value in env.items()
        if (not name.startswith(_OUTER) or (not inside and name.startswith(_PARAMETERS))) and name not in _PMI
    }
    return {_OPEN_MPI_4[0]: _OPEN_MPI_4[1], **kept}


NO_PROGRAM = "program not found"
NO_FOLDER = "no such working directory"
"""The texts of errors about the program to run; other errors of the system have other causes."""


class NotExecutable(PermissionError):
    """The program exists, but cannot be executed."""


def is_missing(error: OSError) -> bool:
    """Return True if the program, or the working directory that it was to have, does not exist."""
    return isinstance(error, FileNotFoundError) and error.strerror in (NO_PROGRAM, NO_FOLDER)


def with_python(path: str) -> str:
    """Return a PATH whose first Python is the Python of this process."""
    own = os.path.dirname(sys.executable)
    for folder in path.split(os.pathsep):
        if folder == own:
            return path
        if any(os.access(os.path.join(folder, name), os.X_OK) for name in ("python", "python3")):
            break
    return os.pathsep.join([own, path]) if own else path


def find_program(name: str, env: Mapping[str, str], wdir: str = "") -> str:
    """Return the path of the program `name`, as a shell in `wdir` would find it.

    Raises:
        FileNotFoundError: The program does not exist.
        NotExecutable: It exists, but cannot be executed.
    """
    # Not shutil.which: importing shutil takes longer than starting a rank.
    if "/" in name:
        candidates = [name]
    else:
        candidates = [os.path.join(folder, name) for folder in env.get("PATH", os.defpath).split(os.pathsep)]
    refused = ""
    for candidate in candidates:
        path = os.path.join(wdir, candidate) if wdir else candidate
        if os.path.isfile(path):
            if os.access(path, os.X_OK):
                return os.path.abspath(path)
            refused = refused or path
        elif os.path.isdir(path) and "/" in name:
            refused = path
    if refused:
        raise NotExecutable(errno.EACCES, os.strerror(errno.EACCES), refused)
    raise FileNotFoundError(errno.ENOENT, NO_PROGRAM, name)


def has_program(name: str, env: Mapping[str, str]) -> bool:
    """Return True if a shell would find the program `name`; `shutil` would import the modules of its archives."""
    try:
        find_program(name, env)
    except OSError:
        return False
    return True


def spawn(
    path: str,
    argv: Iterable[str],
    env: Mapping[str, str],
    files: tuple[int, int, int],
    wdir: str = "",
    mask: Collection[int] = (),
    *,
    foreground: bool = False,
) -> int:
    """Start a process in a separate process group and return its pid, which names the group.

    Without a terminal it stays in the session of this process: Linux shares CPU time between sessions first
    (`sched_autogroup`), so a rank that spins and yields in a separate session would never yield to another one.
    With a terminal it gets a separate session, in which it is not stopped, as a background job would be that reads the
    terminal or sets its modes.

    Args:
        path: The program.
        argv: Its command line, the name first.
        env: Its whole environment.
        files: The descriptors to give it as its standard input, output and error.
        wdir: Its working directory; empty for the directory of this process.
        mask: The signals that it blocks from the start.
        foreground: Whether it gets this process's terminal, as the job of a shell does.

    Raises:
        OSError: It cannot be executed; the error names the file.
    """
    session = has_terminal() and not foreground
    if wdir:
        # posix_spawn cannot change the directory. subprocess can, and costs 5 ms to import.
        import subprocess

        stdin, stdout, stderr = files
        before = signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            process = subprocess.Popen(
                list(argv), executable=path, env=env, cwd=wdir, stdin=stdin, stdout=stdout, stderr=stderr,
                start_new_session=session, process_group=None if session else 0,
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        # Its end is noticed and collected here, as for all others; without this, Popen warns of a running child.
        process.returncode = 0
        return process.pid
    actions = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(files)]
    place: dict[str, Any] = {"setsid": True} if session else {"setpgroup": 0}
    return os.posix_spawn(path, list(argv), env, file_actions=actions, setsigmask=mask, setsigdef=_DEFAULTED, **place)


class Bound:
    """Binds a process to CPUs while it starts another one, which inherits the binding; a context manager.

    Args:
        pid: The process, 0 for this thread.
        cpus: The CPUs, as a list; empty to leave it alone.
    """

    __slots__ = ("_before", "_cpus", "_pid")

    def __init__(self, pid: int, cpus: str) -> None:
        self._pid = pid
        self._cpus = cpus
        self._before: set[int] = set()

    def __enter__(self) -> None:
        if self._cpus:
            from pypmix.topology.bitmaps import numbers, parse_list

            self._before = os.sched_getaffinity(self._pid)
            os.sched_setaffinity(self._pid, numbers(parse_list(self._cpus)))

    def __exit__(self, *_error: object) -> None:
        if self._before:
            try:
                os.sched_setaffinity(self._pid, self._before)
            except ProcessLookupError:
                # The fork server has ended, which is reported elsewhere.
                return


def read_exit(pid: int) -> tuple[int | None, int, bool] | None:
    """Return the exit code of a child that has ended, its signal, and whether it dumped core; None while it runs.

    The child stays a zombie: its pid is not reused.

    Raises:
        ChildProcessError: It is not a child of this process, or has been collected.
    """
    end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if end is None:
        return None
    if end.si_code == os.CLD_EXITED:
        return end.si_status, 0, False
    return None, end.si_status, end.si_code == os.CLD_DUMPED


def has_terminal() -> bool:
    """Return True if a terminal controls this process's session, or if that is unknown."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno != errno.ENXIO
    return True


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when a process ends, or -1 if the kernel (before 5.3) has none."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1


def wait_for_end(pid: int, seconds: float) -> None:
    """Wait for the end of a process for at most `seconds`; return at once if the kernel does not report it."""
    pidfd = open_pidfd(pid)
    if pidfd >= 0:
        try:
            poll = select.poll()
            poll.register(pidfd, select.POLLIN)
            poll.poll(seconds * 1000)
        finally:
            os.close(pidfd)


def explain(error: OSError, path: str) -> str:
    """Return the reason why a program that exists could not be executed."""
    if error.errno is None:
        return str(error)
    if error.errno == errno.ENOENT and error.filename in (None, path) and os.path.isfile(path):
        return f"{path} exists, but the interpreter that its first line names does not"
    if error.errno == errno.ENOEXEC:
        return f"{path} is neither a binary of this machine nor a script with a #! line"
    return f"{error.filename or path}: {error.strerror}"


def give_terminal(group: int) -> None:
    """Make a process group the one that reads the terminal and gets its signals, if this process has a terminal."""
    # Done from the background, it would stop this process.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTTOU,))
    try:
        os.tcsetpgrp(0, group)
    except OSError:
        # The input is not a terminal, or not the terminal of this session.
        return
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    # It may have been stopped because it read the terminal before.
    signal_group(group, signal.SIGCONT)


def signal_group(group: int, signum: int) -> bool:
    """Send a signal to a process group; return True if the group has a process."""
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        # It has one, which belongs to another user by now.
        return True
    return True


def handles(pid: int, signum: int) -> bool:
    """Return True if a process has a handler for a signal."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="surrogateescape") as file:
            masks = [line.split()[1] for line in file if line.startswith("SigCgt:")]
    except OSError:
        return False
    return any(int(mask, 16) >> (signum - 1) & 1 for mask in masks)


def raise_descriptor_limit(ranks: int, files: int = 0) -> tuple[int, int] | None:
    """Make room for the descriptors of large jobs; return the former limits if they were changed.

    Args:
        ranks: The number of ranks.
        files: The number of other descriptors.

    Raises:
        OSError: The hard limit does not allow so many.
    """
    wanted = ranks * DESCRIPTORS_PER_RANK + files + 64
    # The soft limit: most jobs fit, and need not import the module.
    if wanted <= os.sysconf("SC_OPEN_MAX"):
        return None
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or wanted <= soft:
        return None
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise OSError(errno.EMFILE, f"{ranks} ranks need {wanted} open files here and the limit is {hard} (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft, hard


def restore_descriptor_limit(pid: int, limits: tuple[int, int]) -> None:
    """Set the limits of a process, 0 for this one, to the former limits of this process."""
    import resource

    try:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
    except (ProcessLookupError, PermissionError):
        # It has ended already, or become another user.
        return
