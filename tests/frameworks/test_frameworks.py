"""Workers of Dask and actors of Ray as nodes, on three machines: programs, MPI, functions, tasks, and faults."""

from __future__ import annotations

import re
import signal
import subprocess

import pytest

from lib import machine, provision
from lib.framework_clusters import DRIVER, FRAMEWORKS, Dask, Framework

EXAMPLES = machine.ROOT / "docs" / "examples" / "frameworks"

pytestmark = pytest.mark.timeout(500)

PRESENT = """
import sys, time
from distributed import Client

client = Client(sys.argv[1], timeout=100)
while sys.argv[2] not in [each["name"] for each in client.scheduler_info(n_workers=-1)["workers"].values()]:
    time.sleep(0.1)
"""
"""Waits until the scheduler has a worker."""

LACKS = """
import sys
from distributed import Client, LocalCluster
from pypmix.dask import nodes
from pypmix.host.placing import Wanted
from pypmix.standard.errors import PMIxError

def lose_pypmix():
    sys.modules["pypmix.dask.workers"] = None

def told(call):
    try:
        return [node.slots for node in call()]
    except PMIxError as error:
        return error

if __name__ == "__main__":
    cluster = LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    with nodes(client) as whole, nodes(client, n=1) as one:
        cluster.scale(3)
        client.wait_for_workers(3, 60)
        names = {about["name"]: address for address, about in client.scheduler_info(n_workers=-1)["workers"].items()}
        client.run(lose_pypmix, workers=[names[1]])
        print("joined", told(whole._engine.joined), flush=True)
        for _ in range(2):
            print("more", told(lambda: one._engine.more(Wanted(nodes=1))), flush=True)
"""
"""One of three workers lacks pypmix, the first that is chosen."""

MPI = """
from mpi4py import MPI
c = MPI.COMM_WORLD
import os; os.write(1, f"sum {c.rank} {c.allreduce(c.rank)}\\n".encode())
"""


@pytest.fixture(params=["dask", "ray"], scope="module")
def framework(request: pytest.FixtureRequest) -> Framework:
    found: Framework = request.getfixturevalue(request.param)
    return found


def test_the_example(framework: Framework) -> None:
    """A program, a function, and both inside of a task."""
    out = framework.run(str(EXAMPLES / f"{framework.kind}_nodes.py"), framework.address)
    hello = re.findall(r"hello from (\d) of 6 on (n\d)\n", out)
    assert sorted(number for number, _ in hello) == list("012345"), out
    assert {name for _, name in hello} == {"n1", "n2", "n3"}
    assert "exit code 0\n" in out
    assert f"totals {[150] * 6}\n" in out
    assert "totals of a task [7, 7]\n" in out


def test_functions_failures_and_mpi(framework: Framework) -> None:
    python = provision.mpi4py()
    if python is None:
        machine.lacking("Open MPI with mpi4py, which tests/lib/provision.py fetches")
    out = framework.run(DRIVER, *_words(framework, "all", str(python), "-c", MPI))
    assert re.search(r"<nodes n\d \(2\), n\d \(2\), n\d \(2\)>", out), out
    returned = eval(re.findall(r"^returned (.*)$", out, re.MULTILINE)[0])
    assert [each[:4] for each in returned] == [(rank, 3, [0, 10, 20, 30, 40, 50], 6) for rank in range(6)]
    assert {each[4] for each in returned} == {"n1", "n2", "n3"}
    assert "raised 'what rank 1 lacks' | rank 1 of 6 failed: | KeyError: 'what rank 1 lacks'\n" in out
    assert re.search(r"outcome 127 program not found on n\d: ./nosuch\n", out), out
    assert sorted(re.findall(r"sum \d \d", out)) == ["sum 0 6", "sum 1 6", "sum 2 6", "sum 3 6"], out
    assert "mpi 0 \n" in out


def _words(framework: Framework, *words: str) -> list[str]:
    return [framework.kind, framework.address, *words]


def test_a_job_asks_for_a_node_and_gives_it_back(framework: Framework) -> None:
    out = framework.run(DRIVER, *_words(framework, "grows"))
    new = re.findall(r"^grown (n\d)$", out, re.MULTILINE)
    assert framework.kind == "dask" or "free 2.0\n" in out, out
    assert len(new) == 1 and f"spawned on {new[0]}\nreleased\n" in out, out
    end = out.split("outcome")[1]
    assert re.match(r" 0 +<nodes n\d \(2\), n\d \(2\)>", end) and f"{new[0]} (2)>" not in end


def test_the_users_program_is_killed(framework: Framework) -> None:
    process = framework.waiting("n3")
    process.kill()
    process.communicate()
    framework.gone(60.0)


def test_a_worker_is_killed(framework: Framework) -> None:
    """Its ranks are lost to the others, the outcome says so, and nothing of it is left."""
    process = framework.waiting("n3")
    worker = framework.find("n3", "dask worker|ray::_Actor")
    framework.cluster.kill(worker)
    try:
        out, err = process.communicate(timeout=100)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        raise AssertionError(f"no end\n{framework.cluster.report()}\n{process.communicate()}") from None
    lost = re.findall(r"without (\[.*\])\n", out)
    assert len(lost) == 4 and len(set(lost)) == 1, f"{out}\n{err}"
    assert re.search(r"outcome [1-9]\d* .*n3", out), f"{out}\n{err}"
    assert "left 4\n" in out, f"the others cannot be used after it\n{out}\n{err}"
    framework.gone(60.0)


def test_a_worker_that_joins_the_cluster_becomes_a_node(dask: Dask) -> None:
    """The one of `test_a_worker_is_killed` is still away."""
    process = dask.begin(DRIVER, *_words(dask, "joined"))
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "waiting\n":
        assert line, dask.logs()
    dask.add(dask.cluster["n3"])
    out, err = process.communicate(timeout=200)
    assert "joined n3\n" in out and "outcome 0" in out, f"{out}\n{err}"
    dask.gone(60.0)


def test_a_worker_that_is_started_again_at_its_address_is_a_node_again(dask: Dask) -> None:
    node = dask.cluster["n3"]
    dask.add(node, "-again", 9100)
    dask.run("-c", PRESENT, dask.address, "w-n3-again")
    process = dask.begin(DRIVER, *_words(dask, "again", "w-n3-again"))
    assert process.stdout is not None
    while (line := process.stdout.readline()) != "waiting\n":
        assert line, dask.logs()
    dask.cluster.kill(dask.find("n3", "w-n3-again"))
    lost = process.stdout.readline()
    dask.add(node, "-again", 9100)
    out, err = process.communicate(timeout=200)
    dask.cluster.kill(dask.find("n3", "w-n3-again"))
    assert re.fullmatch(r"lost n3(-\d)?\n", lost), f"{lost}{out}\n{err}"
    joined = re.search(r"^joined (n3-\d)$", out, re.MULTILINE)
    assert joined is not None and joined[1] != lost.split()[1], f"{out}\n{err}"
    assert re.search("^late refused .*another one was started at its address", out, re.MULTILINE), f"{out}\n{err}"
    dask.gone(60.0)


def test_a_cluster_starts_a_worker_for_a_job_and_ends_it(frameworks: None) -> None:
    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    command = [FRAMEWORKS / "python", DRIVER, "dask", "scaled", "grows"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    new = re.findall(r"^grown (\S+)$", done.stdout, re.MULTILINE)
    assert len(new) == 1 and f"spawned on {new[0]}\nreleased\n" in done.stdout, done.stdout
    assert done.stdout.endswith("workers 1\n"), f"{done.stdout}\n{done.stderr}"


def test_workers_without_pypmix_do_not_keep_others_from_being_nodes(frameworks: None) -> None:
    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    done = subprocess.run([FRAMEWORKS / "python", "-c", LACKS], env=env, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    joined, refused, more = done.stdout.splitlines()
    assert joined == "joined [1]" and "a worker that has joined the cluster is not a node" in done.stderr, done
    assert "cannot be nodes" in refused and more == "more [1]", done


def test_actors_of_ray_client_are_refused(frameworks: None) -> None:
    """It has no call that tells where they are."""
    code = "import pypmix.ray\nimport ray.util.client as client\nclient.ray.is_connected = lambda: True\n"
    code += "pypmix.ray.world([object()], mpi=False)"
    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    done = subprocess.run([FRAMEWORKS / "python", "-c", code], env=env, capture_output=True, text=True, timeout=100)
    assert "PMIxError" in done.stderr and "Ray Client (ray://) cannot have ranks beside its actors" in done.stderr


def test_a_cluster_with_tls(frameworks: None) -> None:

    env = {**machine.clean_environment(), "PYTHONPATH": str(machine.ROOT)}
    done = subprocess.run(
        [FRAMEWORKS / "python", DRIVER, "dask", "tls", "calls"], env=env, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.count("returned [(0, 3, [0, 10], 2,") == 1
    assert "raised 'what rank 1 lacks'" in done.stdout
