"""The choice of a roster: by a resource manager's variable, by an option, or by its name alone."""

from __future__ import annotations

import pytest

from pypmix.cli.options import NodeSelection
from pypmix.cli.run import is_local_run
from pypmix.host.rosters.choosing import HOMES, LOCAL, MARKS, NAMED_ONLY

BY_OPTION = {"symmetric", "ssh"}


def test_every_roster_has_a_mark_or_an_option_or_needs_its_name() -> None:
    assert sorted([*MARKS, *NAMED_ONLY, *BY_OPTION]) == sorted(HOMES)


@pytest.mark.parametrize("roster", MARKS)
def test_a_mark_makes_a_run_look_for_nodes(roster: str) -> None:
    env = {MARKS[roster]: "1"}
    assert not is_local_run(NodeSelection(), env)
    assert is_local_run(NodeSelection(roster=LOCAL), env)
    assert is_local_run(NodeSelection(), {})
