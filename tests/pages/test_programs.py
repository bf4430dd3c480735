"""Programs in pages are the files that the tests run, and links have a text."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lib.machine import ROOT

SCRIPT = ROOT / "docs" / "_ext" / "programs.py"
PROGRAM = '''"""A program."""

import sys


class Ring:
    def next(self, rank):
        return rank + 1


    # The end.
'''


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, for a folder of its own with the file `ring.py`."""
    specification = importlib.util.spec_from_file_location("programs", SCRIPT)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "programs", module)
    specification.loader.exec_module(module)
    monkeypatch.setattr(module, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(module, "ROOT", tmp_path)
    monkeypatch.setattr(sys, "argv", ["programs.py"])
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "ring.py").write_text(PROGRAM)
    (tmp_path / "README.md").write_text("# None\n")
    return module


def page_of(part: str, text: str = "", indent: str = "") -> str:
    return f"Look:\n\n{indent}<!-- program: ring.py{part} -->\n{indent}```python\n{text}{indent}```\n\nDone.\n"


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("", PROGRAM),
        (", lines 3-3", "import sys\n"),
        (", lines 3-", PROGRAM.partition("\n\n")[2]),
        (', from "import sys", before "class"', "import sys\n"),
        (', after "import sys", before "def next"', "class Ring:\n"),
        (", object Ring.next, dedent 4", "def next(self, rank):\n    return rank + 1\n"),
        (", object Ring", "class Ring:\n    def next(self, rank):\n        return rank + 1\n"),
    ],
)
def test_a_block_is_written_from_its_file(programs: ModuleType, tmp_path: Path, part: str, text: str) -> None:
    page = tmp_path / "docs" / "page.md"
    page.write_text(page_of(part))
    assert programs.main() == 0
    assert page.read_text() == page_of(part, text)


def test_a_block_in_a_list_is_indented(programs: ModuleType, tmp_path: Path) -> None:
    page = tmp_path / "docs" / "page.md"
    page.write_text(page_of(", lines 3-3", indent="  "))
    assert programs.main() == 0
    assert page.read_text() == page_of(", lines 3-3", "  import sys\n", indent="  ")


def test_a_block_that_differs_fails_the_check_and_stays(
    programs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "docs" / "page.md"
    before = page_of(", lines 3-3", "import os\n")
    page.write_text(before)
    monkeypatch.setattr(sys, "argv", ["programs.py", "--check"])
    assert programs.main() == 1
    assert page.read_text() == before
    assert "page.md: a program differs from its file" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("part", "why"),
    [(', from "nothing"', "no line begins with 'nothing'"), (", object Square", "there is no Square")],
)
def test_a_part_that_does_not_exist_is_named(
    programs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], part: str, why: str
) -> None:
    (tmp_path / "docs" / "page.md").write_text(page_of(part))
    assert programs.main() == 1
    assert f"page.md: ring.py: {why}" in capsys.readouterr().err


def test_a_file_that_does_not_exist_is_named(
    programs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs" / "page.md").write_text(page_of("").replace("ring.py", "star.py"))
    assert programs.main() == 1
    assert "star.py" in capsys.readouterr().err


def test_a_link_without_text_is_refused(
    programs: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "docs" / "page.md").write_text("See [](other.md) and ![](picture.svg).\n")
    assert programs.main() == 1
    assert capsys.readouterr().err == "docs/page.md: a link without text: [](other.md)\n"


def test_the_pages_show_the_files() -> None:
    subprocess.run([sys.executable, SCRIPT, "--check"], check=True, timeout=60)
