"""Groups that have lost a member are taken apart: nothing of them is found afterwards, and their names are free."""

from __future__ import annotations

import pytest

from lib import pairings

pytestmark = [
    pytest.mark.servers("python-server*", "native-server-*"),
    pytest.mark.forms("sync"),
    pytest.mark.needs("groups"),
]


def seen(run, how):
    """Return what each of the members sees that destruct the group."""
    job = run.job("groups.reduced", 4, options=pairings.surviving(run.server), how=how)
    left = job.ranks
    assert not job.hung and set(left) - {3} == {0, 1, 2}, job.report()
    assert not any(rank.error for rank in left.values()), job.report()
    return [left[rank].result for rank in range(3)]


@pytest.mark.promise("destruct", "query: groups")
@pytest.mark.parametrize("how", ["whole", "leave", "kill", "lost", "lost meanwhile"])
def test_nothing_is_found_of_it(run, how):
    assert [found[:3] for found in seen(run, how)] == [[0, None, None]] * 3


@pytest.mark.promise("construct: ids again")
@pytest.mark.parametrize("how", ["whole", "kill"])
def test_its_name_is_free_again(run, how):
    assert [found[3:] for found in seen(run, how)] == [[2], [2], []]


@pytest.mark.promise("construct")
@pytest.mark.needs("a name that a member has left")
def test_its_name_is_free_again_if_a_member_has_left(run):
    assert [found[3:] for found in seen(run, "leave")] == [[2], [2], []]


@pytest.mark.promise("construct")
@pytest.mark.parametrize("how", ["lost", "lost meanwhile"])
def test_its_name_is_free_again_or_refused_at_once_after_an_error(run, how):
    outcomes = [found[3:] for found in seen(run, how)]
    assert outcomes in ([[2], [2], []], [["ERR_EXISTS"]] * 2 + [[]], [["ERR_RESOURCE_BUSY"]] * 2 + [[]])


@pytest.mark.servers("native-server-*")
@pytest.mark.clients("native-*")
@pytest.mark.promise("construct")
def test_a_name_that_libpmix_keeps_is_refused_at_once(run):
    assert [found[3:] for found in seen(run, "leave")] == [["ERR_EXISTS"], ["ERR_EXISTS"], []]
