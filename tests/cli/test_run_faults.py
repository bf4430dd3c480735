"""Faults on demand: `pypmix run --kill 3@2s --stop 1@1s:0.5s --lose node1@3s`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lib.command import ROOT, Command
from pypmix.host.trying import Fault, arrange, check

SURVIVE = ROOT / "docs" / "examples" / "testing" / "survive.py"


def test_a_killed_rank_is_missed_by_the_others(command: Command) -> None:
    ended = command("run", "-n", 3, "--keep-going", "--kill", "1@0.5s", sys.executable, SURVIVE)
    assert sorted(ended.lines) == ["rank 0 goes on without [1]", "rank 2 goes on without [1]"]
    assert ended.code == 128 + signal.SIGKILL
    assert ended.message.endswith("was killed by signal 9 (SIGKILL), as --kill 1@0.5s had asked; the others went on")


def test_a_lost_node_takes_its_ranks(command: Command) -> None:
    code = "import time; time.sleep(60)"
    ended = command("run", "-n", 4, "--nodes", 2, "--lose", "node1@0s", sys.executable, "-c", code)
    assert ended.code == 128 + signal.SIGKILL
    assert "as --lose node1@0s had asked" in ended.message and ended.message.startswith("pypmix run: rank ")


def test_a_stopped_rank_is_named(command: Command) -> None:
    code = "import pypmix\nwith pypmix.Client() as me: me.fence()"
    ended = command("run", "-n", 2, "--stop", "1@0s", "--timeout", 15, sys.executable, "-c", code)
    assert ended.code == 124 and "missing: rank 1 (pid " in ended.message, ended


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--kill", "4@1s"), "--kill 4@1s: the ranks are 0 to 0"),
        (("--kill", "x@1s"), "--kill takes faults such as 3@2s, not 'x@1s'"),
        (("--kill", "1@1s:2s"), "--kill takes faults such as 3@2s, not '1@1s:2s'"),
        (("--stop", "1"), "--stop takes faults such as 1@1s:0.5s, not '1'"),
        (("--lose", "n9@1s", "--nodes", 2), "--lose n9@1s: there is no node n9; the nodes are node0, node1"),
    ],
)
def test_what_cannot_happen_is_refused(command: Command, words: tuple[object, ...], text: str) -> None:
    ended = command("run", *words, "true")
    assert ended.code == 2 and ended.message.splitlines()[0] == f"pypmix run: {text}"


def test_a_fault_is_read() -> None:
    assert Fault.read("stop", "1@1s:0.5s") == Fault("stop", "1", 1.0, 0.5)
    assert Fault.read("lose", "a@b@3") == Fault("lose", "a@b", 3.0)
    assert str(Fault.read("stop", "12@.5:1s")) == "--stop 12@0.5s:1s"
    check([Fault("kill", "1", 0.0), Fault("lose", "n", 0.0)], 2, ["n"])


def test_a_rank_that_was_stopped_goes_on() -> None:
    due: list[tuple[float, Callable[[], None]]] = []
    sent: list[tuple[int, list[int]]] = []
    host: Any = SimpleNamespace(loop=SimpleNamespace(later=lambda delay, call: due.append((delay, call))))
    job: Any = SimpleNamespace(rank=lambda number: number, send=lambda signum, ranks: sent.append((signum, ranks)))
    arrange(host, job, [Fault("stop", "1", 2.0, 0.5)])
    (first,) = due
    first[1]()
    assert first[0] == 2.0 and sent == [(signal.SIGSTOP, [1])]
    assert due[1][0] == 0.5
    due[1][1]()
    assert sent[1:] == [(signal.SIGCONT, [1])]
