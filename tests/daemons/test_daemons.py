"""Jobs on nodes that daemons serve: each daemon here has an address of loopback and a TMPDIR of its own."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lib import processes
from lib.daemon_session import Start, ranks, shell
from pypmix.host.local import HANG
from pypmix.host.preload import PIECE

pytestmark = pytest.mark.timeout(170)


LOSS_SECONDS = 5.0
"""Within which the ranks of a node whose daemon is killed are lost to the others, on a loaded machine too."""


def test_what_ranks_do_together_crosses_nodes(session: Start, tmp_path: Path) -> None:
    """Where they run, the environment and the working directory too."""
    run = session(ranks(5, "work"), nodes={"n0": 2, "n1": 2, "n2": 2}, env={"EXTRA": "more"})
    assert run.end() == 0, run.told()
    places = ["n0", "n0", "n1", "n1", "n2"]
    assert sorted(run.out) == [f"worked {rank} {node} {node} {tmp_path} more" for rank, node in enumerate(places)]


def test_ranks_beyond_the_slots_are_told_that_their_node_is_crowded(session: Start) -> None:
    run = session(ranks(4, "crowded"), nodes={"n0": 1, "n1": 2})
    assert run.end() == 0, run.told()
    told = {tuple(line.split()[1::2]) for line in run.out}
    assert told == {("n0", "True"), ("n1", "None")} or told == {("n0", "True"), ("n1", "True")}, run.out
    assert sum("n0" in line for line in run.out) == 2


def test_jobs_are_spawned_onto_nodes_by_name(session: Start) -> None:
    run = session(ranks(2, "spawn"), nodes={"n0": 2, "n1": 4})
    assert run.end() == 0, run.told()
    assert run.out.count("spawned on n1") == 4
    assert {"spawned n1 0", "spawned 127.0.0.3 0"} <= set(run.out)
    assert any(line.startswith("refused") and "nosuch" in line for line in run.out), run.out


def test_a_job_is_known_to_the_node_of_who_has_spawned_it(session: Start) -> None:
    """It has no rank there, and its daemon has much else to do."""
    run = session(ranks(2, "known"), nodes={"n0": 2, "n1": 2})
    assert run.end() == 0, run.told()
    assert "sizes {2}" in run.out, run.told()


def test_jobs_are_spawned_as_they_are_mapped_and_ranked(session: Start) -> None:
    """On nodes that are there, on some of their slots, and on such as join for it; what cannot be is refused."""
    run = session(ranks(1, "mapped"), nodes={"n0": 1, "n1": 3, "n2": 3}, elastic=True)
    assert run.end() == 0, run.told()
    placed = dict(line.removeprefix("placed ").split(" n", 1) for line in run.out if line.startswith("placed"))
    assert placed == {
        "MAPBY=slot": "1 n1 n1 n2 0",
        "MAPBY=core": "1 n1 n1 n2 0",
        "MAPBY=node": "1 n2 n1 n2 0",
        "MAPBY=NODE RANKBY=slot": "1 n1 n2 n2 0",
        "RANKBY=node HOST=n1,n2": "1 n2 n1 n1 0",
        "PPR=2:node HOST=n1,n2": "1 n1 n2 n2 0",
        "MAPBY=ppr:2:node RANKBY=node HOST=n2,n1": "1 n2 n1 n2 0",
        "HOST=n1:1,n2:3": "1 n2 n2 n2 0",
        "HOST=n1:1,n2 MAPBY=slot:nooversubscribe": "1 n2 n2 n2 0",
        "ADD_HOST=n3:2 HOST=n1:2 MAPBY=node": "1 n3 n1 n3 0",
    }, run.told()
    refused = [line.removeprefix("refused ") for line in run.out if line.startswith("refused")]
    expected = [
        "MAPBY=ppr:1:node HOST=n1,n2 ERR_JOB_INSUFFICIENT_RESOURCES 4 ranks do not fit on 2 nodes with 1 on each",
        "MAPBY=ppr:4:node:nooversubscribe HOST=n1,n2 ERR_JOB_INSUFFICIENT_RESOURCES n1 has 3 of its 3 slots free",
        "HOST=n1:2 NO_OVERSUBSCRIBE=True ERR_JOB_INSUFFICIENT_RESOURCES 4 ranks do not fit on 1 node with 2 slots",
        "MAPBY=slot PPR=1:node ERR_JOB_FAILED_TO_MAP the procs of a job are mapped in one way, not by slot and ppr:1",
        "MAPBY=elsewhere ERR_JOB_FAILED_TO_MAP ranks are mapped by slot, node, hwthread, core, ",
        "RANKBY=elsewhere ERR_JOB_FAILED_TO_MAP procs are ranked by slot, node, fill, span, not by 'elsewhere'",
    ]
    assert len(refused) == len(expected), run.told()
    for line, words in zip(refused, expected, strict=True):
        assert line.startswith(words), run.told()


SUMS = "echo $TEST_NODE $1 $(cat $1 | cksum) $(stat -c %a $1) $(ls $PYPMIX_PRELOAD) $(stat -c %a $PYPMIX_PRELOAD)"


def _sum(data: bytes) -> str:
    return subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout.decode().strip()


def test_files_are_carried_to_all_nodes(session: Start, tmp_path: Path) -> None:
    """In pieces, with their permissions; the program is one of them, and all go with the session."""
    large = random.Random(1).randbytes(3 * PIECE + 17)
    tool = f"#!/bin/sh\n{SUMS}\n".encode()
    for name, data, mode in (("tool", tool, 0o755), ("large", large, 0o640), ("e", b"", 0o400)):
        (tmp_path / name).write_bytes(data)
        (tmp_path / name).chmod(mode)
    preload = [(f"./{name}", str(tmp_path / name)) for name in ("tool", "large", "e")]
    run = session([3, "./tool", "./large"], nodes={"n0": 2, "n1": 1}, preload=preload)
    assert run.end() == 0, run.told()
    lines = sorted(line.split() for line in run.out)
    assert [line[0] for line in lines] == ["n0", "n0", "n1"], run.told()
    for node, path, *rest in lines:
        assert path.startswith(str(tmp_path / node / "pypmix-")) and path.endswith("/preload/large"), path
        assert " ".join(rest) == f"{_sum(large)} 640 e large tool 700", run.told()


def test_a_spawn_has_files_carried(session: Start, tmp_path: Path) -> None:
    for name in ("data/a", "data/b", "other/a"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
    (tmp_path / "tool").write_text(f"#!/bin/sh\n{SUMS}\n")
    (tmp_path / "tool").chmod(0o755)
    run = session(ranks(1, "preloads"), nodes={"n0": 1, "n1": 2})
    assert run.end() == 0, run.told()
    wrote = [line.split() for line in run.out if line.startswith("n1 ")]
    assert len(wrote) == 2, run.told()
    for _, path, *rest in wrote:
        assert path.endswith("/job-2/preload/a"), path
        assert " ".join(rest[:2]) == _sum(b"data/a")
        assert rest[3:] == ["a", "b", "tool", "700"], run.told()
    assert "ended 0" in run.out
    refused = [line.removeprefix("refused ") for line in run.out if line.startswith("refused")]
    assert refused[0].startswith("nosuch ERR_NOT_FOUND a file cannot be preloaded: No such file"), run.told()
    assert refused[1].startswith("data ERR_BAD_PARAM a file cannot be preloaded: a folder"), run.told()
    assert refused[2].startswith("data/a,other/a ERR_BAD_PARAM two files to preload have the name 'a'"), run.told()


def test_a_file_that_cannot_be_carried_ends_the_job_before_it_starts(session: Start, tmp_path: Path) -> None:
    run = session([2, "echo", "started"], nodes={"n0": 1, "n1": 1}, preload=[("gone", str(tmp_path / "gone"))])
    assert run.end() != 0
    assert "started" not in run.out
    assert "gone cannot be read: No such file" in run.err and "Traceback" not in run.err, run.told()


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        ("test $PMIX_RANK = 2 && exit 7; sleep 60", 7, ["rank 2", "exited with code 7", "3 other ranks"]),
        ("test $PMIX_RANK = 3 && kill -SEGV $$; sleep 60", 139, ["rank 3", "SIGSEGV"]),
    ],
)
def test_a_rank_that_fails_ends_the_job_on_all_nodes(session: Start, text: str, code: int, words: list[str]) -> None:
    run = session(shell(4, text))
    assert run.end() == code, run.told()
    assert all(word in run.outcome for word in words), run.outcome


def test_the_others_go_on_where_they_are_to(session: Start) -> None:
    run = session(shell(4, "test $PMIX_RANK = 3 && exit 3; sleep 0.2; echo went on"), terms={"keep_going": True})
    assert run.end() == 3, run.told()
    assert run.out == ["went on"] * 3


def test_a_program_that_a_node_does_not_have(session: Start) -> None:
    run = session([3, "./nosuch"])
    assert run.end() == 127, run.told()
    assert "program not found on n" in run.outcome and "./nosuch" in run.outcome


def test_standard_input_reaches_rank_0(session: Start) -> None:
    reader, writer = os.pipe()
    run = session(shell(3, "test $PMIX_RANK = 0 && wc -c; exit 0"), stdin=reader)
    os.close(reader)
    with open(writer, "wb") as file:
        file.write(b"x" * 3_000_000)
    assert run.end() == 0, run.told()
    assert [line.strip() for line in run.out] == ["3000000"]


def test_output_comes_whole_and_tagged(session: Start) -> None:
    """Much more than what may be on its way at a time, and a last line without an end."""
    text = "yes 0123456789abcdef | head -c 6000000; printf end$PMIX_RANK"
    run = session(shell(2, text), nodes={"n0": 1, "n1": 1}, terms={"tagged": True})
    assert run.end() == 0, run.told()
    for rank in (0, 1):
        mine = [line.partition(": ")[2] for line in run.out if re.match(rf"\[{rank}@n[01]\]<stdout>", line)]
        assert len(mine) == 6000000 // 17 + 1
        assert set(mine[:-1]) == {"0123456789abcdef"} and mine[-1].endswith(f"end{rank}")


def test_signals_are_passed_on(session: Start) -> None:
    run = session(shell(4, "trap 'echo usr2' USR2; echo up; n=0; while [ $n -lt 60 ]; do sleep 1; n=$((n+1)); done"))
    run.until(lambda: run.out.count("up") == 4, "all ranks")
    run.process.send_signal(signal.SIGUSR2)
    run.until(lambda: run.out.count("usr2") == 4, "the signal")
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 143, run.told()


def test_sigusr1_says_who_is_missing_on_which_node(session: Start) -> None:
    """To the launcher, and to the daemon of any node; and so does Ctrl-C of what hangs."""
    run = session(ranks(3, "wait"), nodes={"n0": 1, "n1": 2})
    run.until(lambda: len(run.out) == 3, "all ranks")
    pids = {int(line.split()[1]): int(line.split()[2]) for line in run.out}
    missing = f"1 of 3 arrived.*missing: rank 1 \\(pid {pids[1]} on n1\\), rank 2 \\(pid {pids[2]} on n1\\)"

    def ask() -> None:
        run.process.send_signal(signal.SIGUSR1)

    run.until(processes.asked_until(missing, "3 of 3 ranks run", lambda: run.err, ask), "the report")
    os.kill(run.pid("n1"), signal.SIGUSR1)
    run.until(lambda: len(re.findall(missing, run.err)) == 2, "the report of a daemon")
    assert "pypmix node n1: 3 of 3 ranks run" in run.err, run.told()
    time.sleep(HANG)
    run.process.send_signal(signal.SIGINT)
    assert run.end() == 130, run.told()
    assert len(re.findall(missing, run.err)) == 3 and "(SIGINT)" in run.outcome, run.told()


def test_a_time_limit_says_what_was_pending(session: Start) -> None:
    run = session(ranks(3, "wait"), nodes={"n0": 2, "n1": 1}, timeout=12.0)
    assert run.end() == 124, run.told()
    assert "did not end within 12 s" in run.outcome and "on n1" in run.err, run.told()


def test_what_ranks_do_crosses_nodes_that_have_few_connections(session: Start, tmp_path: Path) -> None:
    names = [f"n{number}" for number in range(9)]
    run = session(ranks(9, "work"), nodes=dict.fromkeys(names, 1), env={"EXTRA": "more"}, mesh=1)
    assert run.end() == 0, run.told()
    assert sorted(run.out) == [f"worked {rank} {node} {node} {tmp_path} more" for rank, node in enumerate(names)]


@pytest.mark.timing
@pytest.mark.parametrize("mesh", [1, 32])
def test_the_ranks_of_a_node_that_is_lost_are_lost_to_the_others(session: Start, mesh: int) -> None:
    """They hear it as an event, once each, and their fence ends; they go on, and the outcome says what was lost."""
    nodes = {"n0": 2, "n1": 2, "n2": 2, **dict.fromkeys(("n3", "n4", "n5"), 0)}
    run = session(ranks(6, "survive"), nodes=nodes, terms={"keep_going": True}, mesh=mesh)
    run.until(lambda: sum(line.startswith("up") for line in run.out) == 6, "all ranks")
    os.kill(run.pid("n1"), signal.SIGKILL)
    killed = time.monotonic()
    run.until(lambda: sum(line.startswith("fence") for line in run.out) == 4, "the end of the fence")
    assert time.monotonic() - killed < LOSS_SECONDS
    assert run.end() == 137, run.told()
    assert "was lost with node n1" in run.outcome
    told = [line.split(maxsplit=2)[2] for line in run.out if line.startswith("fence")]
    assert told == ["-52 [2, 3]"] * 4, run.told()
    assert [line.split(maxsplit=2)[2] for line in run.out if line.startswith("events")] == ["[2, 3]"] * 4, run.told()


def test_a_node_that_is_lost_ends_the_job(session: Start) -> None:
    run = session(shell(4, "echo up; sleep 60"))
    run.until(lambda: run.out.count("up") == 4, "all ranks")
    os.kill(run.pid("n1"), signal.SIGKILL)
    assert run.end() == 137, run.told()
    assert "was lost with node n1" in run.outcome and "2 other ranks were ended" in run.outcome


def test_a_node_is_lost_on_demand(session: Start) -> None:
    run = session(shell(4, "sleep 3; echo went on"), terms={"keep_going": True}, faults=[["lose", "n1", 0.2]])
    assert run.end() == 137, run.told()
    assert run.out == ["went on"] * 2, run.told()
    assert "was lost with node n1" in run.outcome and "as --lose n1@0.2s had asked" in run.told(), run.told()


def dying(order: str) -> list[str]:
    """Return the command of a daemon that is killed when it gets an order."""
    text = f"import os, pypmix.host.daemon as d; d.Daemon.{order} = lambda *_: os.kill(os.getpid(), 9); d.main()"
    return [sys.executable, "-c", text]


def test_a_node_that_is_lost_while_its_ranks_are_started(session: Start) -> None:
    run = session(shell(4, "sleep 0.5; echo went on"), python={"n1": dying("_start")}, terms={"keep_going": True})
    assert run.end() == 137, run.told()
    assert run.out == ["went on"] * 2, run.told()
    assert "was lost with node n1" in run.outcome and "pypmix.node" not in run.outcome, run.outcome


def test_a_node_that_is_lost_before_its_ranks_are_started(session: Start) -> None:
    run = session(shell(4, "echo up"), python={"n1": dying("_describe")}, terms={"keep_going": True})
    assert run.end() == 1, run.told()
    assert "node n1" in run.outcome and "pypmix.node" not in run.outcome, run.outcome
    assert run.out == []


@pytest.mark.parametrize(
    "what",
    ["echo up; sleep 60", "trap '' TERM; echo up; while :; do sleep 0.1; done", "setsid sleep 60 & echo up; wait"],
)
def test_nothing_outlives_a_launcher_that_is_killed(session: Start, what: str) -> None:
    run = session(shell(4, what))
    run.until(lambda: run.out.count("up") == 4, "all ranks")
    run.process.kill()
    run.process.wait()
    run.gone(20.0)


def test_what_ranks_leave_behind_ends_with_the_job(session: Start) -> None:
    run = session(shell(2, "setsid sleep 60 & sleep 60 & exit 0"), nodes={"n0": 1, "n1": 1})
    assert run.end() == 0, run.told()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["false"], ["node n1", "without a word"]),
        (["echo", "Welcome to n1"], ["node n1", "Welcome to n1"]),
        (["echo", '{"error": "no module named pypmix", "version": ""}'], ["node n1: no module named pypmix"]),
        (["echo", '{"ready": "n1", "version": "0.1"}'], ["node n1 has pypmix 0.1"]),
        (["/nonexistent/python"], ["node n1", "cannot be started"]),
        (["sleep", "60"], ["n1 did not join within 3 s"]),
    ],
)
def test_a_daemon_that_does_not_come_is_told_clearly(session: Start, command: list[str], words: list[str]) -> None:
    run = session(shell(2, "true"), python={"n1": command}, patience=3.0 if command[0] == "sleep" else 60.0)
    assert run.end() == 1
    assert run.outcome.startswith("REFUSED") and all(word in run.outcome for word in words), run.told()


def test_the_ranks_of_a_node_can_be_warm(session: Start) -> None:
    code = "import os, pypmix\nwith pypmix.Client() as me: print(me.node.hostname, os.getppid())"
    there = session([4, sys.executable, "-c", code], warm=["json"])
    assert there.end() == 0, there.err
    # Each node has a fork server.
    assert len(set(there.out)) == 2 and len(there.out) == 4
