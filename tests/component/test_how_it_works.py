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


def position(journey: journeys.Journey, step: journeys.Step) -> tuple[str, int] | None:
    """Return the side on which a function ran, and its place there; the client's side if it ran on both."""
    for side in ("client", "server"):
        steps: tuple[journeys.Step, ...] = getattr(journey, side)
        if step in steps:
            return side, steps.index(step)
    return None


@pytest.mark.parametrize("name", journeys.SECTIONS.values())
def test_the_page_names_the_files_on_the_way(traced: list[dict[str, journeys.Journey]], name: str) -> None:
    section, runs = SECTIONS[name], [journey[name].files for journey in traced]
    advice = "correct the steps, then run `python tests/measure.py --page`"
    assert section.steps, "no file is named"
    assert not section.steps - set.union(*runs), f"named by a step, and not run: {advice}"
    if section.is_whole:
        assert not set.intersection(*runs) - section.steps - section.also, f"run, and not named: {advice}"
    assert not [path for path in section.also if not (ROOT / "pypmix" / path).exists()], advice


@pytest.mark.parametrize("name", journeys.SECTIONS.values())
def test_each_step_names_functions_that_run(traced: list[dict[str, journeys.Journey]], name: str) -> None:
    steps = SECTIONS[name].functions
    assert steps and all(steps), "each step names a function after its file and a colon"
    passed = {step for journey in traced for step in (*journey[name].client, *journey[name].server)}
    assert not [step for each in steps for step in each if step not in passed]


@pytest.mark.parametrize("name", ["put", "fence", "construct", "upcall"])
def test_the_functions_run_in_the_order_of_the_steps(traced: list[dict[str, journeys.Journey]], name: str) -> None:
    """Each side has an order: another rank's call may come before this one's."""
    for side in ("client", "server"):
        for journey in traced:
            found = [position(journey[name], step) for each in SECTIONS[name].functions for step in each]
            places = [each[1] for each in found if each is not None and each[0] == side]
            assert places == sorted(places), [step for each in SECTIONS[name].functions for step in each]
