"""Runs jobs of any launcher whose ranks report to the command that has started them."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
import uuid
from contextlib import ExitStack
from types import TracebackType
from typing import Any, NamedTuple, Self

from pypmix.host.terms import GRACE
from pypmix.reports import read

END_SECONDS = 2 * GRACE
"""Seconds that a launcher has to end its job after a request: its ranks have half of it."""

INTERRUPTED = 130
"""The exit code of a command that Ctrl-C has ended."""


def interruptible() -> None:
    """Make Ctrl-C and SIGTERM raise `KeyboardInterrupt`, so that a job is ended before the command that runs it."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)


class JobEnd(NamedTuple):
    """The end of a job.

    Attributes:
        reports: The reports of the ranks.
        code: The exit code of the launcher, None if it was ended because its time had run out.
        seconds: The duration of the job.
        errors: The job's output on standard error.
    """

    reports: list[dict[str, Any]]
    code: int | None
    seconds: float
    errors: str


class Running:
    """A launcher that runs a job in a separate process group, which ends with the block.

    Ctrl-C and SIGTERM raise `KeyboardInterrupt` during the wait for the end of the job, and before and after that at
    the next moment at which no launcher is left behind.

    Args:
        command: The words of the launcher and of the program, in which `{word}` stands for the word of the reports.
    """

    def __init__(self, command: list[str]) -> None:
        self._word = uuid.uuid4().hex
        self._command = [self._word if each == "{word}" else each for each in command]
        self._interrupted = self._waiting = False

    def __enter__(self) -> Self:
        """Start the launcher.

        Raises:
            OSError: The program does not exist.
        """
        with ExitStack() as kept:
            self._out, self._err = [kept.enter_context(tempfile.TemporaryFile()) for _ in range(2)]
            for number in (signal.SIGINT, signal.SIGTERM):
                kept.callback(signal.signal, number, signal.signal(number, self._interrupt))
            self._began = time.monotonic()
            # A signal to the launcher's own group reaches the job's processes here, and never this command.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=self._out, stderr=self._err, process_group=0
            )
            self._kept = kept.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the processes that still run, and close the files."""
        self._waiting = False
        self._end()
        self._kept.close()
        if self._interrupted and kind is None:
            raise KeyboardInterrupt

    def _interrupt(self, *_: object) -> None:
        self._interrupted = True
        if self._waiting:
            self._waiting = False
            raise KeyboardInterrupt

    def wait(self, seconds: float) -> JobEnd:
        """Wait for the end of the job; end it after `seconds`."""
        code: int | None
        try:
            self._waiting = True
            if self._interrupted:
                raise KeyboardInterrupt
            code = self._process.wait(max(0.0, seconds - (time.monotonic() - self._began)))
            self._waiting = False
        except subprocess.TimeoutExpired:
            self._waiting = False
            code = None
            self._end()
        took = time.monotonic() - self._began
        return JobEnd(read(self._word, _text(self._out)), code, took, _text(self._err).strip())

    def _end(self) -> None:
        """Make the launcher end its job, and kill the rest of its process group."""
        if self._process.poll() is None:
            self._signal(signal.SIGTERM)
            try:
                self._process.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                pass
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: int) -> None:
        try:
            os.killpg(self._process.pid, number)
        except (ProcessLookupError, PermissionError):
            return


def _text(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode(errors="replace"))
