"""Proves that a host starts processes, tells how they end, and leaves none behind, however it ends itself."""

from __future__ import annotations

import os
import time

import pytest

ENGINES = ("python/python", "native-5.0.11/native-5.0.11", "native-7.0.0/native-7.0.0")


def test_start_and_wait(host):
    job = host("processes.start_and_wait")
    lines = [line for line in job.stdout.splitlines() if line.startswith("rank")]
    assert sorted(lines) == [f"rank {rank} of 3 blue /" for rank in range(3)]
    assert job.stderr.count("no newline") == 3


@pytest.mark.parametrize("program", ["blocking", "later_jobs", "orphans"])
def test_jobs(host, program):
    host(f"processes.{program}")


@pytest.mark.cells(*ENGINES)
@pytest.mark.parametrize("program", ["failing", "cancelled", "unstartable", "unnoticed"])
def test_ends(host, program):
    host(f"processes.{program}")


@pytest.mark.cells("python/python", "python/native-5.0.11")
def test_two_hosts_in_one_process(host):
    """libpmix serves once in a process."""
    host("processes.one_process")


@pytest.mark.cells("python/python", "native-4.2.2/native-4.2.2", "native-5.0.11/native-5.0.11")
def test_a_host_that_is_killed_leaves_nothing(host):
    job = host.start("processes.killed", leaves_files=True).wait()
    assert job.exit_code == -9, job.report()
    folder, *pids = job.stdout.split()
    assert len(pids) == 2
    assert not job.wait_gone(10)
    deadline = time.monotonic() + 10
    while os.path.exists(folder):
        assert time.monotonic() < deadline, "its folder is left"
        time.sleep(0.02)
