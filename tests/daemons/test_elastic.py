"""Nodes that join a running session, and nodes that leave it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from lib import processes
from lib.daemon_session import SECONDS, Session, ranks, shell

pytestmark = pytest.mark.timeout(170)

Start = Callable[..., Session]


def pypmix(run: Session, *words: str, code: int = 0, folder: str = "") -> str:
    """Run a command of the command line as somebody on a node, and return its output; with a code of 1, its error."""
    env = {**os.environ, "TMPDIR": str(run.folder / folder) if folder else os.environ.get("TMPDIR", "/tmp")}
    where = [] if folder else ["--pid", str(run.process.pid)]
    env[processes.MARK] = run.mark
    done = subprocess.run(
        [sys.executable, "-m", "pypmix", *words, *where], env=env, capture_output=True, text=True, timeout=SECONDS
    )
    assert done.returncode == code, f"{done.stdout}\n{done.stderr}\n{run.told()}"
    return done.stderr if code else done.stdout


def jobs(run: Session, folder: str = "") -> dict[tuple[str, int], str]:
    """Return the nodes of all ranks, as `pypmix ps` says them, by the number of their job and their rank."""
    told = json.loads(pypmix(run, "ps", "--json", folder=folder))
    return {
        (job["nspace"].rpartition("@")[2], proc["rank"]): proc["node"]
        for server in told["servers"]
        for job in server["jobs"]
        for proc in job["procs"]
    }


def test_nodes_join_and_leave_a_job_that_asks_for_them(session: Start) -> None:
    """Ranks are spawned there and join a group with those that were there before."""
    run = session(ranks(2, "elastic"), nodes={"n0": 1, "n1": 1}, elastic=True)
    assert run.end() == 0, run.told()
    told = sorted(run.out)
    assert "granted n2" in told and "released n2" in told and "target n3" in told, run.told()
    assert [line for line in told if line.startswith("grown")] == ["grown n2 n2", "grown n2 n2"], run.told()
    assert told.count("group of 4 with 4") == 4 and told.count("worked on n2") == 2, run.told()
    assert told.count("early is [0]") == 2, run.told()
    assert "refused busy n2" in told and told.count("offline n2") == 2, run.told()
    assert "spawned on n3" in told and "back on n2" in told, run.told()


def test_pypmix_grow_and_shrink(session: Start) -> None:
    program = shell(2, "echo up; while test ! -e stop; do sleep 0.1; done")
    run = session(program, nodes={"n0": 1, "n1": 1}, elastic=True, timeout=600.0)
    run.until(lambda: run.out.count("up") == 2, "all ranks")
    assert pypmix(run, "grow", "n2:2", "n3") == "n2\nn3\n"
    assert "n2 is in the session already" in pypmix(run, "grow", "n2", code=1)
    assert "none of the nodes that there are: n0, n1, n2, n3" in pypmix(run, "shrink", "n9", code=1)
    assert "ranks run on n1 (1)" in pypmix(run, "shrink", "n1", code=1)
    # Any node of the session will do to ask from.
    assert pypmix(run, "shrink", "n3", folder="n2") == "n3\n"
    assert pypmix(run, "shrink", "--nodes", "1") == "n2\n"
    assert processes.read(run.pid("n2")) is None and processes.read(run.pid("n3")) is None
    assert pypmix(run, "grow", "n3") == "n3\n"
    # A node on its way out answers for itself, too.
    assert pypmix(run, "shrink", "n3", folder="n3") == "n3\n"
    assert pypmix(run, "grow", "n2,n3") == "n2\nn3\n"
    assert pypmix(run, "shrink", "n3,n2", folder="n3") == "n3\nn2\n"
    run.until(lambda: all(processes.read(run.pid(name)) is None for name in ("n2", "n3")), "the end of the daemons")
    assert "none of the nodes that there are: n0, n1" in pypmix(run, "shrink", "n3", code=1)
    (run.folder / "stop").touch()
    assert run.end() == 0, run.told()


@pytest.mark.parametrize("folder", ["", "n0", "n1"])
def test_the_whole_session_is_seen_from_any_node(session: Start, folder: str) -> None:
    """Its jobs and their ranks with node and pid, what is pending, answers to queries, and events."""
    run = session(ranks(3, "wait"), nodes={"n0": 1, "n1": 2})
    run.until(lambda: len(run.out) == 3, "all ranks")
    pids = {int(line.split()[1]): int(line.split()[2]) for line in run.out}
    server: dict[str, Any] = {}

    def pends() -> bool:
        # The first rank may have said who it is, and not have come to the fence.
        told = json.loads(pypmix(run, "top", "--json", folder=folder))
        (found,) = told["servers"]
        server.update(found)
        return any(len(item["missing"]) == 2 for item in server["pending"])

    run.until(pends, "what is pending")
    (job,) = server["jobs"]
    procs = {proc["rank"]: (proc["pid"], proc["node"]) for proc in job["procs"]}
    assert procs == {0: (pids[0], "n0"), 1: (pids[1], "n1"), 2: (pids[2], "n1")}
    (item,) = [item for item in server["pending"] if item["operation"] == "fence"]
    assert [proc["pid"] for proc in item["missing"]] == [pids[1], pids[2]]
    text = pypmix(run, "top", "--once", folder=folder)
    assert "fence 1 of 3 procs — waiting for" in text and f"(pid {pids[2]} on n1," in text, text
    assert jobs(run, folder) == {("1", 0): "n0", ("1", 1): "n1", ("1", 2): "n1"}
    # Each of the three ranks has a slot.
    assert pypmix(run, "query", "QUERY_AVAILABLE_SLOTS", folder=folder) == "0\n"
    run.process.send_signal(signal.SIGTERM)
    assert run.end() == 143, run.told()


def test_a_node_that_is_taken_by_force_ends_its_ranks(session: Start) -> None:
    """The others go on, where they are to, and their fence ends without those."""
    run = session(ranks(4, "taken"), nodes={"n0": 2, "n1": 2}, elastic=True, terms={"keep_going": True})
    run.until(lambda: sum(line.startswith("up") for line in run.out) == 4, "all ranks")
    assert pypmix(run, "shrink", "n1", "--force") == "n1\n"
    assert run.end() == 143, run.told()
    assert run.out.count("fence without [2, 3]") == 2 and run.out.count("offline n1") == 2, run.told()
    assert "n1 was taken out of the session" in run.outcome


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["false"], ["node n2", "without a word"]),
        (["/nonexistent/python"], ["node n2", "cannot be started"]),
        (["sleep", "60"], ["n2 did not join within 5 s"]),
    ],
)
def test_a_node_that_cannot_join_is_told_and_changes_nothing(
    session: Start, command: list[str], words: list[str]
) -> None:
    """Of the nodes of one request, all join or none."""
    given = {"python": {"n2": command}, "patience": 5.0 if command[0] == "sleep" else 60.0}
    run = session(shell(2, "echo up; while test ! -e stop; do sleep 0.1; done"), elastic=True, **given)
    run.until(lambda: run.out.count("up") == 2, "all ranks")
    text = pypmix(run, "grow", "n3,n2", code=1)
    assert all(word in text for word in words), text
    assert pypmix(run, "grow", "n4") == "n4\n"
    assert "n0, n1, n4" in pypmix(run, "shrink", "n3", code=1)
    (run.folder / "stop").touch()
    assert run.end() == 0, run.told()


def test_requests_wait_until_the_first_nodes_are_there(session: Start) -> None:
    """A node whose ranks are being started is busy, too; by force they are ended as soon as they run."""
    run = session(ranks(4, "taken"), nodes={"n0": 2, "n1": 2}, elastic=True, terms={"keep_going": True})
    assert pypmix(run, "grow", "n2", "--wait-for-server", "60") == "n2\n"
    assert "ranks run on n1 (2)" in pypmix(run, "shrink", "n1", code=1)
    assert pypmix(run, "shrink", "n1", "--force") == "n1\n"
    assert run.end() == 143, run.told()


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_run_is_ended_while_its_nodes_come(session: Start, signum: int) -> None:
    run = session(shell(2, "echo up"), nodes={"n0": 1, "n1": 1}, python={"n1": ["sleep", "60"]})
    run.until((run.folder / "n1.pid").exists, "the nodes")
    run.process.send_signal(signum)
    assert run.end() == 128 + signum, run.told()
    assert run.outcome.startswith(f"OUTCOME {128 + signum} ended by ") and not run.out, run.told()


def test_a_session_whose_nodes_are_fixed_says_so(session: Start) -> None:
    run = session(shell(2, "echo up; while test ! -e stop; do sleep 0.1; done"))
    run.until(lambda: run.out.count("up") == 2, "all ranks")
    assert "its roster adds none" in pypmix(run, "grow", "n2", code=1)
    (run.folder / "stop").touch()
    assert run.end() == 0, run.told()


def test_the_roster_joins_and_takes_nodes_and_one_is_lost(session: Start) -> None:
    """All of the session hears of it, tools too."""
    text = "echo up; while test ! -e stop; do sleep 0.1; done"
    run = session(shell(1, text), nodes={"n0": 1}, words=True)
    run.until(lambda: run.out.count("up") == 1, "the rank")
    command = [sys.executable, "-m", "pypmix", "events", "--json", "--pid", str(run.process.pid)]
    env = {**os.environ, processes.MARK: run.mark}
    told = run.folder / "events"
    with told.open("wb") as out, (run.folder / "listening").open("wb") as err:
        watching = subprocess.Popen(
            [*command, "--code", "DVM_IS_READY", "--code", "EVENT_NODE_*"], env=env, stdout=out, stderr=err
        )
    run.until(lambda: "listening" in (run.folder / "listening").read_text(), "the events")

    def heard(number: int) -> list[list[str]]:
        run.until(lambda: told.read_text().count("\n") >= number, f"{number} events")
        return [
            [line["name"], *map(str, line["info"].values())] for line in map(json.loads, told.read_text().splitlines())
        ]

    run.say(["join", "n1"])
    assert heard(1)[0][:2] == ["DVM_IS_READY", "n1"]
    run.say(["join", "n2"])
    assert heard(2)[1][:2] == ["DVM_IS_READY", "n2"]
    run.say(["join", "n2"])
    run.until(lambda: "n2 is in the session already" in run.err, "the refusal")
    run.say(["leave", "n1"])
    assert [each[:2] for each in heard(4)[2:]] == [["EVENT_NODE_OFFLINE", "n1"], ["DVM_IS_READY", "n1"]]
    assert processes.read(run.pid("n2")) is not None
    os.kill(run.pid("n2"), signal.SIGKILL)
    assert heard(5)[4][:2] == ["EVENT_NODE_DOWN", "n2"]
    run.say(["join", "n2"])
    assert heard(6)[5][:2] == ["DVM_IS_READY", "n2"]
    (run.folder / "stop").touch()
    assert watching.wait(SECONDS) == 0
    assert run.end() == 0, run.told()
