"""`pypmix compat --check`: find the differences for a program for the official binding, without running it.

The differences are rows of `differences.toml`, by topic; the table of the reference has the same rows. `FINDERS` has a
function for each way in which a row shows in a program.
"""

from __future__ import annotations

import ast
import os
import sys
import tomllib

from pypmix.compat.checkprogram import CLASSES, VOID, Call, Program, always_leaves, text_of
from pypmix.standard.record import Record
from pypmix.standard.types import MAX_KEYLEN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

CLEAN = 0
FOUND = 1
UNREADABLE = 2

COMMON = {
    *("init", "finalize", "get", "put", "fence", "publish", "lookup", "unpublish", "spawn"),
    *("connect", "disconnect", "query", "log", "abort", "monitor"),
}
"""Methods that other objects also have, so that calls count only if the object's class is known."""


CALL = "call"
HANDLER = "handler"
COMPARED = "compared"
UNKNOWN = "unknown"
NONE = ""
"""The ways in which the checker finds a difference in a program, `NONE` where it shows in no line of it."""


class Difference(Record):
    """One thing that is not as in the official binding.

    Args:
        name: The method, or the key of a server module; several with spaces between them; empty for what is of none.
        topic: What it is about, a heading of the reference.
        official: What the official binding does.
        here: What pypmix does.
        advice: What to do about it; empty where nothing need be done.
        check: How the checker finds it.
        where: Which of those are meant, a rule of `pypmix.compat.check`; empty for all.
    """

    name: str
    topic: str
    official: str
    here: str
    advice: str = ""
    check: str = NONE
    where: str = ""


TOPICS = {
    "names": "Names and constants",
    "values": "Values",
    "client": "Clients",
    "groups": "Groups",
    "events": "Events and callbacks",
    "server": "Servers",
    "tool": "Tools and schedulers",
}
"""The headings of the reference, in their order."""


def _read_table() -> Iterator[Difference]:
    with open(os.path.join(os.path.dirname(__file__), "differences.toml"), "rb") as file:
        rows = tomllib.load(file)
    for topic in TOPICS:
        for row in rows[topic]:
            yield Difference(**{"name": "", **row}, topic=topic)


TABLE: tuple[Difference, ...] = tuple(_read_table())


class Finding(Record):
    """A difference at a place in a program.

    Args:
        line: The line, from 1.
        column: The column, from 1.
        what: The name in the program that is affected.
        difference: The difference.
    """

    line: int
    column: int
    what: str
    difference: Difference

    def text(self, path: str) -> str:
        """Return the finding in the format of linters."""
        told = self.difference
        advice = f" {told.advice}" if told.advice else ""
        return f"{path}:{self.line}:{self.column}: {self.what}: here: {told.here} Official: {told.official}{advice}"


def _long_key(call: Call) -> bool:
    return any(len(text_of(arg) or "") > MAX_KEYLEN for arg in call.node.args)


def _untyped(call: Call) -> bool:
    given = call.argument(2, "pyval" if call.method == "store_internal" else "val")
    if isinstance(given, ast.Dict):
        keys = [text_of(key) for key in given.keys]
        return None not in keys and "val_type" not in keys
    return isinstance(given, ast.Constant | ast.List | ast.Tuple | ast.JoinedStr)


def _no_key(call: Call) -> bool:
    given = call.argument(1, "ky")
    return isinstance(given, ast.Constant) and given.value is None


def _foreign(call: Call) -> bool:
    return call.of != "PMIxServer" and isinstance(call.argument(1, "pysrc"), ast.Dict)


def _no_peers(call: Call) -> bool:
    given = call.argument(1, "peers")
    return isinstance(given, ast.List | ast.Tuple) and not given.elts


def _on_server(call: Call) -> bool:
    return call.of == "PMIxServer"


def _taken_apart(call: Call) -> bool:
    return isinstance(call.within, ast.Attribute | ast.Subscript | ast.Compare)


RULES: dict[str, Callable[[Call], bool]] = {
    "": lambda call: True,
    "long_key": _long_key,
    "untyped": _untyped,
    "no_key": _no_key,
    "foreign_source": _foreign,
    "no_peers": _no_peers,
    "on_server": _on_server,
    "taken_apart": _taken_apart,
}


def _at(node: ast.AST, what: str, difference: Difference) -> Finding:
    return Finding(getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, what, difference)


def _calls(program: Program, difference: Difference) -> Iterator[Finding]:
    names = difference.name.split()
    if difference.where == "defined_again":
        yield from _find_redefinitions(program, difference)
        return
    for call in program.calls:
        if call.method in names and (call.of or call.method not in COMMON) and RULES[difference.where](call):
            yield _at(call.node.func, call.method, difference)


def _find_redefinitions(program: Program, difference: Difference) -> Iterator[Finding]:
    defined: set[str] = set()
    for call in program.calls:
        if call.method not in ("define_process_set", "delete_process_set"):
            continue
        name = text_of(call.argument(1 if call.method == "define_process_set" else 0, "name"))
        if call.method == "delete_process_set":
            defined.discard(name or "")
        elif name in defined:
            yield _at(call.node.func, call.method, difference)
        elif name is not None:
            defined.add(name)


def _handlers(program: Program, difference: Difference) -> Iterator[Finding]:
    for place, key, value in program.modules():
        if difference.where == "listener" and key == "listener":
            yield _at(place, key, difference)
        function = program.function(value)
        if difference.where == "returns_nothing" and isinstance(function, ast.FunctionDef) and key not in VOID:
            bare = [node for node in ast.walk(function) if isinstance(node, ast.Return) and node.value is None]
            if bare or not always_leaves(function.body):
                yield _at(bare[0] if bare else function, function.name, difference)


def _compared(program: Program, difference: Difference) -> Iterator[Finding]:
    for node, names in program.compared:
        if difference.where in names and "PMIX_SUCCESS" not in names:
            yield _at(node, difference.where, difference)


def _unknown(program: Program, difference: Difference) -> Iterator[Finding]:
    from pypmix import compat
    from pypmix.compat.names import table

    if difference.where == "constants":
        known = table()
        for name, node in program.constants.items():
            if name not in known:
                yield _at(node, name, difference)
        return
    for call in program.calls:
        if call.of in CLASSES and not hasattr(getattr(compat, call.of), call.method):
            yield _at(call.node.func, call.method, difference)


FINDERS: dict[str, Callable[[Program, Difference], Iterable[Finding]]] = {
    CALL: _calls,
    HANDLER: _handlers,
    COMPARED: _compared,
    UNKNOWN: _unknown,
}


def findings(source: str | bytes, path: str = "<program>") -> list[Finding]:
    """Return the differences for a program, in the order of its lines.

    Args:
        source: The program's text.
        path: The program's path, for errors.

    Raises:
        SyntaxError: The text is not a valid program.
    """
    program = Program(source, path)
    if not program.uses:
        return []
    found = [each for row in TABLE if row.check in FINDERS for each in FINDERS[row.check](program, row)]
    return sorted(found, key=lambda each: (each.line, each.column))


def main(paths: list[str]) -> int:
    """Check programs, and print the findings.

    Args:
        paths: The programs.

    Returns:
        0 without findings, 1 with findings, 2 if a program cannot be read.
    """
    status = CLEAN
    for path in paths:
        try:
            with open(path, "rb") as file:
                found = findings(file.read(), path)
        except OSError as error:
            print(f"{path}: {error.strerror}", file=sys.stderr)
            status = UNREADABLE
            continue
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None) or 1
            print(f"{path}:{line}: no program: {error}", file=sys.stderr)
            status = UNREADABLE
            continue
        for each in found:
            print(each.text(path))
        if found:
            status = max(status, FOUND)
    return status
