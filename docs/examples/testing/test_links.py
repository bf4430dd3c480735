"""Tests in which a network is slow, lets nothing through, or breaks."""

import pytest

import pypmix
from pypmix.testing import scenario


@scenario(ranks=2)
def test_a_pulled_cable(me, cluster):
    if me.rank == 0:
        with cluster.drop(1), cluster.expect_missing(1):
            me.fence(timeout=1)
        me.put("go", True)
        me.commit()
    # Rank 1 asks while its link is down, and is answered when it is up again.
    assert me.get("go", proc=me.job[0], timeout=60)


@scenario(ranks=2)
def test_a_rank_that_is_cut_off(me, cluster):
    if me.rank == 1:
        cluster.cut(1)
        with pytest.raises(pypmix.LostConnection):
            me.fence(timeout=60)
    else:
        with cluster.expect_missing(1):
            me.fence(timeout=60)


@scenario(ranks=2, nodes=2)
def test_a_slow_network(me, cluster):
    me.put("name", f"rank {me.rank}")
    me.fence()
    if me.rank == 0:
        cluster.delay((0, 1), 0.2)
        assert me.get("name", proc=me.job[1], timeout=60) == "rank 1"
    me.fence()


async def survive(me, cluster):
    if me.rank == 0:
        # A cable is pulled: no rank is lost by it, and the limit of the fence decides.
        cluster.drop((0, 1))
        with cluster.expect_missing(1):
            await me.fence(timeout=60)
        # The servers of real nodes lose each other after 30 seconds of silence; here the test does it.
        cluster.cut((0, 1))
    with cluster.expect_missing(1 - me.rank):
        await me.fence(timeout=3600)
    await me.fence(me.proc, timeout=60)


test_a_network_that_does_not_come_back = scenario(ranks=2, nodes=2, time="virtual")(survive)
