"""Slurm on two nodes: what its plugin offers holds, and all else is refused before it does harm."""

from __future__ import annotations

import re
import signal
import sys

import pytest

from lib import machine, pairings
from lib.pairings import Part

pytestmark = [
    pytest.mark.servers(f"{pairings.SLURM}*-2-nodes"),
    # libpmix 5.0 reads the job info of a 4.2 server in part only, which is no matter of Slurm's.
    pytest.mark.clients("python-client", "native-4.2.2"),
]


@pytest.mark.parametrize("kind", ["plain", "timeout", "listed", "directive", "asked"])
def test_a_fence_without_data_waits_for_the_last(run, kind):
    assert run("slurm.last_comes_late", ranks=4, kind=kind) == [[True] * 2] * 4


def test_a_fence_of_some_procs(run):
    """Within a node it is one; beyond, where Slurm would never end it, it is refused."""
    within, beyond = "passed", "Slurm"
    assert run("slurm.some", ranks=4) == [(within, beyond), (within, None), (None, None), (None, beyond)]


def test_what_is_not_offered_is_refused_at_once_and_harms_nothing(run):
    for said, longest in run("slurm.refused", ranks=3):
        assert {name: text for name, text in said.items() if text != "Slurm"} == {}
        assert longest < 5


def test_what_can_be_answered_is(run):
    for rank, (found, missing, resolved, source) in enumerate(run("slurm.answered", ranks=3)):
        assert found == {"pmix.job.size": 3}
        assert missing == ["acme.what", "pmix.qry.ns"]
        assert resolved == [[0, 1], [2]]
        assert source == rank


def test_what_is_supported(run):
    offered = "put commit fence fence.collect fence.timeout get get.timeout get.immediate resolve_peers resolve_nodes"
    own = "events abort finalize compute_distances"
    assert run("slurm.supported", ranks=1) == [[*offered.split(), *own.split()]]


def test_direct_modex(run):
    assert run("slurm.direct_modex", ranks=4) == [[True] * 4] * 4


def test_a_get_of_what_never_comes(run):
    for text, seconds in run("slurm.unfinished", ranks=2):
        assert text == "OperationTimeout"
        assert seconds > 0.8


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV], ids=lambda number: number.name)
def test_a_rank_that_dies_ends_the_step(run, number):
    """With `--kill-on-bad-exit`, which not every site has by default."""
    job = run.job("ending.killed", ranks=3, number=int(number))
    assert not job.hung and job.exit_code != 0, job.report()


EXAMPLES = {
    "bootstrap": r"rank {rank} gathers no group",
    "connect": r"no server that starts jobs",
    "control": r"no server that steers processes",
    "events": r"rank {rank}: this server passes no events on",
    "failover": r"rank {rank} has no group to lead",
    "group": r"rank [02] has no group: .*Slurm's PMIx plugin constructs no groups",
    "handlers": r"rank {rank} acts, logged: True",
    "hello": r"hello from {rank} of 3 on sn\d  \[\w+ \S+\]",
    "invite": r"rank {rank} has no proc to invite",
    "psets": r"this server does not tell of process sets",
    "publish": r"no server that keeps what is published",
    "putget": r"rank {rank} of 3 knows \{{0: 'tcp://\S+:5000', 1: 'tcp://\S+:5001', 2: 'tcp://\S+:5002'\}}",
    "putget_async": r"rank {rank} of 3 knows \['tcp://\S+:5000', 'tcp://\S+:5001', 'tcp://\S+:5002'\]",
    "query": r"rank {rank}: 3 procs, \d of them here",
    "spawn": r"rank {rank} goes on",
    "values": r"rank {rank} knows 0123, 3 ranks, part {rank}",
    "waiting": r"port: 5000",
}


@pytest.mark.forms("sync")
@pytest.mark.clients("python-client")
@pytest.mark.parametrize("name", sorted(path.stem for path in (machine.ROOT / "docs" / "examples").glob("*.py")))
def test_examples_do_what_can_be_done_and_say_what_cannot(run, name):
    command = [sys.executable, str(machine.ROOT / "docs" / "examples" / f"{name}.py")]
    line = pairings.command_line(run.server, [Part(3, command)])
    job = run.begin(line, environment=pairings.client_environment(run.client)).wait()
    assert job.exit_code == 0, job.report()
    for rank in range(3):
        assert re.search(EXAMPLES[name].format(rank=rank), job.stdout), job.report()


@pytest.mark.forms("sync")
def test_doctor_says_what_is_lacking(run):
    command = [sys.executable, "-m", "pypmix", "doctor"]
    job = run.begin(pairings.command_line(run.server, [Part(1, command)])).wait()
    assert job.exit_code == 0, job.report()
    assert "Slurm's PMIx plugin constructs no groups" in job.stdout, job.report()
    assert "Slurm's PMIx plugin ends the whole job step on any event" in job.stdout
