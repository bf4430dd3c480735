"""Groups are constructed, used and destructed by all of their members, with one behaviour on every pairing."""

from __future__ import annotations

import pytest

from pypmix import EventCode, NotSupported, OperationTimeout, Status, Unreachable


@pytest.mark.needs("groups")
def test_all_of_a_job(run):
    found = run("groups.everyone", ranks=4)
    ids = {context_id for _, context_id, _ in found}
    assert len(ids) == 1
    assert isinstance(ids.pop(), int)
    expected = [3, 2, 1, 0], [f"of {n}" for n in (3, 2, 1, 0)]
    assert [(ranks, words) for ranks, _, words in found] == [expected] * 4


@pytest.mark.forms("sync")
@pytest.mark.needs("groups", "one order of members who disagree")
def test_members_that_name_each_other_in_different_orders(run):
    found = run("groups.disagreeing", ranks=4)
    assert sorted(found[0]) == [0, 1, 2, 3]
    assert found == [found[0]] * 4


@pytest.mark.needs("groups")
def test_no_context_id(run):
    assert run("groups.plain", ranks=3) == [([0, 1, 2], None)] * 3


@pytest.mark.forms("sync")
@pytest.mark.needs("groups", "a context id where one of several asks")
def test_who_asks_for_a_context_id_is_told(run):
    first, *others = run("groups.mixed", ranks=3)
    assert isinstance(first, int)
    assert others == [None, None]


@pytest.mark.forms("sync")
@pytest.mark.needs("groups")
def test_a_name_is_used_again(run):
    first, second = run("groups.again", ranks=2, rounds=5)
    assert first == second
    assert len(set(first)) == 5


@pytest.mark.needs("groups")
def test_groups_that_overlap(run):
    found = run("groups.parts", ranks=4)
    assert [(rank, members) for rank, members, _, _ in found] == [(0, [0, 2]), (0, [1, 3]), (1, [0, 2]), (1, [1, 3])]
    whole = {one for _, _, one, _ in found}
    halves = [own for _, _, _, own in found]
    assert len(whole) == 1
    assert halves[:2] == halves[2:]
    assert len({*whole, *halves}) == 3


@pytest.mark.needs("groups")
def test_some_procs_of_a_job(run):
    assert run("groups.some", ranks=3) == [([0, 2], 0, False), None, ([0, 2], 1, False)]


@pytest.mark.forms("sync")
@pytest.mark.needs("groups")
def test_a_group_of_one(run):
    found = run("groups.alone", ranks=2)
    assert [(members, rank) for members, rank, _ in found] == [([0], 0), ([1], 0)]
    assert len({context_id for _, _, context_id in found}) == 2


@pytest.mark.forms("sync")
@pytest.mark.needs("groups")
def test_the_last_is_waited_for(run):
    assert run("groups.slow", ranks=3) == [[0, 1, 2]] * 3


@pytest.mark.forms("sync")
@pytest.mark.needs("groups", "an end after a group that timed out")
def test_somebody_never_comes(run):
    error, _ = run("groups.late", ranks=2)
    assert isinstance(error, OperationTimeout)
    assert "group_construct" in str(error)
    if error.missing is not None:
        assert [proc.rank for proc in error.missing] == [1]


@pytest.mark.forms("sync")
@pytest.mark.needs("groups", "a second destruct after one that timed out")
def test_somebody_comes_late_to_the_destruct(run):
    error, none = run("groups.lingering", ranks=2)
    assert isinstance(error, OperationTimeout)
    assert none is None


@pytest.mark.needs("groups")
def test_mistakes(run):
    expected = {
        "empty": "ValueError",
        "string": "TypeError",
        "no name": "ValueError",
        "long name": "ValueError",
        "number": "TypeError",
        "others": "ERR_BAD_PARAM",
        "nspace": "ERR_EXISTS",
        "twice": "ERR_EXISTS",
        "rank": "ERR_NOT_FOUND",
        "destructed": "ERR_NOT_FOUND",
        "unknown": "ERR_NOT_FOUND",
    }
    assert run("groups.refused", ranks=2) == [expected] * 2


@pytest.mark.needs("groups")
def test_an_exception_leaves_the_group(run):
    assert run("groups.raising", ranks=3) == [("mine", False), ("theirs", False), ("theirs", False)]


@pytest.mark.servers("python-server")
def test_a_member_that_ends_without_coming(run):
    error = run.job("groups.lost", ranks=2, options=["--keep-going"]).ranks[0].result
    assert error.code in (Status.ERR_PARTIAL_SUCCESS, EventCode.GROUP_CONSTRUCT_ABORT)


@pytest.mark.servers("mpirun-*")
def test_a_host_without_groups_says_so(run):
    for error in run("groups.offered", ranks=2):
        assert isinstance(error, NotSupported)


def test_a_lone_process(alone):
    assert isinstance(alone("groups.lonely"), Unreachable)
