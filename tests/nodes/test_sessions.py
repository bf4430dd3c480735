"""Standing sessions over two and three machines: their jobs, and what happens when one of their processes is killed."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lib import machine
from lib.cluster import Cluster

PYPMIX = (sys.executable, "-m", "pypmix")
ENV = {"PYTHONPATH": str(machine.ROOT)}
LIMIT = 60.0

HELLO = """
from pypmix import Client
with Client() as me:
    me.fence(collect=True, timeout=30)
    print(me.rank, me.job.size, me.node.hostname, flush=True)
"""

WAITS = """
import sys, time
from pypmix import Client
with Client() as me:
    me.fence(timeout=30)
    print("ready", me.rank, me.node.hostname, flush=True)
    sys.stdin.read()
    time.sleep(600)
"""

RESTARTED = """\
import os, time
from pypmix import Client, PartialSuccess, attrs
with Client() as me:
    life = me.get(attrs.REINCARNATION, me.proc)
    print("ready", me.rank, me.node.hostname, life, flush=True)
    while not os.path.exists("end"):
        time.sleep(0.01)
    me.put("life", life)
    while True:
        try:
            me.fence(collect=True, timeout=30)
            break
        except PartialSuccess:
            time.sleep(0.01)
    print(me.rank, [me.get("life", rank) for rank in range(me.job.size)], flush=True)
"""


class Standing:
    """A session on a cluster, started on its first node.

    Attributes:
        pid: Its process, as this machine counts.
    """

    def __init__(self, cluster: Cluster, folder: Path, hosts: str, *options: str) -> None:
        self.cluster = cluster
        self.folder = folder
        self._jobs: list[Any] = []
        words = (*PYPMIX, "session", "start", "s", "--host", hosts, *options)
        cluster["n1"].run(*words, env=ENV, timeout=LIMIT, cwd=folder)

    def command(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.cluster["n1"].run(*PYPMIX, *words, env=ENV, timeout=LIMIT, cwd=self.folder, check=check)

    def run(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return self.command("run", "--session", "s", *words, check=check)

    def begin(self, *words: str) -> Any:
        pipe = subprocess.PIPE
        command = (*PYPMIX, "run", "--session", "s", *words)
        job = self.cluster["n1"].start(
            *command, env={**ENV, "PYTHONUNBUFFERED": "1"}, stdin=pipe, stdout=pipe, stderr=pipe, cwd=self.folder
        )
        self._jobs.append(job)
        return job

    def until_ready(self, job: Any, ranks: int) -> list[str]:
        """Wait until each rank of a job that runs `WAITS` is there; return their nodes by rank."""
        lines = sorted([job.stdout.readline() for _ in range(ranks)])
        assert all(line.startswith("ready") for line in lines), (lines, job.stderr.read() if not all(lines) else "")
        return [line.split()[2] for line in lines]

    def process(self, node: str, words: Sequence[str]) -> Any:
        """Return the only process of a node that runs Python with these words."""
        line = f"{sys.executable} {' '.join(words)}"
        found = [each for each in self.cluster[node].processes() if each.command.startswith(line)]
        assert len(found) == 1, (words, self.cluster.report())
        return found[0]

    def daemon(self, node: str) -> Any:
        return self.process(node, ("-m", "pypmix", "node"))

    def launcher(self) -> Any:
        return self.process("n1", ("-m", "pypmix", "session", "start"))

    def describe(self) -> dict[str, Any]:
        found = json.loads(self.command("session", "list", "--json").stdout)
        assert len(found) == 1, self.log()
        return dict(found[0])

    def log(self) -> str:
        """Return what the session has said."""
        logs = self.cluster["n1"].tmp.glob("pypmix-sessions-*/s.log")
        return "\n".join(log.read_text() for log in logs)

    def close(self) -> None:
        for job in self._jobs:
            with contextlib.suppress(ProcessLookupError):
                job.kill()
            job.communicate()
        self.command("session", "stop", "s", check=False)
        assert self.cluster.wait_gone() == ""


@pytest.fixture
def standing(three_nodes: Cluster, tmp_path: Path) -> Iterator[Callable[..., Standing]]:
    started: list[Standing] = []

    def start(hosts: str, *options: str) -> Standing:
        started.append(Standing(three_nodes, tmp_path, hosts, *options))
        return started[-1]

    yield start
    for each in started:
        each.close()


def python(text: str) -> tuple[str, str, str]:
    return sys.executable, "-c", text


@pytest.mark.parametrize("hosts", ["n1:2", "n1:1,n2:1", "n1:1,n2:1,n3:1"])
def test_jobs_run_on_the_nodes_of_the_session(standing: Callable[..., Standing], hosts: str) -> None:
    session = standing(hosts)
    nodes = [host.partition(":")[0] for host in hosts.split(",")]
    ranks = max(2, len(nodes))
    for _ in range(3):
        found = session.run("-n", str(ranks), *python(HELLO))
        expected = [f"{rank} {ranks} {nodes[rank % len(nodes)]}" for rank in range(ranks)]
        assert sorted(found.stdout.splitlines()) == expected
    described = session.describe()
    assert [node["name"] for node in described["nodes"]] == nodes
    assert described["jobs"] == [] and all(node["running"] == 0 for node in described["nodes"])


def test_a_lost_node_ends_what_runs_there_alone(standing: Callable[..., Standing]) -> None:
    session = standing("n1:2,n2:2,n3:2")
    kept, lost = session.begin("--host", "n2:2", "-n", "2", *python(WAITS)), None
    assert session.until_ready(kept, 2) == ["n2", "n2"]
    lost = session.begin("--host", "n1:1,n3:1", "-n", "2", *python(WAITS))
    assert session.until_ready(lost, 2) == ["n1", "n3"]
    session.cluster.kill(session.daemon("n3"))
    _, told = lost.communicate(timeout=LIMIT)
    assert lost.returncode == 137 and "was lost with node n3" in told
    assert kept.poll() is None
    assert [node["name"] for node in session.describe()["nodes"]] == ["n1", "n2"]
    # The slots of the ended rank on n1 are free.
    assert session.run("-n", "2", *python(HELLO)).stdout.count("n1") == 2
    kept.send_signal(signal.SIGINT)
    assert kept.wait(LIMIT) == 130


def test_a_command_that_is_killed_ends_its_job_alone(standing: Callable[..., Standing]) -> None:
    session = standing("n1:2,n2:2")
    killed, kept = (session.begin("--map-by", "node", "-n", "2", *python(WAITS)) for _ in range(2))
    assert session.until_ready(killed, 2) == session.until_ready(kept, 2) == ["n1", "n2"]
    session.cluster.kill(killed)
    assert session.run("--map-by", "node", "-n", "2", *python(HELLO)).stdout
    assert len(session.describe()["jobs"]) == 1 and kept.poll() is None


def test_nothing_outlives_a_session_that_is_killed(standing: Callable[..., Standing]) -> None:
    session = standing("n1:2,n2:2")
    job = session.begin("--map-by", "node", "-n", "2", *python(WAITS))
    session.until_ready(job, 2)
    session.cluster.kill(session.launcher())
    _, told = job.communicate(timeout=LIMIT)
    assert job.returncode == 1 and "session s has ended while this job ran" in told
    assert session.cluster.wait_gone() == ""
    assert session.command("session", "list", "--json").stdout.strip() == "[]"


def test_a_session_is_stopped_while_jobs_start(standing: Callable[..., Standing]) -> None:
    session = standing("n1:4,n2:4")
    jobs = [session.begin("--map-by", "node", "-n", "2", *python(WAITS)) for _ in range(4)]
    session.until_ready(jobs[0], 2)
    session.command("session", "stop", "s")
    for job in jobs:
        _, told = job.communicate(timeout=LIMIT)
        # It may have come too late to be admitted.
        assert job.returncode in (1, 143) and "session s" in told, told
    assert session.cluster.wait_gone() == ""


def test_nodes_join_and_jobs_that_wait_for_slots_start(standing: Callable[..., Standing]) -> None:
    session = standing("n1:1,n2:1")
    first = session.begin("-n", "2", *python(WAITS))
    session.until_ready(first, 2)
    second = session.begin("-n", "2", *python(HELLO))
    assert "waiting for slots" in second.stderr.readline()
    assert session.describe()["waiting"] == 1
    session.command("grow", "n3:2", "--pid", str(session.describe()["pid"]))
    out, _ = second.communicate(timeout=LIMIT)
    assert sorted(out.splitlines()) == ["0 2 n3", "1 2 n3"] and second.returncode == 0
    refused = session.run("-n", "9", *python(HELLO), check=False)
    assert refused.returncode == 1 and "slots" in refused.stderr, session.log()


def test_tools_see_all_jobs_of_a_session(standing: Callable[..., Standing]) -> None:
    session = standing("n1:2,n2:2")
    jobs = [session.begin("--map-by", "node", "-n", "2", *python(WAITS)) for _ in range(2)]
    for job in jobs:
        session.until_ready(job, 2)
    for node in ("n1", "n2"):
        shown = session.cluster[node].run(*PYPMIX, "ps", "--json", env=ENV, timeout=LIMIT)
        found = {
            job["nspace"]: len(job["procs"]) for each in json.loads(shown.stdout)["servers"] for job in each["jobs"]
        }
        assert sorted(found.values()) == [2, 2]
    shown = session.command("top", "--json")
    assert all(each["pending"] == [] for each in json.loads(shown.stdout)["servers"]), shown.stdout


def test_ranks_and_nodes_of_a_job_are_replaced(standing: Callable[..., Standing]) -> None:
    session = standing("n1:1,n2:1,n3:1")
    job = session.begin("--restart", "2", "-n", "2", *python(RESTARTED))
    assert sorted([job.stdout.readline() for _ in range(2)]) == ["ready 0 n1 0\n", "ready 1 n2 0\n"]
    for rank, node in ((0, "n1"), (1, "n2")):
        session.cluster.kill(session.process(node, ("-c", RESTARTED.rstrip())))
        assert job.stdout.readline() == f"ready {rank} {node} 1\n"
    session.cluster.kill(session.daemon("n2"))
    assert job.stdout.readline() == "ready 1 n3 2\n"
    (session.folder / "end").touch()
    out, err = job.communicate(timeout=LIMIT)
    assert job.returncode == 0 and sorted(out.splitlines()) == ["0 [1, 2]", "1 [1, 2]"], err
    assert err.count("it is started again (1 of 2)") == 2 and err.count("it is started again on n3 (2 of 2)") == 1
    # The session has lost the node, and the slots of the ended ranks are free.
    assert [node["name"] for node in session.describe()["nodes"]] == ["n1", "n3"]
    assert sorted(session.run("-n", "2", *python(HELLO)).stdout.splitlines()) == ["0 2 n1", "1 2 n3"]
