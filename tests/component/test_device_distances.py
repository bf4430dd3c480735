"""Bound ranks get the distances of their node's devices, the same as under prterun."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine
from lib.command import Command

pytestmark = pytest.mark.timeout(120)

SHOWS = """
import pypmix
from pypmix import attrs
with pypmix.Client() as me:
    found = me.get(attrs.DEVICE_DISTANCES, me.proc, default=())
    print("found", [(each.uuid, each.osname, each.type, each.mindist, each.maxdist) for each in found], flush=True)
"""


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


def distances(text: str) -> list[tuple[object, ...]]:
    (line,) = [line for line in text.splitlines() if line.startswith("found ")]
    return list(ast.literal_eval(line.removeprefix("found ")))


@pytest.mark.parametrize("level", ["core", "none"])
def test_they_are_those_of_prterun(command: Command, level: str) -> None:
    ours = command("run", "-n", 1, "--bind-to", level, sys.executable, "-c", SHOWS)
    assert ours.code == 0, ours.err
    found = distances(ours.out.decode())
    if level == "none":
        assert found == []
    launcher = next((each for each in machine.launchers() if each.name.startswith("prterun")), None)
    if launcher is None:
        machine.lacking("prterun")
    assert launcher is not None
    words = [launcher.path, "--allow-run-as-root", "--bind-to", level, "-n", "1", sys.executable, "-c", SHOWS]
    theirs = subprocess.run(words, capture_output=True, text=True, timeout=60, env=os.environ, check=False)
    assert theirs.returncode == 0, theirs.stderr
    assert found == distances(theirs.stdout)
