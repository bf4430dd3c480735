"""Sessions of daemons on this machine: started by `launcher.py`, and looked after until nothing of them is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lib import processes
from lib.daemon_session import Session


@pytest.fixture
def session(tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Return a function that starts a session; see `launcher.py` for what it is told."""
    started: list[Session] = []

    def start(*apps: list[object], stdin: int | None = None, **given: object) -> Session:
        given = {"nodes": {"n0": 2, "n1": 2}, "apps": apps, **given}
        started.append(Session(tmp_path, given, stdin))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.wait()
        processes.kill(each.mark)
