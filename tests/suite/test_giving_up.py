"""Collectives that end for one caller by its limit or its cancellation: the others never count it in."""

from __future__ import annotations

import pytest

from lib import promises

KINDS = ["fence", "connect", "disconnect", "construct", "destruct"]
ours = pytest.mark.servers("python-server", "python-server-2-nodes")


@ours
@pytest.mark.parametrize("ranks", [(0, 1, 2), (2, 0, 1), (0, 2, 1)], ids=lambda ranks: "".join(map(str, ranks)))
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_the_smallest_limit_ends_it_for_all(run, kind, first, ranks):
    """Of two nodes, ranks 0 and 1 share one: the limit may be that of a node that has all its callers, or lacks one."""
    short, long, late = ranks
    found = run("giving_up.limits", ranks=3, kind=kind, first=first, order=list(ranks))
    assert isinstance(found[short], list) and isinstance(found[long], list), found
    assert found[late] is None


@ours
@pytest.mark.clients("python-client")
@pytest.mark.forms("asyncio")
@pytest.mark.parametrize("kind", KINDS)
def test_a_cancelled_caller_is_not_counted_in(run, kind):
    found = run("giving_up.cancelled", ranks=3, kind=kind)
    assert found == [[False, False], [], []], found


@pytest.mark.servers(*promises.PROVEN_ON)
@pytest.mark.needs("groups", "leave: fault tolerant")
@pytest.mark.parametrize("fences", [0, 1, 2])
def test_a_group_named_by_its_address_is_as_fault_tolerant(run, fences):
    assert run("giving_up.address", ranks=3, abandons=True, fences=fences) == [True] * 3
