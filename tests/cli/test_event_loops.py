"""Event loops that nobody here wrote: that of uvloop."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from lib import machine
from lib.command import Command


@pytest.mark.parametrize("engine", ["python", "native"])
def test_uvloop(command: Command, engine: str) -> None:
    if importlib.util.find_spec("uvloop") is None:
        machine.lacking("uvloop")
    if engine == "native" and not (machine.extension() and machine.libraries()):
        machine.lacking("the native engine's extension or a libpmix")
    program = Path(__file__).with_name("uvloop_rank.py")
    ended = command("run", "-n", "2", "env", f"PYPMIX_ENGINE={engine}", sys.executable, str(program))
    assert ended.code == 0, ended.err
    assert sorted(ended.lines) == [f"{rank} [0, 1, [0, 1]] True" for rank in range(2)]
