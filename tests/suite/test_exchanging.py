"""Every pairing: what ranks give each other by collective calls, again and again, and what goes wrong with it."""

from __future__ import annotations

import pytest

from lib import promises
from pypmix import OperationTimeout, PMIxError

groups = pytest.mark.servers(*promises.PROVEN_ON)

PIECES = [0, 3 << 20, (1 << 20) + 1]


@pytest.mark.promise("values: again and again")
def test_the_same_calls_again_and_again(run):
    assert run("exchanging.of_a_job", ranks=3, rounds=5) == [[]] * 3


@pytest.mark.promise("values: kinds")
def test_what_comes_back_of_each_kind_of_value(run):
    plain = [b"\0\xff", "text", 0.1, -(2**40), True, [1, 2], True, 7]
    assert run("exchanging.kinds", ranks=2) == [(plain, [{"a": [1, None]}, {"a": (1, None)}])] * 2


@pytest.mark.promise("values: any size")
def test_values_of_any_size(run):
    assert run("exchanging.pieces", ranks=3, sizes=PIECES) == [(True, True, True, [0, 1, 2])] * 3


@pytest.mark.needs("fences of some procs of several nodes")
def test_large_values_for_one_rank(run):
    expected = [(size, {rank} if size else set()) for rank, size in enumerate(PIECES)]
    assert run("exchanging.gathered_pieces", ranks=3, sizes=PIECES) == [None, expected, None]


@pytest.mark.promise("values: mistakes are told")
def test_mistakes_are_told(run):
    (first, after), (second, _) = found = run("exchanging.mistakes", ranks=2)
    assert after == [0, 1]
    for errors, _ in found:
        assert isinstance(errors["no such root"], IndexError)
        assert "a rank from 0 to 1, not 9" in str(errors["no such root"])
        assert isinstance(errors["no rank"], TypeError)
        assert isinstance(errors["no codec"], TypeError)
        for name in ("roots", "roots of a gather", "codecs", "calls"):
            assert isinstance(errors[name], PMIxError), name
        assert "has called bcast(root=" in str(errors["roots"])
        assert "codec, and the caller" in str(errors["codecs"])
    assert isinstance(first["no value"], TypeError)
    assert "had no value to give: TypeError" in str(second["no value"])
    assert isinstance(first["a value too few"], ValueError)
    assert "scatter takes 2 values" in str(second["a value too few"])
    for name in ("no value of one", "no value for the root"):
        assert "had no value to give: TypeError" in str(first[name]), name
        assert isinstance(second[name], TypeError), name


@pytest.mark.needs("fence again after a timeout", "every rank is told of a failed fence")
def test_somebody_does_not_come(run):
    for rank, (error, after) in enumerate(run("exchanging.absent", ranks=3)):
        assert rank == 2 or isinstance(error, OperationTimeout)
        assert after == [0, 1, 2]


@pytest.mark.needs("the missing are named")
def test_who_does_not_come_is_named(run):
    for error, _ in run("exchanging.absent", ranks=3)[:2]:
        assert [proc.rank for proc in error.missing] == [2]


@pytest.mark.needs("a rank that leaves without finalize is missed")
def test_somebody_is_killed(run):
    """The others' call ends at once and not as a success, or the host has ended them before they could tell."""
    job = run.job("exchanging.lost", ranks=3)
    assert not job.hung, job.report()
    assert job.exit_code != 0, job.report()
    told = [name for who, name in job.told().items() if who.startswith("outcome-")]
    assert set(told) <= {"PartialSuccess", "list"}, job.report()
    assert not told or set(told) != {"list"}, job.report()


@groups
@pytest.mark.needs("groups")
@pytest.mark.promise("values: groups side by side")
def test_groups_side_by_side(run):
    assert run("exchanging.side_by_side", ranks=4) == [[]] * 4


@groups
@pytest.mark.promise("leave: fault tolerant")
@pytest.mark.needs("groups")
def test_a_group_goes_on_without_a_member_that_has_left(run):
    expected = [([0, 1, 2], ([0, 2], [])), ([0, 1, 2], None), ([0, 1, 2], ([0, 2], []))]
    assert run("exchanging.left", ranks=3) == expected


@groups
@pytest.mark.needs("groups")
def test_a_group_that_is_formed_again(run):
    """Its values are those of its new life, and nothing of the old one is left in the process."""
    assert run("exchanging.formed_again", ranks=3, rounds=4) == [(0, [])] * 3


@groups
@pytest.mark.promise("request")
@pytest.mark.needs("groups")
def test_a_group_that_somebody_has_joined(run):
    assert run("exchanging.joined", ranks=3) == [[]] * 3


@groups
@pytest.mark.promise("nspace: fence")
def test_the_participants_of_a_connection(run):
    assert run("exchanging.connected", ranks=3) == [[]] * 3


@pytest.mark.needs("open again")
def test_clients_that_are_closed_and_opened_again(run):
    assert run("exchanging.opened_again", ranks=2, rounds=3) == [[]] * 2


@pytest.mark.promise("values: old ones go")
def test_values_do_not_stay_with_the_servers(run):
    """Two keys take turns; where each value needs a new one, old ones are empty."""
    for found in run("exchanging.kept", ranks=2, rounds=6):
        assert sum(found) == 2
