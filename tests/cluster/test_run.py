"""`pypmix run` on several nodes: the job's ranks, its options, and what is told where the nodes cannot be had."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from lib.command import Command
from lib.sshd import Server

LOCAL = "sh -c {command}"

PROGRAM = """\
import os, pypmix
with pypmix.Client() as me:
    me.put("rank", me.rank)
    me.fence(collect=True)
    total = sum(me.get("rank", proc=proc) for proc in me.job.procs)
    print(me.rank, me.job.size, me.node.hostname, total, os.environ.get("GIVEN"), flush=True)
"""


def run(command: Command, *words: object) -> tuple[int, list[str], str]:
    done = command("run", *words, sys.executable, "-c", PROGRAM)
    return done.code, sorted(done.lines), done.err.decode()


def test_ranks_on_nodes_that_ssh_reaches(command: Command, sshd: Server) -> None:
    code, lines, said = run(command, "--host", "n1,n2:2", "--launch-agent", sshd.agent, "-x", "GIVEN=yes", "-n", 3)
    assert code == 0, said
    assert lines == ["0 3 n1 3 yes", "1 3 n2 3 yes", "2 3 n2 3 yes"]
    assert said.splitlines()[0] == "pypmix run: nodes n1 (1), n2 (2) by ssh"


def test_python_is_the_one_that_runs_the_daemons(command: Command, sshd: Server) -> None:
    words = ("run", "--host", "n1,n2", "--launch-agent", sshd.agent, "-n", 2)
    program = ("python", "-c", "import sys; print(sys.executable)")
    done = command(*words, *program)
    assert (done.code, done.lines) == (0, [str(Path(sys.executable).with_name("python"))] * 2), done.err
    # Another PATH can be had.
    done = command(*words, "-x", "PATH=/nowhere", *program)
    assert done.code == 127
    assert b"program not found on n" in done.err


def test_a_hostfile_and_a_mapping(command: Command, tmp_path: Path) -> None:
    hostfile = tmp_path / "hosts"
    hostfile.write_text("# two nodes\nn1 slots=2 max_slots=3\nn2 slots=1\n")
    words = ("--hostfile", hostfile, "--launch-agent", LOCAL, "--map-by", "node", "-n")
    code, lines, said = run(command, *words, 3)
    assert code == 0, said
    assert lines == ["0 3 n1 3 None", "1 3 n2 3 None", "2 3 n1 3 None"]
    code, lines, said = run(command, *words, 4)
    assert (code, lines) == (2, [])
    assert "4 ranks do not fit on 2 nodes with 3 slots (n1:2, n2:1); run fewer, give more slots, or allow" in said


@pytest.fixture
def one_cpu() -> str:
    """An agent whose nodes have one of this machine's CPUs."""
    return f"taskset -c {min(os.sched_getaffinity(0))} sh -c {{command}}"


def test_slots_that_nobody_gave_are_the_cpus_of_the_node(command: Command, one_cpu: str) -> None:
    words = ("--host", "n1:*,n2:1", "--launch-agent", one_cpu, "-n")
    code, lines, said = run(command, *words, 2)
    assert code == 0, said
    assert lines == ["0 2 n1 1 None", "1 2 n2 1 None"]
    code, lines, said = run(command, *words, 3)
    assert (code, lines) == (2, [])
    assert "3 ranks do not fit on 2 nodes with 2 slots (n1:1, n2:1); run fewer, give more slots, or allow" in said


@pytest.mark.parametrize(
    ("words", "homes", "remark"),
    [
        (["--host", "n1:2,n2:1"], ["n1", "n1", "n2"], "3 ranks, one for each slot; -n says otherwise"),
        (["--host", "n1:2,n2:2", "--map-by", "ppr:1:node"], ["n1", "n2"], "2 ranks, 1 on each node; -n says otherwise"),
        (["--host", "n1:*,n2:1"], ["n1", "n2"], "2 ranks, one for each slot; -n says otherwise"),
    ],
)
def test_a_job_without_a_number_of_ranks_fills_the_slots(
    command: Command, one_cpu: str, words: list[str], homes: list[str], remark: str
) -> None:
    code, lines, said = run(command, *words, "--launch-agent", one_cpu)
    assert code == 0, said
    assert [line.split()[2] for line in lines] == homes
    assert f"pypmix run: {remark}" in said.splitlines()


def test_without_a_number_of_ranks_one_of_several_applications_has_one_rank(command: Command) -> None:
    program = [sys.executable, "-c", PROGRAM]
    words = ("run", "--host", "n1:4", "--launch-agent", LOCAL)
    done = command(*words, *program, ":", "-n", 2, *program)
    assert (done.code, len(done.lines)) == (0, 3), done.err


def test_each_application_is_placed_by_itself(command: Command) -> None:
    program = [sys.executable, "-c", PROGRAM]
    words = ("run", "--host", "n1:2,n2:2", "--launch-agent", LOCAL, "--map-by", "ppr:1:node")
    done = command(*words, "-n", 2, *program, ":", "-n", 2, *program)
    assert done.code == 0, done.err
    assert sorted(done.lines) == ["0 4 n1 6 None", "1 4 n2 6 None", "2 4 n1 6 None", "3 4 n2 6 None"]


def test_ranks_are_told_of_fewer_cpus_than_slots(command: Command, one_cpu: str) -> None:
    program = (
        "import pypmix\n"
        "with pypmix.Client() as me:\n"
        "    print(me.node.hostname, me.get('pmix.ndosub', me.proc, timeout=0, default=None), flush=True)\n"
        "    me.fence()\n"
    )
    words = ("run", "--host", "n1:1,n2:2", "--launch-agent", one_cpu, "-n", 3)
    done = command(*words, sys.executable, "-c", program)
    assert done.code == 0, done.err
    assert sorted(done.lines) == ["n1 None", "n2 True", "n2 True"]


def test_a_lone_rank_elsewhere_reads_and_writes(command: Command) -> None:
    words = ("run", "--host", "n1,n2", "--launch-agent", LOCAL, "-n", 1, "cat")
    done = command(*words, data=b"given\n")
    assert (done.code, done.out) == (0, b"given\n"), done.err


def test_the_exit_code_of_a_rank_elsewhere(command: Command) -> None:
    words = ("run", "--host", "n1,n2", "--launch-agent", LOCAL, "-n", 2, "sh", "-c")
    done = command(*words, 'test "$PMIX_RANK" = 0 || exit 7; sleep 60')
    assert done.code == 7, done.err


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ("nowhere", "pypmix run: nowhere: its name does not resolve here: see DNS, /etc/hosts, or Host in"),
        ("refused", "pypmix run: refused: ssh is refused without a password: see ssh-copy-id and ssh-agent"),
    ],
)
def test_a_node_that_cannot_be_reached(command: Command, sshd: Server, host: str, words: str) -> None:
    code, lines, said = run(command, "--host", f"n1,{host}", "--launch-agent", sshd.agent)
    assert (code, lines) == (1, [])
    assert words in said


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["--host", "n1,,n2"], "--host takes nodes such as n1,n2:4: '' cannot name a node"),
        (["--hostfile", "/no/such/file"], "the hostfile '/no/such/file' cannot be read: No such file or directory"),
        (
            ["--roster", "unheard-of"],
            "there is no roster 'unheard-of': symmetric, ssh, kubernetes, slurm, flux, pmix, prrte, local, or module:",
        ),
        (["--roster", "os:path"], "the roster 'os:path' is not a class"),
        (["--roster", "no.such.module:Thing"], "the roster 'no.such.module:Thing' cannot be loaded: No module named"),
        (["--roster", "ssh"], "the ssh roster needs nodes: --host n1,n2:4 or --hostfile FILE"),
        (["--roster", "slurm"], "SLURM_JOB_NODELIST is not set: is this inside of salloc, sbatch or srun?"),
        (["--symmetric", "0/2"], "--symmetric needs a place to meet: --symmetric 0/2 --meet"),
        (["--symmetric", "2/2", "--meet", "n1:7777"], "--symmetric takes a place and a number of processes such as"),
        (
            ["--symmetric", "0/2", "--meet", "n1:7777"],
            "the processes need a secret that they share: --secret-file FILE",
        ),
        (
            ["--map-by", "ppr:2:node", "true", ":"],
            "--map-by ppr and --rankfile say where ranks go, not how many each application has: add -n",
        ),
        (["--map-by", "board"], "--map-by: ranks are mapped by slot, node, hwthread, core,"),
        (["--pset", "a,b"], "the name of a process set holds no comma"),
        (["--host", "n1", "--nodes", "2"], "--nodes simulates nodes on this machine"),
        (["--host", "n1", "--launch-agent", "no-such-agent {host}"], "there is no program 'no-such-agent' here"),
    ],
)
def test_command_lines_that_cannot_be_carried_out(command: Command, given: list[str], words: str) -> None:
    done = command("run", *given, "true")
    assert done.code in (1, 2)
    assert done.message.startswith(f"pypmix run: {words}")


@pytest.mark.parametrize(
    ("interface", "words"),
    [("nosuch0", "'nosuch0' is neither an interface of this node"), ("2001:db8::/32", "no address in 2001:db8::/32")],
)
def test_an_interface_that_the_launcher_lacks(command: Command, interface: str, words: str) -> None:
    code, lines, said = run(command, "--host", "n1", "--launch-agent", LOCAL, "--interface", interface)
    assert (code, lines) == (1, [])
    assert "pypmix run: --interface: " in said and words in said and "Traceback" not in said


def test_a_roster_of_a_site(command: Command, tmp_path: Path) -> None:
    (tmp_path / "site_roster.py").write_text(
        "from pypmix.host.placing import Node\n"
        "from pypmix.host.rosters.ssh import SSHRoster\n"
        "class Site(SSHRoster):\n"
        "    def __init__(self, settings):\n"
        "        from pypmix.host.rosters.names import Host\n"
        f"        super().__init__(settings.replace(hosts=(Host('s1', 2),), agent={LOCAL!r}))\n"
        "    @classmethod\n"
        "    def found(cls, settings):\n"
        "        return 'the nodes of this site'\n"
    )
    env = {"PYTHONPATH": f"{tmp_path}:{command.environment['PYTHONPATH']}"}
    done = command("run", "--roster", "site_roster:Site", "-n", 2, sys.executable, "-c", PROGRAM, env=env)
    assert done.code == 0, done.err
    assert sorted(done.lines) == ["0 2 s1 1 None", "1 2 s1 1 None"]
    assert done.err.decode().startswith("pypmix run: the nodes of this site\n")


@pytest.mark.parametrize("words", [["--roster", "local"], []])
def test_this_machine_alone(command: Command, words: list[str]) -> None:
    # A rank of another launcher in a job of several nodes runs its own jobs here.
    env = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_TASKS_PER_NODE": "2(x2)"}
    if not words:
        env["PMIX_NAMESPACE"] = "outer"
    done = command("run", *words, "echo", "here", env=env)
    assert (done.code, done.lines, done.err) == (0, ["here"], b"")


def test_nodes_are_being_started_while_the_launcher_is_imported() -> None:
    program = (
        "import sys\n"
        "import pypmix.cli.run, pypmix.cli.cluster, pypmix.host.rosters.ssh\n"
        "print([name for name in ('pypmix.host.local', 'pypmix.host.exchange', 'ssl') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_job_on_this_machine_alone_needs_no_ssh_program(command: Command, tmp_path: Path) -> None:
    env = {"PATH": str(tmp_path)}
    done = command("run", "--host", "localhost:2", "-n", 2, sys.executable, "-c", "print('ran')", env=env)
    assert (done.code, done.lines) == (0, ["ran", "ran"])
    assert done.err.decode() == "pypmix run: node localhost (2) on this machine\n"
    done = command("run", "--host", "localhost,n2", "-n", 2, sys.executable, "-c", "print('ran')", env=env)
    assert done.code != 0 and "there is no program 'ssh' here to start daemons with" in done.err.decode()


SURVIVES = """\
echo $$ > {folder}/pid.$PMIX_RANK
test $PMIX_RANK -gt 1 && exec sleep 600
for rank in 2 3; do
    until test -s {folder}/pid.$rank; do sleep 0.05; done
    while kill -0 $(cat {folder}/pid.$rank) 2> /dev/null; do sleep 0.05; done
done
sleep 1
"""
"""Ranks 0 and 1 go on for a while after the ends of 2 and 3."""


def test_the_loss_of_a_node_is_one_line_for_a_job_that_goes_on(command: Command, tmp_path: Path) -> None:
    hosts = ("--host", "localhost:2,127.0.0.1:2", "--lose", "127.0.0.1@0.5s")
    done = command("run", "--keep-going", *hosts, "-n", 4, "sh", "-c", SURVIVES.format(folder=tmp_path))
    lines = done.err.decode().splitlines()
    assert done.code == 137 and len(lines) == 2, lines
    assert lines[0] == "pypmix run: nodes localhost (2), 127.0.0.1 (2) on this machine"
    reason = "was lost with node 127.0.0.1: it was lost, as --lose 127.0.0.1@0.5s had asked; the others go on"
    assert re.fullmatch(rf"pypmix run: rank [23] \(pid \d+ on 127.0.0.1\) {re.escape(reason)}", lines[1])
