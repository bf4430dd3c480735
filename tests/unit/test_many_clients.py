"""Many clients on one Python server: what each takes of its memory, and what a fence of all costs for each."""

from __future__ import annotations

import gc
import sys
import tracemalloc

import pytest

from lib.server_world import World

pytestmark = pytest.mark.timeout(120)

NAMES = ("/engine/python/", "/wire/", "/standard/")


def calls_of(act) -> int:
    """Return how many Python calls of pypmix something makes."""
    found = 0

    def count(frame, event, _argument):
        nonlocal found
        found += event == "call" and any(name in frame.f_code.co_filename for name in NAMES)

    sys.setprofile(count)
    try:
        act()
    finally:
        sys.setprofile(None)
    return found


def fence_of_all(size: int) -> float:
    """Return the calls for each client of a fence of so many, once the clients have fenced before."""
    world = World(size)
    clients = world.clients(*range(size))

    def fence() -> None:
        tags = [client.fence() for client in clients]
        assert {client.status(tag) for client, tag in zip(clients, tags, strict=True)} == {0}

    fence()
    return calls_of(fence) / size


def test_a_fence_costs_each_of_ten_thousand_clients_no_more_than_each_of_a_thousand() -> None:
    few, many = fence_of_all(1000), fence_of_all(10_000)
    assert many <= few + 0.1, (few, many)


def bytes_of_each(size: int) -> float:
    """Return the bytes that the server allocates for each client that has connected and fenced."""
    world = World(size)
    world.clients(0)[0].fence()
    gc.collect()
    tracemalloc.start()
    try:
        clients = world.clients(*range(1, size))
        for client in clients:
            client.fence()
        gc.collect()
        taken = tracemalloc.take_snapshot().filter_traces(
            [tracemalloc.Filter(True, f"*{name}*", all_frames=True) for name in ("engine/python", "wire/frames")]
        )
    finally:
        tracemalloc.stop()
    return sum([each.size for each in taken.statistics("filename")]) / (size - 1)


def test_a_connection_takes_little_memory() -> None:
    # A queue that was empty took 760 bytes more. The other end's reader of frames is counted, too.
    assert bytes_of_each(400) <= 1200
