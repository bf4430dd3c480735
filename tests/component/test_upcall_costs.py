"""How many functions of pypmix a host's process calls from one upcall to the next."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROUNDS = 60

PROGRAM = """
import asyncio, os, sys, threading
import pypmix
from pypmix.host import Host

ROOT = os.path.dirname(pypmix.__file__)
count, seen = [0], []

def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(ROOT):
        count[0] += 1

class Waiting(Host):
    async def publish(self, req):
        seen.append(count[0])

class Blocking(Host):
    def publish(self, req):
        seen.append(count[0])

async def main():
    kind, engine, rank = sys.argv[1:]
    async with (Waiting if kind == "async" else Blocking)(engine=engine) as rm:
        async with rm.start(rm.job("job", np=1), [sys.executable, rank], forward_output=True) as procs:
            await procs.wait()
    # The least: a thread may look in vain in between.
    print(min(later - earlier for earlier, later in zip(seen, seen[1:])))

threading.setprofile(profile)
sys.setprofile(profile)
asyncio.run(main())
"""

RANK = f"""
import pypmix

with pypmix.Client() as me:
    for index in range({ROUNDS}):
        me.publish({{f"key.{{index}}": index}})
"""


@pytest.mark.parametrize(
    ("kind", "engine", "most"),
    [("async", "python", 88), ("plain", "python", 97), ("async", "native", 54), ("plain", "native", 56)],
)
def test_an_upcall_takes_few_calls(kind: str, engine: str, most: int, tmp_path: Path) -> None:
    host, rank = tmp_path / "host.py", tmp_path / "rank.py"
    host.write_text(PROGRAM)
    rank.write_text(RANK)
    command = [sys.executable, str(host), kind, engine, str(rank)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) <= most
