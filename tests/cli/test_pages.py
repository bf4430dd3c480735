"""The console blocks of README, the tutorial and other pages of one machine run as they stand, with what they print.

A block is a script: lines after `$ ` are commands, the others are what they print, in any order, with any numbers and
names of jobs and machines. A line of `...` stands for more lines, and `...` at the end of one for the rest of it.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from harness import machine

DOCS = machine.ROOT / "docs"
LIMIT = 60.0
PAGES = {
    "README.md": None,
    "docs/index.md": None,
    "docs/tutorials/first-job.md": None,
    "docs/how-to/groups.md": r"python group\.py",
    "docs/how-to/events.md": r"python events\.py",
    "docs/how-to/publish.md": r"python publish\.py",
}
"""Pages, and what a block's commands have to match; None for all blocks. tests/nodes runs those on clusters."""

ELSEWHERE = re.compile(r"pip install")
"""Commands of `.ci/run`, which installs as README says."""


class Block(NamedTuple):
    """A block of a page: its commands, and the lines that they print."""

    commands: list[str]
    printed: list[str]


def blocks(page: str, wanted: str | None) -> list[Block]:
    found = []
    for text in re.findall(r"^```console\n(.*?)^```", (machine.ROOT / page).read_text(), re.MULTILINE | re.DOTALL):
        lines = text.splitlines()
        block = Block([line[2:] for line in lines if line.startswith("$ ")], [x for x in lines if x[:2] != "$ "])
        script = "\n".join(block.commands)
        if script and not ELSEWHERE.search(script) and (wanted is None or re.search(wanted, script)):
            found.append(block)
    assert found, f"{page} has no such block"
    return found


def masked(line: str) -> str:
    """Return a line without its numbers, and with one name for all jobs and for this machine."""
    line = line.replace(socket.gethostname(), "n0")
    line = re.sub(r"pypmix-n0-\d+-[0-9a-f]+", "JOB", line)
    return re.sub(r"\d+(\.\d+)?", "0", line).strip()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the programs of the pages, under the names that the pages give them."""
    for path in [*(DOCS / "examples").glob("*.py"), *(DOCS / "examples" / "troubles").glob("*.py")]:
        shutil.copy(path, tmp_path)
    first = re.search(r"^```python\n(.*?)^```", (machine.ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert first is not None
    (tmp_path / "endpoints.py").write_text(first[1])
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    for name, words in (("python", sys.executable), ("pypmix", f"{sys.executable} -m pypmix")):
        (programs / name).write_text(f'#!/bin/sh\nexec {words} "$@"\n')
        (programs / name).chmod(0o755)
    (programs / "activate").touch()
    return tmp_path


CASES = [
    pytest.param(block, id=f"{page.rpartition('/')[2]}:{number}")
    for page, wanted in PAGES.items()
    for number, block in enumerate(blocks(page, wanted))
]


@pytest.mark.timeout(LIMIT + 30)
@pytest.mark.parametrize("block", CASES)
def test_blocks_run_as_they_stand(block: Block, folder: Path) -> None:
    path = f"{folder / '.venv' / 'bin'}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", "\n".join(block.commands)],
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    seen = [masked(line) for line in done.stdout.splitlines() if line.strip()]
    rest = list(seen)
    for line in block.printed:
        whole = masked(line.removesuffix("..."))
        if not whole:
            continue
        same = (
            (each for each in rest if each.startswith(whole))
            if line.endswith("...")
            else (each for each in rest if each == whole)
        )
        match = next(same, None)
        assert match is not None, f"not printed: {line}\n{done.stdout}"
        rest.remove(match)
    assert not rest or "..." in block.printed, f"not on the page: {rest}\n{done.stdout}"
