"""Fixtures of the tests of rosters."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lib.command import Command
from lib.sshd import sshd

__all__ = ["sshd"]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The `pypmix` command; after the test nothing of what it started may be left."""
    runner = Command(tmp_path)
    yield runner
    left = runner.left()
    runner.kill()
    assert not left
