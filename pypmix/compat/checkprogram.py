"""Static analysis of a program: which objects belong to the bindings, and how the program uses them."""

from __future__ import annotations

import ast

from pypmix.standard.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import TypeVar

    N = TypeVar("N", bound=ast.AST)

CLASSES = ("PMIxClient", "PMIxServer", "PMIxTool", "PMIxScheduler")

VOID = frozenset({"log", "log2", "toolconnected"})
"""Handlers that may return None."""

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Call(Record):
    """A call of a method.

    Args:
        node: The call.
        method: The method's name.
        of: The class of the object; empty if it is unknown.
        within: The parent node of the call.
    """

    node: ast.Call
    method: str
    of: str
    within: ast.AST | None

    def argument(self, place: int, name: str = "") -> ast.expr | None:
        """Return an argument by its place or name, None if it is missing or unknown."""
        for keyword in self.node.keywords:
            if name and keyword.arg == name:
                return keyword.value
        args = self.node.args
        return args[place] if place < len(args) and not any(isinstance(arg, ast.Starred) for arg in args) else None


def text_of(node: ast.AST | None) -> str | None:
    """Return the text of a constant; None if it is not text."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
        return node.value.decode("utf-8", "replace") if isinstance(node.value, bytes) else node.value
    return None


def always_leaves(body: list[ast.stmt]) -> bool:
    """Return True if no path through the statements reaches their end."""
    for each in body:
        if isinstance(each, ast.Return | ast.Raise):
            return True
        if isinstance(each, ast.If) and each.orelse and always_leaves(each.body) and always_leaves(each.orelse):
            return True
        if isinstance(each, ast.With | ast.AsyncWith) and always_leaves(each.body):
            return True
        if isinstance(each, ast.Try):
            tried = always_leaves(each.body) or (bool(each.orelse) and always_leaves(each.orelse))
            if (tried and all(always_leaves(handler.body) for handler in each.handlers)) or always_leaves(
                each.finalbody
            ):
                return True
        if isinstance(each, ast.While) and isinstance(each.test, ast.Constant) and each.test.value:
            return not any(isinstance(part, ast.Break) for part in ast.walk(each))
        if isinstance(each, ast.Match) and all(always_leaves(case.body) for case in each.cases):
            last = each.cases[-1]
            if last.guard is None and isinstance(last.pattern, ast.MatchAs) and last.pattern.pattern is None:
                return True
    return False


class Program:
    """A parsed program.

    Args:
        source: The program's text.
        path: The program's path, for errors.

    Attributes:
        uses: Whether the program uses the bindings.
        calls: The calls of methods, in the order of the text.
        compared: The comparisons, each with all names in the whole condition.
        constants: The `PMIX_` names that the program reads, each with its first node.

    Raises:
        SyntaxError: The text is not a valid program.
    """

    def __init__(self, source: str | bytes, path: str) -> None:
        tree = ast.parse(source, path)
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        self._nodes = list(ast.walk(tree))
        self._modules = {
            alias.asname or alias.name for node in self._of(ast.Import) for alias in node.names if alias.name == "pmix"
        }
        imported = [node for node in self._of(ast.ImportFrom) if node.module == "pmix"]
        self._known: dict[str, str] = {
            alias.asname or alias.name: alias.name for node in imported for alias in node.names
        }
        self._functions = {node.name: node for node in self._of(ast.FunctionDef)}
        self._assigned: dict[str, ast.expr] = {}
        self._classes: dict[str, str] = {}
        self._find_objects()
        self.calls = sorted(self._calls(), key=lambda call: (call.node.lineno, call.node.col_offset))
        self.compared = [(node, self._names_around(node)) for node in self._of(ast.Compare)]
        self.constants = self._constants()
        # A program may import the bindings indirectly, from another of its modules.
        self.uses = bool(self._modules or imported or self.constants or self._classes)

    def _of(self, kind: type[N]) -> Iterator[N]:
        return (node for node in self._nodes if isinstance(node, kind))

    def _class_of(self, node: ast.expr) -> str:
        """Return the class of an expression's value, empty if the bindings do not have the class."""
        if isinstance(node, ast.Call):
            name = node.func
            if isinstance(name, ast.Attribute) and isinstance(name.value, ast.Name) and name.value.id in self._modules:
                return name.attr if name.attr in CLASSES else ""
            if isinstance(name, ast.Name):
                found = self._known.get(name.id, name.id)
                return found if found in CLASSES else self._derived.get(found, "")
        return self._classes.get(ast.unparse(node), "") if isinstance(node, ast.Name | ast.Attribute) else ""

    def _find_objects(self) -> None:
        self._derived = {
            node.name: name
            for node in self._of(ast.ClassDef)
            for base in node.bases
            if (name := self._known.get(ast.unparse(base).rpartition(".")[2], ast.unparse(base).rpartition(".")[2]))
            in CLASSES
        }
        for node in self._nodes:
            if isinstance(node, ast.Assign):
                targets = node.targets
            elif isinstance(node, ast.AnnAssign) and node.value is not None:
                targets = [node.target]
            else:
                continue
            value: ast.expr = node.value  # type: ignore[assignment]
            for target in targets:
                if not isinstance(target, ast.Name | ast.Attribute):
                    continue
                name = ast.unparse(target)
                self._assigned[name] = value
                if found := self._class_of(value):
                    self._classes[name] = found
                    # Methods access a name of the class body by `self`.
                    if isinstance(target, ast.Name) and isinstance(self._parents.get(node), ast.ClassDef):
                        self._classes[f"self.{name}"] = found

    def _calls(self) -> Iterator[Call]:
        for node in self._of(ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield Call(node, node.func.attr, self._class_of(node.func.value), self._parents.get(node))

    def _names_around(self, node: ast.AST) -> frozenset[str]:
        """Return the names in a condition, and in the conditions combined with it."""
        while isinstance(self._parents.get(node), ast.BoolOp):
            node = self._parents[node]
        return frozenset(self._names_in(node))

    def _names_in(self, node: ast.AST) -> Iterator[str]:
        for each in ast.walk(node):
            if isinstance(each, ast.Name):
                yield each.id
            elif isinstance(each, ast.Attribute):
                yield each.attr

    def _constants(self) -> dict[str, ast.AST]:
        stored = {node.id for node in self._of(ast.Name) if not isinstance(node.ctx, ast.Load)}
        stored |= {name for name in self._known if name != "*"}
        found: dict[str, ast.AST] = {}
        for node in self._nodes:
            name = node.id if isinstance(node, ast.Name) else ""
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in self._modules:
                name = node.attr
            if name.startswith("PMIX_") and name not in stored:
                found.setdefault(name, node)
        for node in self._of(ast.ImportFrom):
            if node.module == "pmix":
                found.update({alias.name: node for alias in node.names if alias.name.startswith("PMIX_")})
        return found

    def modules(self) -> Iterator[tuple[ast.AST, str, ast.expr]]:
        """Return the handlers of server modules: for each the node of its key, the key and the handler's expression."""
        for call in self.calls:
            place = {"init": 1, "set_server_module": 0}.get(call.method)
            if place is None or not call.of:
                continue
            given = call.argument(place, "map")
            if isinstance(given, ast.Name | ast.Attribute):
                given = self._assigned.get(ast.unparse(given))
            if isinstance(given, ast.Dict):
                for key, value in zip(given.keys, given.values, strict=True):
                    if key is not None and (text := text_of(key)) is not None:
                        yield key, text, value

    def function(self, node: ast.expr) -> Function | None:
        """Return the function that an expression names, None if it is unknown."""
        if isinstance(node, ast.Lambda):
            return node
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        return self._functions.get(name)
