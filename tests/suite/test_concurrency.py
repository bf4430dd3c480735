"""Every pairing: one client serves many threads or tasks, and nothing that waits holds up the rest."""

from __future__ import annotations

import pytest


@pytest.mark.forms("sync")
def test_fences_from_threads(run):
    assert run("concurrency.fences_from_threads", ranks=4) == [[None, None]] * 4


@pytest.mark.forms("asyncio")
def test_fences_from_tasks(run):
    assert run("concurrency.fences_from_tasks", ranks=4) == [[None, None]] * 4


@pytest.mark.forms("sync")
def test_threads_share_a_client(run):
    rounds = 50
    numbers = list(range(rounds))
    for seen in run("concurrency.threads_share_a_client", ranks=2, rounds=rounds):
        assert seen == [numbers, numbers, "met", "nothing", [rounds - 1, rounds - 1]]


@pytest.mark.forms("asyncio")
def test_tasks_share_a_client(run):
    first, second = run("concurrency.tasks_share_a_client", ranks=2, rounds=20)
    for seen, _ in first, second:
        assert seen == list(range(20))
    assert first[1] > 10, "the event loop stood still while a fence waited"


@pytest.mark.forms("asyncio")
def test_a_cancelled_task_leaves_the_client_usable(run):
    first, second = run("concurrency.cancelled", ranks=2)
    assert first == ("cancelled", 1)
    assert second == ("cancelled", 0)


@pytest.mark.forms("sync")
def test_a_fence_does_not_hold_the_gil(run):
    _, ticks = run("concurrency.gil_is_free", ranks=2)
    assert ticks > 100


@pytest.mark.needs("REMOTE stays off the own node")
def test_gets_of_one_proc_at_the_same_time(run):
    """libpmix answers them all when one is, and beside an error it hands over what another one has already got."""
    ranks = 6
    found, *others = run("concurrency.gets_of_one_proc", ranks=ranks)
    assert others == [[]] * (ranks - 1)
    for rank, (near, *hidden, again, last) in enumerate(found, 1):
        assert {near, again} <= {f"near {rank} " + "x" * 300, "NotFound"}
        assert {*hidden, last} == {"NotFound"}
