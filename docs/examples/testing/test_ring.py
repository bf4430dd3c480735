"""Tests that run on several ranks."""

import pytest


def neighbour(rank, size):
    return (rank + 1) % size


@pytest.fixture
def number(pmix):
    """Evaluated on each rank."""
    return 10 * pmix.rank


@pytest.mark.pmix(ranks=3)
def test_each_rank_reads_its_neighbour(pmix, number):
    pmix.put("number", number)
    pmix.fence(collect=True, timeout=20)
    other = neighbour(pmix.rank, pmix.job.size)
    assert pmix.get("number", proc=pmix.job[other]) == 10 * other


@pytest.mark.pmix(ranks=[1, 2])
@pytest.mark.parametrize("text", ["a", "b"])
def test_a_common_folder(pmix, pmix_ranks, pmix_tmp_path, text):
    (pmix_tmp_path / str(pmix.rank)).write_text(text)
    pmix.fence(timeout=20)
    assert len(list(pmix_tmp_path.iterdir())) == pmix_ranks


@pytest.mark.pmix(ranks=4, nodes=2)
def test_two_nodes(pmix):
    pmix.fence(timeout=20)
    assert len({pmix.get("pmix.hname", proc=proc) for proc in pmix.job}) == 2


def test_on_no_rank():
    assert neighbour(2, 3) == 0
