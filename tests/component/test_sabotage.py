"""The sabotage check notices a test that does not fail, and a breakage that breaks nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from long import sabotage
from long.sabotage import Breakage, Edit, Sessions, Vanished

pytestmark = pytest.mark.timeout(300)

MODULE = '''
"""A module."""

def outer():
    """Return three."""
    def inner():
        return 1
    if inner():
        def inner():
            return 3
    return inner()

class Client:
    async def open(self):
        return "open"

    def get(self):
        return 5
'''

TESTS = """
import pytest
from package.module import Client, outer

def test_get(): assert Client().get() == 5
def test_outer(): assert outer() == 3
def test_nothing(): assert True
@pytest.mark.skipif("Client().get() != 5")
def test_skipped(): assert True
@pytest.mark.parametrize("number", [5])
def test_expected(number, request):
    request.applymarker(pytest.mark.xfail(condition=Client().get() != 5, reason="any failure will do"))
    assert Client().get() == number
@pytest.fixture
def opened(): assert Client().get() == 5
def test_error(opened): pass
"""

FILE = "tests/test_module.py"
GET = Edit("package/module.py", "Client.get", "return 6")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    found = tmp_path / "copy"
    for name, text in {
        "package/__init__.py": "",
        "package/module.py": MODULE,
        FILE: TESTS,
        "pytest.ini": "[pytest]",
    }.items():
        path = found / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return found


def judged(checkout: Path, capsys: pytest.CaptureFixture[str], *breakages: Breakage) -> tuple[int, str]:
    pytest_command = ("pytest", "-q", "-p", "no:cacheprovider")
    code = sabotage.check(Sessions(Path(sys.executable), checkout, pytest_command), checkout, breakages)
    return code, capsys.readouterr().out


def breakage(*tests: str, edit: Edit = GET) -> Breakage:
    return Breakage("broken", "something is wrong", (edit,), tuple(f"{FILE}::{test}" for test in tests))


def test_failures_and_errors_are_what_it_wants(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = judged(checkout, capsys, breakage("test_get", "test_error"))
    assert code == 0, text
    assert "broken: noticed by 2 tests" in text
    assert "1 of 1 breakages are noticed" in text
    assert (checkout / "package/module.py").read_text() == MODULE


def test_what_passes_or_does_not_run_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = judged(checkout, capsys, breakage("test_get", "test_nothing", "test_skipped", "test_expected[5]"))
    assert code == 1
    assert "broken: FAILED, 3 of 4 tests do not notice" in text
    assert f"{FILE}::test_nothing passed" in text
    assert f"{FILE}::test_skipped was skipped" in text
    assert f"{FILE}::test_expected[5] failed as expected" in text
    assert "0 of 1 breakages are noticed" in text


def test_a_test_that_does_not_exist_fails_the_control(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = judged(checkout, capsys, breakage("test_get", "test_gone"))
    assert code == 1
    assert f"{FILE}::test_gone did not run" in text
    assert "noticed" not in text


def test_a_test_that_fails_anyway_fails_the_control(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (checkout / "package/module.py").write_text(sabotage.edited(MODULE, "Client.get", "return 7"))
    code, text = judged(checkout, capsys, breakage("test_get", "test_outer"))
    assert code == 1
    assert "1 of 2 tests do not pass without any breakage" in text
    assert f"{FILE}::test_get failed" in text


def test_a_session_that_ends_early_is_not_a_failure(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit = Edit("package/module.py", "Client.get", "import os\nos._exit(1)")
    code, text = judged(checkout, capsys, breakage("test_get", edit=edit))
    assert code == 1
    assert f"{FILE}::test_get did not run" in text


def test_a_function_that_is_gone_is_named(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edits = (GET, Edit("package/module.py", "Client.put", "pass"))
    code, text = judged(checkout, capsys, breakage("test_get")._replace(edits=edits), breakage("test_get"))
    assert code == 1
    assert "broken: FAILED, package/module.py has no function Client.put: correct the table" in text
    assert "broken: noticed by 1 tests" in text


@pytest.mark.parametrize(
    ("function", "code", "first", "found"),
    [
        ("outer", "return 9", False, 9),
        ("outer.inner", "return 4", False, 4),
        ("outer", "if True:\n    return 2", True, 2),
    ],
)
def test_functions_are_found_by_their_qualified_names(function: str, code: str, first: bool, found: int) -> None:
    names: dict[str, object] = {}
    exec(sabotage.edited(MODULE, function, code, first), names)
    assert names["outer"]() == found  # type: ignore[operator]


@pytest.mark.parametrize("name", ["Client", "Client.inner", "inner", "Client.open.get"])
def test_what_is_not_a_function(name: str) -> None:
    with pytest.raises(LookupError):
        sabotage.edited(MODULE, name, "pass")


def test_several_edits_of_a_module_are_made_together(checkout: Path) -> None:
    edits = (GET, Edit("package/module.py", "outer", "return 8"))
    with sabotage.applied(checkout, breakage()._replace(edits=edits)):
        names: dict[str, object] = {}
        exec((checkout / "package/module.py").read_text(), names)
        assert names["outer"]() == 8  # type: ignore[operator]
        assert names["Client"]().get() == 6  # type: ignore[operator]
    assert (checkout / "package/module.py").read_text() == MODULE


def test_every_function_of_the_table_exists(tmp_path: Path) -> None:
    for each in sabotage.BREAKAGES:
        assert each.tests, each.name
        for edit in each.edits:
            text = (sabotage.ROOT / edit.path).read_text()
            assert sabotage.edited(text, edit.function, edit.code, edit.first) != text, each.name
    names = [each.name for each in sabotage.BREAKAGES]
    assert len(names) == len(set(names))


def test_the_function_of_a_missing_file(checkout: Path) -> None:
    edit = Edit("package/other.py", "Client.get", "pass")
    with pytest.raises(Vanished, match=r"package/other\.py"), sabotage.applied(checkout, breakage(edit=edit)):
        pass


def test_the_copy_comes_before_what_is_installed(tmp_path: Path) -> None:
    """Programs with any PYTHONPATH import the copy, with the extension if there is one."""
    import importlib.util
    import subprocess

    folder = tmp_path / "small"
    for path in ("pypmix/__init__.py", "pypmix/engine/native/__init__.py"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text("")
    python = sabotage.copied(folder, tmp_path)
    command = [python, "-c", "import pypmix, pytest; print(pypmix.__file__)"]
    for variables in ({}, {"PYTHONPATH": str(tmp_path)}):
        done = subprocess.run(command, cwd="/", env=variables, capture_output=True, text=True, timeout=60, check=True)
        assert Path(done.stdout.strip()) == tmp_path / "checkout" / "pypmix" / "__init__.py"
    built = importlib.util.find_spec("pypmix.engine.native._ffi") is not None
    assert built == bool(list((tmp_path / "checkout/pypmix/engine/native").glob("_ffi.*.so")))
