"""Proves what a construct and a connect bring of the data that their procs have committed."""

from __future__ import annotations

import json
import re
import sys

import pytest

from lib.command import Command
from lib.lack import expected_failure

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
    "construct": "me.group_construct('acme.all', me.job.procs, timeout=20)",
    "connect": "me.connect(me.job.procs, timeout=20)",
}

EVERYTHING = [[0, 1, 2]] * 3


def found_after(command: Command, operation: str, nodes: int) -> list[list[int | None]]:
    """Return what each rank of three finds of all, asking its own server alone."""
    program = PROGRAM.replace("OPERATION", OPERATIONS[operation])
    ended = command("run", "--nodes", nodes, "-n", 3, sys.executable, "-c", program)
    assert ended.code == 0, ended.err.decode()
    return [found for _, found in sorted(json.loads(line) for line in ended.lines)]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_on_one_node_the_data_of_all_is_there(command: Command, operation: str) -> None:
    assert found_after(command, operation, 1) == EVERYTHING


OBSERVED = {
    2: [[0, 1, None], [0, 1, None], [None, None, 2]],
    3: [[0, None, None], [None, 1, None], [None, None, 2]],
}
"""What is there on several nodes: the data of the rank's own node."""


@pytest.mark.parametrize("nodes", OBSERVED)
@pytest.mark.parametrize("operation", OPERATIONS)
def test_on_several_nodes_the_data_of_all_is_there(command: Command, operation: str, nodes: int) -> None:
    found = found_after(command, operation, nodes)
    reason = (
        "the exchange of a construct or connect carries directives, and no data of procs as a collecting fence does"
    )
    with expected_failure(reason, raises=AssertionError, match=re.escape(str(OBSERVED[nodes]))):
        assert found == EVERYTHING, str(found)
