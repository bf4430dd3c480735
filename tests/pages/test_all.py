"""Each block of the documentation is run, or listed with the test that runs it or the reason why none does."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from lib import blocks
from lib.blocks import ROOT, Block

ALL = [block for page in blocks.pages() for block in blocks.of_page(page)]
PROGRAMS = ROOT / "tests" / "pages" / "programs"
SHOWN = sorted(
    {
        (ROOT / page).parent / path
        for page in blocks.pages()
        for path in re.findall(r"^<!-- program: (\S*/examples/[^\s,]+)", (ROOT / page).read_text(), re.MULTILINE)
    }
)


def test_there_are_blocks() -> None:
    assert len([block for block in ALL if block.kind == "console"]) > 70
    assert len([block for block in ALL if block.kind == "python"]) > 40


def test_parts_of_pages_have_names_of_their_own() -> None:
    names = [name for headings in blocks.listed()["parts"].values() for name in headings.values()]
    names += [Path(page).stem for page in blocks.pages()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("where", ["nodes", "elsewhere", "left"])
def test_what_is_listed_is_there(where: str) -> None:
    strange = [
        (part, beginning)
        for part, entries in blocks.listed()[where].items()
        for beginning in entries
        if not any(block.part == part and block.first.startswith(beginning) for block in ALL)
    ]
    assert not strange, "tests/pages/blocks.toml lists blocks that no page has"
    assert all(reason.strip() for entries in blocks.listed()[where].values() for reason in entries.values())


def test_tests_that_run_blocks_are_there() -> None:
    named = {
        test
        for entries in blocks.listed()["elsewhere"].values()
        for tests in entries.values()
        for test in tests.split(", ")
    }
    assert not [test for test in named if not (ROOT / test).is_file()]


def test_all_other_blocks_are_of_languages_that_are_run() -> None:
    left = [
        str(block) for block in ALL if blocks.said(block) is None and block.kind not in ("console", "python", "toml")
    ]
    assert not left, "list them in tests/pages/blocks.toml"


def test_blocks_of_console_have_a_command() -> None:
    assert not [str(block) for block in blocks.to_run("console") + blocks.on_nodes() if not block.script + block.text]


@pytest.mark.parametrize("block", blocks.to_run("python"), ids=str)
def test_blocks_of_python_have_a_program_that_runs_them(block: Block) -> None:
    program = PROGRAMS / block.part / "blocks.py"
    assert program.exists(), f"no program runs {block}: write {program}, or say why not in tests/pages/blocks.toml"


@pytest.mark.parametrize("block", blocks.to_run("toml"), ids=str)
def test_blocks_of_toml_parse(block: Block) -> None:
    assert tomllib.loads(block.text)


@pytest.mark.parametrize("path", SHOWN, ids=lambda path: path.name)
def test_programs_that_pages_show_are_run(path: Path) -> None:
    """By a test that names them or their folder, or by a block that has them on its command line."""
    words = [block.script for block in ALL if block.kind == "console" and (blocks.said(block) or "run")[0] != "left"]
    named = re.compile(rf'\b{path.stem}\b|"examples" / "{path.parent.name}"')
    tests = (ROOT / "tests").rglob("test_*.py")
    assert any(path.name in text for text in words) or any(named.search(test.read_text()) for test in tests)
