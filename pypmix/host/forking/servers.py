"""The fork servers of a host, and the ranks that they start."""

from __future__ import annotations

import os
import select
import signal
import socket
import time

from pypmix.host import launch
from pypmix.host.forking import frames
from pypmix.host.forking.programs import Program, find
from pypmix.host.loop import READ
from pypmix.host.outcome import signal_text
from pypmix.host.signals import BLOCKED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from pypmix.host.job import Application
    from pypmix.host.loop import HostLoop

PATIENCE = 60.0
"""Seconds that a fork server has to import its modules."""

_BEGIN = (
    "import sys\n"
    "if not sys.flags.safe_path: sys.path[0] = sys.argv[1]\n"
    "from pypmix.host.forking.server import main\n"
    "main()"
)


class ForkServerError(OSError):
    """A fork server cannot be had, or has ended; the text says why. It has no error number."""


class ForkServer:
    """A process that forks ranks.

    Args:
        program: The program that the first of them runs.
        path: The first entry of their `sys.path`.
        env: Its environment.
        wdir: Its folder; empty for this process's own.
        modules: What it imports, besides a client.
        ranks: How many ranks the first job has.

    Attributes:
        pid: Its pid.
        pidfd: A descriptor that is readable when it has ended, or -1.
    """

    def __init__(
        self,
        program: Program,
        path: str,
        env: Mapping[str, str],
        wdir: str,
        modules: Sequence[str],
        ranks: int = 1,
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
        """The last rank that was started, whose environment the fork server has."""
        self._end = ""
        self.pidfd = launch.open_pidfd(self.pid)
        self.session = launch.has_terminal()
        try:
            frames.send(ours, [str(ranks), *modules])
        except OSError:
            # It has ended already, and the first answer tells.
            return

    @property
    def ended(self) -> bool:
        """Whether it has ended."""
        return bool(self._end)

    def start(self, start: frames.Start, files: Sequence[int]) -> int:
        """Have it fork a rank, and return the pid.

        Args:
            start: The rank.
            files: Its standard input, output and error.

        Raises:
            OSError: The system does not let it; or the fork server has ended, or cannot import a module.
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
        """Have it call a function of a module that it has imported, so that the ranks to come have what it makes.

        Returns:
            What the function returns, which is a text; the traceback where it fails.

        Raises:
            ForkServerError: The fork server has ended, or cannot import a module.
        """
        self._await_ready()
        self._last = None
        return self._ask([frames.CALL, module, function, argument])[1]

    def collect(self, pids: Iterable[int]) -> None:
        """Have it collect ranks that have ended, or are about to."""
        words = [str(pid) for pid in pids]
        if words and not self._end:
            try:
                self._ask([frames.COLLECT, *words])
            except ForkServerError:
                # Another process has collected them then.
                return

    def end_of(self, pid: int) -> tuple[int | None, int, bool] | None:
        """Return how a rank has ended: exit code, signal, and whether it left a core; None while it runs.

        Raises:
            ChildProcessError: That cannot be learnt any more.
        """
        try:
            file = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
            try:
                words = os.read(file, 4096).rpartition(b")")[2].split()
            finally:
                os.close(file)
        except (FileNotFoundError, ProcessLookupError):
            raise ChildProcessError(f"the process {pid} is not there any more") from None
        if words[0] not in (b"Z", b"X"):
            return None
        status = int(words[-1])
        if os.WIFSIGNALED(status):
            return None, os.WTERMSIG(status), os.WCOREDUMP(status)
        return os.WEXITSTATUS(status), 0, False

    def _await_ready(self) -> None:
        if self._ready:
            return
        answer = self._answer(PATIENCE)
        if answer != ["ready"]:
            self.kill()
            hint = "leave it out of --warm (warm=)" if self._modules else "leave out --warm"
            raise ForkServerError(f"warm ranks cannot be forked: {answer[0]}; {hint}")
        self._ready = True

    def _ask(self, words: Sequence[str], files: Sequence[int] = ()) -> list[str]:
        try:
            frames.send(self._link, words, files)
        except OSError:
            raise self._gone() from None
        return self._answer(PATIENCE)

    def _answer(self, patience: float) -> list[str]:
        deadline = time.monotonic() + patience
        poll = select.poll()
        poll.register(self._link, select.POLLIN)
        while not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
            if time.monotonic() > deadline:
                self.kill()
                modules = ", ".join(["pypmix", *self._modules])
                raise ForkServerError(f"the fork server has not answered in {patience:g} s; it imports {modules}")
        try:
            answer, _ = frames.receive(self._link)
        except OSError:
            answer = []
        if not answer:
            raise self._gone()
        return answer

    def _gone(self) -> ForkServerError:
        return ForkServerError(self.end())

    @property
    def ready(self) -> bool:
        """Whether it has imported all, and has said so."""
        return self._ready

    def end(self) -> str:
        """It has ended, or is about to: collect it, and say how."""
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
                self._end = (
                    f"the fork server (pid {self.pid}) {how} while {self._python} imported {modules}; what it cannot "
                    "import warm ranks cannot use (--warm)"
                )
        return self._end

    def kill(self) -> None:
        """End it, if it has not ended."""
        if not self._end:
            os.kill(self.pid, signal.SIGKILL)
            self.end()

    def close(self) -> None:
        """End it and let go of it; may be called twice."""
        self.kill()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


class ForkServers:
    """The fork servers that a host starts, one for each interpreter, import path, folder and environment.

    Args:
        modules: What they import, besides a client.
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
        """The pids of those that run."""
        return {server.pid for server in self._servers.values() if not server.ended}

    def attend(self, loop: HostLoop, died: Callable[[ForkServer], None]) -> None:
        """Have a function called on a loop when one has ended that was not closed; `leave` ends that."""
        self._loop, self._died = loop, died
        for server in self._servers.values():
            self._watch(server)

    def leave(self) -> None:
        """Watch them no more."""
        for server in self._servers.values():
            self._unwatch(server)
        self._loop = None

    def prepare(
        self, app: Application, program: str, inherited: Mapping[str, str], wdir: str, folder: str
    ) -> tuple[Program, ForkServer] | None:
        """Return what a program is to Python, and the fork server for it, which is started where there is none yet.

        Args:
            app: The application that has the program.
            program: The program's path.
            inherited: The environment that ranks inherit.
            wdir: The folder that they run in where the application names no other.
            folder: The host's folder, by which its guard knows what belongs to it.

        Returns:
            None where the program is not one for Python.

        Raises:
            OSError: The fork server cannot be started.
        """
        last = self._last
        if last is not None and last[0] is app and last[1:3] == (program, wdir) and not last[3][1].ended:
            # The ranks of an application come one after the other.
            return last[3]
        asked = wdir
        env = app.environment(inherited)
        wdir = app.wdir or wdir
        found = find(program, app.argv, env, wdir)
        if found is None:
            return None
        path = found.path(wdir)
        key = found.interpreter, found.options, path, app.wdir, app.env, app.unset
        server = self._servers.get(key)
        if server is None:
            env["PMIX_SERVER_TMPDIR"] = folder
            server = self._servers[key] = ForkServer(found, path, env, app.wdir, self.modules, app.np)
            self._watch(server)
        self._last = app, program, asked, (found, server)
        return found, server

    def _watch(self, server: ForkServer) -> None:
        if self._loop is not None and server.pidfd >= 0 and not server.ended:
            self._watched.add(server)
            self._loop.watch(server.pidfd, READ, lambda: self._look(server))

    def _unwatch(self, server: ForkServer) -> None:
        if self._loop is not None and server in self._watched:
            self._watched.discard(server)
            self._loop.unwatch(server.pidfd)

    def _look(self, server: ForkServer) -> None:
        self._unwatch(server)
        # One that could not import something has told it, and the next rank finds that.
        if server.ready:
            server.end()
            self._died(server)

    def close(self) -> None:
        """End them."""
        self.leave()
        for server in self._servers.values():
            server.close()
        self._servers.clear()
        self._last = None
