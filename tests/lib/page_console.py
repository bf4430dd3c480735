"""The folder and the shell in which the console blocks of a part of a page run."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lib import blocks, machine, provision

DOCS = machine.ROOT / "docs"


PROGRAMS = Path(__file__).parents[1] / "pages" / "programs"


LIMIT = 240.0


MPI = "mpi4py"


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _python(part: str) -> str:
    if part != MPI:
        return sys.executable
    found = provision.mpi4py()
    if found is None or not list(found.parents[1].glob(f"lib/python3.{sys.version_info.minor}")):
        machine.lacking("Open MPI with mpi4py for this Python, which tests/lib/provision.py fetches")
    return str(found)


@pytest.fixture
def folder(tmp_path: Path, part: str) -> Path:
    """A folder with the programs that pages show, and those that this part of a page supposes."""
    for path in (DOCS / "examples").rglob("*.py"):
        if "test" not in path.name:
            shutil.copy(path, tmp_path)
    for path in (PROGRAMS / part).glob("*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "docs").symlink_to(DOCS)
    (tmp_path / "endpoints.py").write_text(blocks.first_program())
    return tmp_path


@pytest.fixture
def environment(folder: Path, part: str) -> dict[str, str]:
    """`python`, `pypmix` and launchers that take root for a user are found, in `.venv` as well."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    path = os.pathsep.join([str(machine.ROOT), *filter(None, sys.path)])
    own = f'PYTHONPATH="{path}" ' if part == MPI else ""
    _script(programs / "python", f'{own}exec {_python(part)} "$@"')
    _script(programs / "pypmix", f'exec {sys.executable} -m pypmix "$@"')
    (programs / "activate").touch()
    launcher = next((each for each in machine.launchers() if each.name.startswith("prterun")), None)
    if launcher is not None:
        options = shlex.join(machine.PRTERUN_OPTIONS)
        _script(
            programs / "prterun", f'[ "$1" = --allow-run-as-root ] || set -- {options} "$@"\nexec {launcher.path} "$@"'
        )
    folders = {"HOME": str(folder), "TMPDIR": str(folder / "tmp")}
    (folder / "tmp").mkdir()
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**machine.clean_environment(), **folders, **root, "PATH": f"{programs}:{os.environ['PATH']}"}


def printed(command: list[str], folder: Path, environment: dict[str, str]) -> tuple[str, int]:
    """Run a command to its end, and return what it and all that it has started have printed, and its exit code."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=LIMIT)[0], process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            raise AssertionError(f"no end:\n{process.communicate(timeout=20)[0]}") from None
        os.killpg(process.pid, signal.SIGKILL)
        raise
