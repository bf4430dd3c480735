"""Proves that one Python server serves a thousand clients: all fence and get what they should, and little is held."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from lib import machine

CLIENTS = 1000

IDLE = 64 << 10
"""Bytes that an idle client may take on its server."""

COMMITTED = IDLE + (8 << 10)
"""And one that has committed a KiB, which others have got."""


@pytest.mark.timeout(90)
def test_a_thousand_clients():
    program = machine.TESTS / "bench" / "load.py"
    command = [sys.executable, str(program), "--clients", str(CLIENTS), "--fences", "2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=80, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout)
    # The processes of the clients check what each of these got.
    assert found["exit codes"] == 0, done.stderr[-4000:]
    assert (found["finalized"], found["lost"], found["pending"]) == (CLIENTS, 0, 0)
    assert found["descriptors left"] == 0
    assert found["bytes per client"] < IDLE
    assert found["bytes per client with 1 KiB"] < COMMITTED
