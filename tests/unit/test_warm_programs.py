"""Which command lines a fork server can stand in for, and what comes of them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pypmix.extras.forking.frames import Start
from pypmix.extras.forking.programs import Program, find
from pypmix.extras.forking.server import Unsafe, _seed_numpy, prepare

PYTHON = "/opt/bin/python3.12"


def found(tmp_path: Path, *words: str, program: str = PYTHON) -> Program | None:
    return find(program, ("name", *words), {"PATH": str(tmp_path)}, str(tmp_path))


def test_options_of_the_interpreter(tmp_path: Path) -> None:
    (tmp_path / "app.py").touch()
    path = str(tmp_path / "app.py")
    assert found(tmp_path, "app.py", "-u") == Program(PYTHON, (), "file", path, ("app.py", "-u"))
    many = found(tmp_path, "-uBX", "dev", "-Wignore", "--", "app.py")
    assert many == Program(PYTHON, ("-u", "-B", "-X", "dev", "-W", "ignore"), "file", path, ("app.py",))
    assert found(tmp_path, "-um", "pkg", "-c") == Program(PYTHON, ("-u",), "module", "pkg", ("-m", "-c"))
    assert found(tmp_path, "-cpass", "a") == Program(PYTHON, (), "command", "pass", ("-c", "a"))


@pytest.mark.parametrize(
    "words", [(), ("-",), ("-i", "app.py"), ("-V",), ("--help",), ("-m",), ("none.py",), ("folder",), ("app.pyz",)]
)
def test_what_the_interpreter_does_by_itself(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "app.py").touch()
    (tmp_path / "app.pyz").touch()
    (tmp_path / "folder").mkdir()
    assert found(tmp_path, *words) is None


@pytest.mark.parametrize(
    ("line", "interpreter", "options"),
    [
        (b"#!/opt/bin/python3\n", "/opt/bin/python3", ()),
        (b"#! /opt/bin/python3 -u\n", "/opt/bin/python3", ("-u",)),
        (b"#!/usr/bin/env python9\n", "python9", ()),
    ],
)
def test_interpreter_lines(tmp_path: Path, line: bytes, interpreter: str, options: tuple[str, ...]) -> None:
    script = tmp_path / "script"
    script.write_bytes(line + b"pass\n")
    (tmp_path / "python9").touch(0o755)
    expected = interpreter if interpreter[0] == "/" else str(tmp_path / interpreter)
    assert found(tmp_path, "a", program=str(script)) == Program(
        expected, options, "file", str(script), (str(script), "a")
    )


@pytest.mark.parametrize(
    "content", [b"#!/bin/sh\n", b"\x7fELF", b"", b"#!/usr/bin/env -S python3 -u\n", b"#!/usr/bin/env python9\nPK\0"]
)
def test_other_programs(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "python9").touch(0o755)
    (tmp_path / "program").write_bytes(content)
    assert found(tmp_path, program=str(tmp_path / "program")) is None


def test_the_first_entry_of_the_path(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "app.py").touch()
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "app.py")
    program = found(tmp_path, "link.py")
    assert program is not None and program.path("/there") == str(tmp_path / "real")
    assert Program(PYTHON, (), "module", "m", ()).path("/there") == "/there"
    assert Program(PYTHON, (), "command", "pass", ()).path("/there") == ""


def test_a_start_travels() -> None:
    start = Start("command", "a\nb", ("-c", ""), ("python", "-c", "x"), {"A": "b=c", "E": ""}, "/there", True)
    assert Start.read(start.write()) == start


def test_numpy_draws_other_numbers_in_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    seeded = []

    class Module:
        @staticmethod
        def seed() -> None:
            seeded.append(True)

    monkeypatch.setitem(sys.modules, "numpy.random", Module)
    _seed_numpy()
    assert seeded


def test_a_module_is_refused_by_name() -> None:
    with pytest.raises(Unsafe, match=r"^mpi4py\.MPI cannot be imported before ranks are forked: it initializes MPI"):
        prepare(["mpi4py.MPI"])
