"""Rules about the source that no linter knows: `native/rules.py` finds what breaks them; the names of keys agree."""

from __future__ import annotations

import ast
import runpy
from pathlib import Path

import pytest

from pypmix.standard import attrs, codes, enums, keys, statuses
from pypmix.standard.attr import Attr

RULES = Path(__file__).resolve().parents[2] / "native" / "rules.py"
rules = runpy.run_path(str(RULES))


def test_literals_are_seen() -> None:
    text = 'A = "pmix.timeout"\nif status == -24:\n    """pmix.timeout"""\nfile = f"pmix.{host}"\nlast = all[-1]\n'
    assert rules["literals"](ast.parse(text)) == [(1, "pmix.timeout"), (2, "-24")]


def test_unguarded_threads_are_seen() -> None:
    text = """
class A:
    def begin(self):
        threading.Thread(target=self.bad).start()
        threading.Thread(target=self.good).start()
        _thread.start_new_thread(once, ())
    def bad(self):
        while True:
            try: serve()
            except OSError: pass
    def good(self):
        while True:
            try: serve()
            except Exception: log()
def once():
    serve()
"""
    assert rules["unguarded"](ast.parse(text)) == [(7, "bad")]


def test_each_place_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In a copy of the tree, as `tox -e lint` runs the script."""
    native, package = tmp_path / "native", tmp_path / "pypmix"
    native.mkdir()
    (package / "standard").mkdir(parents=True)
    (native / "rules.py").write_text(RULES.read_text())
    (package / "standard" / "statuses.py").write_text("TIMEOUT = -24\n")
    rules = runpy.run_path(str(native / "rules.py"))
    main, exceptions = rules["main"], rules["HARMLESS"]
    exceptions.clear()
    assert main() == 0
    exceptions["pypmix/gone.py:serve"] = "it was here"
    assert main() == 1
    assert capsys.readouterr().err == "native/rules.py: pypmix/gone.py:serve needs no exception\n"
    exceptions.clear()
    (package / "module.py").write_text("import time\nfound = -24\n")
    assert main() == 1
    assert capsys.readouterr().err == "pypmix/module.py:2: -24: write keys.NAME or statuses.NAME, of pypmix.standard\n"


def test_plain_names_are_the_typed_ones() -> None:
    typed = {name: attr.key for name in attrs.__all__ if isinstance(attr := getattr(attrs, name), Attr)}
    assert len(typed) > 600
    assert typed == {name: getattr(keys, name) for name in typed}
    for enum, module in ((enums.Status, statuses), (enums.EventCode, statuses), (enums.DataType, codes)):
        plain = {name: getattr(module, name, 500) for name in enum.__members__}
        assert plain == {name: int(member) for name, member in enum.__members__.items()}
