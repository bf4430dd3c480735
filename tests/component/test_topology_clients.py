"""Clients of libpmix read the node's hardware from what the server gives them, instead of discovering it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine
from lib.command import Command

pytestmark = pytest.mark.timeout(120)

LOADS = """
import ctypes as c
import sys

library = c.CDLL(sys.argv[1])


class Pair(c.Structure):
    _fields_ = [("source", c.c_char_p), ("data", c.c_void_p)]


me = c.create_string_buffer(300)
assert library.PMIx_Init(me, None, c.c_size_t(0)) == 0
topology = Pair()
assert library.PMIx_Load_topology(c.byref(topology)) == 0
library.hwloc_bitmap_weight.argtypes = [c.c_void_p]
library.hwloc_topology_get_allowed_cpuset.restype = c.c_void_p
library.hwloc_topology_get_allowed_cpuset.argtypes = [c.c_void_p]
print("CPUs", library.hwloc_bitmap_weight(library.hwloc_topology_get_allowed_cpuset(topology.data)), flush=True)
library.PMIx_Finalize(None, c.c_size_t(0))
"""

VERBOSE = "PMIX_MCA_pmix_hwloc_verbose=5"
"""Makes libpmix say how it got the topology."""


def judge(out: str, said: str) -> None:
    from pypmix.topology.kernel import read_machine

    assert out == f"CPUs {read_machine().cpus.bit_count()}\n"
    assert "v2 xml adopted" in said
    assert "doing discovery" not in said


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize("release", ["4.2.2", "5.0.8", "5.0.11"])
def test_releases_here(command: Command, release: str, engine: str) -> None:
    library = machine.library(release)
    if library is None:
        machine.lacking(f"libpmix {release}")
    if engine == "native" and not machine.extension():
        machine.lacking("the native engine")
    assert library is not None
    words = ("--server-engine", engine, "-n", 1, "-x", VERBOSE, sys.executable, "-c", LOADS, library.path)
    done = command("run", *words)
    assert done.code == 0, done.err
    judge(done.out.decode().splitlines()[-1] + "\n", (done.out + done.err).decode())


def test_the_newest_release(tmp_path: Path) -> None:
    lacking = machine.root_lacking()
    if lacking:
        machine.lacking(lacking)
    root = machine.root()
    assert root is not None
    program = tmp_path / "loads.py"
    program.write_text(LOADS)
    words = ["run", "-n", "1", "-x", VERBOSE, "python3", str(program), "libpmix.so.2"]
    command = machine.enter(["env", f"TMPDIR={tmp_path}", "python3", "-m", "pypmix", *words], tmp_path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=machine.clean_environment())
    assert done.returncode == 0, done.stderr
    judge(done.stdout.splitlines()[-1] + "\n", done.stdout + done.stderr)
