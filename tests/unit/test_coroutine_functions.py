"""The async operations are coroutine functions for `inspect` too, as frameworks and mocks ask."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import pkgutil
import pydoc
from unittest import mock

import pytest

import pypmix.aio
from pypmix.lazy import TOPICS

MODULES = [each.name for each in pkgutil.walk_packages(pypmix.aio.__path__, "pypmix.aio.")]

OPERATIONS = [name for names in TOPICS.values() for name in names.split() if not name.startswith("_")]


def is_generator(node: ast.AsyncFunctionDef) -> bool:
    """Return True if an async function yields."""
    return any(isinstance(each, ast.Yield) for each in ast.walk(node))


def async_methods(module: str) -> list[str]:
    """Return the path in a module of each function of it, and of its classes, that is written with `async def`."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    found = [each.name for each in tree.body if isinstance(each, ast.AsyncFunctionDef) and not is_generator(each)]
    for kind in tree.body:
        if isinstance(kind, ast.ClassDef):
            methods = [each for each in kind.body if isinstance(each, ast.AsyncFunctionDef) and not is_generator(each)]
            found += [f"{kind.name}.{each.name}" for each in methods]
    return found


@pytest.mark.parametrize("module", MODULES)
def test_what_is_written_with_async_is_a_coroutine_function(module: str) -> None:
    for path in async_methods(module):
        function = importlib.import_module(module)
        for name in path.split("."):
            function = getattr(function, name)
        assert inspect.iscoroutinefunction(function), path


def test_the_methods_looked_at_are_the_public_ones() -> None:
    found = {path.rpartition(".")[2] for module in MODULES for path in async_methods(module)}
    assert found > {"open", "fence", "publish", "lookup", "allocate", "notify", "construct", "accept", "heartbeat"}


@pytest.mark.parametrize("owner", ["Client", "Tool"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operation_is_async_exactly_if_a_call_of_it_is_awaited(owner: str, name: str) -> None:
    function = getattr(getattr(pypmix.aio, owner), name)
    if isinstance(function, property):
        return
    assert inspect.iscoroutinefunction(function) == inspect.iscoroutinefunction(inspect.unwrap(function))
    assert function.__name__ == name
    assert function.__doc__
    assert next(iter(inspect.signature(function).parameters)) == "self"


def test_help_shows_an_operation_as_async() -> None:
    text = pydoc.plaintext.document(pypmix.aio.Client)
    for name in ("publish", "lookup", "notify", "query", "fence"):
        assert f" async {name}(self" in text


def test_a_mock_of_a_client_is_awaited_where_the_client_is() -> None:
    client = mock.create_autospec(pypmix.aio.Client, instance=True)
    client.lookup.return_value = "port"
    assert asyncio.run(client.lookup("acme.port")) == "port"
    client.lookup.assert_awaited_once_with("acme.port")
