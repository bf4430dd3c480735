"""`pypmix doctor` finds what is wrong with the nodes of a cluster, and what to do."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lib import machine
from lib.cluster import Cluster, Node, one_ip
from lib.slurm_nodes import Slurm

DOCTOR = (sys.executable, "-m", "pypmix", "doctor", "--json")


def findings(done: subprocess.CompletedProcess[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return what was found by node and check."""
    assert done.stdout.startswith("{"), done
    found = json.loads(done.stdout)["nodes"]["findings"]
    assert all(each["text"] and each["fix"] for each in found), found
    return {
        (each["node"], each["check"]): {**each, "text": "\n".join(other["text"] for other in _alike(each, found))}
        for each in found
    }


def _alike(finding: dict[str, Any], found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [other for other in found if (other["node"], other["check"]) == (finding["node"], finding["check"])]


def doctor(cluster: Cluster, *options: str, hosts: str = "n1,n2,n3", code: int, cwd: object = None) -> Any:
    """Run the doctor on the first node."""
    words = (*DOCTOR, *(("--host", hosts) if hosts else ()), *options)
    done = cluster["n1"].run(*words, check=False, timeout=60, cwd=cwd or machine.ROOT)
    assert done.returncode == code, done
    assert "Traceback" not in done.stderr, done
    return findings(done)


def python(folder: Path, text: str) -> str:
    """Return the path of a Python that is started by a script; it has a word to say first."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\n{text}\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_nothing_is_wrong(cluster: Cluster, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("n1 slots=2\nn2\nn3\n")
    assert doctor(cluster, "--hostfile", str(hosts), hosts="", code=0) == {}
    text = cluster["n1"].run(sys.executable, "-m", "pypmix", "doctor", "--host", "n1,n2", cwd=machine.ROOT).stdout
    assert "jobs run on all of these nodes" in text and "TROUBLE" not in text, text
    assert "n2: pypmix " in text, text
    assert cluster.wait_gone() == ""


def test_machines_that_have_only_ipv6(cluster_of_ipv6: Cluster) -> None:
    """The firewall between two of them is found there, too."""
    assert doctor(cluster_of_ipv6, hosts="n1v6,n2v6,n3v6", code=0) == {}
    address = cluster_of_ipv6["n3"].address6
    cluster_of_ipv6["n2"].run("ip", "-6", "route", "add", "unreachable", address)
    try:
        found = doctor(cluster_of_ipv6, "--pairs", hosts="n1v6,n2v6,n3v6", code=1)
    finally:
        cluster_of_ipv6["n2"].run("ip", "-6", "route", "del", "unreachable", address)
    assert found["n2v6", "route"]["severe"] and address in found["n2v6", "route"]["text"], found


def test_an_interface_that_a_node_lacks(cluster: Cluster) -> None:
    """Where all have it, nodes dial each other there."""
    assert doctor(cluster, "--interface", "eth0", code=0) == {}
    cluster["n1"].run("ip", "link", "add", "ib0", "type", "bridge")
    try:
        cluster["n1"].run("ip", "addr", "add", "10.88.0.1/24", "dev", "ib0")
        cluster["n1"].run("ip", "link", "set", "ib0", "up")
        found = doctor(cluster, "--interface", "ib0", code=1)
        assert "'ib0' is neither" in found["n2", "route"]["text"] and ("n1", "route") not in found, found
    finally:
        cluster["n1"].run("ip", "link", "del", "ib0")
    found = doctor(cluster, "--interface", "10.88.0.0/24", code=1)
    assert "no address in 10.88.0.0/24" in found["", "route"]["text"], found
    assert "no address in 10.88.0.0/24" in found["n1", "route"]["text"], found


def test_a_name_that_does_not_exist(cluster: Cluster) -> None:
    found = doctor(cluster, hosts="n1,n9", code=1)
    assert "does not resolve" in found.pop(("n9", "start"))["text"]
    # The others have not heard of it either, and that keeps nothing from running.
    assert not [each for each in found.values() if each["severe"]], found


def test_ssh_that_lets_nobody_in(cluster: Cluster) -> None:
    agent = f"ssh -F none -T -o BatchMode=yes -o UserKnownHostsFile={cluster.folder}/ssh/known_hosts {{host}}"
    found = doctor(cluster, "--launch-agent", agent, hosts="n2", code=1)
    assert "refused" in found["n2", "start"]["text"] and "ssh-copy-id" in found["n2", "start"]["fix"], found


def test_a_machine_that_is_off(cluster: Cluster) -> None:
    cluster.cut("n1", "n3")
    found = doctor(cluster, "--node-timeout", "15", code=1)
    assert found["n3", "start"]["severe"] and ("n2", "start") not in found, found


def test_python_without_pypmix(cluster: Cluster) -> None:
    found = doctor(cluster, "--remote-python", "/usr/bin/python3", hosts="n2", code=1)
    assert "no pypmix" in found["n2", "pypmix"]["text"] and "pip install" in found["n2", "pypmix"]["fix"], found


def test_no_such_python(cluster: Cluster) -> None:
    found = doctor(cluster, "--remote-python", "/nowhere/python", hosts="n2", code=1)
    assert "--remote-python" in found["n2", "start"]["fix"], found


def test_another_version(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "pypmix").mkdir()
    (tmp_path / "pypmix" / "__init__.py").write_text("__version__ = '2020.1.0'\n")
    other = python(tmp_path, f"export PYTHONPATH={tmp_path}")
    found = doctor(cluster, "--remote-python", other, hosts="n1,n2", code=1)
    assert "2020.1.0" in found["n2", "pypmix"]["text"], found


def test_a_folder_for_temporary_files_that_is_not_there(cluster: Cluster, tmp_path: Path) -> None:
    other = python(tmp_path, '[ "$(hostname)" = n2 ] && export TMPDIR=/nowhere')
    found = doctor(cluster, "--remote-python", other, code=1)
    assert list(found) == [("n2", "tmpdir")] and "/nowhere" in found["n2", "tmpdir"]["text"], found


def test_a_clock_that_differs(cluster: Cluster, tmp_path: Path) -> None:
    late = "import time\nreal = time.time\ntime.time = lambda: real() - 1000\n"
    (tmp_path / "late").mkdir()
    (tmp_path / "late" / "sitecustomize.py").write_text(late)
    other = python(tmp_path, f'[ "$(hostname)" = n2 ] && export PYTHONPATH={tmp_path}/late')
    found = doctor(cluster, "--remote-python", other, code=0)
    assert list(found) == [("n2", "clock")], found
    assert "behind" in found["n2", "clock"]["text"] and "NTP" in found["n2", "clock"]["fix"], found


def test_no_shared_folder(cluster: Cluster) -> None:
    found = doctor(cluster, cwd="/tmp", code=0)
    assert set(found) == {("n2", "folder"), ("n3", "folder")}, found
    own = cluster["n1"].tmp / "own"
    own.mkdir()
    found = doctor(cluster, cwd="/tmp/own", code=0)
    assert "no folder /tmp/own" in found["n3", "folder"]["text"], found


def test_nodes_that_do_not_reach_each_other(cluster: Cluster) -> None:
    """A job needs no connection between the two, since the launcher and the first node reach both."""
    cluster.cut("n2", "n3")
    assert doctor(cluster, code=0) == {}
    found = doctor(cluster, "--pairs", code=1)
    assert {node for node, _ in found} == {"n2", "n3"}, found
    assert "does not reach n3" in next(each["text"] for (node, _), each in found.items() if node == "n2"), found


@contextlib.contextmanager
def firewall(node: Node, address: str) -> Iterator[None]:
    """Have what a node sends to the high ports of an address vanish, but for the answers of its sshd."""
    one_ip(node, "neigh", "replace", "10.77.0.99", "lladdr", "02:00:00:00:00:01", "nud", "permanent", "dev", "eth0")
    one_ip(node, "route", "add", "default", "via", "10.77.0.99", "dev", "eth0", "table", "99")
    to = ("to", address, "ipproto", "tcp")
    rules = [(*to, "sport", "22", "lookup", "main", "priority", "9")]
    rules += [(*to, "dport", "1024-65534", "lookup", "99", "priority", "10")]
    for rule in rules:
        one_ip(node, "rule", "add", *rule)
    try:
        yield
    finally:
        for rule in rules:
            one_ip(node, "rule", "del", *rule)
        one_ip(node, "route", "flush", "table", "99")


def test_a_firewall_that_lets_ssh_through(cluster: Cluster) -> None:
    with firewall(cluster["n2"], cluster["n1"].address):
        found = doctor(cluster, code=1)
        pairs = doctor(cluster, "--pairs", code=1)
    assert {key for key, each in pairs.items() if each["severe"]} == {("n2", "ports"), ("n1", "ports")}, pairs
    assert {key for key, each in found.items() if each["severe"]} == {("n2", "ports")}, found
    assert "the launcher at 10.77.0.1" in found["n2", "ports"]["text"], found
    assert "TCP" in found["n2", "ports"]["fix"], found


@pytest.mark.parametrize("works", [True, False])
def test_a_job_of_slurm(cluster: Cluster, nodes_with_slurm: Slurm, works: bool) -> None:
    env = {**nodes_with_slurm.environment, **({} if works else {"PYPMIX_MUNGE_SOCKET": "/nowhere/munge"})}
    words = ("salloc", "--quiet", "-N3", "--ntasks-per-node=2", *DOCTOR)
    done = cluster["n1"].run(*words, env=env, check=False, timeout=60, cwd=machine.ROOT)
    assert done.returncode == 0, done
    found = findings(done)
    assert set(found) == (set() if works else {(node.name, "munge") for node in cluster}), found
    assert "from Slurm job" in json.loads(done.stdout)["nodes"]["reason"]


def test_names_that_a_node_does_not_know(cluster: Cluster, tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 n2\n10.77.0.1 n1\n")
    node = cluster["n2"]
    node.run("mount", "--bind", str(hosts), "/etc/hosts")
    try:
        found = doctor(cluster, code=0)
    finally:
        node.run("umount", "/etc/hosts")
    assert set(found) == {("n2", "names")} and not found["n2", "names"]["severe"], found
