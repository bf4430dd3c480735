"""Unmodified C programs start jobs on the Python server, read their output and write their input."""

from __future__ import annotations

import pytest

from lib.c_programs import notes, succeeded
from lib.job import Job
from lib.pairings import Part

pytestmark = pytest.mark.servers("python-server", "native-server-4.2.2")


def test_a_c_program_starts_itself_again(launch, programs, libpmix):
    job: Job = succeeded(launch(Part(1, [programs("spawn")], libpmix)))
    seen = notes(job, 0)
    assert int(seen["nothing"]) < 0
    assert [seen[name] for name in ("spawn", "other", "child-size", "pull", "push")] == ["0", "1", "0 1", "1", "0"]
    assert seen["stdout"] == "child 0 of 0 from C|read input|"
    assert seen["stderr"] == "complaint of 0|"
    assert (seen["ends"], seen["finalize"]) == ("2", "0")


@pytest.mark.servers("python-server")
def test_the_end_of_a_pull_is_a_success(launch, programs, libpmix):
    """Native servers up to 5.0.11 answer with what they find in their memory."""
    job: Job = succeeded(launch(Part(1, [programs("spawn")], libpmix)))
    assert notes(job, 0)["deregister"] == "0"
