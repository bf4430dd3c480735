"""A job on several machines grows and shrinks by the commands and the program of the how-to page, over ssh."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

from nodes import test_run
from nodes.test_run import LIMIT, Runner, succeeded, ways

from harness import machine
from harness.cluster import Cluster

over = test_run.over

PAGE = (machine.ROOT / "docs" / "how-to" / "cluster-elastic.md").read_text()
COMMANDS = re.findall(r"^\$ pypmix (.*)$", PAGE, re.MULTILINE)
(PROGRAM,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)

WAIT = """
import os, signal
from pypmix import Client, EventCode, attrs

signal.signal(signal.SIGUSR2, lambda *_: exit(0))
with Client() as me, me.events(EventCode.EVENT_NODE_OFFLINE) as events:
    me.fence(timeout=30)
    print(me.rank, "waits", os.getpid(), flush=True)
    for name in ("n3", "n2"):
        event = events.get(timeout=90)
        print(me.rank, "without", event.info[attrs.HOSTNAME], flush=True)
"""


def command(cluster: Cluster, node: str, line: str, check: bool = True) -> str:
    """Run a command of the page on a node, and return its output, or its error where it is to fail."""
    done = cluster[node].run(sys.executable, "-m", "pypmix", *line.split(), check=False, timeout=LIMIT)
    assert (done.returncode == 0) == check, f"{line}: {done}"
    return done.stdout if check else done.stderr


@ways("ssh")
def test_the_commands_of_the_page(over: Runner) -> None:
    """Each on another node of the session; all of them see all of it."""
    run, grow, ps, shrink, _, force = COMMANDS
    assert run.startswith("run --host n1:2,n2:2 -n 4 ")
    started = over.begin(4, sys.executable, "-c", WAIT, options=("--map-by", "ppr:2:node", "--keep-going"))
    pids = dict(over.until_said(started, r"(\d) waits (\d+)", 4))
    places = [(str(rank), pids[str(rank)], "n1" if rank < 2 else "n2") for rank in range(4)]
    assert command(over.cluster, "n1", grow) == "n3\n"
    for node in ("n1", "n2", "n3"):
        rows = [line.split() for line in command(over.cluster, node, ps).splitlines()[1:]]
        assert [(row[1], row[2], row[4]) for row in rows] == places
    assert "ranks run on n2 (2)" in command(over.cluster, "n3", "shrink n2", check=False)
    assert command(over.cluster, "n2", shrink) == "n3\n"
    over.until_said(started, "without n3", 4)
    assert command(over.cluster, "n1", force) == "n2\n"
    over.until_said(started, "[01] without n2", 2)
    job = started.launcher.wait()
    assert job.exit_code == 143 and "n2 was taken out of the session" in job.stderr, job.report()
    assert over.cluster.wait_gone() == ""


@ways("ssh")
def test_the_program_of_the_page(over: Runner, tmp_path: Path) -> None:
    program = tmp_path / "grows.py"
    program.write_text(PROGRAM)
    job = succeeded(over(4, sys.executable, str(program), options=("--map-by", "ppr:2:node")))
    assert sorted(job.stdout.splitlines()) == [
        *[f"rank {rank} sees n3" for rank in range(4)],
        *[f"worker {rank} on n3" for rank in range(2)],
    ], job.report()
    assert over.cluster.wait_gone() == ""


@ways("ssh")
def test_a_machine_that_cannot_join_is_named(over: Runner) -> None:
    started = over.begin(2, "sleep", "120")
    over.cluster.until("a session", lambda: '"rank"' in json.dumps(_ranks(over)), 40)
    text = command(over.cluster, "n1", "grow n9", check=False)
    assert "n9" in text and "Traceback" not in text, text
    started.launcher.send_signal(signal.SIGTERM)
    assert started.launcher.wait().exit_code == 143
    assert over.cluster.wait_gone() == ""


def _ranks(over: Runner) -> object:
    done = over.cluster["n1"].run(sys.executable, "-m", "pypmix", "ps", "--json", check=False, timeout=LIMIT)
    return json.loads(done.stdout) if done.returncode == 0 else {}
