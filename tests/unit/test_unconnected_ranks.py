"""The line about ranks that exit without PMIx_Init, and what it costs a launcher to watch for them."""

from __future__ import annotations

import logging

import pytest

from pypmix.host.rank import CONNECTED, STARTED
from pypmix.host.unconnected import UnconnectedRanks


class Rank:
    looks = 0

    def __init__(self, number: int) -> None:
        self.number = number
        self.now = STARTED

    @property
    def stage(self) -> str:
        type(self).looks += 1
        return self.now

    def __str__(self) -> str:
        return f"rank {self.number}"


class Job:
    def __init__(self, size: int) -> None:
        self.ranks = [Rank(number) for number in range(size)]

    def __str__(self) -> str:
        return "the job"


class Timer:
    def cancel(self) -> None: ...


class Host:
    """A host, and the loop of it, whose timers a test fires."""

    def __init__(self) -> None:
        self.at_job_end: list = []
        self.at_connection: list = []
        self.loop = self
        self.timers: list = []

    def later(self, _seconds, function) -> Timer:
        self.timers.append(function)
        return Timer()

    def post(self, function) -> None:
        function()

    def connect(self, job: Job, number: int) -> None:
        job.ranks[number].now = CONNECTED
        for function in self.at_connection:
            function(job)


@pytest.fixture
def host():
    return Host()


@pytest.fixture(autouse=True)
def lines(caplog):
    caplog.set_level(logging.WARNING)
    return lambda: [record.getMessage().partition(" exited")[0] for record in caplog.records]


def test_each_rank_that_exits_is_looked_at_once(host):
    job, watched = Job(1000), UnconnectedRanks(host)
    Rank.looks = 0
    for rank in job.ranks:
        watched.add(job, rank)
    assert Rank.looks <= len(job.ranks)
    for ended in host.at_job_end:
        ended(job)
    assert Rank.looks <= 2 * len(job.ranks)


@pytest.mark.parametrize("early", [True, False])
def test_they_are_named_whether_others_connect_before_or_after(host, lines, early):
    job, watched = Job(4), UnconnectedRanks(host)
    if early:
        host.connect(job, 3)
    watched.add(job, job.ranks[0])
    watched.add(job, job.ranks[1])
    if not early:
        host.connect(job, 3)
    (report,) = host.timers
    report()
    assert lines() == ["rank 0, rank 1"]


def test_a_job_of_which_no_rank_connects_gets_no_line(host, lines):
    job, watched = Job(2), UnconnectedRanks(host)
    for rank in job.ranks:
        watched.add(job, rank)
    for ended in host.at_job_end:
        ended(job)
    assert (lines(), host.timers) == ([], [])
