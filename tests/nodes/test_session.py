"""What a launcher over several machines owes beside running ranks: reports of a hang, limits, process sets, spawns."""

from __future__ import annotations

import os
import re
import signal
import sys
import time

import pytest

from lib import processes
from lib.node_runs import Runner, Started, succeeded, ways
from pypmix.host.local import HANG

BY_TWO = ("--map-by", "ppr:2:node")

HANGS = """
import os, time
from pypmix import Client

with Client() as me:
    me.fence(timeout=30)
    print(me.rank, "is", os.getpid(), flush=True)
    if me.node.hostname == "n1":
        me.fence()
    time.sleep(100)
"""

PSETS = """
import sys
from pypmix import Client, Proc, attrs

with Client() as me:
    me.fence(timeout=30)
    if me.rank == 0:
        me.control([Proc(me.nspace, rank) for rank in (1, 2)]).request(info={attrs.JOB_CTRL_DEFINE_PSET: "inner"})
        me.publish({"defined": True})
    me.lookup("defined", timeout=30)
    found = me.psets
    members = {name: [proc.rank for proc in found[name]] for name in ("halves", "inner")}
    print(me.rank, "sees", members, flush=True)
    if me.rank in (1, 2):
        me.fence(found["inner"], timeout=30)
    me.fence(timeout=30)
"""

SPAWNS = """
import sys
from pypmix import Client, PMIxError, attrs

ASKED = ({attrs.HOST: "n2"}, {attrs.HOST: "n1,n2"}, {attrs.ADD_HOST: "n3:2"}, {attrs.ADD_HOST: "n3"})
with Client() as me:
    if me.rank == 0:
        for turn, info in enumerate(ASKED):
            size = 4 if turn == 1 else 2
            me.spawn(["sh", "-c", f"echo turn {turn} on $(hostname)"], n=size, info=info).wait(timeout=60)
        try:
            me.spawn(["true"], info={attrs.ADD_HOST: "n9"}, timeout=60)
        except PMIxError as error:
            print("refused", error.status.name, flush=True)
    me.fence(timeout=100)
"""


def pids_of(over: Runner, started: Started) -> dict[str, str]:
    return dict(over.until_said(started, r"(\d) is (\d+)", 4))


def missing(pids: dict[str, str]) -> str:
    return f"2 of 4 arrived.*missing: rank 2 \\(pid {pids['2']} on n2\\), rank 3 \\(pid {pids['3']} on n2\\)"


@ways("ssh", "symmetric")
def test_a_hang_is_explained_to_whoever_asks(over: Runner) -> None:
    """By SIGUSR1 to the launcher and to a daemon, and by Ctrl-C."""
    started = over.begin(4, sys.executable, "-c", HANGS, options=BY_TWO)
    wanted = missing(pids_of(over, started))
    job = started.launcher

    def ask() -> None:
        job.send_signal(signal.SIGUSR1)

    over.cluster.until("a report", processes.asked_until(wanted, "4 of 4 ranks run", lambda: job.stderr, ask), 30)
    if over.way == "ssh":
        # What a daemon of another machine writes comes back by ssh.
        (daemon,) = [each for each in over.cluster["n2"].processes() if each.command.endswith("-m pypmix node")]
        os.kill(daemon.pid, signal.SIGUSR1)
        over.cluster.until("a report of n2", lambda: "pypmix node n2: 4 of 4 ranks run" in job.stderr, 30)
    time.sleep(HANG)
    before = len(re.findall(wanted, job.stderr))
    job.send_signal(signal.SIGINT)
    assert job.wait().exit_code == 130, job.report()
    assert len(re.findall(wanted, job.stderr)) == before + 1, job.report()
    assert over.cluster.wait_gone() == ""


@ways("ssh")
def test_a_time_limit_says_who_is_missing_where(over: Runner) -> None:
    started = over.begin(4, sys.executable, "-c", HANGS, options=(*BY_TWO, "--timeout", "15"))
    wanted = missing(pids_of(over, started))
    job = started.launcher.wait()
    assert job.exit_code == 124 and re.search(wanted, job.stderr), job.report()
    assert over.cluster.wait_gone() == ""


@ways("ssh")
@pytest.mark.parametrize("where", ["1", "2"])
def test_the_others_go_on_where_they_are_to(over: Runner, where: str) -> None:
    text = f"test $PMIX_RANK = {where} && exit 3; sleep 0.5; echo went on"
    job = over(4, "sh", "-c", text, options=(*BY_TWO, "--keep-going"))
    assert job.exit_code == 3 and job.stdout.count("went on") == 3, job.report()


@ways("ssh")
def test_process_sets_span_machines(over: Runner) -> None:
    """Those of the command line, and those that ranks define."""
    job = succeeded(over(4, sys.executable, "-c", PSETS, options=(*BY_TWO, "--pset", "halves")))
    told = sorted(job.stdout.splitlines())
    assert told == [f"{rank} sees {{'halves': [0, 1, 2, 3], 'inner': [1, 2]}}" for rank in range(4)], job.report()


@ways("ssh")
def test_jobs_are_spawned_on_machines_that_are_named_or_added(over: Runner) -> None:
    job = succeeded(over(2, sys.executable, "-c", SPAWNS))
    turns = [line for line in sorted(job.stdout.splitlines()) if line.startswith("turn")]
    assert [turn for turn in turns if turn.startswith("turn 0")] == ["turn 0 on n2"] * 2
    assert len([turn for turn in turns if turn.startswith("turn 1")]) == 4
    assert turns[6:] == ["turn 2 on n3"] * 2 + ["turn 3 on n3"] * 2, job.report()
    assert "refused ERR_JOB_ALLOC_FAILED" in job.stdout, job.report()
    assert over.cluster.wait_gone() == ""
