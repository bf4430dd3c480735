"""Which engine is taken, and that a requested one never falls back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine
from pypmix import EngineUnavailable
from pypmix.engine import select
from pypmix.engine.native.library import Library, LibraryChoice, Refusal

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]

UNDER_5_0 = {
    "PMIX_NAMESPACE": "job",
    "PMIX_RANK": "0",
    "PMIX_VERSION": "5.0.11rc1",
    "PMIX_SERVER_URI41": "prterun-x@0.0;tcp4://127.0.0.1:1",
}
OUR_SERVER = {**UNDER_5_0, "PYPMIX_SERVER": "prterun-x@0 2026.1"}


def library(text: str, release: tuple[int, int, int]) -> Library:
    return Library(path="/lib/libpmix.so.2", version=text, release=release, origin="test")


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """Let the search find one library of 5.0, and record which generation was wanted."""
    wanted: list[str | None] = []

    def find(env: object, want: str | None) -> LibraryChoice:
        wanted.append(want)
        ours = library("5.0.11", (5, 0, 11))
        if want in (None, "5.0"):
            return LibraryChoice(ours, ())
        return LibraryChoice(None, (Refusal(path=ours.path, reason="it is 5.0", origin="test"),))

    monkeypatch.setattr(select, "_find", find)
    return wanted


def test_auto_takes_native_inside_the_servers_generation(found: list[str | None]) -> None:
    choice = select.choose(None, UNDER_5_0)
    assert (choice.engine, found) == ("native", ["5.0"])
    assert "generation 5.0" in choice.reason


@pytest.mark.parametrize("release", ["4.2.2rc2", "6.1.0", "7.0.0a1"])
def test_auto_takes_python_where_generations_differ(found: list[str | None], release: str) -> None:
    choice = select.choose(None, {**UNDER_5_0, "PMIX_VERSION": release})
    assert choice.engine == "python"
    assert choice.native is not None
    assert choice.native.refused


@pytest.mark.parametrize("env", [{}, {**UNDER_5_0, "PMIX_VERSION": ""}, OUR_SERVER])
def test_auto_looks_for_no_library_where_none_could_match(found: list[str | None], env: dict[str, str]) -> None:
    assert select.choose(None, env).engine == "python"
    assert found == []


def test_a_server_that_passes_our_mark_on_is_not_taken_for_ours(found: list[str | None]) -> None:
    inherited = {**UNDER_5_0, "PYPMIX_SERVER": "pypmix-1 2026.1"}
    assert select.launcher(OUR_SERVER).pypmix == "2026.1"
    assert select.launcher(inherited).pypmix == ""
    assert select.choose(None, inherited).engine == "native"


@pytest.mark.parametrize(
    ("engine", "loaded", "taken"),
    [("native", True, "native"), ("native", False, "python"), ("python", True, "python")],
)
def test_under_our_server_on_a_libpmix_one_that_is_loaded_keeps_its_connection(
    found: list[str | None], monkeypatch: pytest.MonkeyPatch, engine: str, loaded: bool, taken: str
) -> None:
    monkeypatch.setattr(select, "has_libpmix", lambda: loaded)
    assert select.choose(None, {**OUR_SERVER, "PYPMIX_SERVER_ENGINE": engine}).engine == taken


def test_the_argument_goes_before_the_environment(found: list[str | None]) -> None:
    assert select.choose("python", {**UNDER_5_0, "PYPMIX_ENGINE": "native"}).engine == "python"
    assert select.choose(None, {**UNDER_5_0, "PYPMIX_ENGINE": "python"}).engine == "python"
    assert select.choose("native", {}).engine == "native"


def test_an_unknown_engine_is_named_with_its_source() -> None:
    with pytest.raises(ValueError, match=r"PYPMIX_ENGINE='fast'.*auto, native, python"):
        select.choose(None, {"PYPMIX_ENGINE": "fast"})
    with pytest.raises(ValueError, match="engine='fast'"):
        select.choose("fast", {})


def test_a_requested_native_engine_says_why_it_cannot_be(monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = (Refusal(path="/lib/libpmix.so.2", reason="it is 3.2", origin="loader"),)
    monkeypatch.setattr(select, "_find", lambda env, want: LibraryChoice(None, refusals))
    with pytest.raises(EngineUnavailable, match=r"libpmix.so.2: it is 3.2"):
        select.choose("native", {})
    monkeypatch.setattr(select, "_find", lambda env, want: "the extension was not built")
    with pytest.raises(EngineUnavailable, match="was not built"):
        select.choose("native", UNDER_5_0)
    assert select.choose("auto", UNDER_5_0).engine == "python"


def test_the_launcher_is_read_from_the_environment() -> None:
    here = select.launcher(UNDER_5_0)
    assert (here.nspace, here.rank, here.release, here.server) == ("job", "0", "5.0.11rc1", "prterun-x@0.0")
    assert here.uris == (("PMIX_SERVER_URI41", "prterun-x@0.0;tcp4://127.0.0.1:1"),)
    assert select.launcher({}) == select.Launcher()


def test_auto_takes_python_where_this_process_cannot_open_the_library_again(
    found: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Opened:
        @staticmethod
        def refusal(library: Library) -> str:
            return f"{library.path} cannot be opened again"

    monkeypatch.setitem(select.modules, "pypmix.engine.native.session", Opened)
    choice = select.choose(None, UNDER_5_0)
    assert (choice.engine, choice.reason) == ("python", "/lib/libpmix.so.2 cannot be opened again")
    assert select.choose("native", UNDER_5_0).engine == "native"


def test_an_extension_that_was_built_of_other_declarations_says_so(tmp_path: Path) -> None:
    """Copy the sources, change a declaration, and ask for the native engine of that tree for a client and a server."""
    if not machine.extension():
        machine.lacking("the native engine's extension (pypmix was installed without a C compiler)")
    copy = shutil.copytree(
        ROOT / "pypmix", tmp_path / "pypmix", ignore=shutil.ignore_patterns("__pycache__", "compat", "testing")
    )
    cdef = shutil.copytree(ROOT / "native" / "cdef", tmp_path / "native" / "cdef")
    program = f"""
import sys
sys.path.insert(0, {str(copy.parent)!r})
from pypmix.engine import native, select
print(repr(native.missing))
for ask in (lambda: select.choose("native"), lambda: select.open_server(print, "native")):
    try:
        ask()
    except select.EngineUnavailable as error:
        print(error.detail)
"""
    command = [sys.executable, "-c", program]
    env = {**os.environ, "PYPMIX_LIBPMIX": "/nonexistent"}
    before = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True)
    assert before.stdout.startswith("''\n"), before
    (cdef / "shim.h").write_text((cdef / "shim.h").read_text() + "int pypmix_of_tomorrow(void);\n")
    after = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True)
    lines = after.stdout.splitlines()
    assert len(lines) == 3, after
    assert all(f"`pip install -e {tmp_path}`" in line for line in lines)
