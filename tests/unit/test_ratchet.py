"""The house gets no worse: import circles, private accesses, literals, and words to avoid may only get fewer."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from lib import figures
from lib.figures import Source

LIMITS: dict[str, dict[str, int]] = json.loads(figures.LIMITS.read_text())


@pytest.mark.timeout(200)
def test_nothing_grows() -> None:
    grown = [
        f"{topic}: {name}: {number}, at most {limit}"
        for topic, counts in figures.limited(figures.ROOT).items()
        for name, number in counts.items()
        if number > (limit := LIMITS.get(topic, {}).get(name, 0))
    ]
    assert not grown, "see `python tests/measure.py --sites` and `--words`, and CONTRIBUTING.md"


def source(text: str, path: str = "a.py") -> Source:
    return Source(path, text, list(ast.walk(ast.parse(text))), False)


def test_the_habits_are_seen() -> None:
    text = '''
"""What it is."""
import os
def look(self, other):
    """Who knows."""
    os._exit(-29)
    self._x = other._y.z + super()._w
    return __import__("pmix.key") if -1 else importlib.import_module("x")
'''
    each = source(text)
    assert [site.text for site in figures.private_accesses(each)] == ["other._y"]
    assert len(figures.dynamic_imports(each)) == 2
    assert [site.text for site in figures.key_literals(each)] == ["pmix.key"]
    assert [site.text for site in figures.status_literals(each)] == ["-29"]
    assert len(figures.riddles(each)) == 2
    assert not figures.long_functions(each)
    assert figures.long_functions(source("def f():\n" + "    pass\n" * 50))


def test_circles_are_seen_through_functions_and_not_through_types() -> None:
    files = [
        source("from pypmix import b", "a.py"),
        source("from pypmix.c import x\nif TYPE_CHECKING:\n    from pypmix.d import y", "b.py"),
        source("def f():\n    import pypmix.a", "c.py"),
        source("import pypmix.a", "d.py"),
    ]
    assert figures.circles(files) == [["pypmix.a", "pypmix.b", "pypmix.c"]]


def test_words_are_seen_over_line_ends_and_in_names() -> None:
    words = figures.avoided("| Avoid | Say |\n|---|---|\n| `ticket*`, `is no` | call |\n")
    assert set(words) == {"ticket*", "is no"}
    assert words["ticket*"].findall("Tickets, _ticket_of, stickets")[:2] == ["Tickets", "ticket"]
    assert len(words["is no"].findall("it is\n    # no member, is not, this no")) == 1


def test_the_glossary_names_what_it_says_of_code() -> None:
    text = (figures.ROOT / "docs" / "reference" / "glossary.md").read_text()
    for path in ("engine/groups/agent.py",):
        assert f"`{path}`" in text
        assert (Path(figures.ROOT) / "pypmix" / path).exists()
