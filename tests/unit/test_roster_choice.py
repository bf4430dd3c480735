"""The choice of a roster: by a resource manager's variable, by an option, or by its name alone."""

from __future__ import annotations

import pytest

from pypmix.cli.options import NodeSelection
from pypmix.cli.run import is_local_run
from pypmix.host.extensions import read_register
from pypmix.host.rosters.base import RosterError, Settings
from pypmix.host.rosters.choosing import HOMES, LOCAL, MARKS, choose, find_kind, list_candidates

REGISTERED = read_register()
ALL_MARKS = {**MARKS, **REGISTERED["roster-marks"]}
BY_OPTION = ["symmetric", "ssh"]
NAMED_ONLY = ["pmix", "prrte"]


def test_every_roster_has_a_mark_or_an_option_or_needs_its_name() -> None:
    assert sorted([*ALL_MARKS, *NAMED_ONLY, *BY_OPTION]) == sorted([*HOMES, *REGISTERED["rosters"]])


@pytest.mark.parametrize("roster", ALL_MARKS)
def test_a_mark_makes_a_run_look_for_nodes(roster: str) -> None:
    env = {ALL_MARKS[roster]: "1"}
    assert not is_local_run(NodeSelection(), env)
    assert is_local_run(NodeSelection(roster=LOCAL), env)
    assert is_local_run(NodeSelection(), {})
    # A roster of the core finds out itself, and names the variables that are missing.
    assert list_candidates(env) == [*BY_OPTION, "kubernetes", *([roster] if roster == "flux" else []), "slurm"]


def test_a_flux_instance_in_a_slurm_job_is_found_first() -> None:
    assert list_candidates(dict.fromkeys(ALL_MARKS.values(), "1")) == [*BY_OPTION, "kubernetes", "flux", "slurm"]


@pytest.mark.parametrize("roster", NAMED_ONLY)
def test_some_rosters_are_used_only_if_they_are_named(roster: str) -> None:
    assert roster not in list_candidates(dict.fromkeys([*ALL_MARKS.values(), "PMIX_NAMESPACE", "PMIX_RANK"], "1"))
    assert find_kind(roster).name == roster


def test_an_unknown_roster_is_refused_with_the_names_of_all() -> None:
    with pytest.raises(
        RosterError, match="no roster 'fluxx': symmetric, ssh, kubernetes, slurm, flux, pmix, prrte, local"
    ):
        choose(Settings({}), "fluxx")
