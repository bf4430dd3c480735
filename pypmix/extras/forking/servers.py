"""The fork servers of a host, and the ranks that they start."""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from pypmix.extras.forking import frames
from pypmix.extras.forking.programs import Program, find
from pypmix.host import launch
from pypmix.host.loop import READ
from pypmix.host.outcome import signal_text
from pypmix.host.signals import BLOCKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pypmix.host.job import Application
    from pypmix.host.loop import HostLoop

PATIENCE = 60.0
"""The seconds that a fork server has to import its modules, and to answer a request."""

_BEGIN = (
    "import sys\n"
    "if not sys.flags.safe_path: sys.path[0] = sys.argv[1]\n"
    "from pypmix.extras.forking.server import main\n"
    "main()"
)


class ForkServerError(OSError):
    """A fork server could not be started, or has exited; the text gives the reason. It has no error number."""


class ForkServer:
    """A process that forks ranks.

    Args:
        program: The program of the first rank.
        path: The first entry of the ranks' `sys.path`.
        env: The server's environment.
        wdir: Its working directory; empty for that of this process.
        modules: The modules that it imports, besides a client.

    Attributes:
        pid: Its pid.
        pidfd: A descriptor that is readable when it has exited, or -1.
    """

    def __init__(
        self,
        program: Program,
        path: str,
        env: Mapping[str, str],
        wdir: str,
        modules: Sequence[str],
    ) -> None:
        ours, theirs = socket.socketpair()
        words = [program.interpreter, *program.options, "-c", _BEGIN, path]
        try:
            self.pid = launch.spawn(program.interpreter, words, env, (theirs.fileno(), 2, 2), wdir, BLOCKED)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._link = ours
        self._python = program.interpreter
        self._modules = modules
        self._ready = False
        self._last: frames.Start | None = None
        """The last started rank, whose environment the fork server still has."""
        self._end = ""
        self.pidfd = launch.open_pidfd(self.pid)
        self.session = launch.has_terminal()
        try:
            frames.send(ours, [frames.IMPORT, *modules])
        except OSError:
            # It has exited already, which the first answer reports.
            return

    @property
    def is_running(self) -> bool:
        """Whether it has not been found to have exited."""
        return not self._end

    def start(self, start: frames.Start, files: Sequence[int]) -> int:
        """Fork a rank, and return its pid.

        Args:
            start: The rank.
            files: Its standard input, output and error.

        Raises:
            OSError: The fork failed, the fork server has exited, or it cannot import a module.
        """
        self._await_ready()
        changes = start.changes(self._last)
        words = [frames.START, *start.write()] if changes is None else [frames.AGAIN, *changes]
        self._last = None
        answer = self._ask(words, files)
        pid = int(answer[0])
        if not pid:
            raise OSError(int(answer[1]), answer[2], answer[3] or None)
        self._last = start
        return pid

    def call(self, module: str, function: str, argument: str) -> str:
        """Call a function in the fork server, so that later ranks inherit its effects.

        Args:
            module: A module that the server has imported.
            function: The name of the function.
            argument: Its argument.

        Returns:
            The function's result, a text; the traceback if it fails.

        Raises:
            ForkServerError: The fork server has exited, or cannot import a module.
        """
        self._await_ready()
        self._last = None
        return self._ask([frames.CALL, module, function, argument])[1]

    def collect(self, pids: Iterable[int]) -> None:
        """Make the server wait for ranks that have ended, or are about to, so that their zombies go."""
        words = [str(pid) for pid in pids]
        if words and not self._end:
            try:
                self._ask([frames.COLLECT, *words])
            except ForkServerError:
                # The zombies of an exited server belong to another process.
                return

    def read_exit(self, pid: int) -> tuple[int | None, int, bool] | None:
        """Return how a rank has ended: exit code, signal, and whether it dumped core; None while it runs.

        Raises:
            ChildProcessError: The process no longer exists.
        """
        try:
            file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                words = os.read(file, 4096).rpartition(b")")[2].split()
            finally:
                os.close(file)
        except (FileNotFoundError, ProcessLookupError):
            raise ChildProcessError(f"the process {pid} no longer exists, so its exit code is unknown") from None
        if words[0] not in (b"Z", b"X"):
            return None
        status = int(words[-1])
        if os.WIFSIGNALED(status):
            return None, os.WTERMSIG(status), os.WCOREDUMP(status)
        return os.WEXITSTATUS(status), 0, False

    def _await_ready(self) -> None:
        if self._ready:
            return
        answer = self._receive(PATIENCE)
        if answer != ["ready"]:
            self.kill()
            hint = "leave it out of --warm (warm=)" if self._modules else "leave out --warm"
            raise ForkServerError(f"warm ranks cannot be forked: {answer[0]}; {hint}")
        self._ready = True

    def _ask(self, words: Sequence[str], files: Sequence[int] = ()) -> list[str]:
        """Send a request, and return its answer."""
        try:
            frames.send(self._link, words, files)
        except OSError:
            raise ForkServerError(self.end()) from None
        return self._receive(PATIENCE)

    def _receive(self, timeout: float) -> list[str]:
        """Return the next answer; kill the server if it does not come within `timeout` seconds."""
        deadline = time.monotonic() + timeout
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        while not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if time.monotonic() > deadline:
                self.kill()
                modules = ", ".join(["pypmix", *self._modules])
                raise ForkServerError(f"the fork server has not answered in {timeout:g} s; it imports {modules}")
        try:
            answer, _ = frames.receive(self._link)
        except OSError:
            answer = []
        if not answer:
            raise ForkServerError(self.end())
        return answer

    @property
    def ready(self) -> bool:
        """Whether it has reported that its imports are done."""
        return self._ready

    def end(self) -> str:
        """Wait for the server, which has exited or is about to, and return a text that explains how it ended."""
        if not self._end:
            self._link.close()
            try:
                status = os.waitpid(self.pid, 0)[1]
            except ChildProcessError:
                how = "has ended"
            else:
                signum = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                how = f"was killed by {signal_text(signum)}" if signum else f"exited with code {status >> 8}"
            if self._ready:
                self._end = f"the fork server (pid {self.pid}), from which ranks are forked, {how}"
            else:
                modules = ", ".join(["pypmix", *self._modules])
                remedy = (
                    "leave the module that it cannot import out of --warm (warm=)"
                    if self._modules
                    else "install pypmix for this interpreter, or leave out --warm"
                )
                self._end = f"the fork server (pid {self.pid}) {how} while {self._python} imported {modules}; {remedy}"
        return self._end

    def kill(self) -> None:
        """Kill the server if it runs."""
        if not self._end:
            os.kill(self.pid, signal.SIGKILL)
            self.end()

    def close(self) -> None:
        """Kill the server and close its descriptors; may be called twice."""
        self.kill()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class ForkServers:
    """The fork servers that a host starts, one for each interpreter, import path, folder and environment.

    Args:
        modules: The modules that they import, besides a client.
    """

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self.modules = tuple(modules)
        self._servers: dict[object, ForkServer] = {}
        self._last: tuple[Application, str, str, tuple[Program, ForkServer]] | None = None
        self._watched: set[ForkServer] = set()
        self._loop: HostLoop | None = None
        self._died: Callable[[ForkServer], None] = lambda _server: None

    @property
    def pids(self) -> set[int]:
        """The pids of the running servers."""
        return {server.pid for server in self._servers.values() if server.is_running}

    def watch(self, loop: HostLoop, died: Callable[[ForkServer], None]) -> None:
        """Call a function on a loop when a server exits without having been closed, until `unwatch`."""
        self._loop, self._died = loop, died
        for server in self._servers.values():
            self._watch(server)

    def unwatch(self) -> None:
        """Stop watching the servers."""
        for server in self._servers.values():
            self._unwatch(server)
        self._loop = None

    def prepare(
        self, app: Application, program: str, inherited: Mapping[str, str], wdir: str, folder: str
    ) -> tuple[Program, ForkServer] | None:
        """Return the Python program of an application, and the fork server for it, which is started if needed.

        Args:
            app: The application.
            program: The program's path.
            inherited: The environment that ranks inherit.
            wdir: Their working directory unless the application names another.
            folder: The host's folder, by which its guard recognizes the server.

        Returns:
            None if the program is not a Python program.

        Raises:
            OSError: The fork server cannot be started.
        """
        last = self._last
        if last is not None and last[0] is app and last[1:3] == (program, wdir) and last[3][1].is_running:
            # The ranks of an application are started one after the other.
            return last[3]
        default_wdir = wdir
        env = app.environment(inherited)
        wdir = app.wdir or wdir
        python = find(program, app.argv, env, wdir)
        if python is None:
            return None
        path = python.path(wdir)
        key = python.interpreter, python.options, path, app.wdir, app.env, app.unset
        server = self._servers.get(key)
        if server is None:
            env["PMIX_SERVER_TMPDIR"] = folder
            server = self._servers[key] = ForkServer(python, path, env, app.wdir, self.modules)
            self._watch(server)
        self._last = app, program, default_wdir, (python, server)
        return python, server

    def _watch(self, server: ForkServer) -> None:
        if self._loop is not None and server.pidfd >= 0 and server.is_running:
            self._watched.add(server)
            self._loop.watch(server.pidfd, READ, lambda: self._report_exit(server))

    def _unwatch(self, server: ForkServer) -> None:
        if self._loop is not None and server in self._watched:
            self._watched.discard(server)
            self._loop.unwatch(server.pidfd)

    def _report_exit(self, server: ForkServer) -> None:
        self._unwatch(server)
        # A server that failed to import has sent the reason, which the next rank's start reports.
        if server.ready:
            server.end()
            self._died(server)

    def close(self) -> None:
        """Kill all servers."""
        self.unwatch()
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        self._last = None
