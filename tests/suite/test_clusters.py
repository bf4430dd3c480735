"""Runs that are joined, each a cluster with its own servers: their jobs meet, connect, and hear of losses."""

from __future__ import annotations

import sys

import pytest

from lib import machine
from lib.running import Jobs

pytestmark = pytest.mark.timeout(180)

EXAMPLE = machine.ROOT / "docs" / "examples" / "clusters" / "meet.py"
LOSING = """
import sys, time
from lib.sync import tell
from pypmix import Client, ConnectEvent, Proc, Range, attrs, cluster_nspace

mine, theirs = sys.argv[1:]
with Client() as me:
    me.publish({mine: cluster_nspace(me.get(attrs.CLUSTER_ID), me.nspace)}, range=Range.GLOBAL)
    partner = me.lookup(theirs, timeout=60)
    with me.events(ConnectEvent.TERMINATED) as events:
        both = me.connect([me.proc, Proc(partner, 0)], timeout=60)
        if mine == "b":
            # It is killed here, and its server with it.
            tell("connected")
            time.sleep(60)
        for event in events:
            print("heard of", *event.affected)
            break
    # Those who are left go on.
    both.fence(timeout=60)
    print("lookup:", me.lookup(theirs, default=None))
    both.disconnect(timeout=60)
"""


@pytest.fixture
def start(job_folder):
    """Start a run of a cluster that is joined with the others."""
    jobs = Jobs(job_folder, False)

    def begin(cluster, *words):
        options = ["--cluster", cluster, "--join", str(job_folder / "joined"), "--nspace", "job"]
        return jobs.begin([sys.executable, "-m", "pypmix", "run", *options, *words], limit=90)

    yield begin
    jobs.end()


@pytest.mark.promise("cluster: id", "cluster: names", "cluster: rendezvous", "cluster: connect")
def test_two_runs_meet(start):
    first = start("A", "-n", "2", sys.executable, str(EXAMPLE), "a", "b")
    second = start("B", "-n", "3", "--nodes", "2", sys.executable, str(EXAMPLE), "b", "a")
    for job in (first.wait(), second.wait()):
        assert job.exit_code == 0, job.report()
    for job, name, other, size, offset in ((first, "A", "B", 2, 0), (second, "B", "A", 3, 2)):
        for rank in range(size):
            text = f"rank {rank} of {name}:job@1 is {offset + rank} of 5 with {other}'s {5 - size}"
            assert text in job.stdout, job.report()
            assert f"{name}:job@1 {rank} knows A:job@1 0 to B:job@1 2" in job.stdout, job.report()


def test_a_run_that_is_killed_is_gone_for_the_other(start):
    first = start("A", sys.executable, "-c", LOSING, "a", "b")
    second = start("B", sys.executable, "-c", LOSING, "b", "a")
    second.hear("connected", 60)
    second.send_signal(9)
    job = first.wait()
    assert job.exit_code == 0, job.report()
    assert job.stdout == "heard of B:job@1:0\nlookup: None\n", job.report()
    second.wait()
    assert second.wait_gone(10) == []
