"""Compiles the C programs once, and runs them with every libpmix at hand."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lib import machine, pairings
from lib.command import command

__all__ = ["command"]

HERE = Path(__file__).parent

TESTED = ("4.2.2", "5.0.8", "5.0.11")
RELEASES = [*TESTED, *(found.release for found in machine.libraries() if found.release not in TESTED)]


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """Return a function from a program's name to its compiled file."""
    compiler, headers = machine.compiler(), machine.pmix_headers()
    if compiler is None:
        machine.lacking("a C compiler")
    if headers is None:
        machine.lacking("pmix.h (Debian's libpmix-dev)")
    folder = tmp_path_factory.mktemp("programs")

    def program(name: str) -> str:
        binary = folder / name
        if not binary.exists():
            source = HERE / f"{name}.c"
            flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{headers}"]
            command = [str(compiler), *flags, "-o", str(binary), str(source), "-lpmix"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
        return str(binary)

    return program


@pytest.fixture(params=RELEASES)
def libpmix(request: pytest.FixtureRequest) -> dict[str, str]:
    """The variables that make a C program run with one of the libpmix releases."""
    library = pairings.require_library(request.param)
    return {"LD_LIBRARY_PATH": str(Path(library.path).parent), "INTEROP_RELEASE": request.param}
