"""A resource manager that somebody writes on `Host`, with a daemon on each of three machines."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest

from lib import machine, pairings
from lib.cluster import Cluster

HOSTS = machine.ROOT / "docs" / "examples" / "hosts"
DAEMON = Path(__file__).with_name("daemon.py")

WAITS = """
import sys, time
import pypmix

with pypmix.Client() as me:
    me.fence(timeout=20)
    print("together", flush=True)
    if me.node.hostname == "n2":
        time.sleep(60)
    try:
        me.fence(timeout=40)
    except pypmix.PartialSuccess as error:
        # libpmix's clients are not told who.
        print("without", error.missing and [proc.rank for proc in error.missing], flush=True)
"""


@pytest.fixture(params=["python-client", "native-5.0.11"])
def start(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path):
    """Start a daemon on each node, on the servers and with the clients of an engine."""
    pairings.require_client(request.param)
    folder = tmp_path / "session"
    folder.mkdir(mode=0o700)

    def begin(kind: str, size: int, *command: str) -> dict:
        env = {**pairings.client_environment(request.param), "PYTHONPATH": str(HOSTS)}
        names = ",".join(cluster.nodes)
        return {
            node.name: node.start(
                *(sys.executable, DAEMON, kind, node.name, node.address, folder, names, str(size), *command),
                env=env,
                stdout=-1,
                stderr=-1,
            )
            for node in cluster
        }

    return begin


def test_the_tutorials_client(start) -> None:
    daemons = start("tutorial", 6, sys.executable, str(HOSTS / "own_client.py"))
    told = {name: daemon.communicate(timeout=60) for name, daemon in daemons.items()}
    assert [daemon.returncode for daemon in daemons.values()] == [0, 0, 0], [err for _, err in told.values()]
    seen = {
        name: re.findall(r"rank (\d+) on (\w+): ports (.*), context id (\d+)\n", out) for name, (out, _) in told.items()
    }
    for place, (name, rows) in enumerate(seen.items()):
        assert sorted((int(rank), node) for rank, node, *_ in rows) == [(2 * place, name), (2 * place + 1, name)], told
        assert {ports for *_, ports, _ in rows} == {str(list(range(5000, 5006)))}, told
    assert len({row[3] for rows in seen.values() for row in rows}) == 1
    assert sum(out.count("looks up: all together\n") for out, _ in told.values()) == 6, told


def test_a_daemon_that_is_killed_is_missing_for_the_others(start, cluster: Cluster) -> None:
    daemons = start("plain", 3, sys.executable, "-c", WAITS)
    for daemon in daemons.values():
        assert daemon.stdout.readline() == "together\n"
    daemons["n2"].send_signal(signal.SIGKILL)
    for name in "n1", "n3":
        assert daemons[name].stdout.readline() in ("without [1]\n", "without None\n"), name
    for daemon in daemons.values():
        daemon.communicate(timeout=60)
    assert cluster.wait_gone() == ""
