"""Runs the `pypmix` command for real, with a time limit, and tells what it left behind."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, NamedTuple

import pytest

import pypmix
from lib import processes

ROOT = Path(pypmix.__file__).parents[1]
LIMIT = 30.0
OUTER = ("PMIX_", "OMPI_", "PRTE_", "PYPMIX_")


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: bytes
    err: bytes

    @property
    def lines(self) -> list[str]:
        return self.out.decode().splitlines()

    @property
    def message(self) -> str:
        """What the launcher itself said."""
        return self.err.decode()[self.err.decode().find("pypmix run: ") :].partition("\nTry ")[0].strip()


class Command:
    """Runs `python -m pypmix` with a mark that every process it starts carries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        self.mark = uuid.uuid4().hex
        self.environment = {name: text for name, text in os.environ.items() if not name.startswith(OUTER)}
        self.environment |= {
            "PYTHONPATH": str(ROOT),
            "TMPDIR": str(self.temporary),
            "LC_ALL": "C.UTF-8",
            processes.MARK: self.mark,
        }
        self.started: list[subprocess.Popen[bytes]] = []

    def start(
        self,
        *words: object,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] = subprocess.PIPE,
        stderr: int | IO[bytes] = subprocess.PIPE,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start the command and return its process."""
        return self._start([sys.executable, "-m", "pypmix", *map(str, words)], stdin, stdout, stderr, env, cwd)

    def start_words(self, words: list[str], stdin: int | IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a program that becomes the command."""
        return self._start(words, stdin, subprocess.PIPE, subprocess.PIPE, None, None)

    def start_shell(self, line: str) -> subprocess.Popen[bytes]:
        """Start a shell that becomes the command."""
        return self._start(["sh", "-c", line], subprocess.DEVNULL, subprocess.PIPE, subprocess.PIPE, None, None)

    def _start(
        self,
        words: list[str],
        stdin: int | IO[bytes],
        stdout: int | IO[bytes],
        stderr: int | IO[bytes],
        env: Mapping[str, str] | None,
        cwd: Path | None,
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            words,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            env={**self.environment, **(env or {})},
            cwd=cwd or self.folder,
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def end(self, process: subprocess.Popen[bytes], data: bytes | None = None) -> Ended:
        """Wait for a started command."""
        try:
            out, err = process.communicate(data, timeout=LIMIT)
        except subprocess.TimeoutExpired:
            report = processes.report(self.mark, self.folder)
            self.kill()
            pytest.fail(f"{process.args} did not end within {LIMIT} s\n{report}", pytrace=False)
        return Ended(process.returncode, out, err)

    def __call__(self, *words: object, data: bytes | None = None, **options: object) -> Ended:
        """Run the command to its end."""
        if data is not None:
            options["stdin"] = subprocess.PIPE
        return self.end(self.start(*words, **options), data)  # type: ignore[arg-type]

    def kill(self) -> None:
        processes.kill(self.mark)
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait(5)

    def wait_for(self, name: str, count: int = 1) -> list[str]:
        """Wait until files of this name have been written by `count` ranks, and return their texts."""
        deadline = time.monotonic() + LIMIT / 2
        while time.monotonic() < deadline:
            found = [path.read_text() for path in sorted(self.folder.glob(f"{name}.*"))]
            if len([text for text in found if text.endswith("\n")]) >= count:
                return [text.strip() for text in found]
            time.sleep(0.01)
        report = processes.report(self.mark, self.folder)
        self.kill()
        pytest.fail(f"{count} ranks were to write {name}.*\n{report}", pytrace=False)

    def left(self) -> list[str]:
        """Return the processes and files that should be gone by now, after a moment for those that are just ending."""
        found = []
        # The grace of 5 s, and as much on a busy machine.
        for process in processes.wait_gone(self.mark, 20):
            found.append(f"process {process.pid}: {process.command}")
        deadline = time.monotonic() + 5
        while (guards := processes.guards(self.temporary)) and time.monotonic() < deadline:
            time.sleep(0.02)
        found += [f"process {process.pid}: {process.command:.60}" for process in guards]
        return found + [f"file {path}" for path in self.temporary.iterdir()]


@contextlib.contextmanager
def strict_command(folder: Path) -> Iterator[Command]:
    """The `pypmix` command in a folder; at the end nothing of what it started may be left."""
    runner = Command(folder)
    yield runner
    left = runner.left()
    runner.kill()
    assert not left


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The `pypmix` command; after the test nothing of what it started may be left."""
    with strict_command(tmp_path) as runner:
        yield runner
