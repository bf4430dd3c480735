"""The node ranks and global ranks of jobs: numbers of finished jobs are used again."""

from __future__ import annotations

import pytest

from pypmix.host.sites import first_free


@pytest.mark.parametrize(
    ("taken", "size", "first"),
    [
        ([], 4, 0),
        ([(0, 4)], 4, 4),
        ([(4, 8)], 4, 0),
        ([(4, 8)], 5, 8),
        ([(8, 12), (0, 4)], 4, 4),
        ([(0, 2), (3, 5)], 2, 5),
        ([(0, 2), (0, 2), (1, 3)], 1, 3),
    ],
)
def test_the_lowest_numbers_that_are_free(taken: list[tuple[int, int]], size: int, first: int) -> None:
    assert first_free(taken, size) == first


def test_jobs_that_overlap_without_an_end_stay_within_the_same_numbers() -> None:
    running: list[tuple[int, int]] = []
    highest = 0
    for _ in range(1000):
        first = first_free(running, 2)
        running = [*running[-1:], (first, first + 2)]
        highest = max(highest, first)
    assert highest <= 4
