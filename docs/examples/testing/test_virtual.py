"""Tests of a program on virtual time: an hour passes at once."""

import asyncio

import pypmix
from pypmix.testing import scenario


async def gather(me):
    """Return what each rank has offered, without those who do not come within an hour."""
    await me.put("offer", 10 * me.rank)
    try:
        await me.fence(collect=True, timeout=3600)
        late = set()
    except pypmix.OperationTimeout as error:
        late = set(error.missing or ())
    return {proc.rank: await me.get("offer", proc=proc, timeout=60) for proc in me.job if proc not in late}


@scenario(ranks=4, nodes=2, time="virtual")
async def test_all_come(me, cluster):
    assert await gather(me) == {0: 0, 1: 10, 2: 20, 3: 30}


@scenario(ranks=3, time="virtual", seed=range(10))
async def test_one_is_late(me, cluster):
    if me.rank == 2:
        await asyncio.sleep(2 * 3600)
    else:
        assert await gather(me) == {0: 0, 1: 10}
