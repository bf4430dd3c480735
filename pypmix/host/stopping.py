"""Start a process that is stopped before its first instruction, so that a debugger can attach to it."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time

from pypmix.host import launch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

TRACEME, CONTINUE, DETACH = 0, 7, 17
"""Requests of `ptrace`."""

LIMIT = 20.0
"""Seconds that a process has to reach its program."""

POLL = 0.001

REFUSED = 125
"""The exit code of a process that the system does not let be traced."""

# The kernel stops a traced process right after it has become the program.
_BECOME = (
    "import ctypes,os,sys;"
    f"ctypes.CDLL(None).ptrace({TRACEME},0,None,None)and os._exit({REFUSED});"
    "os.execv(sys.argv[1],sys.argv[2:])"
)


def start_stopped(
    path: str,
    argv: tuple[str, ...],
    env: Mapping[str, str],
    files: tuple[int, int, int],
    wdir: str,
    cpus: str,
) -> int:
    """Start a process, stop it at the first instruction of its program, and return its pid; SIGCONT continues it.

    Args:
        path: The program.
        argv: Its command line, the name first.
        env: Its whole environment.
        files: The descriptors to give it as its standard input, output and error.
        wdir: Its working directory; empty for the directory of this process.
        cpus: The CPUs to bind it to, as a list; empty for those of this process.

    Raises:
        OSError: It cannot be executed, or the system does not let it be stopped.
    """
    words = (sys.executable, "-I", "-S", "-c", _BECOME, path, *argv)
    with launch.Bound(0, cpus):
        pid = launch.spawn(sys.executable, words, env, files, wdir)
    try:
        _wait_for_program(pid, path)
    except BaseException:
        if launch.signal_group(pid, signal.SIGKILL):
            os.waitpid(pid, 0)
        raise
    return pid


def _wait_for_program(pid: int, path: str) -> None:
    import ctypes

    ptrace = ctypes.CDLL(None, use_errno=True).ptrace
    ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    end = time.monotonic() + LIMIT
    while True:
        found, status = os.waitpid(pid, os.WNOHANG)
        if not found:
            if time.monotonic() > end:
                raise OSError(errno.ETIMEDOUT, f"it did not become the program within {LIMIT:g} s", path)
            time.sleep(POLL)
        elif not os.WIFSTOPPED(status):
            code = os.waitstatus_to_exitcode(status)
            if code == REFUSED:
                raise OSError(errno.EPERM, "the system does not let processes be stopped at exec (ptrace)", path)
            raise OSError(errno.ENOEXEC, f"it ended with {code} before it became the program", path)
        else:
            signum = os.WSTOPSIG(status)
            is_program = signum == signal.SIGTRAP
            # A signal of another process goes on to it.
            if ptrace(DETACH if is_program else CONTINUE, pid, None, signal.SIGSTOP if is_program else signum):
                raise OSError(ctypes.get_errno(), "it cannot be stopped at exec (ptrace)", path)
            if is_program:
                return
