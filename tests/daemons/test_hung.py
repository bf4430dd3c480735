"""A daemon that hangs in a system call, as one does whose file system has died, while its server's thread goes on."""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lib.daemon_session import RANKS, Session, ranks

pytestmark = pytest.mark.timeout(170)

Start = Callable[..., Session]

HUNG = """
import os, sys, threading, time
import pypmix.host.daemon as d
at, folder = int(sys.argv[1]), sys.argv[2]
post, run, count = d.Inbox.post, d.Daemon.run, 0
def hang():
    open(os.path.join(folder, "hung"), "w").close()
    open(os.path.join(folder, "fifo")).read()
def counted(self, call):
    def carry_out():
        global count
        count += 1
        if count == at:
            hang()
        call()
    post(self, carry_out)
def on_demand(self):
    def look():
        if os.path.exists(os.path.join(folder, "hang")):
            hang()
        else:
            self.loop.later(0.02, look)
    look()
    run(self)
d.Inbox.post, d.Daemon.run = counted, on_demand
d.main()
"""
"""A daemon whose main thread hangs as it begins to carry out the given order of its launcher, or on demand."""

AGENT = ["sh", "-c", '"$@"; exit $?', "agent"]
"""A launch agent, which the launcher can kill: the daemon stays, as it does beyond ssh."""


@pytest.fixture
def hung(session: Start, tmp_path: Path) -> Iterator[Callable[..., Session]]:
    """Return a function that starts a session whose node n1 hangs; at the end the hang is over, and n1 leaves."""
    os.mkfifo(tmp_path / "fifo")
    started: list[Session] = []

    def start(*apps: list[object], at: int = 0, **given: object) -> Session:
        command = [*AGENT, sys.executable, "-c", HUNG, str(at), str(tmp_path)]
        started.append(session(*apps, python={"n1": command}, **given))
        return started[-1]

    yield start
    for each in started:
        assert (tmp_path / "hung").exists(), each.told()
        # Both ends: whoever waits to open it goes on.
        os.close(os.open(tmp_path / "fifo", os.O_RDWR))
        each.gone(20.0)


def end(run: Session) -> int:
    """Wait for the end of the launcher, though not for that of a daemon that hangs."""
    return run.process.wait(60.0)


@pytest.mark.parametrize("at", [1, 2, 3, 4, 5, 6, 7])
def test_a_daemon_that_hangs_at_any_order_is_lost(hung: Start, at: int) -> None:
    """While the job is described, started, and runs."""
    run = hung([2, "sleep", "120"], nodes={"n0": 1, "n1": 1}, at=at, keep_alive=3.0, timeout=600.0)
    assert end(run) in (1, 137), run.told()
    assert "n1" in run.outcome and "its daemon has not answered for 3 s" in run.outcome, run.told()
    assert run.err.count("has not answered for") == 1, run.told()


def test_what_a_daemon_that_hangs_has_with_the_others_ends(hung: Start, tmp_path: Path) -> None:
    """Its own server goes on to answer them: they have to lose it all the same, and go on."""
    nodes = {"n0": 2, "n1": 2, "n2": 2}
    run = hung([6, sys.executable, RANKS, "survive"], nodes=nodes, keep_alive=3.0, terms={"keep_going": True})
    run.until(lambda: sum(line.startswith("up") for line in run.out) == 6, "all ranks")
    (tmp_path / "hang").touch()
    assert end(run) == 137, run.told()
    told = [line.split(maxsplit=2)[2] for line in run.out if line.startswith("fence")]
    assert told == ["-52 [2, 3]"] * 4, run.told()


@pytest.mark.parametrize("at", [1, 2, 0])
@pytest.mark.parametrize("way", ["limit", "interrupts", "termination"])
def test_the_end_of_a_job_depends_on_nobodys_answer(hung: Start, tmp_path: Path, way: str, at: int) -> None:
    """Of a job that is being started, and of one that runs; what has not answered is named."""
    nodes = {"n0": 1, "n1": 1}
    # Long enough for the hang to come before it.
    limit = 600.0 if way != "limit" else 10.0
    run = hung([2, "sh", "-c", "echo up; sleep 120"], nodes=nodes, at=at, keep_alive=600.0, timeout=limit, grace=0.2)
    if at:
        run.until((tmp_path / "hung").exists, "the hang")
    else:
        run.until(lambda: run.out.count("up") == 2 or run.process.poll() is not None, "all ranks")
        (tmp_path / "hang").touch()
        run.until((tmp_path / "hung").exists, "the hang")
    if way == "termination":
        run.process.send_signal(signal.SIGTERM)
    elif way == "interrupts":
        run.process.send_signal(signal.SIGINT)
        run.process.send_signal(signal.SIGINT)
    assert end(run) == {"limit": 124, "interrupts": 130, "termination": 143}[way], run.told()
    if way == "limit":
        assert "node n1: its daemon has not answered for" in run.err, run.told()


APART = """
import sys
import pypmix.host.daemon as d
from pypmix.host.exchange.tcp import Dialer
meet, port = Dialer.meet, int(sys.argv[1])
def elsewhere(self, name, places, delay):
    meet(self, name, places if name == "!launcher" else (("127.0.0.1", port),), delay)
Dialer.meet = elsewhere
d.main()
"""
"""A daemon that reaches its launcher, and no other daemon: those neither answer nor refuse it."""


def test_nodes_that_do_not_reach_each_other_work_through_the_launcher(session: Start, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [sys.executable, "-c", APART, str(silent.getsockname()[1])]
        run = session(ranks(2, "work"), nodes={"n0": 1, "n1": 1}, python={"n0": command, "n1": command})
        assert run.end() == 0, run.told()
        assert len([line for line in run.out if line.startswith("worked")]) == 2, run.told()


def test_nodes_that_do_not_reach_each_other_are_named(session: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        command = [sys.executable, "-c", APART, str(port)]
        # The daemon that comes later dials the one that was there before: either may.
        run = session(
            [2, "sleep", "120"],
            nodes={"n0": 1, "n1": 1},
            python={"n0": command, "n1": command},
            patience=3.0,
            keep_alive=6.0,
            timeout=60.0,
        )
        pair = [f"n{one} has not reached n{1 - one} at 127.0.0.1 port {port}" for one in (0, 1)]
        run.until(lambda: any(text in run.err for text in pair) or run.process.poll() is not None, "the warning")
        assert any(text in run.err for text in pair) and "--interface" in run.err, run.told()


def test_a_time_limit_names_nodes_that_do_not_reach_each_other(session: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        command = [sys.executable, "-c", APART, str(silent.getsockname()[1])]
        run = session(
            [2, "sleep", "120"],
            nodes={"n0": 1, "n1": 1},
            python={"n0": command, "n1": command},
            timeout=6.0,
            keep_alive=6.0,
        )
        assert run.end() == 124, run.told()
        assert "has not reached n" in run.err and "`--interface`" in run.err, run.told()
