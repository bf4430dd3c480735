"""The same command on each node: by hand, in pods of Kubernetes, and as a job of another PMIx launcher."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from lib import machine
from lib.command import LIMIT, Command
from lib.programs import TOTAL
from pypmix.host.rosters.base import RosterError, Settings
from pypmix.host.rosters.choosing import choose
from pypmix.host.rosters.kubernetes import KubernetesRoster
from pypmix.host.rosters.symmetric import meeting_point


@pytest.fixture
def secret(tmp_path: Path) -> str:
    path = tmp_path / "secret"
    path.write_text(os.urandom(32).hex())
    path.chmod(0o600)
    return str(path)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def start(
    command: Command, name: str, words: list[object], env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start `pypmix run` on a machine with another host name."""
    if os.geteuid():
        machine.lacking("root's rights, to give processes host names of their own")
    line = ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', name, sys.executable, "-m", "pypmix", "run"]
    return subprocess.Popen(
        [*line, *map(str, words)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**command.environment, **(env or {})},
        cwd=command.folder,
    )


def end(process: subprocess.Popen[bytes]) -> tuple[int, list[str], str]:
    try:
        out, err = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return process.returncode, sorted(out.decode().splitlines()), err.decode()


def test_by_hand(command: Command, secret: str) -> None:
    common = ["--meet", f"127.0.0.1:{free_port()}", "--secret-file", secret, "--map-by", "node", "-n", 4, "--symmetric"]
    program = [sys.executable, "-c", TOTAL]
    others = [start(command, f"m{place}", [*common, f"{place}/3", *program]) for place in (2, 1)]
    code, lines, said = end(start(command, "m0", [*common, "0/3", *program]))
    assert code == 0, said
    assert lines == ["0 4 m0 6", "1 4 m1 6", "2 4 m2 6", "3 4 m0 6"]
    assert "pypmix run: process 0 of 3, which meet at 127.0.0.1:" in said
    for other in others:
        assert end(other) == (0, [], "")


def test_one_that_does_not_come(command: Command, secret: str) -> None:
    words = ["--meet", f"127.0.0.1:{free_port()}", "--secret-file", secret, "--node-timeout", 0.5, "--symmetric", "0/3"]
    code, _, said = end(start(command, "m0", [*words, "true"]))
    assert code == 1
    assert "0 of the 2 other processes have come, without 1, 2 (port" in said


def test_a_launcher_that_does_not_come(command: Command, secret: str) -> None:
    words = ["--meet", f"127.0.0.1:{free_port()}", "--secret-file", secret, "--node-timeout", 0.5, "--symmetric", "1/2"]
    code, _, said = end(start(command, "m1", [*words, "true"]))
    assert code == 1
    assert "pypmix run: the launcher is not reached: 127.0.0.1 port" in said


def test_two_nodes_of_the_same_name(command: Command, secret: str) -> None:
    words = ["--meet", f"127.0.0.1:{free_port()}", "--secret-file", secret, "--symmetric"]
    other = start(command, "same", [*words, "1/2", "true"])
    code, _, said = end(start(command, "same", [*words, "0/2", "true"]))
    assert code == 1
    assert "two nodes have the same name: same, same; start one process on each node" in said
    assert end(other)[0] == 1


def test_pods_of_an_indexed_job(command: Command, secret: str) -> None:
    """With the environment of pods; the launcher's name is told, since there is no DNS of a cluster here."""
    words = ["--meet", f"127.0.0.1:{free_port()}", "--map-by", "node", "-n", 2, sys.executable, "-c", TOTAL]
    pods = [
        {
            "JOB_COMPLETION_INDEX": str(index),
            "PYPMIX_NODES": "2",
            "PYPMIX_SECRET_FILE": secret,
            "HOSTNAME": f"job-{index}",
        }
        for index in range(2)
    ]
    other = start(command, "job-1", words, pods[1])
    code, lines, said = end(start(command, "job-0", words, pods[0]))
    assert code == 0, said
    assert lines == ["0 2 job-0 1", "1 2 job-1 1"]
    assert said.startswith("pypmix run: pod 0 of 2 of a Kubernetes Job\n")
    assert end(other) == (0, [], "")


def test_what_kubernetes_tells(secret: str) -> None:
    env = {
        "JOB_COMPLETION_INDEX": "2", "PYPMIX_NODES": "3", "PYPMIX_SERVICE": "solver", "PYPMIX_SECRET_FILE": secret,
        "HOSTNAME": "my-job-2",
    }  # fmt: skip
    place = KubernetesRoster.place(Settings(env))
    assert (place.number, place.size, place.name) == (2, 3, "my-job-2")
    assert place.addresses == (("my-job-0.solver", 7777),)
    for wrong, words in (
        ({"PYPMIX_NODES": "2"}, "JOB_COMPLETION_INDEX is 2, and PYPMIX_NODES only 2"),
        ({"PYPMIX_NODES": "x"}, "PYPMIX_NODES is to be a number of at least 1, and is 'x'"),
        ({"HOSTNAME": "other"}, "ends with its index 2, and this is 'other'"),
        ({"PYPMIX_SECRET_FILE": ""}, "need a secret that they share"),
    ):
        with pytest.raises(RosterError) as caught:
            KubernetesRoster.place(Settings({**env, **wrong}))
        assert words in str(caught.value)
    assert KubernetesRoster.found(Settings({"JOB_COMPLETION_INDEX": "2"})) == ""
    # A manifest with a gap: each of its pods would run a job of its own.
    for lacking in ("JOB_COMPLETION_INDEX", "PYPMIX_NODES"):
        gap = Settings({name: value for name, value in env.items() if name != lacking})
        with pytest.raises(RosterError, match=f"^{lacking} is not set: "):
            choose(gap)


def test_a_job_of_another_launcher(command: Command) -> None:
    """Its ranks, one on each of its nodes, run a job of their own on these; here the nodes are simulated ones."""
    inner = [sys.executable, "-m", "pypmix", "run", "--roster", "pmix", "--map-by", "node", "-n", "4"]
    # A bound rank has one core, and thus one slot, for its job.
    outer = ["--nodes", 2, "-n", 2, "--bind-to", "none"]
    done = command("run", *outer, *inner, sys.executable, "-c", TOTAL)
    assert done.code == 0, done.err
    assert sorted(done.lines) == ["0 4 node0 6", "1 4 node1 6", "2 4 node0 6", "3 4 node1 6"]
    done = command("run", "-n", 2, *inner, "true")
    assert re.search(rb"the job has 2 procs on \S+: start one on each node \(--map-by ppr:1:node\)", done.err), done.err
    done = command("run", "--roster", "pmix", "true")
    assert done.message == "pypmix run: this is not a job of a PMIx launcher: PMIX_NAMESPACE is not set"


def test_where_processes_meet() -> None:
    assert meeting_point("n1:7777") == ("n1", 7777)
    assert meeting_point("[fd00::1]:80") == ("fd00::1", 80)
    for text in ("", "n1", "n1:", ":80", "n1:x", "n1:70000", "n1:0"):
        with pytest.raises(RosterError, match="meet at HOST:PORT"):
            meeting_point(text)
