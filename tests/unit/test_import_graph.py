"""How the modules of pypmix hang together: no import circles, and one place that imports by name."""

from __future__ import annotations

import ast
import importlib
from contextlib import nullcontext
from pathlib import Path

import pytest

from lib.figures import typed
from pypmix.oldnames import RENAMES

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "pypmix").rglob("*.py"))


def imports() -> dict[str, set[str]]:
    """What each module imports when it runs, also in a function.

    Types may name each other: an object knows its owner by its class, and not by a protocol that restates the class.
    """
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    found: dict[str, set[str]] = {}
    for name, path in names.items():
        targets: set[str] = set()
        nodes = [*ast.walk(ast.parse(path.read_text()))]
        left_out = typed(nodes)
        for node in [node for node in nodes if node not in left_out]:
            if isinstance(node, ast.Import):
                targets |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                for alias in node.names:
                    whole = f"{node.module}.{alias.name}"
                    targets.add(whole if whole in names else node.module)
        found[name] = (targets & names.keys()) - {name}
    return found


def circles(graph: dict[str, set[str]]) -> list[set[str]]:
    """The sets of modules of which each can be reached from each other (Tarjan)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(name: str) -> None:
        number[name] = low[name] = len(number)
        stack.append(name)
        for other in graph[name]:
            if other not in number:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], number[other])
        if low[name] == number[name]:
            at = stack.index(name)
            found.append(set(stack[at:]))
            del stack[at:]

    for name in graph:
        if name not in number:
            visit(name)
    return [each for each in found if len(each) > 1]


def test_the_check_itself_sees_circles() -> None:
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == [{"b", "c"}]


def test_no_module_imports_itself_by_way_of_others() -> None:
    assert [sorted(circle) for circle in circles(imports())] == []


def test_one_module_imports_by_name() -> None:
    found = {str(path.relative_to(ROOT)) for path in FILES if "__import__" in path.read_text()}
    assert found == {"pypmix/lazy.py"}


LAZY = (
    "pypmix",
    "pypmix.aio",
    "pypmix.compat",
    "pypmix.groups",
    "pypmix.host",
    "pypmix.standard.ops",
    "pypmix.types",
)


@pytest.mark.parametrize("package", LAZY)
def test_a_type_checker_sees_the_lazy_names_of_a_package(package: str) -> None:
    module = importlib.import_module(package)
    assert module.__file__ is not None
    source = Path(module.__file__)
    stub = source.with_suffix(".pyi")
    tree = ast.parse((stub if stub.exists() else source).read_text())
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    lazy = {name for name in module.__all__ if not name.startswith("PMIX_")}
    old = {name for name in seen if f"{package}.{name}" in RENAMES}
    assert not old & lazy
    assert lazy == seen.keys() - old
    for name, where in seen.items():
        home, _, own = where.rpartition(".")
        whole = importlib.import_module(home)
        found = getattr(whole, own) if hasattr(whole, own) else importlib.import_module(where)
        with pytest.warns(DeprecationWarning, match="is now") if name in old else nullcontext():
            assert getattr(module, name) is found, name


def test_an_unknown_name_of_a_package_is_told_with_the_package() -> None:
    with pytest.raises(AttributeError, match=r"module 'pypmix\.standard\.ops' has no attribute 'Fance'"):
        importlib.import_module("pypmix.standard.ops").Fance  # noqa: B018
