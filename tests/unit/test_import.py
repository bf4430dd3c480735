"""`import pypmix` and a Python client import no module that every rank of a job would pay for in vain."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.timeout(60)

ROOT = Path(__file__).parents[2]
HEAVY = {
    "argparse", "asyncio", "collections", "contextlib", "ctypes", "dataclasses", "enum", "functools", "inspect",
    "json", "logging", "re", "selectors", "socket", "subprocess", "tempfile", "threading", "typing", "urllib",
}  # fmt: skip


def imported(code: str) -> set[str]:
    """The modules that a fresh interpreter, with no site packages, holds after running `code`."""
    setup = f"import sys; sys.path.insert(0, {str(ROOT)!r}); before = set(sys.modules)"
    program = f"{setup}; {code}; print(*(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", program], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stdout.split() if not name.startswith("pypmix")}


def test_the_check_itself_sees_imports() -> None:
    assert "asyncio" in imported("import asyncio")


@pytest.mark.parametrize("code", [
    "import pypmix",
    "from pypmix import Client, Proc, Value, Info, PMIxError, NotFound, uint32",
    "from pypmix.engine import python; python.open_client({}, ())",
    "from pypmix import Client; Client(env={}).open().put('a', 1)",
])  # fmt: skip
def test_nothing_heavy_is_imported(code: str) -> None:
    assert not imported(code) & HEAVY
