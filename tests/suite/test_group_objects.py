"""Groups, invitations and leadership as objects do what the design shows, in both forms."""

from __future__ import annotations

import pytest

from lib.pairings import NODES

pytestmark = pytest.mark.servers("python-server", NODES, "prterun-*")

constructs = pytest.mark.needs("groups")
"""Invitations alone need no construct that the library understands."""


def survivors(run, scenario, ranks, victims):
    """What the ranks that do not end by themselves return, in their order."""
    found = run.survivors(scenario, ranks, victims)
    return [found[rank] for rank in sorted(found)]


@constructs
def test_a_group_for_a_block(run):
    first, second, third, fourth = run("group_objects.evens", ranks=4)
    assert second is fourth is None
    assert first[:2] == (0, 2) and third[:2] == (1, 2)
    assert first[2] == third[2] and isinstance(first[2], int)
    assert first[3] == third[3] == [0, 2]


@constructs
def test_groups_without_names(run):
    found = run("group_objects.unnamed", ranks=4)
    assert [[members for _, members in row] for row in found] == [
        [[0, 1, 2, 3], half, [0, 1, 2, 3]] for half in ([0, 2], [1, 3], [0, 2], [1, 3])
    ]
    assert len({row[0][0] for row in found}) == len({row[2][0] for row in found}) == 1
    assert len({name for row in found for name, _ in row}) == 4


@constructs
def test_an_exception_leaves(run):
    first, *others = run("group_objects.raising", ranks=3)
    assert first == ("mine", False)
    assert others == [((True, [0], 2, [1, 2], 2), False)] * 2


@constructs
def test_a_member_ends(run):
    assert survivors(run, "group_objects.dying", 3, [1]) == [(True, [1], [0, 2], 0), (True, [1], [0, 2], 1)]


def test_one_is_replaced(run):
    members = [0, 2, 3]
    assert run("group_objects.spare", ranks=4) == [(members, 0, [0]), None, (members, 1, [0]), (members, 2, [0])]


@constructs
def test_some_are_dropped(run):
    first, second, last = survivors(run, "group_objects.fewer", 4, [2])
    assert first == ([("Accepted", 3), ("Declined", 1), ("Failed", 2)], [0, 3], True)
    assert (second, last) == (None, [0, 3])


def test_a_group_is_given_up(run):
    assert run("group_objects.given_up", ranks=3) == [["KeyError"]] + [["ConstructAborted"] * 2] * 2


def test_a_function_answers(run):
    assert run("group_objects.automatic", ranks=3) == [[0, 2], None, [0, 2]]


@constructs
def test_a_leader_follows_another(run):
    assert survivors(run, "group_objects.failover", 4, [0, 1]) == [[(1, 0, [2, 3]), (2, 1, [2, 3]), (3, 2, [2, 3])]] * 2


@pytest.mark.forms("asyncio")
@constructs
def test_scopes_end_with_terms(run):
    assert survivors(run, "group_scopes.scopes", 3, [0]) == [["obey 1", "command 2"], ["obey 1", "obey 2"]]


@constructs
def test_the_next_leader_ends_too(run):
    for leaders in survivors(run, "group_objects.both", 4, [0, 1]):
        assert leaders[:3] == [0, 2, True]
        assert leaders[3] >= 2


@constructs
def test_who_asks_is_taken_in_or_refused(run):
    first, second, third, fourth = run("group_objects.requests", ranks=4)
    assert first == second == ([2], [0, 1, 2])
    assert (third, fourth) == ([0, 1, 2], (True, True))


@pytest.mark.servers("python-server*")
@constructs
def test_a_handler_gives_a_construct_up(run):
    assert survivors(run, "group_objects.aborting", 3, [2]) == ["ConstructAborted"] * 2
