"""No operation makes more calls of functions after many rounds: in clients and servers of both engines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

WINDOWS, ROUNDS = 12, 8
"""The rounds of a window are counted together; the least of the first windows is compared with that of the last."""
MOST = 1.25

LAUNCHER = """
import os, sys, threading
import pypmix
from pypmix.cli.main import main
from pypmix.host.publisheddata import Directory

ROOT = os.path.dirname(pypmix.__file__)
calls = 0

def profile(frame, event, argument):
    global calls
    if event == "call" and frame.f_code.co_filename.startswith(ROOT):
        calls += 1
        if frame.f_code is Directory.publish.__code__:
            open(os.environ["MARKS"], "a").write(f"{calls}\\n")

threading.setprofile(profile)
sys.setprofile(profile)
main(sys.argv[1:])
"""

RANK = """
import os, sys
import pypmix

engine, what, windows, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
ROOT = os.path.dirname(pypmix.__file__)
CODE = pypmix.EventCode.custom(-4242)
calls, number = 0, 0

def profile(frame, event, argument):
    global calls
    calls += event == "call" and frame.f_code.co_filename.startswith(ROOT)

def modex(me):
    me.put(f"key.{number}", b"x" * 64)
    me.fence(collect=True)
    me.get(f"key.{number}", peer)

def group(me):
    with me.group(f"group.{number}", me.job.procs):
        pass

def connect(me):
    with me.connect(me.job.procs):
        pass

def handler(me):
    me.on(CODE)(print).remove()

def event(me):
    me.fence()
    if me.rank == 0:
        me.notify(CODE)
    inbox.get()

def lookup(me):
    me.lookup("mark.0")

with pypmix.Client(engine=engine) as me:
    peer = me.job[1 - me.rank]
    if what == "event":
        import queue
        inbox = queue.SimpleQueue()
        me.on(CODE)(inbox.put)
    step, counts = globals()[what], []
    if me.rank == 0:
        me.publish({"mark.0": 0})
    for window in range(windows):
        calls = 0
        for _ in range(rounds):
            number += 1
            me.fence()
            sys.setprofile(profile)
            step(me)
            sys.setprofile(None)
        me.fence()
        counts.append(calls)
        if me.rank == 0:
            me.publish({f"mark.{window + 1}": 0})
    me.fence()
print(counts, flush=True)
"""


PAIRINGS = [
    # libpmix's clients commit all of their values each time, and its servers send all values of a proc.
    ("native", "native", "modex"),
    *[
        (client, server, what)
        for client, server in (("native", "python"), ("python", "native"))
        for what in ("group", "connect", "handler", "event", "lookup")
    ],
]


@pytest.mark.parametrize(("client", "server", "what"), PAIRINGS)
def test_rounds_make_no_more_calls_after_many(client: str, server: str, what: str, tmp_path: Path) -> None:
    launcher, rank = tmp_path / "launcher.py", tmp_path / "rank.py"
    launcher.write_text(LAUNCHER)
    rank.write_text(RANK)
    program = [sys.executable, str(rank), client, what, str(WINDOWS), str(ROUNDS)]
    command = [sys.executable, str(launcher), "run", "--server-engine", server, "-n", "2", *program]
    environment = {**os.environ, "MARKS": str(tmp_path / "marks")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0 and len(found) == 2, done.stdout + done.stderr
    marks = [int(line) for line in (tmp_path / "marks").read_text().split()]
    found.append([later - earlier for earlier, later in pairwise(marks)])
    for counts in found:
        assert len(counts) == WINDOWS
        third = WINDOWS // 3
        assert 0 < min(counts[-third:]) <= MOST * min(counts[1:third]), found
