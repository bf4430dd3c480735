"""The programs that the documentation shows run as they stand there, on every pairing."""

from __future__ import annotations

import re
import sys

import pytest

from lib import machine, pairings
from lib.pairings import Part

EXAMPLES = machine.ROOT / "docs" / "examples"

EXPECTED = {
    "group": r"rank {rank} (is \d of 2 in acme\.evens, number 0x|goes on by itself|has no group)",
    "events": r"rank {rank}: CUSTOM_N4242 from rank 0, load 0\.75",
    "handlers": r"rank {rank} acts, logged: True",
    "hello": r"hello from {rank} of 3 on \S+  \[\w+ \S+\]",
    "putget": r"rank {rank} of 3 knows \{{0: 'tcp://\S+:5000', 1: 'tcp://\S+:5001', 2: 'tcp://\S+:5002'\}}",
    "putget_async": r"rank {rank} of 3 knows \['tcp://\S+:5000', 'tcp://\S+:5001', 'tcp://\S+:5002'\]",
    "connect": r"rank {rank} knows second 0, second 1, and is number ({rank}|None)",
    "bootstrap": r"rank {rank} (is \d of 3 in acme\.pool|gathers no group|has no pool)",
    "control": r"rank {rank} is done",
    "invite": r"rank {rank} (is \d of 2 in acme\.team|goes on by itself|has no team)",
    "publish": r"acme\.port is tcp://10\.0\.0\.1:7777 by rank 0",
    "spawn": r"rank {rank} goes on",
    "psets": r"rank {rank} goes on by itself",
    "query": r"rank {rank}: 3 procs, 3 of them here",
    "values": r"rank {rank} knows 0123, 3 ranks, part {rank}",
    "waiting": r"port: 5000",
    "places": r"rank {rank} is (bound to CPUs|not bound)",
    "endpoints": r"{rank} \{{0: 'tcp://\S+:5000', 1: 'tcp://\S+:5001', 2: 'tcp://\S+:5002'\}}",
}

ENDING = {
    "failover": (
        r"rank 0 leads in term 1",
        r"rank 1 follows rank 0 in term 1",
        r"rank 1 leads in term 2",
        r"rank 2 follows rank 1 in term 2",
    ),
    "survivors": tuple(rf"rank {rank} knows \{{0: 0, 2: 20(, 3: 30)?\}}, part {rank}, continue\n" for rank in (0, 2)),
}
"""What programs print of whose ranks one ends."""


def test_every_example_is_tested():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == EXPECTED.keys() | ENDING.keys()


@pytest.mark.forms("sync")
@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_example(run, name):
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    line = pairings.command_line(run.server, [Part(3, command)])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    assert job.exit_code == 0, job.report()
    for rank in range(3):
        assert re.search(EXPECTED[name].format(rank=rank), job.stdout), job.report()


@pytest.mark.forms("sync")
def test_the_example_of_waiting_with_two_ranks(run):
    """All of the job is named by a fence of its first and its last rank."""
    line = pairings.command_line(run.server, [Part(2, [sys.executable, str(EXAMPLES / "waiting.py")])])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    assert job.exit_code == 0, job.report()
    assert job.stdout.count("port: 5000") == 2


@pytest.mark.forms("sync")
@pytest.mark.servers("python-server")
@pytest.mark.parametrize("name", sorted(ENDING))
def test_example_that_a_rank_ends(run, name):
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    line = pairings.command_line(run.server, [Part(3, command)], ["--keep-going"])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    for text in ENDING[name]:
        assert re.search(text, job.stdout), job.report()


@pytest.mark.forms("sync")
@pytest.mark.servers("python-server")
@pytest.mark.parametrize("nodes", [1, 3])
def test_the_survivors_of_four_ranks_exchange_values(run, nodes):
    command = [sys.executable, str(EXAMPLES / "survivors.py")]
    line = pairings.command_line(run.server, [Part(4, command)], ["--keep-going", "--nodes", str(nodes)])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    found = sorted(job.stdout.splitlines())
    assert found == [f"rank {rank} knows {{0: 0, 2: 20, 3: 30}}, part {rank}, continue" for rank in (0, 2, 3)], (
        job.report()
    )


@pytest.mark.forms("sync")
@pytest.mark.parametrize("name", sorted(EXPECTED.keys() | ENDING.keys()))
def test_example_without_a_launcher(alone, name):
    """A lone process is a job of one; the same file runs."""
    command = [sys.executable, str(EXAMPLES / f"{name}.py")]
    job = alone.begin(command, environment=pairings.client_environment(alone.client)).wait()
    assert job.exit_code == 0, job.report()
    assert job.stdout
