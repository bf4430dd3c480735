"""What is promised where a rank is lost is kept on one to five nodes, in both orders of its end and of the calls."""

from __future__ import annotations

import pytest

from pypmix.conformance.checks import CHECKS

pytestmark = [
    pytest.mark.servers("python-server"),
    pytest.mark.clients("python-client"),
    pytest.mark.forms("asyncio"),
]

RANKS = 5
PARTIAL, ABORTED = "ERR_PARTIAL_SUCCESS", "GROUP_CONSTRUCT_ABORT"
ENDS = {"fence": PARTIAL, "connect": PARTIAL, "construct": ABORTED, "destruct": PARTIAL, "disconnect": None}
"""What an operation ends with for the others when a rank has not called it."""

LOSSES = [promise for promise, (title, _) in CHECKS.items() if title == "Losses"]


@pytest.mark.parametrize("nodes", [1, 2, 3, 5])
@pytest.mark.parametrize("early", [True, False], ids=["before", "while"])
@pytest.mark.parametrize("operation", ENDS)
def test_a_rank_ends_before_the_others_call_or_while_they_wait(run, operation, early, nodes):
    options = ("--nodes", str(nodes))
    found = run.survivors("layouts.ended", RANKS, {RANKS - 1}, options, operation=operation, early=early)
    assert list(found.values()) == [[ENDS[operation], None]] * (RANKS - 1)


@pytest.mark.parametrize("nodes", [3, 5])
@pytest.mark.parametrize("promise", LOSSES)
def test_a_promise_of_a_loss_on_several_nodes(run, promise, nodes):
    run.keeps(promise, RANKS, options=("--nodes", str(nodes)))
