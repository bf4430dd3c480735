"""The `command` fixture: the `pypmix` command, which must leave nothing behind."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.command import Command


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The `pypmix` command; after the test nothing of what it started may be left."""
    runner = Command(tmp_path)
    yield runner
    for process in runner.started:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(10)
    left = runner.left()
    runner.kill()
    assert not left
