"""What a rank may commit follows the limit that `pypmix run` was given, and nothing else; errors name key and limit."""

from __future__ import annotations

import sys

import pytest

from lib.command import Command

RANK = "import os, pypmix\nme = pypmix.Client(engine='python').open()\n"
SIZE = 40_000_000
"""More bytes than the limit allows by default, and than a libpmix from 6.0 takes in one message."""


def client(text: str) -> tuple[str, ...]:
    return (sys.executable, "-c", RANK + text)


@pytest.mark.parametrize("nodes", [1, 2])
def test_a_large_value_is_taken_where_the_limit_allows_it(command: Command, nodes: int) -> None:
    put = f"if me.rank == 0: me.put('blob', b'x' * {SIZE})\n"
    text = put + "me.fence(collect=True)\nprint(len(me.get('blob', me.job[0])))\nme.close()"
    ended = command("run", "-n", 2, "--nodes", nodes, "--limits", "committed=200M", *client(text))
    assert ended.code == 0, ended.message
    assert ended.lines == [str(SIZE)] * 2


def test_a_value_above_the_limit_is_refused_by_key_and_limit(command: Command) -> None:
    text = (
        f"me.put('small', 1)\nme.put('blob', b'x' * {SIZE})\n"
        "try: me.commit()\nexcept pypmix.PMIxError as error: print(error, flush=True)\nos._exit(0)"
    )
    ended = command("run", "-n", 1, *client(text))
    (line,) = ended.lines
    assert "the limit 'committed' is 32505856" in line
    assert f"the largest value of this commit is that of 'blob', {SIZE + 12} bytes" in line
    assert "ERR_OUT_OF_RESOURCE" in line
