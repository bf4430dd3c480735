"""OpenPMIx's own command-line tools attach to a job on the Python server and get right answers."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lib import machine
from lib.c_programs import succeeded
from lib.pairings import Part
from pypmix import Server
from pypmix.standard.ops import ClientFinalized, Publish, ToolConnected

pytestmark = pytest.mark.servers("python-server")

TOOLS = "PYPMIX_TEST_PMIX_TOOLS"
"""The folder of the tools, where it is not on the path (Debian's package libpmix-bin)."""

SHOW = """
import os, subprocess, sys
import pypmix

with pypmix.Client(engine="python") as me, me.events(pypmix.EventCode(-6100)) as events:
    if me.rank == 0:
        outside = {name: text for name, text in os.environ.items() if not name.startswith(("PMIX_", "PYPMIX_"))}
        done = subprocess.run(sys.argv[1:], env=outside, capture_output=True, text=True, timeout=20)
        print("nspace", me.nspace)
        print("server", os.getppid())
        print("code", done.returncode)
        print(done.stdout + done.stderr)
    me.fence(timeout=25)
    try:
        print("event", me.rank, events.get(0.5).source.nspace != me.nspace)
    except pypmix.OperationTimeout:
        pass
"""


@pytest.fixture
def tool() -> str:
    """The folder of the tools."""
    folder = os.environ.get(TOOLS) or (found and str(Path(found).parent) if (found := shutil.which("pps")) else "")
    if not folder:
        machine.lacking("OpenPMIx's command-line tools (Debian's libpmix-bin)")
    assert folder
    return folder


def shown(launch, *words: str) -> str:
    """Return what a job prints whose first rank has run a tool."""
    return succeeded(launch(Part(2, [sys.executable, "-c", SHOW, *words]))).stdout


def test_pps(launch, tool):
    for words in ([], ["--pid", "of the server"]):
        command = [f"{tool}/pps"]
        if words:
            # The server's pid is known in the rank only.
            command = ["sh", "-c", f"exec {tool}/pps --pid $(ps -o ppid= -p $PPID)"]
        found = shown(launch, *command)
        nspace = re.search("^nspace (.*)$", found, re.M)
        assert nspace, found
        assert "code 0" in found, found
        assert re.search(f"^Active nspaces: {re.escape(nspace[1])}$", found, re.M), found


def test_pevent(launch, tool):
    found = shown(launch, f"{tool}/pevent", "--event", "-6100", "--range", "GLOBAL")
    assert "code 0" in found, found
    assert sorted(re.findall("^event (.*)$", found, re.M)) == ["0 True", "1 True"], found


def test_a_tool_that_dies_while_it_is_attached(launch, tool):
    """plookup of 4.2.2 crashes as soon as it has attached, at every server; later ones look the key up."""
    found = shown(launch, f"{tool}/plookup", "no.such.key")
    assert re.search("^code", found, re.M), found


def test_they_run_here(tool):
    """Where none of the tools starts at all, the tests above would prove nothing."""
    done = subprocess.run([f"{tool}/pattrs", "--help"], capture_output=True, text=True, timeout=20)
    assert "PMIx" in done.stdout + done.stderr


def test_a_singleton_is_served_by_the_system_server(programs, libpmix, tmp_path):
    asked = []

    def on_upcall(upcall):
        asked.append(upcall.op)
        upcall.reply()

    environment = {name: text for name, text in os.environ.items() if not name.startswith(("PMIX_", "PYPMIX_"))}
    # With another store than hash its job info would have to come in shared memory.
    environment |= {**libpmix, "PMIX_SYSTEM_TMPDIR": str(tmp_path), "PMIX_MCA_gds": "hash"}
    with Server(on_upcall, tmpdir=str(tmp_path), system_tmpdir=str(tmp_path), system_server=True):
        done = subprocess.run([programs("singleton")], env=environment, capture_output=True, text=True, timeout=20)
    assert done.stdout.split("\n")[:3] == ["init 0", "publish 0", "finalize 0"], done.stdout + done.stderr
    connected, published, finalized = asked
    assert isinstance(connected, ToolConnected)
    assert connected.proc.nspace.startswith("singleton.")
    assert isinstance(published, Publish)
    assert isinstance(finalized, ClientFinalized)
