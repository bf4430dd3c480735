"""Daemons that a command of this machine starts and represents: `ssh n1 ...`, `kubectl exec n1 -- ...`."""

from __future__ import annotations

import contextlib
import os
import select
import selectors
import signal
import subprocess
import sys
import threading

from pypmix.engine.faults import fault
from pypmix.standard.logtext import printable_lines

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import IO

    Explain = Callable[[str, int | None, str], str]

KEPT = 4096
"""The number of bytes of a command's standard error, from its end, that are kept to explain a failure."""

CHUNK = 65536


class Started:
    """A daemon behind a command, whose standard input and output are the daemon's.

    Args:
        node: The node's name.
        words: The command.
        errors: Reads the command's standard error.
        explain: Makes a sentence of the node's name, the exit code, and the end of the command's standard error.

    Attributes:
        stdin: The descriptor to write to the daemon; belongs to the caller.
        stdout: The descriptor to read from the daemon; belongs to the caller.

    Raises:
        OSError: The command cannot be started.
    """

    def __init__(self, node: str, words: Sequence[str], errors: Errors, explain: Explain) -> None:
        self._node = node
        self._errors = errors
        self._explain = explain
        reads, self.stdin = os.pipe2(os.O_CLOEXEC)
        self.stdout, writes = os.pipe2(os.O_CLOEXEC)
        try:
            # A separate process group: Ctrl-C must reach only the launcher, which then ends the daemons in order.
            self._process = subprocess.Popen(
                words, stdin=reads, stdout=writes, stderr=subprocess.PIPE, bufsize=0, process_group=0
            )
        except OSError:
            os.close(self.stdin)
            os.close(self.stdout)
            raise
        finally:
            os.close(reads)
            os.close(writes)
        assert self._process.stderr is not None
        self._stderr = self._process.stderr
        errors.read(node, self._stderr)

    def stop(self) -> None:
        """End the command; the daemon ends with its standard input."""
        if self._process.poll() is None:
            # Kill the whole group, which may include processes such as a ProxyCommand of ssh.
            os.killpg(self._process.pid, signal.SIGKILL)

    def ended(self) -> int | None:
        """Return the command's exit code, None while it runs."""
        return self._process.poll()

    def collect(self) -> int:
        """Return the exit code of a command whose output has ended; kill it if it does not end within a second."""
        try:
            return self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self.stop()
            return self._process.wait()

    def trouble(self) -> str:
        """Return an error text with the reason of the command's end, or a remedy if it makes no progress."""
        if self._has_closed_output():
            # It is about to end.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        return self._explain(self._node, self._process.poll(), self._errors.last(self._stderr))

    def _has_closed_output(self) -> bool:
        """Return True if nothing more can be read from the command after the data that has arrived."""
        poll = select.poll()
        poll.register(self.stdout, select.POLLHUP)
        return any(events & select.POLLHUP for _, events in poll.poll(0))

    def close(self) -> None:
        """Kill the command, and collect its exit code and remaining errors."""
        self.stop()
        self._process.wait()
        self._errors.last(self._stderr)


class Errors:
    """Prints the standard error of commands, with the node's name before each line, and keeps the end of it.

    One thread reads from all commands.

    Args:
        mark: The start of each line.
    """

    def __init__(self, mark: str = "pypmix run: ") -> None:
        self._mark = mark
        self._selector = selectors.DefaultSelector()
        self._gate = threading.Lock()
        self._kept: dict[IO[bytes], bytes] = {}
        self._open: dict[IO[bytes], str] = {}
        self._waker, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._selector.register(self._waker, selectors.EVENT_READ)
        self._thread: threading.Thread | None = None

    def read(self, node: str, file: IO[bytes]) -> None:
        """Start to read the standard error of a node's command."""
        os.set_blocking(file.fileno(), False)
        with self._gate:
            self._open[file], self._kept[file] = node, b""
            self._selector.register(file, selectors.EVENT_READ)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="pypmix-roster-errors", daemon=True)
                self._thread.start()
        os.write(self._wake, b"+")

    def last(self, file: IO[bytes]) -> str:
        """Read the available data, and return the end of all data: complete if the command has ended."""
        with self._gate:
            while self._take(file):
                pass
            return self._kept.get(file, b"").decode(errors="replace")

    def close(self) -> None:
        """Stop reading."""
        os.write(self._wake, b"-")
        if self._thread is not None:
            self._thread.join()
        with self._gate:
            for file in list(self._open):
                self._forget(file)
        self._selector.close()
        os.close(self._waker)
        os.close(self._wake)

    def _run(self) -> None:
        while True:
            found = [key.fileobj for key, _ in self._selector.select()]
            with self._gate:
                for file in found:
                    if file == self._waker:
                        if b"-" in os.read(self._waker, CHUNK):
                            return
                    elif file in self._open:
                        try:
                            self._take(file)
                        except Exception as error:
                            # The thread must survive for the other nodes. This file would be ready again at once.
                            fault("to show what a node's command writes", error)
                            self._forget(file)

    def _take(self, file: IO[bytes]) -> bool:
        """Read and print available data; return True if more may be available."""
        if file not in self._open:
            return False
        try:
            data = os.read(file.fileno(), CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._forget(file)
            return False
        self._kept[file] = (self._kept[file] + data)[-KEPT:]
        _show(f"{self._mark}{self._open[file]}", data)
        return True

    def _forget(self, file: IO[bytes]) -> None:
        self._selector.unregister(file)
        del self._open[file]
        file.close()


def _show(mark: str, data: bytes) -> None:
    for line in data.decode(errors="replace").splitlines():
        if line.strip():
            try:
                print(f"{mark}: {printable_lines(line)}", file=sys.stderr, flush=True)
            except (OSError, AttributeError):
                # The reader of standard error has closed it.
                return
