"""Programs for the official binding run unmodified: each method of its clients and tools, on both engines."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from lib import pairings
from lib.pairings import Part
from pypmix.compat import PMIxClient, PMIxTool

SCRIPTS = Path(__file__).parent / "scripts"
RANKS = {"exchange": 2, "asking": 2, "groups": 2, "events": 2, "tool": 1}


def program(name: str, ranks: int) -> Part:
    return Part(ranks, [sys.executable, "-m", "pypmix.compat", str(SCRIPTS / f"{name}.py")])


def started(run, name: str, ranks: int):
    line = pairings.command_line(run.server, [program(name, ranks)])
    return run.begin(line, environment=pairings.client_environment(run.client)).wait()


@pytest.mark.forms("sync")
@pytest.mark.servers("python-server")
@pytest.mark.clients("python-client", "native-4.2.2")
@pytest.mark.parametrize("name", RANKS)
def test_program(run, name):
    job = started(run, name, RANKS[name])
    assert job.exit_code == 0, job.report()
    assert job.stdout.count("is done") == RANKS[name], job.report()
    if name == "events":
        # What a handler raises is shown, and does not keep the others from being called.
        assert job.stderr.count("ValueError: this handler fails") == 2, job.report()


@pytest.mark.forms("sync")
@pytest.mark.servers("python-server")
@pytest.mark.clients("python-client", "native-4.2.2")
def test_a_program_that_aborts(run):
    job = started(run, "spawning", 1)
    assert job.exit_code == 7, job.report()
    assert "rank 0 is done" in job.stdout, job.report()
    assert "that is enough" in job.stderr, job.report()


@pytest.mark.forms("sync")
@pytest.mark.servers("prterun-5.0.11")
@pytest.mark.clients("python-client")
def test_program_under_another_launcher(run):
    job = started(run, "exchange", 2)
    assert job.exit_code == 0, job.report()
    assert job.stdout.count("is done") == 2, job.report()


def test_every_method_is_called():
    """Methods of clients and of tools are in the scripts, or in the tests of what needs no server."""
    local = "test_local.py"
    text = "".join([path.read_text() for path in (*SCRIPTS.glob("*.py"), Path(__file__).parent / local)])
    called = set(re.findall(r"[.\"](\w+)\b", text))
    wanted = {name for cls in (*PMIxClient.__mro__, PMIxTool) for name in vars(cls) if not name.startswith("_")}
    assert wanted - called == set()
