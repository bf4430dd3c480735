"""Proves the rules on which servers of a session must agree."""

from __future__ import annotations

from itertools import permutations

import pytest

from pypmix.engine.collective import rules
from pypmix.engine.collective.rules import OrderProposal
from pypmix.standard import attrs, codes
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import Info, Proc, Value


def procs(*ranks):
    return tuple(Proc("job", rank) for rank in ranks)


def flag(key, value=True):
    return Info(key, Value(codes.BOOL, value))


def test_the_final_order_of_the_first_proc_counts_whichever_comes_first():
    given = [(procs(3), procs(2, 3)), (procs(2), ()), (procs(5, 1), procs(3, 2))]
    for each in permutations(given):
        assert rules.final_order(each) == procs(3, 2)
    assert rules.final_order([(procs(1), ())]) == rules.final_order([]) == ()


def test_the_leaders_order_counts_before_that_of_the_others():
    others = OrderProposal(procs(0, 1, 2)), OrderProposal(procs(0, 1, 2))
    leader = OrderProposal(procs(2, 1, 0), leads=True)
    for wishes in permutations((*others, leader)):
        assert rules.agreed_order(wishes) == procs(2, 1, 0)


def test_an_order_holds_without_a_leader_if_all_have_it():
    assert rules.agreed_order([OrderProposal(procs(2, 1))] * 3) == procs(2, 1)
    assert rules.agreed_order((OrderProposal(procs(2, 1)), OrderProposal(procs(1, 2)))) == ()
    assert rules.agreed_order((OrderProposal(procs(2, 1)), OrderProposal())) == ()
    assert rules.agreed_order((OrderProposal(procs(2, 1)), OrderProposal(leads=True))) == ()
    assert rules.agreed_order(()) == ()


def test_contributions_that_were_combined_before_lead_to_the_same_order():
    ours = OrderProposal(procs(3, 0, 1), leads=True), OrderProposal(procs(0, 1, 3))
    theirs = OrderProposal(procs(1, 0, 3)), OrderProposal(procs(1, 0, 3))
    above = OrderProposal(rules.agreed_order(ours), leads=True), OrderProposal(rules.agreed_order(theirs))
    assert rules.agreed_order(above) == rules.agreed_order((*ours, *theirs)) == procs(3, 0, 1)


def test_members_are_placed_once_each_and_only_members():
    assert rules.placed(procs(2, 7, 2, 0), procs(0, 1, 2, 3)) == procs(2, 0, 1, 3)
    assert rules.placed((), procs(3, 1)) == procs(1, 3)


@pytest.mark.parametrize(
    ("operation", "keys"),
    [
        (rules.FENCE, {attrs.GROUP_FT_COLLECTIVE}),
        (rules.CONSTRUCT, {attrs.GROUP_FT_COLLECTIVE, attrs.GROUP_NOTIFY_TERMINATION, attrs.GROUP_OPTIONAL}),
        (rules.DESTRUCT, {attrs.GROUP_FT_COLLECTIVE, attrs.GROUP_NOTIFY_TERMINATION}),
        (rules.CONNECT, {attrs.GROUP_FT_COLLECTIVE}),
    ],
)
def test_which_directives_make_an_operation_fault_tolerant(operation, keys):
    for attribute in (attrs.GROUP_FT_COLLECTIVE, attrs.GROUP_NOTIFY_TERMINATION, attrs.GROUP_OPTIONAL):
        assert rules.is_ft(operation, (flag(attribute.key),)) == (attribute in keys)
        assert not rules.is_ft(operation, (flag(attribute.key, False),))
    assert not rules.is_ft(operation, ())
    assert rules.is_ft(rules.DISCONNECT, ())


def test_leaders_agree_on_their_number_or_fail():
    assert rules.leader_count(()) is None
    assert rules.leader_count((3, 3)) == 3
    for counts in ((2, 3), (0,), (-1,), (rules.MAX_LEADERS + 1,)):
        with pytest.raises(PMIxError, match="leaders expect"):
            rules.leader_count(counts)


def test_leaders_that_are_lost_are_not_waited_for():
    assert not rules.have_all_leaders(None, 5, 5)
    assert not rules.have_all_leaders(3, 1, 1)
    assert rules.have_all_leaders(3, 2, 1)


def test_members_of_a_bootstrap_are_the_leaders_and_then_those_they_add():
    assert rules.bootstrap_order(procs(2, 4), procs(9, 8)) == procs(2, 4, 9, 8)
    assert rules.bootstrap_order(procs(4, 2), procs(9, 4)) == procs(4, 2, 9)
    assert rules.bootstrap_order(procs(2, 4), procs(9), procs(9, 7, 4)) == procs(9, 4, 2)


def test_a_flag_that_one_contributor_sets_is_set_and_values_are_those_of_the_first():
    first = flag("a", False), Info("b", Value(codes.STRING, "first")), Info("b", Value(codes.STRING, "second"))
    other = flag("a"), Info("b", Value(codes.STRING, "other")), flag("c"), flag("d")
    found = rules.combined((first, (), other, other), frozenset("d"))
    assert found == (flag("a"), *first[1:], flag("c"))
