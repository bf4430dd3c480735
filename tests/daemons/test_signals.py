"""Signals to the daemons of nodes: to one alone, and to all processes of a node, as a resource manager sends them."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lib import processes

from .conftest import Session

Start = Callable[..., Session]

NODE = "TEST_NODE"
SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU, signal.SIGIO, signal.SIGRTMIN + 3)

RANK = """
import os, signal, sys, time
def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\\n").encode())
rank = os.environ["PMIX_RANK"]
def take(number, _):
    say("got", rank, int(number))
    if number == signal.SIGTERM:
        time.sleep(float(sys.argv[1]))
        say("saved", rank)
        os._exit(0)
for number in (*map(int, sys.argv[2].split(",")), signal.SIGTERM):
    signal.signal(number, take)
say("up", rank)
while not os.path.exists(f"{sys.argv[3]}/end"):
    time.sleep(0.02)
"""


def ranks(folder: Path, saving: float = 0.0) -> list[object]:
    """Return four ranks that tell of the signals they get, and need so many seconds to save on SIGTERM."""
    numbers = ",".join([str(int(number)) for number in SIGNALS])
    return [4, sys.executable, "-c", RANK, str(saving), numbers, str(folder)]


def started(session: Start, folder: Path, saving: float = 0.0, **given: object) -> Session:
    run = session(ranks(folder, saving), **given)
    run.until(lambda: len([line for line in run.out if line.startswith("up")]) == 4, "all ranks")
    return run


def got(run: Session, rank: int) -> Counter[int]:
    return Counter([int(line.split()[2]) for line in run.out if line.startswith(f"got {rank} ")])


def to_node(run: Session, node: str, signum: int) -> None:
    """Send a signal to all processes of a node."""
    guards = [each.pid for each in processes.guards(run.folder / node)]
    ours = {each.pid for each in processes.marked(run.mark)} & {each.pid for each in processes.marked(node, NODE)}
    assert guards
    processes.send_signal((*guards, *ours), signum)


def test_what_a_daemon_alone_is_sent_reaches_the_ranks_of_its_node(session: Start, tmp_path: Path) -> None:
    run = started(session, tmp_path)
    for signum in SIGNALS:
        os.kill(run.pid("n1"), signum)
        run.until(lambda signum=signum: all(got(run, rank)[signum] for rank in (2, 3)), f"signal {signum}")
    (tmp_path / "end").touch()
    assert run.end() == 0, run.told()
    assert [got(run, rank) for rank in range(4)] == [Counter()] * 2 + [Counter(SIGNALS)] * 2


def test_what_all_processes_are_sent_reaches_each_rank_once(session: Start, tmp_path: Path) -> None:
    run = started(session, tmp_path)
    for signum in SIGNALS:
        for node in ("n0", "n1"):
            to_node(run, node, signum)
        run.until(lambda signum=signum: all(got(run, rank)[signum] for rank in range(4)), f"signal {signum}")
    (tmp_path / "end").touch()
    assert run.end() == 0, run.told()
    assert [got(run, rank) for rank in range(4)] == [Counter(SIGNALS)] * 4
    assert "ranks run" not in run.err


def test_who_sends_sigterm_to_all_processes_of_nodes_kills_them_himself(session: Start, tmp_path: Path) -> None:
    """Ranks have more time than the grace, and are sent SIGTERM once."""
    run = started(session, tmp_path, saving=2.0, grace=0.2)
    for node in ("n0", "n1"):
        to_node(run, node, signal.SIGTERM)
    assert run.end() == 0, run.told()
    assert sorted(line for line in run.out if line.startswith("saved")) == [f"saved {rank}" for rank in range(4)]
    assert [got(run, rank) for rank in range(4)] == [Counter([signal.SIGTERM])] * 4


def test_a_rank_that_such_a_sigterm_ends_does_not_end_those_of_other_nodes(session: Start, tmp_path: Path) -> None:
    """The second node is sent it later than the first, and the launcher with the first."""
    apps = [2, "sh", "-c", "echo up; sleep 60"], [*ranks(tmp_path, 1.5)]
    apps[1][0] = 2
    run = session(*apps, grace=0.2)
    run.until(lambda: len([line for line in run.out if line.startswith("up")]) == 4, "all ranks")
    to_node(run, "n0", signal.SIGTERM)
    to_node(run, "n1", signal.SIGTERM)
    assert run.end() == 143, run.told()
    assert sorted(line for line in run.out if line.startswith("saved")) == ["saved 2", "saved 3"]
    assert [got(run, rank) for rank in (2, 3)] == [Counter([signal.SIGTERM])] * 2


def test_nodes_that_are_not_ended_with_another_one_are_ended_after_it(session: Start, tmp_path: Path) -> None:
    apps = [2, "sh", "-c", "echo up; sleep 60"], [*ranks(tmp_path)]
    apps[1][0] = 2
    run = session(*apps)
    run.until(lambda: len([line for line in run.out if line.startswith("up")]) == 4, "all ranks")
    to_node(run, "n0", signal.SIGTERM)
    assert run.end() == 143, run.told()
    assert [got(run, rank) for rank in (2, 3)] == [Counter([signal.SIGTERM])] * 2


def test_ranks_of_a_daemon_that_alone_is_sent_sigterm_have_the_whole_grace(session: Start, tmp_path: Path) -> None:
    run = started(session, tmp_path, saving=4.0, grace=20.0, terms={"keep_going": True})
    os.kill(run.pid("n1"), signal.SIGTERM)
    run.until(lambda: len([line for line in run.out if line.startswith("saved")]) == 2, "those that save")
    (tmp_path / "end").touch()
    run.end()
    assert "n1" in run.outcome, run.told()
    assert [got(run, rank) for rank in range(4)] == [Counter()] * 2 + [Counter([signal.SIGTERM])] * 2
