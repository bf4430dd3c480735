"""The tutorial's resource manager does what the tutorial says, on the server of every engine and libpmix."""

from __future__ import annotations

import re
import sys

import pytest

from lib import machine, pairings
from lib.running import Jobs

HOSTS = machine.ROOT / "docs" / "examples" / "hosts"
MANAGER = HOSTS / "own_rm.py"

ABORTS = """
import time, pypmix
with pypmix.Client() as me:
    me.fence(timeout=20)
    if me.rank == {rank}:
        me.abort(17, "enough")
    time.sleep(60)
"""


@pytest.fixture(params=pairings.clients())
def manage(request, job_folder):
    """Run a command under the resource manager on a server of an engine; its ranks are clients of the same one."""
    pairings.require_client(request.param)
    jobs = Jobs(job_folder, request.param == pairings.ROOT_CLIENT)

    def run(ranks, *command, **options):
        line = [sys.executable, str(MANAGER), str(ranks), *command]
        return jobs.begin(line, environment=pairings.client_environment(request.param), **options).wait()

    yield run
    jobs.end()


def test_it_has_100_lines_at_most():
    assert len(MANAGER.read_text().splitlines()) <= 100


@pytest.mark.parametrize("ranks", [1, 2, 5])
def test_the_tutorials_client(manage, ranks):
    job = manage(ranks, sys.executable, str(HOSTS / "own_client.py"))
    assert job.exit_code == 0 and not job.hung, job.report()
    ports = list(range(5000, 5000 + ranks))
    half = (ranks + 1) // 2
    seen = re.findall(r"rank (\d+) on (\w+): ports (.*), context id (\d+)\n", job.stdout)
    assert sorted((int(rank), node, text) for rank, node, text, _ in seen) == [
        (rank, "n0" if rank < half else "n1", str(ports)) for rank in range(ranks)
    ], job.report()
    assert len({number for *_, number in seen}) == 1
    for rank in range(ranks):
        assert f"rank {rank} looks up: all together\n" in job.stdout
    assert "a spawned job\n" in job.stdout


@pytest.mark.parametrize("rank", [0, 3])
def test_an_abort_ends_the_ranks_of_both_nodes(manage, rank):
    job = manage(4, sys.executable, "-c", ABORTS.format(rank=rank))
    assert not job.hung, job.report()
    assert job.exit_code == 17, job.report()


GONE = """
import pypmix, time
with pypmix.Client() as me:
    if me.rank == 1:
        time.sleep(0.5)
        try:
            me.fence(timeout=20)
        except pypmix.PartialSuccess as error:
            print("partial")
"""


def test_a_fence_does_not_wait_for_a_node_whose_ranks_have_gone(manage):
    job = manage(2, sys.executable, "-c", GONE)
    assert job.exit_code == 0 and not job.hung, job.report()
    assert job.stdout == "partial\n", job.report()


def test_a_program_that_does_not_exist(manage):
    job = manage(2, "no-such-program")
    assert job.exit_code not in (0, None) and not job.hung, job.report()
    assert "no-such-program" in job.stderr
