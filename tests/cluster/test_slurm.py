"""`pypmix run` inside of a Slurm job: in its allocation, and as a step with one task on each node."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from lib import machine, processes, slurm
from lib.command import LIMIT, Command
from lib.programs import TOTAL
from lib.slurm import Cluster
from pypmix.engine.munge import unseal
from pypmix.host.addresses import own_addresses
from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError, Settings
from pypmix.host.rosters.proof import Munge
from pypmix.host.rosters.slurm import SlurmRoster, allocated, symmetric
from pypmix.standard.errors import PMIxError

ALLOCATION = {
    "SLURM_JOB_ID": "17",
    "SLURM_JOB_NODELIST": "n[1-2],login",
    "SLURM_TASKS_PER_NODE": "4(x2),2",
}
STEP = {
    **ALLOCATION,
    "SLURM_STEP_ID": "3",
    "SLURM_STEP_NUM_TASKS": "3",
    "SLURM_STEP_NUM_NODES": "3",
    "SLURM_STEP_NODELIST": "n[1-2],login",
    "SLURM_PROCID": "1",
}


def found(env: Mapping[str, str]) -> str:
    return SlurmRoster.found(Settings(env))


def test_what_slurm_tells() -> None:
    assert allocated(ALLOCATION) == [Node("n1", 4), Node("n2", 4), Node("login", 2)]
    assert found(ALLOCATION) == "nodes from Slurm job 17: n1 (4), n2 (4), login (2)"
    assert found(STEP) == "task 1 of 3 of Slurm job 17, step 3"
    assert symmetric(STEP) and not symmetric(ALLOCATION)


@pytest.mark.parametrize(
    "env",
    [
        {},
        {"SLURM_JOB_ID": "17"},
        {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "4"},
        {**STEP, "SLURM_STEP_NUM_TASKS": "6"},
    ],
)
def test_runs_of_this_machine_alone(env: Mapping[str, str]) -> None:
    assert found(env) == ""


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({**STEP, "SLURM_STEP_NUM_TASKS": "6"}, "this step has 6 tasks on 3 nodes, each with a launcher of its own"),
        ({**ALLOCATION, "SLURM_TASKS_PER_NODE": "4"}, "Slurm names 3 nodes, and the numbers of tasks of 1"),
        ({**ALLOCATION, "SLURM_JOB_NODELIST": "n["}, "the nodes of the Slurm job cannot be read"),
        ({**STEP, "SLURM_STEP_NUM_TASKS": "x"}, "SLURM_STEP_NUM_TASKS is to be a number, and is 'x'"),
        ({}, "is this inside of salloc, sbatch or srun?"),
    ],
)
def test_what_cannot_be_used(env: Mapping[str, str], words: str) -> None:
    with pytest.raises(RosterError) as caught:
        SlurmRoster(Settings(env))
    assert words in str(caught.value)


def test_addresses_of_this_machine() -> None:
    assert own_addresses("127.0.0.1")[0] == "127.0.0.1"
    assert own_addresses("no-such-host.invalid")[-1] == "127.0.0.1"


@pytest.fixture
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if reason := slurm.lacking():
        machine.lacking(reason)
    found: Cluster = request.getfixturevalue("slurm_cluster")
    return found


def variables(cluster: Cluster) -> dict[str, str]:
    return {
        "SLURM_CONF": str(cluster.configuration),
        "PYPMIX_MUNGE_SOCKET": str(cluster.folder / "munge.socket"),
    }


def inside(cluster: Cluster) -> dict[str, str]:
    """The environment inside of `salloc`."""
    allocation = {"SLURM_JOB_ID": cluster.job, "SLURM_JOB_NODELIST": "sn[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
    return {**variables(cluster), **allocation}


def test_an_allocation(command: Command, cluster: Cluster) -> None:
    done = command("run", "-n", 4, sys.executable, "-c", TOTAL, env=inside(cluster))
    assert done.code == 0, done.err
    assert sorted(done.lines) == ["0 4 sn1 6", "1 4 sn1 6", "2 4 sn2 6", "3 4 sn2 6"]
    assert done.err.decode().startswith(f"pypmix run: nodes from Slurm job {cluster.job}: sn1 (2), sn2 (2)\n")


def test_a_job_without_a_number_of_ranks_has_one_for_each_task(command: Command, cluster: Cluster) -> None:
    done = command("run", sys.executable, "-c", TOTAL, env=inside(cluster))
    assert done.code == 0, done.err
    assert sorted(done.lines) == ["0 4 sn1 6", "1 4 sn1 6", "2 4 sn2 6", "3 4 sn2 6"]
    assert "pypmix run: 4 ranks, one for each slot; -n says otherwise" in done.err.decode().splitlines()


def test_a_job_of_one_node_has_a_rank_for_each_task(command: Command) -> None:
    alone = {**ALLOCATION, "SLURM_JOB_NODELIST": "n1", "SLURM_TASKS_PER_NODE": "3"}
    done = command("run", "echo", "up", env=alone)
    assert (done.code, done.lines) == (0, ["up"] * 3), done.err
    assert b"3 ranks, one for each task of the Slurm job; -n says otherwise" in done.err
    assert command("run", "-n", 1, "echo", "up", env=alone).lines == ["up"]
    assert command("run", "--roster", "local", "echo", "up", env=alone).lines == ["up"]


def test_a_container_that_has_inherited_the_variables_of_a_job(command: Command, tmp_path: Path) -> None:
    inherited = {**ALLOCATION, "PATH": str(tmp_path)}
    done = command("run", "-n", 2, "/bin/echo", "up", env=inherited)
    assert done.code == 1
    assert "there is no srun here" in done.message and done.message.endswith("add --roster local"), done.message
    assert command("run", "--roster", "local", "-n", 2, "/bin/echo", "up", env=inherited).lines == ["up"] * 2


@pytest.mark.parametrize(("place", "count"), [("0", 1), ("1", 0)])
def test_a_step_of_several_launchers_is_told(command: Command, place: str, count: int) -> None:
    shared = {**STEP, "SLURM_STEP_NUM_TASKS": "6", "SLURM_PROCID": place}
    done = command("run", "-n", 2, "echo", "up", env=shared)
    assert (done.code, done.lines) == (0, ["up"] * 2), done.err
    assert done.err.count(b"each of the 6 tasks of this Slurm step runs a job of its own") == count


def test_more_ranks_than_tasks(command: Command, cluster: Cluster) -> None:
    done = command("run", "-n", 5, "true", env=inside(cluster))
    assert done.code == 2
    assert b"5 ranks do not fit on 2 nodes with 4 slots (sn1:2, sn2:2)" in done.err


def test_an_exit_code(command: Command, cluster: Cluster) -> None:
    done = command("run", "-n", 4, "sh", "-c", "test $PMIX_RANK != 3 || exit 9; sleep 60", env=inside(cluster))
    assert done.code == 9, done.err


def test_a_python_that_is_not_there(command: Command, cluster: Cluster) -> None:
    words = ("run", "--remote-python", "/no/such/python", "-n", 4, "true")
    done = command(*words, env=inside(cluster))
    assert done.code == 1
    text = done.err.decode()
    assert "0 of the 2 other processes have come, without sn1, sn2" in text
    assert "srun ended with exit code 2, and has said why" in text


def test_no_secret_is_on_a_command_line(command: Command, cluster: Cluster) -> None:
    running = command.start("run", "-n", 2, "sh", "-c", "echo up >up.$PMIX_RANK; sleep 60", env=inside(cluster))
    command.wait_for("up", 2)
    mine = [each.pid for each in processes.wait_gone(command.mark, 0)]
    assert mine
    for pid in mine:
        line = (Path("/proc") / str(pid) / "cmdline").read_bytes()
        assert b"secret" not in line
    running.terminate()
    assert command.end(running).code == 128 + 15


def symmetric_step(
    command: Command, cluster: Cluster, words: list[str], env: Mapping[str, str]
) -> tuple[int, str, str]:
    """Run the same command on both nodes, in a step."""
    line = ["srun", f"--jobid={cluster.job}", "--overlap", "--overcommit", "--mpi=none", "-N2", "--ntasks-per-node=1"]
    done = subprocess.run(
        [*line, sys.executable, "-m", "pypmix", "run", *words],
        env={**command.environment, **variables(cluster), **env},
        cwd=command.folder,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=LIMIT,
    )
    return done.returncode, done.stdout, done.stderr


def free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def test_a_step_with_one_task_on_each_node(command: Command, cluster: Cluster) -> None:
    # The nodes of the tests have names that do not resolve.
    words = ["--meet", f"127.0.0.1:{free_port()}", "--map-by", "node", "-n", "4", sys.executable, "-c", TOTAL]
    code, out, said = symmetric_step(command, cluster, words, {})
    assert code == 0, said
    assert sorted(out.splitlines()) == ["0 4 sn1 6", "1 4 sn2 6", "2 4 sn1 6", "3 4 sn2 6"]
    assert "pypmix run: task 0 of 2 of Slurm job" in said


def test_a_step_without_munge_needs_a_secret(command: Command, cluster: Cluster, tmp_path: Path) -> None:
    words = ["--meet", f"127.0.0.1:{free_port()}", "-n", "1", "echo", "done"]
    without = {"PYPMIX_MUNGE_SOCKET": str(tmp_path / "none")}
    code, out, said = symmetric_step(command, cluster, words, without)
    assert code
    assert not out
    assert "does munged run?; or name a secret that the tasks share: --secret-file FILE" in said
    path = tmp_path / "secret"
    path.write_bytes(os.urandom(32).hex().encode())
    path.chmod(0o600)
    code, out, said = symmetric_step(command, cluster, ["--secret-file", str(path), *words], without)
    assert (code, out) == (0, "done\n"), said


def test_munge_proves_a_statement_and_nothing_elsewhere(cluster: Cluster) -> None:
    """Whoever has a token can neither prove another statement by it nor show it to anybody as a credential."""
    socket = variables(cluster)["PYPMIX_MUNGE_SOCKET"]
    munge, other_process = Munge(variables(cluster)), Munge(variables(cluster))
    token = munge.make(b"follower\0x")
    for each in (munge, other_process, other_process):
        assert each.check(b"follower\0x", token)
    assert not munge.check(b"launcher\0x", token)
    sealed, _, code = token.rpartition(b"\n")
    assert not munge.check(b"follower\0x", other_process.make(b"follower\0x").rpartition(b"\n")[0] + b"\n" + code)
    with pytest.raises(PMIxError, match="munge refuses the credential: Expired"):
        unseal(sealed, socket=socket)
    # The socket lies in a folder of root's.
    way = os.open(socket, os.O_PATH)
    there = f"/proc/self/fd/{way}"
    words = ["setpriv", "--reuid=65533", "--regid=65533", "--clear-groups", "unmunge", "--socket", there]
    read = subprocess.run(words, input=sealed, capture_output=True, check=False, timeout=20, pass_fds=[way])
    os.close(way)
    assert b"Unauthorized" in read.stderr + read.stdout, read
    for other in (b"", b"MUNGE:AAAA:", b"x\0y", b"m" * 20000):
        assert not munge.check(b"", other)
    with pytest.raises(RosterError, match="does munged run"):
        Munge({"PYPMIX_MUNGE_SOCKET": f"/no/such/socket{time.monotonic()}"})
