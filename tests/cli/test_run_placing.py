"""`pypmix run` on this machine: ranks are placed as `--map-by` and `--rank-by` say, and what has no effect is said."""

from __future__ import annotations

import sys

import pytest

from lib.command import Command

HOME = """
from pypmix import Client
with Client() as me:
    me.fence(timeout=20)
    print(me.rank, me.node.hostname, flush=True)
"""


@pytest.mark.parametrize(
    ("words", "homes"),
    [
        (["--nodes", "2", "-n", "4"], "0011"),
        (["--nodes", "2", "-n", "4", "--map-by", "slot"], "0011"),
        (["--nodes", "2", "-n", "4", "--map-by", "node"], "0101"),
        (["--nodes", "2", "-n", "4", "--rank-by", "node"], "0101"),
        (["--nodes", "2", "-n", "4", "--map-by", "node", "--rank-by", "slot"], "0011"),
        (["--nodes", "2", "-n", "3", "--map-by", "ppr:2:node"], "001"),
        (["--nodes", "3", "--map-by", "ppr:2:node"], "001122"),
    ],
)
def test_ranks_are_placed_as_the_mapping_says(command: Command, words: list[str], homes: str) -> None:
    done = command("run", *words, sys.executable, "-c", HOME)
    assert done.code == 0, done.err
    assert sorted(done.lines) == [f"{rank} node{home}" for rank, home in enumerate(homes)]


@pytest.mark.parametrize("nodes", [(), ("--nodes", 2)])
def test_more_ranks_than_the_mapping_takes_are_refused(command: Command, nodes: tuple[object, ...]) -> None:
    done = command("run", *nodes, "-n", 5, "--map-by", "ppr:2:node", "true")
    assert done.code == 2
    assert b"5 ranks do not fit on " in done.err


def test_a_machine_takes_any_number_of_ranks(command: Command) -> None:
    done = command("run", "--map-by", "node", "-n", 40, "true")
    assert (done.code, done.err) == (0, b"")


@pytest.mark.parametrize(
    ("setting", "remark"),
    [
        ("NOSUCH", "-x NOSUCH has no effect: NOSUCH is not set here"),
        ("A,B", "-x A,B has no effect: A,B is not set here; -x takes one variable, and is repeated for others"),
    ],
)
def test_a_variable_that_is_not_there_is_said(command: Command, setting: str, remark: str) -> None:
    done = command("run", "-x", setting, "true")
    assert done.code == 0
    assert done.err.decode() == f"pypmix run: {remark}\n"


def test_a_secret_that_is_not_needed_is_said(command: Command) -> None:
    done = command("run", "--secret-file", "nosuch", "true")
    assert done.code == 0
    assert b"--secret-file has no effect" in done.err


def test_tags_name_the_simulated_node(command: Command) -> None:
    done = command("run", "--nodes", 2, "-n", 2, "--tag-output", "echo", "up")
    assert sorted(done.lines) == ["[0@node0]<stdout>: up", "[1@node1]<stdout>: up"]
    assert command("run", "-n", 2, "--tag-output", "echo", "up").out.count(b"@") == 0
