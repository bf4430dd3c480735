"""Each promise of groups, sets and connections is proven by a test, and each row of what is lacking is about one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from lib.promises import EVERY, LACKS, NAMES

TESTS = Path(__file__).resolve().parents[1]


def proven() -> Iterator[str]:
    # What is asked of hosts alone is proven where a host can be made up.
    for path in sorted([*TESTS.glob("suite/test_*.py"), TESTS / "unit" / "test_server_connections.py"]):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.promise":
                for argument in node.args:
                    assert isinstance(argument, ast.Constant), f"{path.name}: {ast.unparse(node)}"
                    yield argument.value


def test_each_promise_is_proven() -> None:
    found = set(proven())
    assert found <= NAMES, f"nobody has promised {sorted(found - NAMES)}"
    assert not NAMES - found, f"no test proves {sorted(NAMES - found)}"


def test_names_are_unique() -> None:
    assert len(NAMES) == len(EVERY)


def test_what_is_lacking_has_been_promised() -> None:
    assert {lack.feature for lack in LACKS} <= NAMES


def test_the_python_engine_keeps_all() -> None:
    python = [lack for lack in LACKS if lack.client in ("*", "python-client") and lack.server.startswith("python")]
    assert not python
