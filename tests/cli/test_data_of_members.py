"""Proves what a construct and a connect bring of the data that their procs have committed."""

from __future__ import annotations

import json
import sys

import pytest

from lib.command import Command

PROGRAM = """
import json
import pypmix
from pypmix import attrs

with pypmix.Client() as me:
    me.put("number", me.rank)
    me.commit()
    OPERATION
    found = []
    for proc in me.job.procs:
        try:
            found.append(me.get("number", proc, info=[attrs.IMMEDIATE(True)]))
        except pypmix.NotFound:
            found.append(None)
    print(json.dumps([me.rank, found]), flush=True)
    # No rank ends before all have asked.
    me.fence(timeout=20)
"""

OPERATIONS = {
    "construct": "me.group('acme.all', me.job.procs, timeout=20).construct()",
    "connect": "me.connect(me.job.procs, timeout=20)",
}

EVERYTHING = [[0, 1, 2]] * 3


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("operation", OPERATIONS)
def test_the_data_of_all_is_there(command: Command, operation: str, nodes: int) -> None:
    """Each rank finds the data of all at its own server, which it alone asks."""
    program = PROGRAM.replace("OPERATION", OPERATIONS[operation])
    ended = command("run", "--nodes", nodes, "-n", 3, sys.executable, "-c", program)
    assert ended.code == 0, ended.err.decode()
    assert [found for _, found in sorted(json.loads(line) for line in ended.lines)] == EVERYTHING
