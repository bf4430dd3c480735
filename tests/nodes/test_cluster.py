"""The nodes that the other tests of this folder run on are what they shall be, and nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from lib import cluster as clusters
from lib import machine, processes
from lib.cluster import Cluster

LISTEN = """
import socket, sys
with socket.create_server((sys.argv[1], 7000), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET) as s:
    print("listening", flush=True)
    peer = s.accept()[0]
    while data := peer.recv(1):
        peer.send(data)
"""

TALK = """
import socket, sys
with socket.create_connection((sys.argv[1], 7000), timeout=10) as s:
    for line in sys.stdin:
        s.send(b".")
        s.settimeout(float(line))
        try:
            print(s.recv(1).decode(), flush=True)
        except TimeoutError:
            print("nothing", flush=True)
"""


def test_each_node_has_a_name_addresses_files_and_processes_of_its_own(cluster: Cluster, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.write_text("for all")
    program = "hostname; echo $$; touch /tmp/mine; ls /tmp/mine /dev/shm /run; cat " + str(shared)
    for node in cluster:
        name, pid, *rest = node.run("sh", "-c", program).stdout.splitlines()
        assert name == node.name
        assert int(pid) < 1000, "a PID of its own namespace"
        assert rest[0] == "/tmp/mine" and rest[-1] == "for all"
        assert (node.tmp / "mine").exists()
        assert socket_names(node) == {"lo", "eth0"}
    assert not Path("/tmp/mine").exists()


def socket_names(node: clusters.Node) -> set[str]:
    return set(
        node.run(sys.executable, "-c", "import socket; print(*[n for _, n in socket.if_nameindex()])").stdout.split()
    )


def test_a_process_on_a_node_is_a_child_of_the_test(cluster: Cluster) -> None:
    node = cluster["n2"]
    process = node.start("sleep", "60")
    assert process.pid in [found.pid for found in node.processes()] and not cluster["n1"].processes()
    cluster.stop(process)
    cluster.until("it stands still", lambda: [found.state for found in node.processes()] == ["T"])
    cluster.resume(process)
    process.terminate()
    assert process.wait(10) == -signal.SIGTERM
    assert cluster.wait_gone() == ""


def test_what_has_left_its_parent_is_found(cluster: Cluster) -> None:
    node = cluster["n1"]
    node.run("sh", "-c", "setsid sleep 60 > /dev/null 2>&1 &")
    left = cluster.wait_gone(0.1)
    assert "sleep 60" in left
    (found,) = node.processes()
    cluster.kill(found)
    assert cluster.wait_gone() == ""


@pytest.mark.parametrize("to", ["n2", "n3", "n2v6"])
def test_ssh(cluster: Cluster, to: str) -> None:
    """By the nodes' own configuration, and by the one that is given by name."""
    for options in [], ["-F", str(cluster.ssh_config)]:
        done = cluster["n1"].run("ssh", *options, to, "hostname; pwd; echo $TMPDIR; exit 7", check=False)
        assert (done.returncode, done.stdout) == (7, f"{to[:2]}\n/root\n\n"), done.stderr


def test_ssh_passes_standard_input_and_ends_with_its_session(cluster: Cluster) -> None:
    process = cluster["n1"].start("ssh", "n3", "read line; echo got $line; exec sleep 60", stdin=-1, stdout=-1)
    process.stdin.write("a word\n")
    process.stdin.flush()
    assert process.stdout.readline() == "got a word\n"

    def asleep():
        return [found for found in cluster["n3"].processes() if found.command.startswith("sleep")]

    cluster.until("the shell has become sleep", asleep)
    cluster.kill(*asleep())
    process.communicate(timeout=10)
    assert process.returncode == 255
    assert cluster.wait_gone() == ""


class Line:
    """A connection from one node to another."""

    def __init__(self, cluster: Cluster, one: str, other: str) -> None:
        self._cluster = cluster
        address = cluster[other].address
        self._server = cluster[other].start(sys.executable, "-c", LISTEN, address, stdout=-1)
        assert self._server.stdout.readline() == "listening\n"
        self._client = cluster[one].start(sys.executable, "-c", TALK, address, stdin=-1, stdout=-1)

    def answers(self, seconds: float = 20) -> bool:
        self._client.stdin.write(f"{seconds}\n")
        self._client.stdin.flush()
        return {".": True, "nothing": False}[self._client.stdout.readline().strip()]

    def close(self) -> None:
        self._client.communicate(timeout=20)
        self._server.communicate(timeout=20)


def test_a_cable_that_is_pulled_and_plugged_in_again(cluster: Cluster) -> None:
    line = Line(cluster, "n1", "n2")
    assert line.answers()
    cluster.link_down("n2")
    assert not line.answers(0.5)
    cluster.link_up("n2")
    # The byte that was lost is sent again.
    assert line.answers() and line.answers()
    line.close()


def test_a_cut_concerns_two_nodes(cluster: Cluster) -> None:
    lines = {pair: Line(cluster, *pair) for pair in (("n1", "n2"), ("n1", "n3"))}
    assert all(line.answers() for line in lines.values())
    cluster.cut("n1", "n2")
    assert not lines["n1", "n2"].answers(0.5)
    assert lines["n1", "n3"].answers()
    cluster.mend("n1", "n2")
    assert lines["n1", "n2"].answers()
    for line in lines.values():
        line.close()


def test_a_shared_folder_is_taken_away_for_a_while(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    assert cluster["n1"].run("ls", tmp_path).stdout == "there\n"
    with cluster.unshared(tmp_path):
        cluster["n1"].run("touch", tmp_path / "mine")
        assert [node.run("ls", tmp_path).stdout for node in cluster] == ["mine\n", "", ""]
    assert cluster["n2"].run("ls", tmp_path).stdout == "there\n"


def test_nothing_leads_out(cluster: Cluster) -> None:
    done = cluster["n1"].run("ip", "route", "get", "192.0.2.1", check=False)
    assert done.returncode != 0 and "unreachable" in done.stderr


KILLED = """
import os, signal, sys, time
sys.path.insert(0, {tests!r})
from pathlib import Path
from lib.cluster import Cluster

found = Cluster(2, Path({folder!r})).open()
for node in found:
    node.start("sleep", "1000")
    assert node.processes()
print(found["n1"].pid, found["n2"].pid, found._guard.pid, *[p.pid for n in found for p in n.processes()], flush=True)
if sys.argv[1] == "guard":
    os.kill(found._guard.pid, signal.SIGKILL)
elif sys.argv[1] == "itself":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(60)
"""


@pytest.mark.parametrize("who", ["itself", "guard"])
@pytest.mark.usefixtures("cluster")
def test_nothing_stays_when_a_test_or_the_guard_is_killed(tmp_path: Path, who: str) -> None:
    program = textwrap.dedent(KILLED).format(tests=str(machine.TESTS), folder=str(tmp_path))
    before = set(os.listdir("/sys/class/net"))
    made = subprocess.Popen([sys.executable, "-c", program, who], stdout=subprocess.PIPE, text=True)
    assert made.stdout is not None
    pids = [int(word) for word in made.stdout.readline().split()]
    assert len(pids) == 5
    try:
        assert gone(pids[3:]) == [], "what the test had started"
    finally:
        made.kill()
        made.communicate()
    # The first process of a node waits for the others of it, which are children of the test.
    assert gone(pids) == []
    assert set(os.listdir("/sys/class/net")) == before


def gone(pids: list[int]) -> list[int]:
    """Wait for the end of processes, and return those that still live."""
    deadline = time.monotonic() + clusters.SETTLE
    while left := [pid for pid in pids if (found := processes.read(pid)) and found.state not in "ZX"]:
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return left
