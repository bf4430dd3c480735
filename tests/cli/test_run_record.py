"""`pypmix run --record` writes down what the servers of a job ask, node by node."""

from __future__ import annotations

import sys

from lib.command import Command
from pypmix.recording import read

PUBLISHER = """
import pypmix
with pypmix.Client() as me:
    me.publish({f"acme.{me.rank}": me.rank})
"""


def test_what_both_nodes_are_asked_is_in_the_file(command: Command) -> None:
    path = command.folder / "upcalls.jsonl"
    ended = command("run", "--nodes", 2, "-n", 2, "--record", path, sys.executable, "-c", PUBLISHER)
    assert ended.code == 0, ended
    found = read(path)
    for rank in (0, 1):
        mine = [(entry.server, entry.op.name) for entry in found.entries if entry.requestor.rank == rank]
        names = ["client_connected", "publish", "client_finalized"]
        assert mine == [(f"node{rank}", name) for name in names]
    assert all(entry.answer is not None and entry.answer.error is None for entry in found.entries)


def test_a_file_that_cannot_be_made(command: Command) -> None:
    ended = command("run", "--record", command.folder / "none" / "such", "true")
    assert ended.code == 1
    assert ended.message.startswith("pypmix run: cannot write --record ")
    assert ended.message.endswith("none/such: No such file or directory")
