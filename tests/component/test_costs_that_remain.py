"""A fence and a get take as few calls of functions in a client that has done much before as in a new one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import json, sys
import pypmix

calls = 0

def count(frame, event, argument):
    global calls
    calls += event == "call"

def least(function):
    # The least of many: a server that answers before the caller sleeps wakes the thread that listens as well.
    global calls
    found = []
    for _ in range(100):
        calls = 0
        sys.setprofile(count)
        function()
        sys.setprofile(None)
        found.append(calls)
    return min(found)

def measure(me):
    return least(me.fence), least(lambda: me.get("key", me.job[1 - me.rank]))

with pypmix.Client(engine=ENGINE) as me:
    me.put("key", "value")
    me.fence(collect=True)
    measure(me)
    before = measure(me)
    if BEFORE == "handler":
        kept = me.on(pypmix.EventCode.custom(-4242))(lambda event: None)
    elif BEFORE == "group":
        group = me.group("acme", me.job.procs)
        group.construct()
        group.destruct()
    elif BEFORE == "invitation":
        kept = me.on(pypmix.EventCode.GROUP_INVITED)(lambda event: None)
    elif BEFORE == "connection":
        with me.connect(me.job.procs):
            pass
    print(json.dumps([before, measure(me)]), flush=True)
"""

MOST = 1.1
"""How many times the calls of a new client an operation may take."""

FENCE = {"python": 25, "native": 4}
"""The calls that a fence of the whole job may take: each one costs more than what it does, in a process that slept."""


@pytest.mark.parametrize("before", ["handler", "group", "invitation", "connection"])
@pytest.mark.parametrize("engine", ["python", "native"])
def test_fences_and_gets_cost_no_more_after(engine: str, before: str, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("BEFORE", repr(before)).replace("ENGINE", repr(engine)))
    command = [sys.executable, "-m", "pypmix", "run", "-n", "2", sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert done.returncode == 0 and len(found) == 2, done.stdout + done.stderr
    for new, later in found:
        assert new[0] <= FENCE[engine]
        for least_new, least_later in zip(new, later, strict=True):
            assert least_later <= MOST * least_new, (new, later)
