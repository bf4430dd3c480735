"""A node that is killed with all that is on it: the ranks of the others are told at once, in whatever they wait."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from queue import SimpleQueue
from threading import Thread

import pytest

pytestmark = pytest.mark.timeout(90)

NODE = Path(__file__).with_name("crossing_node.py")
ROOT = Path(__file__).parents[2]
PATIENCE = 40


@pytest.fixture
def nodes(tmp_path):
    """Two nodes, each a process group of its own, and a queue of what their ranks say."""
    said = SimpleQueue()
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = {}

    def listen(node):
        for line in node.stdout:
            said.put(json.loads(line))

    for name in ("n0", "n1"):
        command = [sys.executable, str(NODE), "node", name, str(tmp_path / "meeting")]
        node = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=env, start_new_session=True
        )
        found[name] = node
        Thread(target=listen, args=(node,), daemon=True).start()
    yield found, said
    for node in found.values():
        try:
            os.killpg(node.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        node.wait(PATIENCE)
        node.stdout.close()


def test_the_ranks_of_other_nodes_are_told(nodes):
    found, said = nodes
    first = [said.get(timeout=PATIENCE) for _ in range(8)]
    assert sorted(each["rank"] for each in first if "got" in each) == [0, 1, 2, 3]
    assert all(each["got"] == [0, 10, 20, 30] for each in first if "got" in each)
    assert sorted(each["rank"] for each in first if "ready" in each) == [0, 1, 2, 3]
    os.killpg(found["n1"].pid, signal.SIGKILL)
    ends = [said.get(timeout=PATIENCE) for _ in range(4)]
    assert sorted(each["rank"] for each in ends) == [0, 0, 1, 1]
    for each in ends:
        assert each["end"] == "ERR_PARTIAL_SUCCESS"
    assert found["n0"].wait(PATIENCE) == 0
