"""Collective calls on values in groups whose members leave and die: all survivors of a call have the same outcome."""

from __future__ import annotations

import pytest

from lib import promises

RANKS = 4

pytestmark = [
    pytest.mark.servers(*promises.PROVEN_ON),
    pytest.mark.needs("groups"),
    pytest.mark.promise("values: members go"),
]


def judge(seen: dict[int, list[object]], gone: int) -> None:
    left = [rank for rank in range(RANKS) if rank != gone]
    assert sorted(seen) == left
    for number in range(3):
        calls = [seen[rank][7 * number : 7 * number + 7] for rank in left]
        for call in calls:
            assert call[:6] == [number, [[rank, number] for rank in left], left, True, True, True]
        # The rank may have been another proc for some: then it is an error for all.
        assert len({call[6] for call in calls}) == 1, calls
        assert calls[0][6] in ("all", "PMIxError", "PartialSuccess", "IndexError")


@pytest.mark.parametrize("gone", [0, 2])
def test_a_member_leaves(run, gone):
    found = run("exchanging.bereft", ranks=RANKS, gone=gone, leaves=True)
    assert found.pop(gone) is None
    judge(dict(zip([rank for rank in range(RANKS) if rank != gone], found, strict=True)), gone)


@pytest.mark.parametrize("gone", [0, 2])
def test_a_member_dies(run, gone):
    judge(run.survivors("exchanging.bereft", RANKS, [gone], gone=gone, leaves=False), gone)
