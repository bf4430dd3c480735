"""Tests in which a rank dies, or is slow."""

import time

from pypmix.testing import scenario


@scenario(ranks=4)
def test_survives_a_death(me, cluster):
    if me.rank == 3:
        time.sleep(60)
    if me.rank == 0:
        cluster.kill(3)
    with cluster.expect_missing(3):
        me.fence(timeout=30)
    me.fence([proc for proc in me.job if proc.rank != 3], timeout=30)


@scenario(ranks=2)
def test_waits_for_one_that_is_slow(me, cluster):
    if me.rank == 1:
        me.get("go", proc=me.job[0], timeout=60)
    else:
        cluster.stop(1)
        with cluster.expect_missing(1):
            me.fence(timeout=0.5)
        cluster.resume(1)
        me.put("go", True)
    me.fence(timeout=30)
