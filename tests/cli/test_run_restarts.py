"""Ranks that fail are started again: on one node, on several, in sessions; how often, and what they find."""

from __future__ import annotations

import os
import re
import signal
import sys
from pathlib import Path

import pytest

from lib import machine, processes
from lib.command import Command

STEPS = str(machine.ROOT / "docs" / "examples" / "restarts" / "steps.py")

REPLACE = machine.ROOT / "docs" / "examples" / "restarts" / "replace.py"

LAYOUTS = {"here": [], "simulated": ["--nodes", "2"], "daemon": ["--host", "localhost:4"]}

FAILS = """
import sys
from pypmix import Client, attrs
with Client() as me:
    life = me.get(attrs.REINCARNATION, me.proc)
    print("life", life, sys.stdin.read() if life else "", flush=True)
    if life < int(sys.argv[1]):
        sys.exit(9)
"""

SPAWNS = """
import sys
from pypmix import Client, attrs
with Client() as me:
    job = me.spawn([sys.executable, "-c", sys.argv[1], "2"], n=1, info={attrs.MAX_RESTARTS: 2})
    print("child ended with", job.wait(timeout=30), flush=True)
"""

EVENTS = """
import os, sys, time
from pypmix import Client, EventCode, PartialSuccess, attrs
codes = [EventCode.ERR_PROC_ABORTED, EventCode.ERR_PROC_RESTART]
with Client() as me, me.events(*codes) as events:
    life = me.get(attrs.REINCARNATION, me.proc)
    if not life:
        me.fence(timeout=30)
        if me.rank == 1:
            os._exit(3)
    if me.rank == 0:
        for _ in codes:
            event = events.get(timeout=30)
            print(event.code.name, event.info[attrs.EVENT_AFFECTED_PROC].rank, event.info.get(attrs.REINCARNATION))
    while True:
        try:
            me.fence(timeout=30)
            break
        except PartialSuccess:
            time.sleep(0.01)
"""

ONCE = """
import os
from pypmix import Client, EventCode
with Client() as me, me.events(EventCode.ERR_PROC_ABORTED) as events:
    me.fence()
    if me.rank == 2:
        # Events of two failures keep their order: this one is the later one.
        events.get(timeout=30)
        os._exit(3)
    if me.rank == 1:
        os._exit(3)
    for _ in range(2):
        event = events.get(timeout=30)
        print(event.code.name, event.info["pmix.evproc"].rank)
"""

LOSES = """
import os, sys, time
import pypmix
from pypmix import Client, attrs
# Its ranks end their node's daemon, as a lost node does; sys.argv: ranks that do.
with Client() as me:
    life = me.get(attrs.REINCARNATION, me.proc)
    if not life:
        me.fence(timeout=60)
        if str(me.rank) in sys.argv[1:]:
            os.kill(os.getppid(), 9)
    while True:
        try:
            me.put("life", life)
            me.fence(collect=True, timeout=60)
            break
        except pypmix.PartialSuccess:
            time.sleep(0.05)
    print(me.rank, [me.get("life", rank) for rank in range(me.job.size)], me.node.hostname, flush=True)
"""

NODES = ("--launch-agent", "sh -c {command}", "--restart", "1")

LEAVES = """
import os, subprocess, sys
from pypmix import Client, attrs
with Client() as me:
    life = me.get(attrs.REINCARNATION, me.proc)
    if life:
        print("former", os.path.exists(f"/proc/{open('left').read()}/environ"), flush=True)
    else:
        left = subprocess.Popen(["sleep", "600"])
        with open("left", "w") as file:
            file.write(str(left.pid))
        print("first", flush=True)
        os.kill(os.getpid(), 9)
"""


AWAITED = """
import os, sys, time
from pypmix import Client, PartialSuccess

def wait_here(rank):
    open(f"up.{rank}", "w").write("up\\n")
    time.sleep(600)

# Its second process never connects; rank 0 waits for it in a fence.
if os.path.exists("first"):
    wait_here(1)
with Client() as me:
    me.fence(timeout=30)
    if me.rank == 1:
        open("first", "w").close()
        os._exit(3)
    while True:
        try:
            me.fence(timeout=30)
        except PartialSuccess:
            open("up.0", "w").write("up\\n")
            time.sleep(0.01)
"""

MOVES = """
import os, signal, time
from pypmix import Client, EventCode

def write(name):
    open(f"{name}.{me.rank}", "w").write(f"{os.getppid()}\\n")

def interrupted(*_):
    write("interrupted")
    os._exit(4)

# Rank 1 ends its node's daemon when the test says so; rank 0 shows that the launcher has noticed.
signal.signal(signal.SIGINT, interrupted)
with Client() as me, me.events(EventCode.ERR_PROC_ABORTED) as events:
    me.fence(timeout=30)
    write("up")
    if me.rank == 1:
        while not os.path.exists("go"):
            time.sleep(0.01)
        os.kill(os.getppid(), 9)
        time.sleep(600)
    events.get(timeout=30)
    write("noticed")
    time.sleep(600)
"""

ENDLESS = ("--restart", "1000000", "-n", "2", "sh", "-c", "exit 7")
"""Ranks that are being started again at any moment."""


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS)
def layout(request: pytest.FixtureRequest) -> list[str]:
    return list(request.param)


@pytest.mark.parametrize("engine", ["python", "native"])
def test_a_job_outlives_its_ranks(command: Command, layout: list[str], engine: str) -> None:
    if engine == "native" and not machine.libraries():
        machine.lacking("a libpmix")
    words = ("--engine", engine, "--restart", "1", "-n", "3", sys.executable, STEPS, "0@3", "2@3")
    ended = command("run", *layout, *words)
    assert ended.code == 0, ended
    times = {0: 2, 1: 1, 2: 2}
    assert sorted(ended.lines) == [f"rank {rank}, started {times[rank]} times: the sum is 190" for rank in range(3)]
    assert ended.err.count(b"it is started again (1 of 1)") == 2


@pytest.mark.parametrize("engine", ["python", "native"])
def test_a_spawned_process_replaces_a_rank(command: Command, layout: list[str], engine: str) -> None:
    if engine == "native" and not machine.libraries():
        machine.lacking("a libpmix")
    ended = command("run", *layout, "--engine", engine, "--keep-going", "-n", "4", sys.executable, REPLACE)
    known = "knows rank 0, rank 1, rank 3, new"
    assert ended.code == 137 and sorted(ended.lines) == [f"member {number} {known}" for number in range(4)], ended


CONNECTS = """
def work(me, procs):
    with me.connect(procs, timeout=60) as both:
        (other,) = set(both.jobs) - {me.nspace}
        print(both.size, both.jobs[other].size, flush=True)
"""


def test_a_spawned_process_connects_to_the_ranks_that_are_left(command: Command, layout: list[str]) -> None:
    before, _, rest = REPLACE.read_text().partition("def work")
    (command.folder / "replace.py").write_text(f"{before}{CONNECTS}\n\nwith Client{rest.partition('with Client')[2]}")
    ended = command("run", *layout, "--keep-going", "-n", "4", sys.executable, "replace.py")
    assert ended.code == 137 and sorted(ended.lines) == ["4 1", "4 1", "4 1", "4 4"], ended


def test_each_rank_is_started_again_so_often_and_no_more(command: Command, layout: list[str]) -> None:
    ended = command("run", *layout, "--restart", "2", "-n", "2", sys.executable, "-c", FAILS, "2")
    assert ended.code == 0 and sorted(ended.lines) == [f"life {life} " for life in (0, 0, 1, 1, 2, 2)], ended
    ended = command("run", *layout, "--restart", "2", "-n", "1", sys.executable, "-c", FAILS, "3")
    assert ended.code == 9 and "exited with code 9, after 2 restarts" in ended.message
    assert ended.lines == [f"life {life} " for life in range(3)]


def test_others_get_the_events_of_both_processes(command: Command, layout: list[str]) -> None:
    ended = command("run", *layout, "--restart", "1", "-n", "3", sys.executable, "-c", EVENTS)
    assert ended.code == 0, ended
    assert ended.lines == ["ERR_PROC_ABORTED 1 None", "ERR_PROC_RESTART 1 1"]


def test_the_end_of_a_rank_is_reported_once(command: Command, layout: list[str]) -> None:
    ended = command("run", *layout, "--keep-going", "-n", "3", sys.executable, "-c", ONCE)
    assert ended.code == 3 and ended.lines == ["ERR_PROC_ABORTED 1", "ERR_PROC_ABORTED 2"], ended


def test_what_a_process_has_left_is_killed(command: Command, layout: list[str]) -> None:
    ended = command("run", *layout, "--restart", "1", "-n", "1", sys.executable, "-c", LEAVES)
    assert ended.lines[0] == "first" and ended.code == 0, ended
    # It may not have been collected yet.
    state = Path(f"/proc/{(command.folder / 'left').read_text()}/stat")
    assert not state.exists() or " Z " in state.read_text()


def test_an_abort_ends_the_job(command: Command, layout: list[str]) -> None:
    program = (
        "import pypmix\nwith pypmix.Client() as me:\n    me.fence()\n    if me.rank == 0: me.abort(5)\n    me.fence()"
    )
    ended = command("run", *layout, "--restart", "3", "-n", "2", sys.executable, "-c", program)
    assert ended.code == 5 and b"started again" not in ended.err, ended


def test_with_keep_going_the_others_outlive_the_last_life(command: Command, layout: list[str]) -> None:
    script = "test $PMIX_RANK = 0 && exit 4; sleep 0.3; echo kept"
    ended = command("run", *layout, "--keep-going", "--restart", "1", "-n", "2", "sh", "-c", script)
    assert ended.code == 4 and ended.lines == ["kept"], ended
    assert "exited with code 4, after 1 restart; the others went on" in ended.message


def test_spawned_jobs_have_restarts(command: Command, layout: list[str]) -> None:
    ended = command("run", *layout, "-n", "1", sys.executable, "-c", SPAWNS, FAILS)
    assert ended.code == 0 and "child ended with 0" in ended.lines, ended
    assert len([line for line in ended.lines if line.startswith("life")]) == 3


@pytest.mark.parametrize("layout", [["--nodes", "2"], ["--host", "localhost:4"]], ids=["simulated", "daemon"])
def test_jobs_of_a_session_have_restarts(command: Command, layout: list[str]) -> None:
    assert command("session", "start", "s", *layout).code == 0
    try:
        for _ in range(2):
            words = ["--restart", "1", "-n", "2", sys.executable, STEPS, "0@3"]
            ended = command("run", "--session", "s", *words)
            assert ended.code == 0 and len(ended.lines) == 2, ended
            assert ended.err.count(b"it is started again (1 of 1)") == 1
    finally:
        command("session", "stop", "s")


def test_servers_of_a_libpmix_refuse_it(command: Command) -> None:
    if not machine.libraries():
        machine.lacking("a libpmix")
    library = machine.libraries()[-1].path
    words = ["--server-engine", "native", "--server-libpmix", library]
    ended = command("run", *words, "--restart", "1", "true")
    assert ended.code == 2 and "python engine only" in ended.message
    spawn = command("run", *words, "-n", "1", sys.executable, "-c", SPAWNS, FAILS)
    assert spawn.code != 0 and b"ERR_NOT_SUPPORTED" in spawn.err
    assert os.path.exists(library)


@pytest.mark.parametrize(
    ("hosts", "lost", "lives", "homes"),
    [
        ("a:2,b:2,c:2", ["2"], [0, 0, 1, 1], "aacc"),
        ("a:2,b:2,c:2", ["0"], [1, 1, 0, 0], "ccbb"),
        ("a:4,b:4", ["1"], [1, 1, 1, 1], "bbbb"),
    ],
    ids=["another", "the first", "all"],
)
def test_ranks_of_a_lost_node_are_started_on_a_spare(
    command: Command, hosts: str, lost: list[str], lives: list[int], homes: str
) -> None:
    program = (sys.executable, "-c", LOSES, *lost)
    ended = command("run", "--host", hosts, *NODES, "--spares", "1", "-n", "4", *program)
    assert ended.code == 0, ended
    assert sorted(ended.lines) == [f"{rank} {lives} {homes[rank]}" for rank in range(4)]
    assert ended.err.count(f"it is started again on {hosts[-3]} (1 of 1)".encode()) == sum(lives)


def test_two_nodes_are_lost_at_once(command: Command) -> None:
    program = (sys.executable, "-c", LOSES, "0", "2")
    ended = command("run", "--host", "a:2,b:2,c:2,d:2", *NODES, "--spares", "2", "-n", "4", *program)
    assert ended.code == 0, ended
    # Which of them comes first is open.
    homes = "".join([line[-1] for line in sorted(ended.lines)])
    assert homes in ("ccdd", "ddcc") and all("[1, 1, 1, 1]" in line for line in ended.lines), ended


def test_without_a_free_node_its_loss_ends_the_job(command: Command) -> None:
    program = (sys.executable, "-c", LOSES, "2")
    ended = command("run", "--host", "a:2,b:2", *NODES, "-n", "4", *program)
    assert ended.code == 137 and "it is not started again: all nodes have ranks of its job" in ended.message, ended


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["--host", "a,b", "--spares", "1"], "say how often (`--restart N`)"),
        (["--host", "a,b", *NODES, "--spares", "2"], "of 2 nodes 2 are spares: none is left for ranks"),
        (["--spares", "1", "--restart", "1"], "spare nodes are nodes with daemons"),
        (["--nodes", "2", "--spares", "1", "--restart", "1"], "spare nodes are nodes with daemons"),
    ],
)
def test_spares_that_cannot_be_kept(command: Command, words: list[str], text: str) -> None:
    ended = command("run", *words, "true")
    assert ended.code == 2 and text in ended.message, ended


def test_the_example_outlives_a_node(command: Command) -> None:
    # The node is lost at any moment: while ranks start, or while they compute.
    words = ("--host", "n1:2,n2:2,n3:2", *NODES, "--spares", "1", "--lose", "n2@0.3s", "-n", "4")
    ended = command("run", *words, sys.executable, STEPS)
    assert ended.code == 0, ended
    assert [re.sub("[12] times", "", line) for line in sorted(ended.lines)] == [
        f"rank {rank}, started : the sum is 190" for rank in range(4)
    ]


def test_ctrl_c_while_a_new_process_has_not_connected(command: Command, layout: list[str]) -> None:
    launcher = command.start("run", *layout, "--restart", "2", "-n", "2", sys.executable, "-c", AWAITED)
    command.wait_for("up", 2)
    launcher.send_signal(signal.SIGINT)
    ended = command.end(launcher)
    assert ended.code == 130 and "ended by signal 2" in ended.err.decode(), ended
    assert ended.err.count(b"it is started again") == 1


@pytest.mark.parametrize("restarts", [1, 2, 9])
def test_ctrl_c_while_ranks_are_started_again(command: Command, layout: list[str], restarts: int) -> None:
    launcher = command.start("run", *layout, *ENDLESS)
    assert launcher.stderr is not None
    while restarts:
        restarts -= b"it is started again" in launcher.stderr.readline()
    launcher.send_signal(signal.SIGINT)
    ended = command.end(launcher)
    assert ended.code == 130 and "ended by signal 2" in ended.err.decode().splitlines()[-1], ended


def test_the_time_limit_ends_ranks_that_are_started_again(command: Command, layout: list[str]) -> None:
    ended = command("run", *layout, "--timeout", "1", *ENDLESS)
    assert ended.code == 124 and "did not end within 1 s" in ended.err.decode(), ended.err[-500:]


def test_ctrl_c_while_ranks_move_to_another_node(command: Command) -> None:
    words = ("--host", "a:1,b:1,c:1", *NODES, "--spares", "1", "-n", "2")
    launcher = command.start("run", *words, sys.executable, "-c", MOVES)
    busy = [int(text) for text in command.wait_for("up", 2)]
    daemons = [each.pid for each in processes.marked(command.mark) if each.command.endswith("-m pypmix node")]
    (spare,) = set(daemons) - set(busy)
    processes.stop(spare)
    try:
        (command.folder / "go").touch()
        command.wait_for("noticed")
        launcher.send_signal(signal.SIGINT)
        command.wait_for("interrupted")
    finally:
        os.kill(spare, signal.SIGCONT)
    ended = command.end(launcher)
    assert ended.code == 130 and "ended by signal 2" in ended.err.decode(), ended
    assert b"it is started again" not in ended.err
