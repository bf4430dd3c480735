"""Rules about the source that no linter knows."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from pypmix.standard import attrs, codes, enums, keys, statuses
from pypmix.standard.attr import Attr

PACKAGE = Path(__file__).resolve().parents[2] / "pypmix"
GENERATED = {
    PACKAGE / "standard" / f"{name}.py"
    for name in ["codes", "dictionary", "enums", "features", "keys", "names", "statuses"]
}
SOURCES = sorted({*PACKAGE.rglob("*.py")} - GENERATED)

NO_KEYS = {"pmix."}
"""The prefix of all keys."""

FIRST_STATUS = 7
"""Numbers nearer to zero are statuses too, but mostly mean something else."""


def literals(text: str) -> list[tuple[int, str]]:
    """Return the line and the text of each key and status that stands as a literal."""
    tree = ast.parse(text)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            if re.fullmatch(r"pmix\.[a-z0-9.]*", node.value) and node.value not in NO_KEYS:
                found.append((node.lineno, node.value))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            number = node.operand.value
            if isinstance(number, int) and number >= FIRST_STATUS and -number in numbers:
                found.append((node.lineno, str(-number)))
    return found


numbers = {value for value in vars(statuses).values() if isinstance(value, int)}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_keys_and_statuses_come_from_the_vocabulary(path: Path) -> None:
    found = literals(path.read_text())
    assert not found, "write keys.NAME and statuses.NAME, of pypmix.standard"


def test_literals_are_seen() -> None:
    text = 'A = "pmix.timeout"\nif status == -24:\n    """pmix.timeout"""\nfile = f"pmix.{host}"\nlast = all[-1]\n'
    assert literals(text) == [(1, "pmix.timeout"), (2, "-24")]


def test_plain_names_are_the_typed_ones() -> None:
    typed = {name: attr.key for name in attrs.__all__ if isinstance(attr := getattr(attrs, name), Attr)}
    assert len(typed) > 600
    assert typed == {name: getattr(keys, name) for name in typed}
    for enum, module in ((enums.Status, statuses), (enums.EventCode, statuses), (enums.DataType, codes)):
        plain = {name: getattr(module, name, 500) for name in enum.__members__}
        assert plain == {name: int(member) for name, member in enum.__members__.items()}


# Threads

HARMLESS = {
    "pypmix/host/callbacks/host.py:_live": "asyncio's loop logs what its callbacks raise",
    "pypmix/host/rosters/reach.py:_accept": "it accepts and closes connections, which can fail by an OSError alone",
    "pypmix/host/rosters/meet.py:feed": "it reads a connection to its end, which can fail by an OSError alone",
    "pypmix/jax.py:_answer": "it sends some bytes, which can fail by an OSError alone",
}
"""Targets of threads with a loop that need not catch every exception, and why."""


def starts(tree: ast.AST) -> list[str]:
    """Return the names of functions and methods that a module starts threads with."""
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        targets = [word.value for word in node.keywords if name == "Thread" and word.arg == "target"]
        targets += node.args[:1] if name == "start_new_thread" else []
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                found.append(target.attr)
            elif isinstance(target, ast.Name):
                found.append(target.id)
    return found


def unguarded(text: str) -> list[str]:
    """Return the targets of threads that loop and do not catch every exception, in the loop or around it."""
    tree = ast.parse(text)
    names = set(starts(tree))
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name not in names:
            continue
        loops = any(isinstance(each, ast.While) for each in ast.walk(node))
        caught = {
            getattr(each.type, "id", "") for each in ast.walk(node) if isinstance(each, ast.ExceptHandler) and each.type
        }
        if loops and not caught & {"Exception", "BaseException"}:
            found.append(node.name)
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_no_thread_ends_unseen(path: Path) -> None:
    """A thread that serves others must not end by an exception of one of them: the others would wait for ever."""
    place = path.relative_to(PACKAGE.parent).as_posix()
    found = [name for name in unguarded(path.read_text()) if f"{place}:{name}" not in HARMLESS]
    assert not found, "catch Exception in the loop, and log it by `engine.faults.fault`"


def test_unguarded_threads_are_seen() -> None:
    text = """
class A:
    def begin(self):
        threading.Thread(target=self.bad).start()
        threading.Thread(target=self.good).start()
        _thread.start_new_thread(once, ())
    def bad(self):
        while True:
            try: serve()
            except OSError: pass
    def good(self):
        while True:
            try: serve()
            except Exception: log()
def once():
    serve()
"""
    assert unguarded(text) == ["bad"]
