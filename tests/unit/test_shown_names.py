"""The launcher's internal name, which begins with a mark, is in no text that a user sees."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import pypmix.host.exchange
from pypmix.host.exchange.errors import listed, make_loss
from pypmix.host.naming import shown
from pypmix.host.session import LAUNCHER

FILES = sorted(Path(pypmix.host.exchange.__file__).parent.glob("*.py"))
LEVELS = {"debug", "info", "warning", "error", "exception", "level"}
NAMES = {"name", "_name", "sender", "other", "peer", "origin"}


def test_the_launcher_is_shown_without_its_mark() -> None:
    assert shown(LAUNCHER) == "launcher" and shown("n1") == "n1"
    assert listed([LAUNCHER, "n1"]) == "servers launcher, n1"
    assert "server launcher has gone" in str(make_loss([LAUNCHER], "fence"))


def bare(call: ast.Call) -> list[str]:
    """Return the names of servers that a log call prints as they are; its text begins with the server that logs."""
    found: list[str] = []
    if not ast.unparse(call.args[0]).startswith("'%s: "):
        return found
    for part in call.args[1:]:
        word = part.attr if isinstance(part, ast.Attribute) else part.id if isinstance(part, ast.Name) else ""
        owner = ast.unparse(part)
        if word in NAMES and ".op." not in owner:
            found.append(owner)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_log_lines_show_the_names_of_servers(path: Path) -> None:
    calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    logged = [
        call
        for call in calls
        if (isinstance(call.func, ast.Attribute) and call.func.attr in LEVELS and ast.unparse(call.func.value) == "log")
        or (isinstance(call.func, ast.Name) and call.func.id == "level")
    ]
    assert [name for call in logged for name in bare(call)] == []
