"""Machine: this process on its machine, with a folder, a guard, fork servers, and the processes that it has started.

A launcher, a daemon and a user's `Host` have one each. All of it belongs to the thread of the loop.
"""

from __future__ import annotations

import os
import time

from pypmix.host import launch, orphans
from pypmix.host.folders import remove, working_directory
from pypmix.host.guard import Guard
from pypmix.host.pmi.service import PmiService
from pypmix.host.signals import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pypmix.host.extensions import ForkServer, ForkServers
    from pypmix.host.job import Application
    from pypmix.host.loop import Loop

POLL = 0.01
"""Seconds between polls of states that the kernel does not report."""

KILLED_SECONDS = 5.0
"""Seconds that processes have to end after SIGKILL, and nodes to report that nothing is left: the kernel may block a
process in a system call forever, and a daemon may be such a process."""


def _has_exited(pid: int) -> bool:
    """Collect a child if it has ended; return True if it is not a child any longer."""
    try:
        return os.waitpid(pid, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return True


class Machine:
    """The processes and the folder of a host on its machine.

    Args:
        env: The environment that ranks inherit.
        tmpdir: The host's folder, made by `open`.

    Attributes:
        wdir: The folder for jobs that name no other folder.
        forks: The fork servers for ranks that run Python programs; None if every rank is started separately.
        former_limits: The limits of open files before this process raised them; None if it has not.
        pmi: The service for ranks that speak PMI-1.
    """

    def __init__(self, env: Mapping[str, str], tmpdir: str) -> None:
        self.env = env
        self.tmpdir = tmpdir
        self.wdir = working_directory()
        self.forks: ForkServers | None = None
        self.former_limits: tuple[int, int] | None = None
        self.pmi = PmiService()
        self._guard: Guard | None = None
        self._strays: set[int] = set()
        """The processes outside of the jobs' process groups that were sent SIGTERM."""

    def open(self, grace: float) -> None:
        """Make the folder, and start the guard that removes it and ends all jobs if this process is killed.

        Args:
            grace: Seconds that ranks have between SIGTERM and SIGKILL.

        Raises:
            OSError: The folder cannot be made.
        """
        try:
            os.mkdir(self.tmpdir, 0o700)
        except OSError as error:
            text = f"{error.strerror}: the folder of this run cannot be made; TMPDIR may name another place"
            raise OSError(error.errno, text, self.tmpdir) from None
        self._guard = Guard(self.tmpdir, grace)

    def close(self) -> None:
        """Remove the folder and dismiss the guard, once the servers are closed."""
        self.pmi.close()
        remove(self.tmpdir)
        if self._guard is not None:
            self._guard.dismiss()

    # Processes

    def program(self, app: Application) -> str:
        """Return the path of the program of an application.

        Raises:
            OSError: The program or its working directory does not exist, or the program cannot be executed.
        """
        if app.wdir and not os.path.isdir(app.wdir):
            raise FileNotFoundError(2, launch.NO_FOLDER, app.wdir)
        return launch.find_program(app.program or app.argv[0], app.environment(self.env), app.wdir)

    def settle(self, apps: tuple[Application, ...], wdir: str) -> tuple[Application, ...]:
        """Return applications with a folder to run in for those that name none, if it exists and is not the default."""
        if not wdir or wdir == self.wdir or not os.path.isdir(wdir):
            return apps
        return tuple([app if app.wdir else app.replace(wdir=wdir) for app in apps])

    def start_process(
        self,
        app: Application,
        program: str,
        argv: tuple[str, ...],
        env: Mapping[str, str],
        files: tuple[int, int, int],
        cpus: str = "",
    ) -> tuple[ForkServer | None, int]:
        """Start a process: fork it if it can be forked and this host has fork servers.

        Args:
            app: The application of the process.
            program: The path of its program.
            argv: Its command line.
            env: Its whole environment.
            files: The descriptors to give it as its standard input, output and error.
            cpus: The CPUs to bind it to, as a list; empty for those of this process.

        Returns:
            The fork server that is its parent, or None if this process is; and its pid.

        Raises:
            OSError: It cannot be started.
        """
        forks = self.forks
        found = None if forks is None else forks.prepare(app, program, self.env, self.wdir or os.sep, self.tmpdir)
        if found is None:
            with launch.Bound(0, cpus):
                return None, launch.spawn(program, argv, env, files, app.wdir)
        server = found[1]
        with launch.Bound(server.pid, cpus):
            return server, server.start(found[0].start(argv, env, app.wdir, server.session), files)

    def guard(self, pid: int) -> None:
        """Make sure that a process and its group end even if this process is killed, and limit its open files."""
        assert self._guard is not None
        self._guard.add(pid)
        if self.former_limits is not None:
            launch.restore_descriptor_limit(pid, self.former_limits)

    def fork_server(self, app: Application) -> ForkServer | None:
        """Return the fork server of an application, started if necessary; None if the application has none.

        Raises:
            OSError: Its program does not exist, or the fork server cannot be started.
        """
        if self.forks is None:
            return None
        found = self.forks.prepare(app, self.program(app), self.env, self.wdir or os.sep, self.tmpdir)
        return None if found is None else found[1]

    def make_room(self, ranks: int, files: int = 0) -> None:
        """Make room for the descriptors of this many ranks, and of other files.

        Raises:
            OSError: The hard limit does not allow so many.
        """
        limits = launch.raise_descriptor_limit(ranks, files)
        self.former_limits = self.former_limits or limits

    def release_groups(self, groups: Iterable[int]) -> None:
        """Stop guarding process groups, which are empty."""
        assert self._guard is not None
        for group in groups:
            self._guard.remove(group)

    def was_sent(self, signum: int) -> bool:
        """Return True if a resource manager has sent a signal to all processes around this one, its ranks too."""
        return self._guard is not None and self._guard.was_sent(signum)

    def end_strays(self, loop: Loop, patience: Callable[[], Callable[[], bool]]) -> None:
        """End the processes that have left the jobs' process groups: SIGTERM, and SIGKILL after the grace.

        Args:
            loop: The loop, which runs meanwhile.
            patience: Starts the grace, and returns a predicate that is true while it lasts.
        """
        if not self._signal_strays(signal.SIGTERM):
            return
        lasts = patience()
        killed = 0.0

        def are_gone() -> bool:
            nonlocal killed
            if not lasts():
                killed = killed or time.monotonic()
            if not self._signal_strays(signal.SIGKILL if killed else 0):
                return True
            return bool(killed) and time.monotonic() - killed > KILLED_SECONDS

        # The kernel does not report the end of a process that is not our child.
        loop.run(are_gone, every=POLL)

    def end_strays_of(
        self, nspace: str, loop: Loop, grace: float, runs_again: Callable[[], bool] = lambda: False
    ) -> None:
        """End the processes that have left the process groups of a finished job, while other jobs run.

        Args:
            nspace: The job.
            loop: The loop.
            grace: Seconds that they have between SIGTERM and SIGKILL.
            runs_again: Returns True if ranks of the job have been started again meanwhile.
        """
        assert self._guard is not None
        servants = {self._guard.pid} | (set() if self.forks is None else self.forks.pids)
        end = time.monotonic() + grace
        known: set[int] = set()

        def look() -> None:
            if runs_again():
                return
            for pid in list(known):
                if _has_exited(pid):
                    known.discard(pid)
            for pid in orphans.of_job(nspace, servants) - known:
                # The end of one makes orphans of its children, so new ones may appear at any time.
                known.add(pid)
                os.kill(pid, signal.SIGTERM)
            late = time.monotonic() - end
            for pid in known if late > 0 else ():
                os.kill(pid, signal.SIGKILL)
            if known and late < KILLED_SECONDS:
                loop.later(10 * POLL, look)

        look()

    def _signal_strays(self, signum: int) -> bool:
        """Send a signal to the processes left behind, 0 for none; return True if there are any."""
        assert self._guard is not None
        servants = {self._guard.pid} | (set() if self.forks is None else self.forks.pids)
        strays = orphans.collect(servants)
        for pid in strays:
            # The end of one makes orphans of its children, so new ones may appear at any time.
            os.kill(pid, signum if pid in self._strays else signal.SIGTERM)
        self._strays |= strays
        return bool(strays)
