"""Spawned jobs have the variables that `-x` has set for their parent, over several generations, and on any server."""

from __future__ import annotations

import sys

import pytest

from lib.command import Command

CHAIN = """
import os, sys
import pypmix
from pypmix import attrs
left, mapping = int(sys.argv[1]), sys.argv[2]
print(left, os.environ.get("UHU"), os.environ.get("MORE"), flush=True)
with pypmix.Client() as me:
    if left:
        info = {attrs.MAPBY: mapping} if mapping else {}
        more = {"MORE": "yes"} if left == 2 else {}
        job = me.spawn([sys.executable, "-c", os.environ["CHAIN"], str(left - 1), mapping],
                       env={"CHAIN": os.environ["CHAIN"], **more}, info=info)
        job.wait(timeout=20)
"""


@pytest.mark.parametrize("server", [(), ("--nodes", 2)])
@pytest.mark.parametrize(
    ("mapping", "lines"),
    [
        ("", ["2 5 None", "1 5 yes", "0 5 yes"]),
        (":noinherit", ["2 5 None", "1 None yes", "0 None None"]),
    ],
)
def test_variables_over_generations(
    command: Command, server: tuple[object, ...], mapping: str, lines: list[str]
) -> None:
    words = ("run", *server, "-x", "UHU=5", "-n", 1, sys.executable, "-c", CHAIN, 2, mapping)
    done = command(*words, env={"CHAIN": CHAIN})
    assert done.code == 0, done.err
    assert sorted(done.lines, reverse=True) == lines
