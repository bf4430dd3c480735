"""Proves whom users name for a collective: procs, and what stands for procs, alone or among others."""

from __future__ import annotations

import pytest

from pypmix import Proc, ProcSet, Rank
from pypmix.arguments import together

ALL = Proc("job", Rank.WILDCARD)
ONE, TWO = Proc("job", 1), Proc("far", 2)
ADDRESS = Proc("acme", Rank.WILDCARD)


class Addressed:
    """As groups and connections are."""

    _address = ADDRESS

    def __iter__(self):
        return iter((ONE, TWO))


class Nameless(Addressed):
    _address = None


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (ALL, (ALL,)),
        ([ONE, TWO], (ONE, TWO)),
        (Addressed(), (ADDRESS,)),
        (Nameless(), (ONE, TWO)),
        ([Addressed()], (ADDRESS,)),
        ((ALL, Addressed(), Nameless()), (ALL, ADDRESS, ONE, TWO)),
        (iter([ProcSet([ONE]), TWO]), (ONE, TWO)),
        ([ONE, "job"], (ONE, "job")),
        ([7], (7,)),
    ],
)
def test_what_stands_for_procs_may_stand_among_procs(given, expected):
    assert together(given) == expected


def test_a_whole_job_is_a_star():
    assert str(ProcSet.unchecked((ONE, ALL, Proc("far", Rank.WILDCARD)))) == "job:1,* far:*"
