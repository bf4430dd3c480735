"""Many nodes are started by some of them, and a run is none the worse for it where these fail."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lib import processes
from lib.command import Command, strict_command
from lib.sshd import Server
from pypmix.host.rosters.relay import Relay
from pypmix.host.rosters.tree import Leaf, blocks

NODES = 7
LIMIT = 60.0

ROSTER = """\
from pypmix.host.rosters.ssh import SSHRoster
class Site(SSHRoster):
    flat = 2
    radix = 2
"""

PROGRAM = """\
import os, sys, time, pypmix
with pypmix.Client() as me:
    me.fence(collect=True)
    if len(sys.argv) > 1:
        open(f"{sys.argv[1]}/here-{me.rank}", "w").close()
        while not os.path.exists(f"{sys.argv[1]}/go"):
            time.sleep(0.02)
        me.fence()
    print(me.rank, me.node.hostname, flush=True)
"""

AGENT = """\
#!/bin/sh
host=$1; shift
printf "$BANNER"
echo "$host by ${STARTED_BY:-launcher}" >> FOLDER/started
[ -n "$STARTED_BY" ] && [ "$host" = "$REFUSED" ] && { echo "no way from here" >&2; exit 255; }
STARTED_BY=$host exec "$@"
"""

EXPECTED = [f"{number} n{number}" for number in range(NODES)]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """The `pypmix` command; after the test nothing of what it started may be left."""
    folder = tmp_path / "run"
    folder.mkdir()
    with strict_command(folder) as runner:
        yield runner


@pytest.fixture
def agent(tmp_path: Path) -> str:
    """A launch agent that writes down who has called it for which node."""
    path = tmp_path / "agent"
    path.write_text(AGENT.replace("FOLDER", str(tmp_path)))
    path.chmod(0o755)
    return f"{path} {{host}}"


def words(tmp_path: Path, agent: str, nodes: int = NODES) -> list[str]:
    """The command line of a run on some nodes, whose relays and launcher start two at a time."""
    (tmp_path / "site_tree.py").write_text(ROSTER)
    hosts = ",".join([f"n{number}" for number in range(nodes)])
    site = ["--roster", "site_tree:Site", "--host", hosts, "--launch-agent", agent, "--node-timeout", "60"]
    return ["run", *site, "-n", str(nodes), sys.executable, "-c", PROGRAM]


def environment(command: Command, tmp_path: Path, **more: str) -> dict[str, str]:
    return {"PYTHONPATH": f"{tmp_path}:{command.environment['PYTHONPATH']}", **more}


def started(tmp_path: Path) -> set[str]:
    return set((tmp_path / "started").read_text().splitlines())


def test_nodes_start_nodes(command: Command, tmp_path: Path, agent: str) -> None:
    done = command(*words(tmp_path, agent), env=environment(command, tmp_path))
    assert (done.code, sorted(done.lines)) == (0, EXPECTED), done.err
    by = "n0 by launcher, n3 by launcher, n1 by n0, n2 by n0, n4 by n3, n5 by n3, n6 by n5"
    assert started(tmp_path) == set(by.split(", ")), done.err


@pytest.mark.parametrize("nodes", [2, NODES], ids=["by the launcher", "by nodes"])
def test_start_up_files_of_shells_that_print_do_not_disturb(
    command: Command, tmp_path: Path, agent: str, nodes: int
) -> None:
    """With and without a newline at the end, as `.bashrc` may do it on each node."""
    line = words(tmp_path, agent, nodes)
    for banner in (r"Welcome\n[3 jobs wait]\n", r"{Quota: 93 %%}"):
        done = command(*line, env=environment(command, tmp_path, BANNER=banner))
        assert (done.code, sorted(done.lines)) == (0, EXPECTED[:nodes]), done.err
        assert b"Welcome" not in done.out and b"Quota" not in done.out


def test_what_a_terminal_sends_back_behind_a_greeting_is_not_shown(command: Command, tmp_path: Path) -> None:
    """It is the secret. The daemon would be ready all the same."""
    path = tmp_path / "agent"
    path.write_text('#!/bin/sh\nshift\nread -r line\nprintf "Welcome$ %s\\n" "$line"\necho "$line" | "$@"\n')
    path.chmod(0o755)
    done = command(*words(tmp_path, f"{path} {{host}}", 2), env=environment(command, tmp_path))
    assert done.code == 1 and b"what is sent to its daemon comes back" in done.err, done.err
    assert not re.search(rb"[0-9a-f]{32}", done.out + done.err)


def test_by_ssh(command: Command, tmp_path: Path, sshd: Server) -> None:
    done = command(*words(tmp_path, sshd.agent), env=environment(command, tmp_path))
    assert (done.code, sorted(done.lines)) == (0, EXPECTED), done.err


def test_the_launcher_starts_what_a_relay_does_not_reach(command: Command, tmp_path: Path, agent: str) -> None:
    done = command(*words(tmp_path, agent), env=environment(command, tmp_path, REFUSED="n5"))
    assert (done.code, sorted(done.lines)) == (0, EXPECTED), done.err
    assert {"n5 by n3", "n5 by launcher", "n6 by launcher"} <= started(tmp_path)
    assert b"n3: n5: no way from here" in done.err


def test_a_node_that_nobody_reaches(command: Command, tmp_path: Path) -> None:
    path = tmp_path / "agent"
    path.write_text('#!/bin/sh\nhost=$1; shift\n[ "$host" = n5 ] && { echo "not here" >&2; exit 255; }\nexec "$@"\n')
    path.chmod(0o755)
    done = command(*words(tmp_path, f"{path} {{host}}"), env=environment(command, tmp_path))
    assert done.code == 1
    assert "n5: the command that starts its daemon ended with exit code 255: not here" in done.err.decode()


def test_daemons_go_on_without_their_relay(command: Command, tmp_path: Path, agent: str) -> None:
    line = [*words(tmp_path, agent), str(tmp_path)]
    process = command.start(*line, env=environment(command, tmp_path))
    deadline = time.monotonic() + LIMIT
    while len(list(tmp_path.glob("here-*"))) < NODES:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    relays = [each.pid for each in processes.marked(command.mark) if each.command.endswith("-m pypmix relay")]
    assert len(relays) == 3
    for pid in relays:
        os.kill(pid, signal.SIGKILL)
    (tmp_path / "go").touch()
    done = command.end(process)
    assert (done.code, sorted(done.lines)) == (0, EXPECTED), done.err


def test_nothing_is_left_where_the_launcher_is_killed(command: Command, tmp_path: Path, agent: str) -> None:
    process = command.start(*words(tmp_path, agent), str(tmp_path), env=environment(command, tmp_path))
    deadline = time.monotonic() + LIMIT
    while len(list(tmp_path.glob("here-*"))) < NODES:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.kill()
    process.communicate()
    # The launcher's own folder is its guard's to remove; those of the daemons are theirs.
    assert not command.left()


@pytest.mark.parametrize("count", [0, 1, 2, 16, 17, 33, 272, 1000])
def test_blocks(count: int) -> None:
    leaves = [Leaf(f"n{number}", f"n{number}", b"{}") for number in range(count)]
    found = blocks(leaves, 16)
    assert len(found) == min(16, count)
    assert [leaf for block in found for leaf in block] == leaves
    assert not found or max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("line", [b"", b"[]", b'{"nodes": [], "agent": "", "radix": 2}', b'{"nodes": [1]}', b"x\n"])
def test_lines_that_no_launcher_says(line: bytes) -> None:
    with pytest.raises(ValueError, match="launcher"):
        Relay(line)
