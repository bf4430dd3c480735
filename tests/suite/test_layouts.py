"""What is promised of groups and connections is kept on one to five nodes, by libraries of C and of Python.

Where a rank is lost, it is kept in both orders of its end and of the others' calls.
"""

from __future__ import annotations

import pytest

from pypmix.conformance.checks import CHECKS

pytestmark = [
    pytest.mark.servers("python-server"),
    pytest.mark.clients("python-client", "native-5.0.11"),
    pytest.mark.forms("asyncio"),
]

RANKS = 5
PARTIAL, ABORTED = "ERR_PARTIAL_SUCCESS", "GROUP_CONSTRUCT_ABORT"
ENDS = {"fence": PARTIAL, "connect": PARTIAL, "construct": ABORTED, "destruct": PARTIAL, "disconnect": None}
"""What an operation ends with for the others when a rank has not called it."""

PROMISES = [promise for promise, (title, _) in CHECKS.items() if title in ("Groups", "Connect", "Losses")]


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
@pytest.mark.parametrize("early", [True, False], ids=["before", "while"])
@pytest.mark.parametrize("operation", ENDS)
def test_a_rank_ends_before_the_others_call_or_while_they_wait(run, operation, early, nodes):
    options = ("--nodes", str(nodes))
    found = run.survivors("layouts.ended", RANKS, {RANKS - 1}, options, operation=operation, early=early)
    assert list(found.values()) == [[ENDS[operation], None]] * (RANKS - 1)


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_on_several_nodes(run, promise, nodes):
    run.keeps(promise, RANKS, options=("--nodes", str(nodes)))


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
def test_a_leader_that_calls_last_hears_of_a_member_alone(run, nodes):
    found = run.survivors("layouts.led_last", RANKS, {RANKS - 1}, ("--nodes", str(nodes)))
    members = [*range(RANKS - 1)]
    assert list(found.values()) == [[members, [[RANKS - 1]] if rank == 0 else []] for rank in members]


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("fences", [0, 1, 2])
def test_a_group_named_by_its_address_is_fault_tolerant_on_several_nodes(run, fences, nodes):
    options = ("--nodes", str(nodes))
    assert run("giving_up.address", ranks=RANKS, options=options, abandons=True, fences=fences) == [True] * RANKS
