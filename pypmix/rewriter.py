"""Rewrite programs that use old names of pypmix: `python -m pypmix.rewriter [--check] FILE...`.

It replaces what the table of changed names says, prints each change, and leaves all other text as it is. Methods and
parameters are found by their names alone, in programs that import pypmix. An old name that other classes may have
as well is only reported. With `--check` nothing is written, and the
exit code is 1 if a file uses an old name.
"""

from __future__ import annotations

import ast
import sys
from concurrent.futures import Future
from pathlib import Path
from pkgutil import resolve_name

from pypmix.moves import MOVES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeAlias

    Edit: TypeAlias = tuple[int, int, str]

WIDTH = 88
"""The length from which an import statement is broken into lines."""


class Rewriter:
    """The changes of one program, as places in its text.

    Args:
        text: The program.

    Raises:
        SyntaxError: The text is not a Python program.
    """

    def __init__(self, text: str) -> None:
        self._data = text.encode()
        self._starts = [0]
        for line in self._data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        self._edits: list[Edit] = []
        self.changes: list[tuple[int, str, str]] = []
        """The line of each change, with the old and the new text."""
        self.notes: list[tuple[int, str]] = []
        """The line of each name that may be an old one, with the old name that it may be."""
        tree = ast.parse(text)
        self._bound = _bindings(tree)
        self._unbound: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                self._change_import(node)
            elif isinstance(node, ast.Attribute):
                self._change_attribute(node)
            elif isinstance(node, ast.Call):
                self._change_parameters(node)
        if self._unbound:
            first = next(
                node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and _own(node)
            )
            start = self._offset(first.lineno, 0)
            self._edits.append((start, start, "import pypmix\n"))

    def _offset(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _change(self, line: int, start: int, end: int, new: str) -> None:
        self.changes.append((line, self._data[start:end].decode(), new))
        self._edits.append((start, end, new))

    def _change_import(self, node: ast.ImportFrom) -> None:
        moved: dict[str, list[str]] = {}
        kept: list[str] = []
        for alias in node.names:
            new = MOVES.get(f"{node.module}.{alias.name}") if node.level == 0 else None
            module, _, name = (new or "").rpartition(".")
            local = alias.asname or alias.name
            if new is None:
                kept.append(_aliased(alias.name, local))
            else:
                moved.setdefault(module, []).append(_aliased(name, local))
        if not moved:
            return
        assert node.module is not None and node.end_lineno is not None and node.end_col_offset is not None
        start, end = self._offset(node.lineno, node.col_offset), self._offset(node.end_lineno, node.end_col_offset)
        indent = "\n" + self._data[self._starts[node.lineno - 1] : start].decode()
        parts = [(node.module, kept)] if kept else []
        lines = [_import(module, names) for module, names in (*parts, *sorted(moved.items()))]
        self._change(node.lineno, start, end, "\n".join(lines).replace("\n", indent))

    def _change_attribute(self, node: ast.Attribute) -> None:
        path = self._path(node)
        assert node.end_lineno is not None and node.end_col_offset is not None
        end = self._offset(node.end_lineno, node.end_col_offset)
        if path is None:
            new = METHODS.get(node.attr) if self._bound else None
            if new is not None:
                self._change(node.lineno, end - len(node.attr.encode()), end, new)
            elif self._bound and node.attr in AMBIGUOUS:
                self.notes.append((node.lineno, AMBIGUOUS[node.attr]))
        elif path in MOVES:
            self._change(node.lineno, self._offset(node.lineno, node.col_offset), end, self._spelled(MOVES[path]))

    def _change_parameters(self, node: ast.Call) -> None:
        function = str(getattr(node.func, "attr", "") or getattr(node.func, "id", ""))
        for word in node.keywords if self._bound else ():
            new = PARAMETERS.get((function, word.arg or ""))
            if new is not None and word.arg is not None:
                start = self._offset(word.lineno, word.col_offset)
                self._change(word.lineno, start, start + len(word.arg.encode()), new)

    def _path(self, node: ast.expr) -> str | None:
        """Return the whole name of an attribute of a module; None if it is not one."""
        if isinstance(node, ast.Name):
            return self._bound.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self._path(node.value)
            return None if base is None or base.rpartition(".")[2][:1].isupper() else f"{base}.{node.attr}"
        return None

    def _spelled(self, path: str) -> str:
        """Return a whole name as the program can write it."""
        for local, module in self._bound.items():
            if module == "pypmix":
                return local + path.removeprefix("pypmix")
        self._unbound.add(path)
        return path

    def result(self) -> str:
        """Return the program with the new names."""
        data = self._data
        for start, end, new in sorted(self._edits, reverse=True):
            data = data[:start] + new.encode() + data[end:]
        return data.decode()


def _own(node: ast.Import | ast.ImportFrom) -> bool:
    """Return True if a statement imports something of pypmix."""
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return any(module.partition(".")[0] == "pypmix" for module in modules)


def _bindings(tree: ast.AST) -> dict[str, str]:
    """Return what the names that a program imports from pypmix stand for."""
    bound = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and _own(node):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                if alias.name.partition(".")[0] == "pypmix":
                    bound[alias.asname or whole] = whole
        elif isinstance(node, ast.ImportFrom) and _own(node) and node.level == 0:
            for alias in node.names:
                bound[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return bound


def _aliased(name: str, local: str) -> str:
    return name if name == local else f"{name} as {local}"


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def _members(parameters: bool) -> Iterator[tuple[str, str]]:
    """Yield the old and the new names of members of classes, or of their parameters."""
    for old, new in MOVES.items():
        owner = old.partition("(")[0].rpartition(".")[0]
        if old.endswith(")") == parameters and (parameters or owner.rpartition(".")[2][:1].isupper()):
            yield old, new.removeprefix(owner + ".")


def _is_common(name: str) -> bool:
    """Return True if other classes may have a member of this name: if it is one word, or theirs indeed."""
    classes = [*map(resolve_name, CLASSES.split()), str, bytes, dict, list, set, Future, Path]
    return "_" not in name or any(name in dir(each) for each in classes)


CLASSES = (
    "pypmix:Connection pypmix:Event pypmix:EventStream pypmix:Job pypmix:Node pypmix:OutputStream pypmix:SpawnedJob "
    "pypmix.aio:Client pypmix.aio:Group pypmix.aio:Server pypmix.aio:Tool pypmix.groups:Changes pypmix.groups:Invite "
    "pypmix.host:Host pypmix.host:Processes pypmix.host:Request"
)
"""The classes whose members a program may use."""

METHODS: dict[str, str] = {}
"""The new text of each old member with a name of its own."""

AMBIGUOUS: dict[str, str] = {}
"""The whole old name of each other old member."""

for _old, _new in _members(parameters=False):
    _name = _old.rpartition(".")[2]
    if _is_common(_name):
        AMBIGUOUS[_name] = _old
    else:
        METHODS[_name] = _new

PARAMETERS: dict[tuple[str, str], str] = {}
"""The new name of each parameter, by the function and the old name."""

for _old, _new in _members(parameters=True):
    _function, _, _parameter = _old.rstrip(")").partition("(")
    PARAMETERS[_function.rpartition(".")[2], _parameter] = _new


def main(arguments: list[str]) -> int:
    """Rewrite the files that are named in the arguments; return the exit code."""
    check = "--check" in arguments
    paths = [Path(word) for word in arguments if word != "--check"]
    if not paths or any(word.startswith("-") for word in map(str, paths)):
        print("usage: python -m pypmix.rewriter [--check] FILE...", file=sys.stderr)
        return 2
    found = failed = False
    for path in paths:
        try:
            rewriter = Rewriter(path.read_text())
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            print(f"{path}: cannot be rewritten: {error}", file=sys.stderr)
            failed = True
            continue
        for line, old, new in sorted(rewriter.changes):
            found = True
            print(f"{path}:{line}: {' '.join(old.split())} -> {' '.join(new.split())}")
        for line, name in sorted(rewriter.notes):
            print(f"{path}:{line}: this may be {name}, which is now {MOVES[name]}: look at it")
        if rewriter.changes and not check:
            path.write_text(rewriter.result())
    return 2 if failed else int(check and found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
