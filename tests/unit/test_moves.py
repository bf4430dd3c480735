"""Names that have changed: the old ones work with a warning, and a program can be rewritten."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

import pytest

import pypmix
from pypmix import moves, rewriter
from pypmix.moves import MOVES
from pypmix.rewriter import Rewriter

ROOT = Path(__file__).resolve().parents[2]


def resolve(path: str) -> Any:
    """The object of the whole name of a module's object."""
    module, _, name = path.rpartition(".")
    return getattr(importlib.import_module(module), name)


MOVED = [old for old in MOVES if not old.rpartition(".")[0].rpartition(".")[2][:1].isupper() and "(" not in old]
"""The old names of objects of modules."""


@pytest.mark.parametrize("old", MOVED)
def test_the_old_name_of_an_object_works_and_names_the_new_one(old: str) -> None:
    with pytest.warns(DeprecationWarning, match="is now") as caught:
        found = resolve(old)
    assert [str(each.message).partition(":")[0] for each in caught] == [f"{old} is now {MOVES[old]}"]
    assert caught[0].filename == __file__
    assert found is resolve(MOVES[old])


def test_no_old_name_is_still_a_name_of_its_module() -> None:
    for old in MOVED:
        module, _, name = old.rpartition(".")
        assert name not in dir(importlib.import_module(module))


def test_an_import_of_an_old_name_warns_at_the_program() -> None:
    with pytest.warns(DeprecationWarning, match=r"pypmix\.Left is now pypmix\.groups\.Left") as caught:
        from pypmix import Left
    assert caught[0].filename == __file__
    assert Left is pypmix.groups.Left


@pytest.mark.parametrize("module", ["pypmix", "pypmix.aio", "pypmix.host", "pypmix.types"])
def test_a_name_that_never_was_is_an_attribute_error_of_its_module(module: str) -> None:
    with pytest.raises(AttributeError, match=rf"^module '{module}' has no attribute 'Lift'$"):
        resolve(f"{module}.Lift")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("from pypmix import Left\n", "from pypmix.groups import Left\n"),
        ("from pypmix import Client, uint32 as u\n",
         "from pypmix import Client\nfrom pypmix.types import uint32 as u\n"),
        ("def f():\n    from pypmix import (\n        size,\n        Proc,\n    )\n    return size, Proc\n",
         "def f():\n    from pypmix import Proc\n    from pypmix.types import size\n    return size, Proc\n"),
        ("import pypmix\n\nx = pypmix.uint32(1) + size + me.size\n",
         "import pypmix\n\nx = pypmix.types.uint32(1) + size + me.size\n"),
        ("import pypmix as px\nx = 'é', px.info('a', px.byte(1))\n",
         "import pypmix as px\nx = 'é', px.types.info('a', px.types.byte(1))\n"),
        ("from pypmix import aio\nx = aio.Failed\n",
         "import pypmix\nfrom pypmix import aio\nx = pypmix.groups.Failed\n"),
        ("import pypmix\nfrom pypmix import aio\nmatch a:\n    case aio.Left(): pass\n",
         "import pypmix\nfrom pypmix import aio\nmatch a:\n    case pypmix.groups.Left(): pass\n"),
        ("from other import Left\nx = other.size\n", "from other import Left\nx = other.size\n"),
    ],
)  # fmt: skip
def test_a_program_is_rewritten_and_nothing_else_of_it_changes(before: str, after: str) -> None:
    found = Rewriter(before)
    assert found.result() == after
    assert Rewriter(after).changes == []


def test_long_imports_are_broken_into_lines() -> None:
    names = "Accepted, Change, Declined, Failed, InviteAnswer, Joined, LeaderFailed, LeaderSelected"
    found = Rewriter(f"from pypmix import {names}\n").result()
    lines = "".join(f"    {name},\n" for name in names.split(", "))
    assert found == f"from pypmix.groups import (\n{lines})\n"


def test_methods_and_parameters_are_rewritten_in_programs_that_import_pypmix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(rewriter.METHODS, "old_call", "raw.new_call")
    monkeypatch.setitem(rewriter.PARAMETERS, ("send", "range"), "scope")
    program = "x = me.old_call(1).old_call\nme.send(1, range=2)\nme.other(range=range(3))\n"
    assert Rewriter(program).changes == []
    found = Rewriter(f"import pypmix\n{program}")
    after = "x = me.raw.new_call(1).raw.new_call\nme.send(1, scope=2)\nme.other(range=range(3))\n"
    assert found.result() == f"import pypmix\n{after}"
    assert [line for line, _, _ in sorted(found.changes)] == [2, 2, 3]


def test_the_script_writes_files_or_only_checks_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, good, bad = tmp_path / "old.py", tmp_path / "good.py", tmp_path / "bad.py"
    old.write_text("import pypmix\nx = pypmix.size(1)\n")
    good.write_text("import pypmix\n")
    bad.write_text("import (\n")
    assert rewriter.main(["--check", str(old), str(good)]) == 1
    assert capsys.readouterr().out == f"{old}:2: pypmix.size -> pypmix.types.size\n"
    assert old.read_text() == "import pypmix\nx = pypmix.size(1)\n"
    assert rewriter.main([str(bad), str(old), str(good)]) == 2
    assert "bad.py: cannot be rewritten: " in capsys.readouterr().err
    assert old.read_text() == "import pypmix\nx = pypmix.types.size(1)\n"
    assert rewriter.main(["--check", str(old), str(good)]) == 0
    assert rewriter.main([]) == 2


def test_a_warning_of_a_method_names_the_line_that_calls_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MOVES, "pypmix.Client.old", "pypmix.Client.new")

    def old() -> str:
        return moves.warn("pypmix.Client.old")

    frame = inspect.currentframe()
    assert frame is not None
    with pytest.warns(DeprecationWarning, match=r"pypmix\.Client\.old is now pypmix\.Client\.new") as caught:
        assert old() == "pypmix.Client.new"
    assert caught[0].lineno == frame.f_lineno - 1
