"""A job on several machines grows and shrinks by the commands and the program of the how-to page, over ssh."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import blocks
from lib.cluster import Cluster
from lib.job import Job
from lib.node_runs import LIMIT, Runner, launcher_command, succeeded, ways
from lib.slurm_nodes import Slurm

BLOCKS = [block for block in blocks.of_page("docs/use/cluster.md") if block.part == "cluster-elastic"]
SHOWN = "\n".join(block.text for block in BLOCKS if block.kind == "console")
COMMANDS = re.findall(r"^\$ pypmix (.*)$", SHOWN, re.MULTILINE)
(PROGRAM,) = [block.text for block in BLOCKS if block.kind == "python"]

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


GROWS = """
import sys, time
from pypmix import AllocDirective, Client, EventCode, PMIxError, Proc, attrs

wanted, count = sys.argv[1], int(sys.argv[2])


def info():
    return {attrs.ALLOC_NODE_LIST: wanted} if wanted else {attrs.ALLOC_NUM_NODES: 1}


def meet(me, first, size, second):
    members = [Proc(first, rank) for rank in range(size)] + [Proc(second, rank) for rank in range(2)]
    with me.group("met", members, timeout=60) as group:
        me.fence(group, timeout=60)
        print("group of", group.size, "on", me.node.hostname, flush=True)


def release(me, name):
    deadline = time.monotonic() + 60
    while True:
        try:
            return me.allocate(AllocDirective.RELEASE, timeout=60, info={attrs.ALLOC_NODE_LIST: name})
        except PMIxError as error:
            # What was spawned there may be about to end.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


with Client() as me:
    parent = me.get(attrs.PARENT_ID, me.proc, timeout=0, default=None)
    if parent is not None:
        meet(me, parent.nspace, count, me.nspace)
        sys.exit()
    with me.events(EventCode.DVM_IS_READY, EventCode.EVENT_NODE_OFFLINE) as events:
        me.fence(timeout=60)
        job = None
        if me.rank == 0:
            granted = me.allocate(AllocDirective.EXTEND, timeout=100, info=info())
            program = [sys.executable, *sys.orig_argv[1:]]
            job = me.spawn(program, n=2, info={attrs.SPAWN_TARGET: granted[attrs.ALLOC_ID]})
            me.publish({"job": job.nspace})
        ready = events.get(timeout=100)
        print(f"{me.rank} sees {ready.info[attrs.ALLOC_NODE_LIST]}", flush=True)
        meet(me, me.nspace, count, me.lookup("job", timeout=60))
        if me.rank == 0:
            job.wait(timeout=60)
            release(me, granted[attrs.ALLOC_NODE_LIST])
        gone = events.get(timeout=100)
        print(f"{me.rank} without {gone.info[attrs.HOSTNAME]}", flush=True)
        if me.rank == 0:
            again = me.allocate(AllocDirective.EXTEND, timeout=100, info=info())[attrs.ALLOC_NODE_LIST]
            me.spawn(["sh", "-c", "echo again on $PMIX_HOSTNAME"], info={attrs.HOST: again}).wait(timeout=60)
        me.fence(timeout=100)
"""


def grown(job: Job, ranks: int = 4) -> None:
    """The job of `GROWS` got the third machine, met those who were spawned there, and gave it back, twice."""
    succeeded(job)
    lines = sorted(line for line in job.stdout.splitlines() if re.match(r"group|\d|again", line))
    groups = [line for line in lines if line.startswith("group")]
    assert len(groups) == ranks + 2 and groups.count(f"group of {ranks + 2} on n3") == 2, job.report()
    assert [line for line in lines if line[0].isdigit()] == sorted(
        [f"{rank} {what} n3" for rank in range(ranks) for what in ("sees", "without")]
    ), job.report()
    assert "again on n3" in lines, job.report()


@ways("salloc", "srun")
def test_slurm_starts_a_further_job(over: Runner, nodes_with_slurm: Slurm) -> None:
    """Which is over with the run, and has no part in the first one's nodes."""
    grown(over(4, sys.executable, "-c", GROWS, "", "4", options=("--map-by", "ppr:2:node")))
    nodes_with_slurm.settle(30)
    assert over.cluster.wait_gone() == ""


@ways("salloc")
def test_slurm_has_no_further_node(over: Runner, nodes_with_slurm: Slurm) -> None:
    started = over.begin(2, "sleep", "120", options=("--node-timeout", "8"))
    over.cluster.until("a session", lambda: '"rank"' in json.dumps(_ranks(over)), 40)
    text = command(over.cluster, "n1", "grow --nodes 2", check=False)
    assert "Slurm allocates no further node" in text and "Traceback" not in text, text
    assert command(over.cluster, "n1", "shrink n2") == "n2\n"
    # It is the first job's still.
    assert command(over.cluster, "n1", "grow --nodes 1") == "n2\n"
    assert command(over.cluster, "n1", "grow n3:2") == "n3\n"
    # What it has asked Slurm for goes with it, however it ends.
    here = over.cluster["n1"].processes()
    (launcher,) = [each for each in here if re.match(rf"{re.escape(sys.executable)} -m pypmix run", each.command)]
    over.cluster.kill(launcher)
    started.launcher.wait()
    nodes_with_slurm.settle(40)
    assert over.cluster.wait_gone() == ""


@ways("ssh")
def test_a_machine_is_added_by_ssh(over: Runner) -> None:
    grown(over(4, sys.executable, "-c", GROWS, "n3:2", "4", options=("--map-by", "ppr:2:node")))
    assert over.cluster.wait_gone() == ""


@contextlib.contextmanager
def dvm(cluster: Cluster, hosts: str) -> Iterator[None]:
    """A DVM of PRRTE, started on the first machine."""
    prterun, *_, prefix = launcher_command("prterun")
    command = [prterun.replace("bin/prterun", "bin/prte"), "--allow-run-as-root", "--host", hosts]
    found = cluster["n1"].start(*command, env={"PRTE_PREFIX": prefix}, stdout=-1)
    try:
        assert "ready" in found.stdout.readline()
        yield
    finally:
        found.send_signal(signal.SIGTERM)
        found.communicate(timeout=30)
    assert cluster.wait_gone() == ""


@pytest.mark.timeout(200)
@ways("prrte")
def test_a_dvm_starts_processes_on_a_further_node(over: Runner) -> None:
    with dvm(over.cluster, "n1:4,n2:4,n3:4"):
        grown(over(4, sys.executable, "-c", GROWS, "", "4", options=("--map-by", "ppr:2:node")))
        started = over.begin(2, "sleep", "120")
        found: list[str] = []

        def there() -> bool:
            # The DVM is a server of this user, too.
            found[:] = re.findall(r'"(pypmix-[^"]+)@1"', json.dumps(_ranks(over)))
            return bool(found)

        over.cluster.until("a session", there, 40)
        session = f"{found[0]}@0"

        def grow(what: str, check: bool) -> str:
            return command(over.cluster, "n1", f"grow {what} --nspace {session}", check)

        assert "n9: it has n1, n2, n3, and is started" in grow("n9", False)
        assert "1 of its nodes are not" in grow("--nodes 2", False)
        assert grow("n3:1", True) == "n3\n"
        started.launcher.send_signal(signal.SIGTERM)
        assert started.launcher.wait().exit_code == 143


@ways("ssh")
def test_the_other_hosts_of_a_hostfile_are_spare(over: Runner, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n1 slots=4\nn2 slots=4\nn3 slots=2\n")
    options = ("--hostfile", str(hosts), "--map-by", "ppr:2:node")
    grown(over(4, sys.executable, "-c", GROWS, "", "4", options=options))
    started = over.begin(2, "sleep", "120", options=("--hostfile", str(hosts)))
    over.cluster.until("a session", lambda: '"rank"' in json.dumps(_ranks(over)), 40)
    assert "1 further nodes are known" in command(over.cluster, "n1", "grow --nodes 2", check=False)
    started.launcher.send_signal(signal.SIGTERM)
    assert started.launcher.wait().exit_code == 143
    assert over.cluster.wait_gone() == ""
