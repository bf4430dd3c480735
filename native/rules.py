"""Check the source by rules that no linter knows; the exit code is 1 if something breaks them.

Keys and statuses are written by the names that `pypmix.standard` has for them, and a thread that serves others does not
end by an exception of one of them. Needs nothing but the standard library.
"""

from __future__ import annotations

import ast
import re
import runpy
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "pypmix"
STANDARD = PACKAGE / "standard"
GENERATED = {
    STANDARD / f"{name}.py" for name in ("codes", "dictionary", "enums", "features", "keys", "names", "statuses")
}

NO_KEYS = {"pmix."}
"""The prefix of all keys."""

FIRST_STATUS = 7
"""Numbers nearer to zero are statuses too, but mostly mean something else."""

STATUSES = {value for value in runpy.run_path(str(STANDARD / "statuses.py")).values() if isinstance(value, int)}

HARMLESS = {
    "pypmix/host/callbacks/host.py:_live": "asyncio's loop logs what its callbacks raise",
    "pypmix/host/rosters/meet.py:feed": "it reads a connection to its end, which can fail by an OSError alone",
    "pypmix/jax.py:_answer": "it sends some bytes, which can fail by an OSError alone",
}
"""Targets of threads with a loop that need not catch every exception, and why."""


def literals(tree: ast.AST) -> list[tuple[int, str]]:
    """Return the line and the text of each key and status that is written as a literal."""
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            if re.fullmatch(r"pmix\.[a-z0-9.]*", node.value) and node.value not in NO_KEYS:
                found.append((node.lineno, node.value))
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
            number = node.operand.value
            if isinstance(number, int) and number >= FIRST_STATUS and -number in STATUSES:
                found.append((node.lineno, str(-number)))
    return found


def thread_targets(tree: ast.AST) -> set[str]:
    """Return the names of functions and methods that a module starts threads with."""
    found = set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        targets = [word.value for word in node.keywords if name == "Thread" and word.arg == "target"]
        targets += node.args[:1] if name == "start_new_thread" else []
        for target in targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
                found.add(target.attr)
            elif isinstance(target, ast.Name):
                found.add(target.id)
    return found


def unguarded(tree: ast.AST) -> list[tuple[int, str]]:
    """Return the targets of threads that loop and do not catch every exception, in the loop or around it."""
    names = thread_targets(tree)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef) or node.name not in names:
            continue
        loops = any(isinstance(each, ast.While) for each in ast.walk(node))
        caught = {
            getattr(each.type, "id", "") for each in ast.walk(node) if isinstance(each, ast.ExceptHandler) and each.type
        }
        if loops and not caught & {"Exception", "BaseException"}:
            found.append((node.lineno, node.name))
    return found


def check(path: Path, excused: set[str]) -> list[str]:
    """Return a line for each place of a file that breaks a rule; add the exceptions that it needs to `excused`."""
    place = path.relative_to(PACKAGE.parent).as_posix()
    tree = ast.parse(path.read_text())
    lines = [
        f"{place}:{line}: {text}: write keys.NAME or statuses.NAME, of pypmix.standard" for line, text in literals(tree)
    ]
    for line, name in unguarded(tree):
        if f"{place}:{name}" in HARMLESS:
            excused.add(f"{place}:{name}")
        else:
            lines.append(f"{place}:{line}: {name}: catch Exception in the loop, and log it by engine.faults.fault")
    return lines


def main() -> int:
    excused: set[str] = set()
    lines = [line for path in sorted({*PACKAGE.rglob("*.py")} - GENERATED) for line in check(path, excused)]
    lines += [f"native/rules.py: {name} needs no exception" for name in HARMLESS if name not in excused]
    print("".join(f"{line}\n" for line in lines), end="", file=sys.stderr)
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
