"""A stranger with a bare Debian 12 and its Python follows README and the tutorial, and nothing else.

The commands of both pages are run as they stand there, in one shell, as a user without rights, where there is no
compiler, no libpmix and no launcher; what they print is compared. The way ends with a group on two nodes that survives
a killed rank. What pip would get from the index comes from a folder, with wheels of the project and of all it needs.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from lib import blocks, machine, provision_roots
from lib.blocks import Block

ENTER = Path(__file__).with_name("enter.sh")
NAMESPACES = ("--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--net")
LIMIT = 450.0
BUILD = "import sys, backend; _, *to = sys.argv; print(backend.build_sdist(to[0])); print(backend.build_wheel(to[1]))"
NAME = "pypmix-hpc"

BARE = """
for each in gcc cc make prterun mpirun srun; do ! command -v $each || exit 1; done
id -u
! ls /usr/lib/*/libpmix*
"""
"""Prints the user's number, and succeeds where none of these is there."""

SURVIVORS = [f"rank {rank}: all of team [0, 1, 2] are here" for rank in range(3)]


class Saved(NamedTuple):
    """A program that a page tells to save."""

    name: str
    text: str


def entered(command: str) -> Block:
    """Return a block of a command that prints nothing to look at."""
    return Block("the walk", "walk", "console", 0, f"$ {command}\n")


def steps(page: str) -> Iterator[Saved | Block]:
    """Return what a page tells to do, in its order."""
    path = machine.ROOT / page
    text = path.read_text()
    name = ""
    pattern = r"[Ss]ave this as `([\w.]+)`|^<!-- program: (\S+?) -->\n|^```(console|python)\n(.*?)^```"
    for match in re.finditer(pattern, text, re.MULTILINE | re.DOTALL):
        if match[1]:
            name = match[1]
        elif match[2] or (match[3] == "python" and name):
            assert name, f"{page} does not say how to save {match[2]}"
            yield Saved(name, (path.parent / match[2]).read_text() if match[2] else match[4])
            name = ""
        elif match[3] == "console":
            yield Block(page, path.stem, "console", text.count("\n", 0, match.start()) + 2, match[4])


def of_tutorial() -> list[Saved | Block]:
    """Return the steps of the first two tutorials, with the package by its name, as `docs/learn/install.md` has it."""
    assert f"`{NAME}`" in (machine.ROOT / "docs" / "learn" / "install.md").read_text()
    found = [*steps("docs/learn/first-job.md"), *steps("docs/learn/survive.md")]
    assert isinstance(found[0], Block) and found[0].text.count("pip install .\n") == 1
    found[0] = found[0]._replace(text=found[0].text.replace("pip install .\n", f"pip install {NAME}\n"))
    return found


def script(way: list[Saved | Block]) -> str:
    """Return a script that does the steps of a way, with a line before and after the output of each block."""
    found = []
    for number, step in enumerate(way):
        if isinstance(step, Saved):
            found.append(f"cat > {step.name} <<'END OF FILE'\n{step.text}END OF FILE")
        else:
            shown = "".join(f"echo {shlex.quote(f'$ {each}')}\n" for each in step.script.splitlines())
            found.append(f"{shown}echo '== {number}'\n{step.script}\necho \"== $?\"")
    return "\n".join(found)


@pytest.fixture(scope="module")
def root() -> Path:
    found = provision_roots.root("bookworm")
    if found is None or machine.namespaces_lacking():
        machine.lacking(machine.namespaces_lacking() or "the Debian bookworm root of tests/lib/provision_roots.py")
    assert found is not None
    return found.folder


@pytest.fixture
def index(root: Path, tmp_path: Path) -> Path:
    """A folder with all that pip gets from an index."""
    found = tmp_path / "index"
    shutil.copytree(root / "index", found)
    tools = tmp_path / "tools"
    (setuptools,) = found.glob("setuptools-*.whl")
    zipfile.ZipFile(setuptools).extractall(tools)
    places = os.pathsep.join(map(str, (tools, machine.ROOT / "native")))
    subprocess.run(
        [sys.executable, "-c", BUILD, tmp_path, found],
        cwd=machine.ROOT,
        env={**os.environ, "PYTHONPATH": places, "PYPMIX_BUILD_NATIVE": "0"},
        check=True,
        timeout=LIMIT,
    )
    return found


@pytest.fixture
def home(root: Path, index: Path, tmp_path: Path) -> Path:
    """The stranger's home: the unpacked source, and a folder for the tutorial."""
    found = tmp_path / "home"
    (source,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(found, filter="data")
    (unpacked,) = found.iterdir()
    unpacked.rename(found / "source")
    (found / "job").mkdir()
    user = (root / "home" / "stranger").stat()
    for path in (found, *found.rglob("*")):
        os.chown(path, user.st_uid, user.st_gid, follow_symlinks=False)
    return found


@pytest.mark.timeout(2 * LIMIT + 60)
def test_a_stranger_gets_to_a_group_that_survives_a_killed_rank(root: Path, home: Path, index: Path) -> None:
    way = [entered("cd ~/source"), *steps("README.md"), entered("cd ~/job"), *of_tutorial()]
    enter = ["unshare", *NAMESPACES, "sh", str(ENTER), str(root), str(home), str(index)]
    bare = subprocess.run([*enter, "sh", "-c", BARE], capture_output=True, text=True, timeout=LIMIT)
    assert bare.returncode == 0 and bare.stdout.strip() != "0", bare.stdout + bare.stderr
    done = subprocess.run(
        [*enter, "bash", "-c", script(way)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
    )
    transcript = done.stdout
    print(transcript)
    for number, step in enumerate(way):
        if isinstance(step, Block):
            found = re.search(rf"^== {number}\n(.*?)^== (\d+)$", transcript, re.MULTILINE | re.DOTALL)
            assert found is not None, f"no end of {step.script}\n{transcript}"
            if step.printed:
                blocks.compare(step, found[1], "n0")
            else:
                assert found[2] == "0", f"{step.script}\n{found[1]}"
    assert [line for line in SURVIVORS if line not in transcript.splitlines()] == []
    assert re.search(r"^rank 3 of 4 on node1: a team of 4$", transcript, re.MULTILINE)
    assert "rank 3" in transcript.splitlines()[-2] and "SIGKILL" in transcript.splitlines()[-2]
