"""`pypmix run` names the ranks that exit well and never connected, if other ranks of their job did."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lib.command import LIMIT, Command

LINE = "without calling PMIx_Init or PMI_Init"

CLIENT = """
import os, sys, time
from pypmix import Client
def wait(until):
    end = time.monotonic() + 30
    while not until():
        assert time.monotonic() < end
        time.sleep(0.01)
def pid(rank):
    try:
        return open(f"pid.{rank}").read().strip()
    except FileNotFoundError:
        return ""
def has_exited(rank):
    try:
        return open(f"/proc/{pid(rank)}/stat").read().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return bool(pid(rank))
"""

EARLY = "echo $$ > pid.part; mv pid.part pid.$PMIX_RANK; exit 0"
"""A rank that exits at once."""

LATE = "while [ ! -e connected ]; do sleep 0.01; done; exit 0"
"""A rank that exits after another one has connected."""


def client(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", CLIENT + text)


WAITS = client("wait(lambda: has_exited(1))\nwith Client(): pass")
CONNECTS = client("with Client():\n    open('connected', 'w').close()")


@pytest.mark.parametrize("nodes", [(), ("--nodes", 2)], ids=["one node", "two nodes"])
@pytest.mark.parametrize(("first", "second"), [(WAITS, EARLY), (CONNECTS, LATE)], ids=["before", "after"])
def test_a_rank_is_named_whether_it_exits_before_or_after_others_connect(
    command: Command, first: tuple[str, ...], second: str, nodes: tuple[object, ...]
) -> None:
    ended = command("run", *nodes, "-n", 1, *first, ":", "-n", 1, "sh", "-c", second)
    assert ended.code == 0
    (line,) = [line for line in ended.err.decode().splitlines() if LINE in line]
    assert line.startswith("rank 1 (pid ") and "`ldd`" in line


def test_it_is_named_while_the_others_run(command: Command) -> None:
    """They may wait for it forever."""
    stays = client("with Client():\n    open('connected', 'w').close()\n    wait(lambda: os.path.exists('seen'))")
    with command.start("run", "-n", 1, *stays, ":", "-n", 1, "sh", "-c", LATE) as process:
        assert process.stderr is not None
        assert LINE in process.stderr.readline().decode()
        (command.folder / "seen").touch()
        assert process.communicate(timeout=LIMIT)[1] == b""
    assert process.returncode == 0


def test_one_line_names_several(command: Command) -> None:
    ended = command("run", "-n", 1, *CONNECTS, ":", "-n", 3, "sh", "-c", LATE)
    assert ended.code == 0 and ended.err.decode().count(LINE) == 1


@pytest.mark.parametrize(
    "words",
    [
        ("-n", 4, "true"),
        ("-n", 2, *client("with Client(): pass")),
        ("-n", 1, *client("")),
        ("-n", 1, *CONNECTS, ":", "-n", 1, "sh", "-c", f"{LATE[:-1]}3"),
    ],
    ids=["nobody connects", "everybody connects", "one rank", "it fails"],
)
def test_others_are_not_named(command: Command, words: tuple[object, ...], tmp_path: Path) -> None:
    assert LINE not in command("run", *words).err.decode()
