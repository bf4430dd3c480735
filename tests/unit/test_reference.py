"""The reference: its index has each public class, and the page that a line links to shows that class."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import Path

import pytest

import pypmix
import pypmix.aio
import pypmix.groups
import pypmix.host

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"
LISTED = re.findall(r"\[`([\w.]+)`\]\(([\w-]+)\.md\)", (REFERENCE / "api.md").read_text())
CLASSES = [
    (f"{part}{name}", f"{module.__name__}.{name}")
    for part, module in (("", pypmix), ("aio.", pypmix.aio), ("groups.", pypmix.groups))
    for name in dir(module)
    if isinstance(kind := getattr(module, name), type) and not issubclass(kind, (Enum, Exception)) and name[0] != "_"
]


def test_there_are_classes() -> None:
    assert {"Client", "aio.Client", "Group", "groups.Invite"} <= {name for name, _ in CLASSES}


@pytest.mark.parametrize(("name", "path"), CLASSES)
def test_each_public_class_has_a_line_and_a_page(name: str, path: str) -> None:
    pages = dict(LISTED)
    assert name in pages, f"docs/reference/api.md lacks {name}"
    assert f"autoclass:: {path}\n" in (REFERENCE / f"{pages[name]}.md").read_text()


def test_the_index_names_no_class_twice() -> None:
    names = [name for name, _ in LISTED]
    assert len(names) == len({*names})
