"""Members of a group tell each other what they have before they make an MPI communicator; tried without MPI."""

from __future__ import annotations

import sys

import pytest

from pypmix.recipes.communicators import Maker, Offer, agreed
from pypmix.standard.errors import PMIxError
from pypmix.standard.types import Proc

OFFERS = [Offer(Proc("job", 0), True, ""), Offer(Proc("other", 7), True, "")]


def test_offers_travel_as_text() -> None:
    for offer in (*OFFERS, Offer(Proc("jöb", 3), False, 'no "MPI"')):
        assert Offer.decode(offer.encode()) == offer


def test_the_world_is_used_where_all_have_one() -> None:
    assert agreed("g", OFFERS)
    assert not agreed("g", [*OFFERS, Offer(Proc("job", 1), False, "")])


def test_members_that_cannot_take_part_are_named() -> None:
    faults = [Offer(Proc("job", rank), False, f"reason {rank}") for rank in range(2, 8)]
    with pytest.raises(
        PMIxError, match="no communicator of 'g': job:2: reason 2; .*; job:5: reason 5; and 2 more"
    ) as told:
        agreed("g", [*OFFERS, *faults])
    assert told.value.procs == tuple(offer.proc for offer in faults)


@pytest.mark.parametrize("session", [False, True])
def test_no_mpi4py_is_told_and_not_raised(monkeypatch: pytest.MonkeyPatch, session: bool) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "mpi4py.MPI", raising=False)
    offer = Maker(Proc("job", 1), "g", None).offer(session)
    assert offer.proc == Proc("job", 1) and not offer.world and "mpi4py" in offer.problem


def test_the_recipe_imports_no_mpi(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    monkeypatch.delitem(sys.modules, "pypmix.recipes.mpi", raising=False)
    from pypmix.recipes.mpi import Communicator

    assert Communicator.__doc__


def test_procs_are_no_group() -> None:
    from pypmix.aio.recipes.mpi import Communicator as Awaited
    from pypmix.recipes.mpi import Communicator

    for kind in (Communicator, Awaited):
        with pytest.raises(TypeError, match="that of a group or a connection, not of"):
            kind((Proc("job", 0),))  # type: ignore[arg-type]
