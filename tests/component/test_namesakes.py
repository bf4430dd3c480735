"""Proves that groups of disjoint procs with the same name do not notice each other, on one node and on several.

Ranks 0, 3 and 4 form one group, and ranks 1, 2 and 5 another one of its name, each with members on two nodes or more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from pypmix import EventCode, PMIxError, aio, attrs
from pypmix.testing.cluster import Cluster
from pypmix.testing.virtual import simulate

FIRST, OTHER = (0, 3, 4), (1, 2, 5)
LATE = 60.0
"""When rank 1 calls, and the other group's operation ends."""

LIMIT = 5
"""The time limit of the first group's operation."""

OPERATIONS = ("construct", "fence", "destruct")

Call = Callable[[int | None], Awaitable[object]]
Found = list[tuple[str, float] | None]


async def operation(me: aio.Client, name: str) -> Call:
    """Return the operation of the caller's group, which takes a time limit."""
    procs = [me.job[rank] for rank in (FIRST if me.rank in FIRST else OTHER)]
    if name == "construct":
        return lambda limit: me.group("g", procs, timeout=limit).construct()
    group = await me.group("g", procs).construct()
    return lambda limit: group.fence(timeout=limit) if name == "fence" else group.destruct(timeout=limit)


def check(found: Found, end: str, seconds: float, ranks: tuple[int, ...] = (0, 3)) -> None:
    """Check how operations have ended, and when."""
    for rank in ranks:
        one = found[rank]
        assert one is not None and one[0] == end and abs(one[1] - seconds) < 1, found


def outcomes(nodes: int, name: str, fault: Callable[[aio.Client, Cluster], Awaitable[bool]]) -> Found:
    """Run the operation on both groups, with a fault in the first one; return how and when it ends for each rank.

    Args:
        nodes: The number of nodes.
        name: The operation.
        fault: Called by the members of the first group; returns True if the caller takes part.
    """

    async def main(cluster: Cluster) -> tuple[str, float] | None:
        async with aio.Client() as me:
            call = await operation(me, name)
            await me.fence(timeout=LIMIT)
            began, end = cluster.now(), "success"
            if me.rank == 1:
                await asyncio.sleep(LATE)
            if me.rank in FIRST and not await fault(me, cluster):
                await asyncio.sleep(2 * LATE)
                return None
            try:
                await call(LIMIT if me.rank == 0 else None)
            except PMIxError as error:
                end = type(error).__name__
            ended = cluster.now() - began
            await asyncio.sleep(2 * LATE)
            return end, ended

    found: Found = simulate(main, ranks=6, nodes=nodes)  # type: ignore[assignment]
    check(found, "success", LATE, OTHER)
    return found


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_limit_of_one_caller_ends_the_operation_of_its_group_alone(name: str, nodes: int) -> None:
    async def does_not_call(me: aio.Client, cluster: Cluster) -> bool:
        return me.rank != 4

    found = outcomes(nodes, name, does_not_call)
    check(found, "OperationTimeout", LIMIT)


@pytest.mark.parametrize("nodes", [1, 2, 3])
@pytest.mark.parametrize("name", OPERATIONS)
def test_the_end_of_a_member_ends_the_operation_of_its_group_alone(name: str, nodes: int) -> None:
    async def dies(me: aio.Client, cluster: Cluster) -> bool:
        if me.rank == 4:
            await asyncio.sleep(1)
            cluster.kill(4)
        return True

    found = outcomes(nodes, name, dies)
    check(found, "ConstructAborted" if name == "construct" else "PartialSuccess", 1)


@pytest.mark.parametrize("nodes", [1, 2, 3])
def test_an_abort_ends_the_construct_of_its_group_alone(nodes: int) -> None:
    async def aborts(me: aio.Client, cluster: Cluster) -> bool:
        if me.rank == 4:
            await asyncio.sleep(1)
            procs = [me.job[rank] for rank in FIRST]
            await me.notify(EventCode.GROUP_CONSTRUCT_ABORT, targets=procs, info=[attrs.GROUP_ID("g")])
        return me.rank != 4

    found = outcomes(nodes, "construct", aborts)
    check(found, "ConstructAborted", 1)
