"""An abort of some ranks keeps its code and message, in whatever order the launcher receives what follows from it."""

from __future__ import annotations

import math
import signal
import time
from itertools import permutations
from types import SimpleNamespace

import pytest

from pypmix.host import Application, LocalHost
from pypmix.host.job import JobLayout, NodeLayout
from pypmix.host.manager import Manager
from pypmix.host.outcome import Outcome
from pypmix.host.running import RunningJob
from pypmix.host.terms import Terms
from tests.unit.test_host_ends import Elsewhere, Host, end, start

REASON = "rank 0 called abort with status 7: enough"
CALLER, OTHER, NAMED, REMOTE = range(4)


class Aborted:
    """A job of four ranks on some nodes, of which rank 0 aborts ranks 2 and 3."""

    def __init__(self, nodes, **terms):
        names = [f"n{number}" for number in range(nodes)]
        places = {name: tuple(rank for rank in range(4) if rank * nodes // 4 == at) for at, name in enumerate(names)}
        job = JobLayout(
            "job@1",
            (Application(("./app",), 4),),
            tuple([NodeLayout(name, ranks, 0) for name, ranks in places.items()]),
        )
        self.host = Host()
        self.corrected = []
        self.host.outcome_corrected = lambda former, outcome: self.corrected.append((former, outcome))
        homes = {}
        for name, ranks in places.items():
            node = Elsewhere()
            node.hostname = name
            homes |= dict.fromkeys(ranks, node)
        self.job = RunningJob(self.host, job, 1, Terms(**terms), homes)
        start(self.job)
        caller = self.job.ranks[CALLER]
        caller.lost, caller.left = True, time.monotonic()

    def abort(self):
        chosen = [self.job.ranks[NAMED], self.job.ranks[REMOTE]]
        Manager.end_ranks(SimpleNamespace(jobs={"job@1": self.job}), chosen, 7, REASON, self.job.ranks[CALLER])

    def caller(self):
        self.end(CALLER, code=1)

    def other(self):
        self.end(OTHER, code=1)

    def named(self):
        self.end(NAMED, signum=signal.SIGTERM)

    def node(self):
        rank = self.job.ranks[REMOTE]
        if rank.alive:
            rank.fate = f"was lost with node {rank.node}: its daemon has ended"
            end(self.job, rank, signum=signal.SIGKILL)

    def end(self, number, **how):
        rank = self.job.ranks[number]
        if rank.alive:
            end(self.job, rank, **how)


NEWS = ("abort", "caller", "other", "named", "node")
POSSIBLE = [
    order for order in permutations(NEWS) if order.index("abort") < min(order.index("named"), order.index("node"))
]
"""Nothing ends ranks that were named, or their node, before the launcher has received the request."""


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("order", POSSIBLE, ids="-".join)
def test_an_abort_of_some_keeps_its_code_and_message(order, nodes):
    world = Aborted(nodes)
    for news in order:
        if news != "node" or nodes > 1:
            getattr(world, news)()
    world.host.loop.run()
    outcome = world.job.final_outcome
    assert outcome.code == 7 and outcome.reason.startswith(REASON), outcome


@pytest.mark.parametrize("order", POSSIBLE, ids="-".join)
def test_so_it_does_where_failures_end_nothing(order):
    world = Aborted(2, keep_going=True)
    for news in order:
        getattr(world, news)()
    world.host.loop.run()
    outcome = world.job.final_outcome
    assert outcome.code == 7 and outcome.reason.startswith(REASON), outcome


def test_the_message_tells_what_came_of_it():
    world = Aborted(1)
    world.abort()
    world.caller()
    assert world.job.outcome.reason.startswith(
        f"{REASON}; it ended rank 2 on n0, rank 3 on n0; then rank 0 on n0 exited"
    )


def test_a_failure_before_the_request_that_has_nothing_to_do_with_it_is_the_outcome():
    world = Aborted(1)
    caller = world.job.ranks[CALLER]
    caller.lost, caller.left = False, math.inf
    world.other()
    world.abort()
    assert world.job.outcome.code == 1 and not world.corrected


def test_the_outcome_of_the_launcher_is_corrected_with_that_of_the_job():
    host = LocalHost([Application(("true",))])
    former, outcome = Outcome(1, "rank 0 exited"), Outcome(7, REASON)
    host._outcome.decided = former
    host.outcome_corrected(Outcome(1, "rank 0 exited"), outcome)
    assert host._outcome.final is former
    host.outcome_corrected(former, outcome)
    assert host._outcome.final is outcome
