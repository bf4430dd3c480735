"""The console blocks of README and all pages run as they stand, with what they print.

The blocks of a page share a shell and a folder. What a block prints may come in any order, with any numbers and names
of jobs and machines; one that shows nothing has to succeed. A line of `...` stands for more lines, and `...` within one
for any text. A program that a page starts in the background makes the file `ready`.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import blocks, machine, provision
from lib.blocks import Block

DOCS = machine.ROOT / "docs"
PROGRAMS = Path(__file__).with_name("programs")
LIMIT = 240.0
MPI = "docs/how-to/mpi4py.md"
MARK = "-- end of block "
READY = "&\nwhile [ ! -e ready ] && kill -0 $!; do sleep 0.1; done"


def _script(path: Path, text: str) -> None:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def _python(page: str) -> str:
    if page != MPI:
        return sys.executable
    found = provision.mpi4py()
    if found is None or not list(found.parents[1].glob(f"lib/python3.{sys.version_info.minor}")):
        machine.lacking("Open MPI with mpi4py for this Python, which tests/lib/provision.py fetches")
    return str(found)


@pytest.fixture
def folder(tmp_path: Path, page: str) -> Path:
    """A folder with the programs that pages show, and those that this page supposes."""
    for path in (DOCS / "examples").rglob("*.py"):
        if "test" not in path.name:
            shutil.copy(path, tmp_path)
    for path in (PROGRAMS / Path(page).stem).glob("*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "docs").symlink_to(DOCS)
    (tmp_path / "endpoints.py").write_text(blocks.of_page("README.md")[0].text)
    return tmp_path


@pytest.fixture
def environment(folder: Path, page: str) -> dict[str, str]:
    """`python`, `pypmix` and launchers that take root for a user are found, in `.venv` as well."""
    programs = folder / ".venv" / "bin"
    programs.mkdir(parents=True)
    path = os.pathsep.join([str(machine.ROOT), *filter(None, sys.path)])
    own = f'PYTHONPATH="{path}" ' if page == MPI else ""
    _script(programs / "python", f'{own}exec {_python(page)} "$@"')
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


def of_a_page() -> Iterator[tuple[str, list[Block]]]:
    for page in blocks.pages():
        found = [block for block in blocks.to_run("console") if block.page == page and block.script]
        if found:
            yield page, found


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize(("page", "wanted"), list(of_a_page()), ids=lambda each: each if isinstance(each, str) else "")
def test_blocks_run_as_they_stand(page: str, wanted: list[Block], folder: Path, environment: dict[str, str]) -> None:
    if any("prterun" in block.script for block in wanted) and not (folder / ".venv" / "bin" / "prterun").exists():
        machine.lacking("the launcher prterun")
    ends = [re.sub("&$", READY, block.script, flags=re.MULTILINE) + f'\necho "{MARK}$?"' for block in wanted]
    script = "\n".join([*ends, "kill $(jobs -p) 2>/dev/null", "wait"])
    text, _ = printed(["bash", "-c", script], folder, environment)
    parts = re.split(rf"^{MARK}(\d+)\n", text, flags=re.MULTILINE)
    assert len(parts) == 2 * len(wanted) + 1, text
    for block, said, status in zip(wanted, parts[::2], parts[1::2], strict=False):
        if block.printed:
            blocks.compare(block, said)
        else:
            assert status == "0", f"{block} ended with {status}:\n{said}"
