"""The page "Where does a change belong?" names files, folders, and objects that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "how-it-works" / "changes.md").read_text()
ROWS = [line for line in TEXT.splitlines() if line.startswith("| ")][1:]
PATH = re.compile(r"`((?:[\w.-]+/)*(?:[\w-]+\.(?:py|c|h|tsv|ini|md)|[\w-]+/))`")
OBJECT = re.compile(r"`([\w/]+\.py)`: `(\w[\w.]*)`")


def find(path: str) -> Path:
    """Return a file or folder of the checkout, or else of the package."""
    return ROOT / path if (ROOT / path).exists() else ROOT / "pypmix" / path


def objects_in(path: Path) -> set[str]:
    """Return the functions, classes, methods and constants of a file."""
    names: set[str] = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            if isinstance(node, ast.ClassDef):
                names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_it_has_some_twenty_examples_that_each_name_a_place() -> None:
    assert len(ROWS) >= 20
    assert [row for row in ROWS if not PATH.search(row.split("|")[2])] == []


def test_its_files_and_folders_exist() -> None:
    assert [path for path in PATH.findall(TEXT) if not find(path).exists()] == []


def test_its_objects_exist() -> None:
    named = [(path, name) for path, name in OBJECT.findall(TEXT) if name not in objects_in(find(path))]
    assert len(OBJECT.findall(TEXT)) > 25
    assert named == []
