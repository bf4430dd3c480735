"""Rewrite programs that use old names of pypmix: `python -m pypmix.renames [--check] FILE...`.

It changes names of pypmix's modules, and members and parameters of objects that the program itself makes or annotates
as pypmix's. It leaves all other text as it is. What it cannot decide is reported, and left to a person.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from pypmix.oldnames import ALIASES, RENAMES, is_call, is_member, share, show, split_path, time_limit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import TypeAlias

    Scopes: TypeAlias = tuple[ast.AST, ...]

FORMS = ("Client", "Connection", "Group", "Tool")
"""The classes with old names that have a sync and an async form."""

WIDTH = 88
"""The length from which an import statement is broken into lines."""

OWNERS = {
    **{f"{form}.{name}": f"pypmix.{name}" for form in ("pypmix", "pypmix.aio") for name in FORMS},
    "pypmix.DataBuffer": "pypmix.types.DataBuffer",
    **{name: name for name in ("pypmix.Value", "pypmix.types.DataBuffer", "pypmix.host.Host", "pypmix.host.Request")},
}
"""The whole names of classes with old members or parameters, and their names in the table."""

FOREIGN = ""
"""The meaning of an expression that is not pypmix's."""

RETURNS = {
    "pypmix.Client().connect": "pypmix.Connection()",
    "pypmix.Client().group": "pypmix.Group()",
    "pypmix.Client().invite": "pypmix.groups.Invite()",
    "pypmix.Group().construct": "pypmix.Group()",
    "pypmix.groups.Invite().complete": "pypmix.Group()",
    "pypmix.groups.Invite().form": "pypmix.Group()",
}
"""The meanings of what methods return, if it has old members or leads to such an object."""

COMMON = frozenset(("address", "get", "infos", "notify", "proc", "procs", "state"))
"""Old members of groups and connections whose names other objects often have: no unknown object is noted for them."""

SCOPES = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


class Meanings:
    """The meanings of the variables of a program.

    A meaning is the whole name of a module or class of pypmix; an instance has `()` behind its class. `FOREIGN` is
    what is not pypmix's, and None is unknown.

    Args:
        tree: The program.
    """

    def __init__(self, tree: ast.Module) -> None:
        self._scopes: dict[ast.AST, Scopes] = {tree: ()}
        self._found: dict[tuple[ast.AST, str], set[str | None]] = {}
        for node in ast.walk(tree):
            scopes = (node, *self._scopes[node]) if isinstance(node, SCOPES) else self._scopes[node]
            self._scopes.update(dict.fromkeys(ast.iter_child_nodes(node), scopes))
        self.methods: set[str] = set()
        """The methods that the program's own subclasses of pypmix's classes define."""
        nodes = [*ast.walk(tree)]
        for kinds in ((ast.Import, ast.ImportFrom), (ast.ClassDef,)):
            for node in nodes:
                if isinstance(node, kinds):
                    self._bind_definition(node)
        for node in nodes:
            if not isinstance(node, ast.Import | ast.ImportFrom | ast.ClassDef):
                self._bind_definition(node)
        self._bind_targets(nodes)

    def _bind(self, node: ast.AST, name: str, meaning: str | None) -> None:
        scopes = self._scopes[node]
        classes = [scope for scope in scopes if isinstance(scope, ast.ClassDef)] if "." in name else []
        self._found.setdefault(((classes or scopes)[0], name), set()).add(meaning)
        if "." not in name and isinstance(scopes[0], ast.ClassDef):
            self._bind(node, f"self.{name}", meaning)

    def _bind_definition(self, node: ast.AST) -> None:
        if isinstance(node, ast.Import):
            for alias in node.names:
                whole = alias.name if alias.asname else alias.name.partition(".")[0]
                self._bind(node, alias.asname or whole, _imported(whole))
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                self._bind(node, alias.asname or alias.name, _imported(f"{node.module}.{alias.name}", node.level))
        elif isinstance(node, ast.ClassDef):
            meanings = [self.find(base) for base in node.bases] or [FOREIGN]
            known = [each for each in meanings if each and _owner(each)]
            self._bind(node, node.name, known[0] if known else FOREIGN if set(meanings) == {FOREIGN} else None)
            if known:
                self.methods |= {each.name for each in node.body if isinstance(each, SCOPES[2:4])}
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self._bind(node, node.name, None)
            parent = self._scopes[node][0]
            first = [*node.args.posonlyargs, *node.args.args][:1]
            static = {"classmethod", "staticmethod"} & {ast.unparse(each) for each in node.decorator_list}
            if isinstance(parent, ast.ClassDef) and first and not static:
                kind = self._look_up(parent, parent.name)
                self._bind(first[0], first[0].arg, _instance(kind) if kind else kind)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            self._bind(node, node.name, None)

    def _bind_targets(self, nodes: Sequence[ast.AST]) -> None:
        given: dict[ast.AST, ast.expr] = {}
        for node in nodes:
            if isinstance(node, ast.withitem) and node.optional_vars is not None:
                given[node.optional_vars] = node.context_expr
            elif isinstance(node, ast.Assign):
                given.update(dict.fromkeys(node.targets, node.value))
            elif isinstance(node, ast.NamedExpr):
                given[node.target] = node.value
        declared = {node.target for node in nodes if isinstance(node, ast.AnnAssign)}
        for node in nodes:
            if isinstance(node, ast.AnnAssign):
                self._bind(node, ast.unparse(node.target), self._annotated(node.annotation))
            elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
                value = given.get(node)
                is_none = isinstance(value, ast.Constant) and value.value is None
                is_old = isinstance(node, ast.Attribute) and any(_rows(self.find(node) or ""))
                if node not in declared and not is_none and not is_old:
                    self._bind(node, ast.unparse(node), self.find(value) if value is not None else None)
            elif isinstance(node, ast.arg) and (self._scopes[node][0], node.arg) not in self._found:
                # Otherwise it is the `self` of a method.
                self._bind(node, node.arg, self._annotated(node.annotation))

    def _annotated(self, annotation: ast.expr | None) -> str | None:
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            try:
                inner = ast.parse(annotation.value, mode="eval").body
            except SyntaxError:
                return None
            self._scopes.update(dict.fromkeys(ast.walk(inner), self._scopes[annotation]))
            annotation = inner
        meaning = self.find(annotation) if annotation is not None else None
        return _instance(meaning) if meaning else meaning

    def _look_up(self, node: ast.AST, name: str, default: str | None = None) -> str | None:
        for scope in self._scopes[node]:
            found = self._found.get((scope, name))
            if found is not None:
                return next(iter(found)) if len(found) == 1 else None
        return default

    def find(self, node: ast.expr) -> str | None:
        """Return the meaning of an expression."""
        if isinstance(node, ast.Name):
            return self._look_up(node, node.id)
        if isinstance(node, ast.Await):
            return self.find(node.value)
        if isinstance(node, ast.Attribute):
            base = self.find(node.value)
            whole = f"{base}.{node.attr}" if base else base
            if base and "()." in base and not any(key in old for key in _keys(f"{base}.") for old in RENAMES):
                whole = FOREIGN
            return self._look_up(node, ast.unparse(node), whole)
        if isinstance(node, ast.Call):
            meaning = self.find(node.func)
            if meaning and meaning.endswith("().open"):
                return meaning.removesuffix(".open")
            if meaning and "()." in meaning:
                return RETURNS.get(meaning.replace("pypmix.Tool()", "pypmix.Client()"), FOREIGN)
            return _instance(meaning) if meaning else meaning
        return FOREIGN if isinstance(node, ast.Constant | ast.JoinedStr | ast.List | ast.Dict | ast.Set) else None

    def names_of(self, module: str) -> list[str]:
        """Return the variables of the program that always stand for a module."""
        names = {name for _, name in self._found}
        return sorted(
            name
            for name in names
            if all(found == {module} for (_, other), found in self._found.items() if other == name)
        )

    def imports(self, package: str) -> bool:
        """Return True if the program imports something of a package."""
        found = {each.partition("(")[0] for meanings in self._found.values() for each in meanings if each}
        return any(each == package or each.startswith(package + ".") for each in found)


def _imported(whole: str, level: int = 0) -> str | None:
    """Return the meaning of an import: pypmix's, of another library, or of a module that may be the program's own."""
    first = whole.partition(".")[0]
    if first == "pypmix" and not level:
        return whole
    return FOREIGN if first in sys.stdlib_module_names and not level else None


def _owner(whole: str) -> str:
    """Return the class of a whole name as the table has it; empty if it has no old members."""
    return OWNERS.get(whole, "")


def _instance(whole: str) -> str | None:
    """Return the meaning of an instance of a class; unknown if it is not a class."""
    if not whole.rpartition(".")[2][:1].isupper() or "(" in whole:
        return None
    owner = _owner(whole)
    return f"{owner}()" if owner else FOREIGN


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
        self._edits: list[tuple[int, int, str]] = []
        self.changes: list[tuple[int, str, str]] = []
        """The line of each change, with the old and the new text."""
        self.left: list[tuple[int, str]] = []
        """The line of each old name that cannot be replaced, with the name as the table has it."""
        self.notes: list[tuple[int, str]] = []
        """The line of each name that may be an old one, with the old name that it may be."""
        tree = ast.parse(text)
        self._meanings = Meanings(tree)
        self._own = self._meanings.imports("pypmix")
        self._called = {node.func: node for node in ast.walk(tree) if isinstance(node, ast.Call)}
        words = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
        self._has_groups = bool(words & {"accept", "connect", "group", "group_join", "invite"})
        self._is_unbound = False
        # The inner calls first: an outer one moves their new text with its arguments.
        for node in reversed([*ast.walk(tree)] if self._own else []):
            if isinstance(node, ast.ImportFrom):
                self._change_import(node)
            elif isinstance(node, ast.Attribute):
                self._change_attribute(node)
            elif isinstance(node, ast.Call):
                self._change_call(node)
        if self._is_unbound:
            first = next(
                node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom) and _is_ours(node)
            )
            start = self._place(first)[0]
            indent = self._data[self._starts[first.lineno - 1] : start].decode()
            self._edits.append((start, start, f"import pypmix\n{indent}"))

    def _place(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt | ast.keyword)
        assert node.end_lineno is not None and node.end_col_offset is not None
        start, end = self._starts[node.lineno - 1], self._starts[node.end_lineno - 1]
        return start + node.col_offset, end + node.end_col_offset

    def _text(self, start: int, end: int) -> str:
        """Return a part of the program with its changes, which become the caller's."""
        inner = [edit for edit in self._edits if start <= edit[0] and edit[1] <= end]
        self._edits = [edit for edit in self._edits if edit not in inner]
        data = self._data[:end]
        for first, last, new in sorted(inner, reverse=True):
            data = data[:first] + new.encode() + data[last:]
        return data[start:].decode()

    def result(self) -> str:
        """Return the program with the new names."""
        edits = [*self._edits]
        text = self._text(0, len(self._data))
        self._edits = edits
        return text

    def _change(self, line: int, start: int, end: int, new: str) -> None:
        self.changes.append((line, self._data[start:end].decode(), new))
        self._edits.append((start, end, new))

    def _change_import(self, node: ast.ImportFrom) -> None:
        moved: dict[str, list[str]] = {}
        kept: list[str] = []
        for alias in node.names:
            new = RENAMES.get(f"{node.module}.{alias.name}") if node.level == 0 else None
            module, _, name = (new or "").rpartition(".")
            local = alias.asname or alias.name
            if new is None:
                kept.append(_aliased(alias.name, local))
            else:
                moved.setdefault(module, []).append(_aliased(name, local))
        if moved:
            start, end = self._place(node)
            indent = "\n" + self._data[self._starts[node.lineno - 1] : start].decode()
            parts = [(node.module or "", kept)] if kept else []
            lines = [_import(module, names) for module, names in (*parts, *sorted(moved.items()))]
            self._change(node.lineno, start, end, "\n".join(lines).replace("\n", indent))

    def _change_attribute(self, node: ast.Attribute) -> None:
        meaning = self._meanings.find(node)
        start, end = self._place(node)
        if meaning is None:
            if isinstance(node.ctx, ast.Load):
                self._note(node.lineno, f".{node.attr}")
            return
        if "(" not in meaning:
            if meaning in RENAMES and not is_member(meaning):
                self._change(node.lineno, start, end, self._spell(RENAMES[meaning]))
            elif meaning in RENAMES:
                self.left.append((node.lineno, meaning))
            return
        for old in _rows(meaning):
            new = RENAMES[old]
            if node.attr in self._meanings.methods:
                self.notes.append((node.lineno, old))
            elif "`" in new or not isinstance(node.ctx, ast.Load) or is_call(new) and node not in self._called:
                self.left.append((node.lineno, old))
            elif not is_call(new):
                self._change(node.lineno, self._place(node.value)[1], end, f".{new}")

    def _change_call(self, node: ast.Call) -> None:
        meaning = self._meanings.find(node.func) or ""
        if isinstance(node.func, ast.Attribute) and node.func.attr not in self._meanings.methods and "()." in meaning:
            for old in _rows(meaning):
                if is_call(RENAMES[old]):
                    self._change_method(node, node.func, old)
                    return
        function = f"{_owner(meaning)}.__init__" if _owner(meaning) else meaning
        for word in node.keywords:
            if "(" in function or _owner(meaning):
                if _parameter(function, word.arg):
                    start, end = self._place(word)
                    self._change(word.lineno, start, end, "=".join(self._write_word(word, function)))
            elif self._meanings.find(node.func) is None and isinstance(node.func, ast.Attribute):
                self._note(word.lineno, f".{node.func.attr}({word.arg})")

    def _change_method(self, node: ast.Call, function: ast.Attribute, old: str) -> None:
        """Write the calls of a path in place of the call of an old method."""
        new, start, end = RENAMES[old], self._place(function.value)[1], self._place(node)[1]
        given = {word.arg for word in node.keywords}
        is_open = None in given or any(isinstance(each, ast.Starred) for each in node.args)
        if is_open or b"#" in self._data[start:end] or old in ALIASES and given - {"timeout", "info"}:
            self.left.append((node.lineno, old))
            return
        path = split_path(new)
        target = old.rpartition(".")[0] + "()." + ".".join(name for name, _ in path)
        rest: dict[object, str] = {at: self._text(*self._place(each)) for at, each in enumerate(node.args)}
        rest.update([self._write_word(word, target) for word in node.keywords])
        written = ""
        for name, taken in path:
            chosen = share(taken or [], rest)
            words = [value if isinstance(key, int) else f"{key}={value}" for key, value in chosen.items()]
            written += f".{name}" if taken is None else f".{name}({', '.join(words)})"
        self._change(node.lineno, start, end, written)

    def _write_word(self, word: ast.keyword, function: str) -> tuple[str, str]:
        """Return the new name and the value of an argument that is given by its name."""
        value, limit = self._text(*self._place(word.value)), word.value
        if word.arg == "wait" and isinstance(limit, ast.Constant) and isinstance(limit.value, bool):
            seconds = time_limit(function.rpartition(".")[2], limit.value)
            value = 'float("inf")' if seconds == float("inf") else str(seconds)
        return _parameter(function, word.arg) or word.arg or "", value

    def _note(self, line: int, ending: str) -> None:
        """Note the old names that a member of an unknown object may be."""
        for old in RENAMES:
            owner = old.partition("(")[0].rpartition(".")[0]
            if owner in ("pypmix.Group", "pypmix.Connection"):
                is_near = self._has_groups and ending[1:] not in COMMON
            else:
                is_near = not old.startswith("pypmix.host.") or self._meanings.imports("pypmix.host")
            if is_near and old.endswith(ending) and (is_member(old) or "(" in ending):
                self.notes.append((line, old))
                return

    def _spell(self, path: str) -> str:
        """Return a whole name as the program can write it."""
        for local in self._meanings.names_of("pypmix"):
            return local + path.removeprefix("pypmix")
        self._is_unbound = True
        return path


def _keys(meaning: str) -> set[str]:
    """Return how the table may name a member of an instance: a tool has the members of a client."""
    whole = meaning.replace("()", "")
    return {whole, whole.replace("pypmix.Tool.", "pypmix.Client.")}


def _rows(meaning: str) -> Iterator[str]:
    """Yield the row of a member of an instance, if it has one."""
    yield from [each for each in _keys(meaning) if "()." in meaning and each in RENAMES]


def _parameter(function: str, old: str | None) -> str:
    """Return the new name of a parameter; empty if it has not changed."""
    return next((RENAMES[f"{each}({old})"] for each in _keys(function) if f"{each}({old})" in RENAMES), "")


def _is_ours(node: ast.Import | ast.ImportFrom) -> bool:
    """Return True if a statement imports something of pypmix."""
    modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
    return any(module.partition(".")[0] == "pypmix" for module in modules)


def _aliased(name: str, local: str) -> str:
    return name if name == local else f"{name} as {local}"


def _import(module: str, names: list[str]) -> str:
    line = f"from {module} import {', '.join(names)}"
    if len(line) <= WIDTH:
        return line
    return "\n".join([f"from {module} import (", *(f"    {name}," for name in names), ")"])


def main(arguments: list[str]) -> int:
    """Rewrite the files that are named in the arguments, and print what changes and what is left; return the exit code.

    Args:
        arguments: The files, and `--check` to write nothing.
    """
    check = "--check" in arguments
    paths = [Path(word) for word in arguments if word != "--check"]
    if not paths or any(word.startswith("-") for word in map(str, paths)):
        print("usage: python -m pypmix.renames [--check] FILE...", file=sys.stderr)
        return 2
    found = failed = False
    for path in paths:
        try:
            rewriter = Rewriter(path.read_text())
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            print(f"{path}: cannot be rewritten: {error}", file=sys.stderr)
            failed = True
            continue
        found |= bool(rewriter.left or check and rewriter.changes)
        for line, old, new in sorted(rewriter.changes):
            print(f"{path}:{line}: {' '.join(old.split())} -> {' '.join(new.split())}")
        for line, old in sorted(rewriter.left):
            print(f"{path}:{line}: {old} is now {show(old)}: change it by hand")
        for line, old in sorted(rewriter.notes):
            print(f"{path}:{line}: this may be {old}, which is now {show(old)}: look at it")
        if rewriter.changes and not check:
            path.write_text(rewriter.result())
    return 2 if failed else int(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
