"""Daemons of one session, on this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import processes

HERE = Path(__file__).parents[1] / "daemons"


RANKS = str(HERE / "ranks.py")


SECONDS = 75.0


class Session:
    """A launcher with its daemons.

    Args:
        folder: Where it is started, and where the nodes have their folders.
        given: What `launcher.py` is told.
    """

    def __init__(self, folder: Path, given: dict[str, object], stdin: int | None = None) -> None:
        self.folder = folder
        self.mark = uuid.uuid4().hex
        env = {**os.environ, processes.MARK: self.mark}
        words = [sys.executable, str(HERE / "launcher.py"), json.dumps({"folder": str(folder), **given})]
        given_input = subprocess.DEVNULL if stdin is None else stdin
        with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                words, cwd=folder, env=env, stdin=given_input, stdout=out, stderr=err, start_new_session=True
            )

    @property
    def out(self) -> list[str]:
        return (self.folder / "out").read_text().splitlines()

    @property
    def err(self) -> str:
        return (self.folder / "err").read_text()

    @property
    def outcome(self) -> str:
        lines = [line for line in self.err.splitlines() if line.startswith(("OUTCOME", "REFUSED"))]
        return lines[-1] if lines else ""

    def pid(self, node: str) -> int:
        """Return the pid of a node's daemon."""
        return int((self.folder / f"{node}.pid").read_text())

    def say(self, word: list[str]) -> None:
        """Have the roster say something."""
        with (self.folder / "words").open("a") as file:
            file.write(json.dumps(word) + "\n")

    def until(self, happened: Callable[[], bool], what: str) -> None:
        """Wait for something; what there is instead is the error."""
        deadline = time.monotonic() + SECONDS
        while not happened():
            assert time.monotonic() < deadline and self.process.poll() is None, f"{what} has not come\n{self.told()}"
            time.sleep(0.02)

    def end(self) -> int:
        """Wait for the end; the launcher is asked what is pending where that does not come."""
        try:
            code = self.process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGUSR1)
            time.sleep(4)
            pytest.fail(f"the launcher does not end\n{self.told()}")
        self.gone(10.0)
        return code

    def gone(self, seconds: float) -> None:
        """Nothing is left of the session in time, no process and no folder."""
        left = processes.wait_gone(self.mark, seconds)
        assert not left, f"left behind:\n{processes.tree(left)}\n{self.told()}"
        deadline = time.monotonic() + seconds
        while (found := [*self.folder.glob("n*/pypmix-*")]) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not found

    def told(self) -> str:
        return f"--- stdout\n{chr(10).join(self.out[-40:])}\n--- stderr\n{self.err[-6000:]}"


Start = Callable[..., Session]


def ranks(np: int, what: str) -> list[object]:
    return [np, sys.executable, RANKS, what]


def shell(np: int, text: str) -> list[object]:
    return [np, "sh", "-c", text]
