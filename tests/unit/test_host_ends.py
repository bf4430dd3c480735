"""What happens to a job whose ranks end one by one: few of the others are looked at, however many there are."""

from __future__ import annotations

import signal
import time
from types import SimpleNamespace

import pytest

from pypmix.host.job import Application, JobLayout, NodeLayout
from pypmix.host.judgement import CAUSE
from pypmix.host.manager import Manager
from pypmix.host.notices import job_status
from pypmix.host.publishing import Publications
from pypmix.host.queries import Subject
from pypmix.host.rank import CONNECTED, FINALIZED, Rank
from pypmix.host.running import RunningJob, Share
from pypmix.host.terms import Terms
from pypmix.standard import attrs
from pypmix.standard.enums import Status
from pypmix.standard.limits import DEFAULTS
from pypmix.standard.ops import PERSIST_APP, Publish
from pypmix.standard.types import Info, Proc, Value

pytestmark = pytest.mark.timeout(60)


class Loop:
    """A loop whose timers run when they are told to."""

    def __init__(self):
        self.due = []

    def later(self, _seconds, function):
        self.due.append(function)

    def run_posted(self):
        pass

    def run(self):
        while self.due:
            due, self.due = self.due, []
            for function in due:
                function()


class Host(SimpleNamespace):
    """A launcher of ranks that others start."""

    def __init__(self):
        super().__init__(loop=Loop(), grace=1.0, here=(), failed=[], job_failed=lambda job: None)
        self.rank_ended = lambda job, rank: None
        self.is_being_ended = lambda: False
        self.is_sent_to_all = lambda signum: False
        self.report_loss = lambda node, text: False

    @property
    def site(self):
        return self

    def broke(self, error):
        raise error

    def share(self, launch, node, ranks):
        return ShareElsewhere(launch, node, ranks)


class Elsewhere:
    here = False
    hostname = "away"
    running = 0
    reached = frozenset()

    def __str__(self):
        return self.hostname


class ShareElsewhere(Share):
    """Ranks that others start, of which something is always left."""

    def signal(self, ranks, signum, handled=False):
        pass

    def sweep(self):
        pass


def start(job):
    """Make all ranks of a job run."""
    job.launch(range(job.job.size))
    for rank in job.ranks:
        rank.alive, rank.stage = True, CONNECTED


def running(*sizes, **terms):
    size = sum(sizes)
    job = JobLayout(
        "job@1", tuple([Application(("./app",), np) for np in sizes]), (NodeLayout("away", tuple(range(size)), 0),)
    )
    made = RunningJob(Host(), job, 1, Terms(**terms), dict.fromkeys(range(size), Elsewhere()))
    start(made)
    return made


def looks(monkeypatch, name):
    """Count the looks at a property of ranks."""
    found = []
    real = getattr(Rank, name)
    monkeypatch.setattr(Rank, name, property(lambda rank: (found.append(rank), real.__get__(rank))[1]))
    return found


ORDERS = {
    "forwards": lambda ranks: ranks,
    "backwards": lambda ranks: ranks[::-1],
    "mixed": lambda ranks: [ranks[number * 7 % len(ranks)] for number in range(len(ranks))],
}


def end(job, rank, code=None, signum=0):
    rank.code, rank.signum = code, signum
    job.ranks_ended([rank])


@pytest.mark.parametrize("order", ORDERS)
def test_of_thousands_that_are_killed_at_once_few_are_looked_at_for_each(order, monkeypatch):
    found = looks(monkeypatch, "blame")
    counts = {}
    for size in (100, 1000):
        job = running(size)
        for rank in job.ranks:
            rank.lost = True
        found.clear()
        ranks = ORDERS[order](job.ranks)
        for rank in ranks:
            end(job, rank, signum=signal.SIGSEGV)
        assert job.outcome is not None
        assert job.outcome.code == 128 + signal.SIGSEGV and job.outcome.reason.startswith(f"{ranks[0]} was killed")
        counts[size] = len(found)
    assert counts[1000] < 20 * counts[100], counts


def test_those_that_seem_to_end_are_waited_for_no_longer_than_before():
    job = running(4)
    for rank in job.ranks[1:]:
        rank.lost = True
    end(job, job.ranks[0], code=1)
    end(job, job.ranks[1], signum=signal.SIGSEGV)
    assert job.outcome is None
    job.host.loop.run()
    assert job.outcome.reason.startswith("rank 1 on away was killed")


@pytest.mark.parametrize("order", ORDERS)
def test_where_the_others_go_on_only_the_first_failure_is_judged(order, monkeypatch):
    found = looks(monkeypatch, "blame")
    counts = {}
    for size in (100, 1000):
        job = running(size, keep_going=True)
        found.clear()
        ranks = ORDERS[order](job.ranks)
        for rank in ranks:
            end(job, rank, code=3)
        assert job.outcome is None
        assert job.partial.code == 3 and job.partial.reason.startswith(f"{ranks[0]} exited with code 3")
        counts[size] = len(found)
    assert counts[1000] < 20 * counts[100], counts


def test_while_the_cause_is_waited_for_an_end_that_follows_from_it_is_not_judged_anew(monkeypatch):
    found = looks(monkeypatch, "blame")
    counts = {}
    for size in (100, 1000):
        job = running(size)
        cause, *others = job.ranks
        cause.stage, cause.left = FINALIZED, time.monotonic()
        found.clear()
        for rank in others:
            end(job, rank, code=1)
        assert job.outcome is None
        counts[size] = len(found)
        end(job, cause, code=7)
        assert job.outcome.reason.startswith("rank 0 on away exited with code 7")
    assert counts[1000] < 20 * counts[100], counts


def test_one_that_is_more_to_blame_is_judged_while_the_cause_is_waited_for():
    job = running(4)
    first, second, third, last = job.ranks
    last.stage, last.left = FINALIZED, time.monotonic()
    for rank in (first, second):
        end(job, rank, code=1)
    assert job.outcome is None
    end(job, third, signum=signal.SIGSEGV)
    assert job.outcome.reason.startswith("rank 2 on away was killed")


def test_the_first_that_has_left_is_named_though_it_ends_last():
    job = running(3)
    cause, second, third = job.ranks
    for rank in job.ranks:
        rank.left = time.monotonic()
    cause.lost = True
    end(job, third, code=1)
    end(job, second, code=1)
    assert job.outcome is None
    end(job, cause, code=3)
    assert job.outcome.code == 3 and job.outcome.reason.startswith("rank 0 on away exited with code 3")


@pytest.mark.parametrize("before", [CAUSE + 1, -1])
def test_a_rank_that_has_left_long_ago_or_later_is_not_waited_for(before):
    job = running(2)
    other, failed = job.ranks
    failed.left = time.monotonic()
    other.stage, other.left = FINALIZED, failed.left - before
    end(job, failed, code=1)
    assert job.outcome.reason.startswith("rank 1 on away exited with code 1")


def test_the_status_of_a_job_is_that_of_the_rank_that_its_outcome_names():
    job = running(2)
    exited, killed = job.ranks
    exited.code, killed.signum = 128 + signal.SIGKILL, signal.SIGKILL
    job.ranks_ended(job.ranks)
    assert job.outcome.code == 128 + signal.SIGKILL and job.outcome.reason.startswith("rank 1 on away was killed")
    assert job_status(job, job.outcome.code) == Status.ERR_JOB_ABORTED_BY_SIG


class Compared(Rank):
    """A rank that counts how often it is compared."""

    count = 0
    __hash__ = Rank.__hash__

    def __eq__(self, other):
        Compared.count += 1
        return self is other


def test_a_job_that_is_aborted_is_found_to_be_whole_without_comparing_all_with_all(monkeypatch):
    monkeypatch.setattr("pypmix.host.running.Rank", Compared)
    job = running(300)
    Compared.count = 0
    host = SimpleNamespace(jobs={job.nspace: job})
    Manager.end_ranks(host, job.ranks, 9, "rank 0 called abort")
    assert job.outcome.code == 9 and Compared.count < 1000
    job = running(3)
    Manager.end_ranks(SimpleNamespace(jobs={job.nspace: job}), job.ranks[:2], 9, "it called abort")
    assert job.outcome is None and job.partial.code == 9 and [rank.excused for rank in job.ranks] == [1, 1, 0]


@pytest.mark.parametrize("order", ORDERS)
def test_what_an_application_has_published_goes_with_its_last_rank_and_few_others_are_looked_at(order, monkeypatch):
    counts = {}
    for size in (100, 1000):
        job = running(3, size)
        published = Publications(SimpleNamespace(loop=Loop(), limits=DEFAULTS, at_rank_end=[]))
        for number in (0, 2, 3, size):
            who = SimpleNamespace(proc=Proc("job@1", number), uid=1, gid=1, node=0)
            published.directory.publish(who, Publish((Info(f"k{number}", Value(3, "x")),), 4, PERSIST_APP))
        asked = []
        real = job.rank
        monkeypatch.setattr(job, "rank", lambda number, asked=asked, real=real: (asked.append(number), real(number))[1])
        for rank in ORDERS[order](job.ranks[3:]):
            assert len(published.directory) == 4
            rank.alive = False
            published.retire(job, rank)
        assert len(published.directory) == 2
        counts[size] = len(asked)
        for left, rank in zip((2, 2, 0), job.ranks[:3], strict=True):
            rank.alive = False
            published.retire(job, rank)
            assert len(published.directory) == left
    assert counts[1000] < 20 * counts[100], counts


def test_nothing_is_kept_of_an_application_of_which_only_ranks_on_other_hosts_run(monkeypatch):
    job = running(4)
    published = Publications(SimpleNamespace(loop=Loop(), limits=DEFAULTS, at_rank_end=[]))
    who = SimpleNamespace(proc=Proc("job@1", 0), uid=1, gid=1, node=0)
    published.directory.publish(who, Publish((Info("k", Value(3, "x")),), 4, PERSIST_APP))
    here, real = job.ranks[:2], job.rank
    monkeypatch.setattr(job, "rank", lambda number: real(number) if number < len(here) else None)
    for rank in here:
        rank.alive = False
        published.retire(job, rank)
    assert len(published.directory) == 1 and not published._last


def test_a_query_about_one_rank_looks_at_no_other(monkeypatch):
    job = running(5)
    host = SimpleNamespace(jobs={job.nspace: job})
    everyone = job.ranks
    assert Subject(host, job.job.proc(0), ()).ranks == [(job, rank) for rank in everyone]
    monkeypatch.setattr(RunningJob, "ranks", property(lambda job: pytest.fail("it looks at all")))
    assert Subject(host, job.job.proc(0), (attrs.RANK(3),)).ranks == [(job, everyone[3])]
    assert Subject(host, job.job.proc(0), (attrs.RANK(5),)).ranks == []
