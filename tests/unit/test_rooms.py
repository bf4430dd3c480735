"""The core and the periphery: which extensions are registered, and that the core names no module of the periphery."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

from pypmix.host.extensions import load_extension, read_register
from pypmix.recording import RecordedAnswer, Recorder

ROOT = Path(__file__).parents[2]
PERIPHERY = ["compat", "conformance", "dask", "extras", "jax", "ray", "recipes", "recording", "testing", "torch"]
MODULE = re.compile(rf"pypmix[./]({'|'.join(PERIPHERY)})\b")
NAMES_OF_PROGRAMS = {"pypmix/oldnames.py", "pypmix/host/recording.py", "pypmix/renames.py"}
"""The table of names that have changed, which no other module imports until an old name is used."""


def is_core(name: str) -> bool:
    """Return True if a file is one of the core, and not of `cli`, which names commands of the periphery."""
    parts = name.removesuffix(".py").split("/")
    return not {"cli", *PERIPHERY} & {parts[1], parts[2] if parts[1] == "aio" else ""} and name not in NAMES_OF_PROGRAMS


def find_names(text: str) -> list[str]:
    """Return the modules of the periphery that a file imports or names in a string other than a docstring."""
    tree = ast.parse(text)
    bodies = [body for node in ast.walk(tree) if isinstance(body := getattr(node, "body", None), list)]
    lines = [each.value for body in bodies for each in body if isinstance(each, ast.Expr)]
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in lines:
            names.append(node.value)
    return [name for name in names if MODULE.search(name)]


def test_the_check_itself_sees_names() -> None:
    lines = ["'pypmix.compat'", "from pypmix import ray", "import pypmix.extras.tracing"]
    lines += ['load("-m pypmix.compat", f"pypmix/extras/{x}")']
    assert find_names("\n".join(lines)) == ["pypmix.ray", "pypmix.extras.tracing", "-m pypmix.compat", "pypmix/extras/"]


def test_the_core_names_no_module_of_the_periphery() -> None:
    names = [str(path.relative_to(ROOT)) for path in sorted((ROOT / "pypmix").rglob("*.py"))]
    core = [name for name in names if is_core(name)]
    assert "pypmix/host/local.py" in core
    assert "pypmix/aio/recipes/mpi.py" not in core
    assert {name: found for name in core if (found := find_names((ROOT / name).read_text()))} == {}


@pytest.mark.parametrize("name", read_register()["extensions"])
def test_a_registered_extension_can_be_loaded(name: str) -> None:
    assert isinstance(load_extension(name), type)


def test_recordings_are_found_at_their_old_place() -> None:
    old = importlib.import_module("pypmix.host.recording")
    with pytest.warns(DeprecationWarning, match=r"pypmix.host.recording.Recorder is now pypmix.recording.Recorder"):
        assert old.Recorder is Recorder
    with pytest.warns(DeprecationWarning, match=r"is now pypmix.recording.RecordedAnswer"):
        assert old.Answer is RecordedAnswer


def test_each_extension_that_the_core_loads_is_registered() -> None:
    files = [*(ROOT / "pypmix/host").rglob("*.py"), *(ROOT / "pypmix/cli").rglob("*.py")]
    loaded = {name for path in files for name in re.findall(r'load_extension\("([^"]+)"\)', path.read_text())}
    assert loaded == {*read_register()["extensions"]}
