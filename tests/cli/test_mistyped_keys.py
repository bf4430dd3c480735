"""A mistyped key is one error without another one behind it: it names the key, the proc once, and what is known."""

from __future__ import annotations

import sys

import pytest

from lib import machine
from lib.command import Command

SYNC = """
import pypmix, sys
with pypmix.Client() as me:
    me.put("endpoint", 1)
    me.commit()
    me.fence(collect="collect" in sys.argv)
    if me.rank == 0:
        me.get(sys.argv[1], 1)
"""

ASYNC = """
import asyncio, sys
from pypmix import aio
async def main():
    async with aio.Client() as me:
        await me.put("endpoint", 1)
        await me.commit()
        await me.fence(collect="collect" in sys.argv)
        if me.rank == 0:
            await me.get(sys.argv[1], 1)
asyncio.run(main())
"""


@pytest.mark.parametrize("engine", ["python", "native"])
@pytest.mark.parametrize("program", [SYNC, ASYNC], ids=["sync", "aio"])
@pytest.mark.parametrize("collect", ["collect", "direct"])
@pytest.mark.parametrize(
    ("key", "hint"), [("endpiont", "did you mean 'endpoint'?"), ("quite-else", "known here: 'endpoint'")]
)
def test_a_mistyped_key(command: Command, engine: str, program: str, collect: str, key: str, hint: str) -> None:
    if engine == "native" and not (machine.extension() and machine.libraries()):
        machine.lacking("libpmix")
    words = ("run", "--engine", engine, "-n", 2, sys.executable, "-c", program, key, collect)
    done = command(*words)
    text = done.err.decode()
    assert done.code == 1
    assert text.count("Traceback") == 1 and "direct cause" not in text and "During handling" not in text
    (line,) = [line for line in text.splitlines() if line.startswith("pypmix.standard.errors.")]
    assert line.startswith("pypmix.standard.errors.NotFound: get of ")
    assert line.count("rank 1") == 1 and f"{key!r}" in line and hint in line
