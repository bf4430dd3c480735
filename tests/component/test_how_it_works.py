"""The page "How pypmix works" names the files that run: real processes are traced."""

from __future__ import annotations

import pytest

from lib import journeys
from lib.figures import ROOT

pytestmark = pytest.mark.timeout(200)

SECTIONS = journeys.sections(journeys.PAGE.read_text())


@pytest.fixture(scope="module")
def traced() -> list[dict[str, journeys.Journey]]:
    """The journeys of two runs: on a busy machine, what another rank does may fall into the time of one of them."""
    return [journeys.trace_page(ROOT) for _ in range(2)]


@pytest.mark.parametrize("name", journeys.SECTIONS.values())
def test_the_page_names_the_files_on_the_way(traced: list[dict[str, journeys.Journey]], name: str) -> None:
    section, runs = SECTIONS[name], [journey[name].files for journey in traced]
    advice = "correct the steps, then run `python tests/measure.py --page`"
    assert section.steps, "no file is named"
    assert not section.steps - set.union(*runs), f"named by a step, and not run: {advice}"
    assert not set.intersection(*runs) - section.steps - section.also, f"run, and not named: {advice}"
    assert not [path for path in section.also if not (ROOT / "pypmix" / path).exists()], advice
