"""Runs of pytest with the plugin, in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from lib import machine, processes

ROOT = Path(__file__).parents[2]


OUTER = ("PMIX_", "PYPMIX_", "PYTEST_")


LIMIT = 180


class Ended(NamedTuple):
    """How a run of pytest has ended."""

    code: int
    out: str

    def part(self, title: str) -> str:
        """Return what is shown of a test that has failed."""
        start = self.out.index(f"_ {title} _")
        return self.out[start:].split("\n__", 1)[0]


class Runs:
    """Runs pytest in a folder; nothing may be left of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.mark = f"plugin-{os.getpid()}-{folder}"
        (folder / "tmp").mkdir()
        kept = {name: text for name, text in os.environ.items() if not name.startswith(OUTER)}
        self.env = {**kept, "PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp"), processes.MARK: self.mark}

    def __call__(self, *words: object, folder: Path | None = None) -> Ended:
        command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *map(str, words)]
        if not installed():
            command[3:3] = ["-p", "pypmix.testing.plugin"]
        try:
            ended = subprocess.run(
                command, cwd=folder or self.folder, env=self.env, timeout=LIMIT, check=False,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            report = processes.report(self.mark, self.folder)
            processes.kill(self.mark)
            pytest.fail(f"pytest did not end\n{report}", pytrace=False)
        return Ended(ended.returncode, ended.stdout)


def installed() -> bool:
    """Tell whether this environment's metadata has the entry point yet."""
    from importlib.metadata import entry_points

    return any(each.value == "pypmix.testing.plugin" for each in entry_points(group="pytest11"))


SECONDS = 300


def environment(folder: Path) -> dict[str, str]:
    # What the tests' Python has, for another one of the same version.
    path = os.pathsep.join([str(machine.ROOT), *filter(None, sys.path)])
    settings = {"OMP_NUM_THREADS": "1", "OMPI_MCA_btl": "self,sm,tcp", "OMPI_MCA_btl_tcp_if_include": "lo"}
    return {**machine.clean_environment(), "PYTHONPATH": path, "TMPDIR": str(folder), **settings}


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "tmp").mkdir()
    return subprocess.run(
        words, cwd=folder, env=environment(folder / "tmp"), capture_output=True, text=True, timeout=SECONDS, check=False
    )


def outcome(folder: Path, python: str, text: str) -> str:
    (folder / "test_it.py").write_text(text)
    plugin = () if installed() else ("-p", "pypmix.testing.plugin")
    ended = run(folder, python, "-m", "pytest", "-p", "no:cacheprovider", *plugin, "-q", "test_it.py")
    return ended.stdout + ended.stderr
