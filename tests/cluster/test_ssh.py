"""Daemons are started by ssh and by other agents, and whatever keeps one from starting is told with what to try."""

from __future__ import annotations

import os
import select
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import machine
from lib.sshd import Server
from pypmix.host.placing import Node
from pypmix.host.rosters.base import RosterError, Settings
from pypmix.host.rosters.names import Host, read_hosts
from pypmix.host.rosters.process import Started
from pypmix.host.rosters.ssh import SSHRoster, command, is_here

LIMIT = 20.0

LOCAL = "sh -c {command}"

DAEMON = """\
#!{python}
import os, sys
line = sys.stdin.readline()
print("heard", line.strip(), sys.argv[1:], os.environ.get("SSH_CONNECTION") is not None, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def python(tmp_path: Path) -> str:
    """A program in the place of the remote Python: it answers the line that it is sent, and waits for the end."""
    path = tmp_path / "it's a python"
    path.write_text(DAEMON.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)


class Nodes:
    """Rosters that are closed after the test."""

    def __init__(self) -> None:
        self.rosters: list[SSHRoster] = []

    def __call__(self, hosts: str, agent: str, python: str = sys.executable) -> SSHRoster:
        self.rosters.append(SSHRoster(Settings(dict(os.environ), tuple(read_hosts(hosts)), agent, python)))
        return self.rosters[-1]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    made = Nodes()
    yield made
    for roster in made.rosters:
        roster.close()


def answer(daemon: Started) -> bytes:
    """What a daemon answers; empty if it ends instead."""
    os.write(daemon.stdin, b'{"secret": "s"}\n')
    found = b""
    while not found.endswith(b"\n"):
        assert select.select([daemon.stdout], [], [], LIMIT)[0]
        piece = os.read(daemon.stdout, 1000)
        if not piece:
            break
        found += piece
    return found


def code(daemon: Started) -> int:
    deadline = time.monotonic() + LIMIT
    while (found := daemon.ended()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found


def close(daemon: Started) -> None:
    os.close(daemon.stdin)
    os.close(daemon.stdout)


def test_many_nodes_at_a_time_by_ssh(sshd: Server, nodes: Nodes, python: str) -> None:
    roster = nodes("n1,n2:4,n3:*", sshd.agent, python)
    assert roster.nodes() == [Node("n1", 1), Node("n2", 4), Node("n3", None)]
    started = [roster.start(node, b"") for node in roster.nodes()]
    for daemon in started:
        assert answer(daemon) == b"""heard {"secret": "s"} ['-m', 'pypmix', 'node'] True\n"""
        assert daemon.ended() is None
    for daemon in started:
        # The end of its input is the end of the launcher.
        close(daemon)
        assert code(daemon) == 0


def test_the_launchers_own_node_needs_no_ssh(nodes: Nodes, python: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("ssh") is None:
        machine.lacking("`ssh` (Debian's openssh-client)")
    monkeypatch.setattr("socket.gethostname", lambda: "here.example")
    roster = nodes("here,here.example,localhost,127.0.0.1,there", "", python)
    for node in roster.nodes()[:4]:
        daemon = roster.start(node, b"")
        # The program was started as it is: no shell or ssh has read its name.
        assert answer(daemon) == b"""heard {"secret": "s"} ['-m', 'pypmix', 'node'] False\n"""
        close(daemon)
        assert code(daemon) == 0
    assert is_here("::1") and not is_here("there") and not is_here("me@here") and not is_here("127.example")
    # An agent that was named is always called.
    daemon = nodes("localhost", "sh -c 'read line; echo called' {host}").start(Node("localhost"), b"")
    assert answer(daemon) == b"called\n"
    close(daemon)


def test_a_daemon_that_is_stopped(nodes: Nodes, python: str) -> None:
    roster = nodes("n1", LOCAL, python)
    daemon = roster.start(roster.nodes()[0], b"")
    assert answer(daemon)
    daemon.stop()
    daemon.stop()
    assert code(daemon) < 0
    close(daemon)


def test_the_secret_is_on_no_command_line(nodes: Nodes, sshd: Server, python: str) -> None:
    roster = nodes("n1", sshd.agent, python)
    daemon = roster.start(roster.nodes()[0], b'{"secret": "topsecret"}\n')
    assert answer(daemon)
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                assert b"topsecret" not in (entry / "cmdline").read_bytes() + (entry / "environ").read_bytes()
            except OSError:
                continue
    close(daemon)


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("refused", "refused: ssh is refused without a password: see ssh-copy-id and ssh-agent"),
        ("closed", "closed: nothing listens for ssh there: does sshd run, and on which port (~/.ssh/config)?"),
        ("nowhere", "nowhere: its name does not resolve here: see DNS, /etc/hosts, or Host in ~/.ssh/config"),
        ("unknown-key", "unknown-key: its host key is not known or has changed: see `ssh -F"),
    ],
)
def test_nodes_that_ssh_does_not_reach(
    sshd: Server, nodes: Nodes, host: str, words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    roster = nodes(host, sshd.agent)
    daemon = roster.start(roster.nodes()[0], b"")
    assert code(daemon) == 255
    assert daemon.trouble().startswith(words)
    close(daemon)
    # What ssh itself has said is shown, with the node's name.
    assert f"pypmix run: {host}: " in capfd.readouterr().err


def test_another_python(sshd: Server, nodes: Nodes, tmp_path: Path) -> None:
    roster = nodes("n1", sshd.agent, "/no/such/python")
    daemon = roster.start(roster.nodes()[0], b"")
    assert code(daemon) == 127
    assert daemon.trouble() == (
        "n1: there is no /no/such/python that can be run there: name another with --remote-python"
    )
    close(daemon)
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -S -I "$@"\n')
    bare.chmod(0o755)
    roster = nodes("n1", sshd.agent, str(bare))
    daemon = roster.start(roster.nodes()[0], b"")
    assert code(daemon) == 1
    assert daemon.trouble() == f"n1: {bare} has no pypmix there: install it, or name another with --remote-python"
    close(daemon)


def test_what_the_command_said_last_is_told(nodes: Nodes) -> None:
    roster = nodes("n1", "sh -c 'echo oops >&2; echo it is broken >&2; exit 3' {host}")
    daemon = roster.start(roster.nodes()[0], b"")
    assert code(daemon) == 3
    assert daemon.trouble() == "n1: the command that starts its daemon ended with exit code 3: it is broken"
    close(daemon)
    roster = nodes("n1", "sh -c 'kill -9 $$' {host}")
    daemon = roster.start(roster.nodes()[0], b"")
    assert code(daemon) == -9
    assert "n1: the command that starts its daemon ended with signal 9; try `sh -c" in daemon.trouble()
    close(daemon)


def test_a_daemon_that_does_not_answer(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time is over: nobody waits for the end of a command that runs."""
    roster = nodes("n1", "sh -c 'sleep 60' {host}")
    daemon = roster.start(roster.nodes()[0], b"")
    waits: list[object] = []
    monkeypatch.setattr(daemon._process, "wait", waits.append)
    assert daemon.trouble().startswith("n1: its daemon does not answer; try `sh -c 'sleep 60' n1 ")
    assert not waits
    monkeypatch.undo()
    close(daemon)


def test_templates_of_agents() -> None:
    words = ["/o p/python", "-m", "pypmix"]
    assert command("ssh -p 22 {host} --", "n1", words) == ["ssh", "-p", "22", "n1", "--", "'/o p/python'", *words[1:]]
    assert command("/usr/bin/ssh", "n1", words) == ["/usr/bin/ssh", "n1", "'/o p/python'", *words[1:]]
    assert command("kubectl exec -i pod/{host} --", "n1", words) == ["kubectl", "exec", "-i", "pod/n1", "--", *words]
    assert command("sh -c {command}", "n1", words) == ["sh", "-c", "'/o p/python' -m pypmix", "n1"]
    for agent in ("", "ssh 'n1"):
        with pytest.raises(RosterError, match="--launch-agent"):
            command(agent, "n1", words)


def test_rosters_that_cannot_be() -> None:
    env = dict(os.environ)
    with pytest.raises(RosterError, match="--host n1,n2:4 or --hostfile"):
        SSHRoster(Settings(env))
    with pytest.raises(RosterError, match="n1 is named twice, as n1 and as me@n1"):
        SSHRoster(Settings(env, (Host("n1"), Host("me@n1"))))
    with pytest.raises(RosterError, match="there is no program 'no-such-agent' here"):
        SSHRoster(Settings(env, (Host("n1"),), "no-such-agent {host}"))


def test_why_it_was_taken() -> None:
    env = dict(os.environ)
    assert SSHRoster.found(Settings(env)) == ""
    assert SSHRoster.found(Settings(env, (Host("n1", 1), Host("n2", 4)))) == "nodes n1 (1), n2 (4) by ssh"
    many = tuple(Host(f"n{number}") for number in range(20))
    assert SSHRoster.found(Settings(env, many)).endswith("n7 and 12 more by ssh")


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ("localhost:2", "node localhost (2) on this machine"),
        ("127.0.0.1", "node 127.0.0.1 (1) on this machine"),
        ("[::1]:3", "node ::1 (3) on this machine"),
        ("here", "node here (1) on this machine"),
        ("here.example:2,n2", "node here.example (2) on this machine, and node n2 (1) by ssh"),
        ("n1,n2", "nodes n1 (1), n2 (1) by ssh"),
        ("me@here", "node me@here (1) by ssh"),
    ],
)
def test_the_launchers_own_node_is_not_reached_by_ssh(
    monkeypatch: pytest.MonkeyPatch, hosts: str, expected: str
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "here.example")
    names = tuple(read_hosts(hosts))
    assert SSHRoster.found(Settings(dict(os.environ), names)) == expected
    by_agent = SSHRoster.found(Settings(dict(os.environ), names, "krun {host}"))
    assert by_agent.endswith(" by krun") and "this machine" not in by_agent
