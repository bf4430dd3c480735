"""A lost node is reported once, by the launcher, whatever the number of nodes."""

from __future__ import annotations

import os
import signal

from lib.daemon_session import Start, shell

NODES = ("n0", "n1", "n2", "n3")


def test_a_node_whose_loss_ends_the_job_is_one_line(session: Start) -> None:
    run = session(shell(4, "echo up; sleep 60"), nodes=dict.fromkeys(NODES, 1))
    run.until(lambda: run.out.count("up") == 4, "all ranks")
    os.kill(run.pid("n3"), signal.SIGKILL)
    assert run.end() == 137, run.told()
    assert run.err.splitlines() == [run.outcome]
    assert "was lost with node n3" in run.outcome


def test_a_node_without_ranks_is_one_line(session: Start) -> None:
    run = session(
        shell(3, "echo up; while test ! -e stop; do sleep 0.1; done"), nodes={**dict.fromkeys(NODES[:3], 1), "n3": 0}
    )
    run.until(lambda: run.out.count("up") == 3, "all ranks")
    os.kill(run.pid("n3"), signal.SIGKILL)
    run.until(lambda: "n3" in run.err, "word of the loss")
    (run.folder / "stop").touch()
    assert run.end() == 0, run.told()
    line, outcome = run.err.splitlines()
    assert line.startswith("pypmix run: node n3 is lost: ")
    assert outcome == run.outcome
