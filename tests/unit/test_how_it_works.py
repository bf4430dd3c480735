"""The page "How pypmix works" names the files that run: real processes are traced."""

from __future__ import annotations

import pytest

from harness import journeys
from harness.figures import ROOT

pytestmark = pytest.mark.timeout(200)

SECTIONS = journeys.sections(journeys.PAGE.read_text())


@pytest.fixture(scope="module")
def traced() -> dict[str, journeys.Journey]:
    return journeys.trace_page(ROOT)


@pytest.mark.parametrize("name", journeys.SECTIONS.values())
def test_the_page_names_the_files_on_the_way(traced: dict[str, journeys.Journey], name: str) -> None:
    section, ran = SECTIONS[name], traced[name].files
    advice = "correct the steps, then run `python tests/measure.py --page`"
    assert section.steps, "no file is named"
    assert not section.steps - ran, f"named by a step, and not run: {advice}"
    assert not ran - section.steps - section.also, f"run, and not named: {advice}"
    assert not [path for path in section.also if not (ROOT / "pypmix" / path).exists()], advice
