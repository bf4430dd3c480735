"""How the modules of pypmix hang together: no import circles, and one place that imports by name."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "pypmix").rglob("*.py"))

NOT_YET = {
    "pypmix/engine/groups/agent.py",
    "pypmix/engine/native/session.py",
    "pypmix/engine/python/serverside/topic.py",
    "pypmix/host/__init__.py",
    "pypmix/host/answers.py",
}
"""Modules that still import by name themselves."""


def test_one_module_imports_by_name() -> None:
    found = {str(path.relative_to(ROOT)) for path in FILES if "__import__" in path.read_text()}
    assert found - NOT_YET == {"pypmix/lazy.py"}


@pytest.mark.parametrize("package", ["pypmix", "pypmix.aio", "pypmix.standard.ops", "pypmix.compat"])
def test_a_type_checker_sees_the_lazy_names_of_a_package(package: str) -> None:
    module = importlib.import_module(package)
    tree = ast.parse((ROOT / package.replace(".", "/") / "__init__.py").read_text())
    seen = {
        alias.asname: f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname == alias.name
    }
    lazy = {name for name in module.__all__ if not name.startswith("PMIX_")}
    assert lazy == set(seen)
    for name, where in seen.items():
        home, _, own = where.rpartition(".")
        whole = importlib.import_module(home)
        found = getattr(whole, own) if hasattr(whole, own) else importlib.import_module(where)
        assert getattr(module, name) is found, name


def test_an_unknown_name_of_a_package_is_told_with_the_package() -> None:
    with pytest.raises(AttributeError, match=r"module 'pypmix\.standard\.ops' has no attribute 'Fance'"):
        importlib.import_module("pypmix.standard.ops").Fance  # noqa: B018
